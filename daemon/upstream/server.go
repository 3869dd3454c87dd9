package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
)

const (
	// startTimeout is for a first start with npx or uvx, which may download half
	// of a registry.
	startTimeout = 60 * time.Second
	// idleTimeout stops a lazy server: long enough that a conversation's pauses
	// do not restart it, short enough that a day's servers do not pile up.
	idleTimeout = 10 * time.Minute
	// pingEvery is how long a connection may be silent and unused. The end of a
	// process is seen at once; a ping only finds what hangs, and for a remote
	// server that the session is gone, before a call does.
	pingEvery = 5 * time.Minute
	// pingTimeout is generous since a single-threaded server may be busy.
	pingTimeout = 30 * time.Second
	// jumpTimeout is shorter: after a sleep of the machine most connections are
	// dead and people wait.
	jumpTimeout = 10 * time.Second
	// grace is how long after a clock jump an ended connection is nobody's fault.
	grace = 30 * time.Second
	// stopTimeout is what a server gets to stop in, within the 8 s of Run.
	stopTimeout = 7 * time.Second
	// slotHold is how long a start counts against those that may run at once.
	// That limit is there for the CPU that starting takes; a start that hangs
	// takes none and must not keep others waiting.
	slotHold = 2 * time.Second
)

// server is the loop of one server, and what others may know about it.
type server struct {
	set      *Set
	id       identity
	stderr   *stderrLog
	notes    *notes
	clean    cleaner
	calls    *limiter
	cancel   context.CancelCauseFunc
	gone     context.Context // ends when the server is to stop
	before   *server         // ran under the same identity; must have stopped first
	stopped  chan struct{}   // closed when the loop has ended
	closeLog func()

	// What others want; each channel holds one wish, and a second is the same.
	wake, restart, jump, relist, check chan struct{}

	reporting sync.Mutex // one OnListing at a time; taken before mu

	mu       sync.Mutex // guards what follows; taken last
	def      Server
	first    bool // of the instances of its key
	status   Status
	attempts int // to connect; who waits for an outcome counts on it
	link     *link
	changed  chan struct{} // closed and renewed with each change of status
	graceEnd time.Time
	tools    Listing // the last listing, kept for a server that becomes first
	hasTools bool    // there was one
}

type identity struct{ key, instance string }

func wish(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *server) definition() Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.def
}

// publish changes the status. Since moves only with the state.
func (s *server) publish(change func(st *Status)) {
	s.mu.Lock()
	old := s.status
	change(&s.status)
	if s.status.State != old.State {
		s.status.Since = time.Now()
	}
	close(s.changed)
	s.changed = make(chan struct{})
	st := s.status
	s.mu.Unlock()
	if st.State != old.State {
		s.set.opts.Log.Info("server", "name", s.definition().Name, "state", st.State, "reason", st.Reason)
	}
	s.set.opts.OnStatus()
}

func (s *server) snapshot() Status {
	s.mu.Lock()
	st, problems := s.status, s.tools.Problems
	s.mu.Unlock()
	st.Notes = append(s.notes.all(), problems...)
	return st
}

// run is the life of the server.
func (s *server) run() {
	defer close(s.stopped)
	defer s.closeLog()
	defer s.cancel(nil)
	if s.before != nil {
		<-s.before.stopped // it ends within stopTimeout
		s.before = nil
	}
	def := s.definition()
	lazy := def.Def.Start == "lazy"
	p := newPolicy()
	why := "" // it ended the last time
	if lazy && def.Known && !s.rest(Lazy, "", "", time.Time{}, p) {
		return
	}
	for s.gone.Err() == nil {
		if at := p.earliest(time.Now()); at.After(time.Now()) {
			reason := fmt.Sprintf("it was started %d times within a minute", maxSpawns)
			if why != "" {
				reason += ", the last time: " + why
			}
			s.rest(Backoff, reason, "`toolsd restart "+def.Name+"` tries again now", at, p)
			continue
		}
		p.spawned(time.Now())
		link, err := s.start(p)
		if err == errRestart {
			continue
		}
		served := err == nil
		if served {
			began := time.Now()
			err = s.serve(link, lazy)
			p.lived(time.Since(began))
		}
		why, _ = explain(err, def, s.clean)
		switch {
		case s.gone.Err() != nil:
			return
		case err == errIdle:
			if !s.rest(Lazy, "", "", time.Time{}, p) {
				return
			}
		case err == errRestart:
			p.reset()
		case s.excused(err, served):
			p.failures = 0
		default:
			if !s.fail(err, p) {
				return
			}
		}
	}
}

var (
	errIdle    = errors.New("idle")
	errRestart = errors.New("restart")
	errRemoved = errors.New("the server was removed from the configuration")
)

// excused reports whether a connection's end is nobody's fault, so that the next
// one follows at once.
func (s *server) excused(err error, served bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.graceEnd) {
		s.graceEnd = time.Time{} // once per jump
		return true
	}
	return served && errors.Is(err, errSessionLost)
}

