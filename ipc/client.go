package ipc

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
)

// handshakeTimeout is how long a daemon may take to say that it is one. A
// connect proves nothing: the kernel accepts for a process that hangs.
const handshakeTimeout = 2 * time.Second

// Client is the Backend of a daemon behind a socket.
type Client struct {
	socket string
	http   *http.Client
}

var _ Backend = (*Client)(nil)

// NewClient returns the Backend behind a socket. It does not connect.
func NewClient(socket string) *Client {
	return &Client{socket, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return platform.Dial(ctx, socket)
		},
		DisableCompression: true,
		// One process asks one thing at a time; the shim has some calls at once.
		MaxIdleConnsPerHost: 8,
	}}}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Handshake returns the version of the daemon, or an *Error with CodeNoDaemon or
// CodeVersionSkew. Only after it does a slow answer mean a busy daemon.
func (c *Client) Handshake(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errNoHandshake)
	defer cancel()
	var pong struct {
		Version  string   `json:"version"`
		Protocol Protocol `json:"protocol"`
	}
	err = c.do(ctx, http.MethodGet, "/v1/ping", nil, nil, &pong)
	if err != nil {
		if context.Cause(ctx) == errNoHandshake {
			return "", Errorf(CodeNoDaemon, "the daemon at %s does not answer", c.socket).
				WithHint("%s", hung(c.socket))
		}
		return "", err
	}
	if !pong.Protocol.Overlaps(Supported) {
		return pong.Version, Errorf(CodeVersionSkew, "the daemon (%s) speaks protocol %s, this toolsd (%s) speaks %s", pong.Version, pong.Protocol, Version(), Supported).
			WithHint("run `toolsd stop` and try again, so that both are of one version")
	}
	return pong.Version, nil
}

// hung says what to do about a process that listens and does not answer. Where
// its number is known there is more to say: see byHand in cmd/toolsd.
func hung(socket string) string {
	return fmt.Sprintf("`toolsd doctor` names its log; `lsof %s` shows which process it is, which `kill` ends", socket)
}

var errNoHandshake = errors.New("no handshake")

func (c *Client) Status(ctx context.Context, r StatusRequest) (*Status, error) {
	return read[Status](ctx, c, "/v1/status", values{"cwd": r.CWD})
}

func (c *Client) Search(ctx context.Context, r SearchRequest) (*SearchResult, error) {
	query := values{
		"q": r.Query, "n": number(r.Max), "server": r.Server, "category": r.Category, "cwd": r.CWD, "explain": flag(r.Explain),
	}
	if r.Threshold != nil {
		query["threshold"] = strconv.FormatFloat(*r.Threshold, 'g', -1, 64)
	}
	return read[SearchResult](ctx, c, "/v1/search", query)
}

func (c *Client) Tools(ctx context.Context, r ToolsRequest) (*ToolList, error) {
	return read[ToolList](ctx, c, "/v1/tools", values{"server": r.Server, "category": r.Category, "cwd": r.CWD})
}

func (c *Client) Categories(ctx context.Context, r CategoriesRequest) (*CategoryList, error) {
	return read[CategoryList](ctx, c, "/v1/categories", values{"name": r.Name, "cwd": r.CWD})
}

func (c *Client) Why(ctx context.Context, r WhyRequest) (*Why, error) {
	return read[Why](ctx, c, "/v1/why", values{"subject": r.Subject, "cwd": r.CWD})
}

func (c *Client) Log(ctx context.Context, r ServerRequest) (*ServerLog, error) {
	return read[ServerLog](ctx, c, "/v1/log", values{"name": r.Name, "cwd": r.CWD, "lines": number(r.Lines)})
}

func (c *Client) Trust(ctx context.Context, r TrustRequest) (*TrustList, error) {
	if r.Action == "" || r.Action == TrustShow {
		return read[TrustList](ctx, c, "/v1/trust", values{"name": r.Name, "cwd": r.CWD})
	}
	return write[TrustList](ctx, c, "/v1/trust", r)
}

func (c *Client) Activate(ctx context.Context, r ActivateRequest) (*Activation, error) {
	return write[Activation](ctx, c, "/v1/activate", r)
}

func (c *Client) Restart(ctx context.Context, r ServerRequest) (*ServerInfo, error) {
	return write[ServerInfo](ctx, c, "/v1/restart", r)
}

func (c *Client) Stop(ctx context.Context) (*DaemonInfo, error) {
	return write[DaemonInfo](ctx, c, "/v1/stop", struct{}{})
}

