package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

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
