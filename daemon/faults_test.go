package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/calllog"
	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// long reports whether the tests take the time that figures need: minutes, and
// loops of a hundred. TOOLSD_LONG=1 asks for it; -v prints the figures.
func long() bool { return os.Getenv("TOOLSD_LONG") != "" }

// times are how long something took, many times.
type times []time.Duration

func (d times) at(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(share*float64(len(d))))].Round(10 * time.Microsecond)
}

func (d times) String() string {
	return fmt.Sprintf("p50 %v p99 %v max %v (%d)", d.at(.5), d.at(.99), d.at(1), len(d))
}

// healthyServers are 29, so that one faulty server makes 30.
const healthyServers = 29

func healthy() object {
	servers := object{}
	for i := range healthyServers {
		servers[fmt.Sprintf("good%02d", i)] = fault("ok")
	}
	return servers
}

// besides checks that the healthy servers answer: every search finds, every call
// returns. It measures, and asserts nothing about times.
func (r *running) besides(ctx context.Context, rounds int) (searches, calls times, err error) {
	for range rounds {
		for i := range healthyServers {
			name := fmt.Sprintf("good%02d", i)
			begin := time.Now()
			found, err := r.client.Search(ctx, ipc.SearchRequest{Query: name + "::echo"})
			searches = append(searches, time.Since(begin))
			if err != nil || found.Count == 0 || found.Matches[0].ToolID != name+"::echo" {
				return nil, nil, fmt.Errorf("searching for %s: %s %w", name, ipc.Encode(found), err)
			}
			begin = time.Now()
			if _, err := r.client.Call(ctx, ipc.CallRequest{ToolID: name + "::echo"}); err != nil {
				return nil, nil, fmt.Errorf("calling %s: %w", name, err)
			}
			calls = append(calls, time.Since(begin))
		}
	}
	return searches, calls, nil
}

