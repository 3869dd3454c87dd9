package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParseID(t *testing.T) {
	for _, c := range []struct {
		in   string
		want ID
		ok   bool
	}{
		{"a::b", ID{"a", "b"}, true},
		{"a::b::c", ID{"a", "b::c"}, true},
		{"a:::b", ID{"a", ":b"}, true},
		{"a b::products/detail", ID{"a b", "products/detail"}, true},
		{"::b", ID{}, false}, {"a::", ID{}, false}, {"a:b", ID{}, false}, {"", ID{}, false}, {"::", ID{}, false},
	} {
		got, ok := ParseID(c.in)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("ParseID(%q) = %v, %v", c.in, got, ok)
		}
		if ok && got.String() != c.in {
			t.Errorf("%q comes back as %q", c.in, got)
		}
		var u ID
		if err := u.UnmarshalText([]byte(c.in)); (err == nil) != c.ok {
			t.Errorf("UnmarshalText(%q): %v", c.in, err)
		}
	}
}

func TestParse(t *testing.T) {
	raw := `{ "name":"x", "description": "a\u200bb \u001b[31m <&>", "inputSchema":{"type":"object","properties":{"n":{"maximum":12345678901234567890}}},"annotations":{"readOnlyHint":true,"title":"T","destructiveHint":"yes"},"_meta":{"v":1}, "extra":[1.0e2]}`
	p, err := Parse("s", []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"x","description":"ab [31m <&>","inputSchema":{"type":"object","properties":{"n":{"maximum":12345678901234567890}}},"annotations":{"readOnlyHint":true,"title":"T","destructiveHint":"yes"},"_meta":{"v":1},"extra":[1.0e2]}`
	if string(p.Raw) != want {
		t.Errorf("raw\n%s, want\n%s", p.Raw, want)
	}
	if p.Description != "ab [31m <&>" || p.Title != "T" || !p.Annotations.IsReadOnly() || p.Annotations.Destructive != nil || !p.Annotations.MayRepeat() {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{
		`[]`, `null`, `"x"`, `{`, ``, `{}`, `{"name":""}`, `{"name":1}`, `{"name":null}`, `{"name":"a\u202eb"}`, `{"Name":"a"}`,
		`{"name":"safe","na\u200bme":"other"}`, `{"name":"a"} x`,
	} {
		if p, err := Parse("s", []byte(bad)); err == nil {
			t.Errorf("%s gave %+v", bad, p)
		}
	}
	// Odd parts hide no tool.
	for _, odd := range []string{`{"name":"a","description":7}`, `{"name":"a","inputSchema":"x"}`, `{"name":"a","annotations":[]}`, `{"name":"a","inputSchema":null}`, `{"name":"a","name":"a"}`} {
		if _, err := Parse("s", []byte(odd)); err != nil {
			t.Errorf("%s: %v", odd, err)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(raw string) Hash {
		p, err := Parse("s", []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return p.Hash
	}
	base := hash(`{"name":"a","description":"d","inputSchema":{"x":1,"y":2}}`)
	for _, same := range []string{`{"inputSchema":{"y":2,"x":1},"description":"d","name":"a"}`, `{"name":"a","description":"\u0064","inputSchema":{"x":1,"y":2},"_meta":{"t":9}}`} {
		if hash(same) != base {
			t.Errorf("%s has another hash", same)
		}
	}
	for _, other := range []string{`{"name":"a","description":"D","inputSchema":{"x":1,"y":2}}`, `{"name":"a","description":"d","inputSchema":{"x":1,"y":3}}`, `{"name":"a","description":"d","inputSchema":{"x":1,"y":2},"annotations":{"readOnlyHint":true}}`} {
		if hash(other) == base {
			t.Errorf("%s has the same hash", other)
		}
	}
	if hash(`{"name":"a","x":9007199254740993}`) == hash(`{"name":"a","x":9007199254740992}`) {
		t.Error("large numbers collide")
	}
}

// How a server spells a definition is not what a model reads.
func TestTokens(t *testing.T) {
	for _, raw := range []string{
		`{"name":"a","description":"über <b>","inputSchema":{"type":"object"}}`,
		`{"inputSchema" : { "type": "object" }, "description":"\u00fcber \u003cb\u003e", "n\u0061me":"a", "annotations":{"title":"A"}}`,
	} {
		p, err := Parse("s", []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if p.Tokens != 18 { // 69 characters
			t.Errorf("%s weighs %d", raw, p.Tokens)
		}
	}
}

func TestAs(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`{"name":"a"}`, `{"name":"N"}`},
		{`{"x":{"name":"a"},"name":"a","y":["name",{"name":"a"}]}`, `{"x":{"name":"a"},"name":"N","y":["name",{"name":"a"}]}`},
		{`{"description":"name","name":"a\"b","z":"name"}`, `{"description":"name","name":"N","z":"name"}`},
		{`{"n\u0061me":"a"}`, `{"n\u0061me":"N"}`},
		{`{"name":"a","name":"b"}`, `{"name":"N","name":"N"}`},
		{`{"y":["name","name"],"name":"a"}`, `{"y":["name","name"],"name":"N"}`},
	} {
		p, err := Parse("s", []byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if got := string(p.As("N")); got != c.want {
			t.Errorf("%s as N is %s, want %s", c.raw, got, c.want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\t\r": "plain\n\t\r", "a\x1b[31mb": "a[31mb", "x\u200by": "xy", "\u202eabc\u202c": "abc", "tag\U000e0041": "tag", "می\u200cخواهم": "می\u200cخواهم", "👩\u200d💻": "👩\u200d💻", "\ufeffbom": "bom", "\u0085": "",
	} {
		got, changed := Clean(in)
		if got != want || changed != (in != want) {
			t.Errorf("Clean(%q) = %q, %v", in, got, changed)
		}
	}
	if got := CleanLine("a\r\nb\tc\u2028d\x00"); got != "a  b c d" {
		t.Errorf("CleanLine: %q", got)
	}
}

func TestValidate(t *testing.T) {
	p, err := Parse("s", []byte(`{"name":"a","inputSchema":{"type":"object","properties":{"n":{"type":"integer","minimum":1},"p":{"type":"string","pattern":"(?<=x)y"}},"required":["n"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for args, fits := range map[string]bool{`{"n":1}`: true, `{"n":2,"p":"anything"}`: true, `{}`: false, ``: false, `{"n":0}`: false, `{"n":"1"}`: false, `[]`: false, `{`: false, `null`: false} {
		err := p.Validate([]byte(args))
		if (err == nil) != fits {
			t.Errorf("%s: %v", args, err)
		}
		var wrong *ArgumentError
		if err != nil && (!errors.As(err, &wrong) || len(wrong.Problems) == 0 || wrong.ID != p.ID) {
			t.Errorf("%s: %#v", args, err)
		}
	}
	for _, schema := range []string{`{"$ref":"file:///etc/passwd"}`, `{"type":17}`, `"x"`, `{"$ref":"#/$defs/none"}`, `null`} {
		p, err := Parse("s", fmt.Appendf(nil, `{"name":"a","inputSchema":%s}`, schema))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Validate([]byte(`{"any":1}`)); err != nil {
			t.Errorf("schema %s refuses a call: %v", schema, err)
		}
		if schema != "null" && p.SchemaError() == nil {
			t.Errorf("schema %s is no error", schema)
		}
	}
}

// A number beyond the validator's arithmetic is refused where a limit would have to
// be compared with it, and no number ends the process.
func TestValidateNumbersOfAnySize(t *testing.T) {
	for schema, refuses := range map[string]bool{
		`{"properties":{"n":{"minimum":0}}}`: true, `{"properties":{"n":{"exclusiveMaximum":0}}}`: true, `{"properties":{"n":{"multipleOf":2}}}`: true,
		`{"properties":{"n":{"items":{"maximum":1}}}}`: false, `{"properties":{"n":{"type":"number"}}}`: false, `{}`: false,
		`{"properties":{"n":{"enum":[1]}}}`: true, `{"properties":{"n":{"type":"integer"}}}`: true,
	} {
		p, err := Parse("s", fmt.Appendf(nil, `{"name":"a","inputSchema":%s}`, schema))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"1e10000000", "-1e99999999999999999999", "1e-10000000"} {
			err := p.Validate(fmt.Appendf(nil, `{"n":%s}`, n))
			if (err != nil) != refuses {
				t.Errorf("%s for %s: %v", n, schema, err)
			}
		}
	}
	list, err := Parse("s", []byte(`{"name":"a","inputSchema":{"properties":{"list":{"uniqueItems":true,"items":{"maximum":1}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var wrong *ArgumentError
	if err := list.Validate([]byte(`{"a":1,"list":[{"b":2},1e10000000]}`)); !errors.As(err, &wrong) || !strings.Contains(wrong.Problems[0], "1e10000000") {
		t.Errorf("the number is not named: %v", err)
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"a::b", "::", "a:::b", "", "a::b::c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := ParseID(s)
		if ok && (id.String() != s || id.Server == "" || id.Name == "" || strings.Contains(id.Server, "::")) {
			t.Fatalf("%q gave %+v", s, id)
		}
	})
}

// FuzzParse: what is accepted is clean, compact, stable, and the same under
// another name.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"name":"a"}`, `{"name":"a","description":"x\u200by","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, `{"n\u0061me":"a","name":"b"}`,
		`{"name":"a","x":"\ud800\u001b"}`, "{\"name\":\"a\",\"\xff\":1}", `{"name":"a","na\u200bme":"b"}`, `{"name":"a","d":[1,{"name":"q"},"name",1e400]}`, `[1]`, `{"name":"a\\"}`,
		`{"name":{"name":"a"},"name":"b"}`, `{"name":"a","name":1}`, `{"name":1,"name":"a"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := Parse("s", raw)
		if err != nil {
			return
		}
		if !json.Valid(p.Raw) || !utf8.Valid(p.Raw) || p.Name == "" {
			t.Fatalf("%q gave raw %q", raw, p.Raw)
		}
		again, _, err := cleanJSON(p.Raw)
		if err != nil || !bytes.Equal(again, p.Raw) {
			t.Fatalf("cleaning %q again gives %q, %v", p.Raw, again, err)
		}
		q, err := Parse("s", p.Raw)
		if err != nil || q.Hash != p.Hash || q.Name != p.Name || q.Description != p.Description || q.Tokens != p.Tokens {
			t.Fatalf("%q parsed again: %+v, %v", p.Raw, q, err)
		}
		other, err := Parse("s", p.As("another_name"))
		if err != nil || other.Name != "another_name" {
			t.Fatalf("%q under another name: %q, %v", p.Raw, p.As("another_name"), err)
		}
		back, err := Parse("s", other.As(p.Name))
		if err != nil || back.Hash != p.Hash {
			t.Fatalf("%q and back: %q, %v", p.Raw, other.As(p.Name), err)
		}
		_ = p.Validate([]byte(`{"a":1}`))
	})
}

func FuzzCleanJSON(f *testing.F) {
	for _, s := range []string{`{}`, `"a\u0000b"`, ` [ 1 , "\u202e" ] `, `{"\u200b":1}`, "\"\xff\"", `1e5`, `"\ud83d\ude00"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, _, err := cleanJSON(raw)
		if err != nil {
			if json.Valid(raw) {
				t.Fatalf("valid %q: %v", raw, err)
			}
			return
		}
		var v any
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatalf("%q became %q: %v", raw, got, err)
		}
		eachString(v, func(s string) {
			if c, changed := Clean(s); changed {
				t.Fatalf("%q keeps %q, clean %q", raw, s, c)
			}
		})
	})
}

func eachString(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			eachString(e, visit)
		}
	case map[string]any:
		for k, e := range v {
			visit(k)
			eachString(e, visit)
		}
	}
}

// TestNamesProperties: exposed names are valid, different for different ids even
// for clients that ignore case or dashes, stable, and never reserved ones.
func TestNamesProperties(t *testing.T) {
	reserved := []string{"tool_search", "tool_call"}
	part := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_./ -]{1,12}`), rapid.StringMatching(`[a-c_-]{1,3}`), rapid.StringN(1, 40, 80),
		rapid.SampledFrom([]string{"tool", "search", "call", "a_b", "a-b", "A_b", "a", "b_", strings.Repeat("long", 20)}))
	rapid.Check(t, func(t *rapid.T) {
		n := NewNames(nil, reserved...)
		got := map[ID]string{}
		ids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ID {
			return ID{strings.ReplaceAll(part.Draw(t, "server"), "::", ":"), part.Draw(t, "tool")}
		}), 1, 30).Draw(t, "ids")
		owner := map[string]ID{}
		for _, r := range reserved {
			owner[fold(r)] = ID{"", r}
		}
		check := func(id ID, name string) {
			if !validExposed(name) {
				t.Fatalf("%v is exposed as %q", id, name)
			}
			if o, taken := owner[fold(name)]; taken && o.String() != id.String() {
				t.Fatalf("%v and %v are both exposed as %q", o, id, name)
			}
			owner[fold(name)] = id
			if before, ok := got[id]; ok && before != name {
				t.Fatalf("%v was %q and is %q", id, before, name)
			}
			got[id] = name
		}
		for _, id := range ids {
			check(id, n.Of(id))
			check(id, n.Of(id))
		}
		kept := n.Export()
		if len(kept) != n.Len() {
			t.Fatalf("%d names of %d are exported", len(kept), n.Len())
		}
		m := NewNames(kept, reserved...)
		for _, id := range ids {
			check(id, m.Of(id))
		}
	})
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"short", 10, "short"}, {"exactly", 7, "exactly"}, {"a little longer", 12, "a little…"}, {"ääääää", 8, "ää…"}, {"漢字漢字", 7, "漢…"},
	} {
		if got := Cut(c.in, c.max); got != c.want || len(got) > c.max {
			t.Errorf("Cut(%q, %d) = %q", c.in, c.max, got)
		}
	}
}

// TestCutOfAnyText: at most that many bytes, the mark among them, on a rune boundary.
func TestCutOfAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		most := rapid.IntRange(3, 40).Draw(t, "most")
		got := Cut(s, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Fatalf("%q", got)
		}
		if got != s && !(strings.HasSuffix(got, "…") && strings.HasPrefix(s, strings.TrimSuffix(got, "…"))) {
			t.Fatalf("%q is not a cut of %q", got, s)
		}
	})
}
