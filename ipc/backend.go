package ipc

import (
	"context"
	"encoding/json"

	"github.com/toolsd/toolsd/index/tool"
)

// Backend is the one API of toolsd. Errors that a caller can act on are *Error.
type Backend interface {
	Status(context.Context, StatusRequest) (*Status, error)
	Search(context.Context, SearchRequest) (*SearchResult, error)
	Tools(context.Context, ToolsRequest) (*ToolList, error)
	Categories(context.Context, CategoriesRequest) (*CategoryList, error)
	Activate(context.Context, ActivateRequest) (*Activation, error)
	// Call returns the server's CallToolResult byte for byte. A JSON-RPC error of
	// the server is an *Error with RPC set.
	Call(context.Context, CallRequest) (json.RawMessage, error)
	Why(context.Context, WhyRequest) (*Why, error)
	Trust(context.Context, TrustRequest) (*TrustList, error)
	Restart(context.Context, ServerRequest) (*ServerInfo, error)
	Log(context.Context, ServerRequest) (*ServerLog, error)
	// Attach begins a session. It lives until ctx ends or Close is called;
	// events arrive on goroutines of the Backend and must be handled quickly.
	Attach(ctx context.Context, r AttachRequest, events Events) (Session, error)
	// Stop asks the daemon to end; it answers before it does.
	Stop(context.Context) (*DaemonInfo, error)
}

// Session is one attached agent, as the daemon sees it. The daemon alone
// decides what may run: it knows which definitions this session has seen.
type Session interface {
	Hello() Hello
	// Search finds tools and activates them, or with ToolID shows that one.
	Search(context.Context, SearchRequest) (*SearchResult, error)
	// Call runs a tool if this session has seen its present definition.
	Call(context.Context, SessionCall) (*CallOutcome, error)
	// Begin is Call for who does not wait: done gets the outcome, once, maybe
	// before Begin returns, on a goroutine that it must not hold up.
	Begin(ctx context.Context, c SessionCall, done func(*CallOutcome, error))
	// Saw tells which definitions the agent has been shown. listed says that
	// they are the whole of what its client listed last.
	Saw(ctx context.Context, seen map[tool.ID]tool.Hash, listed bool) error
	// Done is closed when the session is over, be it that the daemon went away.
	Done() <-chan struct{}
	// Bye reports, after Done, whether the daemon ended because it was told to.
	// Nobody should start another one then without need.
	Bye() bool
	Close() error
}

// Await begins something and waits for what it is done with.
func Await[A any](begin func(done func(*A, error))) (*A, error) {
	type answer struct {
		value *A
		err   error
	}
	come := make(chan answer, 1)
	begin(func(value *A, err error) { come <- answer{value, err} })
	a := <-come
	return a.value, a.err
}

// Events are what the daemon tells a session unasked. A nil one is not wanted.
type Events struct {
	// List is the complete list of this session's tools, sent when any byte of
	// it changed, and always before the answer that made it change.
	List func([]Listed)
}

// AttachRequest describes the agent. Seen, Active and Listed are what a session
// that lost its daemon hands over to the next one.
type AttachRequest struct {
	Client  string                `json:"client"`            // clientInfo.name
	Version string                `json:"version,omitempty"` // clientInfo.version
	CWD     string                `json:"cwd"`
	Mode    Mode                  `json:"mode,omitempty"` // auto when empty; a session that re-attaches names the one it had
	Seen    map[tool.ID]tool.Hash `json:"seen,omitempty"`
	Active  []tool.ID             `json:"active,omitempty"`
	Listed  []tool.ID             `json:"listed,omitempty"`
	// Threshold is that of SearchRequest, for all searches of the session.
	Threshold *float64 `json:"threshold,omitempty"`
}

// Mode says how a session's tools reach its agent.
type Mode string

const (
	Auto   Mode = "auto"   // decided by the thresholds of toolSearch
	Direct Mode = "direct" // all visible tools are listed
	Search Mode = "search" // only pinned and activated ones are
)

// Hello is the daemon's answer to Attach.
type Hello struct {
	Session string        `json:"session"`
	Mode    Mode          `json:"mode"` // Direct or Search
	Daemon  DaemonInfo    `json:"daemon"`
	Servers []ServerBrief `json:"servers"` // for the instructions, sorted by name
	List    []Listed      `json:"list"`
}

// ServerBrief is a visible server in one line.
type ServerBrief struct {
	Name  string `json:"name"`
	Tools int    `json:"tools"`
	About string `json:"about"` // what it is for: its own words, or its categories
}

// Listed is a tool as it stands in an agent's tools/list.
type Listed struct {
	ID         tool.ID         `json:"tool_id"`
	Name       string          `json:"name"` // exposed
	Hash       tool.Hash       `json:"hash"`
	Tokens     int             `json:"tokens"`
	ReadOnly   bool            `json:"read_only,omitempty"`
	Definition json.RawMessage `json:"definition"` // under the exposed name
}

// SessionCall is a call by an agent.
type SessionCall struct {
	Tool      string          `json:"tool"` // exposed name or tool id
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Meta      json.RawMessage `json:"meta,omitempty"`     // _meta without the progress token
	ViaCall   bool            `json:"via_call,omitempty"` // by the fixed tool tool_call, not by its own name
	// Progress is called with the params of each notifications/progress, the
	// progressToken in them being the server's.
	Progress func(json.RawMessage) `json:"-"`
}

// CallOutcome is the result of a call that ran, or why it did not run.
type CallOutcome struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Refused *Refusal        `json:"refused,omitempty"`
}

// Refusal says why a tool was not run. Its definition goes to the agent with it,
// and counts as seen when the session is told so (Saw).
type Refusal struct {
	Why      RefusalReason `json:"why"`
	Problems []string      `json:"problems,omitempty"` // of the arguments
	Tool     Listed        `json:"tool"`
}

// RefusalReason is why a tool was not run.
type RefusalReason string

const (
	NotSeen      RefusalReason = "not_seen"      // its definition was never shown to this session
	Changed      RefusalReason = "changed"       // it was, but it has changed since
	BadArguments RefusalReason = "bad_arguments" // they do not fit the input schema
	CallByName   RefusalReason = "call_by_name"  // the client lists it, so its own rules must apply
)
