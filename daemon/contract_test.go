package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// TestBackend holds the daemon and the client at its socket to one contract.
func TestBackend(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "other": fault("odd-tools"), "off": fault("ok", object{"disabled": true}), "gone": object{"command": "no-such-program-anywhere"}},
		object{"pinned": []string{"lab::echo"}, "toolSearch": object{"minPct": 0, "minTokens": 0}})
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok")}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("other", ipc.StateReady)
	r.untilState("gone", ipc.StateFailed)
	for name, b := range map[string]ipc.Backend{"daemon": r.Daemon, "client": r.client} {
		t.Run(name, func(t *testing.T) { testBackend(t, m, b) })
	}
}

func testBackend(t *testing.T, m *machine, b ipc.Backend) {
	ctx := t.Context()
	cwd := m.project
	wantCode := func(t *testing.T, err error, want ipc.Code) *ipc.Error {
		t.Helper()
		e, ok := errors.AsType[*ipc.Error](err)
		if !ok || e.Code != want {
			t.Fatalf("got %v, want an error with code %s", err, want)
		}
		if e.Message == "" {
			t.Error("the error has no message")
		}
		return e
	}

	t.Run("status", func(t *testing.T) {
		s, err := b.Status(ctx, ipc.StatusRequest{CWD: cwd})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]ipc.ServerState{}
		for _, server := range s.Servers {
			states[server.Name] = server.State
		}
		want := map[string]ipc.ServerState{"lab": ipc.StateReady, "other": ipc.StateReady, "off": ipc.StateDisabled, "gone": ipc.StateFailed, "theirs": ipc.StatePending}
		for name, state := range want {
			if states[name] != state {
				t.Errorf("%s is %q, want %s", name, states[name], state)
			}
		}
		if s.Totals.Servers != len(want) || s.Totals.Tools == 0 || s.Daemon.PID == 0 || s.Daemon.Socket != m.dirs.Socket {
			t.Errorf("%s", ipc.Encode(s))
		}
		if s, err = b.Status(ctx, ipc.StatusRequest{CWD: m.home}); err != nil || slices.ContainsFunc(s.Servers, func(i ipc.ServerInfo) bool { return i.Name == "theirs" }) {
			t.Errorf("a project's server is seen from outside: %s %v", ipc.Encode(s), err)
		}
	})

	t.Run("search", func(t *testing.T) {
		r, err := b.Search(ctx, ipc.SearchRequest{Query: "echo", CWD: cwd, Explain: true})
		if err != nil || r.Count == 0 || r.Count != len(r.Matches) || r.Matches[0].ToolID != "lab::echo" || r.Matches[0].Name != "lab_echo" || r.Matches[0].State != ipc.ToolReady {
			t.Fatalf("%s %v", ipc.Encode(r), err)
		}
		if len(r.Matches[0].Matched) == 0 {
			t.Error("explain explains nothing")
		}
		_, err = b.Search(ctx, ipc.SearchRequest{Query: " \n"})
		wantCode(t, err, ipc.CodeEmptyQuery)
		_, err = b.Search(ctx, ipc.SearchRequest{Query: "x", Server: "labb"})
		if e := wantCode(t, err, ipc.CodeNotFound); !strings.Contains(e.Hint, "lab") {
			t.Errorf("no did-you-mean: %q", e.Hint)
		}
		r, err = b.Search(ctx, ipc.SearchRequest{Query: "qqxxzzqq"})
		if err != nil || r.Count != 0 || r.Matches == nil || r.Note == "" {
			t.Errorf("nothing found: %s %v", ipc.Encode(r), err)
		}
	})

	t.Run("lists", func(t *testing.T) {
		l, err := b.Tools(ctx, ipc.ToolsRequest{CWD: cwd})
		if err != nil || l.Totals.Tools != len(l.Tools) || l.Totals.Tools == 0 || l.Context.AllTools != l.Totals.Tokens {
			t.Fatalf("%s %v", ipc.Encode(l), err)
		}
		i := slices.IndexFunc(l.Tools, func(e ipc.ToolEntry) bool { return e.ToolID == "lab::echo" })
		if i < 0 || l.Tools[i].Reached != ipc.Pinned || !l.Tools[i].Active {
			t.Errorf("the pinned tool: %s", ipc.Encode(l))
		}
		one, err := b.Tools(ctx, ipc.ToolsRequest{Server: "LAB", CWD: cwd})
		if err != nil || len(one.Servers) != 1 || one.Servers[0].Name != "lab" {
			t.Errorf("%s %v", ipc.Encode(one), err)
		}
		c, err := b.Categories(ctx, ipc.CategoriesRequest{CWD: cwd})
		if err != nil || c.Total != l.Totals.Tools {
			t.Errorf("categories count %d of %d tools, %v", c.Total, l.Totals.Tools, err)
		}
		c, err = b.Categories(ctx, ipc.CategoriesRequest{Name: "lab", CWD: cwd})
		if err != nil || len(c.Categories) != 1 || len(c.Categories[0].Members) != c.Categories[0].Tools {
			t.Errorf("%s %v", ipc.Encode(c), err)
		}
		_, err = b.Categories(ctx, ipc.CategoriesRequest{Name: "lob", CWD: cwd})
		wantCode(t, err, ipc.CodeNotFound)
	})

	t.Run("activate", func(t *testing.T) {
		a, err := b.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"lab::fail", "lab.echo", "lab_slow", "lab/hang"}, CWD: cwd})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range a.Tools {
			got = append(got, tool.ToolID)
		}
		if want := []string{"lab::fail", "lab::echo", "lab::slow", "lab::hang"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if want := `{"name":"fail","description":"Answers with an error.","inputSchema":{"type":"object"}}`; string(a.Tools[0].Definition) != want {
			t.Errorf("got %s, want %s", a.Tools[0].Definition, want)
		}
		_, err = b.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"lab::ecko"}, CWD: cwd})
		if e := wantCode(t, err, ipc.CodeNotFound); !strings.Contains(e.Hint, "lab::echo") {
			t.Errorf("no did-you-mean: %q", e.Hint)
		}
		_, err = b.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"theirs::echo"}, CWD: cwd})
		wantCode(t, err, ipc.CodeNeedsTrust)
		_, err = b.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"theirs::echo"}, CWD: m.home})
		if e := wantCode(t, err, ipc.CodeNotFound); strings.Contains(e.Hint, "theirs") {
			t.Errorf("another project's server is named: %q", e.Hint)
		}
		_, err = b.Activate(ctx, ipc.ActivateRequest{CWD: cwd})
		wantCode(t, err, ipc.CodeUsage)
	})

	t.Run("call", func(t *testing.T) {
		got, err := b.Call(ctx, ipc.CallRequest{ToolID: "lab::odd", CWD: cwd})
		if err != nil || !sameJSON(t, got, []byte(faultserver.OddResult)) {
			t.Errorf("got %s %v", got, err)
		}
		_, err = b.Call(ctx, ipc.CallRequest{ToolID: "lab::fail", CWD: cwd})
		e := wantCode(t, err, ipc.CodeToolError)
		if e.RPC == nil || e.RPC.Code != -32042 || e.RPC.Message != "needs a <visit>" || string(e.RPC.Data) != faultserver.FailData {
			t.Errorf("%s", ipc.Encode(e))
		}
		_, err = b.Call(ctx, ipc.CallRequest{ToolID: "lab::slow", Arguments: json.RawMessage(`{"ms":"soon"}`), CWD: cwd})
		if e = wantCode(t, err, ipc.CodeBadArguments); !strings.Contains(e.Message, "ms") || len(e.Tool) == 0 {
			t.Errorf("%s", ipc.Encode(e))
		}
		_, err = b.Call(ctx, ipc.CallRequest{ToolID: "lab::hang", TimeoutMS: 100, CWD: cwd})
		wantCode(t, err, ipc.CodeTimeout)
		_, err = b.Call(ctx, ipc.CallRequest{ToolID: "theirs::echo", CWD: cwd})
		wantCode(t, err, ipc.CodeNeedsTrust)
		var mu sync.Mutex
		var steps []string
		got, err = b.Call(ctx, ipc.CallRequest{ToolID: "lab::progress", Arguments: json.RawMessage(`{"steps":3,"ms":1}`), CWD: cwd, Progress: func(p json.RawMessage) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, string(p))
		}})
		if err != nil || len(steps) != 3 || !strings.Contains(steps[2], `"x":9007199254740993`) {
			t.Errorf("got %s %v with progress %v", got, err, steps)
		}
		cancelled, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := b.Call(cancelled, ipc.CallRequest{ToolID: "lab::slow", Arguments: json.RawMessage(`{"ms":60000}`), CWD: cwd})
			done <- err
		}()
		cancel()
		if err := <-done; err == nil {
			t.Error("a cancelled call has a result")
		}
	})

	t.Run("why", func(t *testing.T) {
		for subject, want := range map[string]struct {
			found bool
			state string
		}{
			"lab": {true, "ready"}, "lab::echo": {true, "ready"}, "theirs": {true, "pending"}, "theirs::echo": {true, "pending"},
			"off": {true, "disabled"}, "gone": {true, "failed"}, "nothing::here": {false, "unknown"},
		} {
			w, err := b.Why(ctx, ipc.WhyRequest{Subject: subject, CWD: cwd})
			if err != nil || w.Found != want.found || w.State != want.state || len(w.Reasons) == 0 {
				t.Errorf("%s: %s %v, want %v", subject, ipc.Encode(w), err, want)
			}
		}
	})

	t.Run("servers", func(t *testing.T) {
		_, err := b.Restart(ctx, ipc.ServerRequest{Name: "theirs", CWD: cwd})
		wantCode(t, err, ipc.CodeNeedsTrust)
		_, err = b.Log(ctx, ipc.ServerRequest{Name: "nobody", CWD: cwd})
		wantCode(t, err, ipc.CodeNotFound)
		l, err := b.Log(ctx, ipc.ServerRequest{Name: "lab", CWD: cwd})
		if err != nil || l.File == "" || l.Lines == nil {
			t.Errorf("%s %v", ipc.Encode(l), err)
		}
	})

	t.Run("session", func(t *testing.T) { testSession(t, m, b) })
}

