// Package upstream keeps one live connection to every server it is given and
// calls tools over it. It is the only package that starts or dials a server.
//
// The promise: one failing, slow or hostile server costs nobody but its own
// callers anything. Each server has its own loop, its own backoff and its own
// queue of calls; what a server sends is bounded, cleaned and redacted before
// it is shown, and the definitions, results and errors themselves are passed on
// as the raw JSON they came as. A Set is safe for concurrent use. It holds no
// state that outlives the process, but for the stderr logs.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Server is what to run or dial: expanded and complete.
type Server struct {
	Key      string // identity, together with Instance; a change of what is run under it makes a restart
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
	Retry   time.Time // next try, in backoff and failed; zero when only a person can help
	PID     int
	Spawns  int      // how often it was started or dialled
	Notes   []string // odd things that did not stop it: dropped lines, bad tools
	Version string   // negotiated protocol version
}

// Listing is a complete tools/list of one server.
type Listing struct {
	Instructions string
	Tools        []*tool.Tool
	Problems     []string // tools that were dropped and why
}

// Starter starts a child process whose descendants cannot outlive the daemon.
// platform.Keeper is one.
type Starter interface {
	Start(platform.Command) (*platform.Process, error)
}

// Options are what a Set needs from its owner.
type Options struct {
	Log     *slog.Logger
	LogDir  string // one stderr log per server, see LogFile; empty: none
	Version string // of this program, told to servers
	Starter Starter
	// MayStart is asked just before each start or dial of a server, and an error
	// keeps it from happening; nil allows all.
	MayStart func(key string) error
	// Environ returns the environment that servers are found in and started
	// with, usually the login shell's. It may be asked often.
	Environ func(ctx context.Context) (platform.Environ, error)
	// Refresh captures that environment anew. It is asked when a command was not
	// found: it may have been installed since. Nil means Environ.
	Refresh func(ctx context.Context) (platform.Environ, error)
	// OnListing is called after each complete listing, on the server's own
	// goroutine, before Status says ready. Of several instances of one Key only
	// the first one's listing arrives. What it returns are the same tools as the
	// owner keeps them, so that they are in memory once; nil: as they came.
	OnListing func(key string, l Listing) []*tool.Tool
	// OnStatus is called when any status changed; it must not block.
	OnStatus func()
}

// Call is one tools/call.
type Call struct {
	Tool      string
	Instance  string                       // which process of the definition; empty: the first
	From      string                       // who calls: when many wait, each gets its turn
	Arguments json.RawMessage              // raw object; nil means {}
	Meta      json.RawMessage              // the caller's _meta without its progress token, or nil
	Progress  func(params json.RawMessage) // each notifications/progress, with the upstream's token in it, on the caller's goroutine; nil: none is asked for
	// Check is asked once the server is connected and listed, right before the
	// request is sent; its error is the call's, and nothing is sent. A server that
	// was away may have come back with other tools. It may be nil.
	Check     func() error
	MayRepeat bool          // by the tool's annotations: may be sent again after the connection died
	Timeout   time.Duration // 0: the server's own
}

// RPCError is a JSON-RPC error that the server answered, unchanged.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return e.Message }

var (
	// ErrOutcomeUnknown is wrapped by the error of a Call whose request was sent
	// and whose answer never came: the tool may have run. The caller decides
	// about repeating it; the Set never does.
	ErrOutcomeUnknown = errors.New("whether the tool ran is unknown")
	// ErrTimeout is wrapped by the error of a Call that ran out of time. The
	// server was told to stop.
	ErrTimeout = errors.New("the call timed out")
	// ErrTooLarge is wrapped by the error of a Call whose answer was over 16 MiB.
	ErrTooLarge = errors.New("the answer is too large")
)

// DownError is the error of a Call to a server that is not connected. Nothing
// was sent.
type DownError struct {
	Name   string
	State  string // empty: there is no such server
	Reason string
	Hint   string
	Retry  time.Time // next try; zero: none is planned
}

func (e *DownError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("calling server %s: %s", e.Name, e.Reason)
	}
	s := fmt.Sprintf("server %s is not connected (%s)", e.Name, e.State)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}