func (c *Client) Call(ctx context.Context, r CallRequest) (json.RawMessage, error) {
	if r.Progress == nil {
		raw, err := write[json.RawMessage](ctx, c, "/v1/call", r)
		if err != nil {
			return nil, sent(err)
		}
		return bytes.TrimSuffix(*raw, []byte("\n")), nil
	}
	response, err := c.send(ctx, http.MethodPost, "/v1/call", nil, r, streamType)
	if err != nil {
		return nil, sent(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, readError(response)
	}
	result, err := readCallFrames(response.Body, r.Progress)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return result, sent(err)
}

// sent turns a connection that broke under a call into what it means: nobody
// knows whether the tool ran.
func sent(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return Errorf(CodeOutcomeUnknown, "the daemon went away while the call was running; whether the tool ran is not known").
		WithHint("check what the tool did before you call it again")
}

type values map[string]string

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func flag(b bool) string {
	if !b {
		return ""
	}
	return "true"
}

func read[A any](ctx context.Context, c *Client, path string, v values) (*A, error) {
	q := url.Values{}
	for k, s := range v {
		if s != "" {
			q.Set(k, s)
		}
	}
	var a A
	return &a, c.do(ctx, http.MethodGet, path, q, nil, &a)
}

func write[A any](ctx context.Context, c *Client, path string, body any) (*A, error) {
	var a A
	return &a, c.do(ctx, http.MethodPost, path, nil, body, &a)
}

func (c *Client) do(ctx context.Context, method, path string, q url.Values, body, into any) error {
	response, err := c.send(ctx, method, path, q, body, "")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return readError(response)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of the daemon: %w", err)
	}
	if raw, ok := into.(*json.RawMessage); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the answer of the daemon: %w", err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, q url.Values, body any, accept string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "toolsd", Path: path, RawQuery: q.Encode()}
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(Encode(body))
	}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	stamp(request.Header)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := c.http.Do(request)
	if err == nil {
		return response, nil
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // its text repeats the URL, which says nothing here
	}
	return nil, c.explain(err)
}

// explain makes a failed dial an *Error that says what to do.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, platform.ErrNoDaemon):
		return Errorf(CodeNoDaemon, "no daemon runs at %s", c.socket).WithHint("start it with `toolsd start`")
	}
	if unfit, ok := errors.AsType[*platform.UnfitError](err); ok {
		return Errorf(CodeNoDaemon, "%v", unfit).WithHint("%s", cmp.Or(unfit.Hint(), "`toolsd doctor` shows what is wrong with the socket's directory"))
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return Errorf(CodeNoDaemon, "connecting to %s: %v", c.socket, dial.Err).WithHint("start the daemon with `toolsd start`")
	}
	return err
}

func readError(response *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	var doc ErrorDocument
	if err == nil && json.Unmarshal(data, &doc) == nil && doc.Error != nil {
		return doc.Error
	}
	return Errorf(CodeInternal, "the daemon answered %s", response.Status)
}

// Attach opens a session on a connection of its own.
func (c *Client) Attach(ctx context.Context, r AttachRequest, events Events) (Session, error) {
	conn, err := platform.Dial(ctx, c.socket)
	if err != nil {
		return nil, c.explain(err)
	}
	// What hangs before hello is a handshake that hangs.
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout + attachTimeout))
	s, err := openSession(conn, r, events)
	if err != nil {
		conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, Errorf(CodeNoDaemon, "the daemon at %s does not answer", c.socket).WithHint("%s", hung(c.socket))
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	s.stop = context.AfterFunc(ctx, func() { conn.Close() })
	go s.read()
	return s, nil
}

// attachTimeout is what the daemon may take on top of a handshake to read the
// config files of a project that it has not seen.
const attachTimeout = 3 * time.Second

// remoteSession is a Session at the agent's end of the wire.
type remoteSession struct {
	conn   net.Conn
	lines  *bufio.Reader
	out    framer
	events Events
	hello  Hello
	stop   func() bool
	done   chan struct{}
	next   atomic.Uint64
	bye    atomic.Bool

	mu      sync.Mutex
	waiting map[uint64]*waiter // nil once the connection is gone
}

// waiter waits for the answer to a frame.
type waiter struct {
	answer   func(frame, error) // called once, by who takes it out of waiting; holds nobody up
	progress func(json.RawMessage)
	stop     func() bool // ends the watch over the context, once there is one
	// Guarded by remoteSession.mu: whether the question is not out yet, and whether
	// the connection ended meanwhile. Who writes it then says what became of it.
	writing, lost bool
}

