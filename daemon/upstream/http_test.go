package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// serveWeb runs a fault server on loopback.
func serveWeb(t *testing.T, mode string) (*faultserver.Web, string) {
	t.Helper()
	w, err := faultserver.NewWeb(mode)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(w)
	t.Cleanup(func() {
		w.Close()
		h.CloseClientConnections()
		h.Close()
	})
	return w, h.URL
}

func webServer(key, url string, transport clientconfig.Transport) Server {
	return Server{Key: key, Name: key, Def: clientconfig.Server{Name: key, Transport: transport, URL: url,
		Headers: map[string]string{"X-Api-Key": "sesame-12345"}, StartTimeout: 10 * time.Second}}
}

// count returns how many of the requests had that HTTP and JSON-RPC method.
func count(w *faultserver.Web, method, message string) int {
	n := 0
	for _, r := range w.Requests() {
		if r.Method == method && (message == "*" || r.Message == message) {
			n++
		}
	}
	return n
}

func TestFaultsOverHTTP(t *testing.T) {
	tests := []struct {
		mode      string
		path      string
		transport clientconfig.Transport
		state     string
		version   string
		reason    string
	}{
		{mode: "ok", state: Ready, version: "2025-11-25"},
		{mode: "sse", state: Ready, version: "2025-11-25"},
		{mode: "no-session", state: Ready, version: "2025-11-25"},
		{mode: "modern", state: Ready, version: "2026-07-28"},
		{mode: "hang-discover", state: Ready, version: "2025-11-25"},
		{mode: "agreeable", state: Ready, version: "2025-11-25"},
		{mode: "only-sse", path: "/sse", transport: clientconfig.SSE, state: Ready, version: "2025-11-25"},
		{mode: "only-sse", path: "/sse", transport: clientconfig.Auto, state: Ready, version: "2025-11-25"},
		{mode: "only-sse", path: "/sse", transport: clientconfig.HTTP, state: Backoff, reason: "404"},
		{mode: "sse-elsewhere", path: "/sse", transport: clientconfig.SSE, state: Backoff, reason: "another host"},
		{mode: "html", state: Backoff, reason: `"<html>Welcome"`},
		{mode: "hang", state: Backoff, reason: "not ready within 4s"},
		{mode: "401", state: Failed, reason: "401 Unauthorized: account suspended"},
		{mode: "403", state: Failed, reason: "403 Forbidden"},
	}
	var servers []Server
	var webs []*faultserver.Web
	for i, tt := range tests {
		w, url := serveWeb(t, tt.mode)
		if tt.transport == "" {
			tt.transport = clientconfig.HTTP
		}
		s := webServer(tt.mode+string(rune('a'+i)), url+tt.path, tt.transport)
		if tt.mode == "hang" {
			s.Def.StartTimeout = 4 * time.Second
		}
		servers, webs = append(servers, s), append(webs, w)
	}
	f := start(t, Options{}, servers...)
	for i, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			f.t = t
			key := servers[i].Key
			var st Status
			if tt.state == Backoff {
				st = f.untilDown(key)
			} else {
				st = f.untilState(key, tt.state)
			}
			if !strings.Contains(st.Reason, tt.reason) || st.Version != tt.version {
				t.Errorf("%+v, want version %q and reason %q", st, tt.version, tt.reason)
			}
			if tt.state != Ready {
				if st.Hint == "" || st.Retry.IsZero() != (tt.mode == "401" || tt.mode == "403") {
					t.Errorf("hint or retry: %+v", st)
				}
				if n := len(webs[i].Requests()); tt.state == Failed && n > 3 {
					t.Errorf("%d requests", n)
				}
				return
			}
			raw, err := f.call(key, "echo", `{"n":9007199254740993}`)
			if got := text(t, raw, err); !strings.Contains(got, `"n":9007199254740993`) {
				t.Errorf("the server saw %s", got)
			}
			raw, err = f.call(key, "odd", `{}`)
			if err != nil || string(raw) != faultserver.OddResult {
				t.Errorf("result %s, %v", raw, err)
			}
			_, err = f.call(key, "fail", `{}`)
			var refused *RPCError
			if !errors.As(err, &refused) || refused.Code != -32042 || string(refused.Data) != faultserver.FailData {
				t.Errorf("error %#v", err)
			}
			_, err = f.call(key, "input", `{}`)
			if asks := err != nil && strings.Contains(err.Error(), "elicitation/create"); asks != (tt.version == "2026-07-28") {
				t.Errorf("a server that asks for input: %v", err)
			}
			if _, err = f.Call(t.Context(), key, Call{Tool: "slow", Arguments: json.RawMessage(`{"ms":60000}`), Timeout: 100 * time.Millisecond}); !errors.Is(err, ErrTimeout) {
				t.Errorf("out of time: %v", err)
			}
			if tt.version < "2026" {
				f.until("the cancellation", func() bool { return f.stats(key).Cancelled == 1 })
			}
			for _, r := range webs[i].Requests() {
				if r.Header.Get("X-Api-Key") != "sesame-12345" {
					t.Errorf("%s %s came without the headers of the entry", r.Method, r.Message)
				}
			}
		})
	}
}

