package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// calls asks the fault server behind a session how often echo was called there.
func calls(t *testing.T, s ipc.Session, server string) int {
	t.Helper()
	run := func(name string) json.RawMessage {
		c := ipc.SessionCall{Tool: server + "::" + name, ViaCall: true}
		o, err := s.Call(t.Context(), c)
		if err == nil && o.Refused != nil {
			if err = s.Saw(t.Context(), map[tool.ID]tool.Hash{o.Refused.Tool.ID: o.Refused.Tool.Hash}, false); err != nil {
				t.Fatal(err)
			}
			o, err = s.Call(t.Context(), c)
		}
		if err != nil || o.Result == nil {
			t.Fatalf("%s: %s %v", name, ipc.Encode(o), err)
		}
		return o.Result
	}
	run("echo")
	var result struct{ Content []struct{ Text string } }
	var stats faultserver.Stats
	if err := json.Unmarshal(run("stats"), &result); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(result.Content[0].Text), &stats); err != nil {
		t.Fatal(err)
	}
	return stats.Calls["echo"]
}

func TestShare(t *testing.T) {
	m := newMachine(t)
	m.config(object{
		"all":   fault("ok"),
		"alone": fault("ok", object{"toolsd": object{"share": "session"}}),
		"ours":  fault("ok", object{"toolsd": object{"share": "project"}}),
	}, object{"toolSearch": object{"minPct": 0, "minTokens": 0}})
	m.write(filepath.Join(m.project, ".git", "HEAD"), "ref: refs/heads/main")
	r := m.start()
	for _, name := range []string{"all", "alone", "ours"} {
		r.until(name+" is known", func() bool { return r.server(name).Tools > 0 })
	}
	attach := func(cwd string) ipc.Session {
		s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test", CWD: cwd}, ipc.Events{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, elsewhere := attach(m.project), attach(filepath.Join(m.project, "sub")), attach(m.home)
	for _, test := range []struct {
		server  string
		s       ipc.Session
		want    int
		because string
	}{
		{"all", a, 1, "the first call"}, {"all", b, 2, "one process for all"}, {"all", elsewhere, 3, "one process for all"},
		{"alone", a, 1, "the first call"}, {"alone", b, 1, "a process of its own"}, {"alone", a, 2, "its own again"},
		{"ours", a, 1, "the first call"}, {"ours", b, 2, "the same repository"}, {"ours", elsewhere, 1, "another project"},
	} {
		if got := calls(t, test.s, test.server); got != test.want {
			t.Errorf("%s: echo ran %d times in this process, want %d (%s)", test.server, got, test.want, test.because)
		}
	}
	if n := r.server("alone").Instances; n != 2 {
		t.Errorf("%d own processes of alone, want 2", n)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	r.until("the process of the session that ended is gone", func() bool { return r.server("alone").Instances == 1 })
}

// TestAProcessOfItsOwnWithAnotherDefinition has a session's process list something
// else than the shared one did. The session calls only what it has seen.
func TestAProcessOfItsOwnWithAnotherDefinition(t *testing.T) {
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	tools := func(description string) {
		m.write(list, `[{"name":"cut","description":"`+description+`","inputSchema":{"type":"object"}}]`)
	}
	for _, hold := range []bool{false, true} {
		more := object{}
		if hold {
			more = object{"trust": object{"tools": "hold"}}
		}
		tools("cut a cable")
		m.config(object{"lab": fault("tools="+list, object{"toolsd": object{"share": "session"}})}, more)
		r := m.start()
		r.until("it is known", func() bool { return r.server("lab").Tools > 0 })
		s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test"}, ipc.Events{})
		if err != nil {
			t.Fatal(err)
		}
		id := tool.ID{Server: "lab", Name: "cut"}
		saw := func(h tool.Hash) {
			if err := s.Saw(t.Context(), map[tool.ID]tool.Hash{id: h}, false); err != nil {
				t.Fatal(err)
			}
		}
		call := func() (*ipc.CallOutcome, error) {
			return s.Call(t.Context(), ipc.SessionCall{Tool: "lab::cut", ViaCall: true})
		}
		first, err := call()
		if err != nil || first.Refused == nil || first.Refused.Why != ipc.NotSeen {
			t.Fatalf("%s %v", ipc.Encode(first), err)
		}
		saw(first.Refused.Tool.Hash)
		tools("cut the power")
		for range 2 { // before the process is there, and when it is
			o, err := call()
			if hold {
				if ipc.AsError(err).Code != ipc.CodeNeedsTrust || strings.Contains(err.Error(), "power") {
					t.Errorf("held: %s %v", ipc.Encode(o), err)
				}
				continue
			}
			if err != nil || o.Refused == nil || o.Refused.Why != ipc.Changed || !strings.Contains(string(o.Refused.Tool.Definition), "cut the power") || o.Refused.Tool.Name != first.Refused.Tool.Name {
				t.Fatalf("%s %v", ipc.Encode(o), err)
			}
			first = o
		}
		saw(first.Refused.Tool.Hash)
		if o, err := call(); !hold && (err != nil || o.Refused != nil) {
			t.Errorf("what it has seen: %s %v", ipc.Encode(o), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDefaultShare(t *testing.T) {
	for _, test := range []struct {
		words string
		want  string
	}{
		{"npx -y @playwright/mcp@latest", "session"},
		{"npx chrome-devtools-mcp@1.2", "session"},
		{"/usr/lib/node_modules/@playwright/mcp/cli.js", "session"},
		{"npx -y @modelcontextprotocol/server-puppeteer", "session"},
		{"npx -y @acme/not-@playwright", "shared"},
		{"uvx mcp-server-git --repository my-browsermcp-notes", "shared"},
		{"node server.js", "shared"},
	} {
		words := strings.Fields(test.words)
		got := defaultShare(clientconfig.Server{Transport: clientconfig.Stdio, Command: words[0], Args: words[1:]})
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.words, got, test.want)
		}
	}
}

func TestAChangedToolIsMarkedUntilItIsShown(t *testing.T) {
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	m.write(list, `[{"name":"cut","description":"cut a cable","inputSchema":{"type":"object"}}]`)
	m.config(object{"lab": fault("tools=" + list)})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	why := func() string {
		w, err := r.client.Why(t.Context(), ipc.WhyRequest{Subject: "lab::cut"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(w.Reasons, "\n")
	}
	if strings.Contains(why(), "changed") {
		t.Errorf("a tool of a first list is marked: %s", why())
	}
	m.write(list, `[{"name":"cut","description":"cut the power","inputSchema":{"type":"object"}}]`)
	if _, err := r.client.Restart(t.Context(), ipc.ServerRequest{Name: "lab"}); err != nil {
		t.Fatal(err)
	}
	r.until("it is marked", func() bool { return strings.Contains(why(), "changed") })
	const difference = `description was "cut a cable", is "cut the power"`
	if !strings.Contains(why(), difference) {
		t.Errorf("the difference is not told: %s", why())
	}
	if _, err := r.client.Restart(t.Context(), ipc.ServerRequest{Name: "lab"}); err != nil {
		t.Fatal(err)
	}
	r.untilState("lab", ipc.StateReady)
	if !strings.Contains(why(), difference) {
		t.Errorf("the difference is lost with another list: %s", why())
	}
	s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test"}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := map[tool.ID]tool.Hash{}
	for _, l := range s.Hello().List {
		seen[l.ID] = l.Hash
	}
	if err := s.Saw(t.Context(), seen, true); err != nil || len(seen) == 0 {
		t.Fatal(err)
	}
	r.until("the mark is gone", func() bool { return !strings.Contains(why(), "changed") })
}

func TestHeldToolsWaitForApproval(t *testing.T) {
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	m.write(list, `[{"name":"cut","inputSchema":{"type":"object"}}]`)
	m.config(object{"lab": fault("tools=" + list)}, object{"trust": object{"tools": "hold"}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	m.write(list, `[{"name":"cut","description":"other","inputSchema":{"type":"object"}},{"name":"burn","description":"marker\u200b text","inputSchema":{"type":"object"}}]`)
	if _, err := r.client.Restart(t.Context(), ipc.ServerRequest{Name: "lab"}); err != nil {
		t.Fatal(err)
	}
	r.until("both are held", func() bool { return r.server("lab").State == ipc.StateReady && r.server("lab").Tools == 0 })
	if got := r.ids("burn cut marker text"); len(got) != 0 {
		t.Errorf("held tools are found: %v", got)
	}
	for _, id := range []string{"lab::burn", "lab.burn", "burn"} {
		want := "toolsd trust lab::burn"
		if id == "burn" {
			want = "toolsd trust list"
		}
		_, err := r.call(id, "{}")
		if e, ok := errors.AsType[*ipc.Error](err); !ok || e.Code != ipc.CodeNeedsTrust || !strings.Contains(e.Hint, want) || !strings.Contains(e.Message, "waits for approval") {
			t.Errorf("calling the held tool %s: %s", id, ipc.Encode(err))
		}
	}
	w, err := r.client.Why(t.Context(), ipc.WhyRequest{Subject: "lab::burn"})
	const hidden = "carries hidden characters"
	if err != nil || w.State != "held" || !strings.Contains(w.Hint, "toolsd trust lab::burn") || !strings.Contains(strings.Join(w.Reasons, "\n"), "its text "+hidden) {
		t.Errorf("%s %v", ipc.Encode(w), err)
	}
	flagged := func() bool {
		l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "lab"})
		return err == nil && len(l.Servers) == 1 && len(l.Servers[0].Flagged) == 1 && strings.HasPrefix(l.Servers[0].Flagged[0], "lab::burn "+hidden)
	}
	if !flagged() {
		t.Error("a held tool is not flagged")
	}
	// What is approved is what was shown, and nothing else.
	show := func(id string) *ipc.HeldTool {
		l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: id})
		if err != nil || len(l.Servers) != 1 || l.Servers[0].HeldTool == nil {
			t.Fatalf("%s %v", ipc.Encode(l), err)
		}
		return l.Servers[0].HeldTool
	}
	if cut := show("lab::cut"); cut.Change != "changed" || len(cut.Changes) != 1 || !strings.Contains(cut.Changes[0], `description is new: "other"`) {
		t.Errorf("%s", ipc.Encode(cut))
	}
	burn := show("lab::burn")
	if burn.Change != "new" || !strings.Contains(string(burn.Definition), "marker text") {
		t.Errorf("%s", ipc.Encode(burn))
	}
	approve := func(hash tool.Hash) error {
		_, err := r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Name: "lab::burn", Fingerprint: string(hash)})
		return err
	}
	if err := approve(""); ipc.AsError(err).Code != ipc.CodeUsage {
		t.Errorf("without the hash: %v", err)
	}
	if err := approve(show("lab::cut").Hash); ipc.AsError(err).Code != ipc.CodeNeedsTrust {
		t.Errorf("with another hash: %v", err)
	}
	if _, err := r.call("lab::burn", "{}"); err == nil {
		t.Error("a tool runs whose approval was refused")
	}
	if err := approve(burn.Hash); err != nil {
		t.Fatal(err)
	}
	if !flagged() {
		t.Error("a tool that was approved is not flagged any more")
	}
	if got := r.ids("burn"); len(got) != 1 || got[0] != "lab::burn" {
		t.Errorf("after the approval: %v", got)
	}
	if _, err := r.call("lab::burn", "{}"); err != nil {
		t.Error(err)
	}
}

// TestWhatWouldRunIsFoundRightAfterAStart asks while the login shell is not heard
// yet, with whose PATH commands are found.
func TestWhatWouldRunIsFoundRightAfterAStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sh is not everywhere there")
	}
	m := newMachine(t)
	m.config(object{"lab": object{"command": "sh", "args": []string{"-c", "exit 0"}}}, object{"trust": object{"userScope": "ask"}})
	r := m.start()
	l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "lab"})
	if err != nil || len(l.Servers) != 1 || !filepath.IsAbs(l.Servers[0].Binary) || strings.Contains(strings.Join(l.Servers[0].Unusual, " "), "not found") {
		t.Errorf("%s %v", ipc.Encode(l), err)
	}
}

