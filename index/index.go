package index

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

// Options say where the index lives and what it needs from its owner.
type Options struct {
	// Path of the bbolt file; empty keeps the index in memory only.
	Path string
	// Check examines the file in a child process, since a damaged bbolt file can
	// take down the process that reads it. It runs VerifyFile there.
	Check func(ctx context.Context, path string) error
	// Expose gives a tool its exposed name.
	Expose func(tool.ID) string
	Log    *slog.Logger

	maxFile int // bytes; tests make it small
}

// Listing is what one server listed.
type Listing struct {
	Key          string // watcher.Server.Key
	Server       string // the name that callers see; equals Server of every tool
	Instructions string // the server's own, cleaned
	Tools        []*tool.Tool
	Listed       time.Time
	// Was are definitions that the owner of the index wants to keep beside the
	// present ones, by the tool's name: what people saw of it before it changed.
	Was map[string]json.RawMessage
}

// Config is what the user says about searching.
type Config struct {
	Categories []CategoryConfig // sorted by name
	Synonyms   [][]string
}

// CategoryConfig is a configured category. Tools are globs over tool ids.
type CategoryConfig struct {
	Name, Description string
	Tools             []string
}

// View says which tools a caller sees. It is asked at every read.
type View func(key string, t *tool.Tool) bool

// Query is one search.
type Query struct {
	Text      string
	Max       int    // 0: DefaultMax
	Server    string // only this server
	Category  string // only this category
	Threshold float64
	NoCut     bool // without the relative cut
	Explain   bool
	View      View
}

// Result is the answer to a Query, best first.
type Result struct {
	Matches    []Match
	Confidence float64   // 0..1, of the best match
	Rewrites   []Rewrite // words of the query that were read as others
	Near       []string  // when nothing matched: the nearest categories
	DidYouMean []string  // when nothing matched: words of the vocabulary
}

// Rewrite says how a word of the query was understood.
type Rewrite struct {
	Word string   `json:"word"`
	As   []string `json:"as"`
	Why  string   `json:"why"` // typo, prefix, split
}

// Match is one found tool.
type Match struct {
	Entry
	Score      float64
	Confidence float64
	Matched    []Evidence // with Query.Explain
}

// Evidence says which word of the query matched where, and for how much.
type Evidence struct {
	Word   string  `json:"word"`
	Term   string  `json:"term"`
	Field  string  `json:"field"`
	How    string  `json:"how"` // stem, synonym, joined, typo, prefix, split; name, coverage, clause, server
	Weight float64 `json:"weight"`
	Score  float64 `json:"score"`
}

// Entry is a tool in its place.
type Entry struct {
	Key        string
	Tool       *tool.Tool
	Category   string   // the first of Categories
	Categories []string // names
}

// Category is a group of tools as a caller sees it.
type Category struct {
	Name        string
	Server      string // empty where a configured one spans several
	Description string
	Tools       []Entry
}

// Reader is what an immutable Snapshot answers. It is here as the list of what
// the daemon uses; Snapshot is the only implementation.
type Reader interface {
	Search(Query) Result
	// Find resolves an id, server.tool, server/tool, an exposed name or a bare
	// tool name: none, one, or the candidates. Case is ignored, same bytes win.
	// The entries are without their categories, which Categorized adds.
	Find(ref string, view View) []Entry
	Categorized(e Entry, view View) Entry
	// Suggest returns ids that look like ref, best first, at most max.
	Suggest(ref string, max int, view View) []string
	All(view View) iter.Seq[Entry] // sorted by server, then name
	Categories(view View) []Category
	Listing(key string) (Listing, bool)
	Keys() []string
}
