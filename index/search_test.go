package index

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
)

func described(t testing.TB, server string, tools map[string]string) Listing {
	t.Helper()
	l := Listing{Key: "user/" + server, Server: server}
	for name, description := range tools {
		raw, err := json.Marshal(map[string]string{"name": name, "description": description})
		if err != nil {
			t.Fatal(err)
		}
		l.Tools = append(l.Tools, parse(t, server, string(raw)))
	}
	slices.SortFunc(l.Tools, func(a, b *tool.Tool) int { return strings.Compare(a.Name, b.Name) })
	return l
}

func board(t testing.TB) Listing {
	return described(t, "board", map[string]string{
		"export_gerber": "Write the fabrication files of all layers.", "export_pdf": "Print the sheet.", "export_bom": "Write the parts as CSV.",
		"export_3d": "Write a model of the board.", "place_part": "Put a component on the board.", "move_part": "Move a component.",
		"delete_part": "Delete a component.", "rotate_part": "Turn a component around.", "list_nets": "All nets.", "route_trace": "Draw copper between two pads.",
		"delete_trace": "Remove copper.", "add_via": "Connect two layers.", "add_zone": "Fill an area.", "run_drc": "Check the design rules.", "run_erc": "Check the schematic.",
		"open_project": "Open a project.", "save_project": "Save a project.", "close_project": "Close it.",
	})
}

func disk(t testing.TB) Listing {
	return described(t, "disk", map[string]string{"read_file": "Read a text file.", "write_file": "Write a text file.", "create_directory": "Make a new folder.", "search": "Search for files by pattern.", "lösche_alles": "Löscht alles, 删除所有文件."})
}

func indexOf(t testing.TB, c Config, ls ...Listing) *Snapshot {
	t.Helper()
	x := Open(Options{Expose: func(id tool.ID) string { return id.Server + "_" + id.Name }})
	x.Configure(c)
	for _, l := range ls {
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	return x.Snapshot()
}

func names(r Result) []string {
	var out []string
	for _, m := range r.Matches {
		out = append(out, m.Tool.Name)
	}
	return out
}

func TestSearch(t *testing.T) {
	s := indexOf(t, Config{}, board(t), disk(t))
	for _, c := range []struct{ query, first string }{
		{"gerber", "export_gerber"},
		{"exportGerber", "export_gerber"},
		{"gebrer", "export_gerber"},
		{"gerb", "export_gerber"},
		{"board::export_gerber", "export_gerber"},
		{"board.export_gerber", "export_gerber"},
		{"board/export_gerber", "export_gerber"},
		{"board_export_gerber", "export_gerber"},
		{"EXPORT_GERBER", "export_gerber"},
		{"mkdir", "create_directory"},
		{"remove trace", "delete_trace"},
		{"saveproject", "save_project"},
		{"designrule", "run_drc"},
		{"lösche alles", "lösche_alles"},
		{"losche", "lösche_alles"},
		{"删除", "lösche_alles"},
		{`"gerber" ('files')`, "export_gerber"},
		{"gerber\x00\xff🎛️", "export_gerber"},
		{"write it to ~/notes/todo.md", "write_file"},
		{strings.Repeat("gerber ", 20_000), "export_gerber"},
	} {
		name := c.query
		if len(name) > 40 {
			name = name[:40]
		}
		r := s.Search(Query{Text: c.query})
		if len(r.Matches) == 0 || r.Matches[0].Tool.Name != c.first {
			t.Errorf("%q: got %q, want %s first", name, names(r), c.first)
		}
	}
	for _, q := range []string{"", " \n", "::", "\x00", "\xff\xfe", "()\"'", "🎛️"} {
		if r := s.Search(Query{Text: q}); len(r.Matches) != 0 {
			t.Errorf("%q found %q", q, names(r))
		}
	}
}

// TestListsOfNames returns every tool that a query lists, whatever the maximum.
func TestListsOfNames(t *testing.T) {
	s := indexOf(t, Config{}, board(t), disk(t))
	for _, q := range []string{
		"export_pdf, board::run_drc\nboard_add_via read_file\tADD_ZONE  write_file",
		"export_pdf,board::run_drc,board_add_via,read_file,add_zone,write_file",
	} {
		got := names(s.Search(Query{Text: q, Max: 2}))
		slices.Sort(got)
		if want := []string{"add_via", "add_zone", "export_pdf", "read_file", "run_drc", "write_file"}; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", q, got, want)
		}
	}
	r := s.Search(Query{Text: "export_gerber for my layers", Max: 3})
	if names(r)[0] != "export_gerber" {
		t.Errorf("a name among words: %q", names(r))
	}
	if r := s.Search(Query{Text: "read_file, export_pdf", Max: 9, Server: "disk"}); !slices.Equal(names(r), []string{"read_file"}) && names(r)[0] != "read_file" {
		t.Errorf("names outside of the asked server: %q", names(r))
	}
}

