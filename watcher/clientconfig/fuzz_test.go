package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// decodeTwice checks what must hold for every file: no panic, problems with
// places inside of the file, the same answer to the same bytes, and servers that
// can be used or say why not.
func decodeTwice(t *testing.T, loc Location, data []byte) {
	kept := bytes.Clone(data)
	c, err := Read(loc, data)
	again, err2 := Read(loc, data)
	if !reflect.DeepEqual(c, again) || (err == nil) != (err2 == nil) {
		t.Fatalf("two readings differ: %+v %v, %+v %v", c, err, again, err2)
	}
	if !bytes.Equal(kept, data) {
		t.Fatal("the bytes were changed")
	}
	text, _ := toUTF8(data)
	lines := bytes.Split(bytes.TrimPrefix(text, bom), []byte("\n"))
	inside := func(line, col int) bool {
		return line >= 1 && line <= len(lines) && col >= 1 && col <= utf8.RuneCount(lines[line-1])+2
	}
	var syntax *SyntaxError
	switch {
	case err == nil:
	case errors.Is(err, ErrEmpty):
		if len(c.Problems) > 0 {
			t.Error("an empty file has problems")
		}
	case errors.As(err, &syntax):
		if !inside(syntax.Line, syntax.Col) || syntax.Message == "" || len(c.Servers) > 0 || len(c.Problems) == 0 {
			t.Errorf("%+v with %d servers and %d problems", syntax, len(c.Servers), len(c.Problems))
		}
	default:
		t.Errorf("an error of a kind that is not documented: %v", err)
	}
	for i, p := range c.Problems {
		if i < maxProblems && !inside(p.Line, p.Col) || p.Message == "" || !utf8.ValidString(p.Message) {
			t.Errorf("problem %+v of a file of %d lines", p, len(lines))
		}
	}
	names := map[[2]string]bool{}
	for _, s := range c.Servers {
		key := [2]string{s.Source.Root, s.Name}
		if names[key] {
			t.Errorf("%q is there twice", s.Name)
		}
		names[key] = true
		if s.Name == "" || strings.Contains(s.Name, "::") || !utf8.ValidString(s.Name) {
			t.Errorf("name %q", s.Name)
		}
		if s.Command == "" && s.URL == "" && s.Problem == "" {
			t.Errorf("%q cannot be used and does not say why", s.Name)
		}
		if !inside(s.Source.Line, s.Source.Col) {
			t.Errorf("%q is at %d:%d", s.Name, s.Source.Line, s.Source.Col)
		}
		Expand(s, testExpansion("/w/api"))
	}
}

func seed(f *testing.F, add func(data []byte, slug string)) {
	for _, s := range samples {
		data, err := os.ReadFile(filepath.Join("testdata/samples", s.file))
		if err != nil {
			f.Fatal(err)
		}
		add(data, s.slug)
	}
}

