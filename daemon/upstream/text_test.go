package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

func TestCleanerRedacts(t *testing.T) {
	c := newCleaner(clientconfig.Server{
		Secrets: []string{"s3cret/with space", "line one\nline two", "abc"},
		Env:     map[string]string{"TOKEN": "env-value-1", "DEBUG": "1"},
		Headers: map[string]string{"Authorization": "Bearer header-value"},
		Args:    []string{"--api-key=arg-value-1", "--token", "arg-value-2", "--dir", "/home/user", "PASSWORD=arg-value-3"},
		URL:     "https://user:pass-word@host/mcp?access_token=query-value&page=overview",
	})
	for _, tt := range [][2]string{
		{"s3cret/with space", "[redacted]"},
		{"x=s3cret%2Fwith+space", "x=[redacted]"},
		{"token env-value-1.", "token [redacted]."},
		{"got Bearer header-value", "got [redacted]"},
		{"got header-value", "got [redacted]"},
		{"arg-value-1 arg-value-2 arg-value-3", "[redacted] [redacted] [redacted]"},
		{"user:pass-word@host query-value", "[redacted]@host [redacted]"},
		{"pass-word", "[redacted]"},
		{"first line two", "first [redacted]"},
		{"abc in /home/user, overview, DEBUG 1", "abc in /home/user, overview, DEBUG 1"},
		{"env-\u200bvalue-1", "[redacted]"}, // hiding characters in it does not help
		{"a\x1b[31mred\u202e\nb", "a[31mred b"},
		{"bad \xff utf-8", "bad \uFFFD utf-8"},
	} {
		if got := c.line(tt[0]); got != tt[1] {
			t.Errorf("%q: %q, want %q", tt[0], got, tt[1])
		}
	}
	if got := c.short(strings.Repeat("ä", 100), 21); got != strings.Repeat("ä", 9)+"…" {
		t.Errorf("cut: %q", got)
	}
	if got := c.short(strings.Repeat("x", 15)+"env-value-1", 20); strings.Contains(got, "env") {
		t.Errorf("a secret was cut before it was seen: %q", got)
	}
}

// The stderr of a server is kept and logged without its secrets; its log is
// rotated and shared by the processes of one server.
func TestStderrLog(t *testing.T) {
	dir := t.TempDir()
	logs := logFiles{byPath: map[string]*logFile{}}
	path := LogFile(dir, "../a/b")
	if filepath.Dir(path) != dir {
		t.Fatalf("the log is at %s", path)
	}
	if path == LogFile(dir, ".._a_b") || LogFile(dir, strings.Repeat("x", 300)) == LogFile(dir, strings.Repeat("x", 301)) {
		t.Error("two servers have one log")
	}
	f, done := logs.use(path)
	g, done2 := logs.use(path)
	if f != g {
		t.Error("two logs at one path")
	}
	s := &stderrLog{clean: newCleaner(clientconfig.Server{Secrets: []string{"hush-hush"}}), file: f}
	line := strings.Repeat("y", 1000)
	s.drain(strings.NewReader("first hush-hush\r\n\n" + strings.Repeat(line+"\n", 1500) + strings.Repeat("z", 3*maxStderrLine) + "\nlast"))
	tail := s.lines()
	if len(tail) != tailLines || tail[len(tail)-1] != "last" || len(tail[len(tail)-2]) > maxTailLine {
		t.Errorf("%d lines, the last %.60q", len(tail), tail[len(tail)-1])
	}
	done()
	s.mark("still there")
	done2()
	s.mark("closed")
	old, err := os.ReadFile(path + ".1")
	if err != nil || len(old) > maxLog+2*maxStderrLine || !strings.Contains(string(old), "first [redacted]") {
		t.Errorf("the rotated log: %d bytes, %v", len(old), err)
	}
	now, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(now), "still there") || strings.Contains(string(now)+string(old), "hush-hush") || strings.Contains(string(now), "closed") {
		t.Errorf("the log: %d bytes, %v", len(now), err)
	}
}

