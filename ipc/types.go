package ipc

import (
	"encoding/json"
	"time"

	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// StatusRequest asks for what a caller in CWD can see.
type StatusRequest struct {
	CWD string `json:"cwd,omitempty"`
}

// Status is the daemon and its servers.
type Status struct {
	Daemon   DaemonInfo    `json:"daemon"`
	Servers  []ServerInfo  `json:"servers"`
	Totals   Totals        `json:"totals"`
	Sessions []SessionInfo `json:"sessions"`
	Problems []Problem     `json:"problems"`
}

// DaemonInfo is the daemon itself.
type DaemonInfo struct {
	Version  string    `json:"version"`
	Protocol Protocol  `json:"protocol"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Socket   string    `json:"socket"`
	Sessions int       `json:"sessions"`
	Memory   int64     `json:"memory,omitempty"`      // resident bytes of the daemon
	Path     string    `json:"path_origin,omitempty"` // where the PATH for servers came from
}

// ServerState is the state of a server.
type ServerState string

// The states of a server.
const (
	StateReady    ServerState = "ready"
	StateStarting ServerState = "starting"
	StateBackoff  ServerState = "backoff"
	StateFailed   ServerState = "failed"
	StateLazy     ServerState = "lazy"
	StatePending  ServerState = "pending" // needs trust
	StateDisabled ServerState = "disabled"
)

// ServerInfo is one server. Of a pending one only Name, State, Scope, Sources,
// Since, Problem and Hint are set.
type ServerInfo struct {
	Name      string      `json:"name"`
	State     ServerState `json:"state"`
	Scope     string      `json:"scope"`
	Transport string      `json:"transport"`
	Sources   []string    `json:"sources"` // files
	Tools     int         `json:"tools"`
	Tokens    int         `json:"tokens"`
	PID       int         `json:"pid"`
	Since     time.Time   `json:"since"`
	Problem   string      `json:"problem"`
	Hint      string      `json:"hint"`
	Memory    int64       `json:"memory,omitempty"` // resident bytes of its process
	Retry     *time.Time  `json:"retry,omitempty"`  // next try of a server in backoff
	Notes     []string    `json:"notes,omitempty"`  // oddities that did not stop it
	Instances int         `json:"instances,omitempty"`
}

// Totals count each visible tool once.
type Totals struct {
	Servers int `json:"servers"`
	Tools   int `json:"tools"`
	Tokens  int `json:"tokens"`
}

// SessionInfo is one attached agent.
type SessionInfo struct {
	ID      string    `json:"id"`
	Client  string    `json:"client"`
	Version string    `json:"version,omitempty"`
	CWD     string    `json:"cwd"`
	Mode    Mode      `json:"mode"`
	Active  int       `json:"active"`
	Tokens  int       `json:"tokens"` // of the active tools
	Since   time.Time `json:"since"`
}

// Problem is something wrong in a config file, or without a File with what the
// daemon keeps.
type Problem = clientconfig.Problem

// SearchRequest is a search. In a session CWD is the session's.
type SearchRequest struct {
	Query    string `json:"q"`
	Max      int    `json:"n,omitempty"` // 0: toolSearch.maxResults
	Server   string `json:"server,omitempty"`
	Category string `json:"category,omitempty"`
	CWD      string `json:"cwd,omitempty"`
	Explain  bool   `json:"explain,omitempty"`
	// Threshold is the toolSearch.matchingThreshold of the caller's environment,
	// which holds unless that setting is locked.
	Threshold *float64 `json:"threshold,omitempty"`
	// ToolID asks a session for one tool, by any of its names, instead of Query.
	ToolID string `json:"tool_id,omitempty"`
}

// SearchResult holds the matches, best first.
type SearchResult struct {
	Query      string          `json:"query"`
	Count      int             `json:"count"`
	Matches    []Match         `json:"matches"`
	Confidence float64         `json:"confidence"`
	Rewrites   []index.Rewrite `json:"rewrites,omitempty"`
	DidYouMean []string        `json:"did_you_mean,omitempty"`
	// Waiting names the visible servers that were never indexed and are starting.
	Waiting []string `json:"waiting,omitempty"`
	// Unread is the caller's directory when the config files of its project are
	// only now being read: a search waits for no file, but its caller may ask again.
	Unread string `json:"unread,omitempty"`
	// Servers are sentences about servers that the query names and that cannot
	// answer: they wait, are down, or start. They stand in Note, too.
	Servers []string `json:"servers,omitempty"`
	Note    string   `json:"note"`
}

// ToolState says how fresh a tool is.
type ToolState string

// The states of a tool.
const (
	ToolReady    ToolState = "ready"    // listed since the daemon started
	ToolStale    ToolState = "stale"    // from the index, not yet confirmed
	ToolStarting ToolState = "starting" // from the index, its server is starting
	ToolDown     ToolState = "down"
	ToolLazy     ToolState = "lazy" // its server starts with the first call
)

// ToolInfo is a tool in a list.
type ToolInfo struct {
	ToolID      string    `json:"tool_id"`
	Server      string    `json:"server"`
	Tool        string    `json:"tool"`
	Name        string    `json:"name"` // exposed
	Category    string    `json:"category"`
	Description string    `json:"description"`
	Tokens      int       `json:"tokens"`
	State       ToolState `json:"state"`
}

// Match is a found tool.
type Match struct {
	ToolInfo
	Score   float64          `json:"score"`
	Matched []index.Evidence `json:"matched,omitempty"`
	Listed  *Listed          `json:"listed,omitempty"` // in a session: the tool as activated
}

// ToolsRequest asks for all visible tools, or those of one server or category.
type ToolsRequest struct {
	Server   string `json:"server,omitempty"`
	Category string `json:"category,omitempty"`
	CWD      string `json:"cwd,omitempty"`
}

// Reach says how an agent gets at a tool in search mode.
type Reach string

// How a tool is reached.
const (
	Pinned   Reach = "pinned"   // always listed
	Active   Reach = "active"   // listed to at least one attached session
	Deferred Reach = "deferred" // found by a search
)

// ToolEntry is a tool with how it is reached.
type ToolEntry struct {
	ToolInfo
	Active  bool  `json:"active"` // pinned or active
	Reached Reach `json:"reached"`
}

// ToolList is the answer to ToolsRequest.
type ToolList struct {
	Tools   []ToolEntry   `json:"tools"`
	Servers []ServerTotal `json:"servers"`
	Totals  Totals        `json:"totals"`
	Context ContextWeight `json:"context"`
}

// ServerTotal is the weight of one server's definitions.
type ServerTotal struct {
	Name   string `json:"name"`
	Tools  int    `json:"tools"`
	Tokens int    `json:"tokens"`
}

// ContextWeight compares what all definitions would weigh in an agent's context
// with what toolsd's fixed tools weigh there. Each token figure is a quarter of
// the characters of the compact JSON of name, description and input schema.
type ContextWeight struct {
	AllTools   int  `json:"all_tools"`
	FixedTools int  `json:"fixed_tools"`
	Pinned     int  `json:"pinned"`
	Window     int  `json:"window"`
	Mode       Mode `json:"mode"` // what auto decides at this moment
}

// CategoriesRequest asks for the categories, or for one and its tools.
type CategoriesRequest struct {
	Name string `json:"name,omitempty"`
	CWD  string `json:"cwd,omitempty"`
}

// CategoryList is the answer to CategoriesRequest. Total counts distinct tools.
type CategoryList struct {
	Categories []CategoryInfo `json:"categories"`
	Total      int            `json:"total"`
}

// CategoryInfo is one category.
type CategoryInfo struct {
	Name        string     `json:"name"`
	Server      string     `json:"server"`
	Description string     `json:"description"`
	Tools       int        `json:"tools"`
	Members     []ToolInfo `json:"members,omitempty"` // when one was asked for by name
}

// ActivateRequest asks for definitions; in a session it makes the tools active.
type ActivateRequest struct {
	ToolIDs []string `json:"tool_ids"`
	Session string   `json:"session,omitempty"`
	CWD     string   `json:"cwd,omitempty"`
}

// Activation holds the definitions in the order they were asked for.
type Activation struct {
	Tools []ActivatedTool `json:"tools"`
}

// ActivatedTool is a definition as the server sent it, cleaned.
type ActivatedTool struct {
	ToolID     string          `json:"tool_id"`
	Definition json.RawMessage `json:"definition"`
}

// CallRequest is a call without an attached session, or on behalf of one.
type CallRequest struct {
	ToolID    string          `json:"tool_id"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	TimeoutMS int             `json:"timeout_ms,omitempty"`
	Session   string          `json:"session,omitempty"`
	CWD       string          `json:"cwd,omitempty"`
	// Progress receives the params of progress notifications.
	Progress func(json.RawMessage) `json:"-"`
}

// WhyRequest asks about a tool or a server.
type WhyRequest struct {
	Subject string `json:"subject"`
	CWD     string `json:"cwd,omitempty"`
}

// Why explains the state of a tool or a server.
type Why struct {
	Subject string   `json:"subject"`
	Found   bool     `json:"found"`
	State   string   `json:"state"`
	Reasons []string `json:"reasons"`
	Hint    string   `json:"hint"`
}

// ServerRequest names a server, and for its log how many lines are wanted.
type ServerRequest struct {
	Name  string `json:"name"`
	CWD   string `json:"cwd,omitempty"`
	Lines int    `json:"lines,omitempty"`
}

// ServerLog is the end of what a server wrote to stderr.
type ServerLog struct {
	Name  string   `json:"name"`
	File  string   `json:"file"`
	Lines []string `json:"lines"`
}

// TrustAction is what to do with a server's approval.
type TrustAction string

const (
	TrustShow    TrustAction = "list"
	TrustApprove TrustAction = "approve"
	TrustRevoke  TrustAction = "revoke"
)

// TrustRequest lists, approves or revokes. To approve, the fingerprint that the
// person was shown comes along, so that a change in between is not approved.
type TrustRequest struct {
	Action      TrustAction `json:"action,omitempty"`
	Name        string      `json:"name,omitempty"`        // a server, or server::tool for a held tool
	Fingerprint string      `json:"fingerprint,omitempty"` // of a tool its hash
	CWD         string      `json:"cwd,omitempty"`
	// Fingerprints approves several servers by their names, all or none, in place
	// of Name and Fingerprint: the answer to everything that waits.
	Fingerprints map[string]string `json:"fingerprints,omitempty"`
}

// TrustList shows servers to a person who decides about them.
type TrustList struct {
	Servers []TrustInfo `json:"servers"`
}

// TrustInfo is what a person must see before approving. Values of env and
// headers are never in it.
type TrustInfo struct {
	Name        string   `json:"name"`
	State       string   `json:"state"` // pending, approved, revoked, rejected (in the client whose file it is), auto
	Scope       string   `json:"scope"`
	Source      string   `json:"source"`
	Fingerprint string   `json:"fingerprint"`
	Binary      string   `json:"binary,omitempty"` // resolved
	Argv        []string `json:"argv,omitempty"`
	URL         string   `json:"url,omitempty"`
	Env         []string `json:"env,omitempty"` // names
	EnvFile     string   `json:"env_file,omitempty"`
	Headers     []string `json:"headers,omitempty"` // names
	CWD         string   `json:"cwd,omitempty"`
	Unusual     []string `json:"unusual,omitempty"`
	Changes     []string `json:"changes,omitempty"` // since the last approval
	Held        []string `json:"held,omitempty"`    // tools that wait
	// Flagged are tools, held or not, whose text has no place in a definition: the
	// tool's id, a space, and what its text does.
	Flagged []string `json:"flagged,omitempty"`
	// HeldTool is the held tool that was asked for by its id.
	HeldTool *HeldTool `json:"held_tool,omitempty"`
}

// HeldTool is what a person must see before agents may see it.
type HeldTool struct {
	ToolID     string          `json:"tool_id"`
	Hash       tool.Hash       `json:"hash"` // the Fingerprint of its approval
	Change     string          `json:"change"`
	Changes    []string        `json:"changes,omitempty"` // of a changed one, where known
	Definition json.RawMessage `json:"definition"`
}
