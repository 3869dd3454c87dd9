package settings

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func load(managed, user string, env map[string]string) (Settings, []Value, []string) {
	file := func(name, text string) File {
		if text == "" {
			return File{Path: name}
		}
		return File{name, []byte(text)}
	}
	s, values, problems := Load(file("managed.json", managed), file("config.json", user), func(k string) string { return env[k] })
	lines := []string{}
	for _, p := range problems {
		place := ""
		if p.File != "" {
			place = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Col)
		}
		lines = append(lines, place+p.Message)
	}
	return s, values, lines
}

func TestLoadProblems(t *testing.T) {
	for _, c := range []struct{ name, managed, user, env, want string }{
		{"nothing", "", "", "", ""},
		{"all is well", "", `{"$schema": "x", "mcpServers": {"a": {"wrong": 1}}, "toolSearch": {"minPct": 0}, "pinned": [], "synonyms": [["a","b"]]}`, "", ""},
		{"comments, BOM, CRLF", "", "\ufeff// hello\r\n{ /* x */ \"pinned\": [\"a::b\",], }\r\n", "", ""},
		{"unknown", "", "{\n  // c\n  \"pinned\": [],\n  \"toolSerch\": {}\n}", "", `config.json:4:3: unknown key "toolSerch" (did you mean toolSearch?)`},
		{"after a BOM", "", "\ufeff{\"x1\": 1}", "", `config.json:1:2: unknown key "x1"`},
		{"columns are characters", "", `{"pinned": ["äöü"], "nope": 1}`, "", `config.json:1:21: unknown key "nope"`},
		{"in a group", "", `{"trust": {"userscope": "ask"}}`, "", `config.json:1:12: unknown key "userscope" in trust (did you mean userScope?)`},
		{"without its group", "", `{"minPct": 3}`, "", `config.json:1:2: unknown key "minPct" (did you mean toolSearch.minPct?)`},
		{"written flat", "", `{"toolSearch.minPct": 3}`, "", `config.json:1:2: unknown key "toolSearch.minPct" (write it as "toolSearch": { "minPct": … })`},
		{"wrong type", "", `{"toolSearch": {"enabled": "yes", "maxResults": 0, "minPct": 101, "minTokens": 1.5}}`, "",
			"config.json:1:28: toolSearch.enabled must be true or false, not \"yes\"\n" +
				"config.json:1:62: toolSearch.minPct must be a number from 0 to 100, not 101\n" +
				"config.json:1:80: toolSearch.minTokens must be a whole number from 0, not 1.5\n" +
				"config.json:1:49: toolSearch.maxResults must be a whole number from 1, not 0"},
		{"null", "", `{"pinned": null, "toolSearch": null}`, "", "config.json:1:32: toolSearch must be an object, not null\nconfig.json:1:12: pinned must be a list of strings, not null"},
		{"one bad entry", "", `{"pinned": ["a::b", 7]}`, "", "config.json:1:21: an entry of pinned must be a string that is not empty, not 7"},
		{"client", "", `{"clients": {"curser": false, "zed": 1}}`, "", "config.json:1:14: unknown client \"curser\" (did you mean cursor?)\nconfig.json:1:38: clients.zed must be true or false, not 1"},
		{"category", "", `{"categories": {"a": {"tool": []}, "b": 1}}`, "", "config.json:1:23: unknown key \"tool\" (did you mean tools?)\n" +
			"config.json:1:41: category \"b\" must have a name and be an object like {\"description\": \"…\", \"tools\": [\"server::tool*\"]}"},
		{"synonyms", "", `{"synonyms": [["a"], "b"]}`, "", "config.json:1:15: a group of synonyms needs two words or more\nconfig.json:1:22: a group of synonyms must be a list of strings, not \"b\""},
		{"enum", "", `{"trust": {"userScope": "never"}}`, "", `config.json:1:25: trust.userScope must be "auto" or "ask", not "never"`},
		{"twice", "", "{\"pinned\": [],\n\"pinned\": [\"a::b\"]}", "", `config.json:2:1: the key "pinned" is given twice: the last one holds`},
		{"truncated", "", "{\n\"pinned\": [", "", `config.json:2:12: not valid JSON: the text ends before the ']' that closes line 2`},
		{"no object", "", "[1]", "", `config.json:1:1: the file must hold an object, not a list`},
		{"locked by the user", "", `{"locked": ["pinned"]}`, "", `config.json:1:2: "locked" has a meaning only in the managed file`},
		{"locked nonsense", `{"locked": ["pined"]}`, "", "", `managed.json:1:12: locked: unknown setting "pined" (did you mean pinned?)`},
		{"locked value", `{"locked": ["toolSearch"]}`, `{"toolSearch": {"minPct": 1}}`, "", "config.json:1:17: toolSearch.minPct is locked by the managed file: this value has no effect"},
		{"environment", "", "", "many", `the environment variable TOOLSD_TOOL_SEARCH_MATCHING_THRESHOLD must be a number from 0, not "many"`},
		{"environment, locked", `{"locked": ["toolSearch.matchingThreshold"]}`, "", "2", `toolSearch.matchingThreshold is locked by the managed file: the environment variable TOOLSD_TOOL_SEARCH_MATCHING_THRESHOLD has no effect`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, got := load(c.managed, c.user, map[string]string{"TOOLSD_TOOL_SEARCH_MATCHING_THRESHOLD": c.env})
			if d := cmp.Diff(c.want, strings.Join(got, "\n")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWrongValueKeepsTheLowerLayer(t *testing.T) {
	s, values, _ := load(`{"toolSearch": {"minPct": 9, "maxResults": "x"}}`, `{"toolSearch": {"minPct": "all"}}`, nil)
	if s.ToolSearch.MinPct != 9 || s.ToolSearch.MaxResults != 5 {
		t.Errorf("got %+v", s.ToolSearch)
	}
	if v, _ := Find(values, "toolSearch.minPct"); v.Origin != FromManaged {
		t.Errorf("the origin is %s", v.Origin)
	}
}

// TestAMistakeInTrustForbids has values that mean something else than they say.
func TestAMistakeInTrustForbids(t *testing.T) {
	for _, c := range []struct {
		managed, user string
		want          Trust
	}{
		{"", `{"trust": {"userScope": "Ask"}}`, Trust{"ask", "show"}},
		{"", `{"trust": {"tools": true}}`, Trust{"auto", "hold"}},
		{"", `{"trust": "ask"}`, Trust{"ask", "hold"}},
		{`{"trust": {"userScope": "asks"}}`, `{}`, Trust{"ask", "show"}},
		{`{"trust": {"userScope": "asks"}, "locked": ["trust"]}`, `{"trust": {"userScope": "auto"}}`, Trust{"ask", "show"}},
		{`{"trust": {"userScope": "auto"}, "locked": ["trust"]}`, `{"trust": 1}`, Trust{"auto", "show"}}, // the user's has no effect
		{"", `{"trust": {}}`, Trust{"auto", "show"}},
	} {
		s, values, problems := load(c.managed, c.user, nil)
		if s.Trust != c.want {
			t.Errorf("%s %s: %v, want %v", c.managed, c.user, s.Trust, c.want)
		}
		if v, _ := Find(values, "trust.userScope"); v.Value == "ask" && (v.Origin == FromDefault || len(problems) == 0) {
			t.Errorf("%s %s: its origin is %s, problems %v", c.managed, c.user, v.Origin, problems)
		}
	}
}

func TestLayers(t *testing.T) {
	managed := `{"locked": ["trust.userScope", "clients.cursor", "toolSearch.maxResults"],
		"trust": {"userScope": "ask"}, "clients": {"cursor": false, "zed": false}, "pinned": ["m::m"],
		"categories": {"export": {"description": "team"}, "team": {"tools": ["t::*"]}},
		"toolSearch": {"minPct": 1, "minTokens": 2, "matchingThreshold": 3}}`
	user := `{"trust": {"userScope": "auto", "tools": "hold"}, "clients": {"cursor": true, "kiro": false}, "pinned": ["u::u"],
		"categories": {"export": {"description": "mine", "tools": ["a::*"]}},
		"toolSearch": {"minTokens": 4, "matchingThreshold": 5, "maxResults": 50}}`
	s, values, _ := load(managed, user, map[string]string{"TOOLSD_TOOL_SEARCH_MATCHING_THRESHOLD": "6.5"})
	want := Settings{
		ToolSearch: ToolSearch{true, 1, 4, 200000, 5, 6.5},
		Pinned:     []string{"u::u"},
		Categories: map[string]Category{"export": {"mine", []string{"a::*"}}, "team": {"", []string{"t::*"}}},
		Clients:    map[string]bool{"cursor": false, "zed": false, "kiro": false},
		Trust:      Trust{"ask", "hold"},
		Locked:     []string{"trust.userScope", "clients.cursor", "toolSearch.maxResults"},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	wantValues := []Value{
		{"toolSearch.enabled", true, "default", false},
		{"toolSearch.minPct", 1.0, "managed", false},
		{"toolSearch.minTokens", 4, "user", false},
		{"toolSearch.contextWindow", 200000, "default", false},
		{"toolSearch.maxResults", 5, "default", true},
		{"toolSearch.matchingThreshold", 6.5, "environment", false},
		{"pinned", []string{"u::u"}, "user", false},
		{"categories.export", Category{"mine", []string{"a::*"}}, "user", false},
		{"categories.team", Category{"", []string{"t::*"}}, "managed", false},
		{"clients.cursor", false, "managed", true},
		{"clients.kiro", false, "user", false},
		{"clients.zed", false, "managed", false},
		{"files", []string{}, "default", false},
		{"synonyms", [][]string{}, "default", false},
		{"trust.userScope", "ask", "managed", true},
		{"trust.tools", "hold", "user", false},
	}
	if d := cmp.Diff(wantValues, values); d != "" {
		t.Error(d)
	}
}

func TestFind(t *testing.T) {
	_, values, _ := load("", `{"clients": {"cursor": false}, "categories": {"a.b": {"description": "x"}}}`, nil)
	for key, want := range map[string]string{
		"clients.cursor":  "{clients.cursor false user false}",
		"clients.zed":     "{clients.zed true default false}",
		"clients":         "{clients map[cursor:false] user false}",
		"categories.a.b":  "{categories.a.b {x []} user false}",
		"trust":           "{trust map[tools:show userScope:auto] default false}",
		"clients.nobody":  `unknown setting "clients.nobody"`,
		"clients.curser":  `unknown setting "clients.curser" (did you mean clients.cursor?)`,
		"toolSearch.minP": `unknown setting "toolSearch.minP" (did you mean toolSearch.minPct?)`,
		"categories.none": `unknown setting "categories.none"`,
	} {
		v, err := Find(values, key)
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ name, text, key, value, want string }{
		{"an empty file", "", "toolSearch.minPct", "0", "{\n  \"toolSearch\": {\n    \"minPct\": 0\n  }\n}\n"},
		{"only a comment", "// mine", "pinned", "a::b, c::d", "// mine\n{\n  \"pinned\": [\"a::b\", \"c::d\"]\n}\n"},
		{"an empty object", "{}", "trust.userScope", "ask", "{\n  \"trust\": {\n    \"userScope\": \"ask\"\n  }\n}"},
		{"a comment inside", "{\n\t// later\n}\n", "pinned", "[]", "{\n\t// later\n  \"pinned\": []\n}\n"},
		{"a value in place", "{ \"toolSearch\": { /* a */ \"minPct\" : 5 /* b */, } } // c", "toolSearch.minPct", "7.5", "{ \"toolSearch\": { /* a */ \"minPct\" : 7.5 /* b */, } } // c"},
		{"tabs and CRLF", "{\r\n\t\"pinned\": [] // p\r\n}\r\n", "toolSearch.enabled", "false", "{\r\n\t\"pinned\": [], // p\r\n\t\"toolSearch\": {\r\n\t\t\"enabled\": false\r\n\t}\r\n}\r\n"},
		{"a trailing comma", "{\n    \"files\": [], // f\n    // end\n}", "pinned", "[]", "{\n    \"files\": [], // f\n    \"pinned\": [],\n    // end\n}"},
		{"one line", `{"files": []}`, "toolSearch.minPct", "0", `{"files": [], "toolSearch": { "minPct": 0 }}`},
		{"into a group", "{\n  \"toolSearch\": {\n    \"minPct\": 5\n  }\n}\n", "toolSearch.maxResults", "9", "{\n  \"toolSearch\": {\n    \"minPct\": 5,\n    \"maxResults\": 9\n  }\n}\n"},
		{"the last of two", `{"pinned": ["a::a"], "pinned": []}`, "pinned", `["b::b"]`, `{"pinned": ["a::a"], "pinned": ["b::b"]}`},
		{"a client", `{}`, "clients.cursor", "false", "{\n  \"clients\": {\n    \"cursor\": false\n  }\n}"},
		{"a category with a dot", `{"categories": {}}`, "categories.a.b", `{"tools": ["x::*"]}`, "{\"categories\": {\n  \"a.b\": {\"tools\": [\"x::*\"]}\n}}"},
		{"a BOM", "\ufeff{\n  \"files\": []\n}", "pinned", "[]", "\ufeff{\n  \"files\": [],\n  \"pinned\": []\n}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Set([]byte(c.text), c.key, c.value)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, string(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	key, value, lock, syntax := new(KeyError), new(ValueError), new(LockedError), new(SyntaxError)
	for _, c := range []struct {
		text, key, value string
		as               any
		want             string
	}{
		{"", "toolSerch.minPct", "1", &key, `unknown setting "toolSerch.minPct" (did you mean toolSearch.minPct?)`},
		{"", "mcpServers.a", "{}", &key, `unknown setting "mcpServers.a"`},
		{"", "toolSearch", "{}", &key, `unknown setting "toolSearch"`},
		{"", "", "1", &key, `unknown setting ""`},
		{"", "toolSearch.minPct", "lots", &value, `setting toolSearch.minPct: the value must be a number from 0 to 100, not "lots"`},
		{"", "toolSearch.minPct", "", &value, `setting toolSearch.minPct: the value must be a number from 0 to 100, not ""`},
		{"", "toolSearch.minPct", "-1", &value, `setting toolSearch.minPct: must be a number from 0 to 100, not -1`},
		{"", "toolSearch.minPct", "1, \"x\": 2", &value, `setting toolSearch.minPct: the value must be a number from 0 to 100, not "1, \"x\": 2"`},
		{"", "pinned", `["a::b", 1]`, &value, "setting pinned: an entry of pinned must be a string that is not empty, not 1"},
		{"", "pinned", `["a::b`, &value, "setting pinned: the value is not valid JSON: line 1, column 2: the text ends inside a string"},
		{"", "clients.cursor", "no", &value, `setting clients.cursor: the value must be true or false, not "no"`},
		{"", "clients.curser", "false", &key, `unknown setting "clients.curser" (did you mean clients.cursor?)`},
		{"", "trust.tools", "hold", &lock, "setting trust.tools: the managed file locks it"},
		{`{"toolSearch": 5}`, "toolSearch.minPct", "1", &value, "setting toolSearch.minPct: toolSearch must be an object, but line 1 has 5"},
		{`[1]`, "pinned", "[]", &value, "setting pinned: the file must be an object, but line 1 has a list"},
		{"{\n\"pinned\": [", "toolSearch.minPct", "1", &syntax, "line 2, column 12: the text ends before the ']' that closes line 2"},
	} {
		got, err := Set([]byte(c.text), c.key, c.value, "trust")
		if got != nil || err == nil || !errors.As(err, c.as) || err.Error() != c.want {
			t.Errorf("Set(%q, %q, %q) = %q, %v; want %s", c.text, c.key, c.value, got, err, c.want)
		}
	}
}