func TestMergeMeta(t *testing.T) {
	for _, tt := range []struct{ params, meta, ours, want string }{
		{`{"a":1}`, ``, `{}`, `{"a":1}`},
		{``, ``, `{}`, ``},
		{``, ``, `{"t":1}`, `{"_meta":{"t":1}}`},
		{`{"a":1}`, `{"x": 1.0,"b":"\u00e9"}`, `{}`, `{"_meta":{"x": 1.0,"b":"\u00e9"},"a":1}`},
		{`{"a":1}`, ` {"x": 9007199254740993} `, `{"t":1}`, `{"_meta":{"t":1,"x": 9007199254740993},"a":1}`},
		{`{"a":1}`, `{"t":"theirs","x":9007199254740993}`, `{"t":1}`, `{"_meta":{"t":1,"x":9007199254740993},"a":1}`},
		{`{"a":1}`, `{}`, `{"t":1}`, `{"_meta":{"t":1},"a":1}`},
		{`{"a":1}`, `[]`, `{}`, `{"a":1}`},
		{`{}`, `{"x":1}`, `{}`, `{"_meta":{"x":1}}`},
	} {
		var ours map[string]any
		if err := json.Unmarshal([]byte(tt.ours), &ours); err != nil {
			t.Fatal(err)
		}
		if got := string(withMeta([]byte(tt.params), mergeMeta(json.RawMessage(tt.meta), ours))); got != tt.want {
			t.Errorf("%s + %s + %s: %s, want %s", tt.params, tt.meta, tt.ours, got, tt.want)
		}
	}
}

// What a server sends is matched to the request it belongs to, or to none.
func TestPeerReceives(t *testing.T) {
	for _, tt := range []struct{ msg, result, err string }{
		{`{"id":1,"result":{"a":1.0}}`, `{"a":1.0}`, ""},
		{`{"id":"1","result":null}`, `null`, ""},
		{`[{"id":1.0,"result":[]}]`, `[]`, ""},
		{`{"id":1,"error":null,"result":3}`, `3`, ""},
		{`{"id":1,"error":"broken"}`, ``, "broken"},
		{`{"id":1,"error":{"code":"-5","message":{"a":1}}}`, ``, `{"a":1}`},
		{`{"id":null,"error":{"code":-32700,"message":"what?"}}`, ``, "what?"},
		{`{"id":1}`, ``, "neither a result nor an error"},
		{`{"id":1,"method":"roots/list"}`, ``, ""}, // its own request, with an id in use
		{`{"id":2,"result":3}`, ``, ""},
		{`{"ID":1,"Result":3}`, ``, ""},
	} {
		p := newPeer(discard{}, func() {}, newNotes(cleaner{}))
		answered := make(chan answer, 1)
		c := &pending{id: "1", answered: func(a answer) { answered <- a }}
		p.pending["1"] = c
		p.receive([]byte(tt.msg))
		select {
		case a := <-answered:
			if string(a.result) != tt.result || (a.err == nil) != (tt.err == "") || a.err != nil && !strings.Contains(a.err.Error(), tt.err) {
				t.Errorf("%s: %s, %v", tt.msg, a.result, a.err)
			}
		default:
			if tt.result+tt.err != "" {
				t.Errorf("%s was not taken for the answer", tt.msg)
			}
		}
	}
	p := newPeer(discard{}, func() {}, newNotes(cleaner{}))
	for _, msg := range []string{"", "   ", "null", "42", `"x"`, "[]", "[1]", "{", `{"level":"info"}`, `{"method":5}`, "Listening on stdio"} {
		if p.receive([]byte(msg)) {
			t.Errorf("%q was taken for a message", msg)
		}
	}
}

// Progress that nobody takes is bounded by its size too.
func TestProgressIsBounded(t *testing.T) {
	p := newPeer(discard{}, func() {}, newNotes(cleaner{}))
	c := &pending{id: "1", news: make(chan struct{}, 1)}
	p.pending["1"] = c
	params := json.RawMessage(`{"progressToken":1,"message":"` + strings.Repeat("x", 1<<20) + `"}`)
	for range 100 {
		p.gotProgress("1", params)
	}
	if n := len(c.progress); n == 0 || n*len(params) > maxMessage {
		t.Errorf("%d notifications of 1 MiB are held", n)
	}
	n := 0
	p.passProgress(c, func(json.RawMessage) { n++ })
	p.gotProgress("1", params)
	if n == 0 || len(c.progress) != 1 {
		t.Errorf("after %d were passed on, %d are held", n, len(c.progress))
	}
}

