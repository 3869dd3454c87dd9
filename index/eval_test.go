package index

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
)

// shared returns a path of the public data, which lives beside the checkout.
// Where it is missing the test is skipped, but not in CI.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = up
	}
	path := filepath.Join(append([]string{filepath.Dir(dir), "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the data for this test is missing: %v", err)
		}
		t.Skipf("the data for this test is missing: %v", err)
	}
	return path
}

// evalSets are the public sets: queries, and the tools they are asked among.
var evalSets = []struct{ name, queries, tools string }{
	{"live-step", "live-step", "livemcp"},
	{"live-agent", "live-agent", "livemcp"},
	{"live-task", "live-task", "livemcp"},
	{"big-step", "live-step", "bigmcp"},
	{"big-agent", "live-agent", "bigmcp"},
	{"big-human", "big-human", "bigmcp"},
	{"stb", "stb", "stabletoolbench"},
	{"seal", "seal", "sealtools"},
	{"golden", "golden", "mcpproxy-golden"},
	{"big-mech", "big-mech", "bigmcp"}, // last: not part of the mean
}

type evalQuery struct {
	ID       string   `json:"id"`
	Query    string   `json:"query"`
	Relevant []string `json:"relevant"`
	Group    string   `json:"group"`
}

func jsonLines[T any](t testing.TB, path string) []T {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	d := json.NewDecoder(bufio.NewReader(bytes.NewReader(b)))
	for {
		var v T
		if err := d.Decode(&v); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatalf("reading %s: %v", path, err)
		}
		out = append(out, v)
	}
}

// evalListings reads a file of tools as listings, one a server.
func evalListings(t testing.TB, path string) []Listing {
	t.Helper()
	var out []Listing
	at := map[string]int{}
	for _, l := range jsonLines[struct {
		Server      string          `json:"server"`
		Tool        string          `json:"tool"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}](t, path) {
		raw, err := json.Marshal(map[string]any{"name": l.Tool, "description": l.Description, "inputSchema": l.InputSchema})
		if err != nil {
			t.Fatal(err)
		}
		p, err := tool.Parse(l.Server, raw)
		if err != nil {
			t.Fatal(err)
		}
		i, ok := at[l.Server]
		if !ok {
			i = len(out)
			at[l.Server] = i
			out = append(out, Listing{Key: l.Server, Server: l.Server})
		}
		out[i].Tools = append(out[i].Tools, p)
	}
	return out
}

var evalCache sync.Map // path → *Index

// evalIndex returns an index of a file of tools, made once.
func evalIndex(t testing.TB, path string) *Index {
	t.Helper()
	if x, ok := evalCache.Load(path); ok {
		return x.(*Index)
	}
	x := Open(Options{})
	for _, l := range evalListings(t, path) {
		x.take(l)
	}
	x.publish()
	evalCache.Store(path, x)
	return x
}

// measures are averages over queries.
type measures struct {
	n                               int
	hit1, hit3, hit5, r5, r10, ndcg float64
}

func (m *measures) add(relevant, ranked []string) {
	left := map[string]bool{}
	for _, id := range relevant {
		left[id] = true
	}
	total := len(left)
	m.n++
	found, first, dcg, ideal := 0, 0, 0.0, 0.0
	for i := range 10 {
		gain := 1 / math.Log2(float64(i+2))
		if i < total {
			ideal += gain
		}
		if i < len(ranked) && left[ranked[i]] {
			left[ranked[i]] = false
			found++
			dcg += gain
			if first == 0 {
				first = i + 1
			}
		}
		if i == 4 {
			m.r5 += float64(found) / float64(total)
		}
	}
	m.r10 += float64(found) / float64(total)
	m.ndcg += dcg / ideal
	for k, p := range map[int]*float64{1: &m.hit1, 3: &m.hit3, 5: &m.hit5} {
		if first > 0 && first <= k {
			*p++
		}
	}
}

func (m measures) mean() measures {
	n := float64(max(m.n, 1))
	return measures{m.n, m.hit1 / n, m.hit3 / n, m.hit5 / n, m.r5 / n, m.r10 / n, m.ndcg / n}
}

func rankedIDs(s *Snapshot, text string) []string {
	var ids []string
	for _, m := range s.Search(Query{Text: text, Max: 10, NoCut: true}).Matches {
		if len(ids) < 10 {
			ids = append(ids, m.Tool.ID.String())
		}
	}
	return ids
}

// evaluate runs the queries of a file and returns the measures of all and of
// each group.
func evaluate(t testing.TB, s *Snapshot, queries string) (all measures, groups map[string]measures) {
	t.Helper()
	sums := map[string]*measures{}
	for _, q := range jsonLines[evalQuery](t, queries) {
		ranked := rankedIDs(s, q.Query)
		all.add(q.Relevant, ranked)
		if q.Group != "" {
			if sums[q.Group] == nil {
				sums[q.Group] = &measures{}
			}
			sums[q.Group].add(q.Relevant, ranked)
		}
	}
	groups = map[string]measures{}
	for g, m := range sums {
		groups[g] = m.mean()
	}
	return all.mean(), groups
}

func rawList(t testing.TB, b []byte) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
