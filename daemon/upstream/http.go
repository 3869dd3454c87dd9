package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"

	// aside is how long a message takes at most that nobody waits for: a
	// cancellation, an answer to a ping, the end of a session.
	aside = 5 * time.Second
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

// authError is a refusal of who we are. It is not tried again.
type authError struct {
	code  int
	url   string
	login bool // it names where to log in
	body  string
}

func (e *authError) Error() string {
	return fmt.Sprintf("%s answered %d %s", place(e.url), e.code, http.StatusText(e.code))
}

// statusError is any other HTTP error.
type statusError struct {
	code     int
	url      string
	location string
	body     string
	retry    string
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s answered %d %s", place(e.url), e.code, http.StatusText(e.code))
	if e.location != "" {
		s += ", a redirect to " + e.location
	}
	if e.retry != "" {
		s += ", to be asked again after " + e.retry
	}
	if e.body != "" {
		s += ": " + e.body
	}
	return s
}

// httpBase is what both HTTP transports share: requests that carry the entry's
// headers and end with the connection.
type httpBase struct {
	*peer
	client  *http.Client
	url     string
	headers map[string]string
	life    context.Context
	end     context.CancelFunc

	closing sync.Mutex // guards closed and the start of work
	closed  bool
	work    sync.WaitGroup
}

func newHTTPBase(client *http.Client, def clientconfig.Server) httpBase {
	life, end := context.WithCancel(context.Background())
	return httpBase{client: client, url: def.URL, headers: def.Headers, life: life, end: end}
}

// run starts f, unless the connection is closed.
func (b *httpBase) run(f func()) bool {
	b.closing.Lock()
	defer b.closing.Unlock()
	if b.closed {
		return false
	}
	b.work.Go(f)
	return true
}

func (b *httpBase) side() *peer { return b.peer }
func (b *httpBase) pid() int    { return 0 }

func (b *httpBase) shut() {
	b.fail(errClosed)
	b.closing.Lock()
	b.closed = true
	b.closing.Unlock()
	b.end()
	b.work.Wait()
}

// request makes a request whose context also ends with the connection.
func (b *httpBase) request(ctx context.Context, method, url string, body []byte) (*http.Request, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.life, cancel)
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("its url: %w", err)
	}
	for name, value := range b.headers {
		req.Header.Set(name, value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, func() { stop(); cancel() }, nil
}

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
		if !c.run(func() { c.exchange(m) }) {
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

func (c *httpConn) offer(m *outgoing) {
	c.run(func() {
		ctx, cancel := context.WithTimeout(c.life, aside)
		defer cancel()
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
		c.refused(m, resp)
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
	for {
		err := c.take1(ctx, call, events)
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
		defer done()
		defer again.Body.Close()
		events = newEventReader(again.Body)
		events.lastID = last
	}
}

var errAnswered = errors.New("answered")

// take1 receives events until the call is answered or the stream ends.
func (c *httpConn) take1(ctx context.Context, call *pending, events *eventReader) error {
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

// refused ends a call that an HTTP error answered.
func (c *httpConn) refused(m *outgoing, resp *http.Response) {
	err := c.refusal(resp)
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

// refusal reads an HTTP error: an *RPCError, an *authError or a *statusError.
func (b *httpBase) refusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	code := resp.StatusCode
	text := cut(string(body), maxReason)
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType == "text/html" {
		text = "" // a page for people
	}
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		return &authError{code: code, url: b.url, login: resp.Header.Get("WWW-Authenticate") != "", body: text}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil && len(fields["jsonrpc"]) > 0 && len(fields["error"]) > 0 {
		return parseError(fields["error"])
	}
	e := &statusError{code: code, url: b.url, body: text, retry: resp.Header.Get("Retry-After")}
	if _, err := strconv.Atoi(e.retry); err == nil {
		e.retry += " s"
	}
	if to, err := resp.Location(); err == nil {
		e.location = place(to.String())
	}
	return e
}

// isOldServer reports whether a refusal of the first message is that of a server
// which only knows HTTP+SSE.
func isOldServer(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.code >= 400 && status.code < 500 && status.code != http.StatusTooManyRequests
	}
	// Some answer the POST on their event stream's path with a JSON-RPC error.
	var refused *RPCError
	return errors.As(err, &refused)
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

// sseConn is the older HTTP+SSE transport: one stream brings all messages of the
// server, and names the address for ours.
type sseConn struct {
	httpBase
	post string
}

func openSSE(ctx context.Context, client *http.Client, def clientconfig.Server, n *notes, onChanged func()) (*sseConn, error) {
	c := &sseConn{httpBase: newHTTPBase(client, def)}
	c.peer = newPeer(c, onChanged, n)
	req, done, err := c.request(c.life, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	// ctx bounds the opening only; the stream lives on.
	stop := context.AfterFunc(ctx, done)
	fail := func(err error) (*sseConn, error) {
		stop()
		done()
		c.shut()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fail(err)
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || mediaType != "text/event-stream" {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return fail(fmt.Errorf("%s answered with %s instead of a stream of events", place(c.url), mediaType))
		}
		return fail(c.refusal(resp))
	}
	events := newEventReader(resp.Body)
	for c.post == "" {
		e, err := events.next()
		if err != nil {
			resp.Body.Close()
			return fail(fmt.Errorf("%s ended the stream of events at once: %w", place(c.url), err))
		}
		if e.name != "endpoint" {
			continue
		}
		to, err := resp.Request.URL.Parse(string(bytes.TrimSpace(e.data)))
		if err != nil || !sameOrigin(to, resp.Request.URL) {
			resp.Body.Close()
			return fail(fmt.Errorf("%s names another host as the address for messages, which is refused", place(c.url)))
		}
		c.post = to.String()
	}
	if !stop() {
		resp.Body.Close()
		return fail(context.Cause(ctx))
	}
	c.run(func() {
		defer done()
		defer resp.Body.Close()
		for {
			e, err := events.next()
			switch {
			case err != nil:
				c.fail(fmt.Errorf("the stream of events ended: %w", err))
				return
			case e.over != nil:
				c.tooLarge(e.over)
			case e.name == "message" && !c.receive(e.data):
				c.notes.add("garbage", "an event that is no message was dropped: %q", cut(string(e.data[:min(len(e.data), 400)]), 120))
			}
		}
	})
	return c, nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

func (c *sseConn) setVersion(string)     {}
func (c *sseConn) close(context.Context) { c.shut() }

func (c *sseConn) send(ctx context.Context, m *outgoing) error {
	over := ctx
	if m.call != nil {
		over = m.call.over
	}
	deliver := func() error {
		req, done, err := c.request(over, http.MethodPost, c.post, m.body)
		if err != nil {
			return err
		}
		defer done()
		if m.call != nil && !m.call.claim() {
			return nil
		}
		resp, err := c.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return c.refusal(resp)
		}
		return nil
	}
	if m.call == nil {
		return deliver()
	}
	if !c.run(func() {
		if err := deliver(); err != nil && over.Err() == nil {
			var auth *authError
			if errors.As(err, &auth) {
				c.fail(err)
			}
			var refused *RPCError
			var status *statusError
			if errors.As(err, &refused) || errors.As(err, &status) {
				c.finish(m.call, err)
			} else {
				c.finish(m.call, &lostError{cause: err, sent: true})
			}
		}
	}) {
		return errClosed
	}
	return nil
}

func (c *sseConn) offer(m *outgoing) {
	c.run(func() {
		ctx, cancel := context.WithTimeout(c.life, aside)
		defer cancel()
		_ = c.send(ctx, m)
	})
}
