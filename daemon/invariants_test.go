package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

func TestInvariant01LosingTheIndexLosesOnlyTime(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "dup": fault("duplicates")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("dup", ipc.StateReady)
	want := r.ids("echo answers once")
	if len(want) == 0 {
		t.Fatal("nothing is found")
	}
	path := filepath.Join(m.dirs.Cache, "index.db")
	damage := map[string]func(data []byte) []byte{
		"deleted":   nil,
		"emptied":   func([]byte) []byte { return nil },
		"cut":       func(d []byte) []byte { return d[:len(d)/2] },
		"garbage":   func(d []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(d)/8) },
		"meta":      func(d []byte) []byte { return append(bytes.Repeat([]byte{0xff}, 8192), d[8192:]...) },
		"directory": nil,
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			switch {
			case name == "directory":
				err = os.Mkdir(path, 0o700)
			case harm != nil:
				err = os.WriteFile(path, harm(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			r = m.start()
			r.untilState("lab", ipc.StateReady)
			r.untilState("dup", ipc.StateReady)
			if got := r.ids("echo answers once"); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if name == "directory" { // the next rows need a file again
				r.stop()
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				r = m.start()
				r.untilState("lab", ipc.StateReady)
			}
		})
	}
}

func TestInvariant02NoProjectServerRunsBeforeApproval(t *testing.T) {
	m := newMachine(t)
	marker := filepath.Join(m.home, "ran")
	entry := func(arg string) object {
		return object{"command": "/bin/sh", "args": []string{"-c", "echo ran >>'" + marker + "'; cat", arg}}
	}
	m.config(object{"lab": fault("ok")})
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": entry("1")}})
	// Whatever a repository claims about approvals means nothing.
	m.write(m.project+"/.claude/settings.json", object{"enableAllProjectMcpServers": true, "enabledMcpjsonServers": []string{"theirs"}})
	m.write(m.project+"/.vscode/settings.json", object{"chat.mcp.autostart": true})
	m.write(m.project+"/toolsd.json", object{"trust": object{"userScope": "auto"}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	ran := func() bool { _, err := os.Stat(marker); return err == nil }
	if info := r.untilState("theirs", ipc.StatePending); info.Transport != "" || info.PID != 0 || !strings.Contains(info.Hint, "toolsd trust theirs") {
		t.Errorf("a pending server shows more than its name and file: %s", ipc.Encode(info))
	}
	if _, err := r.call("theirs::x", "{}"); codeOf(err) != ipc.CodeNeedsTrust {
		t.Errorf("calling it: %v", err)
	}
	if ran() {
		t.Fatal("it ran without approval")
	}

	shown := func() ipc.TrustInfo {
		t.Helper()
		l, err := r.Trust(t.Context(), ipc.TrustRequest{Name: "theirs", CWD: m.project})
		if err != nil || len(l.Servers) != 1 {
			t.Fatalf("%s %v", ipc.Encode(l), err)
		}
		return l.Servers[0]
	}
	approve := func(fingerprint string) error {
		_, err := r.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Name: "theirs", Fingerprint: fingerprint, CWD: m.project})
		return err
	}
	first := shown().Fingerprint
	if err := approve("another"); codeOf(err) != ipc.CodeNeedsTrust {
		t.Errorf("approving what was not shown: %v", err)
	}
	if err := approve(first); err != nil {
		t.Fatal(err)
	}
	r.until("it runs", ran)

	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": entry("2")}})
	r.untilState("theirs", ipc.StatePending)
	if now := shown(); now.Fingerprint == first || len(now.Changes) == 0 {
		t.Errorf("after a change: %s", ipc.Encode(now))
	}
	if err := approve(first); codeOf(err) != ipc.CodeNeedsTrust {
		t.Errorf("the old approval was taken for the new definition: %v", err)
	}
	// Back to what was approved: it may run again, and revoked it may not.
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": entry("1")}})
	r.until("it is approved again", func() bool { s := r.server("theirs").State; return s != ipc.StatePending && s != "" })
	if _, err := r.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustRevoke, Name: "theirs", CWD: m.project}); err != nil {
		t.Fatal(err)
	}
	if s := r.server("theirs"); s.State != ipc.StatePending {
		t.Errorf("a revoked server is %s", s.State)
	}
}