// TestSettingsOfTrustOutliveTheirFile starts with a config.json that cannot be
// read: what it forbade is still forbidden, and nothing else.
func TestSettingsOfTrustOutliveTheirFile(t *testing.T) {
	m := newMachine(t)
	m.write(filepath.Join(m.home, ".cursor", "mcp.json"), object{"mcpServers": object{"lab": fault("ok")}})
	cut := func() { m.write(m.dirs.ConfigFile, `{"trust": {"userScope": "as`) }
	state := func(want ipc.ServerState) {
		t.Helper()
		r := m.start()
		r.until("the settings are known", func() bool { return r.server("lab").State == want })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	cut()
	state(ipc.StateReady) // nobody ever asked
	m.write(m.dirs.ConfigFile, `{"trust": {"userScope": "ask"}}`)
	state(ipc.StatePending)
	cut()
	state(ipc.StatePending)
	m.write(m.dirs.ConfigFile, "") // by a full disk
	state(ipc.StatePending)
	m.write(m.dirs.ConfigFile, `{}`)
	state(ipc.StateReady)
	cut()
	state(ipc.StateReady)
}

func TestItsOwnEntryIsSkipped(t *testing.T) {
	m := newMachine(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m.config(object{"lab": fault("ok"), "tools": object{"command": exe, "args": []string{"mcp", "--mode", "search"}}})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	if s := r.server("tools"); s.Name != "" {
		t.Errorf("the daemon took itself for a server: %s", ipc.Encode(s))
	}
}

func TestByeIsForDaemonsThatWereToldToEnd(t *testing.T) {
	m := newMachine(t)
	r := m.start()
	s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test"}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	closed, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "test"}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if !s.Bye() || closed.Bye() {
		t.Errorf("bye is %v for the daemon's end and %v for our own", s.Bye(), closed.Bye())
	}
	// One that begins while the daemon ends is told the same.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	late, err := r.Daemon.Attach(t.Context(), ipc.AttachRequest{Client: "test"}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-late.Done():
		if !late.Bye() {
			t.Error("no bye for a session that began at the end")
		}
	default:
		t.Error("a session of a daemon that has ended goes on")
	}
}

