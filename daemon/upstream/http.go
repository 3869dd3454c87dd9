package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"

	// maxErrorBody is what is read of an HTTP error to find its reason in.
	maxErrorBody = 64 << 10
)

var (
	// errSessionLost ends a connection whose session the server does not know any
	// more. It did not act on the request that it answered so.
	errSessionLost = errors.New("the server ended the session")
	// errNoListening says that a server offers no stream to listen to.
	errNoListening = errors.New("the server offers no stream of notifications")
)

// httpConn is the Streamable HTTP transport: each message is a POST, and the
// answer to a request is that POST's response, as JSON or as a stream of events.
type httpConn struct {
	httpBase
	suspect func() // something broke; the connection should be checked

	mu      sync.Mutex
	session string
	version string
}

func newHTTPConn(client *http.Client, def clientconfig.Server, n *notes, onChanged, suspect func()) *httpConn {
	c := &httpConn{httpBase: newHTTPBase(client, def), suspect: suspect}
	c.peer = newPeer(c, onChanged, n)
	return c
}

func (c *httpConn) setVersion(v string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = v
}

// close ends the session, as far as the server goes along within ctx.
func (c *httpConn) close(ctx context.Context) {
	c.fail(errClosed)
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != "" && !errors.Is(c.cause(), errSessionLost) {
		ctx, cancel := context.WithTimeout(ctx, aside)
		defer cancel()
		if resp, done, err := c.do(ctx, http.MethodDelete, nil, nil); err == nil {
			resp.Body.Close()
			done()
		}
	}
	c.shut()
}

func (c *httpConn) do(ctx context.Context, method string, body []byte, header http.Header) (*http.Response, context.CancelFunc, error) {
	req, done, err := c.request(ctx, method, c.url, body)
	if err != nil {
		return nil, nil, err
	}
	accept := "application/json, text/event-stream"
	if method == http.MethodGet {
		accept = "text/event-stream"
	}
	req.Header.Set("Accept", accept)
	c.mu.Lock()
	if c.session != "" {
		req.Header.Set(headerSession, c.session)
	}
	if c.version != "" {
		req.Header.Set(headerVersion, c.version)
	}
	c.mu.Unlock()
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	resp, err := c.client.Do(req)
	if err != nil {
		done()
		return nil, nil, err
	}
	return resp, done, nil
}

// send posts m. A notification is waited for, since the next message must not
// overtake it; a request is not.
func (c *httpConn) send(ctx context.Context, m *outgoing) error {
	if m.call != nil {
		if !c.try(m) {
			return errClosed
		}
		return nil
	}
	resp, done, err := c.do(ctx, http.MethodPost, m.body, m.header)
	if err != nil {
		return err
	}
	defer done()
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		err := c.refusal(resp)
		var auth *authError
		if errors.As(err, &auth) {
			c.fail(err)
			return err
		}
		c.notes.add("refused "+m.method, "it did not take %s: %v", m.method, err)
	}
	return nil
}

func (c *httpConn) try(m *outgoing) bool { return c.run(func() { c.exchange(m) }) }

func (c *httpConn) offer(m *outgoing) {
	c.offered(func(ctx context.Context) {
		if resp, done, err := c.do(ctx, http.MethodPost, m.body, m.header); err == nil {
			resp.Body.Close()
			done()
		}
	})
}

// exchange posts a request and takes in its response.
func (c *httpConn) exchange(m *outgoing) {
	call := m.call
	ctx, cancel := context.WithCancel(call.over)
	defer cancel()
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if !call.claim() {
			cancel()
		}
	}})
	resp, done, err := c.do(traced, http.MethodPost, m.body, m.header)
	if err != nil {
		if ctx.Err() != nil || c.life.Err() != nil {
			return // nobody waits
		}
		lost := &lostError{cause: err, sent: !call.abandon()}
		c.finish(call, lost)
		if lost.sent {
			c.suspect()
		} else {
			c.fail(err) // it cannot be reached: the loop decides when to try again
		}
		return
	}
	defer done()
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && session != "":
		c.finish(call, &lostError{cause: errSessionLost})
		c.fail(errSessionLost)
		return
	case resp.StatusCode >= 300 || resp.StatusCode < 200:
		c.refused(m, resp, session)
		return
	}
	if m.method == "initialize" {
		c.mu.Lock()
		c.session = resp.Header.Get(headerSession)
		c.mu.Unlock()
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if mediaType == "text/event-stream" {
		c.follow(ctx, call, resp)
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1))
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.finish(call, &lostError{cause: fmt.Errorf("its response broke off: %w", err), sent: true})
		c.suspect()
	case len(body) > maxMessage:
		c.finish(call, fmt.Errorf("%w: over %d MiB, the limit", ErrTooLarge, maxMessage>>20))
		c.notes.add("over", "a response of over %d MiB was dropped", maxMessage>>20)
	default:
		c.receive(bytes.TrimPrefix(body, bom))
		what := "an empty body"
		if len(body) > 0 {
			what = fmt.Sprintf("%q", cut(string(body[:min(len(body), 400)]), 120))
		}
		c.finish(call, fmt.Errorf("it answered %d with %s instead of an answer to the request", resp.StatusCode, what))
	}
}

