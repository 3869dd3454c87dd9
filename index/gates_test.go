package index

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference in review")

// raceBuild reports whether the race detector is part of this binary.
func raceBuild() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// golden compares with a file in testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == strings.ReplaceAll(string(want), "\r\n", "\n") {
		return
	}
	var diff strings.Builder
	w, g := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "", ""
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			fmt.Fprintf(&diff, "-%s\n+%s\n", a, b)
		}
	}
	t.Errorf("%s differs; when that is meant: go test ./index -run %s -update\n%s", path, t.Name(), diff.String())
}

// TestGates holds the ranking to what it has reached on the public sets, and
// pins the figures, so that a change of the ranking arrives as a difference.
func TestGates(t *testing.T) {
	if raceBuild() {
		t.Skip("a ranking has no goroutines, and 2,000 queries take a minute under the race detector")
	}
	gates := map[string]measures{ // the least of each; 0 is no gate
		"big-human":  {hit1: .86, hit3: .94, r5: .90},
		"big-mech":   {hit1: .94, hit5: .98},
		"live-agent": {hit3: .83, ndcg: .76},
		"big-agent":  {ndcg: .73, r5: .72},
		"live-step":  {ndcg: .75},
		"big-step":   {ndcg: .725},
		"live-task":  {r5: .36},
		"stb":        {r5: .71, ndcg: .725},
		"seal":       {r5: .92, ndcg: .935},
		"golden":     {r5: .82},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-20s %7s %6s %6s %6s %6s %6s %6s\n", "set", "queries", "hit@1", "hit@3", "hit@5", "R@5", "R@10", "nDCG")
	row := func(name string, m measures) {
		fmt.Fprintf(&table, "%-20s %7d %6.3f %6.3f %6.3f %6.3f %6.3f %6.3f\n", name, m.n, m.hit1, m.hit3, m.hit5, m.r5, m.r10, m.ndcg)
	}
	sum := 0.0
	for i, set := range evalSets {
		x := evalIndex(t, shared(t, "eval", set.tools, "tools.jsonl"))
		m, groups := evaluate(t, x.Snapshot(), shared(t, "eval", "dev", set.queries+".jsonl"))
		row(set.name, m)
		if i < 9 {
			sum += m.ndcg
		}
		names := make([]string, 0, len(groups))
		for g := range groups {
			names = append(names, g)
		}
		slices.Sort(names)
		if set.name == "big-human" || set.name == "big-mech" {
			for _, g := range names {
				row("  "+g, groups[g])
			}
		}
		least := gates[set.name]
		for _, c := range []struct {
			what      string
			got, want float64
		}{{"hit@1", m.hit1, least.hit1}, {"hit@3", m.hit3, least.hit3}, {"hit@5", m.hit5, least.hit5}, {"R@5", m.r5, least.r5}, {"nDCG@10", m.ndcg, least.ndcg}} {
			if c.got < c.want {
				t.Errorf("%s: %s is %.4f, the gate %.3f", set.name, c.what, c.got, c.want)
			}
		}
	}
	fmt.Fprintf(&table, "mean nDCG of the nine sets without big-mech: %.4f\n", sum/9)
	if sum/9 < .755 {
		t.Errorf("the mean nDCG@10 of nine sets is %.4f, the gate .755", sum/9)
	}
	t.Log("\n" + table.String())
	golden(t, "dev-stats.txt", table.String())
}

// catalogIndex holds the 44 real lists.
func catalogIndex(t testing.TB) *Index {
	t.Helper()
	dir := shared(t, "catalog")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d lists in the catalog, %v", len(files), err)
	}
	x := Open(Options{})
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		server := strings.TrimSuffix(filepath.Base(f), ".json")
		l := Listing{Key: "user/" + server, Server: server}
		for _, raw := range rawList(t, b) {
			p, err := tool.Parse(server, raw)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			l.Tools = append(l.Tools, p)
		}
		x.take(l)
	}
	x.publish()
	return x
}

// TestGoldenQueries pins the first three hits of our own queries.
func TestGoldenQueries(t *testing.T) {
	s := catalogIndex(t).Snapshot()
	var out strings.Builder
	for _, q := range []string{
		"gerber", "gerber export", "bom csv", "place a resistor", "pcb drc", "schematic pdf", "list footprints", "board outline",
		"create issue", "close pull request", "merge pr", "list commits", "blame", "stash changes", "rebase",
		"take screenshot", "click element", "fill form", "navigate browser", "network requests",
		"scrape page to markdown", "web search", "search news", "read file", "delete folder", "find files by pattern",
		"list pods", "pod logs", "scale deployment", "helm chart install", "send email", "unread mail label", "free busy calendar",
		"create event", "driving directions", "geocode address", "flame graph", "pie chart", "feature flag", "terraform module",
		"trello card move", "notion page append", "knowledge graph relations", "slack reply thread", "storage account key", "cosmos database query",
		"elasticsearch mapping", "workflow execution", "argocd sync application", "think step by step", "gebrer", "screenshto", "exportgerber", "发送消息", "kicad::run_drc", "board, read_file\nslack_post_message",
	} {
		fmt.Fprintf(&out, "%q\n", q)
		for _, m := range s.Search(Query{Text: q, Max: 3}).Matches[:] {
			fmt.Fprintf(&out, "  %6.2f %s [%s]\n", m.Score, m.Tool.ID, m.Category)
		}
	}
	golden(t, "queries.txt", out.String())
}

// TestInvariant10 finds every tool that the 44 servers listed, exactly once, by
// its id and by its name.
func TestInvariant10(t *testing.T) {
	x := catalogIndex(t)
	s := x.Snapshot()
	// Listing again, twice the tools in another order, changes nothing.
	for i, key := range s.Keys() {
		if i%6 != 0 {
			continue
		}
		l, _ := s.Listing(key)
		l.Tools = append(slices.Clone(l.Tools), l.Tools...)
		slices.Reverse(l.Tools)
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	s = x.Snapshot()
	seen := map[string]int{}
	for e := range s.All(nil) {
		seen[e.Tool.ID.String()]++
	}
	listed := 0
	for _, key := range s.Keys() {
		l, _ := s.Listing(key)
		for _, tl := range l.Tools {
			listed++
			id := tl.ID.String()
			if seen[id] != 1 {
				t.Errorf("%s is there %d times", id, seen[id])
			}
			if r := s.Search(Query{Text: id, Max: 1}); len(r.Matches) == 0 || r.Matches[0].Tool.ID != tl.ID {
				t.Errorf("searching %s does not bring it first", id)
			}
			r := s.Search(Query{Text: tl.Name, Max: 10})
			if !slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Tool.ID == tl.ID && m.Tool.Name == tl.Name }) || r.Matches[0].Tool.Name != tl.Name {
				t.Errorf("searching %s does not bring %s first", tl.Name, id)
			}
			if found := s.Find(id, nil); len(found) != 1 || found[0].Tool.ID != tl.ID {
				t.Errorf("%s resolves to %d tools", id, len(found))
			}
		}
	}
	if listed < 1580 || len(seen) != listed {
		t.Errorf("%d tools are listed, %d indexed", listed, len(seen))
	}
	inCategory := map[string]bool{}
	for _, c := range s.Categories(nil) {
		for _, e := range c.Tools {
			inCategory[e.Tool.ID.String()] = true
		}
	}
	if len(inCategory) != listed {
		t.Errorf("%d of %d tools are in a category", len(inCategory), listed)
	}
}
