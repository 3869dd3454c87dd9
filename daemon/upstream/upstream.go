package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Server is what to run or dial: expanded and complete.
type Server struct {
	Key      string // identity; two Servers of one Key that differ in anything make a restart
	Name     string // for logs and errors
	Instance string // not empty: one of several processes of a definition (share: project, session)
	Def      clientconfig.Server
	Dir      string // where it runs
	Known    bool   // its tools are in the index, so start: lazy need not start it
}

// States of a server. pending and disabled are the daemon's: such a server is
// not given to a Set.
const (
	Starting = "starting"
	Ready    = "ready"
	Backoff  = "backoff"
	Failed   = "failed"
	Lazy     = "lazy"
)

// Status is how a server is at one moment.
type Status struct {
	State   string
	Since   time.Time
	Reason  string    // why it is not ready; cleaned and redacted
	Hint    string    // what to do
	Retry   time.Time // next try, in backoff and failed
	PID     int
	Spawns  int
	Notes   []string // odd things that did not stop it: dropped lines, bad tools
	Version string   // negotiated protocol version
}

// Listing is a complete tools/list of one server.
type Listing struct {
	Instructions string
	Tools        []*tool.Tool
	Problems     []string // tools that were dropped and why
}

// Options are what a Set needs from its owner.
type Options struct {
	Log     *slog.Logger
	LogDir  string                                              // one stderr log per server
	Environ func(ctx context.Context) (platform.Environ, error) // the login shell's environment
	// OnListing is called after each complete listing, on the server's own
	// goroutine, before Status says ready.
	OnListing func(key string, l Listing)
	// OnStatus is called when any status changed; it must not block.
	OnStatus func()
}

// Call is one tools/call.
type Call struct {
	Tool      string
	Arguments json.RawMessage              // raw object; nil means {}
	Meta      json.RawMessage              // the caller's _meta without its progress token, or nil
	Progress  func(params json.RawMessage) // each notifications/progress, with the upstream's token in it; may be nil
	MayRepeat bool                         // by the tool's annotations: may be sent again after the connection died
	Timeout   time.Duration                // 0: the server's own
}

// RPCError is a JSON-RPC error that the server answered, unchanged.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return e.Message }
