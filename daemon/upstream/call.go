package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

const (
	// callTimeout is for servers whose entry names none. It is longer than what
	// clients wait by default (most SDKs: 60 s), so that it is the client who
	// gives up, which cancels the call; and it is an end for callers that would
	// wait for ever.
	callTimeout = 5 * time.Minute
	// maxExtended is how long progress may keep a call alive in total.
	maxExtended = 10 * time.Minute
	// maxTries bounds how often a call follows a server from one ended
	// connection to the next. Only requests that were not sent, or that may be
	// repeated, do.
	maxTries = 3
	// large is the size of an answer that is not passed on by who reads what the
	// server says: it would take milliseconds, and other answers wait behind it.
	large = 64 << 10
)

// Begin calls a tool: done gets the raw CallToolResult, or why there is none, once,
// on a goroutine that reads what the server says, so it must not hold that up. Where
// the server is ready, no goroutine is woken between the caller's and that one,
// which on a busy machine would cost more than all else that is done here.
//
// The call waits, within its time, for a server that is starting, and starts one
// that is lazy or in backoff. The request is sent once; after the connection died it
// is sent again only if it was not sent before or MayRepeat. A parked server answers
// at once with why it is down: it is Restart that tries it before its time.
//
// Errors that callers tell apart: *RPCError (the server's own, unchanged),
// *DownError, ErrOutcomeUnknown, ErrTimeout, ErrTooLarge, and ctx's.
func (t *Set) Begin(ctx context.Context, key string, c Call, done func(json.RawMessage, error)) {
	s := t.find(key, c.Instance)
	if s == nil {
		done(nil, &DownError{Name: key, Reason: "there is no such server", Hint: "`toolsd servers` lists all"})
		return
	}
	def := s.definition()
	params, err := callParams(c)
	if err != nil {
		done(nil, fmt.Errorf("calling %s of server %s: %w", c.Tool, def.Name, err))
		return
	}
	if err := s.down(); err != nil {
		done(nil, err)
		return
	}
	r := &running{Call: c, server: s, params: params, limit: cmp.Or(max(c.Timeout, 0), max(def.Def.CallTimeout, 0), callTimeout)}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.deadline = newDeadline(r.limit, func() { r.cancel(ErrTimeout) })
	r.done = func(result json.RawMessage, err error) {
		r.deadline.stop()
		r.cancel(nil)
		done(result, err)
	}
	if !r.begin() {
		go func() { r.done(r.run()) }()
	}
}

// running is a call on its way.
type running struct {
	Call
	server   *server
	params   []byte
	limit    time.Duration
	ctx      context.Context
	cancel   context.CancelCauseFunc
	deadline *deadline
	done     func(json.RawMessage, error)
}

// begin sends the call if nothing has to be waited for, and reports whether it did.
// The listener for progress may hold up who reads, so it gets a goroutine.
func (r *running) begin() bool {
	s := r.server
	if r.Progress != nil || !s.calls.tryEnter() {
		return false
	}
	l := s.ready()
	if l == nil {
		s.calls.leave()
		return false
	}
	if err := r.check(); err != nil {
		l.unuse()
		s.calls.leave()
		r.done(nil, err)
		return true
	}
	begun := l.begin(r.ctx, "tools/call", r.params, r.Meta, r.typed(l), func(result json.RawMessage, err error) {
		l.unuse()
		again := r.again(l, err, 1)
		if !again {
			s.calls.leave()
			err = r.explain(err)
		}
		switch {
		case again:
			go func() {
				defer s.calls.leave()
				r.done(r.try(2))
			}()
		case len(result) > large:
			go r.done(result, err)
		default:
			r.done(result, err)
		}
	})
	if !begun {
		l.unuse()
		s.calls.leave()
	}
	return begun
}

// run waits for its turn, for the server and for the answer.
func (r *running) run() (json.RawMessage, error) {
	if err := r.server.calls.enter(r.ctx, r.From); err != nil {
		return nil, r.explain(err)
	}
	defer r.server.calls.leave()
	return r.try(1)
}

// try sends the call until it is answered, or may not be sent again.
func (r *running) try(n int) (json.RawMessage, error) {
	var progress func(json.RawMessage)
	if r.Progress != nil {
		progress = func(params json.RawMessage) {
			r.deadline.extend()
			r.Progress(params)
		}
	}
	for ; ; n++ {
		l, err := r.server.await(r.ctx, r.limit)
		if err != nil {
			return nil, r.explain(err)
		}
		if err := r.check(); err != nil {
			l.unuse()
			return nil, err
		}
		result, err := l.request(r.ctx, "tools/call", r.params, r.Meta, progress, r.typed(l))
		l.unuse()
		if !r.again(l, err, n) {
			return result, r.explain(err)
		}
	}
}

func (r *running) check() error {
	if r.Check == nil {
		return nil
	}
	return r.Check()
}

