package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

const (
	// The pauses between attempts to reach a daemon: short at first, since a
	// restart takes a few hundred milliseconds; then seldom, since an attempt may
	// start a process, and a call that needs the daemon does not wait for its turn.
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
	// reattachWait is how long a call waits for a daemon that was lost: longer
	// than a start of one takes on a busy machine, shorter than the patience of
	// any client known (10 s).
	reattachWait = 5 * time.Second
	// stoppedPause is how often a daemon is looked for that was told to end. The
	// next one is somebody else's to start, until a call needs it.
	stoppedPause = time.Second
	// waitingPause is how often a daemon is tried while a call waits for one.
	waitingPause = 250 * time.Millisecond
	// shortLife is under what age a session that ended counts as a failed attempt.
	shortLife = time.Second
)

// link is the way to the daemon. It keeps one session and begins another
// whenever that is lost.
type link struct {
	connect func(context.Context) (ipc.Backend, error)
	dial    func(context.Context) (ipc.Backend, error) // never starts a daemon
	view    *view
	log     *slog.Logger
	begun   chan struct{} // the agent is known
	poke    chan struct{} // somebody waits: try now

	mu       sync.Mutex
	backend  ipc.Backend
	session  ipc.Session // nil while there is none
	attempts int         // that have failed
	ever     bool        // there was a session
	err      error       // why the last attempt failed
	changed  chan struct{}
	// The session that knows that the client has listed told.
	toldSession ipc.Session
	told        []byte
}

func newLink(connect, dial func(context.Context) (ipc.Backend, error), v *view, log *slog.Logger) *link {
	return &link{connect: connect, dial: dial, view: v, log: log, begun: make(chan struct{}), poke: make(chan struct{}, 1), changed: make(chan struct{})}
}

func (l *link) begin() { close(l.begun) }

// run keeps a session until ctx ends. The first connection is made before the
// agent is known, since it may have to start the daemon.
func (l *link) run(ctx context.Context) {
	pause, longest := firstPause, lastPause
	connect := l.connect
	for ctx.Err() == nil {
		start := time.Now()
		bye, err := l.hold(ctx, connect)
		if err == nil {
			connect, longest = l.connect, lastPause
			if bye {
				connect, longest = l.dial, stoppedPause
			} else if time.Since(start) > shortLife {
				pause = firstPause
				continue // lost after a while: at once
			}
		}
		if err != nil {
			l.log.Debug("no daemon", "error", err)
		}
		// Many shims lose one daemon at the same moment.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-l.poke:
			pause, connect = firstPause, l.connect
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, longest)
	}
}

// hold connects, attaches, and returns when the session is over, or with the
// reason why there was none. bye says that the daemon was told to end.
func (l *link) hold(ctx context.Context, connect func(context.Context) (ipc.Backend, error)) (bye bool, err error) {
	backend, err := connect(ctx)
	if err != nil {
		l.failed(err)
		return false, err
	}
	if c, ok := backend.(interface{ Close() }); ok {
		defer c.Close() // the idle connections of a Client
	}
	select {
	case <-l.begun:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	session, err := l.attach(ctx, backend)
	if err != nil {
		l.failed(err)
		return false, err
	}
	select {
	case <-session.Done():
	case <-ctx.Done():
	}
	_ = session.Close()
	l.mu.Lock()
	l.backend, l.session = nil, nil
	l.mu.Unlock()
	l.log.Info("the session with the daemon is over")
	return session.Bye(), nil
}

func (l *link) attach(ctx context.Context, backend ipc.Backend) (ipc.Session, error) {
	for {
		request, edits := l.view.handOver()
		// Lists that arrive before hello was taken over wait for it.
		var (
			mu      sync.Mutex
			open    bool
			pending []ipc.Listed
		)
		session, err := backend.Attach(ctx, request, ipc.Events{List: func(list []ipc.Listed) {
			mu.Lock()
			defer mu.Unlock()
			if pending = list; open {
				l.view.set(list)
			}
		}})
		if err != nil {
			return nil, err
		}
		hello := session.Hello()
		if !l.view.attached(hello) {
			_ = session.Close() // the agent was told another mode while this one was decided
			if request.Mode == hello.Mode || request.Mode == ipc.Search || request.Mode == ipc.Direct {
				return nil, fmt.Errorf("the daemon began a session in mode %s where %s was asked for", hello.Mode, request.Mode)
			}
			continue
		}
		// What the agent was shown since the request was made.
		if now, n := l.view.handOver(); n != edits {
			_ = session.Saw(ctx, now.Seen, false)
			_ = session.Saw(ctx, listedOf(now), true)
			edits = n
		}
		mu.Lock()
		open = true
		if pending == nil {
			pending = hello.List
		}
		l.view.set(pending)
		mu.Unlock()
		l.mu.Lock()
		l.backend, l.session, l.ever, l.err = backend, session, true, nil
		l.broadcast()
		l.mu.Unlock()
		if now, n := l.view.handOver(); n != edits {
			_ = session.Saw(ctx, now.Seen, false)
			_ = session.Saw(ctx, listedOf(now), true)
		}
		l.log.Debug("attached", "session", hello.Session, "daemon", hello.Daemon.Version)
		return session, nil
	}
}

func listedOf(r ipc.AttachRequest) map[tool.ID]tool.Hash {
	listed := map[tool.ID]tool.Hash{}
	for _, id := range r.Listed {
		listed[id] = r.Seen[id]
	}
	return listed
}

func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.attempts++
	l.broadcast()
}

