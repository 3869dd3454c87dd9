package adopt

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const cursorFile = `{
  // what I use
  "mcpServers": {
    // the notes
    "notes": { "command": "npx", "args": ["-y", "notes"], "autoApprove": ["a"] }, // since May
    "docs": {
      "command": "docs", // local
      "env": { "TOKEN": "abc" }
    },
    "off": { "command": "x", "disabled": true }
  },
  "theme": "dark"
}
`

const twoServers = `{
  "mcpServers": {
    "a": { "command": "x", "autoApprove": ["q"] },
    // b
    "b": {
      "command": "y" // why
    }
  }
}
`

// What the user did between adopt and release stays, and everything else is as it
// was.
func TestEditsBetween(t *testing.T) {
	const cursor, codex, goose, claude = ".cursor/mcp.json", ".codex/config.toml", ".config/goose/config.yaml", ".claude.json"
	codexFile := sampleText(t, "codex-1.toml")
	gooseFile := sampleText(t, "goose-1.yaml")
	claudeFile := sampleText(t, "claude-code-user-1.json")
	indented := func(s string) string {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	rows := []struct {
		name, slug, file, before string
		edit                     func(m *machine)
		want                     string
	}{
		{"a setting", "cursor", cursor, cursorFile,
			func(m *machine) { m.edit(cursor, `"dark"`, `"light"`) },
			strings.Replace(cursorFile, `"dark"`, `"light"`, 1)},
		{"a server behind toolsd", "cursor", cursor, twoServers,
			func(m *machine) {
				m.edit(cursor, "\n    }\n    // b", "\n    },\n    // b\n    \"new\": { \"command\": \"n\" }")
			},
			// Two sides put something at one place: all of it comes out, if not as neatly.
			"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\", \"autoApprove\": [\"q\"] },\n    // b\n" +
				"    \"new\": { \"command\": \"n\" },\n    \"b\": {\n      \"command\": \"y\" // why\n    }\n  }\n}\n"},
		{"a server in front", "cursor", cursor, cursorFile,
			func(m *machine) {
				m.edit(cursor, "\"mcpServers\": {\n", "\"mcpServers\": {\n    \"new\": { \"command\": \"n\" },\n")
			},
			strings.Replace(cursorFile, "\"mcpServers\": {\n", "\"mcpServers\": {\n    \"new\": { \"command\": \"n\" },\n", 1)},
		{"the entry of toolsd itself", "cursor", cursor, cursorFile,
			func(m *machine) {
				m.edit(cursor, `"args": ["mcp"]`, "\"args\": [ \"mcp\", \"--mode\", \"search\" ],\n      \"env\": {\"A\": \"1\"}")
			},
			cursorFile},
		{"a comment and an entry that stayed", "cursor", cursor, cursorFile,
			func(m *machine) {
				m.edit(cursor, `"command": "x", "disabled": true`, `"command": "x", "disabled": false`)
				m.edit(cursor, "// what I use", "// what we use")
			},
			strings.NewReplacer(`"disabled": true`, `"disabled": false`, "what I use", "what we use").Replace(cursorFile)},
		{"one line", "windsurf", ".codeium/windsurf/mcp_config.json", `{"mcpServers":{"a":{"command":"x","alwaysAllow":["q"]},"b":{"url":"https://b.example"}}}`,
			func(m *machine) {
				m.edit(".codeium/windsurf/mcp_config.json", `["mcp"] }`, `["mcp"] },"c":{"command":"z"}`)
			},
			`{"mcpServers":{"a":{"command":"x","alwaysAllow":["q"]},"b":{"url":"https://b.example"},"c":{"command":"z"}}}`},
		{"Claude Code rewrote it in another layout", "claude-code", claude, claudeFile,
			func(m *machine) {
				m.write(claude, strings.Replace(indented(m.text(claude)), `"numStartups": 214`, `"numStartups": 299`, 1))
			}, ""},
		{"Codex: a table behind", "codex", codex, codexFile,
			func(m *machine) {
				m.write(codex, m.text(codex)+"\n[mcp_servers.new]\ncommand = \"n\"\n")
				m.edit(codex, "gpt-5.5", "gpt-6")
			},
			strings.Replace(codexFile, "gpt-5.5", "gpt-6", 1) + "\n[mcp_servers.new]\ncommand = \"n\"\n"},
		{"Codex: the entry of toolsd itself", "codex", codex, codexFile,
			func(m *machine) { m.edit(codex, `args = ["mcp"]`, "args = [ 'mcp' ]\nstartup_timeout_sec = 9") },
			codexFile},
		{"Goose: a server and a setting", "goose", goose, gooseFile,
			func(m *machine) {
				m.edit(goose, "GOOSE_PROVIDER: acme", "GOOSE_PROVIDER: other")
				m.write(goose, m.text(goose)+"  new:\n    type: stdio\n    cmd: n\n    args: []\n    enabled: true\n")
			},
			strings.Replace(gooseFile, "acme\n", "other\n", 1) + "  new:\n    type: stdio\n    cmd: n\n    args: []\n    enabled: true\n"},
		{"nothing is left of the file", "cursor", cursor, cursorFile,
			func(m *machine) {
				if err := os.Remove(m.path(cursor)); err != nil {
					m.t.Fatal(err)
				}
			}, cursorFile},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.write(r.file, r.before)
			m.adopt(r.slug)
			r.edit(m)
			p := m.release(r.slug)
			if r.want != "" {
				equal(t, r.file, r.want, m.text(r.file))
			} else {
				now := m.servers(r.slug, r.file)
				for name, e := range serversOf(t, r.slug, r.before) {
					if !identical(e, now[name]) {
						t.Errorf("%s: %+v, not %+v", name, now[name], e)
					}
				}
				for _, part := range []string{`"numStartups": 299`, `"alwaysLoad": true`} {
					if !strings.Contains(m.text(r.file), part) {
						t.Errorf("%s is lost:\n%s", part, m.text(r.file))
					}
				}
				if strings.Contains(m.text(r.file), "toolsd") {
					t.Errorf("toolsd is left:\n%s", m.text(r.file))
				}
			}
			m.none(".config/toolsd/config.json") // adopt made it
			if strings.Contains(p.Message, "spelling") {
				t.Error(p.Message)
			}
		})
	}
}