// TestListsOfIDs finds what an agent names exactly, in its order, and no neighbours.
func TestListsOfIDs(t *testing.T) {
	s := indexOf(t, Config{}, board(t), disk(t), described(t, "Paper Mill", map[string]string{"find sheets": "Find files.", "run": "Run."}))
	for _, c := range []struct{ query, want string }{
		{"board::run_drc", "board::run_drc"},
		{"  Board::RUN_drc\n", "board::run_drc"},
		{"disk::write_file board::run_drc", "disk::write_file board::run_drc"},
		{"disk::write_file,board::run_drc,disk::search", "disk::write_file board::run_drc disk::search"},
		{"disk::write_file,\n board::run_drc disk::read_file\r\n", "disk::write_file board::run_drc disk::read_file"},
		{"disk::search disk::search board::add_via disk::search", "disk::search board::add_via"},
		{"- `disk::search`\n- `board::add_via`", "disk::search board::add_via"},
		{`["disk::search", "board::add_via"]`, "disk::search board::add_via"},
		{"disk::lösche_alles, board::export_3d", "disk::lösche_alles board::export_3d"},
		{"Paper Mill::find sheets disk::search Paper Mill::run", "Paper Mill::find sheets disk::search Paper Mill::run"},
		{"disk_search board_add_via", "disk::search board::add_via"},
		{"board_add_via\nboard::run_erc", "board::add_via board::run_erc"},
	} {
		for _, noCut := range []bool{false, true} {
			var got []string
			r := s.Search(Query{Text: c.query, Max: 1, NoCut: noCut, Threshold: 1e6})
			for _, m := range r.Matches {
				got = append(got, m.Tool.ID.String())
			}
			if strings.Join(got, " ") != c.want || r.Confidence != 1 || len(r.Rewrites) > 0 {
				t.Errorf("%q: got %q, confidence %v, rewrites %v; want %s", c.query, got, r.Confidence, r.Rewrites, c.want)
			}
		}
	}
	for _, c := range []struct{ query, first string }{
		{"search", "search"},                                  // a word that is a name
		{"board_add_via", "add_via"},                          // one exposed name
		{"board::add_via and its layers", "add_via"},          // words beside it
		{"board::add_via, board::add_viaduct", "add_via"},     // one that does not resolve
		{"board::add_via, board.run_drc", "add_via"},          // no full id
		{"read_file write_file", "read_file"},                 // bare names
		{"board::add_via board::export gerber", "add_via"},    // half an id
		{"disk::search, Fill an area of the board", "search"}, // a name and a wish
	} {
		r := s.Search(Query{Text: c.query, Max: 9, NoCut: true})
		if got := names(r); len(got) < 3 || got[0] != c.first {
			t.Errorf("%q: got %q, want a search with %s first", c.query, got, c.first)
		}
	}
	if r := s.Search(Query{Text: "disk::search board::add_via", Server: "disk", Max: 9, NoCut: true}); len(r.Matches) < 2 || names(r)[0] != "search" {
		t.Errorf("an id outside of the asked server: %q", names(r))
	}
	shown := func(_ string, t *tool.Tool) bool { return t.Server != "board" }
	if r := s.Search(Query{Text: "disk::search board::add_via", View: shown, NoCut: true}); slices.Contains(names(r), "add_via") || names(r)[0] != "search" {
		t.Errorf("an id that the caller does not see: %q", names(r))
	}
}

