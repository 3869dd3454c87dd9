package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const sampleTools = `{"server":"board","tool":"export_gerber","description":"Write fabrication files.","inputSchema":{"type":"object"}}

{"server":"board","tool":"export_pdf","description":"Print the sheet."}
{"server":"disk","tool":"read <file>","description":"Read & show."}`

func TestRun(t *testing.T) {
	tools := write(t, "tools.jsonl", sampleTools)
	queries := write(t, "queries.jsonl", `{"id":"q1","query":"gerber","relevant":["board::export_gerber"],"group":"kw"}
{"id":"q2","query":"read file","relevant":["disk::read <file>","board::missing"]}
{"id":"q3","query":"zzzzqqqq","relevant":["board::export_pdf"]}
`)
	var out, stats bytes.Buffer
	if err := run([]string{"-tools", tools, "-queries", queries, "-stats"}, &out, &stats); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines for 3 queries: %s", len(lines), out.String())
	}
	for i, first := range []string{"board::export_gerber", "disk::read <file>", ""} {
		var r map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &r); err != nil {
			t.Fatal(err)
		}
		ranked, ok := r["ranked"].([]any)
		if !ok || len(r) != 3 || r["id"] == nil {
			t.Fatalf("line %d: %s", i+1, lines[i])
		}
		if _, ok := r["us"].(float64); !ok {
			t.Errorf("line %d has no time: %s", i+1, lines[i])
		}
		if first == "" && len(ranked) != 0 || first != "" && (len(ranked) == 0 || ranked[0] != first) {
			t.Errorf("line %d: %s, want %q first", i+1, lines[i], first)
		}
	}
	if !strings.Contains(stats.String(), "nDCG@10") || !strings.Contains(stats.String(), "MRR@10") || !strings.Contains(stats.String(), "kw") {
		t.Errorf("statistics: %s", stats.String())
	}
}

func TestRunRefuses(t *testing.T) {
	tools := write(t, "tools.jsonl", sampleTools)
	for _, args := range [][]string{
		{}, {"-tools", tools}, {"-queries", tools}, {"-tools", tools, "-queries", tools + ".none"},
		{"-tools", write(t, "bad.jsonl", "{\n"), "-queries", tools}, {"-tools", write(t, "noname.jsonl", `{"server":"x"}`), "-queries", tools},
		{"-tools", tools, "-queries", tools, "extra"}, {"-unknown"},
	} {
		var out, stats bytes.Buffer
		if err := run(args, &out, &stats); err == nil {
			t.Errorf("%q was accepted", args)
		}
		if out.Len() > 0 {
			t.Errorf("%q printed %s", args, out.String())
		}
	}
}

func TestMeasures(t *testing.T) {
	var m measures
	m.add(query{Relevant: []string{"a", "b"}}, result{Ranked: []string{"x", "a", "a", "y", "z", "b"}})
	ideal := 1 + 1/math.Log2(3)
	want := measures{queries: 1, hit3: 1, hit5: 1, recall5: .5, recall10: 1, mrr: .5, ndcg: (1/math.Log2(3) + 1/math.Log2(7)) / ideal}
	if m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}