// A change is announced on the stream that is opened for it, once.
func TestHTTPListChanged(t *testing.T) {
	for _, mode := range []string{"ok", "no-session", "only-sse"} {
		t.Run(mode, func(t *testing.T) {
			w, url := serveWeb(t, mode)
			transport := clientconfig.HTTP
			if mode == "only-sse" {
				url, transport = url+"/sse", clientconfig.SSE
			}
			f := start(t, Options{}, webServer("s", url, transport))
			f.untilState("s", Ready)
			if mode == "no-session" {
				f.until("the refused stream", func() bool { return count(w, "GET", "*") == 1 })
				return // it refuses, and must not be asked again: the count below would grow
			}
			f.until("a stream", func() bool { return count(w, "GET", "*") == 1 })
			raw, err := f.call("s", "add_tool", `{"name":"late"}`)
			text(t, raw, err)
			f.until("the new tool", func() bool { return find(f.listing("s").Tools, "late") != nil })
			if n := count(w, "GET", "*"); n != 1 {
				t.Errorf("%d streams were opened", n)
			}
		})
	}
}

// A session that the server forgot is begun again, once per call, and the tools
// are listed anew.
func TestHTTPSessionLost(t *testing.T) {
	w, url := serveWeb(t, "forgetful=1")
	f := start(t, Options{}, webServer("s", url, clientconfig.HTTP))
	f.untilState("s", Ready)
	w.Add("after")
	raw, err := f.call("s", "echo", `{}`)
	text(t, raw, err)
	if n := count(w, "POST", "initialize"); n != 2 {
		t.Errorf("%d times initialized, want 2", n)
	}
	if find(f.listing("s").Tools, "after") == nil {
		t.Error("the tools were not listed again")
	}
	if st := f.stats("s"); st.Calls["echo"] != 1 {
		t.Errorf("%d calls arrived", st.Calls["echo"])
	}
}

func TestHTTPSessionLostForEver(t *testing.T) {
	w, url := serveWeb(t, "forgetful=1000")
	f := start(t, Options{}, webServer("s", url, clientconfig.HTTP))
	f.untilState("s", Ready)
	if _, err := f.call("s", "echo", `{}`); err == nil {
		t.Error("the call worked")
	}
	if n := count(w, "POST", "initialize"); n > 1+maxTries {
		t.Errorf("%d times initialized for one call", n)
	}
}

func TestHTTPBrokenAnswers(t *testing.T) {
	var servers []Server
	webs := map[string]*faultserver.Web{}
	for _, mode := range []string{"cut", "resume", "huge", "500"} {
		w, url := serveWeb(t, mode)
		webs[mode] = w
		servers = append(servers, webServer(mode, url, clientconfig.HTTP))
	}
	f := start(t, Options{}, servers...)
	for _, s := range servers {
		f.untilState(s.Key, Ready)
	}
	if _, err := f.call("cut", "echo", `{}`); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a stream that is cut: %v", err)
	}
	raw, err := f.call("resume", "echo", `{"a":1}`)
	if got := text(t, raw, err); !strings.Contains(got, `"a":1`) {
		t.Errorf("a stream that is reopened: %s", got)
	}
	if _, err := f.call("huge", "echo", `{}`); !errors.Is(err, ErrTooLarge) {
		t.Errorf("20 MB: %v", err)
	}
	if _, err := f.call("500", "echo", `{}`); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("an internal error: %v", err)
	}
	if n := count(webs["500"], "POST", "tools/call"); n != 1 {
		t.Errorf("sent %d times", n)
	}
	for _, s := range servers {
		if st := f.Status(s.Key); st.State != Ready {
			t.Errorf("%s afterwards: %+v", s.Key, st)
		}
	}
}

// Credentials do not follow a redirect to another host, and a redirect that
// would lose the body is not followed.
func TestHTTPRedirect(t *testing.T) {
	target, url := serveWeb(t, "ok")
	other := strings.Replace(url, "127.0.0.1", "localhost", 1)
	_, elsewhere := serveWeb(t, "redirect="+other)
	_, moved := serveWeb(t, "moved="+url+"/new?token=abc")
	f := start(t, Options{}, webServer("r", elsewhere, clientconfig.HTTP), webServer("m", moved, clientconfig.HTTP))
	f.untilState("r", Ready)
	for _, r := range target.Requests() {
		if r.Header.Get("X-Api-Key") != "" || r.Header.Get("Referer") != "" {
			t.Errorf("%s %s carried %v", r.Method, r.Message, r.Header)
		}
	}
	st := f.untilDown("m")
	if !strings.Contains(st.Reason, "redirect to "+url+"/new") || strings.Contains(st.Reason, "abc") || !strings.Contains(st.Hint, "url") {
		t.Errorf("moved: %+v", st)
	}
}

