package ipc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDecodeStrictSaysWhere(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"syntax", "{\"tool_id\": \"a::b\",\n \"arguments\": {,}}", "line 2, column 16"},
		{"unknown field", `{"toolid":"a::b"}`, `unknown field "toolid"`},
		{"wrong kind", `{"tool_id":7}`, `"tool_id"`},
		{"cut off", `{"tool_id":"a`, "ends too early"},
		{"two documents", `{} {}`, "more after"},
		{"not an object", `[]`, "a JSON array does not fit there"},
		{"nothing", " ", "there is none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := DecodeStrict([]byte(test.in), &CallRequest{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something with %q", err, test.want)
			}
		})
	}
	if err := DecodeStrict([]byte(` {"tool_id":"a::b"} `), &CallRequest{}); err != nil {
		t.Error(err)
	}
}

func TestPlace(t *testing.T) {
	data := []byte("ab\nçd\n")
	for _, test := range []struct {
		offset int64
		want   string
	}{{0, "line 1, column 1"}, {1, "line 1, column 1"}, {2, "line 1, column 2"}, {4, "line 2, column 1"}, {6, "line 2, column 2"}, {99, "line 3, column 1"}} {
		if got := Place(data, test.offset); got != test.want {
			t.Errorf("Place(%d) = %s, want %s", test.offset, got, test.want)
		}
	}
}

func TestReadLineIsBounded(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("one\n\nthree"), 16)
	for _, want := range []string{"one", ""} {
		got, err := readLine(r)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if got, err := readLine(r); err == nil {
		t.Errorf("an unfinished line came back as %q", got)
	}
	endless := bufio.NewReader(&repeat{})
	if _, err := readLine(endless); !errors.Is(err, errLineTooLong) {
		t.Errorf("an endless line gave %v", err)
	}
}

type repeat struct{}

func (*repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestEncodeLeavesTextAlone(t *testing.T) {
	got := Encode(ActivatedTool{ToolID: "a::b", Definition: json.RawMessage(`{"d":"<a> & 'b'", "n":12345678901234567890}`)})
	want := `{"tool_id":"a::b","definition":{"d":"<a> & 'b'","n":12345678901234567890}}` + "\n"
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestProtocolRanges(t *testing.T) {
	for _, test := range []struct {
		a, b Protocol
		want bool
	}{{Protocol{1, 1}, Protocol{1, 1}, true}, {Protocol{1, 2}, Protocol{2, 3}, true}, {Protocol{1, 1}, Protocol{2, 3}, false}, {Protocol{4, 5}, Protocol{1, 3}, false}} {
		if got := test.a.Overlaps(test.b); got != test.want {
			t.Errorf("%s and %s: %v", test.a, test.b, got)
		}
	}
	if p, ok := parseProtocol("1-3"); !ok || p != (Protocol{1, 3}) {
		t.Errorf("1-3 was read as %v, %v", p, ok)
	}
	for _, bad := range []string{"", "1", "a-b", "1-"} {
		if _, ok := parseProtocol(bad); ok {
			t.Errorf("%q was read as a range", bad)
		}
	}
}

// TestBodyOverTheLimit: a caller gets the answer whether or not it reads while it
// writes, and one that asks before it sends need not send.
func TestBodyOverTheLimit(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: NewHandler(struct{ Backend }{}, nil)}
	go server.Serve(l)
	defer server.Close()
	body := append(append([]byte(`{"tool_id":"`), bytes.Repeat([]byte("x"), maxBody+8<<20)...), `"}`...)
	for _, path := range []string{"/v1/call", "/v1/activate", "/v1/sessions"} {
		for name, way := range map[string]struct {
			head string
			body []byte
		}{
			"length": {fmt.Sprintf("Content-Length: %d\r\n", len(body)), body},
			"chunks": {"Transfer-Encoding: chunked\r\n", slices.Concat(fmt.Appendf(nil, "%x\r\n", len(body)), body, []byte("\r\n0\r\n\r\n"))},
			"asked":  {fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n", len(body)), nil},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				conn, err := net.Dial("unix", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write(slices.Concat([]byte("POST "+path+" HTTP/1.1\r\nHost: toolsd\r\n"+way.head+"\r\n"), way.body)); err != nil {
					t.Fatalf("writing the body: %v", err)
				}
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				var doc ErrorDocument
				if err := json.NewDecoder(response.Body).Decode(&doc); err != nil || response.StatusCode != http.StatusRequestEntityTooLarge ||
					doc.Error == nil || doc.Error.Code != CodeTooLarge || doc.Error.Message == "" || doc.Error.Hint == "" {
					t.Errorf("%s: %+v, %v", response.Status, doc.Error, err)
				}
			})
		}
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for _, c := range []Code{CodeUsage, CodeBadArguments, CodeEmptyQuery, CodeNotFound, CodeAmbiguous, CodeNeedsTrust, CodeNotSeen,
		CodeToolError, CodeServerDown, CodeTimeout, CodeCancelled, CodeOutcomeUnknown, CodeNoDaemon, CodeVersionSkew, CodeLocked, CodeTooLarge, CodeInternal} {
		if s := c.status(); s < 400 || s > 599 {
			t.Errorf("%s has status %d", c, s)
		}
	}
}

func FuzzDecodeStrict(f *testing.F) {
	f.Add([]byte(`{"tool_id":"a::b","arguments":{"x":1}}`))
	f.Add([]byte("{\n\"q\":}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r CallRequest
		if err := DecodeStrict(data, &r); err == nil && !json.Valid(bytes.TrimSpace(data)) {
			t.Errorf("%q is no JSON but was taken", data)
		}
	})
}

func TestNumberOfAQuery(t *testing.T) {
	for text, want := range map[string]int{"5": 5, "99999999999999999999": math.MaxInt, "0": 0, "-1": 0, "-99999999999999999999": 0, "1.5": 0, "x": 0} {
		q := newQuery("n=" + text)
		n := q.number("n")
		if err := q.done(); (err == nil) != (want > 0) || want > 0 && n != want {
			t.Errorf("n=%s is %d, %v", text, n, err)
		}
	}
}
