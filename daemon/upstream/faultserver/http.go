package faultserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// HTTPModes are all modes over HTTP.
var HTTPModes = []string{
	"ok",         // answers with JSON
	"sse",        // answers with streams of events
	"401", "403", // refuses everybody
	"redirect",      // arg: where to, with 307
	"moved",         // arg: where to, with 301
	"forgetful",     // ends the session before every call, args: how many times
	"no-session",    // gives no session id
	"modern",        // speaks 2026-07-28 only
	"hang-discover", // never answers server/discover
	"agreeable",     // answers server/discover, which it does not know, with {}
	"cut",           // ends the stream of a call before the answer
	"resume",        // the same, and answers when the stream is reopened
	"huge",          // answers calls with more than anybody should keep
	"500",           // answers calls with an internal error
	"html",          // answers with a page
	"only-sse",      // the older HTTP+SSE transport, at /sse
	"sse-elsewhere", // the same, naming another host for the messages
	"hang",          // answers nothing at all
}

// Web is a fault server over HTTP.
type Web struct {
	*Server
	mu       sync.Mutex
	requests []Request
	session  int
	forget   int
	streams  map[chan string]bool
	answers  map[string]string // for mode resume
	done     chan struct{}
}

// Request is one request that it saw.
type Request struct {
	Method  string // HTTP
	Message string // the JSON-RPC method
	Header  http.Header
}

// NewWeb returns a server over HTTP.
func NewWeb(mode string) (*Web, error) {
	s, err := New(mode)
	if err != nil {
		return nil, err
	}
	w := &Web{Server: s, streams: map[chan string]bool{}, answers: map[string]string{}, done: make(chan struct{})}
	w.forget, _ = strconv.Atoi(s.Arg)
	return w, nil
}

// Close ends the open streams and the calls at work.
func (w *Web) Close() {
	close(w.done)
	w.stopCalls()
	w.wg.Wait()
}

// Requests returns what it saw.
func (w *Web) Requests() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Request(nil), w.requests...)
}

// Announce tells all listeners that the list changed.
func (w *Web) Announce() { w.broadcast(changed) }

// Add adds a tool without a word.
func (w *Web) Add(name string) {
	raw, _ := json.Marshal(map[string]any{"name": name, "inputSchema": map[string]any{}})
	w.Server.mu.Lock()
	defer w.Server.mu.Unlock()
	w.extra = append(w.extra, raw)
}

func (w *Web) broadcast(msg string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.streams {
		select {
		case c <- msg:
		default:
		}
	}
}

func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m)
	w.mu.Lock()
	w.requests = append(w.requests, Request{r.Method, m.Method, r.Header.Clone()})
	session := strconv.Itoa(w.session)
	w.mu.Unlock()
	switch w.Mode {
	case "401", "403":
		code, _ := strconv.Atoi(w.Mode)
		rw.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://login.invalid/"`)
		http.Error(rw, "account suspended", code)
		return
	case "redirect":
		http.Redirect(rw, r, w.Arg, http.StatusTemporaryRedirect)
		return
	case "moved":
		http.Redirect(rw, r, w.Arg, http.StatusMovedPermanently)
		return
	case "html":
		rw.Header().Set("Content-Type", "text/html")
		io.WriteString(rw, "<html>Welcome")
		return
	case "hang":
		w.hang(r)
		return
	case "only-sse", "sse-elsewhere":
		w.old(rw, r, m)
		return
	}
	modern := w.Mode == "modern"
	switch {
	case r.Method == http.MethodGet:
		w.stream(rw, r)
		return
	case r.Method == http.MethodDelete:
		return
	case m.Method == "server/discover" && w.Mode == "agreeable":
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		return
	case m.Method == "server/discover" && w.Mode == "hang-discover":
		w.hang(r)
		return
	case m.Method == "initialize" && !modern:
		w.mu.Lock()
		w.session++
		session = strconv.Itoa(w.session)
		w.mu.Unlock()
		if w.Mode != "no-session" {
			rw.Header().Set("Mcp-Session-Id", session)
		}
	case m.Method == "server/discover":
	case modern:
		if got := r.Header.Get("Mcp-Method"); got != m.Method || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
			http.Error(rw, `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"header mismatch"}}`, http.StatusBadRequest)
			return
		}
	case w.Mode != "no-session" && r.Header.Get("Mcp-Session-Id") != session:
		http.Error(rw, "no such session", http.StatusNotFound)
		return
	}
	if m.Method == "tools/call" {
		w.mu.Lock()
		forget := w.Mode == "forgetful" && w.forget > 0
		if forget {
			w.forget--
			w.session++
		}
		w.mu.Unlock()
		if forget {
			http.Error(rw, "no such session", http.StatusNotFound)
			return
		}
		if w.Mode == "500" {
			http.Error(rw, "out of memory", http.StatusInternalServerError)
			return
		}
	}
	if len(m.ID) == 0 {
		w.handle(m, w.broadcast)
		rw.WriteHeader(http.StatusAccepted)
		return
	}
	w.reply(rw, r, m)
}

