package clientconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shim is what adopt puts in the place of a client's servers.
var shim = Entry{Transport: Stdio, Command: "toolsd", Args: []string{"mcp"}}

func TestReplaceServers(t *testing.T) {
	rows := []struct {
		name, slug, path string
		in               string
		remove           string
		add              map[string]Entry // nil: the shim; empty: nothing
		want             string
	}{
		{
			name: "one of several lines", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in: `{
  // mine
  "mcpServers": {
    "a": { "command": "x" }, // about a
    // about b
    "b": {
      "command": "y"
    },
    "c": { "command": "z" }
  },
  "other": [1,  2]
}
`, remove: "b",
			want: `{
  // mine
  "mcpServers": {
    "a": { "command": "x" }, // about a
    // about b
    "toolsd": {
      "command": "toolsd",
      "args": ["mcp"]
    },
    "c": { "command": "z" }
  },
  "other": [1,  2]
}
`,
		},
		{
			name: "all of them", slug: "claude-code", path: "/home/mira/.claude.json",
			in:     "{\n\t\"n\": 1,\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"},\n\t\t\"b\": {\"command\": \"y\"},\n\t\t\"c\": {\"command\": \"z\"}\n\t},\n\t\"projects\": {\"/w\": {\"mcpServers\": {\"a\": {\"command\": \"own\"}}}}\n}",
			remove: "a b c",
			want:   "{\n\t\"n\": 1,\n\t\"mcpServers\": {\n\t\t\"toolsd\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"toolsd\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t},\n\t\"projects\": {\"/w\": {\"mcpServers\": {\"a\": {\"command\": \"own\"}}}}\n}",
		},
		{
			name: "on one line", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in: `{ "mcpServers": { "a": { "command": "x" }, "b": { "command": "y" } } }`, remove: "b",
			want: `{ "mcpServers": { "a": { "command": "x" }, "toolsd": { "command": "toolsd", "args": ["mcp"] } } }`,
		},
		{
			name: "the last one goes and none comes", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in: `{ "mcpServers": { "a": { "command": "x" }, "b": { "command": "y" } } }`, remove: "b", add: map[string]Entry{},
			want: `{ "mcpServers": { "a": { "command": "x" } } }`,
		},
		{
			name: "the last of several lines goes", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in:     "{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"x\"},\r\n    \"b\": {\"command\": \"y\"},\r\n    \"c\": {\"command\": \"y\"}\r\n  }\r\n}\r\n",
			remove: "c b", add: map[string]Entry{},
			want: "{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"x\"}\r\n  }\r\n}\r\n",
		},
		{
			name: "everything goes", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in: "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n", remove: "a", add: map[string]Entry{},
			want: "{\n  \"mcpServers\": {\n  }\n}\n",
		},
		{
			name: "trailing commas and a comment at the end", slug: "zed", path: "/.config/zed/settings.json",
			in:   "{\n  \"context_servers\": {\n    \"a\": {\"command\": \"x\"}, // a\n  },\n}\n",
			want: "{\n  \"context_servers\": {\n    \"a\": {\"command\": \"x\"}, // a\n    \"toolsd\": {\n      \"source\": \"custom\",\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    },\n  },\n}\n",
		},
		{
			name: "a comment at the end without a comma", slug: "kiro", path: "/home/mira/.kiro/settings/mcp.json",
			in:   "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // a\n  }\n}\n",
			want: "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // a\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
		},
		{
			name: "an empty map, a BOM", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in:   "\xef\xbb\xbf{\"mcpServers\": {}}",
			want: "\xef\xbb\xbf{\"mcpServers\": {\n  \"toolsd\": {\n    \"command\": \"toolsd\",\n    \"args\": [\"mcp\"]\n  }\n}}",
		},
		{
			name: "a map of comments", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in:   "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n",
			want: "{\n  \"mcpServers\": {\n    // none yet\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
		},
		{
			name: "an empty file", slug: "cursor", path: "/home/mira/.cursor/mcp.json", in: "",
			want: "{\n  \"mcpServers\": {\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
		},
		{
			name: "no root yet", slug: "gemini", path: "/home/mira/.gemini/settings.json",
			in:   "{\n    \"theme\": \"dark\"\n}\n",
			want: "{\n    \"theme\": \"dark\",\n    \"mcpServers\": {\n        \"toolsd\": {\n            \"command\": \"toolsd\",\n            \"args\": [\"mcp\"]\n        }\n    }\n}\n",
		},
		{
			name: "a root of null", slug: "cursor", path: "/home/mira/.cursor/mcp.json", in: "{\"mcpServers\": null}\n",
			want: "{\"mcpServers\": {\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }}\n",
		},
		{
			name: "the root of another client", slug: "cursor", path: "/home/mira/.cursor/mcp.json",
			in: "{\n  \"servers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n", remove: "a",
			want: "{\n  \"servers\": {\n  },\n  \"mcpServers\": {\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
		},
		{
			name: "Gemini's allow list", slug: "gemini", path: "/home/mira/.gemini/settings.json",
			in:     "{\n  \"mcp\": { \"allowed\": [\"a\", \"b\"] },\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"},\n    \"b\": {\"command\": \"y\"}\n  }\n}\n",
			remove: "a",
			want:   "{\n  \"mcp\": { \"allowed\": [\"a\", \"b\", \"toolsd\"] },\n  \"mcpServers\": {\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    },\n    \"b\": {\"command\": \"y\"}\n  }\n}\n",
		},
		{
			name: "back again with Gemini", slug: "gemini", path: "/home/mira/.gemini/settings.json",
			in:     "{\n  \"mcp\": { \"allowed\": [\"a\", \"b\", \"toolsd\"] },\n  \"mcpServers\": {\n    \"toolsd\": { \"command\": \"/usr/bin/toolsd\", \"args\": [\"mcp\"] },\n    \"b\": {\"command\": \"y\"}\n  }\n}\n",
			remove: "toolsd", add: map[string]Entry{"a": {Transport: HTTP, URL: "https://a.example", Headers: map[string]string{"K": "<v>"}}},
			want: "{\n  \"mcp\": { \"allowed\": [\"a\", \"b\"] },\n  \"mcpServers\": {\n    \"a\": {\n      \"httpUrl\": \"https://a.example\",\n      \"headers\": {\n        \"K\": \"<v>\"\n      }\n    },\n    \"b\": {\"command\": \"y\"}\n  }\n}\n",
		},
		{
			name: "opencode", slug: "opencode", path: "/.config/opencode/opencode.jsonc",
			in:     "{\n  \"mcp\": {\n    \"a\": { \"type\": \"local\", \"command\": [\"x\"] },\n  },\n}\n",
			remove: "a",
			want:   "{\n  \"mcp\": {\n    \"toolsd\": {\n      \"type\": \"local\",\n      \"command\": [\"toolsd\", \"mcp\"],\n      \"enabled\": true\n    },\n  },\n}\n",
		},
		{
			name: "Kilo's older file", slug: "kilo", path: ".kilocode/mcp.json",
			in: `{"mcpServers":{"a":{"command":"x"}}}`, remove: "a",
			want: `{"mcpServers":{"toolsd": { "command": "toolsd", "args": ["mcp"] }}}`,
		},
		{
			name: "VS Code", slug: "vscode", path: "/Code/User/mcp.json",
			in: "{\n\t\"inputs\": [],\n\t\"servers\": {\n\t\t\"a\": { \"type\": \"http\", \"url\": \"https://${input:h}\" },\n\t\t\"b\": { \"command\": \"x\" }\n\t}\n}\n", remove: "b",
			want: "{\n\t\"inputs\": [],\n\t\"servers\": {\n\t\t\"a\": { \"type\": \"http\", \"url\": \"https://${input:h}\" },\n\t\t\"toolsd\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"toolsd\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t}\n}\n",
		},
		{
			name: "VS Code's settings", slug: "vscode", path: "/Code/User/settings.json",
			in:   "{\n  \"editor.fontSize\": 13,\n}\n",
			want: "{\n  \"editor.fontSize\": 13,\n  \"mcp\": {\n    \"servers\": {\n      \"toolsd\": {\n        \"type\": \"stdio\",\n        \"command\": \"toolsd\",\n        \"args\": [\"mcp\"]\n      }\n    }\n  },\n}\n",
		},
		{
			name: "Amp's dotted key", slug: "amp", path: "/.config/amp/settings.json", in: "{\n  \"amp.x\": true\n}\n",
			want: "{\n  \"amp.x\": true,\n  \"amp.mcpServers\": {\n    \"toolsd\": {\n      \"command\": \"toolsd\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
		},
		{
			name: "Copilot's bare map", slug: "copilot-cli", path: ".copilot/mcp-config.json", in: `{ "a": { "command": "x" } }`, remove: "a",
			want: `{ "toolsd": { "type": "local", "command": "toolsd", "args": ["mcp"], "tools": ["*"] } }`,
		},
		{
			name: "Codex", slug: "codex", path: "/home/mira/.codex/config.toml",
			in: `model = "gpt" # kept
[features]
x = true

# about a
[mcp_servers.a]
command = "x"
# inside
args = [
  "1",
]

[mcp_servers.a.env]
K = "v"

# about b
[mcp_servers.b]
command = "y"

[tui]
theme = "dark"
`, remove: "a",
			want: `model = "gpt" # kept
[features]
x = true

# about a
[mcp_servers.toolsd]
command = "toolsd"
args = ["mcp"]

# about b
[mcp_servers.b]
command = "y"

[tui]
theme = "dark"
`,
		},
		{
			name: "Codex, dotted keys and no line end", slug: "codex", path: "/home/mira/.codex/config.toml",
			in: "mcp_servers.a.command = 'x'\nmcp_servers.b.command = 'y'\nz = 1", remove: "a",
			want: "mcp_servers.b.command = 'y'\nz = 1\n\n[mcp_servers.toolsd]\ncommand = \"toolsd\"\nargs = [\"mcp\"]\n",
		},
		{
			name: "Codex, all go, CRLF", slug: "codex", path: "/home/mira/.codex/config.toml",
			in: "x = 1\r\n\r\n[mcp_servers.a]\r\ncommand = \"x\"\r\n\r\n[mcp_servers.b]\r\ncommand = \"x\"\r\n", remove: "a b", add: map[string]Entry{},
			want: "x = 1\r\n\r\n",
		},
		{
			name: "Codex with an environment", slug: "codex", path: "/home/mira/.codex/config.toml", in: "",
			add:  map[string]Entry{"a.b": {Command: "x", Env: map[string]string{"K": "a\"b\\\n"}}},
			want: "[mcp_servers.\"a.b\"]\ncommand = \"x\"\nargs = []\n\n[mcp_servers.\"a.b\".env]\nK = \"a\\\"b\\\\\\n\"\n",
		},
		{
			name: "Goose", slug: "goose", path: "goose/config.yaml",
			in: `GOOSE_PROVIDER: acme
extensions:
  developer: # builtin
    type: builtin
    enabled: true

  # about notes
  notes:
    type: stdio
    cmd: npx
    args:
      - -y
      - "@acme/notes"
    enabled: true
  # about web
  web:
    type: streamable_http
    uri: https://e.example
    enabled: true
# the end
GOOSE_MODE: auto
`, remove: "notes",
			want: `GOOSE_PROVIDER: acme
extensions:
  developer: # builtin
    type: builtin
    enabled: true

  # about notes
  toolsd:
    name: toolsd
    type: stdio
    cmd: toolsd
    args:
      - mcp
    enabled: true
    timeout: 300
  # about web
  web:
    type: streamable_http
    uri: https://e.example
    enabled: true
# the end
GOOSE_MODE: auto
`,
		},
		{
			name: "Goose, none there", slug: "goose", path: "goose/config.yaml", in: "a: 1\nextensions: {} # none\nb: 2\n",
			want: "a: 1\nextensions: # none\n  toolsd:\n    name: toolsd\n    type: stdio\n    cmd: toolsd\n    args:\n      - mcp\n    enabled: true\n    timeout: 300\nb: 2\n",
		},
		{
			name: "Goose, no root", slug: "goose", path: "goose/config.yaml", in: "a: 1",
			want: "a: 1\nextensions:\n  toolsd:\n    name: toolsd\n    type: stdio\n    cmd: toolsd\n    args:\n      - mcp\n    enabled: true\n    timeout: 300\n",
		},
		{
			name: "Goose, the only one goes", slug: "goose", path: "goose/config.yaml", in: "extensions:\n  a:\n    cmd: x\nb: 2\n", remove: "a", add: map[string]Entry{},
			want: "extensions: {}\nb: 2\n",
		},
		{
			name: "Continue", slug: "continue", path: ".continue/config.yaml",
			in: `name: My assistant
mcpServers:
- name: SQLite MCP   # db
  command: npx
  args: ["-y"]
# about the next
- name: Remote
  type: streamable-http
  url: https://e.example
models: []
`, remove: "SQLite MCP",
			want: `name: My assistant
mcpServers:
- name: toolsd
  command: toolsd
  args:
    - mcp
# about the next
- name: Remote
  type: streamable-http
  url: https://e.example
models: []
`,
		},
		{
			name: "toolsd takes a server over", slug: "toolsd", path: "toolsd/config.json",
			in: "{\n  // mine\n  \"pinned\": [],\n}\n",
			add: map[string]Entry{"db": {
				Transport: Stdio, Command: "/opt/My Server", Env: map[string]string{"K": "{env:K}"}, Forward: []string{"T"}, ForwardNeeded: true, Dir: "/d",
				Include: []string{"a*"}, Exclude: []string{"b"}, CallTimeout: 90 * time.Second, StartTimeout: 1500 * time.Millisecond,
				Disabled: true, Origin: "opencode", Start: "lazy", Idle: 5 * time.Minute,
			}},
			want: `{
  // mine
  "pinned": [],
  "mcpServers": {
    "db": {
      "command": ["/opt/My Server"],
      "env": {
        "K": "{env:K}"
      },
      "env_keys": ["T"],
      "cwd": "/d",
      "includeTools": ["a*"],
      "excludeTools": ["b"],
      "timeout": 90000,
      "startup_timeout_ms": 1500,
      "disabled": true,
      "toolsd": {
        "start": "lazy",
        "idle": "5m0s",
        "origin": "opencode"
      }
    }
  },
}
`,
		},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			if r.add == nil {
				r.add = map[string]Entry{"toolsd": shim}
			}
			remove := strings.Split(r.remove, " ")
			if r.slug == "continue" {
				remove = []string{r.remove}
			}
			loc := locationOf(t, r.slug, r.path)
			out, err := ReplaceServers(loc, []byte(r.in), remove, r.add)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.want, string(out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := ReplaceServers(loc, out, remove, r.add)
			if err != nil || !bytes.Equal(again, out) {
				t.Errorf("a second time gives %v\n%s", err, cmp.Diff(string(out), string(again)))
			}
		})
	}
}

