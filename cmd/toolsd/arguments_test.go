package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// everyType is a definition with each way to say a type.
const everyType = `{"name":"t","inputSchema":{"type":"object","required":["whole","mode"],"properties":{
	"text":{"type":"string","description":"A text. More of it."},
	"number":{"type":"number"},"whole":{"type":"integer","default":3},"flag":{"type":"boolean"},
	"mode":{"enum":["fast","slow"]},"one":{"type":["number"]},"two":{"type":["number","null"]},
	"ref":{"$ref":"#/$defs/a~1b"},"loop":{"$ref":"#/$defs/loop"},"either":{"anyOf":[{"type":"string"},{"type":"integer"}]},
	"fixed":{"const":7},"none":{},"true":true,"list":{"type":"array"}
},"$defs":{"a/b":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}}}}`

func TestArguments(t *testing.T) {
	got := map[string]string{}
	var order []string
	for _, a := range arguments(json.RawMessage(everyType)) {
		got[a.Name] = a.form()
		order = append(order, a.Name)
	}
	want := map[string]string{
		"text": "string", "number": "number", "whole": "integer, required", "flag": "boolean", "mode": "fast|slow, required",
		"one": "number", "two": "number|null", "ref": "integer", "loop": "any", "either": "string|integer", "fixed": "7",
		"none": "any", "true": "any", "list": "array",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if strings.Join(order[:3], " ") != "whole mode text" {
		t.Errorf("the required ones do not come first, and then as they stand: %v", order)
	}
	for _, odd := range []string{``, `{}`, `{"inputSchema":null}`, `{"inputSchema":true}`, `{"inputSchema":{"properties":[]}}`, `{"inputSchema":{"properties":{"a":{}},"required":"a"}}`} {
		_ = arguments(json.RawMessage(odd)) // a stranger's schema must not end the program
	}
	if got := exampleArguments(json.RawMessage(everyType)); got != "whole=<integer> mode=fast" {
		t.Errorf("example %q", got)
	}
}

// A filter of sixty kinds, each made of all kinds, is sixty times as many steps at
// each level.
func TestArgumentsOfARecursiveSchema(t *testing.T) {
	kinds := map[string]any{}
	var all []any
	for i := range 60 {
		all = append(all, map[string]any{"$ref": fmt.Sprintf("#/$defs/kind%d", i)})
	}
	for i := range 60 {
		kinds[fmt.Sprintf("kind%d", i)] = map[string]any{"anyOf": all}
	}
	definition, err := json.Marshal(map[string]any{"inputSchema": map[string]any{
		"properties": map[string]any{"filter": map[string]any{"$ref": "#/$defs/kind0"}, "text": map[string]any{"type": "string"}}, "$defs": kinds,
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := arguments(definition)
	if len(got) != 2 || got[0].form() != "any" || got[1].form() != "string" {
		t.Errorf("%+v", got)
	}
}

func TestPairs(t *testing.T) {
	for _, c := range []struct{ typed, want string }{
		{"text=5", `{"text":"5"}`},
		{"number=5", `{"number":5}`},
		{"number=1e400", `{"number":1e400}`},
		{"number=+5", `{"number":"+5"}`},
		{"number=05", `{"number":"05"}`},
		{"number=", `{"number":""}`},
		{"number= 5", `{"number":" 5"}`},
		{"number=null", `{"number":"null"}`},
		{`number="5"`, `{"number":"\"5\""}`},
		{"whole=-0", `{"whole":-0}`},
		{"flag=true", `{"flag":true}`},
		{"flag=True", `{"flag":"True"}`},
		{"two=5", `{"two":"5"}`},
		{"one=5", `{"one":5}`},
		{"ref=5", `{"ref":5}`},
		{"either=5", `{"either":"5"}`},
		{"other=5", `{"other":"5"}`},
		{"list:=[1,2]", `{"list":[1,2]}`},
		{"text:=null", `{"text":null}`},
		{"a:b=c", `{"a:b":"c"}`},
		{"text=a:=b", `{"text":"a:=b"}`},
	} {
		got, err := pairs([]string{c.typed}, func() (json.RawMessage, error) { return json.RawMessage(everyType), nil })
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.typed, got, err, c.want)
		}
	}
}

// TestPairsNeedNoSchemaForJSON: key:=json says its type itself.
func TestMisspelt(t *testing.T) {
	for object, want := range map[string]string{
		`{}`:                       "",
		`{"text":1,"other":2}`:     "",
		`{"txet":1}`:               "txet text",
		`{"text":1,"texts":2}`:     "", // what it is near to is given too
		`{"numbr":1,"Whole":[{}]}`: "numbr number, Whole whole",
	} {
		var got []string
		for name, near := range misspelt(json.RawMessage(everyType), json.RawMessage(object)) {
			got = append(got, name+" "+near)
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %q, not %q", object, got, want)
		}
	}
	closed := `{"inputSchema":{"additionalProperties":false,"properties":{"text":{}}}}`
	for name := range misspelt(json.RawMessage(closed), json.RawMessage(`{"txet":1}`)) {
		t.Errorf("%s is told twice", name)
	}
}

func TestPairsNeedNoSchemaForJSON(t *testing.T) {
	got, err := pairs([]string{"a:=1", "b:=2"}, func() (json.RawMessage, error) {
		t.Error("the schema was asked for")
		return nil, errors.New("none")
	})
	if err != nil || string(got) != `{"a":1,"b":2}` {
		t.Errorf("%s, %v", got, err)
	}
}

// TestPairsKeepEveryText: whatever is typed as a text arrives as it is.
func TestPairsKeepEveryText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		raw, err := pairs([]string{"text=" + text}, func() (json.RawMessage, error) { return json.RawMessage(everyType), nil })
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(raw, &got); err != nil || got["text"] != text {
			t.Fatalf("%q became %s (%v)", text, raw, err)
		}
	})
}

