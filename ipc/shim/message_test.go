package shim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/toolsd/toolsd/ipc"
)

// talk sends lines to a shim without a daemon and returns what it writes until
// its input has ended.
func talk(t testing.TB, lines string) []string {
	t.Helper()
	var out bytes.Buffer
	err := Run(context.Background(), Options{
		In: strings.NewReader(lines), Out: &out, Log: slog.New(slog.DiscardHandler), Version: "1",
		Connect: func(context.Context) (ipc.Backend, error) { return nil, ipc.Errorf(ipc.CodeNoDaemon, "none") },
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
	if out.Len() == 0 {
		return nil
	}
	if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		t.Errorf("the last line has no end: %q", out.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string // parts, one per line written
	}{
		{"not JSON", `{"jsonrpc":"2.0",`, []string{`"id":null,"error":{"code":-32700`}},
		{"half a line at the end", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{`{"jsonrpc":"2.0","id":1,"result":{}}`}},
		{"empty lines", "\n  \n\r\n", nil},
		{"no version", `{"id":1,"method":"ping"}` + "\n", []string{`"id":1,"error":{"code":-32600`}},
		{"no method", `{"jsonrpc":"2.0","id":1}` + "\n", []string{`"id":1,"error":{"code":-32600`}},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}` + "\n", []string{`"id":null,"error":{"code":-32600`}},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"ping"}` + "\n", []string{`"id":null,"error":{"code":-32600`}},
		{"not an object", "3\n", []string{`"id":null,"error":{"code":-32600`}},
		{"unknown method", `{"jsonrpc":"2.0","id":"x","method":"no/such"}` + "\n", []string{`"id":"x","error":{"code":-32601`}},
		{"no resources here", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}` + "\n", []string{`"error":{"code":-32601`}},
		{"no prompts here", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}` + "\n", []string{`"error":{"code":-32601`}},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/whatever"}` + "\n", nil},
		{"an answer to nobody", `{"jsonrpc":"2.0","id":4,"result":{}}` + "\n", nil},
		{"ping before initialize", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}` + "\n", []string{`"result":{}`}},
		{"list before initialize", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n", []string{`"tools":[{"name":"tool_search"`}},
		{"call without a name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}` + "\n", []string{`"error":{"code":-32602`}},
		{"call with odd params", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}` + "\n", []string{`"error":{"code":-32602`}},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},7]` + "\n", []string{`-32600`}},
		{"a batch without requests", `[{"jsonrpc":"2.0","method":"notifications/x"}]` + "\n", nil},
		{"an empty batch", "[]\n", []string{`"id":null,"error":{"code":-32600`}},
		{"a byte order mark", "\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", []string{`"id":1,"result":{}`}},
		{"a byte order mark on a line of its own", "\uFEFF\r\n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", []string{`"id":1,"result":{}`}},
		{"two byte order marks", "\uFEFF\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", []string{`-32700`}},
		{"a byte order mark later", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n\uFEFF" + `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n", []string{`"id":1,"result":{}`, `-32700`}},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}\n", []string{`"id":"�","result":{}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := talk(t, c.in)
			if len(got) != len(c.want) {
				t.Fatalf("got %q", got)
			}
			for _, part := range c.want { // answers come in any order
				if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, part) }) {
					t.Errorf("got %s, want %s in a line", got, part)
				}
			}
		})
	}
}

func TestBatchIsAnsweredAsBatch(t *testing.T) {
	got := talk(t, `[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}]`+"\n")
	var answers []struct {
		ID     json.RawMessage
		Result json.RawMessage
	}
	if len(got) != 1 || json.Unmarshal([]byte(got[0]), &answers) != nil || len(answers) != 2 {
		t.Fatalf("got %q", got)
	}
	ids := string(answers[0].ID) + string(answers[1].ID)
	if !strings.Contains(ids, `"a"`) || !strings.Contains(ids, "9007199254740993") {
		t.Errorf("the ids are %s", ids)
	}
}

