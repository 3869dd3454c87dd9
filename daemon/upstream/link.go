package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolsd/toolsd/index/tool"
)

// conn is a connection of any transport, before the protocol has begun.
type conn interface {
	side() *peer
	pid() int
	setVersion(v string) // the negotiated one, for transports that repeat it
	close(ctx context.Context)
}

// link is a connection on which the handshake is done.
type link struct {
	conn
	peer    *peer
	client  *client.Client
	adapter *adapter
	http    bool

	version      string
	modern       bool
	instructions string
	hasTools     bool
	listChanged  bool        // it announces changes of its tools
	refused      atomic.Bool // but not to us
	began        time.Time
	ttl          time.Duration // how long the last list counts as fresh; no two are asked for at a time

	changed chan struct{} // list_changed, at most one waiting

	ctx  context.Context // the link's life, for what runs in the background
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	users   int // calls in flight
	last    time.Time
	closing bool
}

// discoverLimit bounds the first question on HTTP, whether the server speaks the
// modern protocol. An old server refuses it at once; one that hangs on it must
// not cost a start more than this.
const discoverLimit = 2 * time.Second

// handshake makes a link of c. The protocol is auto, legacy or modern. Legacy
// comes first on stdio: old servers there ignore what they do not know, or exit.
func handshake(ctx context.Context, c conn, protocol, version string) (*link, error) {
	_, isHTTP := c.(*httpConn)
	options := []client.ClientOption{client.WithDiscoverTimeout(discoverLimit)}
	switch {
	case protocol == "modern":
		options = append(options, client.WithProtocolVersion(mcp.LATEST_PROTOCOL_VERSION), client.WithDiscoverTimeout(-1))
	case protocol == "legacy" || !isHTTP:
		options = append(options, client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	}
	l, err := greet(ctx, c, version, options...)
	var refused *RPCError
	if errors.As(err, &refused) && protocol != "legacy" && protocol != "modern" && !isHTTP {
		if modern, err2 := greet(ctx, c, version, client.WithDiscoverTimeout(discoverLimit)); err2 == nil {
			l, err = modern, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if protocol == "modern" && !l.modern {
		l.end()
		return nil, fmt.Errorf("it speaks protocol %s, and its entry asks for a modern one", l.version)
	}
	l.http = isHTTP
	l.listen()
	return l, nil
}

func greet(ctx context.Context, c conn, version string, options ...client.ClientOption) (*link, error) {
	a := &adapter{conn: c}
	var t transport.Interface = a
	if _, ok := c.(*httpConn); ok {
		t = httpAdapter{a}
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &link{conn: c, peer: c.side(), client: client.NewClient(t, options...), adapter: a, ctx: life, end: end, began: time.Now(), last: time.Now()}
	err := l.client.Start(life)
	var hello *mcp.InitializeResult
	if err == nil {
		hello, err = l.client.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
			ClientInfo: mcp.Implementation{Name: "toolsd", Version: version},
		}})
	}
	if err != nil {
		end()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if a.last != nil {
			err = a.last // the library's own loses what the server said
		}
		var unsupported mcp.UnsupportedProtocolVersionError
		if errors.As(err, &unsupported) {
			return nil, fmt.Errorf("it answered initialize with protocol version %q, which toolsd does not speak", unsupported.Version)
		}
		return nil, fmt.Errorf("its handshake: %w", err)
	}
	l.version, l.modern = hello.ProtocolVersion, mcp.IsModernProtocol(hello.ProtocolVersion)
	var said struct {
		Instructions json.RawMessage            `json:"instructions"`
		Capabilities map[string]json.RawMessage `json:"capabilities"`
	}
	_ = json.Unmarshal(a.hello, &said)
	_ = json.Unmarshal(said.Instructions, &l.instructions)
	l.instructions, _ = tool.Clean(l.instructions)
	if tools, ok := said.Capabilities["tools"]; ok && string(tools) != "null" && string(tools) != "false" {
		l.hasTools = true
		var can struct {
			ListChanged bool `json:"listChanged"`
		}
		_ = json.Unmarshal(tools, &can)
		l.listChanged = can.ListChanged
	}
	return l, nil
}

// listen opens whatever this server needs to be able to announce changes. On
// stdio and for the legacy SSE there is nothing to open.
func (l *link) listen() {
	if !l.listChanged {
		return
	}
	var open func(ctx context.Context) error
	switch h, isHTTP := l.conn.(*httpConn); {
	case l.modern:
		open = func(ctx context.Context) error {
			err := l.client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
			return cmp.Or(l.adapter.last, err) // the library's own loses what the server said
		}
	case isHTTP:
		open = h.listen
	default:
		return
	}
	l.work.Go(func() {
		p := newPolicy()
		for {
			opened := time.Now()
			err := open(l.ctx)
			if l.ctx.Err() != nil || l.peer.cause() != nil || errors.Is(err, errNoListening) {
				return
			}
			var refused *RPCError
			if errors.As(err, &refused) {
				l.refused.Store(true)
				l.peer.notes.add("listen", "it announces changes of its tools but refused to be listened to: %s", refused.Message)
				return
			}
			p.lived(time.Since(opened))
			retry, _ := p.failed(time.Now())
			t := time.NewTimer(time.Until(retry))
			select {
			case <-t.C:
				l.peer.onChanged() // one may have been missed meanwhile
			case <-l.ctx.Done():
				t.Stop()
				return
			}
		}
	})
}

// hears reports whether the server says when its tools change. Of a legacy one
// that does not, nothing else is promised either.
func (l *link) hears() bool { return !l.modern || l.listChanged && !l.refused.Load() }

// close ends the link and waits for all of it.
func (l *link) close(ctx context.Context) {
	l.end()
	l.conn.close(ctx)
	l.work.Wait()
}

// use counts a call in; false means that the link is being closed for idleness.
func (l *link) use() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.users++
	return true
}

