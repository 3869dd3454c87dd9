package shim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// agent is an MCP client at the shim's other end. It keeps everything that it
// was sent, in order.
type agent struct {
	t       testing.TB
	in      *io.PipeWriter
	relists bool          // lists again when it is told that the tools changed
	delay   time.Duration // how long that takes
	ended   chan error    // what Run returned
	cancel  context.CancelFunc

	mu      sync.Mutex
	next    int
	lines   []string
	tools   []json.RawMessage
	waiting map[string]chan reply
	changed int // notifications
	init    json.RawMessage
}

type reply struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *ipc.RPCError   `json:"error"`
}

type option func(*agent, *shim.Options)

// start runs a shim for an agent that has said nothing yet.
func start(t testing.TB, w world, options ...option) *agent {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	a := &agent{t: t, in: inW, ended: make(chan error, 1), waiting: map[string]chan reply{}, cancel: cancel}
	o := shim.Options{In: inR, Out: outW, Connect: w.Connect, CWD: t.TempDir(), Log: slog.New(slog.DiscardHandler), Version: "1.2.3"}
	for _, f := range options {
		f(a, &o)
	}
	go func() {
		err := shim.Run(ctx, o)
		outW.Close()
		inR.Close()
		a.ended <- err
		close(a.ended)
	}()
	read := make(chan struct{})
	go func() { defer close(read); a.read(outR) }()
	t.Cleanup(func() {
		inW.Close()
		<-a.ended
		<-read
		cancel()
	})
	return a
}

func relisting(a *agent, _ *shim.Options) { a.relists = true }

func mode(m ipc.Mode) option { return func(_ *agent, o *shim.Options) { o.Mode = m } }

// attach runs a shim and shakes hands with it as the client of that name.
func attach(t testing.TB, w world, client string, options ...option) *agent {
	t.Helper()
	a := start(t, w, options...)
	a.initialize(client)
	a.list()
	return a
}

func (a *agent) initialize(client string) {
	a.t.Helper()
	r := a.request("initialize", fmt.Sprintf(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":%q,"version":"9"}}`, client))
	if r.Error != nil {
		a.t.Fatalf("initialize: %v", r.Error)
	}
	a.init = r.Result
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (a *agent) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		a.mu.Lock()
		a.lines = append(a.lines, line)
		var m reply
		var to chan reply
		if json.Unmarshal([]byte(line), &m) == nil && m.Method == "" {
			to = a.waiting[string(m.ID)]
			delete(a.waiting, string(m.ID))
		}
		again := m.Method == "notifications/tools/list_changed"
		if again {
			a.changed++
		}
		again = again && a.relists
		delay := a.delay
		a.mu.Unlock()
		if to != nil {
			to <- m
		}
		if again {
			go func() {
				if delay > 0 {
					time.Sleep(delay) // in a bubble only
				}
				a.list()
			}()
		}
	}
}

func (a *agent) send(line string) {
	a.t.Helper()
	if _, err := io.WriteString(a.in, line+"\n"); err != nil {
		a.t.Errorf("writing to the shim: %v", err)
	}
}

// begin sends a request and returns its id and where its answer will come.
func (a *agent) begin(method, params string) (string, <-chan reply) {
	a.t.Helper()
	a.mu.Lock()
	a.next++
	id := fmt.Sprint(a.next)
	to := make(chan reply, 1)
	a.waiting[id] = to
	a.mu.Unlock()
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id, to
}

func (a *agent) request(method, params string) reply {
	a.t.Helper()
	_, to := a.begin(method, params)
	return <-to
}

// list asks for the tools and returns their names.
func (a *agent) list() []string {
	a.t.Helper()
	r := a.request("tools/list", `{}`)
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(r.Result, &list); err != nil {
		a.t.Errorf("tools/list: %v", err)
	}
	a.mu.Lock()
	a.tools = list.Tools
	a.mu.Unlock()
	return a.names()
}

// names are those of the tools that the client listed last.
func (a *agent) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, raw := range a.tools {
		var t struct{ Name string }
		if json.Unmarshal(raw, &t) != nil {
			a.t.Errorf("a tool that is none: %s", raw)
		}
		names = append(names, t.Name)
	}
	return names
}

func (a *agent) definition(name string) json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, raw := range a.tools {
		var t struct{ Name string }
		if json.Unmarshal(raw, &t) == nil && t.Name == name {
			return raw
		}
	}
	return nil
}

type result struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
	raw     json.RawMessage
}

func (r result) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func (a *agent) call(name, arguments string) result {
	a.t.Helper()
	return a.result(a.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments)))
}

func (a *agent) result(r reply) result {
	a.t.Helper()
	out := result{raw: r.Result}
	if r.Error != nil {
		a.t.Fatalf("a JSON-RPC error where a result was due: %d %s", r.Error.Code, r.Error.Message)
	}
	if err := json.Unmarshal(r.Result, &out); err != nil {
		a.t.Fatalf("a result that is none: %v: %s", err, r.Result)
	}
	return out
}

type found struct {
	Query   string `json:"query"`
	Count   int    `json:"count"`
	Matches []struct {
		ToolID      string          `json:"tool_id"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	} `json:"matches"`
	Note string `json:"note"`
}

func (a *agent) search(query string) found {
	a.t.Helper()
	r := a.call("tool_search", fmt.Sprintf(`{"query":%q}`, query))
	var f found
	if err := json.Unmarshal([]byte(r.text()), &f); err != nil || r.IsError {
		a.t.Fatalf("tool_search %q: %s", query, r.text())
	}
	return f
}

func (a *agent) transcript() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.lines...)
}

func (a *agent) notifications() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// stuck takes what an agent is sent until a list of tools comes, and never more.
type stuck struct {
	lists chan bool // closed when one has come
	held  chan bool
}

func (w stuck) Write(p []byte) (int, error) {
	if strings.Contains(string(p), `"tools":[`) {
		close(w.lists)
		<-w.held
	}
	return len(p), nil
}

// TestAListThatIsNotReadHoldsUpNothing: the daemon's lists are taken over while the
// agent does not read one that it asked for.
func TestAListThatIsNotReadHoldsUpNothing(t *testing.T) {
	w := newMemoryWorld(t)
	out := stuck{make(chan bool), make(chan bool)}
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`
	r, feed := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- shim.Run(t.Context(), shim.Options{In: r, Out: out, Connect: w.Connect, Mode: ipc.Direct})
	}()
	if _, err := io.WriteString(feed, in); err != nil {
		t.Fatal(err)
	}
	<-out.lists
	taken := make(chan bool)
	go func() {
		w.Set("kicad", `{"name":"echo","inputSchema":{"type":"object"}}`)
		close(taken)
	}()
	select {
	case <-taken:
	case <-time.After(10 * time.Second):
		t.Error("a new list waits for the agent to read the old one")
	}
	close(out.held)
	feed.Close()
	<-ended
}
