package adopt

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/golden")

// machine is a home directory with client files.
type machine struct {
	t    testing.TB
	home string
	s    *Session
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	return machineIn(t, t.TempDir())
}

func machineIn(t testing.TB, home string) *machine {
	return &machine{t, home, New(worldIn(home))}
}

func worldIn(home string) World {
	return World{
		Env:    clientconfig.Env{GOOS: "linux", Home: home},
		Config: filepath.Join(home, ".config/toolsd/config.json"),
		State:  filepath.Join(home, "state"),
		Shim: func(string) clientconfig.Entry {
			return clientconfig.Entry{Transport: clientconfig.Stdio, Command: "/opt/bin/toolsd", Args: []string{"mcp"}}
		},
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.home, name) }

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) text(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *machine) config() string { return m.text(".config/toolsd/config.json") }

func (m *machine) edit(name, old, new string) {
	m.t.Helper()
	text := m.text(name)
	if strings.Count(text, old) != 1 {
		m.t.Fatalf("%s holds %q %d times:\n%s", name, old, strings.Count(text, old), text)
	}
	m.write(name, strings.Replace(text, old, new, 1))
}

func (m *machine) do(plan func(string) (*Plan, error), slug string) *Plan {
	m.t.Helper()
	p, err := plan(slug)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.s.Apply(p); err != nil {
		m.t.Fatal(err)
	}
	return p
}

func (m *machine) adopt(slug string) *Plan   { m.t.Helper(); return m.do(m.s.Adopt, slug) }
func (m *machine) release(slug string) *Plan { m.t.Helper(); return m.do(m.s.Release, slug) }

// servers are the ones in a file, by name.
func (m *machine) servers(slug, name string) map[string]clientconfig.Server {
	m.t.Helper()
	loc := clientconfig.Location{Client: slug, Scope: clientconfig.User, Path: m.path(name), Settings: slug == "toolsd"}
	list, err := servers(loc, []byte(m.text(name)))
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]clientconfig.Server{}
	for _, e := range list {
		if e.Source.Root == "" {
			out[e.Name] = e
		}
	}
	return out
}

func (m *machine) configServers() map[string]clientconfig.Server {
	return m.servers("toolsd", ".config/toolsd/config.json")
}

// none reports a file that should not be there.
func (m *machine) none(name string) {
	m.t.Helper()
	if _, err := os.Lstat(m.path(name)); err == nil {
		m.t.Errorf("%s is there:\n%s", name, m.text(name))
	}
}

