package clientconfig

import (
	"slices"
	"time"
)

// Client is a program whose config files are read.
type Client struct {
	Slug  string // as in the clients setting, in name-<slug> and in adopt
	Name  string // as people call it
	Files []File

	// Pointer is where this client keeps its servers; Also are older or
	// additional places that need no remark. "" in Also is the whole file.
	Pointer string
	Also    []string
	// Unit is what a bare "timeout" counts in.
	Unit time.Duration
	// Dialect is how variables are written.
	Dialect Dialect
	// URL is the transport of an entry with a url and no type.
	URL Transport
}

// File is a place where a client keeps servers. Its paths are templates: a part
// in braces is resolved by Env (see bases), the file name may be a glob. For a
// project file they are relative to the project's root.
type File struct {
	Scope Scope
	// Linux, Darwin and Windows are the paths; Linux alone serves all three, and
	// "-" means that the client does not exist there.
	Linux, Darwin, Windows string

	Format  Format // "" is told by the file's extension
	Pointer string // "" is the client's
	// Settings says that the file holds much more than servers, so that a key like
	// "servers" or an object with a "command" is no sign of an MCP server.
	Settings bool
	// Managed says that an administrator wrote the file; its Scope is User, since
	// nothing in a project can write there.
	Managed bool
}

// Format is the syntax of a file.
type Format string

const (
	JSON Format = "json" // with comments and trailing commas, which every client's file is forgiven
	TOML Format = "toml"
	YAML Format = "yaml"
)

// Clients returns the table of all clients. Its order is the precedence for a
// clash of names within one scope.
func Clients() []Client { return slices.Clone(clients) }

// ClientOf returns the client with this slug.
func ClientOf(slug string) (Client, bool) {
	for _, c := range clients {
		if c.Slug == slug {
			return c, true
		}
	}
	return Client{}, false
}

func user(linux string, rest ...string) File { return file(User, linux, rest) }

// settings is a user file that holds the client's other settings too.
func settings(linux string, rest ...string) File {
	f := file(User, linux, rest)
	f.Settings = true
	return f
}

func project(path string) File { return File{Scope: Project, Linux: path} }

func projectSettings(path string) File { return File{Scope: Project, Linux: path, Settings: true} }

func managed(linux, darwin, windows string) File {
	return File{Scope: User, Linux: linux, Darwin: darwin, Windows: windows, Managed: true}
}

func file(scope Scope, linux string, rest []string) File {
	f := File{Scope: scope, Linux: linux}
	if len(rest) > 0 {
		f.Darwin = rest[0]
	}
	if len(rest) > 1 {
		f.Windows = rest[1]
	}
	return f
}

func at(pointer string, f File) File {
	f.Pointer = pointer
	return f
}