// broadcast wakes who waits. l.mu is held.
func (l *link) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// firstAttempt waits until there is a session or it is known that there will be
// none soon, or until ctx ends.
func (l *link) firstAttempt(ctx context.Context) {
	for {
		l.mu.Lock()
		over, changed := l.ever || l.attempts > 0, l.changed
		l.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

var errNoDaemon = errors.New("no daemon answered in time")

// alive returns the session if there is one that is not over.
func (l *link) alive() (ipc.Backend, ipc.Session) {
	l.mu.Lock()
	backend, session := l.backend, l.session
	l.mu.Unlock()
	if session == nil {
		return nil, nil
	}
	select {
	case <-session.Done(): // run will notice
		return nil, nil
	default:
		return backend, session
	}
}

// current returns the session. Where there is none it asks for an attempt at
// once and waits: for a daemon that was lost up to reattachWait, for one that
// was never there until the attempt has failed.
func (l *link) current(ctx context.Context) (ipc.Backend, ipc.Session, error) {
	if backend, session := l.alive(); session != nil {
		return backend, session, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reattachWait, errNoDaemon)
	defer cancel()
	tick := time.NewTicker(waitingPause)
	defer tick.Stop()
	for first := -1; ; {
		l.mu.Lock()
		ever, attempts, err, changed := l.ever, l.attempts, l.err, l.changed
		l.mu.Unlock()
		backend, session := l.alive()
		switch {
		case session != nil:
			return backend, session, nil
		case first < 0:
			first = attempts
			l.tryNow()
		case !ever && attempts > first:
			return nil, nil, err
		}
		select {
		case <-changed:
		case <-tick.C:
			l.tryNow()
		case <-ctx.Done():
			if cause := context.Cause(ctx); err == nil || cause != errNoDaemon {
				err = cause
			}
			return nil, nil, err
		}
	}
}

// tryNow ends the pause between two attempts.
func (l *link) tryNow() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// saw tells the daemon what an answer is about to show. The view knows it
// already, so a session that is lost meanwhile takes nothing with it.
func (l *link) saw(ctx context.Context, seen map[tool.ID]tool.Hash) {
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session != nil && len(seen) > 0 {
		l.tell(session.Saw(ctx, seen, false))
	}
}

// listed tells the daemon what the client is about to have listed, once for the
// same list: a client may ask often, and the list may be long.
func (l *link) listed(ctx context.Context, rendered []byte, hashes map[tool.ID]tool.Hash) {
	l.mu.Lock()
	session := l.session
	known := session == l.toldSession && bytes.Equal(rendered, l.told)
	l.mu.Unlock()
	if session == nil || known {
		return
	}
	err := session.Saw(ctx, hashes, true)
	l.tell(err)
	if err == nil {
		l.mu.Lock()
		l.toldSession, l.told = session, rendered
		l.mu.Unlock()
	}
}

func (l *link) tell(err error) {
	if err != nil {
		l.log.Debug("telling the daemon what was shown", "error", err)
	}
}

// lost waits until a session that failed is known to be over, or shortly: its
// end may be noticed a moment after its failure.
func (l *link) lost(ctx context.Context, session ipc.Session) {
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	select {
	case <-session.Done():
	case <-timer.C:
	case <-ctx.Done():
	}
}
