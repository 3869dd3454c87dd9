package settings

import "strings"

// slugs are the clients that "clients" may switch off.
func slugs() []string {
	return strings.Fields(`toolsd claude-code claude-desktop cursor vscode vscode-insiders copilot-cli
		copilot-jetbrains kiro amazon-q windsurf codex gemini qwen opencode zed cline roo kilo continue
		goose lm-studio junie amp crush antigravity trae factory`)
}
