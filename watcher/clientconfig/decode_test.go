package clientconfig

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// at is what a row expects of a problem: its place, its server and a part of its
// text.
type at4 struct {
	line, col int
	server    string
	text      string
}

// TestOddFiles holds what people and programs write into these files besides what
// is documented. Each row is one file.
func TestOddFiles(t *testing.T) {
	type row struct {
		name     string
		slug     string // default cursor
		path     string // default .cursor/mcp.json of the user
		in       string
		servers  string // one per server: name=command args… or name=url, - for disabled, ! for a problem of its own
		problems []at4
		unusable at4 // when the file as a whole is
	}
	rows := []row{
		// Entries.
		{name: "args is true", in: `{"mcpServers":{"a":{"command":"x","args":true},"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 42, "a", `"args" is true or false, not a list`}}},
		{name: "env is null", in: `{"mcpServers":{"a":{"command":"x","env":null,"args":null,"cwd":null,"disabled":null,"timeout":null}}}`, servers: "a=x"},
		{name: "a null entry", in: `{"mcpServers":{"a":null,"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 20, "a", "the entry is null"}}},
		{name: "an entry that is a list", in: `{"mcpServers":{"a":["x"],"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 20, "a", "the entry is a list, not an object"}}},
		{name: "an entry that is text", in: `{"mcpServers":{"a":"npx x","b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 20, "a", "the entry is text"}}},
		{name: "neither command nor url", in: "{\"mcpServers\":{\n  \"a\":{\"args\":[\"x\"]}}}", problems: []at4{{2, 7, "a", "neither a command nor a url"}}},
		{name: "an empty command", in: `{"mcpServers":{"a":{"command":" ","args":["x"]}}}`, problems: []at4{{1, 20, "a", "neither"}}},
		{name: "command is a number", in: `{"mcpServers":{"a":{"command":7}}}`, problems: []at4{{1, 31, "a", `"command" is a number, not text`}}},
		{name: "command is a list", in: `{"mcpServers":{"a":{"command":["npx","-y","p"],"args":["q"]}}}`, servers: "a=npx -y p q"},
		{name: "command is an empty list", in: `{"mcpServers":{"a":{"command":[]}}}`, problems: []at4{{1, 20, "a", "neither"}}},
		{name: "command is a line", in: `{"mcpServers":{"a":{"command":"npx -y 'my server' --root=\"/a b\""}}}`, servers: "a=npx -y my_server --root=/a_b"},
		{name: "command is a line with args", in: `{"mcpServers":{"a":{"command":"npx -y","args":["p"]}}}`, servers: "a=npx -y p"},
		{name: "command has an open quote", in: `{"mcpServers":{"a":{"command":"npx 'p"},"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 31, "a", "a quote that is not closed"}}},
		{name: "command needs a shell", in: `{"mcpServers":{"a":{"command":"cd /x && npx p"}}}`, problems: []at4{{1, 31, "a", "needs a shell"}}},
		{name: "args is text", in: `{"mcpServers":{"a":{"command":"npx","args":"-y \"p q\" r"}}}`, servers: "a=npx -y p_q r"},
		{name: "args of numbers", in: `{"mcpServers":{"a":{"command":"x","args":["--port",8080,true,1.50]}}}`, servers: "a=x --port 8080 true 1.50"},
		{name: "args holds null", in: `{"mcpServers":{"a":{"command":"x","args":["p",null]}}}`, problems: []at4{{1, 47, "a", `element 2 of "args" is null`}}},
		{name: "args is an object", in: `{"mcpServers":{"a":{"command":"x","args":{"0":"p"}}}}`, problems: []at4{{1, 42, "a", `"args" is an object`}}},
		{name: "env is a list", in: `{"mcpServers":{"a":{"command":"x","env":["A=b"]}}}`, problems: []at4{{1, 41, "a", `"env" is a list, not an object of names`}}},
		{name: "env holds an object", in: `{"mcpServers":{"a":{"command":"x","env":{"A":{"B":1}}}}}`, problems: []at4{{1, 46, "a", `value of "A" in "env" is an object`}}},
		{name: "a name no variable can have", in: `{"mcpServers":{"a":{"command":"x","env":{"A=B":"c"}}}}`, problems: []at4{{1, 42, "a", "no variable can have"}}},
		{name: "a zero byte", in: `{"mcpServers":{"a":{"command":"x","args":["p\u0000"]}}}`, problems: []at4{{1, 43, "a", "zero byte"}}},
		{name: "url is a list", in: `{"mcpServers":{"a":{"url":["https://e.example"]}}}`, problems: []at4{{1, 27, "a", `"url" is a list, not text`}}},
		{name: "headers is text", in: `{"mcpServers":{"a":{"url":"https://e.example","headers":"A: b"}}}`, problems: []at4{{1, 57, "a", `"headers" is text`}}},
		{name: "an unknown type", in: `{"mcpServers":{"a":{"type":"carrier-pigeon","command":"x"}}}`, problems: []at4{{1, 28, "a", `"type" is none that is known`}}},
		{name: "type stdio with a url", in: `{"mcpServers":{"a":{"type":"stdio","url":"https://e.example"}}}`, servers: "a=https://e.example",
			problems: []at4{{1, 28, "a", "the url is used"}}},
		{name: "type http with a command", in: `{"mcpServers":{"a":{"type":"http","command":"x"}}}`, servers: "a=x",
			problems: []at4{{1, 28, "a", "the command is used"}}},
		{name: "disabled in words", in: `{"mcpServers":{"a":{"command":"x","disabled":"true"},"b":{"command":"y","disabled":1}}}`, servers: "a=x-",
			problems: []at4{{1, 84, "b", `"disabled" is a number, not true or false`}}},
		{name: "both switches", in: `{"mcpServers":{"a":{"command":"x","disabled":false,"enabled":false},"b":{"command":"y","enabled":true}}}`, servers: "a=x-|b=y"},
		{name: "a timeout in words", in: `{"mcpServers":{"a":{"command":"x","timeout":"long"}}}`, servers: "a=x",
			problems: []at4{{1, 45, "a", `"timeout" must be a number of milliseconds`}}},
		{name: "a timeout in the wrong unit", in: `{"mcpServers":{"a":{"command":"x","timeout":60}}}`, servers: "a=x",
			problems: []at4{{1, 45, "a", "less than a second"}}},
		{name: "a filter that is text", in: `{"mcpServers":{"a":{"command":"x","disabledTools":"rm"}}}`, problems: []at4{{1, 51, "a", "not a list of names of tools"}}},
		{name: "unknown keys", in: `{"mcpServers":{"a":{"command":"x","autoApprove":["*"],"icon":{"x":[1]},"description":7}}}`, servers: "a=x"},
		{name: "the toolsd block is text", in: `{"mcpServers":{"a":{"command":"x","toolsd":"lazy"}}}`, servers: "a=x", problems: []at4{{1, 44, "a", `"toolsd" is text`}}},
		{name: "a long value is not shown", in: `{"mcpServers":{"a":{"command":"x","env":{"` + strings.Repeat("K", 500) + `":["s3cret"]}}}}`,
			problems: []at4{{1, 545, "a", `value of "` + strings.Repeat("K", 60) + `…" in "env" is a list`}}},

		// Names.
		{name: "an empty name", in: `{"mcpServers":{"":{"command":"x"}," ":{"command":"x"},"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 16, "", "empty name"}, {1, 35, "", "empty name"}}},
		{name: "a name with ::", in: `{"mcpServers":{"a::b":{"command":"x"},"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 16, "a::b", `holds "::"`}}},
		{name: "a name with hidden characters", in: "{\"mcpServers\":{\"a\u202eb\\u001b[1m\":{\"command\":\"x\"}}}", servers: "ab[1m=x",
			problems: []at4{{1, 16, "ab[1m", "hidden characters"}}},
		{name: "names of other scripts", in: `{"mcpServers":{"日本":{"command":"x"},"é":null}}`, servers: "日本=x", problems: []at4{{1, 41, "é", "null"}}},
		{name: "numbers as names", slug: "goose", path: "goose/config.yaml", in: "extensions:\n  7: {cmd: x}\n  true: {cmd: y}\n", servers: "7=x|true=y"},
		{name: "a number as the name in a list", slug: "continue", path: ".continue/config.yaml", in: "mcpServers:\n  - {name: 7, command: x}\n", servers: "7=x"},
		{name: "a huge name", in: `{"mcpServers":{"` + strings.Repeat("n", 100000) + `":{"command":"x"}}}`, servers: strings.Repeat("n", 100000) + "=x"},

		// Keys that are there twice.
		{name: "a server twice", in: "{\"mcpServers\":{\"a\":{\"command\":\"x\"},\n\"a\":{\"command\":\"y\"}}}", servers: "a=y",
			problems: []at4{{2, 1, "a", "twice, at line 1, column 16 and at line 2, column 1"}}},
		{name: "a server twice, the last one bad", in: `{"mcpServers":{"a":{"command":"x"},"a":{"args":1}}}`,
			problems: []at4{{1, 36, "a", "twice"}, {1, 48, "a", `"args" is a number`}}},
		{name: "a key twice", in: `{"mcpServers":{"a":{"command":"x","command":"y"}}}`, servers: "a=y",
			problems: []at4{{1, 35, "a", `"command" is there twice, at line 1, column 21 and at line 1, column 35`}}},
		{name: "args twice", in: `{"mcpServers":{"a":{"command":"x","args":["p"],"args":["q"]}}}`, servers: "a=x q",
			problems: []at4{{1, 48, "a", `"args" is there twice`}}},
		{name: "a variable twice", in: `{"mcpServers":{"a":{"command":"x","env":{"A":"1","A":"2"}}}}`, servers: "a=x",
			problems: []at4{{1, 50, "a", `"A" is there twice`}}},
		{name: "the root twice", in: `{"mcpServers":{"a":{"command":"x"}},"mcpServers":{"b":{"command":"y"}}}`, servers: "b=y",
			problems: []at4{{1, 37, "", `"mcpServers" is there twice`}}},
		{name: "a table twice", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.a]\ncommand = \"y\"\n", servers: "a=y",
			problems: []at4{{3, 14, "a", "twice, at line 1, column 14 and at line 3, column 14"}}},
		{name: "a TOML key twice", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcp_servers.a]\ncommand = \"x\"\ncommand = \"y\"\n", servers: "a=y",
			problems: []at4{{3, 1, "a", `"command" is there twice, at line 2, column 1`}}},
		{name: "a YAML key twice", slug: "goose", path: "goose/config.yaml", in: "extensions:\n  a: {cmd: x}\n  a: {cmd: y}\n", servers: "a=y",
			problems: []at4{{3, 3, "a", "twice, at line 2, column 3"}}},
		{name: "a name twice in a list", slug: "continue", path: ".continue/config.yaml", in: "mcpServers:\n  - {name: a, command: x}\n  - {name: a, command: y}\n", servers: "a=y",
			problems: []at4{{3, 5, "a", "twice"}}},

		// Roots.
		{name: "an empty object", in: `{}`},
		{name: "an empty map", in: `{"mcpServers":{}}`},
		{name: "a root of null", in: `{"mcpServers":null}`},
		{name: "an empty list", in: `{"mcpServers":[]}`},
		{name: "a root that is text", in: `{"mcpServers":"x"}`, unusable: at4{1, 15, "", `"mcpServers" is text, not an object`}},
		{name: "a file that is a list", in: `[{"command":"x"}]`, unusable: at4{1, 1, "", "the file is a list"}},
		{name: "a file that is null", in: ` null`, unusable: at4{1, 2, "", "the file is null"}},
		{name: "servers and mcpServers", in: `{"mcpServers":{"a":{"command":"x"}},"servers":{"b":{"command":"y"}}}`, servers: "a=x|b=y",
			problems: []at4{{1, 47, "", `under "servers", the root of VS Code; Cursor reads "mcpServers"`}}},
		{name: "servers of the same name under two roots", in: `{"servers":{"a":{"command":"y"}},"mcpServers":{"a":{"command":"x"}}}`, servers: "a=x",
			problems: []at4{{1, 12, "", `under "servers"`}, {1, 13, "a", "the first one counts"}}},
		{name: "opencode's root", in: `{"mcp":{"a":{"type":"local","command":["x","y"]}}}`, servers: "a=x y", problems: []at4{{1, 8, "", `under "mcp"`}}},
		{name: "Zed's root", in: `{"context_servers":{"a":{"command":{"path":"x","args":["y"]}}}}`, servers: "a=x y", problems: []at4{{1, 20, "", `under "context_servers"`}}},
		{name: "Goose's root", in: `{"extensions":{"a":{"cmd":"x"}}}`, servers: "a=x", problems: []at4{{1, 15, "", `under "extensions"`}}},
		{name: "Codex' root", in: `{"mcp_servers":{"a":{"command":"x"}}}`, servers: "a=x", problems: []at4{{1, 16, "", `under "mcp_servers"`}}},
		{name: "Amp's root", in: `{"amp.mcpServers":{"a":{"command":"x"}}}`, servers: "a=x", problems: []at4{{1, 19, "", `under "amp.mcpServers"`}}},
		{name: "VS Code's settings", in: `{"mcp":{"servers":{"a":{"command":"x"}}}}`, servers: "a=x", problems: []at4{{1, 19, "", `under "mcp.servers"`}}},
		{name: "Continue's list", in: `{"mcpServers":[{"name":"a","command":"x"},{"command":"y"},7]}`, servers: "a=x",
			problems: []at4{{1, 15, "", `"mcpServers" is a list; Cursor reads an object`}, {1, 43, "", "server 2 of the list has no name"}, {1, 59, "", "server 3 of the list is a number"}}},
		{name: "a bare map", in: `{"a":{"command":"x"},"$schema":"s","b":{"url":"https://e.example"}}`, servers: "a=x|b=https://e.example",
			problems: []at4{{1, 2, "", "the servers stand at the top of the file"}}},
		{name: "a bare map of Copilot", slug: "copilot-cli", path: ".copilot/mcp-config.json", in: `{"a":{"command":"x"}}`, servers: "a=x"},
		{name: "no servers at all", in: `{"mcpservers":{"a":{"commnd":"x"}}}`, problems: []at4{{1, 2, "", `no "mcpServers"`}}},
		{name: "other things in settings", slug: "zed", path: "/.config/zed/settings.json", in: `{"servers":{"a":{"command":"x"}},"terminal":{"command":"y"},"extensions":{"b":{"cmd":"z"}}}`},
		{name: "mcpServers in settings of Zed", slug: "zed", path: "/.config/zed/settings.json", in: `{"mcpServers":{"a":{"command":"x"}}}`, servers: "a=x", problems: []at4{{1, 15, "", "root"}}},
		{name: "mcpServers in TOML", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcpServers.a]\ncommand = 'x'\n", servers: "a=x", problems: []at4{{1, 2, "", `under "mcpServers"`}}},
		{name: "a map in Continue's file", slug: "continue", path: ".continue/config.yaml", in: "mcpServers:\n  a:\n    command: x\n", servers: "a=x"},
		{name: "a flat key in VS Code's settings", slug: "vscode", path: "Code/User/settings.json", in: `{"mcp.servers":{"a":{"command":"x"}}}`, servers: "a=x"},
		{name: "a nested key of Amp", slug: "amp", path: "/.config/amp/settings.json", in: `{"amp":{"mcpServers":{"a":{"command":"x"}}}}`, servers: "a=x"},

		// Spellings of one client in another's file.
		{name: "all urls", in: `{"mcpServers":{"a":{"serverUrl":"https://a.example"},"b":{"httpUrl":"https://b.example"},"c":{"uri":"https://c.example"}}}`,
			servers: "a=https://a.example|b=https://b.example|c=https://c.example"},
		{name: "httpUrl goes before url", slug: "gemini", path: "/home/mira/.gemini/settings.json",
			in: `{"mcpServers":{"a":{"httpUrl":"https://h.example","url":"https://s.example"},"b":{"url":"https://s.example","httpUrl":"https://h.example"}}}`, servers: "a=https://h.example|b=https://h.example"},
		{name: "a transport object", in: `{"mcpServers":{"a":{"transport":{"type":"streamableHttp","url":"https://a.example","headers":{"K":"v"}}}}}`, servers: "a=https://a.example"},
		{name: "an editor's own server", slug: "zed", path: "/.config/zed/settings.json", in: `{"context_servers":{"a":{"source":"extension","settings":{}},"b":{"settings":{"k":1}},"c":{"source":"extension","command":"x"}}}`, servers: "a=!|b=!|c=x"},
		{name: "WebSocket", in: `{"mcpServers":{"a":{"url":"wss://a.example"},"b":{"type":"ws","url":"https://b.example"}}}`, servers: "a=wss://a.example!|b=https://b.example!"},

		// Files.
		{name: "a BOM and CRLF", in: "\xef\xbb\xbf{\r\n\"mcpServers\":{\r\n\"a\":null}}\r\n", problems: []at4{{3, 5, "a", "null"}}},
		{name: "columns after a BOM", in: "\xef\xbb\xbf{\"mcpServers\":{\"a\":null}}", problems: []at4{{1, 20, "a", "null"}}},
		{name: "comments and commas", in: "// x\n{/* y */\"mcpServers\":{\"a\":{\"command\":\"x\",},},} // z", servers: "a=x"},
		{name: "a hash comment", in: "{\n  # mine\n  \"mcpServers\":{}}", unusable: at4{2, 3, "", "# does not start a comment"}},
		{name: "single quotes", in: `{'mcpServers':{}}`, unusable: at4{1, 2, "", "single quotes"}},
		{name: "a missing comma", in: "{\"mcpServers\":{\"a\":{\"command\":\"x\"}\n\"b\":{}}}", unusable: at4{2, 1, "", "a comma"}},
		{name: "a missing value", in: `{"mcpServers":}`, unusable: at4{1, 15, "", "a value is expected"}},
		{name: "a Windows path", in: `{"mcpServers":{"a":{"command":"C:\tools\x.exe"}}}`, unusable: at4{1, 40, "", "a backslash that starts no known escape"}},
		{name: "a Windows path whose escapes are known", in: `{"mcpServers":{"a":{"command":"C:\tools\npx.exe"},"b":{"command":"y","cwd":"C:\new"}}}`,
			problems: []at4{{1, 31, "a", "control character in a path"}, {1, 76, "b", `"cwd" holds a control character`}}},
		{name: "a text over two lines", in: "{\"mcpServers\":{\"a\":{\"command\":\"x\ny\"}}}", unusable: at4{1, 31, "", "no closing quote"}},
		{name: "two values", in: `{}{}`, unusable: at4{1, 3, "", "more text after the end"}},
		{name: "cut off", in: `{"mcpServers":{"a":{"comm`, unusable: at4{1, 26, "", "the file ends"}},
		{name: "cut off in a comment", in: `{"mcpServers":{} /* `, unusable: at4{1, 18, "", "has no end"}},
		{name: "zeros", in: "\x00\x00\x00", unusable: at4{1, 1, "", "zero bytes"}},
		{name: "deep nesting", in: strings.Repeat("[", 100000), unusable: at4{1, 1001, "", "nested more than 1000"}},
		{name: "a list without an object", in: `{"mcpServers":[1]}`, unusable: at4{1, 15, "", "is a list, not an object of servers by name"}},
		{name: "an empty list", in: `{"mcpServers":[]}`},
		{name: "deep nesting in what is skipped", slug: "claude-code", path: "/.claude.json", in: `{"x":` + strings.Repeat(`{"y":`, 100000), unusable: at4{1, 5*1000 + 1, "", "nested more than 1000"}},
		{name: "invalid UTF-8", in: "{\"mcpServers\":{\"a\":{\"command\":\"x\xe9\"}}}", servers: "a=x\uFFFD", problems: []at4{{1, 33, "", "not valid UTF-8"}}},
		{name: "UTF-16", in: "\xff\xfe" + utf16le(`{"mcpServers":{"a":{"command":"x"}}}`), servers: "a=x", problems: []at4{{1, 1, "", "UTF-16"}}},
		{name: "a huge text", in: `{"mcpServers":{"a":{"command":"x","env":{"A":"` + strings.Repeat(`\u00e9`, 1<<20) + `"}}}}`, servers: "a=x"},
		{name: "broken TOML", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcp_servers.é]\n", unusable: at4{1, 14, "", "not valid TOML"}},
		{name: "TOML cut off", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcp_servers.a]\ncommand = \"x", unusable: at4{2, 12, "", "not valid TOML"}},
		{name: "TOML with a BOM", slug: "codex", path: "/home/mira/.codex/config.toml", in: "\xef\xbb\xbf[mcp_servers.a]\r\nargs = 1\r\n", problems: []at4{{2, 8, "a", `"args" is a number`}}},
		{name: "TOML of comments", slug: "codex", path: "/home/mira/.codex/config.toml", in: "# nothing\n"},
		{name: "TOML sub-tables first", slug: "codex", path: "/home/mira/.codex/config.toml", in: "[mcp_servers.a.env]\nK = 'v'\n[mcp_servers.a]\ncommand = 'x'\n", servers: "a=x"},
		{name: "TOML inline", slug: "codex", path: "/home/mira/.codex/config.toml", in: "mcp_servers = { a = { command = 'x', args = ['p', 1] } }\n", servers: "a=x p 1"},
		{name: "TOML dotted", slug: "codex", path: "/home/mira/.codex/config.toml", in: "mcp_servers.a.command = 'x'\nmcp_servers.a.env.K = 'v'\n", servers: "a=x"},
		{name: "broken YAML", slug: "goose", path: "goose/config.yaml", in: "extensions:\n  a: [x\n  b: }\n", unusable: at4{2, 3, "", "not valid YAML"}},
		{name: "YAML of comments", slug: "goose", path: "goose/config.yaml", in: "# nothing\n"},
		{name: "YAML with a BOM", slug: "goose", path: "goose/config.yaml", in: "\xef\xbb\xbfextensions: {é: {cmd: x, args: 7}}\n", problems: []at4{{1, 32, "é", `"args" is a number`}}},
		{name: "YAML anchors", slug: "goose", path: "goose/config.yaml", in: "x: &base {cmd: x, args: [p]}\nextensions:\n  a: *base\n  b:\n    <<: *base\n    args: [q]\n", servers: "a=x p|b=x q"},
		{name: "YAML of a loop", slug: "goose", path: "goose/config.yaml", in: "extensions: &a\n  b: *a\n", unusable: at4{2, 6, "", "alias stands inside"}},
		{name: "YAML scalars", slug: "goose", path: "goose/config.yaml", in: "extensions:\n  a: {cmd: x, args: [1, 1.5, true, 2020-01-01, '7', ~]}\n", problems: []at4{{2, 53, "a", `element 6 of "args" is null`}}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			if r.slug == "" {
				r.slug, r.path = "cursor", "/home/mira/.cursor/mcp.json"
			}
			loc := locationOf(t, r.slug, r.path)
			servers, problems, err := Decode(loc, []byte(r.in))
			var got []string
			for _, s := range servers {
				got = append(got, short(s))
			}
			if g := strings.Join(got, "|"); g != r.servers {
				t.Errorf("servers %q, want %q", g, r.servers)
			}
			want := r.problems
			var syntax *SyntaxError
			switch {
			case r.unusable == at4{} && err != nil:
				t.Fatalf("the file counts as unusable: %v", err)
			case r.unusable != at4{}:
				want = append(want, r.unusable)
				if !errors.As(err, &syntax) {
					t.Fatalf("error %v, want a SyntaxError", err)
				}
				if syntax.Line != r.unusable.line || syntax.Col != r.unusable.col || !strings.Contains(syntax.Message, r.unusable.text) {
					t.Errorf("error %v, want %v", syntax, r.unusable)
				}
			}
			if len(problems) != len(want) {
				t.Fatalf("problems %v, want %v", problems, want)
			}
			for i, p := range problems {
				if (at4{p.Line, p.Col, p.Server, ""}) != (at4{want[i].line, want[i].col, want[i].server, ""}) || !strings.Contains(p.Message, want[i].text) {
					t.Errorf("problem %d:%d %q %q, want %v", p.Line, p.Col, p.Server, p.Message, want[i])
				}
				if p.File != loc.Path {
					t.Errorf("the problem is in %q, want %q", p.File, loc.Path)
				}
				if strings.Contains(p.Message+p.Hint, "s3cret") {
					t.Errorf("the problem shows a value: %q", p.Message)
				}
			}
		})
	}
}

func short(s Server) string {
	what := s.URL
	if s.Command != "" {
		words := append([]string{s.Command}, s.Args...)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], " ", "_")
		}
		what = strings.Join(words, " ")
	}
	if s.Disabled {
		what += "-"
	}
	if s.Problem != "" {
		what += "!"
	}
	return s.Name + "=" + what
}

func utf16le(s string) string {
	var b strings.Builder
	for _, c := range s {
		b.WriteByte(byte(c))
		b.WriteByte(byte(c >> 8))
	}
	return b.String()
}

func TestEmptyIsToldApart(t *testing.T) {
	for _, in := range []string{"", " ", "\n\n\t", "\xef\xbb\xbf", "\xef\xbb\xbf\r\n", "\xff\xfe"} {
		for _, c := range Clients() {
			_, problems, err := Decode(Location{Client: c.Slug, Path: "f.json"}, []byte(in))
			if !errors.Is(err, ErrEmpty) || len(problems) > 0 {
				t.Errorf("%s: %q gives %v, %v, want ErrEmpty", c.Slug, in, err, problems)
			}
		}
	}
}

func TestTimeoutsCountInTheUnitOfTheClient(t *testing.T) {
	want := map[string]time.Duration{"toolsd": time.Millisecond, "claude-code": time.Millisecond, "gemini": time.Millisecond, "qwen": time.Millisecond,
		"amazon-q": time.Millisecond, "opencode": time.Millisecond, "copilot-cli": time.Millisecond,
		"cline": time.Second, "roo": time.Second, "goose": time.Second, "crush": time.Second, "codex": time.Second, "zed": time.Second}
	for slug, unit := range want {
		c, _ := ClientOf(slug)
		in := fmt.Sprintf(`{%q:{"a":{"command":"x","timeout":30000}}}`, c.Pointer)
		servers, _, err := Decode(Location{Client: slug, Path: "f.json", Format: JSON}, []byte(in))
		if err != nil || len(servers) != 1 || servers[0].CallTimeout != 30000*unit {
			t.Errorf("%s: %v %v, want %v", slug, servers, err, 30000*unit)
		}
	}
	in := `{"mcpServers":{"a":{"command":"x","startup_timeout_sec":1.5,"tool_timeout_sec":9},"b":{"command":"x","startup_timeout_ms":2500,"timeout":9e99},"c":{"command":"x","timeout":0}}}`
	servers, problems, err := Decode(Location{Client: "cursor", Path: "f.json"}, []byte(in))
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Message, "longer than a day") {
		t.Fatal(problems, err)
	}
	if a := servers[0]; a.StartTimeout != 1500*time.Millisecond || a.CallTimeout != 9*time.Second {
		t.Errorf("a: %v %v", a.StartTimeout, a.CallTimeout)
	}
	if b := servers[1]; b.StartTimeout != 2500*time.Millisecond || b.CallTimeout != 24*time.Hour {
		t.Errorf("b: %v %v", b.StartTimeout, b.CallTimeout)
	}
	if c := servers[2]; c.CallTimeout != 0 {
		t.Errorf("c: %v", c.CallTimeout)
	}
}

func TestToolFilters(t *testing.T) {
	rows := []struct {
		slug, entry      string
		include, exclude []string
	}{
		{"kiro", `"disabledTools":["a","b"]`, nil, []string{"a", "b"}},
		{"crush", `"disabled_tools":["a"]`, nil, []string{"a"}},
		{"gemini", `"includeTools":["a","run(ls)"],"excludeTools":["b"]`, []string{"a", "run"}, []string{"b"}},
		{"codex", `"enabled_tools":["a"],"disabled_tools":["b"]`, []string{"a"}, []string{"b"}},
		{"codex", `"enabled_tools":[]`, nil, []string{"*"}},
		{"codex", `"tools":{"a":{"approval_mode":"approve"}}`, nil, nil},
		{"goose", `"available_tools":[]`, nil, nil},
		{"goose", `"available_tools":["a"]`, []string{"a"}, nil},
		{"copilot-cli", `"tools":["*"]`, nil, nil},
		{"copilot-cli", `"tools":["a","*"]`, nil, nil},
		{"copilot-cli", `"tools":["a"]`, []string{"a"}, nil},
		{"copilot-cli", `"tools":[]`, nil, []string{"*"}},
		{"amp", `"includeTools":["nav*"]`, []string{"nav*"}, nil},
	}
	for _, r := range rows {
		c, _ := ClientOf(r.slug)
		in := fmt.Sprintf(`{%q:{"s":{"command":"x",%s}}}`, c.Pointer, r.entry)
		servers, problems, err := Decode(Location{Client: r.slug, Path: "f.json", Format: JSON}, []byte(in))
		if err != nil || len(problems) > 0 || len(servers) != 1 {
			t.Errorf("%s %s: %v %v", r.slug, r.entry, problems, err)
			continue
		}
		if s := servers[0]; !reflect.DeepEqual(s.Include, r.include) || !reflect.DeepEqual(s.Exclude, r.exclude) {
			t.Errorf("%s %s: include %q, exclude %q, want %q, %q", r.slug, r.entry, s.Include, s.Exclude, r.include, r.exclude)
		}
	}
}

func TestGeminiAllowsAndExcludes(t *testing.T) {
	rows := []struct{ mcp, on string }{
		{`{}`, "a b c"},
		{`{"allowed":["a","c"]}`, "a c"},
		{`{"allowed":[]}`, "a b c"},
		{`{"excluded":["b"]}`, "a c"},
		{`{"allowed":["a","b"],"excluded":["b"]}`, "a"},
		{`{"excluded":"c"}`, "a b"},
	}
	for _, slug := range []string{"gemini", "qwen"} {
		for _, r := range rows {
			in := `{"mcp":` + r.mcp + `,"mcpServers":{"a":{"command":"x"},"b":{"command":"x"},"c":{"command":"x"}}}`
			servers, problems, err := Decode(locationOf(t, slug, "/home/mira/."+slug+"/settings.json"), []byte(in))
			if err != nil || len(problems) > 0 || len(servers) != 3 {
				t.Fatal(servers, problems, err)
			}
			var on []string
			for _, s := range servers {
				if !s.Disabled {
					on = append(on, s.Name)
				}
			}
			if g := strings.Join(on, " "); g != r.on {
				t.Errorf("%s %s: on are %q, want %q", slug, r.mcp, g, r.on)
			}
		}
	}
}

func TestOpencodeSwitchesToolsOff(t *testing.T) {
	in := `{"mcp":{"my.srv":{"command":["x"]},"b":{"command":["x"]}},
		"tools":{"my_srv_rm":false,"my_srv_w*":false,"b*":false,"bash":false,"my_srv_write":true,"my_srv_w*":true}}`
	servers, _, err := Decode(locationOf(t, "opencode", "opencode/opencode.json"), []byte(in))
	if err != nil || len(servers) != 2 {
		t.Fatal(servers, err)
	}
	if got := servers[0].Exclude; !reflect.DeepEqual(got, []string{"rm"}) {
		t.Errorf("my.srv hides %q", got)
	}
	if got := servers[1].Exclude; !reflect.DeepEqual(got, []string{"*"}) {
		t.Errorf("b hides %q", got)
	}
}

func TestClaudeProjects(t *testing.T) {
	in := `{
  "disabledMcpServers": ["top-off"],
  "projects": {
    "/w/api/": { "mcpServers": { "a": {"command":"x"}, "off": {"command":"y"}, "bad": {"args":1} },
      "disabledMcpServers": ["off", "top"], "disabledMcpjsonServers": ["prod", "x"], "enabledMcpjsonServers": ["yes"] },
    "c:/Users/mira//kiosk/../shop": { "mcpServers": { "w": {"command":"z"} } },
    "D:\\work": { "mcpServers": { "d": {"command":"z"} } },
    "relative/path": { "mcpServers": { "r": {"command":"z"} } },
    "/w/wrong": { "mcpServers": "nonsense" },
    "/w/null": null, "/w/none": { "mcpServers": null, "disabledMcpjsonServers": null }
  },
  "mcpServers": { "top": {"command":"t"}, "top-off": {"command":"t"} }
}`
	c, err := Read(locationOf(t, "claude-code", "/.claude.json"), []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Servers {
		if s.Source.Scope != User {
			t.Errorf("%s has scope %s", s.Name, s.Source.Scope)
		}
		got = append(got, s.Source.Root+" "+short(s))
	}
	want := []string{" top=t", " top-off=t-", "/w/api a=x", "/w/api off=y-", `C:\Users\mira\shop w=z`, `D:\work d=z`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("servers %q\nwant %q", got, want)
	}
	rejected := []Rejection{{"/w/api", "top", User}, {"/w/api", "prod", Project}, {"/w/api", "x", Project}}
	if !reflect.DeepEqual(c.Rejected, rejected) {
		t.Errorf("rejected %v, want %v", c.Rejected, rejected)
	}
	var problems []string
	for _, p := range c.Problems {
		problems = append(problems, fmt.Sprintf("%d:%d %s", p.Line, p.Col, p.Message))
	}
	if len(problems) != 3 || !strings.Contains(problems[0], `"args" is a number`) || !strings.HasPrefix(problems[1], "8:5 ") || !strings.HasPrefix(problems[2], "9:33 ") {
		t.Errorf("problems %q", problems)
	}
}

// A project's own file must not give itself rights that only the user's has.
func TestProjectsSectionCountsInTheUsersFileOnly(t *testing.T) {
	in := `{"mcpServers":{},"projects":{"/w/api":{"mcpServers":{"a":{"command":"x"}},"disabledMcpjsonServers":["b"]}}}`
	c, err := Read(locationOf(t, "claude-code", "/w/api/.mcp.json"), []byte(in))
	if err != nil || len(c.Servers)+len(c.Rejected) > 0 {
		t.Errorf("%v %v %v", c.Servers, c.Rejected, err)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"mcpServers":{`)
	for i := range 5000 {
		fmt.Fprintf(&b, `"s%d":null,`, i)
	}
	b.WriteString(`}`)
	_, problems, err := Decode(Location{Client: "cursor", Path: "f.json"}, []byte(b.String()+"}"))
	if err != nil || len(problems) != maxProblems+1 || problems[maxProblems].Line != 0 {
		t.Fatal(len(problems), err)
	}
}

func TestServersAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"mcpServers":{`)
	for i := range 2 * maxServers {
		fmt.Fprintf(&b, `"s%d":{"command":"x"},`, i)
	}
	servers, problems, err := Decode(Location{Client: "cursor", Path: "f.json"}, []byte(b.String()+"}}"))
	if err != nil || len(servers) != maxServers || len(problems) != 1 || !strings.Contains(problems[0].Message, "more than 500 servers") {
		t.Errorf("%d servers, %v, %v", len(servers), problems, err)
	}
	// Claude Code keeps those of all projects in one file.
	b.Reset()
	b.WriteString(`{"projects":{`)
	for i := range 2 * maxServers {
		fmt.Fprintf(&b, `"/w/p%d":{"mcpServers":{"s":{"command":"x"}}},`, i)
	}
	servers, problems, err = Decode(Location{Client: "claude-code", Scope: User, Settings: true, Path: ".claude.json"}, []byte(b.String()+"}}"))
	if err != nil || len(servers) != 2*maxServers || len(problems) != 0 {
		t.Errorf("%d servers of projects, %v, %v", len(servers), problems, err)
	}
}

func TestAliasesAreBounded(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	env := "x: &env\n" + many(5000, "  K%d: v\n")
	for name, in := range map[string]string{
		"aliases": env + "extensions:\n" + many(5000, "  s%d: {cmd: x, envs: *env}\n"),
		"merges":  env + "extensions:\n" + many(5000, "  s%d: {<<: *env, cmd: x}\n"),
		"in turn": "a0: &a0 {k: v}\n" + func() string {
			var b strings.Builder
			for i := range 60 {
				fmt.Fprintf(&b, "a%d: &a%d {x: *a%d, y: *a%d}\n", i+1, i+1, i, i)
			}
			return b.String()
		}(),
	} {
		_, _, err := Decode(Location{Client: "goose", Scope: User, Path: "config.yaml"}, []byte(in))
		if err == nil || !strings.Contains(err.Error(), "aliases stand for more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that was made to cost time costs no more than another one of its size.
func TestDecodeIsLinear(t *testing.T) {
	const size = 2 << 20 // squared, each of these takes minutes; the test's own limit finds it
	many := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)))
		}
		return b.String()
	}
	for _, r := range []struct{ name, slug, path, in string }{
		{"keys", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x",` + many(`"k#":1,`) + `}}}`},
		{"a key over and over", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x",` + many(`"k":1,`) + `}}}`},
		{"variables", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x","env":{` + many(`"K#":"",`) + `}}}}`},
		{"a variable over and over", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x","env":{` + many(`"K":"",`) + `}}}}`},
		{"tools", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x","disabledTools":[` + many(`"t#",`) + `]}}}`},
		{"forwarded", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x","env_vars":[` + many(`"V#",`) + `]}}}`},
		{"the toolsd block", "cursor", "mcp.json", `{"mcpServers":{"a":{"command":"x","toolsd":{` + many(`"k#":1,`) + `}}}}`},
		{"servers", "cursor", "mcp.json", `{"mcpServers":{` + many(`"s#":{"command":"x"},`) + `}}`},
		{"a server over and over", "cursor", "mcp.json", `{"mcpServers":{` + many(`"s":{"command":"x"},`) + `}}`},
		{"roots", "cursor", "mcp.json", `{` + many(`"k#":{"a":1},`) + `}`},
		{"switches", "opencode", "opencode.json", `{"mcp":{` + many(`"s#":{"command":["x"]},`) + `},"tools":{` + many(`"s#_*":false,`) + `}}`},
		{"tables", "codex", "config.toml", many("[mcp_servers.s#]\n")},
		{"tables in tables", "codex", "config.toml", many("[mcp_servers.s#.env]\n[mcp_servers.s#]\n")},
		{"TOML keys", "codex", "config.toml", "[mcp_servers.a]\n" + many("k# = 1\n")},
		{"dotted TOML keys", "codex", "config.toml", many("mcp_servers.s#.command = 'x'\n")},
		{"YAML keys", "goose", "config.yaml", "extensions:\n  a:\n" + many("    k#: 1\n")},
		{"YAML on one line", "goose", "config.yaml", "extensions: {a: {cmd: x, envs: {" + many("K#: v, ") + "}}}\n"},
		{"a list on one line", "continue", "config.yaml", "mcpServers: [" + many("{name: s#, command: x}, ") + "]\n"},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := Decode(Location{Client: r.slug, Scope: Project, Root: "/w", Path: "/w/" + r.path}, []byte(r.in)); err != nil {
				t.Error(err)
			}
		})
	}
}
