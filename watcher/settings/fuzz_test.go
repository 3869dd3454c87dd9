package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzSet holds that a change of one key leaves a text that parses, in which
// every comment is still there and only that key means something else.
func FuzzSet(f *testing.F) {
	for _, text := range []string{
		"", "// only\n", "{}", "{ /* a */ }", `{"toolSearch":{"minPct":1}}`, `{"toolSearch":{"minPct":1,},}`,
		"{\r\n\t\"files\": [ // x\r\n\t],\r\n}\r\n", "{\"a\": 1 // hi\n}", "{\"a\": 1, // hi\n}", "{\n\"a\": 1 /* b */ , /* c */ // d\n}",
		"\ufeff{\"pinned\": [\"//\", \"/*\"]}", "{\"toolSearch\": 7}", "{\"x\": [1, {\"y\": \"\\u00e4\"}]\n/* e\n */ }",
		"{\"toolSearch\": {\n  \"minPct\": 5 } }", "{\n  // c\n  }",
	} {
		for i := range fuzzKeys {
			f.Add([]byte(text), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		set := fuzzKeys[int(which)%len(fuzzKeys)]
		before, err := parse(text)
		got, setErr := Set(text, set.key, set.value)
		if err != nil || setErr != nil {
			if got != nil {
				t.Fatalf("Set returned both a text and %v", setErr)
			}
			return
		}
		after, err := parse(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		m := find(&after, set.key)
		if m == nil || string(got[m.value.start:m.value.end]) != set.value {
			t.Fatalf("%q became %q, which does not hold %s = %s", text, got, set.key, set.value)
		}
		if d := cmp.Diff(without(&before, set.key), without(&after, set.key)); d != "" {
			t.Fatalf("%q became %q, which changed more:\n%s", text, got, d)
		}
		if a, b := comments(t, text), comments(t, got); !slices.Equal(a, b) {
			t.Fatalf("%q became %q: the comments were %q and are %q", text, got, a, b)
		}
		again, err := Set(got, set.key, set.value)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("setting the same again made %q of %q (%v)", again, got, err)
		}
	})
}

var fuzzKeys = []struct{ key, value string }{
	{"toolSearch.minPct", "7.5"}, {"pinned", `["a::b"]`}, {"trust.userScope", `"ask"`}, {"clients.cursor", "false"},
}

// without lists every scalar of a tree by its path, but for those of one key, and
// but for objects that are only there to hold the key.
func without(n *node, key string) map[string]string {
	out := map[string]string{}
	var walk func(n *node, path string)
	walk = func(n *node, path string) {
		for i := range n.members {
			m := &n.members[i]
			if slices.ContainsFunc(n.members[i+1:], func(o member) bool { return o.name == m.name }) {
				path := fmt.Sprintf("%s/%q#%d", path, m.name, i)
				walk(&m.value, path)
				continue
			}
			walk(&m.value, fmt.Sprintf("%s/%q", path, m.name))
		}
		for i := range n.elements {
			walk(&n.elements[i], fmt.Sprintf("%s/%d", path, i))
		}
		if n.kind != '{' && n.kind != 0 {
			out[path] = string(n.kind) + n.text
		}
	}
	walk(n, "")
	var prefix strings.Builder
	for _, s := range segments(key) {
		fmt.Fprintf(&prefix, "/%q", s)
	}
	for path := range out {
		if path == prefix.String() || strings.HasPrefix(path, prefix.String()+"/") {
			delete(out, path)
		}
	}
	return out
}

// comments returns all comments of a text that parses.
func comments(t *testing.T, text []byte) []string {
	t.Helper()
	var out []string
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			d := json.NewDecoder(bytes.NewReader(text[i:]))
			if _, err := d.Token(); err != nil {
				t.Fatalf("string at %d of %q: %v", i, text, err)
			}
			i += int(d.InputOffset()) - 1
		case bytes.HasPrefix(text[i:], []byte("//")):
			end := bytes.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			out = append(out, strings.TrimRight(string(text[i:i+end]), "\r"))
			i += end - 1
		case bytes.HasPrefix(text[i:], []byte("/*")):
			end := bytes.Index(text[i+2:], []byte("*/")) + 4
			out = append(out, string(text[i:i+end]))
			i += end - 1
		}
	}
	return out
}

// FuzzLoad holds that no file is fatal and every problem has a place in it.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"locked": ["pinned"], "pinned": [1], "toolSearch": {"minPct": 1e999}}`), []byte(`{"clients": {"": 1}, "categories": {"": {}}}`))
	f.Add([]byte(`{`), []byte("\ufeff[\"\xff\"]"))
	f.Fuzz(func(t *testing.T, managed, user []byte) {
		s, values, problems := Load(File{"m", managed}, File{"u", user}, nil)
		for _, p := range problems {
			if p.File == "" || p.Line < 1 || p.Col < 1 || p.Message == "" {
				t.Fatalf("a problem without a place: %+v", p)
			}
		}
		if _, err := json.Marshal(values); err != nil {
			t.Fatal(err)
		}
		if p := s.ToolSearch.MinPct; !(p >= 0 && p <= 100) || s.ToolSearch.MaxResults < 1 {
			t.Fatalf("out of range: %+v", s.ToolSearch)
		}
	})
}
