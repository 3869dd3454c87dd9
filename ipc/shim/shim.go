// Package shim is what an agent starts as `toolsd mcp`: an MCP server on stdio
// that stands on an ipc.Backend.
//
// Its promise is that the agent's side never breaks. The shim answers from
// memory what it can (the handshake, tools/list), outlives the daemon, and hands
// everything else through byte for byte. What may run is not decided here: the
// daemon knows what each session has seen. The shim tells it (Saw) before an
// answer that shows a definition leaves, speaks MCP, and words the texts.
//
// Everything that it remembers about the session lives in view (what the agent
// has before its eyes) and link (the way to the daemon); both are safe for
// concurrent use. One Run serves one agent.
package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/toolsd/toolsd/ipc"
)

// Options are what a shim needs from the program around it.
type Options struct {
	In  io.Reader // the agent's messages, one a line
	Out io.Writer
	// Connect reaches the daemon and starts one when none runs. It is called
	// again whenever the connection was lost.
	Connect func(ctx context.Context) (ipc.Backend, error)
	// Dial reaches a daemon that runs and starts none. It is for the time after
	// a daemon was told to end, until a call needs one. Nil means Connect.
	Dial func(ctx context.Context) (ipc.Backend, error)
	CWD  string   // decides which project's servers are visible
	Mode ipc.Mode // auto when empty
	// Threshold is the one of the agent's environment; see ipc.AttachRequest.
	Threshold *float64
	Log       *slog.Logger
	Version   string
}

const (
	// attachWait is how long initialize waits for the daemon. One that runs
	// answers in milliseconds, one that must be started in a few hundred; after a
	// second a person notices, and the agent can work without what it would have
	// learned (the servers in the instructions).
	attachWait = time.Second
	// finishWait is how long answers that need no upstream may still take when
	// the agent has closed its end: enough for a handshake that is piped in whole.
	finishWait = attachWait + 500*time.Millisecond
	// drainWait is how long the agent may take to read what is written already.
	// One that has gone reads nothing, and nobody waits for a shim to end.
	drainWait = 250 * time.Millisecond
)

// shim is one Run.
type shim struct {
	o    Options
	log  *slog.Logger
	out  *output
	view *view
	link *link
	base *server.MCPServer

	decided chan struct{} // closed once the mode is; handlers of sessions wait for it
	ended   chan struct{} // closed when In ended: nobody will list or read again

	begun    bool // a line was read; only who reads touches it
	requests requests
	upstream context.Context // of calls that run a tool; ends with In

	mu      sync.Mutex
	closing bool // nothing is begun any more
	working sync.WaitGroup
}

// enter reports whether n jobs may begin that Run waits for; leave ends one.
func (s *shim) enter(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.working.Add(n)
	return true
}

func (s *shim) leave() { s.working.Done() }

// Run serves the agent until In ends or ctx does.
func Run(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &shim{o: o, log: o.Log, out: newOutput(o.Out), decided: make(chan struct{}), ended: make(chan struct{})}
	s.base = newServer(o.Version, "")
	s.view = newView(s.out, ipc.AttachRequest{CWD: o.CWD, Mode: o.Mode, Threshold: o.Threshold})
	if o.Dial == nil {
		o.Dial = o.Connect
	}
	s.link = newLink(o.Connect, o.Dial, s.view, o.Log)
	var cancelCalls context.CancelFunc
	s.upstream, cancelCalls = context.WithCancel(ctx)

	var own sync.WaitGroup
	own.Go(func() { s.link.run(ctx) })
	go s.out.run()
	read := make(chan error, 1)
	go s.read(ctx, bufio.NewReaderSize(o.In, 64<<10), read)

	// What hangs in a read or a write that nothing can interrupt is left behind
	// and ends with the process.
	var err error
	select {
	case err = <-read:
	case <-s.out.over:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	close(s.ended)
	cancelCalls()
	if ctx.Err() == nil {
		within(finishWait, s.working.Wait)
	}
	stop()
	within(drainWait, func() { s.working.Wait(); own.Wait() })
	s.out.close()
	within(drainWait, func() { <-s.out.over })
	if err == nil || errors.Is(err, io.EOF) {
		err = s.out.failure()
	}
	for _, gone := range []error{io.EOF, io.ErrClosedPipe, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return nil // the agent ended
		}
	}
	if err != nil {
		return fmt.Errorf("talking to the agent on stdin and stdout: %w", err)
	}
	return nil
}

// within waits until f returns, at most for d.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// begin notes who the agent is and lets the link attach. It is called from the
// reading goroutine, so that a list request right behind initialize finds the
// session begun. Later calls only correct the profile.
func (s *shim) begin(ctx context.Context, client, version string) {
	if !s.view.begin(client, version) {
		return
	}
	s.link.begin()
	go func() { // it ends with ctx, in attachWait at the latest
		wait, cancel := context.WithTimeout(ctx, attachWait)
		defer cancel()
		s.link.firstAttempt(wait)
		mode := s.view.decide()
		close(s.decided)
		s.log.Info("session", "client", client, "version", version, "mode", mode)
	}()
}