func TestInvariant03AChangedDefinitionIsShownFirst(t *testing.T) {
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	m.write(list, `[{"name":"cut","description":"cut a cable","inputSchema":{"type":"object"}}]`)
	m.config(object{"lab": fault("tools=" + list)}, object{"toolSearch": object{"minPct": 0, "minTokens": 0}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	lists := make(chan []ipc.Listed, 10)
	s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test", CWD: m.project}, ipc.Events{List: func(l []ipc.Listed) { lists <- l }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Search(t.Context(), ipc.SearchRequest{Query: "cut"})
	if err != nil || found.Count != 1 {
		t.Fatalf("%s %v", ipc.Encode(found), err)
	}
	<-lists
	old := found.Matches[0].Listed
	if err := s.Saw(t.Context(), map[tool.ID]tool.Hash{old.ID: old.Hash}, true); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Call(t.Context(), ipc.SessionCall{Tool: "lab_cut"}); err != nil || o.Refused != nil {
		t.Fatalf("%s %v", ipc.Encode(o), err)
	}
	m.write(list, `[{"name":"cut","description":"cut the power of the whole house","inputSchema":{"type":"object"}}]`)
	if _, err := r.client.Restart(t.Context(), ipc.ServerRequest{Name: "lab"}); err != nil {
		t.Fatal(err)
	}
	changed := <-lists
	if len(changed) != 1 || changed[0].Hash == old.Hash || changed[0].Name != old.Name {
		t.Errorf("the entry changes in place: %s", ipc.Encode(changed))
	}
	o, err := s.Call(t.Context(), ipc.SessionCall{Tool: "lab_cut"})
	if err != nil || o.Refused == nil || o.Refused.Why != ipc.Changed || !bytes.Contains(o.Refused.Tool.Definition, []byte("whole house")) {
		t.Fatalf("%s %v", ipc.Encode(o), err)
	}
	if err := s.Saw(t.Context(), map[tool.ID]tool.Hash{o.Refused.Tool.ID: o.Refused.Tool.Hash}, false); err != nil {
		t.Error(err)
	}
	if o, err = s.Call(t.Context(), ipc.SessionCall{Tool: "lab_cut"}); err != nil || o.Refused != nil {
		t.Errorf("%s %v", ipc.Encode(o), err)
	}
}

// A server that was away may come back with another definition. What an agent
// saw of the old one does not let the new one run.
func TestInvariant03HoldsForAServerThatWasAway(t *testing.T) {
	const old, changed = `[{"name":"cut","description":"cut a cable","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}]`,
		`[{"name":"cut","description":"cut the power","inputSchema":{"type":"object","properties":{"n":{"type":"string"}}}}]`
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	m.config(object{"lab": fault("tools=" + list)}, object{"toolSearch": object{"minPct": 0, "minTokens": 0}})
	id := tool.ID{Server: "lab", Name: "cut"}
	for _, who := range []string{"session", "verb"} {
		t.Run(who, func(t *testing.T) {
			m.write(list, old)
			r := m.start()
			r.untilState("lab", ipc.StateReady)
			seen := map[tool.ID]tool.Hash{id: find(r.index.Snapshot(), r.world.Load().from(""), id).Hash}
			r.stop()
			m.write(list, changed)
			r = m.start() // the calls come before the server has listed anything
			defer r.stop()
			if who == "verb" {
				if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::cut", Arguments: json.RawMessage(`{"n":1}`)}); codeOf(err) != ipc.CodeBadArguments {
					t.Errorf("arguments of the old schema: %v", err)
				}
				return
			}
			s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test", Mode: ipc.Search, Active: []tool.ID{id}, Seen: seen}, ipc.Events{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			o, err := s.Call(t.Context(), ipc.SessionCall{Tool: "lab_cut", Arguments: json.RawMessage(`{"n":1}`)})
			if err != nil || o.Refused == nil || o.Refused.Why != ipc.Changed || !bytes.Contains(o.Refused.Tool.Definition, []byte("cut the power")) {
				t.Errorf("got %s %v, want the new definition", ipc.Encode(o), err)
			}
		})
	}
}

func TestInvariant04SearchNeverWaits(t *testing.T) {
	m := newMachine(t)
	servers := object{"lab": fault("ok")}
	m.config(servers)
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.stop()
	// From here on every server hangs, and a project's file never answers.
	for i := range 20 {
		servers[fmt.Sprintf("hang%d", i)] = fault("hang-init")
	}
	servers["lab"] = fault("hang-list")
	m.config(servers)
	r = m.start()
	for range 50 {
		if got := r.ids("echo"); len(got) == 0 || got[0] != "lab::echo" {
			t.Fatalf("found %v", got)
		}
	}
	if s := r.server("lab"); s.State == ipc.StateReady {
		t.Error("the server that hangs is ready: the test shows nothing")
	}
	result, err := r.client.Search(t.Context(), ipc.SearchRequest{Query: "nothing like this qq"})
	if err != nil || len(result.Waiting) == 0 || !strings.Contains(result.Note, "hang0") {
		t.Errorf("the answer does not say who is starting: %s %v", ipc.Encode(result), err)
	}
}

func TestInvariant05ASecondDaemonTouchesNothing(t *testing.T) {
	m := newMachine(t)
	r := m.start()
	before, err := os.Lstat(m.dirs.Socket)
	if err != nil {
		t.Fatal(err)
	}
	second := New(Options{Dirs: m.dirs, Executable: os.Args[0], Getenv: os.Getenv})
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), platform.ErrLocked.Error()) {
		t.Errorf("a second daemon ended with %v", err)
	}
	after, err := os.Lstat(m.dirs.Socket)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket was touched: %v", err)
	}
	if _, err := r.client.Handshake(t.Context()); err != nil {
		t.Error(err)
	}
}

