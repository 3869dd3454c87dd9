// Package faultserver is an MCP server that does wrong what servers do wrong,
// one mode per fault, over stdio and over HTTP. Tests start it as a program or
// run it in their own process; it depends on nothing but the standard library
// and promises nothing to anybody else.
package faultserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Modes are all modes over stdio. Each is the good server but for one thing.
var Modes = []string{
	"ok",          // nothing wrong
	"banner",      // prints a banner before it speaks
	"bom",         // begins with a byte order mark
	"blank",       // blank lines between messages
	"garbage",     // log lines and JSON that is no message between messages
	"hang-init",   // never answers initialize
	"hang-list",   // never answers tools/list
	"hang-ping",   // never answers a ping
	"exit",        // exits at once, with a word on stderr
	"exit-init",   // exits when asked to initialize
	"deaf",        // stops reading its input after the first list
	"batch",       // answers in batches
	"string-ids",  // answers with ids as strings
	"odd-tools",   // tools no typed client can decode, beside good ones
	"pages",       // one tool per page, args: how many
	"endless",     // every page has a new cursor
	"same-cursor", // the second page names its own cursor
	"duplicates",  // two tools of one name
	"storm",       // announces a change after every list
	"bad-list",    // answers tools/list with something else
	"list-error",  // answers tools/list with an error
	"no-tools",    // has no tools capability
	"modern",      // refuses initialize, speaks 2026-07-28
	"ttl",         // the same, and announces no changes: its list is fresh for arg milliseconds
	"unheard",     // the same, announces changes but refuses to be listened to
	"asks",        // sends requests, with ids that a client may have in use
	"stderr",      // writes a megabyte to stderr before it answers
	"null-id",     // refuses initialize with an error without an id
	"old-version", // answers with a protocol version of its own
	"stubborn",    // ignores the end of its input and SIGTERM
	"orphans",     // starts a child that inherits its pipes and lives on
	"leaves",      // closes its output but runs on
}

// Server is one fault server.
type Server struct {
	Mode  string
	Arg   string            // of the mode: a count, or a file with a tools array
	Tools []json.RawMessage // in place of the built-in ones
	Words Words             // in place of the built-in ones
	Exit  func(code int)    // os.Exit, unless a test runs it in its own process
	Child func() error      // starts the child of mode orphans

	mu        sync.Mutex
	lists     int
	calls     map[string]int
	cancelled int
	running   map[string]func() // calls that can be cancelled
	declined  []int             // codes of the answers to its own requests
	extra     []json.RawMessage // tools added by add_tool
	deaf      bool
	stderr    io.Writer
	wg        sync.WaitGroup
}

// Words are what a server says, read from a file by mode script. Those that are
// empty are the built-in ones.
type Words struct {
	Instructions string            `json:"instructions"`
	Stderr       string            `json:"stderr"` // written at the start
	Tools        []json.RawMessage `json:"tools"`
	Result       json.RawMessage   `json:"result"` // of every call
	Error        string            `json:"error"`  // message of the error of a call to a tool whose name begins with bad
}

// New returns a server. The mode may be followed by = and an argument.
func New(mode string) (*Server, error) {
	mode, arg, _ := strings.Cut(mode, "=")
	s := &Server{Mode: mode, Arg: arg, Exit: os.Exit, stderr: os.Stderr, calls: map[string]int{}, running: map[string]func(){}}
	s.Child = func() error {
		c := exec.Command("sleep", "300")
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		return c.Start()
	}
	if mode == "tools" || mode == "script" {
		raw, err := os.ReadFile(arg)
		if err == nil && mode == "tools" {
			err = json.Unmarshal(raw, &s.Tools)
		} else if err == nil {
			err = json.Unmarshal(raw, &s.Words)
			s.Tools = s.Words.Tools
		}
		if err != nil {
			return nil, fmt.Errorf("reading the tools: %w", err)
		}
	}
	return s, nil
}

// Main runs a server on the standard streams. args are the mode.
func Main(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: MODE[=ARG], one of", strings.Join(Modes, " "))
		return 2
	}
	s, err := New(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := s.Serve(os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// message is any JSON-RPC message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int `json:"code"`
	} `json:"error"`
}

// emit sends one message to the client.
type emit func(msg string)

