package index

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/toolsd/toolsd/index/tool"
)

// TestMain lets the test binary be the process that examines a file.
func TestMain(m *testing.M) {
	if path := os.Getenv("INDEX_TEST_VERIFY"); path != "" {
		if err := VerifyFile(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checkInChild is what the daemon gives as Options.Check.
func checkInChild(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "INDEX_TEST_VERIFY="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("%w: %s", err, first)
	}
	return nil
}

func sampleListings(t testing.TB) []Listing {
	var out []Listing
	for i := range 6 {
		var names []string
		for j := range 30 {
			names = append(names, fmt.Sprintf("%s_part%d", []string{"export", "import", "place", "route"}[j%4], i*100+j))
		}
		l := listingOf(t, fmt.Sprintf("key-%d", i), fmt.Sprintf("server%d", i), names...)
		l.Instructions = strings.Repeat("How to use it. ", 200)
		l.Listed = time.Unix(1700000000, 0).UTC()
		out = append(out, l)
	}
	return out
}

func fill(t testing.TB, path string, ls []Listing) {
	t.Helper()
	x := Open(Options{Path: path, Check: checkInChild})
	defer x.Close()
	for _, l := range ls {
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	if p := x.Problem(); p != "" {
		t.Fatal(p)
	}
}

// sameAs fails unless the index holds exactly these listings.
func sameAs(t *testing.T, s *Snapshot, ls []Listing) {
	t.Helper()
	if len(s.Keys()) != len(ls) {
		t.Errorf("the index holds %d listings, want %d", len(s.Keys()), len(ls))
		return
	}
	for _, want := range ls {
		got, ok := s.Listing(want.Key)
		if !ok || got.Server != want.Server || got.Instructions != want.Instructions || len(got.Tools) != len(want.Tools) {
			t.Errorf("listing %s came back otherwise", want.Key)
			return
		}
		for i := range want.Tools {
			if !bytes.Equal(got.Tools[i].Raw, want.Tools[i].Raw) || got.Tools[i].Hash != want.Tools[i].Hash {
				t.Errorf("tool %s came back as %s", want.Tools[i].Raw, got.Tools[i].Raw)
				return
			}
		}
	}
}

// TestInvariant1 damages the file in many ways: the index then opens either with
// everything as it was or with nothing, and when the servers have listed again
// all is as before, on disk too.
func TestInvariant1(t *testing.T) {
	ls := sampleListings(t)
	good := filepath.Join(t.TempDir(), "index.db")
	fill(t, good, ls)
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(content, "\x00"))
	damage := map[string]func(b []byte) []byte{
		"deleted":   func([]byte) []byte { return nil },
		"unharmed":  func(b []byte) []byte { return b },
		"empty":     func([]byte) []byte { return []byte{} },
		"one byte":  func(b []byte) []byte { return b[:1] },
		"text":      func([]byte) []byte { return []byte("not a database\n") },
		"all zero":  func(b []byte) []byte { return make([]byte, len(b)) },
		"last byte": func(b []byte) []byte { return b[:len(b)-1] },
		"half":      func(b []byte) []byte { return b[:used/2] },
		"doubled":   func(b []byte) []byte { return append(bytes.Clone(b), b...) },
		"shifted":   func(b []byte) []byte { return b[1:] },
	}
	page := os.Getpagesize()
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 8, 12, 20} {
		if (n+1)*page > used {
			continue
		}
		damage[fmt.Sprintf("cut at page %d", n)] = func(b []byte) []byte { return b[:n*page] }
		damage[fmt.Sprintf("page %d zeroed", n)] = func(b []byte) []byte {
			clear(b[n*page : (n+1)*page])
			return b
		}
		damage[fmt.Sprintf("page %d ones", n)] = func(b []byte) []byte {
			copy(b[n*page:(n+1)*page], bytes.Repeat([]byte{0xff}, page))
			return b
		}
		damage[fmt.Sprintf("page %d from another", n)] = func(b []byte) []byte {
			copy(b[n*page:(n+1)*page], b[((n+3)*page)%(used/page*page):])
			return b
		}
	}
	for seed := range uint64(24) {
		damage[fmt.Sprintf("random %d", seed)] = func(b []byte) []byte {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 1 + r.IntN(40) {
				b[r.IntN(used)] ^= byte(1 << r.IntN(8))
			}
			return b
		}
	}
	if testing.Short() || raceBuild() { // each is a process, and slow to start with the race detector
		for name := range damage {
			if strings.HasPrefix(name, "random 1") || strings.HasPrefix(name, "random 2") || strings.HasPrefix(name, "page 1") || strings.HasSuffix(name, "ones") {
				delete(damage, name)
			}
		}
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "index.db")
			if b := f(bytes.Clone(content)); b != nil {
				if err := os.WriteFile(path, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			recovers(t, path, ls, name == "unharmed")
		})
	}
}