// catalogServers serves every real list of the catalog under its file's name.
func catalogServers(t testing.TB) (servers object, lists map[string][]json.RawMessage) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(shared(t, "catalog"), "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d catalog files, %v", len(files), err)
	}
	servers, lists = object{}, map[string][]json.RawMessage{}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		servers[name], lists[name] = fault("tools="+f), list
	}
	return servers, lists
}

// The catalog is 44 servers and 1,583 tools with every oddity seen in practice.
func TestInvariants06And10OnTheCatalog(t *testing.T) {
	manyProcesses(t)
	servers, lists := catalogServers(t)
	m := newMachine(t)
	m.config(servers)
	r := m.start()
	for name := range servers {
		r.untilState(name, ipc.StateReady)
	}
	all, err := r.client.Tools(t.Context(), ipc.ToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range all.Tools {
		count[e.ToolID]++
	}
	total := 0
	for server, list := range lists {
		for _, raw := range list {
			total++
			var named struct{ Name string }
			if err := json.Unmarshal(raw, &named); err != nil {
				t.Fatal(err)
			}
			id := tool.ID{Server: server, Name: named.Name}
			if n := count[id.String()]; n != 1 {
				t.Errorf("%s is indexed %d times", id, n)
			}
			result, err := r.Daemon.Search(t.Context(), ipc.SearchRequest{Query: named.Name, Max: 50})
			if err != nil || result.Count == 0 || !slices.ContainsFunc(result.Matches, func(m ipc.Match) bool { return m.ToolID == id.String() }) {
				t.Errorf("%s is not found by its name: %v", id, err)
			} else if !strings.EqualFold(result.Matches[0].Tool, named.Name) {
				t.Errorf("%s: the first match is %s", id, result.Matches[0].ToolID)
			}
			a, err := r.Daemon.Activate(t.Context(), ipc.ActivateRequest{ToolIDs: []string{id.String()}})
			if err != nil {
				t.Errorf("activating %s: %v", id, err)
				continue
			}
			want, err := tool.Parse(id.Server, raw)
			if err != nil {
				t.Fatal(err)
			}
			if !sameJSON(t, a.Tools[0].Definition, want.Raw) {
				t.Errorf("%s: got %s, want %s", id, a.Tools[0].Definition, want.Raw)
			}
		}
	}
	if len(all.Tools) != total || all.Totals.Tools != total {
		t.Errorf("%d tools (%d in total), want %d", len(all.Tools), all.Totals.Tools, total)
	}
	// A removed server's tools are gone, also when it was removed while no daemon ran.
	r.stop()
	delete(servers, "kicad")
	m.config(servers)
	r = m.start()
	if got := r.ids("export_gerber"); slices.Contains(got, "kicad::export_gerber") {
		t.Error("a tool of a server that was removed is still found")
	}
}

func TestInvariant07NothingOutlivesTheDaemon(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "orphans": fault("orphans"), "stubborn": fault("stubborn")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("orphans", ipc.StateReady)
	r.untilState("stubborn", ipc.StateReady)
	pids := []int{r.server("lab").PID, r.server("orphans").PID, r.server("stubborn").PID}
	old := pids[0]
	process, err := os.FindProcess(old)
	if err != nil || process.Kill() != nil {
		t.Fatal(err)
	}
	r.until("a killed server is started again", func() bool {
		s := r.server("lab")
		return s.State == ipc.StateReady && s.PID != old
	})
	pids = append(pids, r.server("lab").PID)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d outlives the daemon", pid)
		}
	}
}

