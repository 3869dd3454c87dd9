package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

// benchListings returns n tools. Beyond those of the public sets they are made
// of these, with words that make each one differ.
func benchListings(t testing.TB, n int) []Listing {
	t.Helper()
	switch n {
	case 1510:
		return evalListings(t, shared(t, "eval", "bigmcp", "tools.jsonl"))
	case 4076:
		return evalListings(t, shared(t, "eval", "sealtools", "tools.jsonl"))
	}
	base := append(evalListings(t, shared(t, "eval", "bigmcp", "tools.jsonl")), evalListings(t, shared(t, "eval", "stabletoolbench", "tools.jsonl"))...)
	r := rand.New(rand.NewPCG(1, 2))
	syllables := strings.Fields("ka lo mi ter vo ran sel pu dri con ex tra bio geo neo fin mar tal ost quin")
	var out []Listing
	for made, round := 0, 0; made < n; round++ {
		for _, l := range base {
			if made == n {
				break
			}
			word := ""
			for range 3 {
				word += syllables[r.IntN(len(syllables))]
			}
			c := Listing{Key: fmt.Sprintf("%s-%d", l.Key, round), Server: fmt.Sprintf("%s-%s%d", l.Server, word, round)}
			for _, b := range l.Tools[:min(len(l.Tools), n-made)] {
				x := b.On(c.Server)
				if round > 0 {
					x.Name += "_" + word
					x.Description += " For " + word + "."
				}
				c.Tools = append(c.Tools, x)
			}
			made += len(c.Tools)
			out = append(out, c)
		}
	}
	return out
}

func benchIndex(t testing.TB, ls []Listing) *Index {
	t.Helper()
	x := Open(Options{})
	for _, l := range ls {
		x.take(l)
	}
	x.publish()
	return x
}

var benchSizes = []int{1510, 4076, 10_000, 100_000}

// BenchmarkSearch gives the median and the 95th percentile over the short
// queries of people and over the long ones of whole tasks.
func BenchmarkSearch(b *testing.B) {
	for _, n := range benchSizes {
		ls := benchListings(b, n)
		x := benchIndex(b, ls)
		s := x.Snapshot()
		for _, kind := range []struct{ name, file string }{{"ordinary", "big-human"}, {"long", "seal"}} {
			queries := jsonLines[evalQuery](b, shared(b, "eval", "dev", kind.file+".jsonl"))
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var took []time.Duration
				for i := 0; b.Loop(); i++ {
					start := time.Now()
					s.Search(Query{Text: queries[i%len(queries)].Query})
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
			})
		}
	}
}

// BenchmarkBuild analyzes all tools and makes the snapshot.
func BenchmarkBuild(b *testing.B) {
	for _, n := range benchSizes {
		ls := benchListings(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchIndex(b, ls)
			}
		})
	}
}

// BenchmarkReplace lists one server of many again with one changed tool: what a
// list_changed costs.
func BenchmarkReplace(b *testing.B) {
	for _, n := range benchSizes {
		ls := benchListings(b, n)
		x := benchIndex(b, ls)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				l := ls[0]
				raw := fmt.Sprintf(`{"name":"changed","description":"Version %d"}`, i)
				p, err := tool.Parse(l.Server, []byte(raw))
				if err != nil {
					b.Fatal(err)
				}
				l.Tools = append(slices.Clone(l.Tools), p)
				if err := x.Replace(l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMemory reports what the index itself keeps alive, and with the
// definitions.
func BenchmarkMemory(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				before := heapInUse()
				ls := benchListings(b, n)
				between := heapInUse()
				x := benchIndex(b, ls)
				after := heapInUse()
				b.ReportMetric(float64(after-between)/(1<<20), "index-MB")
				b.ReportMetric(float64(between-before)/(1<<20), "definitions-MB")
				runtime.KeepAlive(x)
				runtime.KeepAlive(ls)
			}
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
