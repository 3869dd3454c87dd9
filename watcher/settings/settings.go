// Package settings turns toolsd's own config.json, a team's managed file and the
// environment into one set of effective values, each with its origin, and edits
// config.json without losing a comment.
//
// Nothing in these files is fatal: what cannot be used is a problem with its
// place, and the next lower layer's value holds; of the settings of trust, the one
// that forbids, since a misspelled "ask" must not allow. The servers of the two files are
// not read here but by clientconfig, like those of every other client. All
// functions are pure and safe for concurrent use.
package settings

import (
	"slices"
	"strings"
)

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
	Locked     []string // keys that the managed file decides alone; a group's name stands for all its keys
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

// Default returns the values that hold where no file says otherwise.
func Default() Settings {
	return Settings{
		// The numbers are Kiro CLI's, but for the threshold: scores of this index
		// are not comparable with its.
		ToolSearch: ToolSearch{Enabled: true, MinPct: 5, MinTokens: 50000, ContextWindow: 200000, MaxResults: 5},
		Trust:      Trust{UserScope: "auto", Tools: "show"},
	}
}

// forbid gives a setting of trust the value that forbids. It reports whether the
// key is one.
func (s *Settings) forbid(key string) bool {
	switch key {
	case "trust.userScope":
		s.Trust.UserScope = "ask"
	case "trust.tools":
		s.Trust.Tools = "hold"
	default:
		return false
	}
	return true
}

// Where a value comes from.
const (
	FromDefault     = "default"
	FromManaged     = "managed"
	FromUser        = "user"
	FromEnvironment = "environment"
)

// Value is one setting as toolsd settings shows it.
type Value struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
	Locked bool   `json:"locked"`
}

// IsLocked reports whether the managed file alone decides about a key: the key
// itself or the group that it belongs to is listed under "locked".
func (s Settings) IsLocked(key string) bool { return isLocked(s.Locked, key) }

func isLocked(locked []string, key string) bool {
	return slices.ContainsFunc(locked, func(l string) bool {
		return l == key || strings.HasPrefix(key, l+".")
	})
}