// pester calls a tool of a server again and again with a short deadline, whatever
// comes of it, until the returned function is called.
func (r *running) pester(id string) (stop func()) {
	ctx, cancel := context.WithCancel(r.m.t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := r.client.Call(ctx, ipc.CallRequest{ToolID: id, TimeoutMS: 200})
				if err == nil {
					continue
				}
				select { // one that is refused at once must not take a core
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// TestEachFaultBesideHealthyServers adds a server in each fault mode to 29
// healthy ones: from the first moment on searches find and calls return, no
// healthy server is started again, and the faulty one says what is wrong.
func TestEachFaultBesideHealthyServers(t *testing.T) {
	manyProcesses(t)
	rounds := 1
	if long() {
		rounds = 20
	}
	m := newMachine(t)
	m.config(healthy())
	r := m.start()
	for name := range healthy() {
		r.untilState(name, ipc.StateReady)
	}
	before := map[string]int{}
	for name := range healthy() {
		before[name] = r.server(name).PID
	}
	searches, calls, err := r.besides(t.Context(), max(rounds, 2))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%-20s search %v; calls %v", "none", searches, calls)

	web := func(mode string) object {
		w, err := faultserver.NewWeb(mode)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(w)
		t.Cleanup(func() { w.Close(); server.CloseClientConnections(); server.Close() })
		return object{"type": "http", "url": server.URL + "/mcp"}
	}
	type faulty struct {
		name  string
		entry object
		// works says that the fault is one to live with.
		works bool
	}
	hopeless := []string{"hang-init", "hang-list", "exit", "exit-init", "bad-list", "list-error", "null-id", "old-version", "leaves"}
	var all []faulty
	for _, mode := range faultserver.Modes {
		if mode == "ok" {
			continue
		}
		arg := map[string]string{"pages": "=40"}[mode]
		all = append(all, faulty{mode, fault(mode + arg), !slices.Contains(hopeless, mode)})
	}
	hopeless = []string{"401", "403", "redirect", "moved", "html", "only-sse", "sse-elsewhere", "hang"}
	for _, mode := range faultserver.HTTPModes {
		arg := map[string]string{"redirect": "=http://127.0.0.1:9/", "moved": "=http://127.0.0.1:9/", "forgetful": "=1"}[mode]
		all = append(all, faulty{"http " + mode, web(mode + arg), !slices.Contains(hopeless, mode)})
	}
	all = append(all,
		faulty{"no program", object{"command": "no-such-program-anywhere"}, false},
		faulty{"no port", object{"url": "http://127.0.0.1:9/mcp"}, false},
	)
	batch := 12
	if long() {
		batch = 1 // each alone, so that the figures are its own
	}
	for first := range slices.Chunk(all, batch) {
		names := []string{}
		for _, f := range first {
			names = append(names, f.name)
		}
		t.Run(strings.Join(names, ","), func(t *testing.T) {
			r.m.t = t
			servers := healthy()
			for _, f := range first {
				servers["bad "+f.name] = f.entry
			}
			stop := r.pester("bad " + first[0].name + "::echo")
			defer stop()
			m.config(servers)
			var searches, calls times
			seen := false
			for range 1000 { // the edit is seen while this goes on
				s, c, err := r.besides(t.Context(), rounds)
				if err != nil {
					t.Fatal(err)
				}
				searches, calls = append(searches, s...), append(calls, c...)
				if seen {
					break
				}
				seen = r.server("bad "+first[len(first)-1].name).Name != ""
			}
			if !seen {
				t.Fatal("the edit was not seen")
			}
			t.Logf("%-20s search %v; calls %v", strings.Join(names, ","), searches, calls)
			for _, f := range first {
				name := "bad " + f.name
				if f.works {
					r.untilState(name, ipc.StateReady)
					continue
				}
				if s := r.server(name); s.State == ipc.StateReady {
					t.Errorf("it is ready: %s", ipc.Encode(s))
				}
				if strings.Contains(f.name, "hang") {
					continue // a first start may take 60 s
				}
				r.until(name+" says what is wrong and what to do", func() bool {
					s := r.server(name)
					return s.Problem != "" && s.Hint != "" && (s.State == ipc.StateBackoff || s.State == ipc.StateFailed)
				})
			}
		})
	}
	r.m.t = t
	for name, pid := range before {
		if now := r.server(name); now.PID != pid || now.State != ipc.StateReady {
			t.Errorf("%s was disturbed: %s, process %d before", name, ipc.Encode(now), pid)
		}
	}
}

// TestAllFaultsAtOnce starts a daemon with a warm index, 29 healthy servers and
// every fault there is: the first search finds, and healthy servers come up.
func TestAllFaultsAtOnce(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(healthy())
	r := m.start()
	for name := range healthy() {
		r.untilState(name, ipc.StateReady)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	servers := healthy()
	for _, mode := range faultserver.Modes {
		if mode != "ok" {
			servers["a-"+mode] = fault(mode) // a: so that they are not the last to be started
		}
	}
	m.config(servers)
	begin := time.Now()
	r = m.start()
	first := time.Now()
	if got := r.ids("good17::echo"); len(got) == 0 || got[0] != "good17::echo" {
		t.Errorf("the first search found %v", got)
	}
	t.Logf("socket after %v, first search in %v", first.Sub(begin).Round(time.Millisecond), time.Since(first).Round(10*time.Microsecond))
	var searches times
	for name := range healthy() {
		r.until(name+" answers", func() bool {
			begin := time.Now()
			if got := r.ids(name + "::echo"); len(got) == 0 {
				t.Fatalf("%s is not found", name)
			}
			searches = append(searches, time.Since(begin))
			_, err := r.call(name+"::echo", "{}")
			return err == nil
		})
	}
	t.Logf("all healthy servers answered after %v; search %v", time.Since(begin).Round(time.Millisecond), searches)
}

// TestACrashLoopIsParked counts what a server that crashes costs: five starts,
// then it waits for a person, an edit or five minutes.
func TestACrashLoopIsParked(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	spawns := filepath.Join(m.home, "spawns")
	entry := func(n int) object {
		return object{"command": "/bin/sh", "args": []string{"-c", "echo >>'" + spawns + "'; echo no luck >&2; exit 3", fmt.Sprint(n)}}
	}
	count := func() int {
		data, err := os.ReadFile(spawns)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(data)
	}
	m.config(object{"loop": entry(1)})
	begin := time.Now()
	r := m.start()
	// Callers that wake it must not make it worse.
	stop := r.pester("loop::x")
	defer stop()
	var s ipc.ServerInfo
	if long() {
		s = r.untilParked("loop")
	} else {
		r.until("it failed three times", func() bool { return count() >= 3 })
		s = r.untilState("loop", ipc.StateBackoff)
	}
	if s.Retry == nil || !strings.Contains(s.Problem, "no luck") || s.Hint == "" {
		t.Errorf("%s", ipc.Encode(s))
	}
	if long() {
		<-time.After(time.Until(begin.Add(time.Minute)))
	}
	t.Logf("%d starts in the first %v", count(), time.Since(begin).Round(time.Second))
	if n := count(); n > 8 {
		t.Errorf("%d starts", n)
	}
	n := count()
	m.config(object{"loop": entry(2)})
	r.until("an edit tries again", func() bool { return count() > n })
}

// untilParked waits until a server is given up for now.
func (r *running) untilParked(name string) ipc.ServerInfo {
	r.m.t.Helper()
	// Five failures with their pauses take up to half a minute.
	end := time.Now().Add(2 * patience)
	for {
		if s := r.server(name); s.State == ipc.StateFailed {
			return s
		} else if time.Now().After(end) {
			r.m.t.Fatalf("it was not parked: %s", ipc.Encode(s))
		}
		<-time.After(50 * time.Millisecond)
	}
}

// TestRefusedCredentialsAreNotTriedAgain counts the requests that a server gets
// that refuses everybody.
func TestRefusedCredentialsAreNotTriedAgain(t *testing.T) {
	manyProcesses(t)
	for _, mode := range []string{"401", "403"} {
		t.Run(mode, func(t *testing.T) {
			w, err := faultserver.NewWeb(mode)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(w)
			defer server.Close()
			defer w.Close()
			m := newMachine(t)
			entry := func(token string) object {
				return object{"vendor": object{"type": "http", "url": server.URL, "headers": object{"Authorization": "Bearer " + token}}}
			}
			m.config(entry("first-token"))
			r := m.start()
			s := r.untilState("vendor", ipc.StateFailed)
			if s.Retry != nil || s.Hint == "" || !strings.Contains(s.Problem, mode) {
				t.Errorf("%s", ipc.Encode(s))
			}
			wait := 2 * time.Second
			if long() {
				wait = 5 * time.Minute
			}
			stop := r.pester("vendor::x")
			<-time.After(wait)
			stop()
			n := len(w.Requests())
			t.Logf("%d requests in %v", n, wait)
			if n > 3 {
				t.Errorf("%d requests", n)
			}
			m.config(entry("second-token"))
			r.until("new credentials are tried", func() bool { return len(w.Requests()) > n })
		})
	}
}

// TestAStormOfChanges has a server that announces a change after every list.
func TestAStormOfChanges(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "storm": fault("storm")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("storm", ipc.StateReady)
	begin := time.Now()
	lists := func() int {
		raw, err := r.call("storm::stats", "{}")
		if err != nil {
			t.Fatal(err)
		}
		var stats faultserver.Stats
		if err := json.Unmarshal([]byte(text(t, raw)), &stats); err != nil {
			t.Fatal(err)
		}
		return stats.Lists
	}
	r.until("the change is followed", func() bool { return lists() >= 3 })
	if took := time.Since(begin); took < time.Second {
		t.Errorf("three lists within %v", took)
	}
	if long() {
		<-time.After(time.Until(begin.Add(time.Minute)))
		n := lists()
		t.Logf("%d lists in the first minute", n)
		if n > 8 { // 1 s, 2 s, 4 s … after the first two
			t.Errorf("%d lists in a minute", n)
		}
	}
	if _, err := r.call("lab::echo", "{}"); err != nil {
		t.Error(err)
	}
}

// text is the first text of a result.
func text(t testing.TB, result json.RawMessage) string {
	t.Helper()
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(result, &r); err != nil || len(r.Content) == 0 {
		t.Fatalf("%.200s: %v", result, err)
	}
	return r.Content[0].Text
}

// TestAnAnswerThatIsTooLarge fails its call alone.
func TestAnAnswerThatIsTooLarge(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok")})
	r := m.start()
	pid := r.untilState("lab", ipc.StateReady).PID
	for range 2 {
		_, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::large", Arguments: json.RawMessage(`{"bytes":20971520}`)})
		if err == nil || !strings.Contains(err.Error(), "MiB") && !strings.Contains(err.Error(), "MB") {
			t.Errorf("an answer of 20 MiB: %v", err)
		}
		raw, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::large", Arguments: json.RawMessage(`{"bytes":15000000}`)})
		if err != nil || len(text(t, raw)) != 15000000 {
			t.Errorf("one of 15 MB: %d bytes, %v", len(raw), err)
		}
		if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::echo"}); err != nil {
			t.Errorf("the call after it: %v", err)
		}
	}
	if s := r.server("lab"); s.PID != pid || s.State != ipc.StateReady {
		t.Errorf("the server was started again: %s", ipc.Encode(s))
	}
}

// TestAServerThatStopsReading has callers with small and large requests: each
// gets its answer at its own deadline, and those of other servers theirs at once.
func TestAServerThatStopsReading(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "deaf": fault("deaf")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.untilState("deaf", ipc.StateReady)
	big := json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`) // more than a pipe takes
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			request := ipc.CallRequest{ToolID: "deaf::echo", TimeoutMS: 300 + 50*i}
			if i%3 == 0 {
				request.Arguments = big
			}
			begin := time.Now()
			_, err := r.client.Call(t.Context(), request)
			if code := codeOf(err); code != ipc.CodeTimeout {
				t.Errorf("call %d with %d ms: %v", i, request.TimeoutMS, err)
			}
			t.Logf("deadline %d ms, answer after %v", request.TimeoutMS, time.Since(begin).Round(time.Millisecond))
		})
	}
	for range 50 {
		if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::echo", TimeoutMS: 5000}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// TestAnAgentThatDoesNotRead floods a server with calls and leaves their answers
// unread: calls of others to the same server go on meanwhile, and when it reads at
// last, each of its calls has been answered once.
func TestAnAgentThatDoesNotRead(t *testing.T) {
	m := newMachine(t)
	m.config(object{"lab": fault("ok")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	seen := map[tool.ID]tool.Hash{}
	for _, name := range []string{"echo", "progress"} {
		id := tool.ID{Server: "lab", Name: name}
		seen[id] = find(r.index.Snapshot(), r.world.Load().from(m.project), id).Hash
	}

	conn, err := net.Dial("unix", m.dirs.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := ipc.Encode(ipc.AttachRequest{Client: "deaf", CWD: m.project, Mode: ipc.Search, Seen: seen})
	fmt.Fprintf(conn, "POST /v1/sessions HTTP/1.1\r\nHost: toolsd\r\nConnection: Upgrade\r\nUpgrade: toolsd-session\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	const calls, together = 1500, 30 // the answers are more than a socket takes; none of the calls waits for a turn
	text := strings.Repeat("x", 200)
	for i := range calls {
		if _, err := fmt.Fprintf(conn, `{"id":%d,"method":"call","params":{"tool":"lab::echo","arguments":{"text":"%s"}}}`+"\n", i+1, text); err != nil {
			t.Fatal(err)
		}
		if (i+1)%together == 0 {
			r.until("the calls have run", func() bool { return maps.Collect(r.calls.Counts())[calllog.OK] == int64(i+1) })
		}
	}
	// More of them than a server works on at a time; each tells its progress.
	const telling = 40
	for i := range telling {
		if _, err := fmt.Fprintf(conn, `{"id":%d,"method":"call","params":{"tool":"lab::progress","arguments":{"steps":100,"ms":0},"meta":{"progressToken":0}}}`+"\n", calls+i+1); err != nil {
			t.Fatal(err)
		}
	}
	r.until("those have run", func() bool { return maps.Collect(r.calls.Counts())[calllog.OK] == calls+telling })
	for range 100 {
		if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "lab::echo", TimeoutMS: 20_000}); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	answered := map[uint64]int{}
	for len(answered) < calls+telling && lines.Scan() {
		var f struct {
			ID    uint64
			Error json.RawMessage
		}
		if json.Unmarshal(lines.Bytes(), &f) == nil && f.ID != 0 {
			if answered[f.ID]++; f.Error != nil || answered[f.ID] > 1 {
				t.Fatalf("%s", lines.Bytes())
			}
		}
	}
	if len(answered) != calls+telling {
		t.Errorf("%d of %d calls were answered; %v", len(answered), calls+telling, lines.Err())
	}
}

// approve approves a project's server as it is now.
func (r *running) approve(name, cwd string) {
	r.m.t.Helper()
	l, err := r.client.Trust(r.m.t.Context(), ipc.TrustRequest{Name: name, CWD: cwd})
	if err != nil || len(l.Servers) != 1 {
		r.m.t.Fatalf("%s %v", ipc.Encode(l), err)
	}
	if _, err := r.client.Trust(r.m.t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Name: name, Fingerprint: l.Servers[0].Fingerprint, CWD: cwd}); err != nil {
		r.m.t.Fatal(err)
	}
}

// TestAnUnfitTrustFile harms the file of approvals in every way: what was
// approved waits, what was revoked stays so, and status says what happened.
func TestAnUnfitTrustFile(t *testing.T) {
	manyProcesses(t)
	for _, harm := range []struct {
		name string
		do   func(path string) error
		both bool // the copy too: then user scope waits as well
		long bool // only when there is time: the store's own tests have it too
	}{
		{name: "truncated", do: rewrite(func(d []byte) []byte { return d[:len(d)/2] })},
		{name: "flipped", long: true, do: rewrite(func(d []byte) []byte { d[len(d)/2] ^= 4; return d })},
		{name: "emptied", long: true, do: rewrite(func([]byte) []byte { return nil })},
		{name: "link", do: func(path string) error {
			if err := os.Rename(path, path+".elsewhere"); err != nil {
				return err
			}
			return os.Symlink(path+".elsewhere", path)
		}},
		{name: "directory", long: true, do: func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }},
		{name: "wide mode", long: true, do: func(path string) error { return os.Chmod(path, 0o666) }},
		{name: "both", both: true, do: func(path string) error {
			f := rewrite(func(d []byte) []byte { return d[:len(d)/2] })
			return errors.Join(f(path), f(path+".prev"))
		}},
	} {
		if harm.long && !long() {
			continue
		}
		t.Run(harm.name, func(t *testing.T) {
			m := newMachine(t)
			m.config(object{"lab": fault("ok"), "banned": fault("ok", object{"env": object{"N": "1"}})})
			m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok")}})
			r := m.start()
			r.untilState("theirs", ipc.StatePending)
			r.approve("theirs", m.project)
			r.untilState("theirs", ipc.StateReady)
			if _, err := r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustRevoke, Name: "banned"}); err != nil {
				t.Fatal(err)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(m.dirs.State, "trust.json")
			if err := harm.do(path); err != nil {
				t.Fatal(err)
			}
			r = m.start()
			r.untilState("theirs", ipc.StatePending)
			r.untilState("banned", ipc.StatePending)
			if harm.both {
				r.untilState("lab", ipc.StatePending)
			} else {
				r.untilState("lab", ipc.StateReady)
			}
			if _, err := r.call("theirs::echo", "{}"); codeOf(err) != ipc.CodeNeedsTrust {
				t.Errorf("calling it: %v", err)
			}
			status, err := r.client.Status(t.Context(), ipc.StatusRequest{CWD: m.project})
			if err != nil || !slices.ContainsFunc(status.Problems, func(p ipc.Problem) bool {
				return strings.Contains(p.Message, "trust.json") && strings.Contains(p.Message, "nothing is approved") && p.Hint != ""
			}) {
				t.Errorf("status does not say so: %s %v", ipc.Encode(status.Problems), err)
			}
			// What waits because the files are lost was taken back by nobody.
			for name, want := range map[string]string{"lab": map[bool]string{true: "pending", false: "auto"}[harm.both], "banned": map[bool]string{true: "pending", false: "revoked"}[harm.both]} {
				l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: name})
				if err != nil || len(l.Servers) != 1 || l.Servers[0].State != want {
					t.Errorf("%s is not %s: %s %v", name, want, ipc.Encode(l), err)
				}
				why, err := r.client.Why(t.Context(), ipc.WhyRequest{Subject: name})
				if err != nil || strings.Contains(strings.Join(why.Reasons, "\n"), "you took back its approval") != (want == "revoked") {
					t.Errorf("why %s, which is %s: %s %v", name, want, ipc.Encode(why), err)
				}
			}
			// It can be approved again, and that holds.
			r.approve("theirs", m.project)
			r.untilState("theirs", ipc.StateReady)
			if harm.both { // a yes to one of all that wait, and a no to the other
				l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "lab"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Fingerprints: map[string]string{"lab": l.Servers[0].Fingerprint}}); err != nil {
					t.Fatal(err)
				}
				r.untilState("lab", ipc.StateReady)
				if got := r.server("banned"); got.State != ipc.StatePending {
					t.Errorf("a server that nobody answered for is %s", got.State)
				}
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			r = m.start()
			r.untilState("theirs", ipc.StateReady)
			r.untilState("banned", ipc.StatePending)
		})
	}
}

func rewrite(f func([]byte) []byte) func(string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, f(data), 0o600)
	}
}

// TestAFullDisk gives the state a disk of its own and fills it: an approval that
// cannot be kept is not given, a revocation holds, and status says what is wrong.
func TestAFullDisk(t *testing.T) {
	manyProcesses(t)
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("mounting a small file system takes root on Linux")
	}
	m := newMachine(t)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", m.dirs.State).CombinedOutput(); err != nil {
		t.Skipf("no small file system here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", m.dirs.State).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	m.config(object{"lab": fault("ok"), "other": fault("ok", object{"env": object{"N": "1"}})})
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok"), "ours": fault("ok", object{"env": object{"N": "2"}})}})
	r := m.start()
	t.Cleanup(func() { r.stop() }) // before the file system goes
	r.untilState("ours", ipc.StatePending)
	r.approve("ours", m.project)
	for _, name := range []string{"ours", "lab", "other"} {
		r.untilState(name, ipc.StateReady)
	}

	full := filepath.Join(m.dirs.State, "full")
	f, err := os.Create(full)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	f.Close()

	l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "theirs", CWD: m.project})
	if err != nil || len(l.Servers) != 1 {
		t.Fatalf("%s %v", ipc.Encode(l), err)
	}
	_, err = r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustApprove, Name: "theirs", Fingerprint: l.Servers[0].Fingerprint, CWD: m.project})
	if e := ipc.AsError(err); err == nil || e.Hint == "" {
		t.Errorf("an approval that is not on the disk: %v", err)
	}
	if s := r.server("theirs"); s.State != ipc.StatePending {
		t.Errorf("it is %s without an approval", s.State)
	}
	for _, name := range []string{"lab", "ours"} {
		if _, err := r.client.Trust(t.Context(), ipc.TrustRequest{Action: ipc.TrustRevoke, Name: name, CWD: m.project}); err == nil {
			t.Errorf("that the revocation of %s is not on the disk is not said", name)
		}
		if s := r.server(name); s.State != ipc.StatePending {
			t.Errorf("%s was revoked and is %s", name, s.State)
		}
	}
	if _, err := r.call("other::echo", "{}"); err != nil {
		t.Errorf("a server that nobody asked about: %v", err)
	}
	said := func() bool {
		status, err := r.client.Status(t.Context(), ipc.StatusRequest{CWD: m.project})
		return err == nil && slices.ContainsFunc(status.Problems, func(p ipc.Problem) bool { return strings.Contains(p.Message, "trust.json") && p.Hint != "" })
	}
	if !said() {
		t.Error("status does not say that decisions are not kept")
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	r.until("the daemon kept what it could not keep", func() bool { return !said() })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	r.untilState("other", ipc.StateReady)
	for _, name := range []string{"lab", "ours", "theirs"} {
		r.untilState(name, ipc.StatePending)
	}
}

// TestTwoProjectsWithOneName has two repositories with a server of one name and
// tokens of their own: each caller reaches its own, and reads its own log.
func TestTwoProjectsWithOneName(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok")})
	list := filepath.Join(m.home, "tools.json")
	m.write(list, `[{"name":"whoami","inputSchema":{"type":"object"}}]`)
	projects := map[string]string{"alpha": filepath.Join(m.home, "a"), "omega": filepath.Join(m.home, "o")}
	for token, dir := range projects {
		m.write(dir+"/.mcp.json", object{"mcpServers": object{"repo": object{
			"command": "/bin/sh",
			// The token is in a file's name and not in the text, which would be redacted.
			"args": []string{"-c", `echo "here is the log of $PWD" >&2; exec "$0" fault "$1"`, exe(t), "tools=" + dir + "/tools.json"},
			"env":  object{"TOKEN": "secret-of-" + token},
		}}})
		m.write(dir+"/tools.json", `[{"name":"whoami","description":"says `+token+`","inputSchema":{"type":"object"}}]`)
	}
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	for _, dir := range projects {
		r.until("the project is read", func() bool {
			l, err := r.client.Trust(t.Context(), ipc.TrustRequest{Name: "repo", CWD: dir})
			return err == nil && len(l.Servers) == 1
		})
		r.approve("repo", dir)
	}
	pids := map[int]bool{}
	for token, dir := range projects {
		other := map[string]string{"alpha": "omega", "omega": "alpha"}[token]
		r.until("its server is ready", func() bool {
			status, err := r.client.Status(t.Context(), ipc.StatusRequest{CWD: dir})
			return err == nil && slices.ContainsFunc(status.Servers, func(s ipc.ServerInfo) bool {
				if s.Name == "repo" && s.State == ipc.StateReady {
					pids[s.PID] = true
				}
				return s.Name == "repo" && s.State == ipc.StateReady
			})
		})
		for range 3 {
			found, err := r.client.Search(t.Context(), ipc.SearchRequest{Query: "repo::whoami", CWD: dir})
			if err != nil || found.Count != 1 || found.Matches[0].Description != "says "+token {
				t.Errorf("%s %v", ipc.Encode(found), err)
			}
			if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "repo::whoami", CWD: dir}); err != nil {
				t.Error(err)
			}
		}
		l, err := r.client.Log(t.Context(), ipc.ServerRequest{Name: "repo", CWD: dir, Lines: 1000})
		if log := strings.Join(l.Lines, "\n"); err != nil || !strings.Contains(log, "the log of "+dir) || strings.Contains(log, "the log of "+projects[other]) {
			t.Errorf("%s reads %s %v", token, ipc.Encode(l), err)
		}
	}
	if len(pids) != 2 {
		t.Errorf("%d processes for two tokens", len(pids))
	}
}

func exe(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAChangedScriptWaitsAgain changes one byte of what an approved server runs.
func TestAChangedScriptWaitsAgain(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok")})
	script := filepath.Join(m.project, "tools", "serve.sh")
	body := "#!/bin/sh\n# version 1\nexec '" + exe(t) + "' fault ok\n"
	m.write(script, body)
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, entry := range map[string]object{
		"command":  {"command": "./tools/serve.sh"},
		"argument": {"command": "/bin/sh", "args": []string{"tools/serve.sh"}},
	} {
		m.write(m.project+"/.mcp.json", object{"mcpServers": object{name: entry}})
		m.write(script, body)
		r := m.start()
		r.untilState(name, ipc.StatePending)
		r.approve(name, m.project)
		pid := r.untilState(name, ipc.StateReady).PID
		begin := time.Now()
		m.write(script, strings.Replace(body, "version 1", "version 2", 1))
		r.untilState(name, ipc.StatePending)
		t.Logf("%s: waits again after %v", name, time.Since(begin).Round(time.Millisecond))
		r.until("the old process is gone", func() bool { return !alive(pid) })
		t.Logf("%s: its process is gone after %v", name, time.Since(begin).Round(time.Millisecond))
		l, err := r.client.Trust(t.Context(), ipc.TrustRequest{CWD: m.project})
		i := -1
		if err == nil {
			i = slices.IndexFunc(l.Servers, func(s ipc.TrustInfo) bool { return s.Name == name })
		}
		if i < 0 || l.Servers[i].State != "pending" || !slices.ContainsFunc(l.Servers[i].Changes, func(c string) bool { return strings.Contains(c, "serve.sh") }) {
			t.Errorf("the difference is not shown: %s %v", ipc.Encode(l), err)
		}
		if got := r.ids("echo"); slices.Contains(got, name+"::echo") {
			t.Error("its tools are still found")
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttachWhileTheWorldChanges: news that come while a session begins, as they do
// when all agents are back at a daemon that has just started, hold up none.
func TestAttachWhileTheWorldChanges(t *testing.T) {
	m := newMachine(t)
	m.config(object{})
	r := m.start()
	attached := make(chan error, 1)
	go func() {
		for range 1000 {
			s, err := r.Attach(t.Context(), ipc.AttachRequest{Client: "agent", CWD: m.project}, ipc.Events{})
			if err != nil {
				attached <- err
				return
			}
			_ = s.Close()
		}
		attached <- nil
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case err := <-attached:
			if err != nil {
				t.Error(err)
			}
			return
		case <-timer.C:
			t.Fatal("a session never begins")
		default:
			r.wakeSessions()
		}
	}
}

// TestAnAgentThatDoesNotReadDelaysNobody is about one that is stopped, with Ctrl-Z
// say, while a list for it is being written.
func TestAnAgentThatDoesNotReadDelaysNobody(t *testing.T) {
	m := newMachine(t)
	m.config(object{})
	r := m.start()
	writing, read := make(chan bool, 1), make(chan bool)
	s, err := r.Attach(t.Context(), ipc.AttachRequest{Client: "stopped", Mode: ipc.Direct}, ipc.Events{List: func([]ipc.Listed) {
		select {
		case writing <- true:
		default:
		}
		<-read
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(read)
	m.config(object{"lab": fault("ok")})
	select {
	case <-writing:
	case <-time.After(patience):
		t.Fatal("no list was sent")
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.client.Status(t.Context(), ipc.StatusRequest{CWD: m.project})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience / 3):
		t.Error("status waits for the agent")
	}
}
