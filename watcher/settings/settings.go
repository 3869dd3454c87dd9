package settings

// Settings are the effective values of toolsd's own config.json, the managed
// file and the environment, without the servers.
type Settings struct {
	ToolSearch ToolSearch
	Pinned     []string            // tool ids, in the order agents see them
	Categories map[string]Category // by name
	Clients    map[string]bool     // slug → false: its files are not read
	Files      []string            // more files to read, in Claude Code's shape
	Synonyms   [][]string
	Trust      Trust
}

// ToolSearch follows Kiro CLI's settings of these names.
type ToolSearch struct {
	Enabled           bool    // default true
	MinPct            float64 // default 5
	MinTokens         int     // default 50000
	ContextWindow     int     // default 200000
	MaxResults        int     // default 5
	MatchingThreshold float64 // default 0
}

// Category is a configured one; Tools are globs over tool ids.
type Category struct {
	Description string   `json:"description"`
	Tools       []string `json:"tools"`
}

// Trust says how much is allowed without asking.
type Trust struct {
	UserScope string // "auto" (default) or "ask"
	Tools     string // "show" (default) or "hold"
}