// recovers opens a file of unknown state and lets the servers list again.
func recovers(t *testing.T, path string, ls []Listing, whole bool) {
	t.Helper()
	x := Open(Options{Path: path, Check: checkInChild})
	if n := len(x.Snapshot().Keys()); n != 0 {
		sameAs(t, x.Snapshot(), ls)
	} else if whole {
		t.Error("a good file was not used")
	}
	for _, l := range ls {
		if err := x.Replace(l); err != nil {
			t.Errorf("listing again: %v", err)
		}
	}
	if p := x.Problem(); p != "" {
		t.Error(p)
	}
	sameAs(t, x.Snapshot(), ls)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	y := Open(Options{Path: path, Check: checkInChild})
	defer y.Close()
	sameAs(t, y.Snapshot(), ls)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, want 0600", info.Mode())
	}
}

// TestForgedFile writes what only a program could: a valid database of other
// content.
func TestForgedFile(t *testing.T) {
	ls := sampleListings(t)
	for name, forge := range map[string]func(tx *bbolt.Tx) error{
		"another format": func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte("999")) },
		"a lost listing": func(tx *bbolt.Tx) error { return tx.Bucket(bucketListings).Delete(recordKey("key-3")) },
		"a changed value": func(tx *bbolt.Tx) error {
			v := bytes.Clone(tx.Bucket(bucketListings).Get(recordKey("key-3")))
			v[len(v)/2] ^= 1
			return tx.Bucket(bucketListings).Put(recordKey("key-3"), v)
		},
		"values swapped": func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketListings)
			v := bytes.Clone(b.Get(recordKey("key-3")))
			return b.Put(recordKey("key-4"), v)
		},
		"no buckets": func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketListings) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			fill(t, path, ls)
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(forge); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			x := Open(Options{Path: path, Check: checkInChild})
			if n := len(x.Snapshot().Keys()); n != 0 {
				t.Errorf("%d listings of a forged file were used", n)
			}
			x.Close()
			recovers(t, path, ls, false)
		})
	}
}

// TestDamageWhileOpen harms the file under a running index.
func TestDamageWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed or cut on Windows")
	}
	ls := sampleListings(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(path string) error{
		"deleted":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"cut":       func(path string) error { return os.Truncate(path, int64(3*os.Getpagesize())) },
		"overwritten": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(bytes.Repeat([]byte{0xaa}, 64<<10), 0)
			return err
		},
		"truncated and grown": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.Truncate(path, 0); err != nil {
				return err
			}
			return os.Truncate(path, info.Size())
		},
		"replaced by a link": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(outside, path)
		},
		"replaced by a directory": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			x := Open(Options{Path: path, Check: checkInChild})
			for _, l := range ls[:3] {
				if err := x.Replace(l); err != nil {
					t.Fatal(err)
				}
			}
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			for _, l := range ls[3:] {
				if err := x.Replace(l); err != nil {
					t.Errorf("listing after the damage: %v", err)
				}
			}
			sameAs(t, x.Snapshot(), ls)
			if p := x.Problem(); p != "" {
				t.Error(p)
			}
			x.Close()
			recovers(t, path, ls, false)
		})
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "mine" {
		t.Errorf("the target of a link was touched: %q, %v", b, err)
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target.db")
	ls := sampleListings(t)
	fill(t, target, ls)
	before, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "index.db")
	if err := os.Symlink(target, path); err != nil {
		t.Skip(err)
	}
	x := Open(Options{Path: path, Check: checkInChild})
	defer x.Close()
	if n := len(x.Snapshot().Keys()); n != 0 {
		t.Errorf("%d listings were read through a link", n)
	}
	if err := x.Replace(ls[0]); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(target); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the target of a link was changed (%v)", err)
	}
}

