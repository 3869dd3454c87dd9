package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/golden")

// linux is the environment in which the samples are looked up.
var linux = Env{GOOS: "linux", Home: "/home/mira"}

// locationOf finds the place with this end in the table, as the watcher would.
func locationOf(t testing.TB, slug, end string) Location {
	t.Helper()
	all := append(UserFiles(linux), ProjectFiles("/w/api", linux)...)
	for _, l := range all {
		pattern := filepath.Base(l.Path)
		matched := strings.HasSuffix(l.Path, end)
		if l.Glob {
			ok, _ := filepath.Match(pattern, filepath.Base(end))
			matched = ok && strings.HasSuffix(filepath.Dir(l.Path), filepath.Dir(end))
		}
		if l.Client == slug && matched {
			if l.Glob {
				return l.At(filepath.Join(filepath.Dir(l.Path), filepath.Base(end)))
			}
			return l
		}
	}
	t.Fatalf("the table has no place of %s that ends in %s", slug, end)
	return Location{}
}

// samples say whose file each sample is.
var samples = []struct{ file, slug, path string }{
	{"amazonq-1.json", "amazon-q", ".aws/amazonq/mcp.json"},
	{"amp-1.json", "amp", "/.config/amp/settings.json"},
	{"antigravity-1.json", "antigravity", "config/mcp_config.json"},
	{"bare-map-1.json", "copilot-cli", ".github/mcp.json"},
	{"claude-code-managed-1.json", "claude-code", "managed-mcp.json"},
	{"claude-code-project-1.json", "claude-code", "/.mcp.json"},
	{"claude-code-project-2-relpaths.json", "claude-code", "/.mcp.json"},
	{"claude-code-project-4-vscode-root.json", "claude-code", "/.mcp.json"},
	{"claude-code-project-5-bom-crlf.json", "claude-code", "/.mcp.json"},
	{"claude-code-project-6-truncated.json", "claude-code", "/.mcp.json"},
	{"claude-code-project-7-empty.json", "claude-code", "/.mcp.json"},
	{"claude-code-user-1.json", "claude-code", "/.claude.json"},
	{"claude-desktop-1.json", "claude-desktop", "claude_desktop_config.json"},
	{"cline-1.json", "cline", "cline_mcp_settings.json"},
	{"codex-1.toml", "codex", "/home/mira/.codex/config.toml"},
	{"codex-2-project.toml", "codex", "/w/api/.codex/config.toml"},
	{"continue-1.yaml", "continue", ".continue/config.yaml"},
	{"continue-2-block.yaml", "continue", "/w/api/.continue/mcpServers/blocks.yaml"},
	{"continue-3.json", "continue", "/w/api/.continue/mcpServers/one.json"},
	{"copilot-cli-1.json", "copilot-cli", ".copilot/mcp-config.json"},
	{"crush-1.json", "crush", "/.config/crush/crush.json"},
	{"cursor-1.json", "cursor", "/w/api/.cursor/mcp.json"},
	{"cursor-3-servers-root.json", "cursor", "/home/mira/.cursor/mcp.json"},
	{"factory-1.json", "factory", "/home/mira/.factory/mcp.json"},
	{"factory-2.json", "factory", "/w/api/.factory/mcp.json"},
	{"gemini-1.json", "gemini", "/home/mira/.gemini/settings.json"},
	{"goose-1.yaml", "goose", "/goose/config.yaml"},
	{"goose-2.yaml", "goose", "/goose/config.yaml"},
	{"jetbrains-copilot-1.json", "copilot-jetbrains", "/intellij/mcp.json"},
	{"junie-1.json", "junie", "/home/mira/.junie/mcp/mcp.json"},
	{"kilo-1.jsonc", "kilo", "kilo.jsonc"},
	{"kilo-2-old.json", "kilo", ".kilocode/mcp.json"},
	{"kiro-1.json", "kiro", "/home/mira/.kiro/settings/mcp.json"},
	{"kiro-2-agent.json", "kiro", "/home/mira/.kiro/agents/reviewer.json"},
	{"lmstudio-1.json", "lm-studio", ".lmstudio/mcp.json"},
	{"opencode-1.jsonc", "opencode", "/.config/opencode/opencode.jsonc"},
	{"qwen-1.json", "qwen", "/home/mira/.qwen/settings.json"},
	{"roo-1.json", "roo", ".roo/mcp.json"},
	{"toolsd-1.json", "toolsd", "toolsd/config.json"},
	{"trae-1.json", "trae", ".trae/mcp.json"},
	{"vscode-1.json", "vscode", "/w/api/.vscode/mcp.json"},
	{"vscode-2-user-settings.json", "vscode", "/Code/User/settings.json"},
	{"vscode-insiders-1.json", "vscode-insiders", "Code - Insiders/User/mcp.json"},
	{"windsurf-1.json", "windsurf", "windsurf/mcp_config.json"},
	{"zed-1.jsonc", "zed", "/.config/zed/settings.json"},
}

func TestEverySampleDecodesAsExpected(t *testing.T) {
	entries, err := os.ReadDir("testdata/samples")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(samples) {
		t.Errorf("testdata/samples holds %d files, the table names %d", len(entries), len(samples))
	}
	for _, s := range samples {
		t.Run(s.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata/samples", s.file))
			if err != nil {
				t.Fatal(err)
			}
			content, err := Read(locationOf(t, s.slug, s.path), data)
			got := render(t, content, err)
			golden := filepath.Join("testdata/golden", s.file+".txt")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("run go test -update when this is what you want (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSamplesAreUpToDate keeps the copies equal to their originals where those
// are at hand.
func TestSamplesAreUpToDate(t *testing.T) {
	originals, err := filepath.Glob("../../../shared/configs/*.*")
	if err != nil {
		t.Fatal(err)
	}
	if len(originals) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("the shared configs are missing")
		}
		t.Skip("the shared configs are not beside this checkout")
	}
	for _, o := range originals {
		if filepath.Base(o) == "README.md" {
			continue
		}
		want, err := os.ReadFile(o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("testdata/samples", filepath.Base(o)))
		if err != nil || !bytes.Equal(want, got) {
			t.Errorf("the sample %s is missing or out of date", filepath.Base(o))
		}
	}
}

func TestEveryClientHasASample(t *testing.T) {
	have := map[string]bool{}
	for _, s := range samples {
		have[s.slug] = true
	}
	for _, c := range Clients() {
		if !have[c.Slug] {
			t.Errorf("%s has no sample", c.Slug)
		}
	}
}

// render writes what was decoded, one thing a line, without what is empty.
func render(t testing.TB, c Content, err error) []byte {
	t.Helper()
	var b bytes.Buffer
	line := func(what string, v any) {
		fields := map[string]any{}
		rv := reflect.ValueOf(v)
		for i := range rv.NumField() {
			if f := rv.Field(i); !f.IsZero() {
				fields[rv.Type().Field(i).Name] = f.Interface()
			}
		}
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		b.WriteString(what + " ")
		if err := enc.Encode(fields); err != nil {
			t.Fatal(err)
		}
	}
	var syntax *SyntaxError
	switch {
	case errors.Is(err, ErrEmpty):
		b.WriteString("empty\n")
	case errors.As(err, &syntax):
		line("unusable", *syntax)
	case err != nil:
		t.Fatalf("an error of a kind that is not documented: %v", err)
	}
	for _, s := range c.Servers {
		line("server", s)
	}
	for _, p := range c.Problems {
		line("problem", p)
	}
	for _, r := range c.Rejected {
		line("rejected", r)
	}
	return b.Bytes()
}
