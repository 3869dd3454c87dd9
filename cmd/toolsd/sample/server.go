// Package sample holds two small MCP servers that do real work in memory: an
// electronics board editor and a notebook. `toolsd demo` runs them, and so do
// the tests that want a server without npm or a network. The loop of server.go
// serves any tools, over stdio, in the legacy (initialize) protocol.
package sample

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Tool is one tool of a Server.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations *Annotations    `json:"annotations,omitempty"`

	// Run gets the arguments as they were sent. What it returns becomes the
	// result: a string is its text, a Result is taken as it is, anything else
	// becomes structured content with the same JSON as text. An *RPCError is a
	// JSON-RPC error, any other error a result with isError.
	Run func(ctx context.Context, arguments json.RawMessage, progress Progress) (any, error) `json:"-"`
}

// Annotations are the hints that clients base their permission questions on.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
}

// Progress reports how far a call is. It does nothing if the caller did not ask.
type Progress func(done, total int, message string)

// Content is one piece of a result.
type Content struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Data     []byte `json:"data,omitempty"`
	MIMEType string `json:"mimeType,omitempty"`
}

// Result is a CallToolResult.
type Result struct {
	Content    []Content `json:"content"`
	Structured any       `json:"structuredContent,omitempty"`
	IsError    bool      `json:"isError,omitempty"`
}

// RPCError is a JSON-RPC error.
type RPCError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return e.Message }

// Server is a set of tools under a name.
type Server struct {
	Name         string
	Instructions string
	Tools        []Tool
}

// protocols are the revisions of the legacy protocol, the newest last.
var protocols = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// conn is one client's connection.
type conn struct {
	server *Server
	calls  sync.WaitGroup

	writing sync.Mutex
	out     io.Writer

	mu      sync.Mutex
	running map[string]context.CancelFunc // by the request's id as sent
}

// Serve answers one client until in ends.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{server: s, out: out, running: map[string]context.CancelFunc{}}
	defer c.calls.Wait()
	defer cancel()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			c.handle(ctx, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the client: %w", err)
		}
	}
}

func (c *conn) handle(ctx context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		c.write(answer{ID: json.RawMessage("null"), Error: &RPCError{Code: -32700, Message: "not a JSON-RPC message"}})
		return
	}
	switch m.Method {
	case "initialize":
		c.write(answer{ID: m.ID, Result: c.initialize(m.Params)})
	case "ping":
		c.write(answer{ID: m.ID, Result: struct{}{}})
	case "tools/list":
		c.write(answer{ID: m.ID, Result: map[string]any{"tools": c.server.Tools}})
	case "tools/call":
		ctx, cancel := context.WithCancel(ctx)
		c.mu.Lock()
		c.running[string(m.ID)] = cancel
		c.mu.Unlock()
		c.calls.Go(func() { c.call(ctx, m) })
	case "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &p) == nil {
			c.end(p.ID)
		}
	default:
		if m.ID != nil && m.Method != "" {
			c.write(answer{ID: m.ID, Error: &RPCError{Code: -32601, Message: "there is no method " + m.Method}})
		}
	}
}

func (c *conn) initialize(params json.RawMessage) any {
	var p struct {
		Version string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(params, &p) // without a version the newest is offered
	if !slices.Contains(protocols, p.Version) {
		p.Version = protocols[len(protocols)-1]
	}
	return map[string]any{
		"protocolVersion": p.Version,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]string{"name": c.server.Name, "version": "1.0.0"},
		"instructions":    c.server.Instructions,
	}
}

// end cancels a call and forgets it.
func (c *conn) end(id json.RawMessage) {
	c.mu.Lock()
	cancel := c.running[string(id)]
	delete(c.running, string(id))
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (c *conn) call(ctx context.Context, m message) {
	defer c.end(m.ID)
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		c.write(answer{ID: m.ID, Error: &RPCError{Code: -32602, Message: "the params of tools/call are not an object with a name"}})
		return
	}
	i := slices.IndexFunc(c.server.Tools, func(t Tool) bool { return t.Name == p.Name })
	if i < 0 {
		c.write(answer{ID: m.ID, Error: &RPCError{Code: -32602, Message: fmt.Sprintf("there is no tool %q", p.Name)}})
		return
	}
	if len(p.Arguments) == 0 {
		p.Arguments = json.RawMessage("{}")
	}
	progress := func(done, total int, text string) {
		if p.Meta.Token != nil {
			c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{
				"progressToken": p.Meta.Token, "progress": done, "total": total, "message": text,
			}})
		}
	}
	value, err := c.server.Tools[i].Run(ctx, p.Arguments, progress)
	if ctx.Err() != nil {
		return // a cancelled request gets no answer
	}
	if rpc, ok := errors.AsType[*RPCError](err); ok {
		c.write(answer{ID: m.ID, Error: rpc})
		return
	}
	c.write(answer{ID: m.ID, Result: result(value, err)})
}

func result(value any, err error) Result {
	if err != nil {
		return Result{Content: []Content{{Type: "text", Text: err.Error()}}, IsError: true}
	}
	switch v := value.(type) {
	case Result:
		return v
	case string:
		return Result{Content: []Content{{Type: "text", Text: v}}}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return Result{Content: []Content{{Type: "text", Text: err.Error()}}, IsError: true}
	}
	return Result{Content: []Content{{Type: "text", Text: string(text)}}, Structured: value}
}

func (c *conn) write(v any) {
	if a, ok := v.(answer); ok {
		a.Version = "2.0"
		v = a
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sample: a message of our own does not encode: %v", err))
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.out.Write(append(data, '\n')) // a client that left closes our input too
}