var clients = []Client{
	{
		Slug: "toolsd", Name: "toolsd", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{
			settings("{toolsd}/config.json"),
			{Scope: User, Linux: "/etc/toolsd/config.json", Darwin: "/Library/Application Support/toolsd/config.json",
				Windows: "{programdata}/toolsd/config.json", Managed: true, Settings: true},
		},
	},
	{
		// The per-project servers of its user file are under projects.<path>.
		Slug: "claude-code", Name: "Claude Code", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{
			settings("{claude}/.claude.json"),
			project(".mcp.json"),
			managed("/etc/claude-code/managed-mcp.json", "/Library/Application Support/ClaudeCode/managed-mcp.json",
				"{programfiles}/ClaudeCode/managed-mcp.json"),
		},
	},
	{
		Slug: "claude-desktop", Name: "Claude Desktop", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Literal,
		Files: []File{settings("{config}/Claude/claude_desktop_config.json")},
	},
	{
		Slug: "cursor", Name: "Cursor", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{user("{home}/.cursor/mcp.json"), project(".cursor/mcp.json")},
	},
	{
		Slug: "vscode", Name: "VS Code", Pointer: "servers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{
			user("{config}/Code/User/mcp.json"),
			at("mcp.servers", settings("{config}/Code/User/settings.json")),
			project(".vscode/mcp.json"),
			at("mcp.servers", projectSettings(".vscode/settings.json")),
		},
	},
	{
		// Its workspace files are those of VS Code.
		Slug: "vscode-insiders", Name: "VS Code Insiders", Pointer: "servers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{
			user("{config}/Code - Insiders/User/mcp.json"),
			at("mcp.servers", settings("{config}/Code - Insiders/User/settings.json")),
		},
	},
	{
		Slug: "copilot-cli", Name: "Copilot CLI", Pointer: "mcpServers", Also: []string{""}, Unit: time.Millisecond, Dialect: Braces,
		Files: []File{user("{copilot}/mcp-config.json"), project(".github/mcp.json")},
	},
	{
		Slug: "copilot-jetbrains", Name: "Copilot for JetBrains", Pointer: "servers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{user("{xdg}/github-copilot/intellij/mcp.json", "", "{localappdata}/github-copilot/intellij/mcp.json")},
	},
	{
		Slug: "kiro", Name: "Kiro", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{
			user("{home}/.kiro/settings/mcp.json"),
			settings("{home}/.kiro/agents/*.json"),
			project(".kiro/settings/mcp.json"),
		},
	},
	{
		Slug: "amazon-q", Name: "Amazon Q CLI", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{user("{home}/.aws/amazonq/mcp.json"), project(".amazonq/mcp.json")},
	},
	{
		Slug: "windsurf", Name: "Windsurf", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{user("{home}/.codeium/windsurf/mcp_config.json")},
	},
	{
		Slug: "codex", Name: "Codex", Pointer: "mcp_servers", Unit: time.Second, Dialect: Literal,
		Files: []File{settings("{codex}/config.toml"), projectSettings(".codex/config.toml")},
	},
	{
		Slug: "gemini", Name: "Gemini CLI", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Dollar, URL: SSE,
		Files: []File{settings("{home}/.gemini/settings.json"), projectSettings(".gemini/settings.json")},
	},
	{
		Slug: "qwen", Name: "Qwen Code", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Dollar, URL: SSE,
		Files: []File{settings("{home}/.qwen/settings.json"), projectSettings(".qwen/settings.json")},
	},
	{
		Slug: "opencode", Name: "opencode", Pointer: "mcp", Unit: time.Millisecond, Dialect: Curly,
		Files: []File{
			settings("{xdg}/opencode/opencode.json"), settings("{xdg}/opencode/opencode.jsonc"),
			projectSettings("opencode.json"), projectSettings("opencode.jsonc"),
			projectSettings(".opencode/opencode.json"), projectSettings(".opencode/opencode.jsonc"),
		},
	},
	{
		Slug: "zed", Name: "Zed", Pointer: "context_servers", Unit: time.Second, Dialect: Literal,
		Files: []File{
			settings("{xdg}/zed/settings.json", "{home}/.config/zed/settings.json", "{appdata}/Zed/settings.json"),
			projectSettings(".zed/settings.json"),
		},
	},
	{
		Slug: "cline", Name: "Cline", Pointer: "mcpServers", Unit: time.Second, Dialect: Literal,
		Files: []File{
			user("{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			user("{config}/Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			user("{home}/.cline/data/settings/cline_mcp_settings.json"),
		},
	},
	{
		Slug: "roo", Name: "Roo Code", Pointer: "mcpServers", Unit: time.Second, Dialect: Editor,
		Files: []File{
			user("{config}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
			user("{config}/Code - Insiders/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
			project(".roo/mcp.json"),
		},
	},
	{
		Slug: "kilo", Name: "Kilo Code", Pointer: "mcp", Also: []string{"mcp", "mcpServers"}, Unit: time.Millisecond, Dialect: Curly,
		Files: []File{
			settings("{xdg}/kilo/kilo.json"), settings("{xdg}/kilo/kilo.jsonc"),
			projectSettings("kilo.json"), projectSettings("kilo.jsonc"), at("mcpServers", project(".kilocode/mcp.json")),
		},
	},
	{
		Slug: "continue", Name: "Continue", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Secrets,
		Files: []File{
			settings("{home}/.continue/config.yaml"),
			projectSettings(".continue/mcpServers/*.yaml"), projectSettings(".continue/mcpServers/*.yml"),
			project(".continue/mcpServers/*.json"),
		},
	},
	{
		Slug: "goose", Name: "Goose", Pointer: "extensions", Unit: time.Second, Dialect: Literal,
		Files: []File{settings("{xdg}/goose/config.yaml", "", "{appdata}/Block/goose/config/config.yaml")},
	},
	{
		Slug: "lm-studio", Name: "LM Studio", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Literal,
		Files: []File{user("{home}/.lmstudio/mcp.json")},
	},
	{
		Slug: "junie", Name: "Junie", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{user("{home}/.junie/mcp/mcp.json"), project(".junie/mcp/mcp.json")},
	},
	{
		Slug: "amp", Name: "Amp", Pointer: "amp.mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{settings("{xdg}/amp/settings.json"), projectSettings(".amp/settings.json")},
	},
	{
		Slug: "crush", Name: "Crush", Pointer: "mcp", Unit: time.Second, Dialect: Shell,
		Files: []File{settings("{xdg}/crush/crush.json"), projectSettings(".crush.json"), projectSettings("crush.json")},
	},
	{
		Slug: "antigravity", Name: "Antigravity", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{user("{home}/.gemini/config/mcp_config.json"), user("{home}/.gemini/antigravity/mcp_config.json")},
	},
	{
		Slug: "trae", Name: "Trae", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Editor,
		Files: []File{user("{config}/Trae/User/mcp.json"), project(".trae/mcp.json")},
	},
	{
		Slug: "factory", Name: "Factory", Pointer: "mcpServers", Unit: time.Millisecond, Dialect: Braces,
		Files: []File{user("{home}/.factory/mcp.json"), project(".factory/mcp.json")},
	},
}