// TestMemoryOnly works where no file can be made, and says so.
func TestMemoryOnly(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x := Open(Options{Path: filepath.Join(blocked, "index.db")})
	defer x.Close()
	if x.Problem() == "" {
		t.Error("a cache that cannot be written is no problem?")
	}
	ls := sampleListings(t)
	for _, l := range ls {
		_ = x.Replace(l) // the problem was told
	}
	sameAs(t, x.Snapshot(), ls)
	if r := x.Snapshot().Search(Query{Text: "route part 503"}); len(r.Matches) == 0 {
		t.Error("nothing found in memory")
	}
}

// TestFull reaches the largest size of the file: what does not fit is served
// from memory, what was written stays good, and room made is used.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	small := listingOf(t, "small", "small", "export_small")
	x := Open(Options{Path: path, Check: checkInChild, maxFile: 1 << 20})
	if err := x.Replace(small); err != nil {
		t.Fatal(err)
	}
	big := listingOf(t, "big", "big", "export_big")
	big.Instructions = strings.Repeat("x", 2<<20)
	if err := x.Replace(big); err == nil {
		t.Error("a listing larger than the file was written")
	}
	if x.Problem() == "" {
		t.Error("a full file is no problem?")
	}
	sameAs(t, x.Snapshot(), []Listing{small, big})
	big.Instructions = ""
	if err := x.Replace(big); err != nil {
		t.Errorf("writing what fits: %v", err)
	}
	if p := x.Problem(); p != "" {
		t.Errorf("the problem stays: %s", p)
	}
	x.Close()
	y := Open(Options{Path: path, Check: checkInChild})
	defer y.Close()
	sameAs(t, y.Snapshot(), []Listing{small, big})
}

// TestSlowCheckIsBounded gives up on a check that does not end.
func TestSlowCheckIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	fill(t, path, sampleListings(t)[:1])
	asked := make(chan time.Duration, 1)
	x := Open(Options{Path: path, Check: func(ctx context.Context, _ string) error {
		deadline, ok := ctx.Deadline()
		if !ok {
			asked <- 0
		} else {
			asked <- time.Until(deadline)
		}
		return context.DeadlineExceeded
	}})
	defer x.Close()
	if d := <-asked; d <= 0 || d > checkTimeout {
		t.Errorf("the check may take %v", d)
	}
	if len(x.Snapshot().Keys()) != 0 {
		t.Error("a file that was not found good was used")
	}
}

// TestUnchangedListingIsNotWritten keeps reconnects from costing a disk sync.
func TestUnchangedListingIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	ls := sampleListings(t)
	x := Open(Options{Path: path})
	defer x.Close()
	for _, l := range ls {
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later := ls[3]
	later.Listed = later.Listed.Add(time.Hour)
	if err := x.Replace(later); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("an unchanged listing was written again")
	}
	if l, _ := x.Snapshot().Listing(later.Key); !l.Listed.Equal(later.Listed) {
		t.Errorf("the time of the listing is %v, want %v", l.Listed, later.Listed)
	}
}

// TestWhatIsNotInTheDefinition keeps what a definition does not say itself: that
// something was taken out of it, and what it was before.
func TestWhatIsNotInTheDefinition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	parse := func(description string) *tool.Tool {
		p, err := tool.Parse("s", json.RawMessage(`{"name":"a","description":"`+description+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	x := Open(Options{Path: path})
	replace := func(l Listing) {
		t.Helper()
		l.Key, l.Server = "k", "s"
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	replace(Listing{Tools: []*tool.Tool{parse("one two")}})
	replace(Listing{Tools: []*tool.Tool{parse("one\u200b two")}, Was: map[string]json.RawMessage{"a": json.RawMessage(`{"name":"a"}`)}})
	for range 2 {
		l, ok := x.Snapshot().Listing("k")
		if !ok || !l.Tools[0].Hidden || l.Tools[0].Description != "one two" || string(l.Was["a"]) != `{"name":"a"}` {
			t.Errorf("%+v", l)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = Open(Options{Path: path})
	}
	x.Close()
}
