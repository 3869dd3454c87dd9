package upstream

import (
	"bytes"
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
)

// Call calls a tool and returns the raw CallToolResult. It waits, within the
// call's time, for a server that is starting, and starts one that is lazy or in
// backoff. The request is sent once; after the connection died it is sent again
// only if it was not sent before or MayRepeat. A parked server answers at once
// with why it is down: it is Restart that tries it before its time.
//
// Errors that callers tell apart: *RPCError (the server's own, unchanged),
// *DownError, ErrOutcomeUnknown, ErrTimeout, ErrTooLarge, and ctx's.
func (t *Set) Call(ctx context.Context, key string, c Call) (json.RawMessage, error) {
	s := t.find(key, c.Instance)
	if s == nil {
		return nil, &DownError{Name: key, Reason: "there is no such server", Hint: "`toolsd servers` lists all"}
	}
	def := s.definition()
	limit := c.Timeout
	if limit <= 0 {
		limit = def.Def.CallTimeout
	}
	if limit <= 0 {
		limit = callTimeout
	}
	params, err := callParams(c)
	if err != nil {
		return nil, fmt.Errorf("calling %s of server %s: %w", c.Tool, def.Name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := newDeadline(limit, func() { cancel(ErrTimeout) })
	defer d.stop()

	if err := s.down(); err != nil {
		return nil, err
	}
	if err := s.calls.enter(ctx, c.From); err != nil {
		return nil, s.callError(err, c.Tool, limit)
	}
	defer s.calls.leave()

	progress := c.Progress
	if progress != nil {
		progress = func(params json.RawMessage) {
			d.extend()
			c.Progress(params)
		}
	}
	for try := 1; ; try++ {
		l, err := s.await(ctx, limit)
		if err != nil {
			return nil, s.callError(err, c.Tool, limit)
		}
		if c.Check != nil {
			if err := c.Check(); err != nil {
				l.unuse()
				return nil, err
			}
		}
		var definition *tool.Tool
		if l.modern && l.http {
			definition = s.tool(c.Tool)
		}
		result, err := l.request(ctx, "tools/call", params, c.Meta, progress, definition)
		l.unuse()
		var lost *lostError
		if err == nil {
			return result, nil
		}
		if !errors.As(err, &lost) || try == maxTries || lost.sent && !(c.MayRepeat && try == 1) {
			return nil, s.callError(err, c.Tool, limit)
		}
		// The loop of s sees the same end; await must not find the old link.
		s.forgetLink(l)
	}
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
