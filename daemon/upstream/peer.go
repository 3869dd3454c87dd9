package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// sender carries messages to a server.
type sender interface {
	// send hands m over. It may wait for room until ctx ends, but not for the
	// server. A nil error means that m will be written unless its call is
	// abandoned before.
	send(ctx context.Context, m *outgoing) error
	// try is send for a request, if that takes no waiting; it reports whether m was
	// handed over.
	try(m *outgoing) bool
	// offer hands m over if that takes no waiting.
	offer(m *outgoing)
}

type outgoing struct {
	method string      // empty for answers
	body   []byte      // one JSON message, compact, without a newline
	call   *pending    // nil for notifications and answers
	header http.Header // for HTTP only
}

// peer is the JSON-RPC side of a connection, the same for every transport: it
// numbers requests, matches answers, hands progress to the waiting caller and
// answers what a server asks. All requests of a connection are numbered here, so
// ids cannot collide; an id that a server chooses for a request of its own is
// another matter and never taken for an answer.
type peer struct {
	out       sender
	onChanged func() // notifications/tools/list_changed; must not block
	notes     *notes

	heard atomic.Int64 // when the last message came, in Unix nanoseconds

	mu      sync.Mutex
	lastID  int64
	pending map[string]*pending
	err     error // why the connection ended
	done    chan struct{}
}

func newPeer(out sender, onChanged func(), n *notes) *peer {
	p := &peer{out: out, onChanged: onChanged, notes: n, pending: map[string]*pending{}, done: make(chan struct{})}
	p.heard.Store(time.Now().UnixNano())
	return p
}

// pending is a request that waits for its answer.
type pending struct {
	number   int64
	id       string            // number as text
	answered func(answer)      // called once, by who takes it out of peer.pending; holds nobody up
	news     chan struct{}     // capacity 1: progress has come; nil when nobody wants any
	progress []json.RawMessage // what has come and was not passed on; guarded by peer.mu
	held     int               // bytes of that
	over     context.Context   // ends when nobody waits any more

	// state goes from queued to either sent or abandoned, once. It decides
	// whether the server can have seen the request.
	state atomic.Int32
}

const (
	queued = iota
	sent
	abandoned
)

// claim marks the request as sent, before its first byte is written. A false
// answer means that it must not be written.
func (c *pending) claim() bool { return c.state.CompareAndSwap(queued, sent) || c.state.Load() == sent }

// unclaim takes a claim back, since nothing could be written.
func (c *pending) unclaim() { c.state.CompareAndSwap(sent, queued) }

// abandon keeps the request from being sent and reports whether it was in time.
func (c *pending) abandon() bool {
	return c.state.CompareAndSwap(queued, abandoned) || c.state.Load() == abandoned
}

type answer struct {
	result json.RawMessage
	err    error
}

// lostError ends the requests of a connection that ended.
type lostError struct {
	cause error
	sent  bool // the server may have acted on the request
}

