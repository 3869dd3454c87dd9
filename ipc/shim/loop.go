package shim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

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
		if err.Code == codeInvalidRequest { // all but the params is ours
			*err = rpcError{Code: codeInvalidParams, Message: "the params of " + method + " are not as the protocol has them"}
		}
		if r.Error.Data != nil {
			err.Data = encode(r.Error.Data)
		}
		return nil, err
	}
	return nil, &rpcError{Code: codeInternal, Message: "no answer to " + method}
}

// asksForVersion gives params of initialize that name no version the latest one
// that begins with initialize: it is what a server answers when it does not know
// what is asked for. mcp-go takes them for an old client over HTTP.
func asksForVersion(params json.RawMessage) json.RawMessage {
	members, err := object(params)
	if err != nil {
		return params // mcp-go says what is wrong with it
	}
	if v := string(members["protocolVersion"]); v != "" && v != "null" && v != `""` {
		return params
	}
	members["protocolVersion"] = encode(mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	return encode(members)
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

// several reports whether more than one is running.
func (r *requests) several() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) > 1
}

// job is what remains to be done for a request when the next message may be read.
// done is called when its answer is queued.
type job func(done func())

// respond sends the answer to a request, once.
type respond func(json.RawMessage, *rpcError)

// handOver is how long a request may take before another goroutine reads on.
// Most answers of a warm server come sooner, and then no thread had to be woken,
// which on a busy machine costs more than all else that is done here.
const handOver = time.Millisecond

// read takes in messages and answers them until In ends, and says so on ended. It
// answers a request that is alone itself; when that takes longer than handOver,
// another goroutine reads on.
func (s *shim) read(ctx context.Context, r *bufio.Reader, ended chan<- error) {
	for {
		jobs, err := s.next(ctx, r)
		// They begin before somebody can read that In has ended.
		if err == nil && !s.enter(len(jobs)) {
			err = io.EOF
		}
		if err != nil {
			ended <- err
			return
		}
		for _, j := range jobs[1:] {
			go s.finish(j)
		}
		if s.requests.several() {
			go s.finish(jobs[0])
			continue
		}
		late := time.AfterFunc(handOver, func() { s.read(ctx, r, ended) })
		s.finish(jobs[0])
		if !late.Stop() {
			return
		}
	}
}

// byteOrderMark is what some programs on Windows begin a stream of text with.
var byteOrderMark = []byte("\uFEFF")

// next reads until there is something to be done.
func (s *shim) next(ctx context.Context, r *bufio.Reader) ([]job, error) {
	for {
		line, err := readMessage(r, maxMessage)
		if !s.begun {
			s.begun = true
			line = bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))
		}
		switch {
		case errors.Is(err, errTooLong):
			s.refuse(codeInvalidRequest, "the message is longer than 64 MiB; pass a path to the tool instead of the content, if it takes one")
		case err != nil:
			return nil, err
		case len(line) > 0:
			if jobs := s.receive(ctx, line); len(jobs) > 0 {
				return jobs, nil
			}
		}
	}
}

// finish does a job that was entered, and writes its answer. The job is done
// when that is queued: an agent that does not read holds up nothing else.
func (s *shim) finish(j job) {
	j(func() {
		s.leave()
		s.out.flush()
	})
}

// refuse answers what cannot be told to be a request.
func (s *shim) refuse(code int64, message string) {
	s.out.put(answer(nil, nil, &rpcError{Code: code, Message: message}))
}

// receive takes in a line: a message, or a batch of them.
func (s *shim) receive(ctx context.Context, line []byte) []job {
	if !json.Valid(line) {
		s.refuse(codeParse, "not valid JSON")
		return nil
	}
	if line[0] != '[' {
		j := s.dispatch(ctx, line, func(b []byte) {
			if b != nil {
				s.out.add(b)
			}
		})
		if j == nil {
			s.out.signal() // it was answered at once, or needs no answer
			return nil
		}
		return []job{j}
	}
	var parts []json.RawMessage
	if json.Unmarshal(line, &parts) != nil || len(parts) == 0 {
		s.refuse(codeInvalidRequest, "a batch must hold a message")
		return nil
	}
	return s.batch(ctx, parts)
}