// TestAlternatives: "or" between ways to say one thing does not bring up what fits
// only one of them, while two sentences bring up a tool each.
func TestAlternatives(t *testing.T) {
	s := indexOf(t, Config{}, disk(t), described(t, "museum", map[string]string{"find_objects": "Look up paintings, sculptures and other works of art in the collection."}))
	r := s.Search(Query{Text: "search painting or sculpture objects or art collection", Max: 1})
	if got := names(r); !slices.Equal(got, []string{"find_objects"}) {
		t.Errorf("alternatives: got %q", got)
	}
	got := names(s.Search(Query{Text: "Search. Show sculptures of the art collection.", Max: 2}))
	slices.Sort(got)
	if !slices.Equal(got, []string{"find_objects", "search"}) {
		t.Errorf("two wishes: got %q", got)
	}
	for text, want := range map[string][]bool{
		"read it or write it":                    {true, true},
		"draw a plot, print or export it":        {false, true, true},
		"Export lunch or dinner. Print it.":      {false, false},
		"or":                                     {false},
		"export or":                              {false},
		"read a file, write a file":              {false, false},
		"write next.js or print version 3.5":     {true, true},
		"Draw it. Print it":                      {false, false},
		"read one or write two; draw three nets": {false, false},
	} {
		if q := s.all.parse(text); !slices.Equal(q.choice, want) || q.clauses != len(want) {
			t.Errorf("%q: %d clauses, alternatives %v, want %v", text, q.clauses, q.choice, want)
		}
	}
}

// TestTypoLimit: a short word is one slip away from what it was meant to be.
func TestTypoLimit(t *testing.T) {
	s := indexOf(t, Config{}, board(t), disk(t))
	for word, want := range map[string][]string{
		"pxrt":   {"part"}, // one slip of four letters
		"xpat":   nil,      // two slips, from part and pads
		"copepr": {"copper"},
		"cobbor": nil,        // three slips of six letters
		"cobber": {"copper"}, // two
	} {
		one, two := s.all.typos(word)
		var got []string
		for _, id := range append(one, two...) {
			got = append(got, s.all.dict.words[id])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: read as %q, want %q", word, got, want)
		}
	}
}

// TestUnknownWords: a word that no tool has counts as not matched.
func TestUnknownWords(t *testing.T) {
	s := indexOf(t, Config{}, board(t), disk(t))
	with, without := s.Search(Query{Text: "write file zzyzxq 12345678"}), s.Search(Query{Text: "write file"})
	if len(with.Matches) == 0 || with.Matches[0].Tool.Name != "write_file" || with.Confidence > .75*without.Confidence {
		t.Errorf("%q with confidence %.2f, without the unknown words %.2f", names(with), with.Confidence, without.Confidence)
	}
}

// TestRewrites says which words were read as others.
func TestRewrites(t *testing.T) {
	s := indexOf(t, Config{Synonyms: [][]string{{"kupfer", "copper"}}}, board(t), disk(t))
	r := s.Search(Query{Text: "exprot gerber"})
	if len(r.Rewrites) != 1 || r.Rewrites[0].Word != "exprot" || r.Rewrites[0].As[0] != "export" || r.Rewrites[0].Why != "typo" {
		t.Errorf("rewrites: %+v", r.Rewrites)
	}
	if r := s.Search(Query{Text: "kupfer", Explain: true}); len(r.Matches) == 0 || r.Matches[0].Matched[0].How != "synonym" {
		t.Errorf("a configured synonym: %+v", r)
	}
	r = s.Search(Query{Text: "xgerberx"})
	if len(r.Matches) == 0 && !slices.Contains(r.DidYouMean, "gerber") {
		t.Errorf("no word is suggested for xgerberx: %+v", r)
	}
	if r := s.Search(Query{Text: "ortgerb"}); len(r.Matches) == 0 || r.Matches[0].Tool.Name != "export_gerber" {
		t.Errorf("a part of a name finds %q", names(r))
	}
}