// Serve speaks on the streams until in ends.
func (s *Server) Serve(in io.Reader, out, errw io.Writer) error {
	s.stderr = errw
	var mu sync.Mutex
	write := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		io.WriteString(out, text)
	}
	send := func(msg string) {
		switch s.Mode {
		case "batch":
			msg = "[" + msg + "]"
		case "blank":
			msg = "\n\r\n" + msg + "\n"
		case "garbage":
			msg = "npm WARN deprecated\n{\"level\":\"info\"}\n42\n\x00\xff\n" + msg
		}
		write(msg + "\n")
	}
	switch s.Mode {
	case "banner":
		write("Server v1.0 running on stdio\n\x1b[32mready\x1b[0m\n")
	case "bom":
		write("\xef\xbb\xbf")
	case "exit":
		fmt.Fprintln(errw, "Error: Cannot find module 'left-pad'")
		s.Exit(7)
		return nil
	case "stderr":
		for range 1 << 14 {
			fmt.Fprintln(errw, strings.Repeat("x", 63))
		}
	case "orphans":
		if err := s.Child(); err != nil {
			return err
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "script":
		io.WriteString(errw, s.Words.Stderr)
	case "leaves":
		if c, ok := out.(io.Closer); ok {
			c.Close()
		}
	}
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				return fmt.Errorf("the client sent %q: %w", line, err)
			}
			s.handle(m, send)
			s.mu.Lock()
			deaf := s.deaf
			s.mu.Unlock()
			if deaf {
				select {} // neither reads nor ends
			}
		}
		if err == io.EOF && s.Mode == "stubborn" {
			select {}
		}
		if err == io.EOF {
			s.stopCalls()
			s.wg.Wait()
			return nil
		}
		if err != nil {
			if errors.Is(err, io.ErrClosedPipe) {
				s.stopCalls()
				s.wg.Wait()
				return nil
			}
			return err
		}
	}
}

func (s *Server) stopCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.running {
		stop()
	}
}

func (s *Server) handle(m message, send emit) {
	id := string(m.ID)
	if s.Mode == "string-ids" && id != "" {
		id = strconv.Quote(id)
	}
	result := func(v string) { send(`{"jsonrpc":"2.0","id":` + id + `,"result":` + v + `}`) }
	refuse := func(code int, text, data string) {
		if data != "" {
			data = `,"data":` + data
		}
		quoted, _ := json.Marshal(text)
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, id, code, quoted, data))
	}
	switch m.Method {
	case "":
		s.mu.Lock()
		if m.Error != nil {
			s.declined = append(s.declined, m.Error.Code)
		} else {
			s.declined = append(s.declined, 0)
		}
		s.mu.Unlock()
	case "initialize":
		s.initialize(m, result, refuse, send)
	case "server/discover":
		if !s.modern() {
			refuse(-32601, "Method not found", "")
			return
		}
		result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":` + strconv.FormatBool(s.Mode != "ttl") + `}},"instructions":"modern","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fault","version":"1"}}}`)
	case "subscriptions/listen":
		if s.Mode == "unheard" {
			refuse(-32601, "Method not found", "")
			return
		}
		send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
	case "notifications/initialized":
		if s.Mode == "asks" {
			for i := range 4 {
				send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i))
			}
			send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			send(`{"jsonrpc":"2.0","id":9007199254740993,"method":"sampling/createMessage","params":{}}`)
		}
	case "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p)
		s.mu.Lock()
		s.cancelled++
		if stop := s.running[string(p.ID)]; stop != nil {
			stop()
		}
		s.mu.Unlock()
	case "ping":
		if s.Mode != "hang-ping" {
			result(`{}`)
		}
	case "tools/list":
		s.list(m, result, refuse, send)
	case "tools/call":
		s.call(m, result, refuse, send)
	default:
		if len(m.ID) > 0 {
			refuse(-32601, "Method not found", "")
		}
	}
}

// modern reports whether it speaks 2026-07-28 only.
func (s *Server) modern() bool { return s.Mode == "modern" || s.Mode == "ttl" || s.Mode == "unheard" }