// A server that is not there yet is found when it comes; nothing was sent before.
func TestHTTPServerComesLater(t *testing.T) {
	w, err := faultserver.NewWeb("ok")
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(w)
	url := "http://" + h.Listener.Addr().String()
	h.Listener.Close()
	f := start(t, Options{}, webServer("s", url, clientconfig.Auto))
	st := f.untilDown("s")
	if !strings.Contains(st.Reason, "connecting to 127.0.0.1:") || !strings.Contains(st.Hint, "running") {
		t.Errorf("status %+v", st)
	}
	again := httptest.NewUnstartedServer(w)
	again.Listener.Close()
	if again.Listener, err = net.Listen("tcp", strings.TrimPrefix(url, "http://")); err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	again.Start()
	defer again.Close()
	defer again.CloseClientConnections()
	defer w.Close()
	f.Wake("s")
	f.untilState("s", Ready)
	f.end()
}

// 401 in the middle parks the server too, and its callers hear why.
func TestHTTPCredentialsRevoked(t *testing.T) {
	w, err := faultserver.NewWeb("ok")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	revoked, refusals := false, 0
	h := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		no := revoked && r.Method == http.MethodPost
		if no {
			refusals++
		}
		mu.Unlock()
		if no {
			http.Error(rw, "token sesame-12345 expired", http.StatusUnauthorized)
			return
		}
		w.ServeHTTP(rw, r)
	}))
	defer h.Close()
	defer h.CloseClientConnections()
	defer w.Close()
	f := start(t, Options{}, webServer("s", h.URL, clientconfig.HTTP))
	f.untilState("s", Ready)
	mu.Lock()
	revoked = true
	mu.Unlock()
	var down *DownError
	for range 20 {
		if _, err := f.call("s", "echo", "{}"); !errors.As(err, &down) || !strings.Contains(down.Error(), "401") {
			t.Fatalf("a call: %v", err)
		}
	}
	st := f.untilState("s", Failed)
	if !strings.Contains(st.Reason, "token [redacted] expired") || !st.Retry.IsZero() {
		t.Errorf("status %+v", st)
	}
	mu.Lock()
	if refusals > 3 {
		t.Errorf("%d requests were refused", refusals)
	}
	revoked = false
	mu.Unlock()
	f.Restart(t.Context(), "s")
	f.untilState("s", Ready)
	f.end()
}

func TestHTTPCallEndsWithCaller(t *testing.T) {
	_, url := serveWeb(t, "sse")
	f := start(t, Options{}, webServer("s", url, clientconfig.HTTP))
	f.untilState("s", Ready)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := f.Call(ctx, "s", Call{Tool: "progress", Arguments: json.RawMessage(`{"steps":1000,"ms":20}`), Progress: func(json.RawMessage) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose caller left: %v", err)
	}
}

// The modern protocol announces changes on a stream that is asked for.
func TestModernListChanged(t *testing.T) {
	w, url := serveWeb(t, "modern")
	f := start(t, Options{}, webServer("http", url, clientconfig.HTTP), named("stdio", "modern"))
	for _, key := range []string{"http", "stdio"} {
		if st := f.untilState(key, Ready); st.Version != "2026-07-28" {
			t.Errorf("%s: %+v", key, st)
		}
		if key == "http" {
			f.until("a stream", func() bool { return count(w, "POST", "subscriptions/listen") == 1 })
		}
		raw, err := f.call(key, "add_tool", `{"name":"late"}`)
		text(t, raw, err)
		f.until("the new tool of "+key, func() bool { return find(f.listing(key).Tools, "late") != nil })
		// Each request says which protocol it speaks, in place of a session.
		raw, err = f.Call(t.Context(), key, Call{Tool: "echo", Meta: json.RawMessage(`{"mine":1}`)})
		if got := text(t, raw, err); !strings.Contains(got, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) || !strings.Contains(got, `"mine":1`) {
			t.Errorf("%s saw %s", key, got)
		}
	}
	for _, r := range w.Requests() {
		if r.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s carried a session", r.Message)
		}
		if r.Message == "tools/call" && (r.Header.Get("Mcp-Name") == "" || r.Header.Get("Mcp-Method") != "tools/call") {
			t.Errorf("a call came with %v", r.Header)
		}
	}
}

// The entry's protocol is obeyed.
func TestProtocolOfTheEntry(t *testing.T) {
	old, modern := named("old", "modern"), named("modern", "ok")
	old.Def.Protocol, modern.Def.Protocol = "legacy", "modern"
	f := start(t, Options{}, old, modern)
	if st := f.untilDown("old"); !strings.Contains(st.Reason, "Method not found") {
		t.Errorf("legacy with a modern server: %+v", st)
	}
	if st := f.untilDown("modern"); !strings.Contains(st.Reason, "asks for a modern one") {
		t.Errorf("modern with an old server: %+v", st)
	}
}