// TestExplain adds up: the rows of evidence make the score.
func TestExplain(t *testing.T) {
	s := indexOf(t, Config{Categories: []CategoryConfig{{Name: "out", Description: "fabrication", Tools: []string{"board::export_*"}}}}, board(t), disk(t))
	for _, q := range []string{"gerber", "export the gerber files. Then remove a trace, please.", "fabrication sheet", "mkdir", "exprot pdf", "run_drc", "make a folder or save the project"} {
		for _, m := range s.Search(Query{Text: q, Max: 20, Explain: true, NoCut: true}).Matches {
			sum := 0.0
			for _, e := range m.Matched {
				sum += e.Score
				if e.How == "" || e.Score < -1e-3 {
					t.Errorf("%q, %s: odd evidence %+v", q, m.Tool.Name, e)
				}
			}
			if math.Abs(sum-m.Score) > 1e-3*math.Max(1, m.Score) {
				t.Errorf("%q, %s: the evidence sums to %.4f, the score is %.4f: %+v", q, m.Tool.Name, sum, m.Score, m.Matched)
			}
			if m.Confidence < 0 || m.Confidence > 1 {
				t.Errorf("%q, %s: confidence %v", q, m.Tool.Name, m.Confidence)
			}
		}
	}
}

// TestView makes two indexes, one without the tools that a view hides, and wants
// the same answers of both, byte for byte.
func TestView(t *testing.T) {
	secret := described(t, "secret", map[string]string{"zeppelin_launch": "Start the zeppelin hangar, export gerber.", "gerber_thief": "Read files and folders.", "export_gerber": "Copies of a gerber."})
	secret.Instructions = "Ask for the hangar."
	twin := board(t)
	twin.Key = "project/board"
	twin.Tools = append(twin.Tools, parse(t, "board", `{"name":"board_only_in_project","description":"quixotic"}`))
	conf := Config{Categories: []CategoryConfig{{Name: "air", Description: "blimp", Tools: []string{"secret::*"}}}}
	hidden := func(key string, tl *tool.Tool) bool {
		return key != "user/secret" && key != "project/board" && tl.Name != "close_project"
	}
	reduced := board(t)
	reduced.Tools = slices.DeleteFunc(reduced.Tools, func(tl *tool.Tool) bool { return tl.Name == "close_project" })
	with := indexOf(t, conf, board(t), disk(t), secret, twin)
	without := indexOf(t, conf, reduced, disk(t))
	entries := func(es []Entry) string {
		var b strings.Builder
		for _, e := range es {
			fmt.Fprintf(&b, "%s %s %s %v\n", e.Key, e.Tool.ID, e.Category, e.Categories)
		}
		return b.String()
	}
	result := func(r Result) string {
		var b strings.Builder
		for _, m := range r.Matches {
			fmt.Fprintf(&b, "%s%v %v %+v\n", entries([]Entry{m.Entry}), m.Score, m.Confidence, m.Matched)
		}
		fmt.Fprintf(&b, "%v %+v %q %q", r.Confidence, r.Rewrites, r.Near, r.DidYouMean)
		return b.String()
	}
	for _, q := range []string{"gerber", "zeppelin", "zepelin", "hangar", "hanga", "blimp", "quixotic", "close_project", "project", "secret", "air", "secret::gerber_thief", "export the gerber. Read files", "thief", "gerber_thief, run_drc", "xyzzyq", "zeppelinx"} {
		for _, query := range []Query{{Text: q, Max: 50, Explain: true}, {Text: q, Max: 50, Category: "air"}, {Text: q, Server: "secret"}, {Text: q, Max: 50, NoCut: true}} {
			a := query
			a.View = hidden
			if got, want := result(with.Search(a)), result(without.Search(query)); got != want {
				t.Errorf("%+v: hidden tools show:\n%s\nwithout them:\n%s", query, got, want)
			}
		}
		if got, want := entries(with.Find(q, hidden)), entries(without.Find(q, nil)); got != want {
			t.Errorf("Find(%q): %s, without hidden tools %s", q, got, want)
		}
		if got, want := with.Suggest(q, 5, hidden), without.Suggest(q, 5, nil); !slices.Equal(got, want) {
			t.Errorf("Suggest(%q): %q, without hidden tools %q", q, got, want)
		}
	}
	all := func(s *Snapshot, v View) string { return entries(slices.Collect(s.All(v))) }
	if got, want := all(with, hidden), all(without, nil); got != want {
		t.Errorf("All: %s, without hidden tools %s", got, want)
	}
	if got, want := with.Categories(hidden), without.Categories(nil); len(got) != len(want) {
		t.Errorf("%d categories, without hidden tools %d", len(got), len(want))
	} else {
		for i := range got {
			if got[i].Name != want[i].Name || got[i].Description != want[i].Description || got[i].Server != want[i].Server || entries(got[i].Tools) != entries(want[i].Tools) {
				t.Errorf("category %+v, without hidden tools %+v", got[i], want[i])
			}
		}
	}
	// The same id under two keys is two tools.
	if got := with.Find("board::run_drc", nil); len(got) != 2 || got[0].Key == got[1].Key {
		t.Errorf("board::run_drc of two projects: %+v", got)
	}
	if got := with.Find("board::run_drc", func(key string, _ *tool.Tool) bool { return key == "project/board" }); len(got) != 1 || got[0].Key != "project/board" {
		t.Errorf("board::run_drc of one project: %+v", got)
	}
}