func TestCompactLine(t *testing.T) {
	line := compactLine(ipc.ToolInfo{ToolID: "s::t", Description: strings.Repeat("Ä", 600) + "\nmore\x1b[31m"})
	text, ok := strings.CutPrefix(line, "s::t: ")
	if !ok || len(text) > maxCompact || len(text) < maxCompact-3 || !strings.HasSuffix(text, "…") {
		t.Errorf("%d bytes: %s", len(text), line)
	}
	if line := compactLine(ipc.ToolInfo{ToolID: "s::t", Description: "a\n\n b\x1b[31mc "}); line != "s::t: a b[31mc" {
		t.Errorf("%q", line)
	}
}

// TestScreenIsClean: nothing that a server says can paint on the terminal.
func TestScreenIsClean(t *testing.T) {
	const evil = "a\x1b[31mb\u202ec\u200bd\x07e\x9bf"
	var b bytes.Buffer
	s := &screen{w: &b, terminal: true, width: 80}
	info := ipc.ToolInfo{ToolID: evil, Server: evil, Tool: evil, Category: evil, Description: evil}
	showMatches(s, &ipc.SearchResult{Matches: []ipc.Match{{ToolInfo: info}}}, true)
	showTools(s, &ipc.ToolList{Tools: []ipc.ToolEntry{{ToolInfo: info}}, Servers: []ipc.ServerTotal{{Name: evil}}}, true)
	showCompact(s, []ipc.ToolEntry{{ToolInfo: info, Reached: ipc.Deferred}})
	showMarkdown(s, &ipc.ToolList{Tools: []ipc.ToolEntry{{ToolInfo: info}}})
	servers := []ipc.ServerInfo{{Name: evil, Problem: evil, Hint: evil, Notes: []string{evil}, Sources: []string{evil}, Scope: evil, Transport: evil}}
	showServers(s, servers, ipc.Totals{})
	showServerProblems(s, servers)
	showProblems(s, []ipc.Problem{{File: evil, Server: evil, Message: evil, Hint: evil}})
	showSessions(s, []ipc.SessionInfo{{Client: evil, Version: evil, CWD: evil}})
	s.trustInfo(ipc.TrustInfo{Name: evil, State: evil, Scope: evil, Source: evil, Binary: evil, Argv: []string{evil}, URL: evil,
		Env: []string{evil}, Headers: []string{evil}, CWD: evil, Unusual: []string{evil}, Changes: []string{evil}, Held: []string{evil}, Flagged: []string{evil}, Fingerprint: evil})
	s.signature(json.RawMessage(`{"inputSchema":{"properties":{"\u001b[31mred":{"type":"\u001b","description":"\u001b[31m","enum":["\u001b"]}}}}`))
	s.text(evil)
	if got := b.String(); got != clean(got) {
		t.Errorf("hidden characters reach the terminal: %q", got)
	}
	if cleaned, changed := tool.Clean(evil); !changed || cleaned == evil {
		t.Error("the test's text needs no cleaning")
	}
}

