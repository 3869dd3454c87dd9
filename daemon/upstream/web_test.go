package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that asks for an answer with every line it sends, and takes none, holds
// no more than a few.
func TestHTTPAnswersAreBounded(t *testing.T) {
	var asked atomic.Int64
	hang := roundTrip(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	c := newHTTPConn(&http.Client{Transport: hang}, clientconfig.Server{URL: "http://h.example/mcp"}, newNotes(cleaner{}), func() {}, func() {})
	for i := range 10000 {
		c.receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
	}
	c.shut()
	if n := asked.Load(); n > maxAside {
		t.Errorf("%d answers were under way", n)
	}
}

// Credentials do not follow a stream of events to the host that it is redirected
// to, neither to open it nor with the messages that go there.
func TestSSERedirect(t *testing.T) {
	target, url := serveWeb(t, "only-sse")
	other := strings.Replace(url, "127.0.0.1", "localhost", 1)
	_, elsewhere := serveWeb(t, "redirect="+other+"/sse")
	f := start(t, Options{}, webServer("r", elsewhere, clientconfig.SSE))
	f.untilState("r", Ready)
	for _, r := range target.Requests() {
		if r.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s %s carried %v", r.Method, r.Message, r.Header)
		}
	}
}

// Servers of the first years' SDKs say with a 400 that they do not know a session.
func TestHTTPSessionLostWith400(t *testing.T) {
	for _, tt := range []struct{ name, body string }{
		{"a message", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`},
		{"text", "Bad Request: No valid session ID provided"},
		{"not initialized", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := faultserver.NewWeb("ok")
			if err != nil {
				t.Fatal(err)
			}
			var forget atomic.Bool
			h := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") == "1" && forget.Load() {
					http.Error(rw, tt.body, http.StatusBadRequest)
					return
				}
				w.ServeHTTP(rw, r)
			}))
			t.Cleanup(func() { w.Close(); h.CloseClientConnections(); h.Close() })
			f := start(t, Options{}, webServer("s", h.URL, clientconfig.HTTP))
			f.untilState("s", Ready)
			forget.Store(true)
			raw, err := f.call("s", "echo", `{}`)
			text(t, raw, err)
			if n := count(w, "POST", "initialize"); n != 2 {
				t.Errorf("%d times initialized, want 2", n)
			}
		})
	}
}

// A server that refuses the first message, and has no stream of events either, has
// said why in its first answer.
func TestHTTPRefusalIsTold(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"a message", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"unknown tenant"}}`, "unknown tenant"},
		{"text", "unknown tenant", "400 Bad Request: unknown tenant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					http.Error(rw, "POST only", http.StatusMethodNotAllowed)
					return
				}
				http.Error(rw, tt.body, http.StatusBadRequest)
			}))
			t.Cleanup(h.Close)
			f := start(t, Options{}, webServer("s", h.URL, clientconfig.Auto))
			if st := f.untilDown("s"); !strings.Contains(st.Reason, tt.want) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A connection of HTTP/2 that died without a word is found out, and the next
// request takes another one.
func TestHTTP2ConnectionThatDied(t *testing.T) {
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.Proto) }))
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	var dead atomic.Bool // what was connected by then carries nothing any more
	var w web
	client := w.client(platform.Environ{})
	transport := client.Transport.(*http.Transport)
	if transport.HTTP2.SendPingTimeout != silence || transport.HTTP2.PingTimeout != pong {
		t.Errorf("%+v", transport.HTTP2)
	}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	transport.TLSClientConfig = h.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || dead.Load() {
			return conn, err
		}
		return &mutable{conn, &dead}, nil
	}
	defer transport.CloseIdleConnections()
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return errors.New("it hung")
			}
			return nil // a request on the dead connection may fail, if it does in time
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) != "HTTP/2.0" {
			return fmt.Errorf("it spoke %s", body)
		}
		return nil
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	dead.Store(true)
	for range 2 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
}

// After a sleep of the machine no new attempt takes a connection from before, though
// a stream that waits on it keeps it from being idle.
func TestConnectionsFromBeforeASleep(t *testing.T) {
	var remote sync.Map
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		remote.Store(r.URL.Path, r.RemoteAddr)
		rw.WriteHeader(http.StatusOK)
		rw.(http.Flusher).Flush()
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
		}
	}))
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	set := New(Options{})
	get := func(ctx context.Context, path string) {
		t.Helper()
		client := set.web.client(platform.Environ{})
		client.Transport.(*http.Transport).TLSClientConfig.RootCAs = h.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if path != "/stream" {
			resp.Body.Close()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer set.web.closeIdle()
	defer cancel()
	get(ctx, "/stream")
	get(ctx, "/before")
	set.jumped(time.Hour)
	get(ctx, "/after")
	stream, _ := remote.Load("/stream")
	before, _ := remote.Load("/before")
	after, _ := remote.Load("/after")
	if stream != before || after == before {
		t.Errorf("stream %v, before %v, after %v", stream, before, after)
	}
}

// mutable is a connection that can die without a word.
type mutable struct {
	net.Conn
	dead *atomic.Bool
}

func (m *mutable) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}