// testSession holds a session to invariant 3 and to the rules of its list.
func testSession(t *testing.T, m *machine, b ipc.Backend) {
	ctx := t.Context()
	lists := make(chan []ipc.Listed, 100)
	s, err := b.Attach(ctx, ipc.AttachRequest{Client: "test", CWD: m.project}, ipc.Events{List: func(l []ipc.Listed) { lists <- l }})
	if err != nil {
		t.Fatal(err)
	}
	hello := s.Hello()
	if hello.Mode != ipc.Search || len(hello.List) != 1 || hello.List[0].Name != "lab_echo" || hello.Session == "" {
		t.Fatalf("%s", ipc.Encode(hello))
	}
	refused := func(c ipc.SessionCall, want ipc.RefusalReason) *ipc.Refusal {
		t.Helper()
		o, err := s.Call(ctx, c)
		if err != nil || o.Refused == nil || o.Refused.Why != want {
			t.Fatalf("got %s %v, want a refusal %s", ipc.Encode(o), err, want)
		}
		if len(o.Refused.Tool.Definition) == 0 {
			t.Error("a refusal without the definition")
		}
		if err := s.Saw(ctx, map[tool.ID]tool.Hash{o.Refused.Tool.ID: o.Refused.Tool.Hash}, false); err != nil {
			t.Error(err)
		}
		return o.Refused
	}
	runs := func(c ipc.SessionCall) {
		t.Helper()
		if o, err := s.Call(ctx, c); err != nil || o.Refused != nil {
			t.Fatalf("got %s %v, want a result", ipc.Encode(o), err)
		}
	}

	// A refusal whose answer never went out shows nothing.
	if o, err := s.Call(ctx, ipc.SessionCall{Tool: "lab_stats", ViaCall: true}); err != nil || o.Refused == nil {
		t.Fatalf("got %s %v, want a refusal", ipc.Encode(o), err)
	}
	refused(ipc.SessionCall{Tool: "lab_stats", ViaCall: true}, ipc.NotSeen)
	runs(ipc.SessionCall{Tool: "lab::stats", ViaCall: true})

	refused(ipc.SessionCall{Tool: "lab_slow"}, ipc.NotSeen)
	if l := <-lists; len(l) != 2 || l[1].Name != "lab_slow" {
		t.Errorf("a direct call of an unlisted tool activates it: %s", ipc.Encode(l))
	}
	refused(ipc.SessionCall{Tool: "lab_slow", Arguments: json.RawMessage(`{"ms":"x"}`)}, ipc.BadArguments)
	runs(ipc.SessionCall{Tool: "lab_slow", Arguments: json.RawMessage(`{"ms":1}`)})

	found, err := s.Search(ctx, ipc.SearchRequest{Query: "lab::fail, large", Max: 2})
	if err != nil || found.Count < 2 || found.Matches[0].ToolID != "lab::fail" || found.Matches[1].ToolID != "lab::large" || found.Matches[0].Listed == nil {
		t.Fatalf("%s %v", ipc.Encode(found), err)
	}
	l := <-lists
	names := []string{}
	for _, e := range l {
		names = append(names, e.Name)
	}
	if want := []string{"lab_echo", "lab_slow", "lab_fail", "lab_large"}; !slices.Equal(names, want) {
		t.Errorf("the list is %v, want %v", names, want)
	}
	one, err := s.Search(ctx, ipc.SearchRequest{ToolID: "lab/echo"})
	if err != nil || one.Count != 1 || one.Matches[0].ToolID != "lab::echo" {
		t.Errorf("%s %v", ipc.Encode(one), err)
	}

	// What the client lists it must call by name, but for what only reads.
	seen := map[tool.ID]tool.Hash{}
	for _, e := range l {
		seen[e.ID] = e.Hash
	}
	if err := s.Saw(ctx, seen, true); err != nil {
		t.Fatal(err)
	}
	refused(ipc.SessionCall{Tool: "lab::large", ViaCall: true, Arguments: json.RawMessage(`{"bytes":1}`)}, ipc.CallByName)
	runs(ipc.SessionCall{Tool: "lab_large", Arguments: json.RawMessage(`{"bytes":1}`)})
	runs(ipc.SessionCall{Tool: "lab::echo", ViaCall: true})

	// A server is asked for progress that somebody wants, and told nothing else than
	// the caller said.
	if o, err := s.Call(ctx, ipc.SessionCall{Tool: "lab_echo", Meta: json.RawMessage(`{"k":1}`)}); err != nil || !strings.Contains(string(o.Result), `k\":1`) || strings.Contains(string(o.Result), "progressToken") {
		t.Errorf("%s %v", ipc.Encode(o), err)
	}
	refused(ipc.SessionCall{Tool: "lab::progress", ViaCall: true}, ipc.NotSeen)
	var steps []string
	runs(ipc.SessionCall{Tool: "lab::progress", ViaCall: true, Arguments: json.RawMessage(`{"steps":2}`), Progress: func(p json.RawMessage) { steps = append(steps, string(p)) }})
	if len(steps) != 2 || !strings.Contains(steps[1], `"progress":2,"x":9007199254740993`) {
		t.Errorf("progress %q", steps)
	}

	if _, err := s.Call(ctx, ipc.SessionCall{Tool: "lab_fail"}); codeOf(err) != ipc.CodeToolError {
		t.Errorf("an error of the server came back as %v", err)
	}
	if _, err := s.Call(ctx, ipc.SessionCall{Tool: "lab_nothing"}); codeOf(err) != ipc.CodeNotFound {
		t.Errorf("an unknown tool came back as %v", err)
	}

	// What is said for the session over the socket's other paths counts.
	if _, err := b.Call(ctx, ipc.CallRequest{ToolID: "lab::hang", Session: hello.Session, TimeoutMS: 50}); codeOf(err) != ipc.CodeNotSeen {
		t.Errorf("a call for a session that has not seen the tool: %v", err)
	}
	if _, err := b.Call(ctx, ipc.CallRequest{ToolID: "lab::hang", Session: hello.Session, TimeoutMS: 50}); codeOf(err) != ipc.CodeTimeout {
		t.Errorf("the answer held the definition, so the next call runs: %v", err)
	}
	if _, err := b.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"lab::odd"}, Session: hello.Session}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"lab_hang", "lab_odd"} { // shown by the refusal, then activated
		if l := <-lists; l[len(l)-1].Name != want {
			t.Errorf("the list ends with %s, want %s", l[len(l)-1].Name, want)
		}
	}

	// A session that comes back goes on where it was.
	again, err := b.Attach(ctx, ipc.AttachRequest{
		Client: "test", CWD: m.project, Mode: hello.Mode, Seen: seen,
		Active: []tool.ID{l[3].ID, l[1].ID},
	}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	names = names[:0]
	for _, e := range again.Hello().List {
		names = append(names, e.Name)
	}
	if want := []string{"lab_large", "lab_slow", "lab_echo"}; !slices.Equal(names, want) {
		t.Errorf("after attaching again the list is %v, want %v", names, want)
	}
	if o, err := again.Call(ctx, ipc.SessionCall{Tool: "lab_slow", Arguments: json.RawMessage(`{"ms":1}`)}); err != nil || o.Refused != nil {
		t.Errorf("what was seen before is forgotten: %s %v", ipc.Encode(o), err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	<-again.Done()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	left, err1 := canonical(a)
	right, err2 := canonical(b)
	if err1 != nil || err2 != nil {
		t.Fatalf("%v %v", err1, err2)
	}
	return left == right
}

// canonical writes a JSON document so that equal values are equal texts; numbers
// keep their spelling.
func canonical(doc []byte) (string, error) {
	d := json.NewDecoder(strings.NewReader(string(doc)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	out, err := json.Marshal(v)
	return string(out), err
}