// TestProblemsOfNoFile: what the daemon could not keep is told as that, and apart
// from mistakes in config files.
func TestProblemsOfNoFile(t *testing.T) {
	full := ipc.Problem{Message: "writing calls.log: no space left on device", Hint: "make room"}
	typo := ipc.Problem{File: "/etc/mcp.json", Line: 3, Col: 7, Server: "board", Message: "a comma is missing"}
	for _, test := range []struct {
		problems []ipc.Problem
		want     string
	}{
		{nil, ""},
		{[]ipc.Problem{full}, "\nproblems:\n  writing calls.log: no space left on device\n      → make room\n"},
		{[]ipc.Problem{typo}, "\nproblems in config files:\n  /etc/mcp.json:3:7: board: a comma is missing\n"},
		{[]ipc.Problem{typo, full}, "\nproblems:\n  writing calls.log: no space left on device\n      → make room\n\nproblems in config files:\n  /etc/mcp.json:3:7: board: a comma is missing\n"},
	} {
		var b bytes.Buffer
		showProblems(&screen{w: &b}, test.problems)
		if b.String() != test.want {
			t.Errorf("got %q, want %q", &b, test.want)
		}
	}
}

// TestServersFitATerminal: one row is one line of 80 columns, and the files of
// different clients look different.
func TestServersFitATerminal(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, terminal: true, width: 80}
	row := func(name string, sources ...string) ipc.ServerInfo {
		return ipc.ServerInfo{Name: name, State: ipc.StateStarting, PID: 1234567, Tools: 1234, Tokens: 123456, Memory: 200 << 20,
			Scope: "project", Transport: "streamable-http", Since: time.Now().Add(-30 * time.Hour), Sources: sources}
	}
	showServers(s, []ipc.ServerInfo{
		row("board", "/srv/users/somebody/.config/Code/User/profiles/work/mcp.json"),
		row("notes", "/srv/users/somebody/.config/Cursor/User/globalStorage/mcp.json"),
		row("a-name-that-is-longer-than-anybody-would-choose", "/srv/users/somebody/.claude.json", "/srv/users/somebody/.cursor/mcp.json"),
	}, ipc.Totals{})
	lines := strings.Split(out.String(), "\n")
	for _, l := range lines {
		if n := len([]rune(l)); n > 80 {
			t.Errorf("a line has %d characters: %s", n, l)
		}
	}
	for i, want := range []string{"from", "mcp.json", "mcp.json", "+1"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d does not end with %q: %s", i, want, lines[i])
		}
	}
	fields := strings.Fields(lines[0])
	if want := []string{"server", "state", "tools", "tokens"}; !slices.Equal(fields[:4], want) {
		t.Errorf("the columns are %q, not %q first", fields, want)
	}
	if a, b := strings.Fields(lines[1]), strings.Fields(lines[2]); a[len(a)-1] == b[len(b)-1] {
		t.Errorf("two files look the same:\n%s", out.String())
	}
	t.Log("\n" + out.String())
}

func TestRotatingLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := newRotatingLog(path)
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for range 6 {
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if now, before := sizeOf(path), sizeOf(path+".1"); now != 2<<20 || before != 4<<20 {
		t.Errorf("%d bytes and %d before", now, before)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