func TestTooLongALine(t *testing.T) {
	for _, length := range []int{101, 16 << 10, 40 << 10} {
		r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", length)+"\nnext\n"+strings.Repeat("y", length)), 16)
		if _, err := readMessage(r, 100); err != errTooLong {
			t.Errorf("%d bytes: got %v", length, err)
		}
		if line, err := readMessage(r, 100); string(line) != "next" || err != nil {
			t.Errorf("behind it: %q, %v", line, err)
		}
		if _, err := readMessage(r, 100); err != errTooLong {
			t.Errorf("at the end: %v", err)
		}
		if _, err := readMessage(r, 100); err != io.EOF {
			t.Errorf("behind that: %v", err)
		}
	}
	if line, err := readMessage(bufio.NewReader(strings.NewReader(strings.Repeat("x", 99)+"\n")), 100); len(line) != 99 || err != nil {
		t.Errorf("just short enough: %d bytes, %v", len(line), err)
	}
}

// A request whose id is in use is refused, and the first one still answered.
func TestSameIDTwice(t *testing.T) {
	got := strings.Join(talk(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool_search","arguments":{"query":"x"}}}
{"jsonrpc":"2.0","id":1,"method":"ping"}
`), "\n")
	if !strings.Contains(got, "is running") && !strings.Contains(got, `"result":{}`) || !strings.Contains(got, `"isError":true`) {
		t.Errorf("got %s", got)
	}
}

// An agent that is gone, or that hangs without reading, does not keep the
// process alive.
func TestRunReturnsThoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, out := io.Pipe()
		defer out.Close()
		before := time.Now()
		err := Run(t.Context(), Options{
			In: strings.NewReader(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 10)), Out: out,
			Connect: func(ctx context.Context) (ipc.Backend, error) { <-ctx.Done(); return nil, ctx.Err() },
		})
		if took := time.Since(before); err != nil || took > drainWait+handOver {
			t.Errorf("Run returned %v after %v", err, took)
		}
	})
}

func TestRunReturnsWhenTheAgentStopsReading(t *testing.T) {
	in, w := io.Pipe()
	defer w.Close()
	done := make(chan error)
	go func() {
		done <- Run(t.Context(), Options{In: in, Out: brokenPipe{}, Connect: func(context.Context) (ipc.Backend, error) { return nil, io.EOF }})
	}()
	if _, err := io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "talking to the agent") {
		t.Errorf("Run returned %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrNoProgress }

// Whatever comes in, every line that goes out is one JSON-RPC message, and the
// shim is still there to answer.
func FuzzLoop(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"x"}}}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"tool_call","arguments":"{\"tool\":\"x\"}"}}`, `{"method":3}`, "\x00", `[[]]`,
		`{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_category_tools","arguments":{"category":[]},"_meta":3}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got := talk(t, string(in)+"\n"+`{"jsonrpc":"2.0","id":"the last","method":"ping"}`+"\n")
		alive := false
		for _, line := range got {
			if !json.Valid([]byte(line)) {
				t.Fatalf("wrote %q", line)
			}
			alive = alive || strings.Contains(line, "the last")
		}
		if !alive {
			t.Fatalf("no answer behind %q: %q", in, got)
		}
	})
}

func FuzzUnderstand(f *testing.F) {
	f.Add([]byte(`{"tool_id":"a::b","arguments":{}}`))
	f.Add([]byte(`"{\"tool\":\"mcp__x__y\",\"z\":[1]}"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return // the loop lets nothing else through
		}
		got, problem := understand(raw)
		if problem == "" && (got.tool == "" || !json.Valid(got.arguments) || got.arguments[0] != '{') {
			t.Errorf("%s was understood as %q %s", raw, got.tool, got.arguments)
		}
	})
}

// Looking through an object finds what encoding/json finds, byte for byte.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{}`, ` { "a" : 1 , "b\u0041":[{"c":"]}"}], "d":"\\\"" } `, `{"a":-1.5e3,"a":null,"":{"":[]}}`, `[1]`, `3`, `{"x":true}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !utf8.Valid(raw) || len(bytes.TrimSpace(raw)) == 0 {
			return
		}
		var want map[string]json.RawMessage
		wrong := json.Unmarshal(raw, &want)
		got, err := object(bytes.TrimSpace(raw))
		if (err == nil) != (wrong == nil) || len(got) != len(want) {
			t.Fatalf("%s: got %q, %v; want %q, %v", raw, got, err, want, wrong)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) {
				t.Errorf("%s: %q is %s, want %s", raw, name, got[name], value)
			}
		}
	})
}