func equal(t testing.TB, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// samples say whose file each sample is, and where it stands on Linux. Samples of
// projects have the shape of the user's files, and stand for them.
var samples = []struct{ file, slug, path string }{
	{"amazonq-1.json", "amazon-q", ".aws/amazonq/mcp.json"},
	{"amp-1.json", "amp", ".config/amp/settings.json"},
	{"antigravity-1.json", "antigravity", ".gemini/config/mcp_config.json"},
	{"bare-map-1.json", "copilot-cli", ".copilot/mcp-config.json"},
	{"claude-code-managed-1.json", "claude-code", ".claude.json"},
	{"claude-code-project-1.json", "claude-code", ".claude.json"},
	{"claude-code-project-2-relpaths.json", "claude-code", ".claude.json"},
	{"claude-code-project-4-vscode-root.json", "cursor", ".cursor/mcp.json"},
	{"claude-code-project-5-bom-crlf.json", "claude-code", ".claude.json"},
	{"claude-code-project-6-truncated.json", "claude-code", ".claude.json"},
	{"claude-code-project-7-empty.json", "claude-code", ".claude.json"},
	{"claude-code-user-1.json", "claude-code", ".claude.json"},
	{"claude-desktop-1.json", "claude-desktop", ".config/Claude/claude_desktop_config.json"},
	{"cline-1.json", "cline", ".cline/data/settings/cline_mcp_settings.json"},
	{"codex-1.toml", "codex", ".codex/config.toml"},
	{"codex-2-project.toml", "codex", ".codex/config.toml"},
	{"continue-1.yaml", "continue", ".continue/config.yaml"},
	{"continue-2-block.yaml", "continue", ".continue/config.yaml"},
	{"copilot-cli-1.json", "copilot-cli", ".copilot/mcp-config.json"},
	{"crush-1.json", "crush", ".config/crush/crush.json"},
	{"cursor-1.json", "cursor", ".cursor/mcp.json"},
	{"cursor-3-servers-root.json", "cursor", ".cursor/mcp.json"},
	{"factory-1.json", "factory", ".factory/mcp.json"},
	{"factory-2.json", "factory", ".factory/mcp.json"},
	{"gemini-1.json", "gemini", ".gemini/settings.json"},
	{"goose-1.yaml", "goose", ".config/goose/config.yaml"},
	{"goose-2.yaml", "goose", ".config/goose/config.yaml"},
	{"jetbrains-copilot-1.json", "copilot-jetbrains", ".config/github-copilot/intellij/mcp.json"},
	{"junie-1.json", "junie", ".junie/mcp/mcp.json"},
	{"kilo-1.jsonc", "kilo", ".config/kilo/kilo.jsonc"},
	{"kilo-2-old.json", "kilo", ".config/kilo/kilo.json"},
	{"kiro-1.json", "kiro", ".kiro/settings/mcp.json"},
	{"kiro-2-agent.json", "kiro", ".kiro/agents/reviewer.json"},
	{"lmstudio-1.json", "lm-studio", ".lmstudio/mcp.json"},
	{"opencode-1.jsonc", "opencode", ".config/opencode/opencode.jsonc"},
	{"qwen-1.json", "qwen", ".qwen/settings.json"},
	{"roo-1.json", "roo", ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
	{"trae-1.json", "trae", ".config/Trae/User/mcp.json"},
	{"vscode-1.json", "vscode", ".config/Code/User/mcp.json"},
	{"vscode-2-user-settings.json", "vscode", ".config/Code/User/settings.json"},
	{"vscode-insiders-1.json", "vscode-insiders", ".config/Code - Insiders/User/mcp.json"},
	{"windsurf-1.json", "windsurf", ".codeium/windsurf/mcp_config.json"},
	{"zed-1.jsonc", "zed", ".config/zed/settings.json"},
}

// sampleText is a sample; they are those that clientconfig reads.
func sampleText(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../clientconfig/testdata/samples", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestEverySharedSampleIsHere keeps the table complete where the originals are.
func TestEverySharedSampleIsHere(t *testing.T) {
	originals, _ := filepath.Glob("../../../shared/configs/*-*.*")
	if len(originals) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("the shared configs are missing")
		}
		t.Skip("the shared configs are not beside this checkout")
	}
	have := map[string]bool{}
	for _, s := range samples {
		have[s.file] = true
	}
	for _, o := range originals {
		if !have[filepath.Base(o)] {
			t.Errorf("%s is not in the table", filepath.Base(o))
		}
	}
}

// Every sample is adopted, with what is expected where it is expected, and
// released to the very bytes it had.
func TestEverySample(t *testing.T) {
	const own = "{\n  // mine\n  \"pinned\": [],\n}\n"
	for _, sample := range samples {
		t.Run(sample.file, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			text := sampleText(t, sample.file)
			m.write(sample.path, text)
			m.write(".config/toolsd/config.json", own)
			p, err := m.s.Adopt(sample.slug)
			if err == nil {
				err = m.s.Apply(p)
			}
			var out bytes.Buffer
			if err != nil {
				fmt.Fprintf(&out, "error: %v\n", err)
				p = &Plan{}
			}
			for _, f := range p.Files {
				fmt.Fprintf(&out, "%s\nmoved %q\n", f.Path, f.Moved)
				for _, k := range f.Kept {
					fmt.Fprintf(&out, "stays %s: %s\n", k.Name, k.Reason)
				}
				out.WriteString(f.Diff)
			}
			got := strings.ReplaceAll(out.String(), m.home, "~")
			golden := filepath.Join("testdata/golden", sample.file+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, rerr := os.ReadFile(golden)
			if rerr != nil {
				t.Fatal(rerr)
			}
			equal(t, "run go test -update when this is what you want", string(want), got)
			if err != nil {
				equal(t, "the file", text, m.text(sample.path))
				equal(t, "config.json", own, m.config())
				return
			}
			if p.Status == Nothing {
				equal(t, "the file", text, m.text(sample.path))
				equal(t, "config.json", own, m.config())
				return
			}
			m.checkMoved(sample.slug, sample.path, text)
			if again := m.adopt(sample.slug); again.Status != Nothing {
				t.Errorf("adopting it again is %s, not nothing: %+v", again.Status, again.Client)
			}
			m.release(sample.slug)
			equal(t, "the file after the release", text, m.text(sample.path))
			equal(t, "config.json after the release", own, m.config())
			if again := m.release(sample.slug); again.Status != Nothing {
				t.Errorf("releasing it again is %s, not nothing", again.Status)
			}
		})
	}
}

// checkMoved compares a client's file and config.json with what was in the file
// before: no server is lost, changed or in both places, and nothing else changed.
func (m *machine) checkMoved(slug, path, before string) {
	m.t.Helper()
	loc := clientconfig.Location{}
	for _, l := range clientconfig.UserFiles(m.s.Env) {
		if ok, _ := filepath.Match(l.Path, m.path(path)); ok {
			loc = l.At(m.path(path))
		}
	}
	old, err := servers(loc, []byte(before))
	if err != nil {
		m.t.Fatal(err)
	}
	now, err := servers(loc, []byte(m.text(path)))
	if err != nil {
		m.t.Fatal(err)
	}
	config := m.configServers()
	var moved []string
	for _, e := range old {
		if clientconfig.IsSelf(e) || e.Source.Root != "" {
			continue
		}
		at := find(now, e.Name)
		if at >= 0 && identical(now[at], e) {
			if _, both := config[e.Name]; both {
				m.t.Errorf("%s is in both places", e.Name)
			}
			continue
		}
		moved = append(moved, e.Name)
		c, ok := config[e.Name]
		if !ok {
			m.t.Errorf("%s is lost", e.Name)
			continue
		}
		if c.Origin != slug {
			m.t.Errorf("%s has the origin %q", e.Name, c.Origin)
		}
		// The same server, for an environment in which it works.
		x := clientconfig.Expansion{Getenv: func(n string) string { return "/v/" + n }, Home: m.home, ReadFile: os.ReadFile}
		a, b := clientconfig.Expand(e, x), clientconfig.Expand(c, x)
		if !clientconfig.Equal(a, b) || a.Problem != b.Problem || !slices.Equal(a.Include, b.Include) || !slices.Equal(a.Exclude, b.Exclude) {
			m.t.Errorf("%s is another server now: %+v, %+v", e.Name, a, b)
		}
	}
	// Without what moved and without toolsd the files are the same.
	bare := func(text string, names ...string) string {
		out, err := clientconfig.ReplaceServers(loc, []byte(text), names, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		return strings.Join(strings.Fields(strings.NewReplacer("{}", "{ }", "[]", "[ ]").Replace(string(out))), " ")
	}
	shim := now[slices.IndexFunc(now, clientconfig.IsSelf)]
	if find(old, shim.Name) < 0 {
		text := strings.Replace(m.text(path), `, "toolsd"]`, "]", 1) // Gemini's list
		if was, is := bare(before, moved...), bare(text, shim.Name); was != is && !strings.Contains(is, strings.TrimSuffix(was, " }")) {
			m.t.Errorf("something else changed:\n%s\n%s", was, is)
		}
	}
}

func TestNames(t *testing.T) {
	m := newMachine(t)
	m.write(".config/toolsd/config.json", `{"mcpServers": {
  "same": {"command": "a", "env": {"T": "${T}"}},
  "filtered": {"command": "f"},
  "other": {"command": "b"},
  "third": {"command": "c"}, "third-cursor": {"command": "cc"},
  "bad": {"command": "x", "args": true}
}}`)
	before := m.config()
	m.write(".cursor/mcp.json", `{"mcpServers": {
  "same": {"command": "a", "env": {"T": "${env:T}"}},
  "filtered": {"command": "f", "disabledTools": ["rm"]},
  "other": {"command": "different"},
  "third": {"command": "different"},
  "bad": {"command": "y"}
}}`)
	text := m.text(".cursor/mcp.json")
	p := m.adopt("cursor")
	want := map[string]string{"other": "other-cursor", "third": "third-cursor-2", "bad": "bad-cursor", "filtered": "filtered-cursor"}
	if diff := cmp.Diff(want, p.Files[0].As); diff != "" {
		t.Error(diff)
	}
	config := m.configServers()
	if config["other-cursor"].Command != "different" || config["third-cursor-2"].Command != "different" || config["bad-cursor"].Command != "y" || config["same"].Origin != "" {
		t.Errorf("%+v", config)
	}
	m.release("cursor")
	equal(t, "config.json", before, m.config())
	equal(t, "the file", text, m.text(".cursor/mcp.json"))
}

// A server that two clients brought leaves config.json with the last of them.
func TestTwoClientsRestOnOneServer(t *testing.T) {
	for _, order := range [][]string{{"cursor", "kiro"}, {"kiro", "cursor"}} {
		m := newMachine(t)
		files := map[string]string{"cursor": ".cursor/mcp.json", "kiro": ".kiro/settings/mcp.json"}
		const text = `{"mcpServers": {"docs": {"command": "docs"}}}`
		for _, f := range files {
			m.write(f, text)
		}
		m.adopt("cursor")
		m.adopt("kiro")
		if n := len(m.configServers()); n != 1 {
			t.Fatalf("%d servers", n)
		}
		p := m.release(order[0])
		if len(m.configServers()) != 1 || !strings.Contains(fmt.Sprint(p.Files), "rests on it") {
			t.Errorf("docs left although another client rests on it: %s", m.config())
		}
		m.release(order[1])
		if data, err := os.ReadFile(m.path(".config/toolsd/config.json")); err == nil && strings.Contains(string(data), "docs") {
			t.Errorf("docs is left: %s", data)
		}
		for _, f := range files {
			equal(t, f, text, m.text(f))
		}
	}
}

func TestWhatStays(t *testing.T) {
	m := newMachine(t)
	m.write(".claude.json", `{"mcpServers": {
  "fine": {"command": "x"},
  "off-somewhere": {"command": "y"},
  "of-project": {"command": "${CLAUDE_PROJECT_DIR}/x"},
  "broken": {"args": ["z"]}
}, "projects": {"/w": {"mcpServers": {"own": {"command": "o"}}, "disabledMcpServers": ["off-somewhere"]}}}`)
	p := m.adopt("claude-code")
	reasons := map[string]string{}
	for _, k := range p.Files[0].Kept {
		reasons[k.Name] = k.Reason
	}
	for name, part := range map[string]string{
		"off-somewhere": "switched off in the project /w", "of-project": "depends on the project",
		"own": "the project /w alone", "broken": "neither",
	} {
		if !strings.Contains(reasons[name], part) {
			t.Errorf("%s: %q does not say %q", name, reasons[name], part)
		}
		delete(reasons, name)
	}
	if len(reasons) > 0 || !slices.Equal(p.Files[0].Moved, []string{"fine"}) {
		t.Errorf("also %v; moved %v", reasons, p.Files[0].Moved)
	}
}

// A value that is taken from a file beside the client's own is taken from there
// also afterwards.
func TestFilesBesideTheClientsOwn(t *testing.T) {
	m := newMachine(t)
	m.write(".config/opencode/token", "s3cret-token")
	m.write(".config/opencode/opencode.json", `{"mcp": {"r": {"type": "remote", "url": "https://r.example", "headers": {"A": "Bearer {file:./token}", "B": "{file:~/x}"}}}}`)
	m.adopt("opencode")
	e := m.configServers()["r"]
	got := clientconfig.Expand(e, clientconfig.Expansion{Home: m.home, ReadFile: os.ReadFile})
	if got.Headers["A"] != "Bearer s3cret-token" {
		t.Errorf("%+v", got)
	}
	if e.Headers["B"] != "{file:~/x}" {
		t.Errorf("%+v", e)
	}
}

func TestRefusals(t *testing.T) {
	m := newMachine(t)
	_, err := m.s.Adopt("cursor")
	if missing, ok := errors.AsType[*MissingError](err); !ok || len(missing.Paths) != 1 || !strings.HasSuffix(missing.Paths[0], ".cursor/mcp.json") {
		t.Errorf("%v", err)
	}
	if _, err := m.s.Adopt("toolsd"); err == nil {
		t.Error("toolsd adopted itself")
	}

	const good, bad = `{"mcp": {"a": {"type": "local", "command": ["x"]}}}`, "{\n  \"mcp\": {{\n"
	m.write(".config/opencode/opencode.json", good)
	m.write(".config/opencode/opencode.jsonc", bad)
	if _, err = m.s.Adopt("opencode"); err == nil || !strings.Contains(err.Error(), "line 2, column 11") {
		t.Errorf("%v", err)
	}
	m.write(".cursor/mcp.json", `{"mcpServers": {"a": {"command": "x"}}}`)
	m.write(".config/toolsd/config.json", `{"mcpServers": [}`)
	if _, err = m.s.Adopt("cursor"); err == nil || !strings.Contains(err.Error(), "config.json") || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v", err)
	}
	m.write(".config/toolsd/config.json", `{"clients": {"toolsd": false}}`)
	if _, err = m.s.Adopt("cursor"); err == nil || !strings.Contains(err.Error(), "clients.toolsd") {
		t.Errorf("%v", err)
	}
	m.write(".config/toolsd/config.json", `{}`)
	m.write("managed.json", `{"locked": ["mcpServers"]}`)
	m.s.Managed = m.path("managed.json")
	if _, err = m.s.Adopt("cursor"); err == nil || !strings.Contains(err.Error(), "locks mcpServers") {
		t.Errorf("%v", err)
	}
	m.write("managed.json", `{"locked": ["mcpServers.a"], "mcpServers": {"a": {"command": "theirs"}}}`)
	if p := m.adopt("cursor"); p.Files[0].As["a"] != "a-cursor" {
		t.Errorf("%+v", p.Client)
	}
}

// Only the first file of a client gets toolsd when it has no servers.
func TestNoServersYet(t *testing.T) {
	m := newMachine(t)
	m.write(".config/Code/User/mcp.json", "")
	m.write(".config/Code/User/settings.json", "{\n  \"editor.fontSize\": 13\n}\n")
	p := m.adopt("vscode")
	if len(p.Files) != 1 || p.Status != Adopted || !strings.Contains(m.text(".config/Code/User/mcp.json"), "toolsd") {
		t.Errorf("%+v", p.Client)
	}
	m.none(".config/toolsd/config.json")
	m.release("vscode")
	equal(t, "the file", "", m.text(".config/Code/User/mcp.json"))
}

func TestDryRun(t *testing.T) {
	m := newMachine(t)
	m.write(".cursor/mcp.json", `{"mcpServers": {"docs": {"command": "a"}}}`)
	m.write(".kiro/settings/mcp.json", `{"mcpServers": {"docs": {"command": "b"}}}`)
	m.s.DryRun = true
	before := tree(t, m.home)
	m.adopt("cursor")
	p := m.adopt("kiro")
	if p.Status != WouldAdopt || p.Files[0].As["docs"] != "docs-kiro" {
		t.Errorf("%+v", p.Client)
	}
	equal(t, "the files", before, tree(t, m.home))
}

// tree is every file below dir with its content.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&out, "%s %s\n", info.Mode(), rel)
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out.Write(data)
			out.WriteByte('\n')
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBackupHoldsWhatWasThere(t *testing.T) {
	m := newMachine(t)
	const text = `{"mcpServers": {"a": {"command": "x", "env": {"K": "value"}}}}`
	m.write(".cursor/mcp.json", text)
	m.s.Now = func() time.Time { return time.Date(2026, 11, 3, 10, 11, 12, 0, time.UTC) }
	p := m.adopt("cursor")
	data, err := os.ReadFile(p.Files[0].Backup)
	if err != nil || string(data) != text {
		t.Errorf("%v %s", err, data)
	}
	dir := filepath.Dir(p.Files[0].Backup)
	if filepath.Base(dir) != "20261103T101112.000000000Z" {
		t.Error(dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info.Mode(), err)
		}
	}
	// What was damaged is not restored.
	if err := os.WriteFile(p.Files[0].Backup, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.s.Release("cursor"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

// A directory's name may look like a pattern; only a file's name is one.
func TestAgentsBelowADirectoryWithBrackets(t *testing.T) {
	m := machineIn(t, filepath.Join(t.TempDir(), "mira [work]"))
	m.write(".kiro/agents/reviewer.json", `{"mcpServers": {"docs": {"command": "b"}}}`)
	m.write(".kiro/agents/notes.txt", "no agent")
	p := m.adopt("kiro")
	if len(p.Files) == 0 || p.Files[0].Path != m.path(".kiro/agents/reviewer.json") || !slices.Equal(p.Files[0].Moved, []string{"docs"}) {
		t.Errorf("%+v", p.Client)
	}
}