// typed is the definition of the tool where its arguments go into headers.
func (r *running) typed(l *link) *tool.Tool {
	if l.modern && l.http {
		return r.server.tool(r.Tool)
	}
	return nil
}

// again reports whether the call is to be sent once more after try n failed.
func (r *running) again(l *link, err error, n int) bool {
	lost, ok := errors.AsType[*lostError](err)
	if !ok || n == maxTries || lost.sent && !(r.MayRepeat && n == 1) {
		return false
	}
	// The loop of the server sees the same end; await must not find the old link.
	r.server.forgetLink(l)
	return true
}

func (r *running) explain(err error) error {
	if err == nil {
		return nil
	}
	return r.server.callError(err, r.Tool, r.limit)
}

// callError says what became of a call.
func (s *server) callError(err error, tool string, limit time.Duration) error {
	name := s.definition().Name
	var refused *RPCError
	var down *DownError
	var lost *lostError
	var status *statusError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &down):
		return down
	case errors.Is(err, ErrTimeout):
		return fmt.Errorf("%s of server %s did not answer within %s and was cancelled: %w", tool, name, brief(limit), ErrTimeout)
	case errors.As(err, &lost) && lost.sent, errors.As(err, &status) && status.code >= 500:
		reason, _ := explain(err, s.definition(), s.clean)
		return fmt.Errorf("%w: the connection to server %s ended during the call of %s: %s", ErrOutcomeUnknown, name, tool, reason)
	case errors.As(err, &lost):
		reason, hint := explain(err, s.definition(), s.clean)
		return &DownError{Name: name, State: Backoff, Reason: reason, Hint: hint}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("calling %s of server %s: %w", tool, name, err)
	}
	reason, _ := explain(err, s.definition(), s.clean)
	return fmt.Errorf("calling %s of server %s: %s", tool, name, reason)
}

// down is the error for a server that is parked, else nil.
func (s *server) down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State != Failed {
		return nil
	}
	return s.downError()
}

// downError tells the present status. s.mu is held.
func (s *server) downError() error {
	return &DownError{Name: s.def.Name, State: s.status.State, Reason: s.status.Reason, Hint: s.status.Hint, Retry: s.status.Retry}
}

// await returns the link once s is ready, counted as in use. It wakes s when
// that is needed, once: a server that fails while a call waits fails the call.
func (s *server) await(ctx context.Context, limit time.Duration) (*link, error) {
	wokenAt := -1
	for {
		s.mu.Lock()
		state, attempts, changed := s.status.State, s.attempts, s.changed
		link := s.link
		down := s.downError()
		s.mu.Unlock()
		switch state {
		case Ready:
			if link != nil && link.use() {
				return link, nil
			}
		case Failed:
			return nil, down
		case Lazy, Backoff:
			if wokenAt >= 0 && attempts > wokenAt && state == Backoff {
				return nil, down
			}
			if wokenAt < 0 {
				wokenAt = attempts
			}
			wish(s.wake)
		}
		select {
		case <-changed:
		case <-s.gone.Done():
			return nil, &DownError{Name: s.definition().Name, Reason: "the server was removed, or changed, in the configuration", Hint: "try again"}
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, ErrTimeout) && state != Ready {
				return nil, &DownError{Name: s.definition().Name, State: state, Reason: fmt.Sprintf("still %s after %s", state, brief(limit)), Hint: "try again in a moment, or give it more time"}
			}
			return nil, cause
		}
	}
}

// ready returns the link if s is ready, counted as in use, else nil.
func (s *server) ready() *link {
	s.mu.Lock()
	link := s.link
	ready := s.status.State == Ready && link != nil
	s.mu.Unlock()
	if !ready || !link.use() {
		return nil
	}
	return link
}

// forgetLink keeps a link that has ended from being used again.
func (s *server) forgetLink(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
	}
}

// tool returns the definition of that name from the last listing, or nil.
func (s *server) tool(name string) *tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tools.Tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// callParams are the parameters of tools/call without _meta.
func callParams(c Call) ([]byte, error) {
	name, err := json.Marshal(c.Tool)
	if err != nil {
		return nil, err
	}
	arguments := bytes.TrimSpace(c.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if arguments[0] != '{' || !json.Valid(arguments) {
		return nil, errors.New("the arguments are not a JSON object")
	}
	var b bytes.Buffer
	b.WriteString(`{"name":`)
	b.Write(name)
	b.WriteString(`,"arguments":`)
	b.Write(arguments)
	b.WriteByte('}')
	return b.Bytes(), nil
}

// deadline ends a call that shows no progress for limit, and any call after
// maxExtended.
type deadline struct {
	limit time.Duration
	last  time.Time

	mu    sync.Mutex
	timer *time.Timer
}

func newDeadline(limit time.Duration, end func()) *deadline {
	return &deadline{limit: limit, last: time.Now().Add(max(limit, maxExtended)), timer: time.AfterFunc(limit, end)}
}

func (d *deadline) extend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer.Stop() {
		d.timer.Reset(min(d.limit, time.Until(d.last)))
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
}
