package session

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/toolsd/toolsd/index/tool"
	"pgregory.net/rapid"
)

func id(name string) tool.ID { return tool.ID{Server: "lab", Name: name} }

func TestSeenIsTheLastDefinitionShown(t *testing.T) {
	s := New(nil, nil, nil)
	if got := s.Seen(id("a")); got != "" {
		t.Errorf("a new session has seen %q", got)
	}
	s.Saw(map[tool.ID]tool.Hash{id("a"): "1", id("b"): "1"}, false)
	s.Saw(map[tool.ID]tool.Hash{id("a"): "2"}, false)
	if got := s.Seen(id("a")); got != "2" {
		t.Errorf("seen %q, want the newer one", got)
	}
	if got := s.Seen(id("b")); got != "1" {
		t.Errorf("telling of one tool forgot another: %q", got)
	}
}

func TestListedIsReplacedWhole(t *testing.T) {
	s := New(nil, nil, []tool.ID{id("old")})
	if !s.Lists(id("old")) {
		t.Error("what was handed over is not listed")
	}
	s.Saw(map[tool.ID]tool.Hash{id("x"): "1"}, false)
	if s.Lists(id("x")) {
		t.Error("a schema in an answer made the tool callable by name")
	}
	s.Saw(map[tool.ID]tool.Hash{id("new"): "1"}, true)
	if s.Lists(id("old")) || !s.Lists(id("new")) {
		t.Error("the list was not replaced")
	}
}

func TestHandOver(t *testing.T) {
	s := New(map[tool.ID]tool.Hash{id("a"): "7"}, []tool.ID{id("b"), id("a")}, nil)
	if s.Seen(id("a")) != "7" {
		t.Error("what was seen is lost")
	}
	if diff := cmp.Diff([]tool.ID{id("b"), id("a")}, s.Active()); diff != "" {
		t.Error(diff)
	}
}

// Whatever is activated and dropped, the order of what stays never changes and
// nothing is there twice.
func TestActiveIsAppendOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(nil, nil, nil)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := s.Active()
			name := id(rapid.StringMatching(`[a-e]`).Draw(t, "name"))
			if rapid.Bool().Draw(t, "activate") {
				changed := s.Activate(name)
				if changed == slices.Contains(before, name) {
					t.Fatalf("activating %s again: changed is %v", name, changed)
				}
				if after := s.Active(); !slices.Equal(after[:len(before)], before) {
					t.Fatalf("%v became %v", before, after)
				}
			} else {
				s.Deactivate(func(id tool.ID) bool { return id == name })
				kept := slices.DeleteFunc(before, func(id tool.ID) bool { return id == name })
				if after := s.Active(); !slices.Equal(after, kept) {
					t.Fatalf("%v without %s became %v", before, name, after)
				}
			}
			unique := names(s.Active())
			slices.Sort(unique)
			if len(slices.Compact(unique)) != len(s.Active()) {
				t.Fatalf("%v has repeats", unique)
			}
		}
	})
}

func names(ids []tool.ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}