func serversOf(t *testing.T, slug, text string) map[string]server {
	m := newMachine(t)
	m.write("f", text)
	return m.servers(slug, "f")
}

// Conflicts are shown, and nothing is lost.
func TestConflicts(t *testing.T) {
	const file = ".cursor/mcp.json"
	m := newMachine(t)
	m.write(file, cursorFile)
	m.adopt("cursor")
	m.edit(file, "\"mcpServers\": {\n", "\"mcpServers\": {\n    \"notes\": { \"command\": \"mine\" }, // anew\n    \"docs\": { \"command\": \"docs\", \"env\": { \"TOKEN\": \"abc\" } },\n")
	p := m.release("cursor")
	got := m.servers("cursor", file)
	if got["notes"].Command != "mine" || got["notes-released"].Command != "npx" || got["docs"].Env["TOKEN"] != "abc" || len(got) != 4 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(m.text(file), `"notes": { "command": "mine" }, // anew`) {
		t.Error(m.text(file))
	}
	if len(p.Files[0].Conflicts) != 1 || p.Files[0].Conflicts[0].Name != "notes" || !strings.Contains(p.Message, "1 conflict") {
		t.Errorf("%+v", p.Client)
	}
	m.none(".config/toolsd/config.json")
	// What was there is kept, too.
	if backups := tree(t, m.path("state")); !strings.Contains(backups, "// anew") {
		t.Error("no backup of the file that the release merged into")
	}
}

