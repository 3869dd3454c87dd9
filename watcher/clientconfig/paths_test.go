package clientconfig

import (
	"slices"
	"strings"
	"testing"
)

func pathsOf(all []Location, slug string) []string {
	var paths []string
	for _, l := range all {
		if l.Client == slug {
			paths = append(paths, l.Path)
		}
	}
	return paths
}

func TestPaths(t *testing.T) {
	env := func(goos, home string, vars ...string) Env {
		m := map[string]string{}
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			m[name] = value
		}
		return Env{GOOS: goos, Home: home, Getenv: func(n string) string { return m[n] }}
	}
	lin := env("linux", "/home/mira")
	mac := env("darwin", "/Users/mira")
	win := env("windows", `C:\Users\mira`, `APPDATA=C:\Users\mira\AppData\Roaming`, `LOCALAPPDATA=D:\Local`, `ProgramFiles=C:\Program Files`, `ProgramData=C:\ProgramData`)
	rows := []struct {
		env  Env
		slug string
		want string // each must be there
	}{
		{lin, "toolsd", "/home/mira/.config/toolsd/config.json /etc/toolsd/config.json"},
		{env("linux", "/home/mira", "TOOLSD_DIR=/t", "XDG_CONFIG_HOME=/x"), "toolsd", "/t/config.json"},
		{env("linux", "/home/mira", "XDG_CONFIG_HOME=/x"), "toolsd", "/x/toolsd/config.json"},
		{mac, "toolsd", "/Users/mira/Library/Application+Support/toolsd/config.json /Library/Application+Support/toolsd/config.json"},
		{win, "toolsd", `C:\Users\mira\AppData\Roaming\toolsd\config.json C:\ProgramData\toolsd\config.json`},
		{lin, "claude-code", "/home/mira/.claude.json /etc/claude-code/managed-mcp.json"},
		{env("linux", "/home/mira", "CLAUDE_CONFIG_DIR=/c/"), "claude-code", "/c/.claude.json"},
		{env("linux", "/home/mira", "CLAUDE_CONFIG_DIR=rel"), "claude-code", "/home/mira/.claude.json"},
		{mac, "claude-code", "/Library/Application+Support/ClaudeCode/managed-mcp.json"},
		{win, "claude-code", `C:\Users\mira\.claude.json C:\Program+Files\ClaudeCode\managed-mcp.json`},
		{lin, "claude-desktop", "/home/mira/.config/Claude/claude_desktop_config.json"},
		{mac, "claude-desktop", "/Users/mira/Library/Application+Support/Claude/claude_desktop_config.json"},
		{win, "claude-desktop", `C:\Users\mira\AppData\Roaming\Claude\claude_desktop_config.json`},
		{lin, "cursor", "/home/mira/.cursor/mcp.json"},
		{win, "cursor", `C:\Users\mira\.cursor\mcp.json`},
		{lin, "vscode", "/home/mira/.config/Code/User/mcp.json /home/mira/.config/Code/User/settings.json"},
		{mac, "vscode", "/Users/mira/Library/Application+Support/Code/User/mcp.json"},
		{win, "vscode", `C:\Users\mira\AppData\Roaming\Code\User\mcp.json`},
		{lin, "vscode-insiders", "/home/mira/.config/Code+-+Insiders/User/mcp.json"},
		{lin, "copilot-cli", "/home/mira/.copilot/mcp-config.json"},
		{env("linux", "/home/mira", "COPILOT_HOME=/cp"), "copilot-cli", "/cp/mcp-config.json"},
		{lin, "copilot-jetbrains", "/home/mira/.config/github-copilot/intellij/mcp.json"},
		{mac, "copilot-jetbrains", "/Users/mira/.config/github-copilot/intellij/mcp.json"},
		{win, "copilot-jetbrains", `D:\Local\github-copilot\intellij\mcp.json`},
		{lin, "kiro", "/home/mira/.kiro/settings/mcp.json /home/mira/.kiro/agents/*.json"},
		{lin, "amazon-q", "/home/mira/.aws/amazonq/mcp.json"},
		{lin, "windsurf", "/home/mira/.codeium/windsurf/mcp_config.json"},
		{lin, "codex", "/home/mira/.codex/config.toml"},
		{env("linux", "/home/mira", "CODEX_HOME=/cx"), "codex", "/cx/config.toml"},
		{lin, "gemini", "/home/mira/.gemini/settings.json"},
		{lin, "qwen", "/home/mira/.qwen/settings.json"},
		{lin, "opencode", "/home/mira/.config/opencode/opencode.json /home/mira/.config/opencode/opencode.jsonc"},
		{win, "opencode", `C:\Users\mira\.config\opencode\opencode.json`},
		{lin, "zed", "/home/mira/.config/zed/settings.json"},
		{env("darwin", "/Users/mira", "XDG_CONFIG_HOME=/x"), "zed", "/Users/mira/.config/zed/settings.json"},
		{win, "zed", `C:\Users\mira\AppData\Roaming\Zed\settings.json`},
		{lin, "cline", "/home/mira/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json /home/mira/.cline/data/settings/cline_mcp_settings.json"},
		{mac, "roo", "/Users/mira/Library/Application+Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
		{lin, "kilo", "/home/mira/.config/kilo/kilo.json /home/mira/.config/kilo/kilo.jsonc"},
		{lin, "continue", "/home/mira/.continue/config.yaml"},
		{lin, "goose", "/home/mira/.config/goose/config.yaml"},
		{win, "goose", `C:\Users\mira\AppData\Roaming\Block\goose\config\config.yaml`},
		{lin, "lm-studio", "/home/mira/.lmstudio/mcp.json"},
		{lin, "junie", "/home/mira/.junie/mcp/mcp.json"},
		{lin, "amp", "/home/mira/.config/amp/settings.json"},
		{lin, "crush", "/home/mira/.config/crush/crush.json"},
		{lin, "antigravity", "/home/mira/.gemini/config/mcp_config.json /home/mira/.gemini/antigravity/mcp_config.json"},
		{lin, "trae", "/home/mira/.config/Trae/User/mcp.json"},
		{lin, "factory", "/home/mira/.factory/mcp.json"},
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.slug] = true
		got := pathsOf(UserFiles(r.env), r.slug)
		for _, want := range strings.Fields(r.want) {
			want = strings.ReplaceAll(want, "+", " ")
			if !slices.Contains(got, want) {
				t.Errorf("%s on %s: %q is not among %q", r.slug, r.env.GOOS, want, got)
			}
		}
	}
	for _, c := range Clients() {
		if !seen[c.Slug] {
			t.Errorf("%s has no row", c.Slug)
		}
	}
}