func (s *Server) initialize(m message, result func(string), refuse func(int, string, string), send emit) {
	var p struct {
		Version string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(m.Params, &p)
	capabilities := `{"tools":{"listChanged":true},"logging":true,"x":[1]}` // odd on purpose
	switch s.Mode {
	case "hang-init":
		return
	case "exit-init":
		s.Exit(1)
		return
	case "modern", "ttl", "unheard":
		refuse(-32601, "Method not found", "")
		return
	case "null-id":
		send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"I cannot read that"}}`)
		return
	case "old-version":
		p.Version = "1999-12-31"
	case "no-tools":
		capabilities = `{"prompts":{}}`
	}
	instructions, _ := json.Marshal("Use \x1b[1mecho\u202e.")
	if s.Words.Instructions != "" {
		instructions, _ = json.Marshal(s.Words.Instructions)
	}
	result(`{"protocolVersion":"` + p.Version + `","capabilities":` + capabilities + `,"serverInfo":{"name":"fault","version":"1"},"instructions":` + string(instructions) + `}`)
}

func (s *Server) list(m message, result func(string), refuse func(int, string, string), send emit) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(m.Params, &p)
	s.mu.Lock()
	s.lists++
	tools := builtin
	if s.Tools != nil {
		tools = s.Tools
	}
	tools = append(tools[:len(tools):len(tools)], s.extra...)
	s.mu.Unlock()
	page := 1
	if p.Cursor != "" {
		page, _ = strconv.Atoi(p.Cursor)
	}
	one := func(next string) {
		result(fmt.Sprintf(`{"tools":[{"name":"tool_%d","inputSchema":{"type":"object"}}]%s}`, page, next))
	}
	switch s.Mode {
	case "hang-list":
		return
	case "bad-list":
		result(`{"tools":{"echo":{}}}`)
	case "list-error":
		refuse(-32603, "the database is locked", "")
	case "odd-tools":
		var b bytes.Buffer
		_ = json.Compact(&b, []byte(OddList))
		result(b.String())
	case "duplicates":
		result(`{"tools":[{"name":"twice","description":"first","inputSchema":{}},{"name":"twice","description":"second","inputSchema":{}},{"name":"once","inputSchema":{}}]}`)
	case "pages":
		if n, _ := strconv.Atoi(s.Arg); page < n {
			one(fmt.Sprintf(`,"nextCursor":"%d"`, page+1))
		} else {
			one(`,"nextCursor":null`)
		}
	case "endless":
		one(fmt.Sprintf(`,"nextCursor":"%d"`, page+1))
	case "same-cursor":
		one(`,"nextCursor":"2"`)
	default:
		var b bytes.Buffer
		b.WriteString(`{"tools":[`)
		for i, t := range tools {
			if i > 0 {
				b.WriteByte(',')
			}
			if json.Compact(&b, t) != nil {
				refuse(-32603, "the tools are not JSON", "")
				return
			}
		}
		b.WriteByte(']')
		if s.modern() && s.Arg != "" {
			b.WriteString(`,"ttlMs":` + s.Arg)
		}
		b.WriteByte('}')
		result(b.String())
	}
	switch s.Mode {
	case "storm":
		send(changed)
	case "deaf":
		s.mu.Lock()
		s.deaf = true
		s.mu.Unlock()
	}
}

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// OddList is what mode odd-tools lists. Good names begin with good.
const OddList = `{"tools":[
{"name":"good_type_array","inputSchema":{"type":["object","null"]}},
{"name":"good_required_string","inputSchema":{"type":"object","required":"x"}},
{"name":"good_schema_true","inputSchema":true},
{"name":"good_properties_array","inputSchema":{"type":"object","properties":[]}},
{"name":"good_no_schema"},
{"name":"good_root_anyof","inputSchema":{"anyOf":[{"type":"object"},{"$ref":"#/$defs/a"}],"$defs":{"a":{}},"x-order":12345678901234567890},"x-own":{"z":1,"a":2}},
{"name":"good_description_number","description":5,"inputSchema":{}},
{"name":"good_clean","description":"a\u202eb\u200b\u001b[31mc","inputSchema":{}},
{"name":""},
{"description":"no name"},
{"name":7},
"a string", null, 3,
{"name":"bad\u202ename","inputSchema":{}}
]}`

// builtin are the tools of the good server.
var builtin = func() []json.RawMessage {
	var out []json.RawMessage
	for _, t := range []string{
		`{"name":"echo","description":"Returns the params it was called with.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`,
		`{"name":"slow","description":"Answers after a while.","inputSchema":{"type":"object","properties":{"ms":{"type":"integer"}}}}`,
		`{"name":"progress","description":"Tells its progress.","inputSchema":{"type":"object","properties":{"steps":{"type":"integer"},"ms":{"type":"integer"}}}}`,
		`{"name":"fail","description":"Answers with an error.","inputSchema":{"type":"object"}}`,
		`{"name":"large","description":"Answers with many bytes.","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}}}}`,
		`{"name":"crash","description":"Ends the server without an answer.","inputSchema":{"type":"object"}}`,
		`{"name":"answer_then_exit","description":"Answers and ends the server.","inputSchema":{"type":"object"}}`,
		`{"name":"odd","description":"Answers with content of no known type.","inputSchema":{"type":"object"}}`,
		`{"name":"hang","description":"Never answers.","inputSchema":{"type":"object"}}`,
		`{"name":"input","description":"Asks for input.","inputSchema":{"type":"object"}}`,
		`{"name":"add_tool","description":"Adds a tool and says so.","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`,
		`{"name":"stats","description":"What the server was asked.","inputSchema":{"type":"object"}}`,
	} {
		out = append(out, json.RawMessage(t))
	}
	return out
}()

// Stats is what the tool stats answers as its text.
type Stats struct {
	Lists     int            `json:"lists"`
	Calls     map[string]int `json:"calls"`
	Cancelled int            `json:"cancelled"`
	Declined  []int          `json:"declined"` // codes of the answers to the server's requests, 0 for a result
}

// OddResult is the result of the tool odd, byte for byte.
const OddResult = `{"content":[{"type":"hologram","n":12345678901234567890,"u":"\u00e9\u202e"}], "zzz":1.50, "_meta":{"big":9007199254740993}}`

// FailData is the data of the error of the tool fail.
const FailData = `{"n":9007199254740993,"elicitations":[]}`

func (s *Server) call(m message, result func(string), refuse func(int, string, string), send emit) {
	var p struct {
		Name      string `json:"name"`
		Arguments struct {
			MS    int    `json:"ms"`
			Steps int    `json:"steps"`
			Bytes int    `json:"bytes"`
			Name  string `json:"name"`
		} `json:"arguments"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p)
	text := func(t string) {
		quoted, _ := json.Marshal(t)
		result(`{"content":[{"type":"text","text":` + string(quoted) + `}]}`)
	}
	s.mu.Lock()
	s.calls[p.Name]++
	s.mu.Unlock()
	args := p.Arguments
	switch {
	case s.Words.Error != "" && strings.HasPrefix(p.Name, "bad"):
		refuse(-32050, s.Words.Error, "")
		return
	case s.Words.Result != nil:
		result(string(s.Words.Result))
		return
	}
	switch p.Name {
	case "echo":
		text(string(m.Params))
	case "fail":
		refuse(-32042, "needs a <visit>", FailData)
	case "large":
		text(strings.Repeat("x", args.Bytes))
	case "crash":
		fmt.Fprintln(s.stderr, "panic: crash was called")
		s.Exit(3)
	case "answer_then_exit":
		text("bye")
		s.Exit(0)
	case "odd":
		result(OddResult)
	case "hang":
	case "input":
		result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}},"requestState":"s"}`)
	case "add_tool":
		raw, _ := json.Marshal(map[string]any{"name": args.Name, "inputSchema": map[string]any{}})
		s.mu.Lock()
		s.extra = append(s.extra, raw)
		s.mu.Unlock()
		text("added")
		if s.Mode != "ttl" && s.Mode != "unheard" {
			send(changed)
		}
	case "stats":
		s.mu.Lock()
		raw, _ := json.Marshal(Stats{s.lists, s.calls, s.cancelled, s.declined})
		s.mu.Unlock()
		text(string(raw))
	case "slow", "progress":
		stop := make(chan struct{})
		id := string(m.ID)
		s.mu.Lock()
		s.running[id] = sync.OnceFunc(func() { close(stop) })
		s.mu.Unlock()
		s.wg.Go(func() {
			defer func() {
				s.mu.Lock()
				delete(s.running, id)
				s.mu.Unlock()
			}()
			for i := range max(args.Steps, 1) {
				t := time.NewTimer(time.Duration(args.MS) * time.Millisecond)
				select {
				case <-t.C:
				case <-stop:
					t.Stop()
					return
				}
				if p.Name == "progress" && len(p.Meta.Token) > 0 {
					send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"x":9007199254740993}}`, p.Meta.Token, i+1))
				}
			}
			text("done")
		})
	default:
		if s.Tools != nil {
			text(p.Name)
			return
		}
		refuse(-32602, "Unknown tool: "+p.Name, "")
	}
}