func TestServersChangedInConfig(t *testing.T) {
	const file, config = ".cursor/mcp.json", ".config/toolsd/config.json"
	m := newMachine(t)
	m.write(file, cursorFile)
	m.write(config, "{\n  // mine\n  \"mcpServers\": {\n    \"own\": { \"command\": \"o\" } // keep\n  }\n}\n")
	m.adopt("cursor")
	m.edit(config, `["-y", "notes"]`, `["-y", "notes@2"]`)
	p := m.release("cursor")
	equal(t, file, cursorFile, m.text(file))
	got := m.configServers()
	if len(got) != 2 || got["notes"].Args[1] != "notes@2" || got["own"].Command != "o" || !strings.Contains(m.config(), "// keep") {
		t.Error(m.config())
	}
	last := p.Files[len(p.Files)-1]
	if len(last.Conflicts) != 1 || last.Conflicts[0].Name != "notes" {
		t.Errorf("%+v", last)
	}
}

// A server that was in config.json before, by the user's own hand, stays there.
func TestServersThatWereThereStay(t *testing.T) {
	m := newMachine(t)
	const own = `{"mcpServers": {"docs": {"command": "docs", "env": {"TOKEN": "abc"}}}}`
	m.write(".config/toolsd/config.json", own)
	m.write(".cursor/mcp.json", cursorFile)
	m.adopt("cursor")
	m.edit(".config/toolsd/config.json", `"docs": {`, `"new": {"command": "n"}, "docs": {`)
	m.release("cursor")
	if got := m.configServers(); len(got) != 2 || got["docs"].Command != "docs" {
		t.Error(m.config())
	}
}

// Adoptions stack: what came to the file after the first is taken by the second,
// and one release undoes both.
func TestAdoptionsStack(t *testing.T) {
	const file = ".cursor/mcp.json"
	m := newMachine(t)
	m.write(file, cursorFile)
	m.adopt("cursor")
	const added = "    \"new\": { \"command\": \"n\" }, // of June\n"
	m.edit(file, "\"mcpServers\": {\n", "\"mcpServers\": {\n"+added)
	p := m.adopt("cursor")
	if diff := cmp.Diff([]string{"new"}, p.Files[0].Moved); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(m.text(file), "toolsd\": {"); n != 1 {
		t.Errorf("toolsd is there %d times:\n%s", n, m.text(file))
	}
	m.release("cursor")
	equal(t, file, strings.Replace(cursorFile, "\"mcpServers\": {\n", "\"mcpServers\": {\n"+added, 1), m.text(file))
	m.none(".config/toolsd/config.json")
}

func TestReleaseOfAFileThatIsBroken(t *testing.T) {
	m := newMachine(t)
	m.write(".cursor/mcp.json", cursorFile)
	m.adopt("cursor")
	config := m.config()
	m.write(".cursor/mcp.json", "{\n  broken\n")
	if _, err := m.s.Release("cursor"); err == nil || !strings.Contains(err.Error(), "line 2, column 3") {
		t.Errorf("%v", err)
	}
	equal(t, "config.json", config, m.config())
	equal(t, "the file", "{\n  broken\n", m.text(".cursor/mcp.json"))
}