// fuzzDecoder fuzzes the files of these clients.
func fuzzDecoder(f *testing.F, format Format, slugs ...string) {
	index := map[string]int{}
	for i, s := range slugs {
		index[s] = i
	}
	seed(f, func(data []byte, slug string) {
		if i, ok := index[slug]; ok {
			f.Add(data, uint8(i), true)
			f.Add(data, uint8(i), false)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte, which uint8, settings bool) {
		slug := slugs[int(which)%len(slugs)]
		decodeTwice(t, Location{Client: slug, Scope: User, Path: "f." + string(format), Format: format, Settings: settings}, data)
	})
}

func FuzzServersMap(f *testing.F) {
	fuzzDecoder(f, JSON, "claude-code", "cursor", "toolsd", "copilot-cli", "kiro", "gemini", "cline", "amp", "zed", "continue")
}
func FuzzVSCode(f *testing.F)   { fuzzDecoder(f, JSON, "vscode", "vscode-insiders", "copilot-jetbrains") }
func FuzzOpencode(f *testing.F) { fuzzDecoder(f, JSON, "opencode", "kilo", "crush") }
func FuzzCodex(f *testing.F)    { fuzzDecoder(f, TOML, "codex") }
func FuzzGoose(f *testing.F)    { fuzzDecoder(f, YAML, "goose") }
func FuzzContinue(f *testing.F) { fuzzDecoder(f, YAML, "continue") }

// FuzzJSONParser compares the parser with two others: it takes what hujson takes,
// and reads from it what encoding/json reads.
func FuzzJSONParser(f *testing.F) {
	seed(f, func(data []byte, _ string) { f.Add(data) })
	for _, s := range []string{`{"a":"\ud83d\ude00\ud83d","b":-0.5e+7,"c":[1,2,],}`, `"\u0000"`, "/**/1//x", `[1 2]`, `{"a":01}`, "\"a\x80b\"", "nul", "truex", `{"a":1,,}`, "-", "1e", "\"\t\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseJSON(data, everything)
		_, skipErr := parseJSON(data, &wanted{})
		if (err == nil) != (skipErr == nil) {
			t.Fatalf("skipping %v and keeping %v do not agree", skipErr, err)
		}
		if bytes.HasPrefix(data, bom) {
			return // hujson does not know it
		}
		std, other := hujson.Standardize(append(bytes.Clone(data), '\n')) // it wants a line end after a // comment
		if (err == nil) != (other == nil) {
			var at *syntaxAt
			if errors.As(err, &at) && strings.Contains(at.message, "nested") || !utf8.Valid(data) {
				return // deeper than we go, or text that we repair
			}
			t.Fatalf("this parser says %v, hujson %v", err, other)
		}
		if err != nil || !utf8.Valid(data) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(std))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			return // numbers that encoding/json has no room for
		}
		if got := n.plain(); !reflect.DeepEqual(got, want) {
			t.Fatalf("read %#v, encoding/json reads %#v", got, want)
		}
	})
}

// plain is the value as encoding/json gives it.
func (n *node) plain() any {
	switch n.kind {
	case kBool:
		return n.text == "true"
	case kNumber:
		return json.Number(n.text)
	case kString:
		return n.text
	case kList:
		out := []any{}
		for _, i := range n.items {
			out = append(out, i.plain())
		}
		return out
	case kMap:
		out := map[string]any{}
		for _, m := range n.members {
			out[m.key] = m.val.plain()
		}
		return out
	}
	return nil
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${A:-${B:-${C:-d}}}", "${A", "$A$B", "{env:A}{file:/w/api/key}", "${{ secrets.A }}", "$(x)`y`\\$", "${input:x}${env:A}", strings.Repeat("${A:-", 200) + strings.Repeat("}", 200)} {
		f.Add(s, uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		slug := clients[int(which)%len(clients)].Slug
		in := Server{Name: "s", Command: "x", Args: []string{text}, Env: map[string]string{"K": text}, URL: text, Dir: text, Source: Source{Client: slug}}
		a, b := Expand(in, testExpansion("/w/api")), Expand(in, testExpansion("/w/api"))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("two expansions differ: %+v, %+v", a, b)
		}
		if in.Args[0] != text || in.Env["K"] != text {
			t.Fatal("the argument was changed")
		}
		if !strings.ContainsAny(text, "${`\\") && a.Args[0] != text {
			t.Fatalf("%q has no variable and became %q", text, a.Args[0])
		}
		if a.Problem == "" && a.Unsupported {
			t.Fatal("unsupported without a problem")
		}
		if len(text) > 8 && strings.Contains(a.Problem+a.Hint, text) && !isVariableName(text) {
			t.Fatalf("the problem shows the text: %q", a.Problem)
		}
	})
}

// A variable that is never closed, over and over, must not cost time that grows
// with the square of the text.
func TestExpandIsLinear(t *testing.T) {
	for _, slug := range []string{"claude-code", "cursor", "gemini", "opencode", "crush", "continue"} { // one of each dialect
		for _, unit := range []string{"${A:-", "{env:", "${", "$", "{", "}", "${NONE:-${", "${NONE:-}", "${{"} {
			// Squared, a quarter of a megabyte takes minutes; the test's own limit finds it.
			text := strings.Repeat(unit, 1<<18/len(unit))
			s := Expand(Server{Command: "x", Args: []string{text}, Source: Source{Client: slug}}, testExpansion("/w/api"))
			if len(s.Args[0]) > len(text) {
				t.Errorf("%s: %q grew from %d to %d", slug, unit, len(text), len(s.Args[0]))
			}
		}
	}
}