// TestFindSpaces: white space around a reference counts where a tool is named so.
func TestFindSpaces(t *testing.T) {
	s := indexOf(t, Config{}, described(t, "disk", map[string]string{"trim": "one", "trim ": "another"}))
	for ref, want := range map[string]string{"disk::trim": "trim", "disk::trim ": "trim ", " disk::trim": "trim", "\tdisk::trim \n": "trim", "trim ": "trim "} {
		if got := s.Find(ref, nil); len(got) != 1 || got[0].Tool.Name != want {
			t.Errorf("Find(%q): %+v, want %q", ref, got, want)
		}
	}
	if got := indexOf(t, Config{}, described(t, "disk", map[string]string{"日本語": "one"})).Suggest("dq", 3, nil); len(got) != 0 {
		t.Errorf("nothing is alike, but %q", got)
	}
}

// TestCategoryFollows shows a whole category after the direct hits.
func TestCategoryFollows(t *testing.T) {
	conf := Config{Categories: []CategoryConfig{{Name: "output", Description: "Gerber, PDF, BOM, 3D models", Tools: []string{"board::export_*"}}}}
	s := indexOf(t, conf, board(t), disk(t))
	r := s.Search(Query{Text: "gerber", Max: 50})
	got := names(r)
	if len(got) < 4 || got[0] != "export_gerber" {
		t.Fatalf("gerber: %q", got)
	}
	for _, want := range []string{"export_pdf", "export_bom", "export_3d"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s, of the category that names gerber, is missing: %q", want, got)
		}
	}
	if !slices.IsSortedFunc(r.Matches, func(a, b Match) int { return int(math.Copysign(1, b.Score-a.Score)) }) {
		t.Errorf("not sorted: %+v", r.Matches)
	}
	r = s.Search(Query{Text: "pdf", Category: "output"})
	if got := names(r); len(got) == 0 || got[0] != "export_pdf" {
		t.Errorf("pdf within output: %q", got)
	}
	total := map[string]bool{}
	for _, c := range s.Categories(nil) {
		if c.Name != "output" && c.Server == "board" && len(c.Tools) == 0 {
			t.Errorf("empty category %q", c.Name)
		}
		for _, e := range c.Tools {
			total[e.Tool.ID.String()] = true
		}
	}
	if len(total) != 23 {
		t.Errorf("%d tools are in categories, want 23", len(total))
	}
	derived := indexOf(t, Config{}, board(t)).Categories(nil)
	var got2 []string
	for _, c := range derived {
		got2 = append(got2, fmt.Sprintf("%s %d", c.Name, len(c.Tools)))
	}
	if !slices.Contains(got2, "board/export 4") || !slices.Contains(got2, "board/part 4") || !slices.Contains(got2, "board/project 3") {
		t.Errorf("derived categories: %q", got2)
	}
}