// fail rests after a failure, as long as its kind wants. False: s is to stop.
func (s *server) fail(err error, p *policy) bool {
	def := s.definition()
	reason, hint := explain(err, def, s.clean)
	var exit *exitError
	if errors.As(err, &exit) {
		s.stderr.mark("%s", exit.how) // its last words are above
	} else {
		s.stderr.mark("%s", reason)
	}
	var auth *authError
	var missing *platform.NotFoundError
	switch now := time.Now(); {
	case errors.As(err, &auth):
		p.failures++
		return s.rest(Failed, reason, hint, time.Time{}, p)
	case errors.As(err, &missing):
		return s.rest(Failed, reason, hint, now.Add(maxDelay), p)
	default:
		retry, parked := p.failed(now)
		if parked {
			return s.rest(Failed, fmt.Sprintf("failed %d times in a row, the last time: %s", p.failures, reason), hint, retry, p)
		}
		if at := p.earliest(now); at.After(retry) {
			retry = at
		}
		return s.rest(Backoff, reason, hint, retry, p)
	}
}

// rest waits in a state until the time to retry (zero: never) or until somebody
// wants the server. False means that it is to stop.
func (s *server) rest(state, reason, hint string, retry time.Time, p *policy) bool {
	s.publish(func(st *Status) {
		*st = Status{State: state, Reason: reason, Hint: hint, Retry: retry, Spawns: st.Spawns, Since: st.Since}
	})
	var due <-chan time.Time
	if !retry.IsZero() {
		t := time.NewTimer(time.Until(retry))
		defer t.Stop()
		due = t.C
	}
	for {
		select {
		case <-s.gone.Done():
			return false
		case <-due:
			return true
		case <-s.restart:
			p.reset()
			return true
		case <-s.wake:
			// A call must not bring a parked server back: five agents that try
			// would be the tight loop that parking ends.
			if state != Failed {
				return true
			}
		case <-s.jump:
			if state == Backoff || state == Failed && !retry.IsZero() {
				p.reset()
				return true
			}
		case <-s.relist:
			s.report()
		case <-s.check:
		}
	}
}

// start connects and lists. It ends early when s is to stop or restart; nothing
// of a failed attempt is left when it returns.
func (s *server) start(p *policy) (*link, error) {
	s.publish(func(st *Status) {
		s.attempts++ // with the state, so that nobody takes the old one for this attempt's
		*st = Status{State: Starting, Reason: st.Reason, Spawns: st.Spawns + 1, Since: st.Since}
	})
	def := s.definition()
	limit := def.Def.StartTimeout
	if limit <= 0 {
		limit = startTimeout
	}
	ctx, cancel := context.WithCancelCause(s.gone)
	defer cancel(nil)
	type outcome struct {
		link *link
		err  error
	}
	result := make(chan outcome, 1)
	go func() {
		l, err := s.connect(ctx, def, limit)
		result <- outcome{l, err}
	}()
	for {
		select {
		case o := <-result:
			return o.link, o.err
		case <-s.restart:
			cancel(errRestart)
			if o := <-result; o.link != nil {
				s.stop(o.link)
			}
			p.reset()
			return nil, errRestart
		case <-s.relist:
			s.report()
		}
	}
}

// connect makes a link whose tools are listed and reported.
func (s *server) connect(ctx context.Context, def Server, limit time.Duration) (*link, error) {
	changed := make(chan struct{}, 1)
	release, err := s.set.slot(ctx, def)
	if err != nil {
		return nil, context.Cause(ctx)
	}
	defer release()
	held := time.AfterFunc(slotHold, release)
	defer held.Stop()

	timeout := fmt.Errorf("it was not ready within %s", brief(limit))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, timeout)
	defer cancel()
	l, err := s.set.dial(ctx, s, def, func() { wish(changed) })
	if err != nil {
		return nil, err
	}
	release()
	l.changed = changed
	listing, err := l.list(ctx, def.Name, s.clean)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("listing its tools: %w", context.Cause(ctx))
		}
		s.stop(l)
		return nil, err
	}
	s.listed(listing)
	return l, nil
}

func (s *server) stop(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	l.close(ctx)
}

// listed keeps a listing and reports it.
func (s *server) listed(l Listing) {
	s.mu.Lock()
	s.tools, s.hasTools = l, true
	s.mu.Unlock()
	s.report()
}

// says reports whether the last listing says the same as l.
func (s *server) says(l Listing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasTools && s.tools.Instructions == l.Instructions && slices.Equal(s.tools.Problems, l.Problems) &&
		slices.EqualFunc(s.tools.Tools, l.Tools, func(a, b *tool.Tool) bool { return a.ID == b.ID && bytes.Equal(a.Raw, b.Raw) })
}

// report gives the last listing to the owner, if s speaks for its key.
func (s *server) report() {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.mu.Lock()
	l, wanted := s.tools, s.first && s.hasTools && s.gone.Err() == nil
	s.mu.Unlock()
	if !wanted {
		return
	}
	kept := s.set.opts.OnListing(s.id.key, l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept != nil && slices.Equal(s.tools.Tools, l.Tools) { // no later listing came
		s.tools.Tools = kept
	}
}