func TestARemovedSocketComesBack(t *testing.T) {
	m := newMachine(t)
	r := m.start()
	if err := os.Remove(m.dirs.Socket); err != nil {
		t.Fatal(err)
	}
	r.client.Close()
	r.until("the daemon can be reached again", func() bool { _, err := r.client.Handshake(t.Context()); return err == nil })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

func TestADaemonWithoutItsLockFileEnds(t *testing.T) {
	m := newMachine(t)
	r := m.start()
	if err := os.Remove(filepath.Join(m.dirs.State, "toolsd.lock")); err != nil {
		t.Fatal(err)
	}
	r.client.Close()
	r.until("it has ended", func() bool { _, err := os.Lstat(m.dirs.Socket); return os.IsNotExist(err) })
}

// TestTheSocketIsRecorded: with the lock goes a record of where its holder
// listens, which counts for as long as the lock file names the same process.
func TestTheSocketIsRecorded(t *testing.T) {
	m := newMachine(t)
	if _, _, ok := RecordedSocket(m.dirs); ok {
		t.Error("there is a record before any daemon")
	}
	r := m.start()
	if pid, socket, ok := RecordedSocket(m.dirs); !ok || pid != os.Getpid() || socket != m.dirs.Socket {
		t.Errorf("recorded: process %d, %q, %v", pid, socket, ok)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dirs.State, LockName), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, socket, ok := RecordedSocket(m.dirs); ok {
		t.Errorf("the record of another process counts: process %d, %q", pid, socket)
	}
}

func TestAnUnusableCacheStopsNothing(t *testing.T) {
	m := newMachine(t)
	if err := os.RemoveAll(m.dirs.Cache); err != nil {
		t.Fatal(err)
	}
	m.write(m.dirs.Cache, "a file in the directory's place")
	m.config(object{"lab": fault("ok")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	if got := r.ids("echo"); len(got) == 0 {
		t.Error("nothing is found")
	}
	status, err := r.Status(t.Context(), ipc.StatusRequest{})
	if err != nil || len(status.Problems) != 1 || !strings.Contains(status.Problems[0].Message, "in memory only") {
		t.Errorf("%s %v", ipc.Encode(status), err)
	}
}

// TestActiveIsSaidOfTheToolItself has an agent in one project and callers in
// another: a tool of the user is active for both, and one of a project is not the
// other project's tool of the same id.
func TestActiveIsSaidOfTheToolItself(t *testing.T) {
	m := newMachine(t)
	list := filepath.Join(m.home, "tools.json")
	m.write(list, `[{"name":"cut","inputSchema":{"type":"object"}}]`)
	m.config(object{"lab": fault("tools=" + list)})
	here, there := filepath.Join(m.home, "a"), filepath.Join(m.home, "o")
	r := m.start()
	for _, dir := range []string{here, there} {
		m.write(dir+"/.mcp.json", object{"mcpServers": object{"repo": fault("tools=" + list)}})
		r.until("the project is read", func() bool {
			l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "repo", CWD: dir})
			return err == nil && len(l.Servers) == 1
		})
		r.approve("repo", dir)
		r.until("its server is ready", func() bool {
			found, err := r.client.Tools(t.Context(), ipc.ToolsRequest{CWD: dir})
			return err == nil && len(found.Tools) == 2
		})
	}
	s, err := r.client.Attach(t.Context(), ipc.AttachRequest{Client: "agent", CWD: here, Mode: ipc.Search}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []string{"lab::cut", "repo::cut"} {
		if _, err := s.Search(t.Context(), ipc.SearchRequest{ToolID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]map[string]bool{here: {"lab::cut": true, "repo::cut": true}, there: {"lab::cut": true, "repo::cut": false}} {
		tools, err := r.client.Tools(t.Context(), ipc.ToolsRequest{CWD: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range tools.Tools {
			why, err := r.client.Why(t.Context(), ipc.WhyRequest{Subject: one.ToolID, CWD: dir})
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(strings.Join(why.Reasons, "\n"), "active in agent")
			if one.Active != want[one.ToolID] || said != want[one.ToolID] {
				t.Errorf("in %s %s is active: %v in tools, %v in why, want %v", filepath.Base(dir), one.ToolID, one.Active, said, want[one.ToolID])
			}
		}
	}
}

// TestARejectedServerStaysOut is about what the user said no to in Claude Code: an
// approval here does not overrule it, and nothing says that it did.
func TestARejectedServerStaysOut(t *testing.T) {
	m := newMachine(t)
	m.write(m.home+"/.claude.json", object{"projects": object{m.project: object{"disabledMcpjsonServers": []string{"theirs"}}}})
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok")}})
	r := m.start()
	r.untilState("theirs", ipc.StatePending)
	l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "theirs", CWD: m.project})
	if err != nil || len(l.Servers) != 1 || l.Servers[0].State != "rejected" {
		t.Fatalf("%s %v", ipc.Encode(l), err)
	}
	l, err = r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Name: "theirs", Fingerprint: l.Servers[0].Fingerprint, CWD: m.project})
	if err != nil || len(l.Servers) != 1 || l.Servers[0].State != "rejected" {
		t.Errorf("%s %v", ipc.Encode(l), err)
	}
	if s := r.server("theirs"); s.State != ipc.StatePending {
		t.Errorf("it is %s", s.State)
	}
}

// TestAShellThatFailsLaterTakesNothingAway is about the environment that is asked for
// again because one entry lacks a variable.
func TestAShellThatFailsLaterTakesNothingAway(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no login shell there")
	}
	m := newMachine(t)
	shell, broken := filepath.Join(m.home, "sh"), filepath.Join(m.home, "broken")
	m.write(shell, "#!/bin/sh\n[ -e "+broken+" ] && exit 1\nexport OF_THE_PROFILE=1\nexec /bin/sh \"$@\"\n")
	if err := os.Chmod(shell, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHELL", shell)
	m.config(object{"lab": fault("ok", object{"env": object{"N": "${OF_THE_PROFILE}"}}), "lacking": fault("ok", object{"env": object{"N": "${NOBODY_SETS_THIS}"}})})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("lacking", ipc.StateFailed)
	m.write(broken, "")
	if _, err := r.client.Restart(t.Context(), ipc.ServerRequest{Name: "lacking"}); codeOf(err) != ipc.CodeServerDown {
		t.Errorf("restarting what cannot be used: %v", err)
	}
	if s := r.server("lab"); s.State != ipc.StateReady {
		t.Errorf("it is %s: %s", s.State, s.Problem)
	}
}

// TestALogThatWasJustBegunAnew shows the end of what the server wrote, which is in
// the file before.
func TestALogThatWasJustBegunAnew(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok", object{"disabled": true})})
	r := m.start()
	r.untilState("lab", ipc.StateDisabled)
	ask := func(n int) string {
		l, err := r.client.Log(t.Context(), ipc.ServerRequest{Name: "lab", Lines: n})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(l.Lines, " ")
	}
	l, err := r.client.Log(t.Context(), ipc.ServerRequest{Name: "lab"})
	if err != nil || len(l.Lines) != 0 {
		t.Fatalf("before anything was written: %s %v", ipc.Encode(l), err)
	}
	m.write(l.File, "")
	if got := ask(5); got != "" {
		t.Errorf("an empty file has %q", got)
	}
	m.write(l.File+".1", "one\ntwo\nthree\n")
	m.write(l.File, "four\n")
	for n, want := range map[int]string{1: "four", 3: "two three four", 9: "one two three four"} {
		if got := ask(n); got != want {
			t.Errorf("the last %d lines are %q, want %q", n, got, want)
		}
	}
}

// TestADecisionHoldsThoughItsCallerLeft takes approvals back for somebody who is
// gone before the answer.
func TestADecisionHoldsThoughItsCallerLeft(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 8 { // each is a matter of luck
		if _, err := r.Daemon.Trust(gone, ipc.TrustRequest{Action: ipc.TrustRevoke, Name: "lab"}); err != nil {
			t.Fatal(err)
		}
		r.untilState("lab", ipc.StatePending)
		r.approve("lab", m.project)
		if s := r.server("lab"); s.State == ipc.StatePending {
			t.Fatal("an approval did not hold")
		}
	}
}
