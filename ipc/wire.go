package ipc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

// A session on the wire. The POST that begins it is answered with 101, and from
// then on both ends write frames, one JSON object a line:
//
//	agent  → daemon  {"id":1,"method":"search","params":{"q":"gerber"}}
//	                 {"id":2,"method":"call","params":{"tool":"kicad::export_gerber","arguments":{}}}
//	                   (with progress when its "meta" has a progressToken, whatever that is)
//	                 {"method":"seen","params":{"tools":{"kicad::export_gerber":"<hash>"},"listed":false}}
//	                 {"method":"cancel","params":{"id":2}}
//	daemon → agent   {"method":"hello","params":{…}}            first, once
//	                 {"method":"list","params":{"tools":[…]}}   complete, before the answer that changed it
//	                 {"method":"progress","params":{"id":2,"params":{…}}}
//	                 {"id":1,"result":{…}} or {"id":1,"error":{"code":…,"message":…,"hint":…}}
//	                 {"method":"bye"}                           last, when the daemon was told to end
//
// Frames of one end arrive in the order they were written. The session ends
// with the connection, and what is running then is cancelled.
type frame struct {
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// outFrame is a frame as it is written: what it holds is encoded with it, in one
// go, since a result may be large.
type outFrame struct {
	ID     uint64 `json:"id,omitempty"`
	Method string `json:"method,omitempty"`
	Params any    `json:"params,omitempty"`
	Result any    `json:"result,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

type (
	listParams struct {
		Tools []Listed `json:"tools"`
	}
	seenParams struct {
		Tools  map[tool.ID]tool.Hash `json:"tools"`
		Listed bool                  `json:"listed,omitempty"`
	}
	cancelParams struct {
		ID uint64 `json:"id"`
	}
	progressParams struct {
		ID     uint64          `json:"id"`
		Params json.RawMessage `json:"params"`
	}
)

// upgradeProtocol names the frames in the Upgrade header.
const upgradeProtocol = "toolsd-session"

// byeTimeout is what an agent that does not read may cost a daemon that ends.
const byeTimeout = 200 * time.Millisecond

// maxLine bounds a frame: a result of the largest size that a server may send,
// inside of a frame.
const maxLine = 64 << 20

var errLineTooLong = fmt.Errorf("a line is over %d bytes", maxLine)

// readLine reads up to the next newline and returns the line without it.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxLine:
			return nil, errLineTooLong
		}
	}
}

// framer writes the frames of an agent whole, from any goroutine.
type framer struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *framer) write(v outFrame) error {
	line := v.line()
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.w.Write(line)
	return err
}

func (v outFrame) line() []byte {
	line, err := encode(v)
	if err != nil { // who waits for this id must not wait for ever
		line = Encode(outFrame{ID: v.ID, Error: unencodable(err)})
	}
	return line
}

// serveSession is the daemon's end.
func serveSession(b Backend, w http.ResponseWriter, r *http.Request) {
	var request AttachRequest
	if err := readBody(w, r, &request); err != nil {
		refuse(w, err)
		return
	}
	switch request.Mode {
	case "", Auto, Direct, Search:
	default:
		refuse(w, Errorf(CodeUsage, "there is no mode %q", request.Mode).WithHint("the modes are auto, direct and search"))
		return
	}
	// The request's own context ends when its handler hijacks the connection, so
	// the session has one that ends with the connection.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	out := newOutbox(io.Discard) // until the connection is taken over, which may fail
	var hold sync.Mutex          // lists wait until hello was written
	hold.Lock()
	s, err := b.Attach(ctx, request, Events{List: func(list []Listed) {
		hold.Lock()
		defer hold.Unlock()
		out.put(outFrame{Method: "list", Params: listParams{list}})
	}})
	if err != nil {
		hold.Unlock()
		refuse(w, AsError(err))
		return
	}
	defer s.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		hold.Unlock()
		refuse(w, Errorf(CodeInternal, "taking over the connection: %v", err))
		return
	}
	defer out.flush() // which the end of the connection ends
	defer conn.Close()
	out.w = conn
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgradeProtocol}}
	stamp(header)
	head := "HTTP/1.1 101 Switching Protocols\r\n"
	for k := range header {
		head += k + ": " + header.Get(k) + "\r\n"
	}
	_, err = io.WriteString(conn, head+"\r\n")
	out.put(outFrame{Method: "hello", Params: s.Hello()})
	hold.Unlock()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	go func() { // the daemon ends the session
		select {
		case <-s.Done():
			if s.Bye() {
				_ = conn.SetWriteDeadline(time.Now().Add(byeTimeout))
				out.put(outFrame{Method: "bye"})
				out.flush()
			}
			conn.Close()
		case <-ctx.Done():
		}
	}()
	serveFrames(ctx, s, buffered.Reader, out)
}

// serveFrames answers frames until the connection ends. Searches and calls run
// beside each other; what is told (seen, cancel) takes effect in order.
func serveFrames(ctx context.Context, s Session, r *bufio.Reader, out *outbox) {
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		cancels = map[uint64]context.CancelFunc{}
	)
	ctx, cancelAll := context.WithCancel(ctx)
	defer running.Wait()
	defer cancelAll()
	for {
		out.room()
		line, err := readLine(r)
		if err != nil {
			return
		}
		var f frame
		if err := DecodeStrict(line, &f); err != nil {
			out.put(outFrame{ID: f.ID, Error: Errorf(CodeUsage, "a frame: %v", err)})
			continue
		}
		switch f.Method {
		case "seen":
			var p seenParams
			reply := outFrame{ID: f.ID, Result: json.RawMessage("{}")}
			if err := DecodeStrict(f.Params, &p); err != nil {
				reply.Result, reply.Error = nil, Errorf(CodeUsage, "the params of seen: %v", err)
			} else {
				_ = s.Saw(ctx, p.Tools, p.Listed)
			}
			if f.ID != 0 {
				out.put(reply)
			}
		case "cancel":
			var p cancelParams
			if json.Unmarshal(f.Params, &p) == nil {
				mu.Lock()
				if cancel := cancels[p.ID]; cancel != nil {
					cancel()
				}
				mu.Unlock()
			}
		default:
			callCtx, cancel := context.WithCancel(ctx)
			mu.Lock()
			taken := cancels[f.ID] != nil
			if !taken {
				cancels[f.ID] = cancel
			}
			mu.Unlock()
			if taken { // their answers could not be told apart, nor which one a cancel means
				cancel()
				out.put(outFrame{ID: f.ID, Error: Errorf(CodeUsage, "a request with the id %d is running", f.ID).WithHint("number the requests of a session")})
				continue
			}
			running.Add(1)
			answerFrame(callCtx, s, f, out, func(result any, err error) {
				mu.Lock()
				delete(cancels, f.ID)
				mu.Unlock()
				cancel()
				reply := outFrame{ID: f.ID}
				if err != nil {
					reply.Error = AsError(err)
				} else {
					reply.Result = result
				}
				out.put(reply)
				running.Done()
			})
		}
	}
}

// answerFrame has done called with the answer to a frame, without waiting for it.
func answerFrame(ctx context.Context, s Session, f frame, out *outbox, done func(any, error)) {
	switch f.Method {
	case "search":
		var p SearchRequest
		if err := DecodeStrict(f.Params, &p); err != nil {
			done(nil, Errorf(CodeUsage, "the params of search: %v", err))
			return
		}
		go func() { done(s.Search(ctx, p)) }()
	case "call":
		var p SessionCall
		if err := DecodeStrict(f.Params, &p); err != nil {
			done(nil, Errorf(CodeUsage, "the params of call: %v", err))
			return
		}
		wanted := false
		if p.Meta, wanted = takeProgress(p.Meta); wanted {
			p.Progress = func(params json.RawMessage) {
				out.offer(outFrame{Method: "progress", Params: progressParams{f.ID, params}})
			}
		}
		s.Begin(ctx, p, func(outcome *CallOutcome, err error) { done(outcome, err) })
	default:
		done(nil, Errorf(CodeUsage, "there is no method %q", f.Method).WithHint("the methods are search, call, seen and cancel"))
	}
}

// askProgress puts the mark into the _meta of a call that its progress is wanted. A
// server is asked for none that nobody wants.
func askProgress(meta json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(meta, &members) // an object, or nothing
	members["progressToken"] = json.RawMessage("0")
	return bytes.TrimSuffix(Encode(members), []byte("\n"))
}

// takeProgress takes the mark out again, and reports whether it was there.
func takeProgress(meta json.RawMessage) (rest json.RawMessage, wanted bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(meta, &members) != nil {
		return meta, false
	}
	if token := members["progressToken"]; token == nil || string(token) == "null" {
		return meta, false
	}
	if delete(members, "progressToken"); len(members) == 0 {
		return nil, true
	}
	return bytes.TrimSuffix(Encode(members), []byte("\n")), true
}
