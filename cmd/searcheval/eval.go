package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
)

// depth is how many results count.
const depth = 10

type toolLine struct {
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

type query struct {
	ID       string   `json:"id"`
	Query    string   `json:"query"`
	Relevant []string `json:"relevant"`
	Group    string   `json:"group"`
}

type result struct {
	ID     string   `json:"id"`
	Ranked []string `json:"ranked"`
	US     float64  `json:"us"`
}

// load indexes the tools of a file, in memory.
func load(path string) (*index.Snapshot, error) {
	lines, err := readLines[toolLine](path)
	if err != nil {
		return nil, err
	}
	var order []string
	listings := map[string]*index.Listing{}
	for i, l := range lines {
		raw, err := json.Marshal(struct {
			Name        string          `json:"name"`
			Title       string          `json:"title,omitempty"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema,omitempty"`
		}{l.Tool, l.Title, l.Description, l.InputSchema})
		if err != nil {
			return nil, fmt.Errorf("reading line %d of %s: %w", i+1, path, err)
		}
		t, err := tool.Parse(l.Server, raw)
		if err != nil {
			return nil, fmt.Errorf("reading line %d of %s: %w", i+1, path, err)
		}
		if listings[l.Server] == nil {
			order = append(order, l.Server)
			listings[l.Server] = &index.Listing{Key: l.Server, Server: l.Server}
		}
		listings[l.Server].Tools = append(listings[l.Server].Tools, t)
	}
	x := index.Open(index.Options{})
	defer x.Close()
	for _, server := range order {
		if err := x.Replace(*listings[server]); err != nil {
			return nil, fmt.Errorf("indexing the tools of %s: %w", server, err)
		}
	}
	return x.Snapshot(), nil
}

// search runs one query as the product does, but without the relative cut.
func search(s *index.Snapshot, q query) result {
	start := time.Now()
	found := s.Search(index.Query{Text: q.Query, Max: depth, NoCut: true})
	took := time.Since(start)
	r := result{ID: q.ID, Ranked: []string{}, US: math.Round(float64(took.Nanoseconds())/100) / 10}
	for _, m := range found.Matches[:min(len(found.Matches), depth)] {
		r.Ranked = append(r.Ranked, m.Tool.ID.String())
	}
	return r
}

// readLines decodes a file of one JSON value a line; empty lines are skipped.
func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []T
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var v T
			if err := json.Unmarshal(line, &v); err != nil {
				return nil, fmt.Errorf("reading line %d of %s: %w", n, path, err)
			}
			out = append(out, v)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
}

// measures are the averages over some queries.
type measures struct {
	queries                             int
	hit1, hit3, hit5, recall5, recall10 float64
	mrr, ndcg                           float64
}

func (m *measures) add(q query, r result) {
	relevant := map[string]bool{}
	for _, id := range q.Relevant {
		relevant[id] = true
	}
	if len(relevant) == 0 {
		return
	}
	m.queries++
	found, first := 0, 0
	dcg, ideal := 0.0, 0.0
	for i := range depth {
		gain := 1 / math.Log2(float64(i+2))
		if i < len(relevant) {
			ideal += gain
		}
		if i < len(r.Ranked) && relevant[r.Ranked[i]] {
			relevant[r.Ranked[i]] = false // a tool counts once
			found++
			dcg += gain
			if first == 0 {
				first = i + 1
			}
		}
		if i == 4 {
			m.recall5 += float64(found) / float64(len(relevant))
		}
	}
	m.recall10 += float64(found) / float64(len(relevant))
	m.ndcg += dcg / ideal
	if first > 0 {
		m.mrr += 1 / float64(first)
		for k, hit := range map[int]*float64{1: &m.hit1, 3: &m.hit3, 5: &m.hit5} {
			if first <= k {
				*hit++
			}
		}
	}
}

// printStats writes one row for each group of the queries and one for all.
func printStats(w io.Writer, queries []query, results []result) {
	all := &measures{}
	groups := map[string]*measures{}
	var names []string
	var took []float64
	for i, q := range queries {
		all.add(q, results[i])
		took = append(took, results[i].US)
		if q.Group == "" {
			continue
		}
		if groups[q.Group] == nil {
			groups[q.Group] = &measures{}
			names = append(names, q.Group)
		}
		groups[q.Group].add(q, results[i])
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "group\tqueries\thit@1\thit@3\thit@5\tR@5\tR@10\tMRR@10\tnDCG@10\t")
	row := func(name string, m *measures) {
		n := float64(max(m.queries, 1))
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", name, m.queries,
			m.hit1/n, m.hit3/n, m.hit5/n, m.recall5/n, m.recall10/n, m.mrr/n, m.ndcg/n)
	}
	slices.Sort(names)
	for _, name := range names {
		row(name, groups[name])
	}
	row("all", all)
	t.Flush()
	if len(took) > 0 {
		slices.Sort(took)
		fmt.Fprintf(w, "median %.0f µs, p95 %.0f µs, slowest %.0f µs\n", took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	}
}