// TestKicad serves the real list with the real categories.
func TestKicad(t *testing.T) {
	var conf struct {
		Pinned     []string
		Categories map[string]struct {
			Description string
			Tools       []string
		}
	}
	b, err := os.ReadFile(shared(t, "kicad", "config-part.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &conf); err != nil {
		t.Fatal(err)
	}
	var c Config
	for name, k := range conf.Categories {
		c.Categories = append(c.Categories, CategoryConfig{name, k.Description, k.Tools})
	}
	slices.SortFunc(c.Categories, func(a, b CategoryConfig) int { return strings.Compare(a.Name, b.Name) })
	if b, err = os.ReadFile(shared(t, "catalog", "kicad.json")); err != nil {
		t.Fatal(err)
	}
	l := Listing{Key: "k", Server: "kicad"}
	for _, raw := range rawList(t, b) {
		l.Tools = append(l.Tools, parse(t, "kicad", string(raw)))
	}
	s := indexOf(t, c, l)
	distinct := map[string]bool{}
	for _, k := range s.Categories(nil) {
		for _, e := range k.Tools {
			distinct[e.Tool.Name] = true
		}
	}
	if len(distinct) != 229 {
		t.Errorf("the categories hold %d distinct tools, want 229", len(distinct))
	}
	got := names(s.Search(Query{Text: "gerber", Max: 50}))
	if len(got) == 0 || got[0] != "export_gerber" {
		t.Fatalf("gerber: %q", got)
	}
	for _, id := range conf.Categories["export"].Tools {
		if !slices.Contains(got, strings.TrimPrefix(id, "kicad::")) {
			t.Errorf("gerber with 50 results lacks %s of the category export", id)
		}
	}
}

// TestConcurrentReaders asks while everything changes.
func TestConcurrentReaders(t *testing.T) {
	x := Open(Options{})
	if err := x.Replace(board(t)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			view := func(key string, tl *tool.Tool) bool { return (len(tl.Name)+i)%3 != 0 || tl.Name == "export_gerber" }
			for {
				select {
				case <-done:
					return
				default:
				}
				s := x.Snapshot()
				r := s.Search(Query{Text: "gerber export part", View: view, Explain: true})
				if len(r.Matches) == 0 || r.Matches[0].Tool.Name != "export_gerber" {
					t.Errorf("while writing: %q", names(r))
					return
				}
				for e := range s.All(view) {
					_ = e
				}
				s.Categories(view)
			}
		})
	}
	for i := range 50 {
		l := disk(t)
		l.Key = fmt.Sprint(i % 5)
		l.Server = fmt.Sprint("disk", i%5)
		if i%7 == 0 {
			_ = x.Retain(func(key string) bool { return key == "user/board" })
		}
		if err := x.Replace(l); err != nil {
			t.Error(err)
		}
		x.Configure(Config{Synonyms: [][]string{{"gerber", fmt.Sprint("word", i)}}})
	}
	close(done)
	readers.Wait()
}

// TestDeterminism lists in another order and asks again.
func TestDeterminism(t *testing.T) {
	a, b := indexOf(t, Config{}, board(t), disk(t)), indexOf(t, Config{}, disk(t), board(t))
	for _, q := range []string{"part", "file export", "a project or a part", "remove copper. Make a folder."} {
		ra, rb := a.Search(Query{Text: q, Max: 50, NoCut: true}), b.Search(Query{Text: q, Max: 50, NoCut: true})
		if !reflect.DeepEqual(names(ra), names(rb)) {
			t.Errorf("%q: %q and %q", q, names(ra), names(rb))
		}
	}
}