// batch answers all messages of a batch in one array, in the order in which
// they were answered. A batch without a request has no answer.
func (s *shim) batch(ctx context.Context, parts []json.RawMessage) (jobs []job) {
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
			s.out.add(slices.Concat([]byte("["), bytes.Join(answers, []byte(",")), []byte("]")))
		}
	}
	for _, p := range parts {
		if j := s.dispatch(ctx, p, reply); j != nil {
			jobs = append(jobs, j)
		}
	}
	s.out.signal()
	return jobs
}

// dispatch acts on a message as far as the next one depends on it, and returns
// what else is to be done. reply is called exactly once, with nil when there is
// nothing to answer.
func (s *shim) dispatch(ctx context.Context, raw []byte, reply func([]byte)) job {
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
		return s.request(ctx, m, reply)
	}
	return nil
}

// notified acts on a notification, before the next message is read.
func (s *shim) notified(m *message) {
	switch m.Method {
	case "notifications/initialized":
		s.view.open()
	case "notifications/cancelled":
		params, err := object(m.Params)
		if id := params["requestId"]; err == nil && !empty(id) {
			if cancel, ok := s.requests.take(key(id)); ok {
				cancel()
			}
		}
	}
}

// request notes a request and returns what answers it.
func (s *shim) request(ctx context.Context, m *message, reply func([]byte)) job {
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
		greeted := s.view.greet()
		return func(done func()) {
			s.handle(ctx, m, always, func(result json.RawMessage, err *rpcError) { reply(answer(m.ID, result, err)) }, func() {
				greeted()
				done()
			})
		}
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
		return nil
	}
	return func(done func()) {
		taken := false
		claim := func() bool {
			if !taken {
				_, taken = s.requests.take(id)
			}
			return taken
		}
		send := func(result json.RawMessage, err *rpcError) {
			if claim() {
				reply(answer(m.ID, result, err))
			} else {
				reply(nil) // cancelled: the agent has forgotten it
			}
		}
		s.handle(ctx, m, claim, send, func() {
			cancel()
			done()
		})
	}
}

// claim reports whether the agent still waits for an answer. After that it gets
// one: a cancellation comes too late. Whoever notes that an answer shows something
// claims it first, for what was never sent was not shown.
type claim func() bool

// always is the claim of what cannot be cancelled.
func always() bool { return true }

// handle answers through send, exactly once, and then calls done, maybe after it
// returned. send only queues: it is called under the lock of view.
func (s *shim) handle(ctx context.Context, m *message, wanted claim, send respond, done func()) {
	switch m.Method {
	case "tools/call":
		<-s.decided
		s.view.awaitGreeting()
		s.call(ctx, m, wanted, func(result json.RawMessage, err *rpcError) {
			send(result, err)
			done()
		})
		return
	case "initialize":
		<-s.decided
		send(ask(ctx, newServer(s.o.Version, s.instructions()), m.Method, asksForVersion(m.Params)))
	case "tools/list":
		<-s.decided
		s.view.awaitGreeting()
		if wanted() {
			s.list(ctx, send)
		} else {
			send(nil, nil)
		}
	case "server/discover":
		// The stateless protocol forbids a list of tools that varies by session,
		// which is what this server is for. Clients fall back to initialize.
		send(nil, &rpcError{Code: codeNoMethod, Message: "this server speaks the protocol versions that begin with initialize (2024-11-05 to 2025-11-25)"})
	default:
		send(ask(ctx, s.base, m.Method, m.Params))
	}
	done()
}

// list answers tools/list from memory. The daemon is told first, so that no call
// can overtake the news that its tool has been seen.
func (s *shim) list(ctx context.Context, send respond) {
	for {
		rendered, hashes := s.view.current()
		s.link.listed(ctx, rendered, hashes)
		if s.view.serve(rendered, func() { send(rendered, nil) }) {
			return
		}
	}
}