type (
	ctx     = context.Context
	discard struct{}
)

func (discard) send(_ ctx, m *outgoing) error { return nil }
func (discard) try(*outgoing) bool            { return true }
func (discard) offer(*outgoing)               {}

// A server that leaves a message unread for too long is given up.
func TestWriteLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		errR, errW := io.Pipe()
		done := make(chan struct{})
		c := newStdioConn(&child{stdin: inW, stdout: outR, stderr: errR, done: done, exit: func() string { return "" },
			stop: func(ctx) { inR.Close(); outW.Close(); errW.Close(); close(done) }},
			&stderrLog{}, newNotes(cleaner{}), func() {})
		began := time.Now()
		_, err := c.request(t.Context(), request{method: "tools/call"})
		if took := time.Since(began); took != writeLimit || err == nil || !strings.Contains(err.Error(), "did not read its input") {
			t.Errorf("after %v: %v", took, err)
		}
		c.close(t.Context())
	})
}

func TestProxies(t *testing.T) {
	p := proxiesFrom(platform.Environ{Vars: map[string]string{
		"HTTPS_PROXY": "proxy.corp:3128", "http_proxy": "http://plain.corp", "NO_PROXY": "internal, .example.org,10.0.0.0/8,host.net:8443",
	}})
	for _, tt := range [][2]string{
		{"https://api.example.com/mcp", "http://proxy.corp:3128"},
		{"http://api.example.com/mcp", "http://plain.corp"},
		{"https://localhost:3000/", ""},
		{"http://127.0.0.1:3000/", ""},
		{"https://[::1]/", ""},
		{"https://internal/", ""},
		{"https://a.example.org/", ""},
		{"https://example.org/", ""},
		{"https://notexample.org/", "http://proxy.corp:3128"},
		{"https://10.1.2.3/", ""},
		{"https://11.1.2.3/", "http://proxy.corp:3128"},
		{"https://host.net:8443/", ""},
		{"https://host.net/", "http://proxy.corp:3128"},
	} {
		u, _ := url.Parse(tt[0])
		got, err := p.proxy(&http.Request{URL: u})
		if err != nil || fmt.Sprint(got) != tt[1] && !(got == nil && tt[1] == "") {
			t.Errorf("%s: %v, %v, want %q", tt[0], got, err, tt[1])
		}
	}
}

// Why a host cannot be reached is said in words, with what to do.
func TestNetworkErrorsInWords(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	proxy := platform.Environ{Vars: map[string]string{"HTTP_PROXY": "http://127.0.0.1:1"}}
	for _, tt := range []struct {
		url, reason, hint string
		env               platform.Environ
	}{
		{url: secure.URL, reason: "authority that this machine does not know", hint: "SSL_CERT_FILE"},
		{url: strings.Replace(plain.URL, "http:", "https:", 1), reason: "without TLS", hint: "http://"},
		{url: "http://127.0.0.1:1/mcp?token=abcdefgh", reason: "connecting to 127.0.0.1:1", hint: "running"},
		{url: "http://api.invalid/mcp", reason: "proxy for api.invalid", hint: "HTTPS_PROXY", env: proxy},
		{url: "http://no-such-host.invalid/mcp", reason: "no-such-host.invalid", hint: "network"},
	} {
		var w web
		def := Server{Name: "s", Def: clientconfig.Server{Transport: clientconfig.HTTP, URL: tt.url}}
		c := newHTTPConn(w.client(tt.env), def.Def, newNotes(cleaner{}), func() {}, func() {})
		_, err := handshake(t.Context(), c, "legacy", "test")
		c.close(t.Context())
		w.closeIdle()
		if err == nil {
			t.Errorf("%s was reached", tt.url)
			continue
		}
		reason, hint := explain(err, def, newCleaner(def.Def))
		if !strings.Contains(reason, tt.reason) || !strings.Contains(hint, tt.hint) || strings.Contains(reason, "abcdefgh") {
			t.Errorf("%s: %q, hint %q", tt.url, reason, hint)
		}
	}
}
