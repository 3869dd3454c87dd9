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
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

const (
	// aside is how long a message takes at most that nobody waits for: a
	// cancellation, an answer to a ping, the end of a session.
	aside = 5 * time.Second
	// maxAside is how many of them are under way. A server may ask for one with
	// every line that it sends.
	maxAside = 64
)

// httpBase is what both HTTP transports share: requests that carry the entry's
// headers and end with the connection.
type httpBase struct {
	*peer
	client  *http.Client
	url     string
	headers map[string]string
	life    context.Context
	end     context.CancelFunc
	room    chan struct{} // for messages that nobody waits for

	closing sync.Mutex // guards closed and the start of work
	closed  bool
	work    sync.WaitGroup
}

func newHTTPBase(client *http.Client, def clientconfig.Server) httpBase {
	life, end := context.WithCancel(context.Background())
	return httpBase{client: client, url: def.URL, headers: def.Headers, life: life, end: end, room: make(chan struct{}, maxAside)}
}

// offered runs f for a message that nobody waits for, unless too many are under
// way: then it is dropped, as for a process that does not read.
func (b *httpBase) offered(f func(ctx context.Context)) {
	select {
	case b.room <- struct{}{}:
	default:
		return
	}
	if !b.run(func() {
		defer func() { <-b.room }()
		ctx, cancel := context.WithTimeout(b.life, aside)
		defer cancel()
		f(ctx)
	}) {
		<-b.room
	}
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
	if b.home(req.URL) {
		for name, value := range b.headers {
			req.Header.Set(name, value)
		}
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

// home reports whether an address is at the entry's own host, which its headers are
// for: a redirect may have led elsewhere.
func (b *httpBase) home(to *url.URL) bool {
	own, err := url.Parse(b.url)
	return err == nil && sameOrigin(own, to)
}

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

// knowsNoSuch reports whether an error says no more than that there is nothing of
// the kind at this address.
func knowsNoSuch(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.code == http.StatusNotFound || status.code == http.StatusMethodNotAllowed || status.code == http.StatusNotAcceptable)
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