// follow reads the stream that answers a request, and reopens it where the
// protocol lets the server end it before the answer.
func (c *httpConn) follow(ctx context.Context, call *pending, resp *http.Response) {
	events := newEventReader(resp.Body)
	closeLast := func() {} // the first one is the caller's
	defer func() { closeLast() }()
	for {
		err := c.takeEvents(ctx, call, events)
		if ctx.Err() != nil || err == errAnswered {
			return
		}
		last := events.lastID
		if err != io.EOF || last == "" || c.modern() {
			c.finish(call, &lostError{cause: errors.New("the stream ended before the answer"), sent: true})
			c.suspect()
			return
		}
		t := time.NewTimer(events.retry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		again, done, err := c.do(ctx, http.MethodGet, nil, http.Header{"Last-Event-Id": {last}})
		if err != nil || again.StatusCode != http.StatusOK {
			if err == nil {
				err = c.refusal(again)
				again.Body.Close()
				done()
			}
			c.finish(call, &lostError{cause: fmt.Errorf("reopening the stream of the answer: %w", err), sent: true})
			c.suspect()
			return
		}
		closeLast()
		closeLast = func() { again.Body.Close(); done() }
		events = newEventReader(again.Body)
		events.lastID = last
	}
}

var errAnswered = errors.New("answered")

// takeEvents receives events until the call is answered or the stream ends.
func (c *httpConn) takeEvents(ctx context.Context, call *pending, events *eventReader) error {
	for {
		e, err := events.next()
		if err != nil {
			return err
		}
		if e.over != nil {
			c.tooLarge(e.over)
			c.finish(call, fmt.Errorf("%w: over %d MiB, the limit", ErrTooLarge, maxMessage>>20))
			return errAnswered
		}
		if len(e.data) > 0 && !c.receive(e.data) {
			c.notes.add("garbage", "an event that is no message was dropped: %q", cut(string(e.data[:min(len(e.data), 400)]), 120))
		}
		if !c.waiting(call) {
			return errAnswered
		}
	}
}

func (c *httpConn) modern() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version >= "2026-07-28"
}

// forgotten reports whether a 400 says in words what a 404 says: that the server
// does not know the session. Those that were made with the first years' SDKs do.
func forgotten(err error) bool {
	var status *statusError
	var refused *RPCError
	var said string
	switch {
	case errors.As(err, &status):
		said = status.body
	case errors.As(err, &refused):
		said = refused.Message
	}
	said = strings.ToLower(said)
	return strings.Contains(said, "session") || strings.Contains(said, "not initialized")
}

// refused ends a call that an HTTP error answered, in a session if there is one.
func (c *httpConn) refused(m *outgoing, resp *http.Response, session string) {
	err := c.refusal(resp)
	if resp.StatusCode == http.StatusBadRequest && session != "" && forgotten(err) {
		c.finish(m.call, &lostError{cause: errSessionLost})
		c.fail(errSessionLost)
		return
	}
	var auth *authError
	var status *statusError
	switch {
	case errors.As(err, &auth) && (auth.code == http.StatusUnauthorized || m.method != "tools/call"):
		// It did not act on the request.
		c.finish(m.call, &lostError{cause: err})
		c.fail(err)
		return
	case errors.As(err, &status) && status.code >= 502 && status.code <= 504:
		c.suspect() // a proxy in front of it speaks
	}
	c.finish(m.call, err)
}

// listen opens the stream on which the server announces what nobody asked for,
// and reads it to its end.
func (c *httpConn) listen(ctx context.Context) error {
	resp, done, err := c.do(ctx, http.MethodGet, nil, nil)
	if err != nil {
		return err
	}
	defer done()
	defer resp.Body.Close()
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return c.refusal(resp)
	case resp.StatusCode != http.StatusOK || mediaType != "text/event-stream":
		return errNoListening
	}
	events := newEventReader(resp.Body)
	for {
		e, err := events.next()
		if err != nil {
			return err
		}
		if e.over == nil && len(e.data) > 0 {
			c.receive(e.data)
		}
	}
}