func TestInvariant08OneFailingServerDelaysNoOther(t *testing.T) {
	m := newMachine(t)
	servers := object{"lab": fault("ok")}
	for _, mode := range []string{"hang-init", "hang-list", "exit", "exit-init", "deaf", "garbage", "storm", "stderr", "bad-list"} {
		servers[mode] = fault(mode)
	}
	m.config(servers)
	m.write(filepath.Join(m.home, ".cursor", "mcp.json"), `{"mcpServers": {"half`)
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	for range 20 {
		if _, err := r.call("lab::echo", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	status, err := r.Status(t.Context(), ipc.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(status.Problems, func(p ipc.Problem) bool {
		return strings.HasSuffix(p.File, "/.cursor/mcp.json") && p.Line == 1 && p.Col > 0
	}) {
		t.Errorf("the truncated file is no problem: %s", ipc.Encode(status.Problems))
	}
	// An agent that reads nothing holds up only itself.
	conn, err := platform.Dial(t.Context(), m.dirs.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/sessions HTTP/1.1\r\nHost: toolsd\r\nContent-Length: 35\r\n\r\n{\"client\":\"deaf\",\"mode\":\"direct\"}  ")
	r.until("the deaf agent is attached", func() bool {
		s, err := r.Status(context.Background(), ipc.StatusRequest{})
		return err == nil && s.Daemon.Sessions == 1
	})
	for i := range 30 {
		servers["more"] = fault("ok", object{"env": object{"N": fmt.Sprint(i)}})
		if i%10 == 0 {
			m.config(servers)
			r.until("the edit is live", func() bool { return r.server("more").State == ipc.StateReady })
		}
		if _, err := r.call("lab::echo", `{}`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInvariant09SecretsStayWhereTheyAre(t *testing.T) {
	const secret, header, query, expanded = "planted-env-secret", "planted-header-secret", "planted-query-secret", "planted-expanded-secret"
	m := newMachine(t)
	t.Setenv("PLANTED", expanded)
	m.config(object{
		"lab":    fault("ok", object{"env": object{"TOKEN": secret, "MORE": "${PLANTED}"}}),
		"shout":  object{"command": "/bin/sh", "args": []string{"-c", "echo \"my token is $TOKEN\" >&2; exit 3"}, "env": object{"TOKEN": secret}},
		"remote": object{"url": "http://user:" + query + "@127.0.0.1:9/mcp?key=" + query, "headers": object{"Authorization": "Bearer " + header}},
		"needs":  object{"command": "x", "args": []string{"${MISSING}"}, "env": object{"TOKEN": secret}},
	})
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok", object{"env": object{"TOKEN": secret}, "headers": object{"H": header}})}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.until("the others failed", func() bool { return r.server("shout").Problem != "" && r.server("remote").Problem != "" })
	if _, err := r.call("lab::echo", `{"text":"planted-argument"}`); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	ctx := t.Context()
	status, err := r.client.Status(ctx, ipc.StatusRequest{CWD: m.project})
	said.Write(ipc.Encode(status))
	fmt.Fprint(&said, err)
	for _, name := range []string{"lab", "shout", "remote", "needs", "theirs"} {
		w, err := r.client.Why(ctx, ipc.WhyRequest{Subject: name, CWD: m.project})
		said.Write(ipc.Encode(w))
		fmt.Fprint(&said, err)
		l, err := r.client.Log(ctx, ipc.ServerRequest{Name: name, CWD: m.project})
		said.Write(ipc.Encode(l))
		fmt.Fprint(&said, err)
		_, err = r.client.Call(ctx, ipc.CallRequest{ToolID: name + "::nothing", CWD: m.project})
		fmt.Fprint(&said, err)
		tr, err := r.client.Trust(ctx, ipc.TrustRequest{Name: name, CWD: m.project})
		said.Write(ipc.Encode(tr))
		fmt.Fprint(&said, err)
	}
	r.stop()
	err = filepath.WalkDir(filepath.Dir(m.dirs.State), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == m.dirs.ConfigFile || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		said.WriteString("\n== " + path + "\n")
		said.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{secret, header, query, expanded, "planted-argument"} {
		if i := strings.Index(said.String(), s); i >= 0 {
			t.Errorf("%s is in: …%s…", s, said.String()[max(0, i-200):min(said.Len(), i+100)])
		}
	}
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(nil) == nil
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}