func openSession(conn net.Conn, r AttachRequest, events Events) (*remoteSession, error) {
	request, err := http.NewRequest(http.MethodPost, "http://toolsd/v1/sessions", bytes.NewReader(Encode(r)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", upgradeProtocol)
	stamp(request.Header)
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	lines := bufio.NewReaderSize(conn, 64<<10)
	response, err := http.ReadResponse(lines, request)
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, readError(response)
	}
	line, err := readLine(lines)
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s := &remoteSession{conn: conn, lines: lines, events: events, done: make(chan struct{}), waiting: map[uint64]*waiter{}}
	s.out.w = conn
	var f frame
	if err := json.Unmarshal(line, &f); err != nil || f.Method != "hello" || json.Unmarshal(f.Params, &s.hello) != nil {
		return nil, Errorf(CodeInternal, "the daemon began the session with something else than hello")
	}
	return s, nil
}

func (s *remoteSession) Hello() Hello          { return s.hello }
func (s *remoteSession) Done() <-chan struct{} { return s.done }
func (s *remoteSession) Bye() bool             { return s.bye.Load() }

func (s *remoteSession) Close() error {
	err := s.conn.Close()
	<-s.done
	return err
}

// read hands out what the daemon sends until the connection ends.
func (s *remoteSession) read() {
	defer s.end()
	for {
		line, err := readLine(s.lines)
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(line, &f) != nil {
			return // a peer that writes anything else is not our daemon
		}
		switch f.Method {
		case "list":
			var p listParams
			if json.Unmarshal(f.Params, &p) == nil && s.events.List != nil {
				s.events.List(p.Tools)
			}
		case "progress":
			var p progressParams
			if json.Unmarshal(f.Params, &p) == nil {
				if w := s.waiter(p.ID, false); w != nil && w.progress != nil {
					w.progress(p.Params)
				}
			}
		case "bye":
			s.bye.Store(true)
		case "":
			if w := s.waiter(f.ID, true); w != nil {
				w.answer(f, nil)
			}
		}
	}
}

func (s *remoteSession) waiter(id uint64, take bool) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[id]
	if take {
		delete(s.waiting, id)
	}
	return w
}

func (s *remoteSession) end() {
	s.conn.Close()
	s.stop()
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	maps.DeleteFunc(waiting, func(_ uint64, w *waiter) bool {
		w.lost = w.writing
		return w.lost
	})
	s.mu.Unlock()
	for _, w := range waiting {
		w.answer(frame{}, errSessionLost)
	}
	close(s.done)
}

// errSessionLost is returned for what was under way when the connection ended.
var errSessionLost = errors.New("the connection to the daemon was lost")

// begin asks the daemon and does not wait for the answer: done gets it, or why
// there is none, once, on a goroutine that it must not hold up.
func begin[A any](ctx context.Context, s *remoteSession, method string, params any, progress func(json.RawMessage), done func(*A, error)) {
	id := s.next.Add(1)
	w := &waiter{progress: progress, writing: true}
	w.answer = func(f frame, err error) {
		if w.stop != nil {
			w.stop()
		}
		if err == nil && f.Error != nil {
			err = f.Error
		}
		if err != nil {
			done(nil, err)
			return
		}
		var a A
		if err := json.Unmarshal(f.Result, &a); err != nil {
			done(nil, fmt.Errorf("reading the answer of the daemon: %w", err))
			return
		}
		done(&a, nil)
	}
	s.mu.Lock()
	over := s.waiting == nil
	if !over {
		s.waiting[id] = w
	}
	s.mu.Unlock()
	var failed error
	switch {
	case over:
		w.answer(frame{}, Errorf(CodeNoDaemon, "no daemon is attached").WithHint("start it with `toolsd start`"))
		return
	case ctx.Err() != nil:
		failed = context.Cause(ctx)
	case s.out.write(outFrame{ID: id, Method: method, Params: params}) != nil:
		// Half a frame may be out, which the daemon never acts on: nothing was asked.
		s.conn.Close()
		failed = Errorf(CodeNoDaemon, "the connection to the daemon was lost").WithHint("start it with `toolsd start`")
	}
	s.mu.Lock()
	w.writing = false
	mine := w.lost
	switch {
	case s.waiting[id] != w:
	case failed != nil:
		delete(s.waiting, id)
		mine = true
	default: // now that the question is out, it can be taken back
		w.stop = context.AfterFunc(ctx, func() {
			if s.waiter(id, true) != nil {
				_ = s.out.write(outFrame{Method: "cancel", Params: cancelParams{id}})
				done(nil, context.Cause(ctx))
			}
		})
	}
	s.mu.Unlock()
	if mine {
		w.answer(frame{}, cmp.Or(failed, errSessionLost))
	}
}

func (s *remoteSession) Search(ctx context.Context, r SearchRequest) (*SearchResult, error) {
	return Await(func(done func(*SearchResult, error)) { begin(ctx, s, "search", r, nil, done) })
}

func (s *remoteSession) Call(ctx context.Context, c SessionCall) (*CallOutcome, error) {
	return Await(func(done func(*CallOutcome, error)) { s.Begin(ctx, c, done) })
}

func (s *remoteSession) Begin(ctx context.Context, c SessionCall, done func(*CallOutcome, error)) {
	if c.Progress != nil {
		c.Meta = askProgress(c.Meta)
	}
	begin(ctx, s, "call", c, c.Progress, func(outcome *CallOutcome, err error) {
		if errors.Is(err, errSessionLost) {
			err = sent(err)
		}
		done(outcome, err)
	})
}

func (s *remoteSession) Saw(_ context.Context, seen map[tool.ID]tool.Hash, listed bool) error {
	return s.out.write(outFrame{Method: "seen", Params: seenParams{seen, listed}})
}