func TestReplaceServersRefuses(t *testing.T) {
	rows := []struct{ name, slug, path, in, remove, want string }{
		{"truncated", "cursor", "/home/mira/.cursor/mcp.json", `{"mcpServers":{`, "a", "line 1, column 16"},
		{"UTF-16", "cursor", "/home/mira/.cursor/mcp.json", "\xff\xfe{\x00}\x00", "a", "UTF-16"},
		{"one inline table", "codex", "/home/mira/.codex/config.toml", "mcp_servers = { a = { command = 'x' } }\n", "a", "inline table"},
		{"flow style", "goose", "goose/config.yaml", "extensions: { a: { cmd: x } }\n", "a", "on one line"},
		{"an anchor that is used", "goose", "goose/config.yaml", "extensions:\n  a: &a\n    cmd: x\n  b: *a\n", "a", "by hand"},
	}
	for _, r := range rows {
		out, err := ReplaceServers(locationOf(t, r.slug, r.path), []byte(r.in), []string{r.remove}, map[string]Entry{"toolsd": shim})
		if err == nil || out != nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v\n%s", r.name, err, out)
		}
	}
}

// Every sample gets the shim in the place of its servers, loses nothing else, and
// every server of it can be moved to toolsd's own file and back.
func TestEverySampleCanBeAdopted(t *testing.T) {
	own := locationOf(t, "toolsd", "toolsd/config.json")
	for _, s := range samples {
		t.Run(s.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata/samples", s.file))
			if err != nil {
				t.Fatal(err)
			}
			loc := locationOf(t, s.slug, s.path)
			servers, _, err := Decode(loc, data)
			if err != nil {
				return
			}
			moved := map[string]Entry{}
			var names []string
			for _, s := range servers {
				if s.Source.Root != loc.Root || s.Unsupported {
					continue
				}
				names = append(names, s.Name)
				s.Origin = loc.Client
				moved[s.Name] = s
			}
			out, err := ReplaceServers(loc, data, names, map[string]Entry{"toolsd": shim})
			if err != nil {
				t.Fatal(err)
			}
			now, _, err := Decode(loc, out)
			if err != nil || !slices.ContainsFunc(now, IsSelf) {
				t.Fatalf("%v\n%s", err, out)
			}
			config, err := ReplaceServers(own, []byte("{\n  \"pinned\": []\n}\n"), nil, moved)
			if err != nil {
				t.Fatal(err)
			}
			got, problems, err := Decode(own, config)
			if err != nil || len(got) != len(moved) {
				t.Fatal(got, problems, err)
			}
			for _, g := range got {
				x, y := Expand(g, testExpansion("/w/api")), Expand(moved[g.Name], testExpansion("/w/api"))
				if !Equal(x, y) || x.Problem != y.Problem {
					t.Errorf("%s is another server now: %+v, %+v", g.Name, x, y)
				}
			}
			back, err := ReplaceServers(own, config, names, nil)
			if err != nil {
				t.Fatal(err)
			}
			if left, _, err := Decode(own, back); err != nil || len(left) > 0 {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}

// FuzzReplaceServers checks that an edit either refuses or does what it says, that
// what it did it does not do twice, and that lines it has nothing to do with stay.
func FuzzReplaceServers(f *testing.F) {
	index := map[string]int{}
	for i, c := range clients {
		index[c.Slug] = i
	}
	seed(f, func(data []byte, slug string) { f.Add(data, uint8(index[slug])) })
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		c := clients[int(which)%len(clients)]
		loc := c.location(c.Files[0], "f"+filepath.Ext(c.Files[0].Linux), "")
		servers, _, _ := Decode(loc, data)
		var names []string
		for i, s := range servers {
			if i%2 == 0 && s.Source.Root == "" {
				names = append(names, s.Name)
			}
		}
		kept := bytes.Clone(data)
		out, err := ReplaceServers(loc, data, names, map[string]Entry{"toolsd": shim})
		if !bytes.Equal(kept, data) {
			t.Fatal("the bytes were changed")
		}
		if err != nil {
			return
		}
		again, err := ReplaceServers(loc, out, names, map[string]Entry{"toolsd": shim})
		if err != nil {
			t.Fatalf("the second time: %v\n%q\n%q", err, data, out)
		}
		a, _, _ := Decode(loc, out)
		b, _, _ := Decode(loc, again)
		if len(a) != len(b) || len(a) > 0 && !reflect.DeepEqual(a[len(a)-1].Args, b[len(b)-1].Args) {
			t.Fatalf("%q becomes %q, then %q", data, out, again)
		}
	})
}
