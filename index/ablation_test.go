package index

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var ablation = flag.Bool("ablation", false, "measure what each part of the ranking is worth")

// TestAblation prints the nDCG@10 of every set without one part of the ranking at
// a time. It takes a minute: go test ./index -run TestAblation -ablation -v
func TestAblation(t *testing.T) {
	if !*ablation {
		t.Skip("only with -ablation")
	}
	none := func() *synonyms { return &synonyms{} }
	parts := []struct {
		name    string
		without func(*ranking)
		syn     func() *synonyms
	}{
		{"all parts", func(*ranking) {}, builtin},
		{"synonyms", func(*ranking) {}, none},
		{"neighbours joined", func(r *ranking) { r.joined = 0 }, builtin},
		{"typo, prefix, split", func(r *ranking) { r.prefix, r.typo1, r.typo2, r.split = 0, 0, 0, 0 }, builtin},
		{"query coverage", func(r *ranking) { r.coverage = 0 }, builtin},
		{"name coverage", func(r *ranking) { r.nameCoverage = 0 }, builtin},
		{"best sentence", func(r *ranking) { r.clause = 0 }, builtin},
		{"best tool of a sentence", func(r *ranking) { r.clauseBest = 0 }, builtin},
		{"server's other tools", func(r *ranking) { r.server = 0 }, builtin},
		{"category texts", func(r *ranking) { r.group = 1e-9 }, builtin},
		{"parameters", func(r *ranking) { r.weight[fieldParam], r.weight[fieldParams] = 1e-9, 1e-9 }, builtin},
		{"rest of the description", func(r *ranking) { r.weight[fieldRest] = 1e-9 }, builtin},
		{"server name", func(r *ranking) { r.weight[fieldServer] = 1e-9 }, builtin},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s %6s", "without", "mean")
	for _, set := range evalSets {
		fmt.Fprintf(&table, " %10s", set.name)
	}
	for _, part := range parts {
		rank := defaultRanking
		part.without(&rank)
		var cells strings.Builder
		sum := 0.0
		snapshots := map[string]*Snapshot{}
		for i, set := range evalSets {
			if snapshots[set.tools] == nil {
				x := evalIndex(t, shared(t, "eval", set.tools, "tools.jsonl"))
				snapshots[set.tools] = newSnapshot(&rank, x.lex.dictionary(), x.listings, part.syn, nil)
			}
			m, _ := evaluate(t, snapshots[set.tools], shared(t, "eval", "dev", set.queries+".jsonl"))
			fmt.Fprintf(&cells, " %10.3f", m.ndcg)
			if i < 9 {
				sum += m.ndcg
			}
		}
		fmt.Fprintf(&table, "\n%-26s %6.4f%s", part.name, sum/9, cells.String())
	}
	t.Log("\n" + table.String())
}
