package shim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// newServer is mcp-go's half of the work: it negotiates versions, says what this
// server can do, and knows every method of the protocol well enough to refuse
// those that it does not have. It gets neither ids nor tools: it rounds numbers
// above 2^53, makes every error of a handler -32603, and its tool lists are not
// in an order of our choosing. It needs no session of its own either, since
// there is one agent per process.
func newServer(version, instructions string) *server.MCPServer {
	return server.NewMCPServer("toolsd", version, server.WithToolCapabilities(true), server.WithInstructions(instructions))
}

// ask lets mcp-go answer a request.
func ask(ctx context.Context, srv *server.MCPServer, method string, params json.RawMessage) (json.RawMessage, *rpcError) {
	// Without _meta a request cannot claim to be of the stateless protocol, whose
	// rules this server does not follow.
	if members, err := object(params); err == nil && members["_meta"] != nil {
		delete(members, "_meta")
		params = encode(members)
	}
	request := struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      int             `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
	}{"2.0", 1, method, params}
	switch r := srv.HandleMessage(ctx, encode(request)).(type) {
	case mcp.JSONRPCResponse:
		return encode(r.Result), nil
	case mcp.JSONRPCError:
		err := &rpcError{Code: int64(r.Error.Code), Message: r.Error.Message}
		if r.Error.Data != nil {
			err.Data = encode(r.Error.Data)
		}
		return nil, err
	}
	return nil, &rpcError{Code: codeInternal, Message: "no answer to " + method}
}

// requests are those that are being answered.
type requests struct {
	mu      sync.Mutex
	running map[string]context.CancelFunc
}

// start adds a request. It refuses an id that is in use: its answers could not
// be told apart.
func (r *requests) start(id string, cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[string]context.CancelFunc{}
	}
	if r.running[id] != nil {
		return false
	}
	r.running[id] = cancel
	return true
}

// take removes a request and reports whether it was still there. Whoever takes
// it decides what becomes of its answer.
func (r *requests) take(id string) (context.CancelFunc, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancel, ok := r.running[id]
	delete(r.running, id)
	return cancel, ok
}

// read takes in messages until In ends.
func (s *shim) read(ctx context.Context, r *bufio.Reader) error {
	for {
		line, err := readMessage(r)
		switch {
		case errors.Is(err, errTooLong):
			s.out.send(answer(nil, nil, &rpcError{Code: codeInvalidRequest, Message: "the message is longer than 64 MiB; pass a path to the tool instead of the content, if it takes one"}))
		case err != nil:
			return err
		case len(line) > 0:
			s.receive(ctx, line)
		}
	}
}

// receive takes in a line: a message, or a batch of them.
func (s *shim) receive(ctx context.Context, line []byte) {
	if !json.Valid(line) {
		s.out.send(answer(nil, nil, &rpcError{Code: codeParse, Message: "not valid JSON"}))
		return
	}
	if line[0] != '[' {
		s.dispatch(ctx, line, func(b []byte) {
			if b != nil {
				s.out.send(b)
			}
		})
		return
	}
	var parts []json.RawMessage
	if json.Unmarshal(line, &parts) != nil || len(parts) == 0 {
		s.out.send(answer(nil, nil, &rpcError{Code: codeInvalidRequest, Message: "a batch must hold a message"}))
		return
	}
	s.batch(ctx, parts)
}

// batch answers all messages of a batch in one array, in the order in which
// they were answered. A batch without a request has no answer.
func (s *shim) batch(ctx context.Context, parts []json.RawMessage) {
	var (
		mu      sync.Mutex
		answers [][]byte
		open    = len(parts)
	)
	reply := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if b != nil {
			answers = append(answers, b)
		}
		if open--; open == 0 && len(answers) > 0 {
			s.out.send(slices.Concat([]byte("["), bytes.Join(answers, []byte(",")), []byte("]")))
		}
	}
	for _, p := range parts {
		s.dispatch(ctx, p, reply)
	}
}

// dispatch starts what a message asks for. reply is called exactly once, with
// nil when there is nothing to answer.
func (s *shim) dispatch(ctx context.Context, raw []byte, reply func([]byte)) {
	m, refused := parseMessage(raw)
	switch {
	case m == nil && refused == nil:
		reply(nil)
	case refused != nil:
		var id json.RawMessage
		if m != nil {
			id = m.ID
		}
		reply(answer(id, nil, refused))
	case m.ID == nil:
		s.notified(m)
		reply(nil)
	default:
		s.request(ctx, m, reply)
	}
}

// notified acts on a notification, before the next message is read.
func (s *shim) notified(m *message) {
	switch m.Method {
	case "notifications/initialized":
		s.view.open()
	case "notifications/cancelled":
		var params struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &params) != nil || params.RequestID == nil {
			return
		}
		if cancel, ok := s.requests.take(key(params.RequestID)); ok {
			cancel()
		}
	}
}

// request answers a request on a goroutine of its own.
func (s *shim) request(ctx context.Context, m *message, reply func([]byte)) {
	switch m.Method {
	case "initialize":
		var params struct {
			ClientInfo struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"clientInfo"`
		}
		_ = json.Unmarshal(m.Params, &params) // mcp-go says what is wrong with it
		s.begin(ctx, params.ClientInfo.Name, params.ClientInfo.Version)
		// The protocol forbids to cancel it, so it is not among the requests.
		s.start(func() {
			s.handle(ctx, m, func(result json.RawMessage, err *rpcError) { reply(answer(m.ID, result, err)) })
		})
		return
	case "tools/list", "tools/call":
		// A client that skips the handshake is one nobody knows, no more.
		s.begin(ctx, "", "")
		s.view.open()
	}
	id := key(m.ID)
	ctx, cancel := context.WithCancel(ctx)
	if !s.requests.start(id, cancel) {
		cancel()
		reply(answer(m.ID, nil, &rpcError{Code: codeInvalidRequest, Message: "a request with this id is running"}))
		return
	}
	s.start(func() {
		defer cancel()
		send := func(result json.RawMessage, err *rpcError) {
			if _, wanted := s.requests.take(id); !wanted {
				reply(nil) // cancelled: the agent has forgotten it
				return
			}
			reply(answer(m.ID, result, err))
		}
		s.handle(ctx, m, send)
	})
}

// handle answers through send, exactly once.
func (s *shim) handle(ctx context.Context, m *message, send func(json.RawMessage, *rpcError)) {
	switch m.Method {
	case "initialize":
		<-s.decided
		send(ask(ctx, newServer(s.o.Version, s.instructions()), m.Method, m.Params))
	case "tools/list":
		<-s.decided
		s.list(ctx, send)
	case "tools/call":
		<-s.decided
		send(s.call(ctx, m))
	case "server/discover":
		// The stateless protocol forbids a list of tools that varies by session,
		// which is what this server is for. Clients fall back to initialize.
		send(nil, &rpcError{Code: codeNoMethod, Message: "this server speaks the protocol versions that begin with initialize (2024-11-05 to 2025-11-25)"})
	default:
		send(ask(ctx, s.base, m.Method, m.Params))
	}
}

// list answers tools/list from memory. The daemon is told first, so that no call
// can overtake the news that its tool has been seen.
func (s *shim) list(ctx context.Context, send func(json.RawMessage, *rpcError)) {
	for {
		rendered, hashes := s.view.current()
		s.link.listed(ctx, rendered, hashes)
		if s.view.serve(rendered, func() { send(rendered, nil) }) {
			return
		}
	}
}
