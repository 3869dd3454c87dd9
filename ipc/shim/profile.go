package shim

import (
	"strings"
	"time"
)

// habit says whether a client lists tools again when it is told that they changed.
type habit int

const (
	unknown habit = iota
	relists       // at once, in the same turn
	ignores       // never
)

// profile is what is known of a client before it has done anything. What it
// really does counts for more: see view.
type profile struct {
	prefix string // of clientInfo.name, case ignored; the longest one wins
	habit  habit
	// toolPrefix stands before a tool's name in a client that announces new tools
	// without their definition, to be loaded by its own ToolSearch.
	toolPrefix string
	// settle is how long after its re-list an answer waits, until the client's
	// next request to its model can hold the new tools.
	settle time.Duration
	// strict says that one definition that is not as the protocol has it costs this
	// client the whole list: see listable.
	strict bool
}

// settle is what Gemini CLI needs, the slowest of those measured.
const settle = 100 * time.Millisecond

// profiles is measured where it says so, else taken from a client's source or
// its issues. A wrong row costs one second or some tokens once.
var profiles = []profile{
	{prefix: "", habit: unknown, settle: settle},
	{prefix: "claude-code", habit: relists, settle: settle, toolPrefix: "mcp__toolsd__", strict: true}, // measured
	{prefix: "gemini-cli-mcp-client", habit: relists, settle: settle},                                  // measured
	{prefix: "codex-mcp-client", habit: ignores, settle: settle, strict: true},                         // measured
	{prefix: "visual studio code", habit: relists, settle: settle},
	{prefix: "cline", habit: relists, settle: settle},
	{prefix: "crush", habit: relists, settle: settle},
	{prefix: "opencode", habit: relists, settle: settle},
	{prefix: "kiro-cli", habit: relists, settle: settle},
	{prefix: "q dev cli", habit: relists, settle: settle}, // Kiro CLI under its former name
	{prefix: "github-copilot", habit: relists, settle: settle},
	{prefix: "copilot", habit: relists, settle: settle},
	{prefix: "kiro", habit: ignores, settle: settle},
	{prefix: "roo", habit: ignores, settle: settle},
	{prefix: "kimi", habit: ignores, settle: settle},
	{prefix: "cursor", habit: unknown, settle: settle},
}

func profileOf(client string) profile {
	best := profiles[0]
	for _, p := range profiles {
		if len(client) >= len(p.prefix) && strings.EqualFold(client[:len(p.prefix)], p.prefix) && len(p.prefix) > len(best.prefix) {
			best = p
		}
	}
	return best
}