// What an adoption put into config.json leaves it whole: the servers, the key
// that it made for them, and the file when it made that, too.
func TestReleaseLeavesNoEmptyKey(t *testing.T) {
	const config = ".config/toolsd/config.json"
	pinned := func(text string) string { return strings.Replace(text, "{", "{\n  \"pinned\": [\"a::b\"],", 1) }
	for _, before := range []string{
		"",
		"{}\n",
		"{\n\t// mine\n\t\"pinned\": [\"a::b\"]\n}\n",
		"{\n\t\"pinned\": [\"a::b\"], // mine\n}\n",
		"{\"pinned\": [\"a::b\"]}",
		"{\r\n    \"pinned\": [\"a::b\"]\r\n}\r\n",
		"{ \"clients\": {}, /* why */ \"pinned\": [] }\n",
		"{\n  \"mcpServers\": {},\n  \"pinned\": []\n}\n",
		"{\n  \"mcpServers\": { /* soon */ }\n}\n",
	} {
		two := func(t *testing.T) *machine {
			m := newMachine(t)
			m.write(".cursor/mcp.json", cursorFile)
			m.write(".claude.json", `{"mcpServers": {"wiki": {"command": "wiki"}}}`)
			if before != "" {
				m.write(config, before)
			}
			m.adopt("cursor")
			m.adopt("claude-code")
			return m
		}
		same := func(m *machine) {
			if before == "" {
				m.none(config)
				return
			}
			equal(m.t, "config.json", before, m.config())
		}
		t.Run(before, func(t *testing.T) {
			m := two(t)
			for _, slug := range m.s.Clients() { // as release --all
				m.release(slug)
			}
			same(m)
		})
		t.Run("the first comes first "+before, func(t *testing.T) {
			m := two(t)
			m.release("cursor")
			if strings.Count(m.config(), "wiki") == 0 {
				t.Errorf("the other client's server left:\n%s", m.config())
			}
			m.release("claude-code")
			same(m)
		})
		t.Run("edited "+before, func(t *testing.T) {
			m := two(t)
			m.write(config, strings.Replace(m.config(), "{", "{\n  // new\n", 1))
			m.release("cursor")
			m.release("claude-code")
			if strings.Contains(m.config(), "mcpServers") != strings.Contains(before, "mcpServers") || !strings.Contains(m.config(), "// new") {
				t.Errorf("%s", m.config())
			}
		})
	}
	t.Run("what is the user's own stays", func(t *testing.T) {
		m := newMachine(t)
		m.write(".cursor/mcp.json", cursorFile)
		m.adopt("cursor")
		m.write(config, pinned(m.config()))
		m.release("cursor")
		equal(t, "config.json", "{\n  \"pinned\": [\"a::b\"]\n}\n", m.config())
		// The key that was made by hand after that is not the first adoption's.
		m.write(config, "{\n  \"mcpServers\": {\n  }\n}\n")
		m.adopt("cursor")
		m.write(config, pinned(m.config()))
		m.release("cursor")
		if !strings.Contains(m.config(), "mcpServers") {
			t.Error(m.config())
		}
	})
}

// A dry run and the run after it tell the same, but for what happened: status,
// and the backup that there is then.
func TestADryRunTellsWhatTheRunWillTell(t *testing.T) {
	told := func(clients []Client) string {
		for i := range clients {
			clients[i].Status = ""
			for j := range clients[i].Files {
				clients[i].Files[j].Backup = ""
			}
		}
		text, err := json.MarshalIndent(clients, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	m := newMachine(t)
	m.write(".cursor/mcp.json", cursorFile)
	m.write(".claude.json", cursorFile) // the same servers: one adoption rests on the other
	m.write(".kiro/settings/mcp.json", `{"mcpServers": {"docs": {"command": "other"}}}`)
	slugs := []string{"claude-code", "cursor", "kiro"}
	run := func(dry bool, plan func(*Session, string) (*Plan, error), slugs []string) []Client {
		w := worldIn(m.home)
		w.DryRun = dry
		s := New(w)
		var out []Client
		for _, slug := range slugs {
			p, err := plan(s, slug)
			if err == nil {
				err = s.Apply(p)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range p.Files {
				if f.Backup != "" {
					if _, err := os.Lstat(f.Backup); err != nil {
						t.Errorf("dry run %v: %s has a backup that is not there: %s", dry, f.Path, f.Backup)
					}
				}
			}
			out = append(out, p.Client)
		}
		text, _ := json.Marshal(out)
		for _, key := range []string{`"moved":[`, `"as":{`, `"kept":[`, `"conflicts":[`, `"backup":"`} {
			if n := strings.Count(string(text), `{"path"`); strings.Count(string(text), key) != n {
				t.Errorf("dry run %v: not every file has %s: %s", dry, key, text)
			}
		}
		return out
	}
	dry := run(true, (*Session).Adopt, slugs)
	equal(t, "adopt", told(dry), told(run(false, (*Session).Adopt, slugs)))
	slugs = New(worldIn(m.home)).Clients()
	dry = run(true, (*Session).Release, slugs)
	equal(t, "release", told(dry), told(run(false, (*Session).Release, slugs)))
}