func TestProjectPaths(t *testing.T) {
	want := map[string]string{
		"claude-code": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json .vscode/settings.json", "copilot-cli": ".github/mcp.json",
		"kiro": ".kiro/settings/mcp.json", "amazon-q": ".amazonq/mcp.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json",
		"qwen": ".qwen/settings.json", "opencode": "opencode.json opencode.jsonc .opencode/opencode.json .opencode/opencode.jsonc", "zed": ".zed/settings.json",
		"roo": ".roo/mcp.json", "kilo": "kilo.json kilo.jsonc .kilocode/mcp.json", "continue": ".continue/mcpServers/*.yaml .continue/mcpServers/*.yml .continue/mcpServers/*.json",
		"junie": ".junie/mcp/mcp.json", "amp": ".amp/settings.json", "crush": ".crush.json crush.json", "trae": ".trae/mcp.json", "factory": ".factory/mcp.json",
	}
	all := ProjectFiles("/w/api", linux)
	got := map[string]string{}
	for _, l := range all {
		if l.Scope != Project || l.Root != "/w/api" || l.Glob != strings.Contains(l.Path, "*") {
			t.Errorf("%+v", l)
		}
		got[l.Client] = strings.TrimSpace(got[l.Client] + " " + strings.TrimPrefix(l.Path, "/w/api/"))
	}
	for slug := range got {
		if got[slug] != want[slug] {
			t.Errorf("%s: %q, want %q", slug, got[slug], want[slug])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d clients have project files, want %d", len(got), len(want))
	}
	if p := ProjectFiles(`C:\w\api`, Env{GOOS: "windows"})[0].Path; p != `C:\w\api\.mcp.json` {
		t.Errorf("on Windows: %q", p)
	}
}

func TestTableOrderAndSlugs(t *testing.T) {
	const slugs = "toolsd claude-code claude-desktop cursor vscode vscode-insiders copilot-cli copilot-jetbrains kiro amazon-q windsurf codex gemini qwen opencode zed cline roo kilo continue goose lm-studio junie amp crush antigravity trae factory"
	var got []string
	for _, c := range Clients() {
		got = append(got, c.Slug)
		if c.Name == "" || c.Pointer == "" || c.Unit == 0 || c.Dialect == "" || len(c.Files) == 0 {
			t.Errorf("%s is not complete", c.Slug)
		}
	}
	if strings.Join(got, " ") != slugs {
		t.Errorf("slugs %q", got)
	}
	seen := map[string]bool{}
	for _, l := range UserFiles(linux) {
		if seen[l.Path] {
			t.Errorf("%s is there twice", l.Path)
		}
		seen[l.Path] = true
		if l.Scope != User || l.Root != "" || l.Format == "" || l.Pointer == "" {
			t.Errorf("%+v", l)
		}
	}
	for _, l := range UserFiles(Env{GOOS: "linux"}) {
		if !strings.HasPrefix(l.Path, "/etc/") {
			t.Errorf("without a home there is %s", l.Path)
		}
	}
}