func (w *Web) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-w.done:
	}
}

// reply answers a request on its own response.
func (w *Web) reply(rw http.ResponseWriter, r *http.Request, m message) {
	out := make(chan string, 1024)
	if m.Method == "subscriptions/listen" {
		w.mu.Lock()
		w.streams[out] = true
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			delete(w.streams, out)
			w.mu.Unlock()
		}()
	}
	w.handle(m, func(msg string) {
		if msg == changed {
			w.broadcast(msg)
			return
		}
		out <- msg
	})
	isAnswer := func(msg string) bool {
		rest, ok := strings.CutPrefix(msg, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"`)
		return ok && !strings.HasPrefix(rest, "method")
	}
	events := w.Mode != "ok" && w.Mode != "forgetful"
	if events {
		rw.Header().Set("Content-Type", "text/event-stream")
	} else {
		rw.Header().Set("Content-Type", "application/json")
	}
	if m.Method == "tools/call" {
		switch w.Mode {
		case "cut":
			io.WriteString(rw, ": hello\n\n")
			return
		case "resume":
			select {
			case msg := <-out:
				w.mu.Lock()
				w.answers["e1"] = msg
				w.mu.Unlock()
			case <-r.Context().Done():
			}
			io.WriteString(rw, "id: e1\nretry: 1\ndata:\n\n")
			return
		case "huge":
			io.WriteString(rw, `data: {"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"`)
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for range 20 {
				rw.Write(chunk)
			}
			io.WriteString(rw, "\"}}\n\n")
			return
		}
	}
	for {
		select {
		case msg := <-out:
			if events {
				fmt.Fprintf(rw, "event: message\ndata: %s\n\n", msg)
				flush(rw)
			}
			if isAnswer(msg) {
				if !events {
					io.WriteString(rw, msg)
				}
				return
			}
		case <-r.Context().Done():
			return
		case <-w.done:
			return
		}
	}
}

func flush(rw http.ResponseWriter) {
	if f, ok := rw.(http.Flusher); ok {
		f.Flush()
	}
}

// stream is the GET that listens.
func (w *Web) stream(rw http.ResponseWriter, r *http.Request) {
	if last := r.Header.Get("Last-Event-Id"); last != "" {
		w.mu.Lock()
		msg := w.answers[last]
		w.mu.Unlock()
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(rw, "data: %s\n\n", msg)
		return
	}
	if w.Mode == "no-session" {
		http.Error(rw, "no stream", http.StatusMethodNotAllowed)
		return
	}
	c := make(chan string, 64)
	w.mu.Lock()
	w.streams[c] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.streams, c)
		w.mu.Unlock()
	}()
	rw.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(rw, ": open\n\n")
	flush(rw)
	w.pump(rw, r, c)
}

func (w *Web) pump(rw http.ResponseWriter, r *http.Request, c chan string) {
	beat := time.NewTicker(time.Minute)
	defer beat.Stop()
	for {
		select {
		case msg := <-c:
			fmt.Fprintf(rw, "event: message\ndata: %s\n\n", msg)
			flush(rw)
		case <-beat.C:
			io.WriteString(rw, ": beat\n\n")
			flush(rw)
		case <-r.Context().Done():
			return
		case <-w.done:
			return
		}
	}
}

// old is the older transport: a stream at /sse, messages to /message.
func (w *Web) old(rw http.ResponseWriter, r *http.Request, m message) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		c := make(chan string, 1024)
		w.mu.Lock()
		w.streams[c] = true
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			delete(w.streams, c)
			w.mu.Unlock()
		}()
		rw.Header().Set("Content-Type", "text/event-stream")
		to := "/message?session=1"
		if w.Mode == "sse-elsewhere" {
			to = "http://elsewhere.invalid/message"
		}
		fmt.Fprintf(rw, "event: endpoint\ndata: %s\n\n", to)
		flush(rw)
		w.pump(rw, r, c)
	case r.Method == http.MethodPost && r.URL.Path == "/message":
		if m.Method == "tools/call" {
			// A request of the server's whose id is that of the waiting call.
			w.broadcast(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"method":"roots/list"}`)
		}
		w.handle(m, w.broadcast)
		rw.WriteHeader(http.StatusAccepted)
	default:
		http.Error(rw, "Cannot POST "+r.URL.Path, http.StatusNotFound)
	}
}
