package clientconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var testEnv = map[string]string{
	"A": "value-of-a", "B": "value-of-b", "TOKEN": "tok-123456", "HOME": "/home/mira", "PWD": "/elsewhere",
	"BRACES": "${A}", "HOST": "api.example",
}

var testFiles = map[string]string{
	"/home/mira/.secrets/r":     "file-secret\n",
	"/w/api/key":                "\ufeff key-secret ",
	"/w/api/.env":               "# comment\nexport X=1\nY = 'two words' \nZ=\"a\\nb\"\nA=from-file\nURL=http://h/#frag # note\nbroken\nLONG=\"first\nsecond\"\nCONT=from-dotenv\n",
	"/home/mira/.continue/.env": "HUB=from-home\n",
}

func testExpansion(root string) Expansion {
	return Expansion{
		Getenv: func(name string) string { return testEnv[name] },
		Home:   "/home/mira",
		Root:   root,
		ReadFile: func(path string) ([]byte, error) {
			if s, ok := testFiles[filepath.ToSlash(path)]; ok {
				return []byte(s), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	}
}

func TestExpandText(t *testing.T) {
	rows := []struct {
		slug, in, want string
		problem        string // a part of it
		unsupported    bool
	}{
		// Claude Code and toolsd.
		{slug: "claude-code", in: "${A}", want: "value-of-a"},
		{slug: "toolsd", in: "x${A}y${B}z", want: "xvalue-of-ayvalue-of-bz"},
		{slug: "claude-code", in: "${NONE:-d}", want: "d"},
		{slug: "claude-code", in: "${A:-d}", want: "value-of-a"},
		{slug: "claude-code", in: "${NONE:-}", want: ""},
		{slug: "claude-code", in: "${NONE:-${B}}", want: "value-of-b"},
		{slug: "claude-code", in: "${NONE:-${NONE2:-${NONE3:-deep}}}/x", want: "deep/x"},
		{slug: "claude-code", in: "${NONE:-{\"a\":{}}}", want: `{"a":{}}`},
		{slug: "claude-code", in: `{"k":"${A}"}`, want: `{"k":"value-of-a"}`},
		{slug: "claude-code", in: "${A:-${NONE}}", want: "value-of-a"},
		{slug: "claude-code", in: "${NONE}", want: "${NONE}", problem: "needs NONE"},
		{slug: "claude-code", in: "${NONE} ${NONE2} ${NONE}", want: "${NONE} ${NONE2} ${NONE}", problem: "needs NONE, NONE2"},
		{slug: "claude-code", in: "${NONE:-${NONE2}}", want: "${NONE2}", problem: "needs NONE2"},
		{slug: "claude-code", in: "$A {env:A} %A% $(date) `date`", want: "$A {env:A} %A% $(date) `date`"},
		{slug: "claude-code", in: "${A", want: "${A"},
		{slug: "claude-code", in: "${A:-${B}", want: "${A:-value-of-b"},
		{slug: "claude-code", in: "${} ${1x} ${a.b} ${!A} $", want: "${} ${1x} ${a.b} ${!A} $"},
		{slug: "claude-code", in: "${BRACES}", want: "${A}"}, // a value is not expanded again
		{slug: "claude-code", in: "${CLAUDE_PROJECT_DIR:-.}/x ${PWD}", want: "/w/api/x /w/api"},
		{slug: "claude-code", in: "${env:A} ${workspaceFolder} ${userHome}", want: "value-of-a /w/api /home/mira"},
		{slug: "claude-code", in: "${input:tok}", want: "${input:tok}", problem: `needs input "tok"`, unsupported: true},
		{slug: "kiro", in: "${A}${env:B}", want: "value-of-avalue-of-b"},

		// VS Code and its kin.
		{slug: "vscode", in: "${env:A}", want: "value-of-a"},
		{slug: "vscode", in: "${env:NONE}", want: "", problem: "needs NONE"},
		{slug: "vscode", in: "${A} $A ${NONE:-x} ${unknown:thing}", want: "${A} $A ${NONE:-x} ${unknown:thing}"},
		{slug: "cursor", in: "${workspaceFolder}${pathSeparator}src${/}x", want: filepath.FromSlash("/w/api") + string(filepath.Separator) + "src" + string(filepath.Separator) + "x"},
		{slug: "vscode", in: "${workspaceFolder:api}/${workspaceFolderBasename}", want: "/w/api/api"},
		{slug: "vscode", in: "${workspaceFolder:web}", want: "${workspaceFolder:web}", problem: "second workspace folder", unsupported: true},
		{slug: "vscode", in: "${input:home-token}", want: "${input:home-token}", problem: `needs input "home-token", which only VS Code can ask for`, unsupported: true},
		{slug: "vscode", in: "${command:acme.get}", want: "${command:acme.get}", problem: "${command:…}", unsupported: true},
		{slug: "vscode", in: "${config:acme.port}", want: "${config:acme.port}", problem: "${config:…}", unsupported: true},
		{slug: "roo", in: "${env:A}", want: "value-of-a"},
		{slug: "windsurf", in: "${env:A}", want: "value-of-a"},

		// Gemini and Qwen.
		{slug: "gemini", in: "$A/${B}", want: "value-of-a/value-of-b"},
		{slug: "qwen", in: "$A-$B.$1$ $$A ${NONE:-x}", want: "value-of-a-value-of-b.$1$ $value-of-a x"},
		{slug: "gemini", in: "$NONE", want: "", problem: "needs NONE"},
		{slug: "gemini", in: "%A% $(date)", want: "%A% $(date)"},

		// opencode and Kilo.
		{slug: "opencode", in: "{env:A}{env:B}", want: "value-of-avalue-of-b"},
		{slug: "kilo", in: "x{env:A}y", want: "xvalue-of-ay"},
		{slug: "opencode", in: "{env:NONE}", want: "", problem: "needs NONE"},
		{slug: "opencode", in: "{file:~/.secrets/r}", want: "file-secret"},
		{slug: "opencode", in: "{file:key}", want: "key-secret"},
		{slug: "opencode", in: "{file:nowhere}", want: "{file:nowhere}", problem: "there is no such file"},
		{slug: "opencode", in: "${A} $A {other:x} {} {env:A", want: "${A} $A {other:x} {} {env:A"},
		{slug: "opencode", in: `{"a":"{env:A}"}`, want: `{"a":"value-of-a"}`},

		// Crush.
		{slug: "crush", in: "$A ${B} ${NONE:-x} ${NONE-y} ${A:+z} ${NONE:+z}", want: "value-of-a value-of-b x y z "},
		{slug: "crush", in: `\$A \\ a\b`, want: `$A \ a\b`},
		{slug: "crush", in: "${NONE:?must}", want: "", problem: "needs NONE"},
		{slug: "crush", in: "a $(op read x)", want: "a $(op read x)", problem: "never runs", unsupported: true},
		{slug: "crush", in: "a `op read x`", want: "a `op read x`", problem: "never runs", unsupported: true},
		{slug: "crush", in: "${NONE:-$(id)}", want: "$(id)", problem: "never runs", unsupported: true},

		// Continue.
		{slug: "continue", in: "Bearer ${{ secrets.TOKEN }}", want: "Bearer tok-123456"},
		{slug: "continue", in: "${{secrets.CONT}} ${{ secrets.HUB }}", want: "from-dotenv from-home"},
		{slug: "continue", in: "${{ secrets.NONE }}", want: "${{ secrets.NONE }}", problem: "needs NONE"},
		{slug: "continue", in: "${A} ${{ other }} $A", want: "${A} ${{ other }} $A"},

		// Those without variables.
		{slug: "codex", in: "${A} $A {env:A}", want: "${A} $A {env:A}"},
		{slug: "claude-desktop", in: "Authorization:${A}", want: "Authorization:${A}"},
		{slug: "lm-studio", in: "${A}", want: "${A}"},
		{slug: "cline", in: "${A}", want: "${A}"},
		{slug: "zed", in: "$A", want: "$A"},
		{slug: "goose", in: "$A", want: "$A"},
	}
	for _, r := range rows {
		s := Expand(Server{Name: "s", Command: "x", Args: []string{r.in}, Source: Source{Client: r.slug}}, testExpansion("/w/api"))
		if s.Args[0] != r.want {
			t.Errorf("%s: %q becomes %q, want %q", r.slug, r.in, s.Args[0], r.want)
		}
		if r.problem == "" && s.Problem != "" || !strings.Contains(s.Problem, r.problem) || s.Unsupported != r.unsupported {
			t.Errorf("%s: %q has the problem %q (unsupported %v), want %q (%v)", r.slug, r.in, s.Problem, s.Unsupported, r.problem, r.unsupported)
		}
		if s.Problem != "" && s.Hint == "" {
			t.Errorf("%s: %q has a problem without a hint", r.slug, r.in)
		}
	}
}

func TestOriginDecidesTheDialect(t *testing.T) {
	s := Expand(Server{Command: "{env:A}", Args: []string{"${A}"}, Origin: "opencode", Source: Source{Client: "toolsd"}}, testExpansion(""))
	if s.Command != "value-of-a" || s.Args[0] != "${A}" {
		t.Errorf("%q %q", s.Command, s.Args)
	}
}

func TestFilesAreLookedForBesideTheirConfig(t *testing.T) {
	s := Server{Command: "{file:./key}", Source: Source{Client: "opencode", File: "/w/api/opencode.json"}}
	if got := Expand(s, testExpansion("/elsewhere")); got.Command != "key-secret" {
		t.Errorf("%q, %q", got.Command, got.Problem)
	}
}

func TestExpandServer(t *testing.T) {
	in := Server{
		Name: "s", Transport: Stdio, Command: "~/bin/x", Args: []string{"${TOKEN}"},
		Env: map[string]string{"A": "own", "P": "plain-value"}, EnvFile: ".env", Dir: "./srv",
		Source: Source{Client: "claude-code", Root: "/w/api"},
	}
	before := Server{Args: slices.Clone(in.Args), Env: maps.Clone(in.Env)}
	s := Expand(in, testExpansion(""))
	if s.Problem != "" {
		t.Fatal(s.Problem)
	}
	if !reflect.DeepEqual(in.Args, before.Args) || !reflect.DeepEqual(in.Env, before.Env) {
		t.Error("Expand changed its argument")
	}
	want := map[string]string{"A": "own", "P": "plain-value", "X": "1", "Y": "two words", "Z": "a\nb", "URL": "http://h/#frag", "LONG": "first\nsecond", "CONT": "from-dotenv"}
	if !reflect.DeepEqual(s.Env, want) {
		t.Errorf("env %q, want %q", s.Env, want)
	}
	if s.Command != filepath.FromSlash("/home/mira/bin/x") || s.Dir != filepath.FromSlash("/w/api/srv") {
		t.Errorf("%q %q", s.Command, s.Dir)
	}
	for _, v := range []string{"tok-123456", "own", "plain-value", "two words", "from-dotenv"} {
		if !slices.Contains(s.Secrets, v) {
			t.Errorf("%q is not among the secrets", v)
		}
	}
	again := Expand(in, testExpansion(""))
	if !reflect.DeepEqual(s, again) {
		t.Error("two expansions differ")
	}
}

func TestForwardedVariables(t *testing.T) {
	s := Expand(Server{Command: "x", Forward: []string{"TOKEN", "NONE"}, Source: Source{Client: "codex"}}, testExpansion(""))
	if s.Problem != "" || !reflect.DeepEqual(s.Env, map[string]string{"TOKEN": "tok-123456"}) || !slices.Contains(s.Secrets, "tok-123456") {
		t.Errorf("codex: %q %v %q", s.Problem, s.Env, s.Secrets)
	}
	s = Expand(Server{Command: "x", Forward: []string{"TOKEN", "NONE", "SET"}, ForwardNeeded: true, Env: map[string]string{"SET": "y"}, Source: Source{Client: "goose"}}, testExpansion(""))
	if s.Problem != "needs NONE" {
		t.Errorf("goose: %q", s.Problem)
	}
	s = Expand(Server{URL: "https://e.example", Transport: Auto, HeaderVars: map[string]string{"X-Trace": "A"}, BearerVar: "TOKEN", Source: Source{Client: "codex"}}, testExpansion(""))
	if s.Problem != "" || s.Headers["X-Trace"] != "value-of-a" || s.Headers["Authorization"] != "Bearer tok-123456" || s.HeaderVars != nil || s.BearerVar != "" {
		t.Errorf("codex url: %+v", s)
	}
	s = Expand(Server{URL: "https://e.example", BearerVar: "NONE", Source: Source{Client: "codex"}}, testExpansion(""))
	if s.Problem != "needs NONE" {
		t.Errorf("codex bearer: %q", s.Problem)
	}
}

func TestURLs(t *testing.T) {
	rows := []struct {
		url, problem string
		unsupported  bool
	}{
		{"https://e.example/mcp", "", false},
		{"HTTP://E.example", "", false},
		{"https://${HOST}/mcp", "", false},
		{"https://${NONE}/mcp", "needs NONE", false},
		{"unix:///tmp/x.sock", "unix:", true},
		{"pipe:///pipe/x", "pipe:", true},
		{"ws://e.example", "WebSocket", true},
		{"WSS://e.example", "WebSocket", true},
		{"localhost:8080/mcp", "does not start with http", false},
		{"e.example/mcp", "does not start with http", false},
		{"https://", "names no host", false},
		{"https://e.example:port", "not a valid one", false},
		{"file:///etc/passwd", "does not start with http", false},
	}
	for _, r := range rows {
		s := Expand(Server{URL: r.url, Transport: HTTP, Source: Source{Client: "claude-code"}}, testExpansion(""))
		if r.problem == "" && s.Problem != "" || !strings.Contains(s.Problem, r.problem) || s.Unsupported != r.unsupported {
			t.Errorf("%s: %q %v, want %q %v", r.url, s.Problem, s.Unsupported, r.problem, r.unsupported)
		}
	}
}

func TestSecretsOfURLsAndHeaders(t *testing.T) {
	s := Expand(Server{
		URL:     "https://mira:p%40ssword@e.example/mcp?api_key=k-123456&page=plain-page",
		Headers: map[string]string{"Authorization": "Bearer lit-token", "X-Key": "key-value"},
		Source:  Source{Client: "cursor"},
	}, testExpansion(""))
	for _, v := range []string{"mira", "p%40ssword", "p@ssword", "mira:p%40ssword", "k-123456", "lit-token", "Bearer lit-token", "key-value"} {
		if !slices.Contains(s.Secrets, v) {
			t.Errorf("%q is not among the secrets %q", v, s.Secrets)
		}
	}
	if slices.Contains(s.Secrets, "plain-page") {
		t.Error("a parameter without a secret is among them")
	}
}

func TestSecretsOfURLsInArgsAndEnv(t *testing.T) {
	s := Expand(Server{
		Command: "x",
		Args:    []string{"postgres://mira:p%40ss-args@db.example/main", "--repo=https://tok-alone@git.example/r.git", "sh -c 'get https://e.example/a; mail mira@e.example'"},
		Env:     map[string]string{"DATABASE_URL": "postgres://mira:pass-env@db.example:5432"},
		Source:  Source{Client: "cursor"},
	}, testExpansion(""))
	for _, v := range []string{"mira:p%40ss-args", "p%40ss-args", "p@ss-args", "tok-alone", "pass-env"} {
		if !slices.Contains(s.Secrets, v) {
			t.Errorf("%q is not among the secrets %q", v, s.Secrets)
		}
	}
	if len(s.Secrets) != 7 { // the whole value of env, and its userinfo
		t.Errorf("among the secrets is what is none: %q", s.Secrets)
	}
}

func TestWorkspaceFolderNeedsAProject(t *testing.T) {
	s := Expand(Server{Command: "${workspaceFolder}/x", Source: Source{Client: "cursor"}}, testExpansion(""))
	if !strings.Contains(s.Problem, "needs a project") || s.Unsupported || s.Hint == "" {
		t.Errorf("%q %q", s.Problem, s.Hint)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	x := testExpansion("/w/api")
	s := Expand(Server{Command: "x", EnvFile: "tok-123456.env", Source: Source{Client: "vscode"}}, x)
	if !strings.Contains(s.Problem, "its envFile") || strings.Contains(s.Problem+s.Hint, "tok-") {
		t.Errorf("%q %q", s.Problem, s.Hint)
	}
	x.ReadFile = func(string) ([]byte, error) { return nil, errors.New("tok-123456") }
	s = Expand(Server{Command: "{file:x}", Source: Source{Client: "opencode"}}, x)
	if s.Problem == "" || strings.Contains(s.Problem, "tok-") {
		t.Errorf("%q", s.Problem)
	}
	x.ReadFile = nil
	s = Expand(Server{Command: "{file:x}", Source: Source{Client: "opencode"}}, x)
	if s.Problem == "" {
		t.Error("no problem without ReadFile")
	}
}

func TestEqual(t *testing.T) {
	stdio := Server{Name: "a", Transport: Stdio, Command: "x", Args: []string{"1"}, Env: map[string]string{"A": "b"}, Dir: "/d"}
	remote := Server{Name: "a", Transport: HTTP, URL: "https://e.example", Headers: map[string]string{"X-Key": "v"}}
	same := []func(s *Server){
		func(s *Server) { s.Name = "other" },
		func(s *Server) { s.CallTimeout = 1 },
		func(s *Server) { s.Exclude = []string{"rm"} },
		func(s *Server) { s.Disabled = true },
		func(s *Server) { s.Source = Source{Client: "kiro", File: "f", Line: 3} },
		func(s *Server) { s.Share = "session" },
		func(s *Server) { s.Secrets = []string{"v"} },
	}
	for i, change := range same {
		for _, s := range []Server{stdio, remote} {
			o := s
			change(&o)
			if !Equal(s, o) || !Equal(o, s) {
				t.Errorf("change %d makes a difference", i)
			}
		}
	}
	different := []func(s *Server){
		func(s *Server) { s.Command = "y" },
		func(s *Server) { s.Args = []string{"1", "2"} },
		func(s *Server) { s.Env = map[string]string{"A": "c"} },
		func(s *Server) { s.Env = nil },
		func(s *Server) { s.Dir = "/e" },
		func(s *Server) { s.Forward = []string{"V"} },
		func(s *Server) { s.URL = "https://e.example" },
	}
	for i, change := range different {
		o := stdio
		change(&o)
		if Equal(stdio, o) || Equal(o, stdio) {
			t.Errorf("change %d of a command makes no difference", i)
		}
	}
	different = []func(s *Server){
		func(s *Server) { s.URL += "/x" },
		func(s *Server) { s.Headers = map[string]string{"X-Key": "w"} },
		func(s *Server) { s.Headers = nil },
		func(s *Server) { s.Transport = SSE },
		func(s *Server) { s.BearerVar = "V" },
	}
	for i, change := range different {
		o := remote
		change(&o)
		if Equal(remote, o) || Equal(o, remote) {
			t.Errorf("change %d of a url makes no difference", i)
		}
	}
	o := remote
	o.Transport = Auto
	o.Headers = map[string]string{"x-key": "v"}
	if !Equal(remote, o) {
		t.Error("an untyped url with the same header differs")
	}
	empty := stdio
	empty.Headers, empty.Include = map[string]string{}, []string{}
	if !Equal(stdio, empty) {
		t.Error("nil and empty differ")
	}
}

func TestIsSelf(t *testing.T) {
	rows := []struct {
		line string
		self bool
	}{
		{"toolsd mcp", true}, {"/usr/local/bin/toolsd mcp", true}, {`C:\bin\toolsd.exe mcp`, true}, {`C:/bin/TOOLSD.EXE mcp --mode search`, true},
		{"toolsd --no-start mcp", true}, {"env TOOLSD_DIR=/x toolsd mcp", true}, {"cmd /c toolsd mcp", true},
		{"toolsd", false}, {"toolsd serve", false}, {"npx toolsd mcp", true}, {"mytoolsd mcp", false}, {"mcp toolsd", false},
		{"/opt/toolsd/server mcp", false}, {"", false}, {"env A=b", false},
	}
	wrapped := []struct {
		line string // words parted by |
		self bool
	}{
		{"npx|-y|toolsd@latest|mcp", true}, {"npx|-p|toolsd|toolsd|mcp|--mode|search", true}, {"pnpm|dlx|toolsd|mcp", true}, {"uv|tool|run|toolsd|mcp", true},
		{"go|run|github.com/toolsd/toolsd/cmd/toolsd@latest|mcp", true}, {"env|-i|-u|X|A=b|toolsd|mcp", true}, {"uvx|--from|toolsd-pip|toolsd|mcp", true}, {"/usr/bin/env|-S|toolsd mcp", true},
		{"nice|-n|5|toolsd|mcp", true}, {"timeout|100|/x/toolsd|mcp", true}, {"sudo|-u|me|toolsd|mcp", true}, {"nice|env|A=b|toolsd|mcp", true},
		{"sh|-c|toolsd mcp", true}, {"bash|-lc|exec /x/toolsd mcp", true}, {"zsh|-l|-c|cd /x && A=b exec toolsd mcp;", true}, {"env|A=b|bash|-c|toolsd mcp", true},
		{`cmd|/d|/c|C:\Program Files\toolsd\toolsd.exe|mcp`, true}, {"powershell|-NoProfile|-Command|toolsd mcp", true},
		{"ssh|host|toolsd|mcp", false}, {"docker|run|-i|toolsd|mcp", false}, {"wsl|toolsd|mcp", false}, {"npx|-y|@acme/server|toolsd|mcp", false},
		{"npx|server|toolsd|mcp", false}, {"sh|-c|toolsd serve", false}, {"sh|-c|echo toolsd mcp", false}, {"sh|-c|", false}, {"sh|-c", false}, {"sh|toolsd|mcp", false},
		{"npx|-y|toolsd-extras|mcp", false}, {"sh|-c|toolsd mcp; exec other", false}, {"nice", false}, {"env|-S|", false}, {"npx|@|mcp", false},
	}
	for _, r := range wrapped {
		words := strings.Split(r.line, "|")
		if got := IsSelf(Server{Command: words[0], Args: words[1:]}); got != r.self {
			t.Errorf("%q: %v", r.line, got)
		}
	}
	for _, r := range rows {
		words := strings.Split(r.line, " ")
		if got := IsSelf(Server{Command: words[0], Args: words[1:]}); got != r.self {
			t.Errorf("%q: %v", r.line, got)
		}
	}
}

func TestRestrict(t *testing.T) {
	rows := []struct{ aIn, aEx, bIn, bEx, in, ex string }{
		{"", "", "", "", "", ""},
		{"", "rm", "", "wipe", "", "rm wipe"},
		{"a b", "", "", "", "a b", ""},
		{"", "", "a b", "", "a b", ""},
		{"a b", "", "b c", "", "b", ""},
		{"get_*", "", "get_x set_y", "", "get_x", ""},
		{"a", "", "b", "", "", "*"},
	}
	for _, r := range rows {
		s := Server{Include: strings.Fields(r.aIn), Exclude: strings.Fields(r.aEx)}
		s.Restrict(Server{Include: strings.Fields(r.bIn), Exclude: strings.Fields(r.bEx)})
		if strings.Join(s.Include, " ") != r.in || strings.Join(s.Exclude, " ") != r.ex {
			t.Errorf("%v: include %q, exclude %q", r, s.Include, s.Exclude)
		}
	}
}

func TestDotenv(t *testing.T) {
	for _, r := range []struct {
		in   string
		want map[string]string
	}{
		{"\ufeffA=1\r\nexport B = 2\r\n", map[string]string{"A": "1", "B": "2"}},
		{"A=\"x # y\" # z\nB='it' # z\nC=`c`", map[string]string{"A": "x # y", "B": "it", "C": "c"}},
		{"A=\"{\\\"k\\\":1}\"\nB=2\n", map[string]string{"A": `{\"k\":1}`, "B": "2"}},
		{"A=\"one\r\ntwo\"\r\nB=2\n", map[string]string{"A": "one\ntwo", "B": "2"}},
		{"A=\"\"\nB=''\nC=", map[string]string{"A": "", "B": "", "C": ""}},
		// A quote that nothing closes takes no other line with it.
		{"A='tis\nB=2\n", map[string]string{"A": "'tis", "B": "2"}},
		{"A=\"\nB=2\n", map[string]string{"A": `"`, "B": "2"}},
		{"A=\"C:\\dir\\\"\nB=2\n", map[string]string{"A": `C:\dir\`, "B": "2"}},
		{"=1\n1=2\nA B=3\nA.B=4\n#C=5\n", map[string]string{"A.B": "4"}},
	} {
		if got := dotenv(r.in); !maps.Equal(got, r.want) {
			t.Errorf("%q: %q, want %q", r.in, got, r.want)
		}
	}
	// Squared, a megabyte takes minutes; the test's own limit finds it.
	for _, unit := range []string{"A=\"\n", "A='\n", "A=\"\\\n", "\n", "A=1\n"} {
		dotenv("X=\"" + strings.Repeat(unit, 1<<20/len(unit)))
	}
}

// An entry that names a large file, or a variable, a thousand times over.
func TestWhatIsAddedIsBounded(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	reads := 0
	x := Expansion{Getenv: func(name string) string { return map[string]string{"LARGE": large}[name] }, Home: "/home/mira", Root: "/w",
		ReadFile: func(path string) ([]byte, error) {
			reads++
			if strings.HasSuffix(path, ".env") {
				return []byte("K=" + large + large + large), nil
			}
			return []byte(large), nil
		}}
	for _, tt := range []struct{ slug, unit string }{{"opencode", "{file:big}"}, {"opencode", "{env:LARGE}"}, {"claude-code", "${LARGE}"}, {"gemini", "$LARGE "}} {
		s := Expand(Server{Command: "x", Args: []string{strings.Repeat(tt.unit, 10000)}, Source: Source{Client: tt.slug}}, x)
		if len(s.Args[0]) > maxAdded+10000*len(tt.unit) || !strings.Contains(s.Problem, "add more than") || s.Hint == "" {
			t.Errorf("%s: %d bytes, problem %q", tt.unit, len(s.Args[0]), s.Problem)
		}
	}
	if reads > 10 {
		t.Errorf("the file was read %d times", reads)
	}
	if s := Expand(Server{Command: "x", EnvFile: ".env", Source: Source{Client: "cursor"}}, x); len(s.Env) > 0 || !strings.Contains(s.Problem, "add more than") {
		t.Errorf("%d variables of an envFile, problem %q", len(s.Env), s.Problem)
	}
	reads = 0
	Expand(Server{Command: "x", Args: []string{strings.Repeat("${{ secrets.NONE }}", 10000)}, Source: Source{Client: "continue"}}, x)
	if reads > 3 {
		t.Errorf("the .env files were read %d times", reads)
	}
	var all strings.Builder
	for i := range 200000 {
		fmt.Fprintf(&all, "${V%d}", i)
	}
	s := Expand(Server{Command: "x", Args: []string{all.String()}, Source: Source{Client: "claude-code"}}, x)
	if len(s.Problem)+len(s.Hint) > 2000 {
		t.Errorf("%d bytes about variables that are not set", len(s.Problem)+len(s.Hint))
	}
}