func (e *lostError) Error() string { return e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

type request struct {
	method   string
	params   func(id int64) json.RawMessage // nil: none
	header   http.Header
	progress func(json.RawMessage)
	noCancel bool // the server is not told when the caller gives up
}

// maxProgress is how many notifications wait for a slow listener: what a server
// writes in one go comes faster than it is passed on. More are dropped, since the
// next one says all.
const maxProgress = 4096

// request sends r and waits for the answer: the raw result, an *RPCError, a
// *lostError, or the cause of ctx's end, which is told to the server.
func (p *peer) request(ctx context.Context, r request) (json.RawMessage, error) {
	over, end := context.WithCancel(ctx)
	defer end()
	come := make(chan answer, 1)
	c := &pending{answered: func(a answer) { come <- a }, over: over}
	if r.progress != nil {
		c.news = make(chan struct{}, 1)
	}
	m, err := p.note(c, r)
	if err != nil {
		return nil, err
	}
	defer p.drop(c)
	if err := p.out.send(ctx, m); err != nil {
		c.abandon()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &lostError{cause: err}
	}
	for {
		select {
		case a := <-come:
			p.passProgress(c, r.progress)
			return a.result, a.err
		case <-c.news:
			p.passProgress(c, r.progress)
		case <-ctx.Done():
			select {
			case a := <-come:
				return a.result, a.err
			default:
			}
			p.drop(c)
			if !c.abandon() && !r.noCancel {
				p.tellCancelled(c, ctx)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// begin is request for who does not wait: done gets what request would return, on
// the goroutine that has it, which it must not hold up. It reports false, and done
// is never called, when r could not be handed over without waiting. r asks for no
// progress.
func (p *peer) begin(ctx context.Context, r request, done func(json.RawMessage, error)) bool {
	c := &pending{over: ctx}
	stop := context.AfterFunc(ctx, func() {
		if !p.drop(c) {
			return
		}
		if !c.abandon() {
			p.tellCancelled(c, ctx)
		}
		done(nil, context.Cause(ctx))
	})
	c.answered = func(a answer) {
		stop()
		done(a.result, a.err)
	}
	m, err := p.note(c, r)
	if err == nil && ctx.Err() == nil && p.out.try(m) {
		return true
	}
	stop()
	return err == nil && !p.drop(c) // who dropped it calls done
}

// note makes a request one that waits for its answer.
func (p *peer) note(c *pending, r request) (*outgoing, error) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return nil, &lostError{cause: p.err}
	}
	p.lastID++
	c.number = p.lastID
	c.id = strconv.FormatInt(c.number, 10)
	p.pending[c.id] = c
	p.mu.Unlock()
	var params json.RawMessage
	if r.params != nil {
		params = r.params(c.number)
	}
	body, err := message(c.id, r.method, params)
	if err != nil {
		p.drop(c)
		return nil, err
	}
	return &outgoing{r.method, body, c, r.header}, nil
}

// gotProgress keeps a notification for the caller that waits for the request of
// that id, if it wants it.
func (p *peer) gotProgress(id string, params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.pending[id]
	if c == nil || c.news == nil || len(c.progress) == maxProgress || c.held+len(params) > maxMessage {
		return
	}
	c.progress = append(c.progress, params)
	c.held += len(params)
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// passProgress hands over what has come, in its order.
func (p *peer) passProgress(c *pending, pass func(json.RawMessage)) {
	p.mu.Lock()
	come := c.progress
	c.progress, c.held = nil, 0
	p.mu.Unlock()
	for _, params := range come {
		pass(params)
	}
}

func (p *peer) tellCancelled(c *pending, ctx context.Context) {
	reason := "the caller gave up"
	if errors.Is(context.Cause(ctx), ErrTimeout) {
		reason = "the call timed out"
	}
	params, _ := json.Marshal(map[string]any{"requestId": c.number, "reason": reason})
	body, _ := message("", "notifications/cancelled", params)
	p.out.offer(&outgoing{method: "notifications/cancelled", body: body})
}

// notify sends a notification.
func (p *peer) notify(ctx context.Context, method string, params json.RawMessage) error {
	body, err := message("", method, params)
	if err != nil {
		return err
	}
	return p.out.send(ctx, &outgoing{method: method, body: body})
}

// fail ends the connection: every waiting request gets cause, and later ones
// too. Only the first cause counts.
func (p *peer) fail(cause error) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = cause
	waiting := p.pending
	p.pending = map[string]*pending{}
	close(p.done)
	p.mu.Unlock()
	for _, c := range waiting {
		c.answered(answer{err: &lostError{cause: cause, sent: !c.abandon()}})
	}
}

func (p *peer) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// drop removes c and reports whether it still waited.
func (p *peer) drop(c *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[c.id] != c {
		return false
	}
	delete(p.pending, c.id)
	return true
}

// take removes the request that id belongs to and returns it, or nil.
func (p *peer) take(id string) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.pending[id]
	delete(p.pending, id)
	return c
}

// only returns the one waiting request, or nil when there are none or more.
func (p *peer) only() *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) != 1 {
		return nil
	}
	for id, c := range p.pending {
		delete(p.pending, id)
		return c
	}
	return nil
}

// finish ends one request without an answer.
func (p *peer) finish(c *pending, err error) {
	if p.drop(c) {
		c.answered(answer{err: err})
	}
}

// tooLarge ends the requests whose answers were read past.
func (p *peer) tooLarge(over *idScan) {
	p.heard.Store(time.Now().UnixNano())
	err := fmt.Errorf("%w: %d MiB, the limit is %d MiB", ErrTooLarge, over.size>>20, maxMessage>>20)
	found := false
	for _, id := range over.ids {
		if c := p.take(id); c != nil {
			c.answered(answer{err: err})
			found = true
		}
	}
	if !found && !over.method {
		if c := p.only(); c != nil {
			c.answered(answer{err: err})
		}
	}
	p.notes.add("over", "a message of %d MiB was dropped (the limit is %d MiB)", over.size>>20, maxMessage>>20)
}

// waiting reports whether c has no answer yet.
func (p *peer) waiting(c *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending[c.id] == c
}