func (l *link) unuse() {
	l.mu.Lock()
	l.users--
	l.last = time.Now()
	l.mu.Unlock()
}

// busy reports whether calls are in flight.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users > 0
}

// idle returns when the link will have been unused for d. When that is over it
// closes it for new calls and returns the zero time.
func (l *link) idle(now time.Time, d time.Duration) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users > 0 {
		return now.Add(d)
	}
	if until := l.last.Add(d); until.After(now) {
		return until
	}
	l.closing = true
	return time.Time{}
}

// ping asks the server for a sign of life. Any answer is one.
func (l *link) ping(ctx context.Context) error {
	if l.modern {
		return nil // it knows no ping
	}
	_, err := l.peer.request(ctx, request{method: "ping"})
	var refused *RPCError
	if err == nil || errors.As(err, &refused) {
		return nil
	}
	return err
}

// request sends a request with what this protocol version wants in each: the
// params are an object without _meta, or empty, and meta the members of _meta.
func (l *link) request(ctx context.Context, method string, params []byte, meta json.RawMessage, progress func(json.RawMessage), arguments *tool.Tool) (json.RawMessage, error) {
	result, err := l.peer.request(ctx, l.build(method, params, meta, progress, arguments))
	return l.judge(result, err)
}

// begin is request for who does not wait; see peer.begin.
func (l *link) begin(ctx context.Context, method string, params []byte, meta json.RawMessage, arguments *tool.Tool, done func(json.RawMessage, error)) bool {
	return l.peer.begin(ctx, l.build(method, params, meta, nil, arguments), func(result json.RawMessage, err error) { done(l.judge(result, err)) })
}

func (l *link) build(method string, params []byte, meta json.RawMessage, progress func(json.RawMessage), arguments *tool.Tool) request {
	r := request{method: method, progress: progress}
	if l.modern && l.http {
		r.header = http.Header{}
		for name, value := range mcp.StandardHeaders(l.version, mcp.MCPMethod(method), params) {
			r.header.Set(name, value)
		}
		if arguments != nil {
			typed := mcp.Tool{Name: arguments.Name, RawInputSchema: arguments.InputSchema}
			for name, value := range mcp.GenerateParamHeaders(&typed, params) {
				r.header.Set(name, value)
			}
		}
	}
	r.params = func(id int64) json.RawMessage {
		ours := map[string]any{}
		if l.modern {
			ours[mcp.MetaKeyProtocolVersion] = l.version
			ours[mcp.MetaKeyClientInfo] = mcp.Implementation{Name: "toolsd"}
			ours[mcp.MetaKeyClientCapabilities] = struct{}{}
		}
		if progress != nil {
			ours["progressToken"] = id
		}
		return withMeta(params, mergeMeta(meta, ours))
	}
	return r
}

func (l *link) judge(result json.RawMessage, err error) (json.RawMessage, error) {
	if err == nil && l.modern {
		err = declined(result)
	}
	return result, err
}

// declined reports the one kind of result that is none: the modern protocol's
// question for input, which has no one to go to.
func declined(result json.RawMessage) error {
	var r struct {
		Type     string `json:"resultType"`
		Requests map[string]struct {
			Method string `json:"method"`
		} `json:"inputRequests"`
	}
	if json.Unmarshal(result, &r) != nil || r.Type != "input_required" {
		return nil
	}
	for _, asked := range r.Requests {
		return fmt.Errorf("the server asks for input (%s) before it answers, which toolsd cannot pass on", asked.Method)
	}
	return errors.New("the server asks to be called again later")
}
