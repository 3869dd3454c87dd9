package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// agent is an MCP client on the standard streams of a shim.
type agent struct {
	in     io.WriteCloser
	client *ipc.Client // its way to the daemon
	ended  chan struct{}

	mu      sync.Mutex
	hello   json.RawMessage // the answer to initialize
	heard   bytes.Buffer    // what the shim wrote unasked
	listed  json.RawMessage // the last list
	waiting map[int]chan reply
	next    int
	tools   []string // names of the last list
	closed  bool
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// agent starts a shim in cwd and shakes hands.
func (r *running) agent(ctx context.Context, client, cwd string) (*agent, error) {
	fromAgent, in := io.Pipe()
	out, toAgent := io.Pipe()
	a := &agent{in: in, client: ipc.NewClient(r.m.dirs.Socket), ended: make(chan struct{}), waiting: map[int]chan reply{}}
	connect := func(ctx context.Context) (ipc.Backend, error) {
		_, err := a.client.Handshake(ctx)
		return a.client, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = shim.Run(ctx, shim.Options{In: fromAgent, Out: toAgent, Connect: connect, CWD: cwd, Version: "test"})
		toAgent.Close()
		fromAgent.Close()
	})
	wg.Go(func() { a.read(ctx, out) })
	go func() {
		defer close(a.ended)
		wg.Wait()
		a.client.Close()
	}()
	hello, err := a.ask(ctx, "initialize", object{"protocolVersion": "2025-06-18", "capabilities": object{}, "clientInfo": object{"name": client, "version": "1"}})
	if err != nil {
		a.leave()
		return nil, fmt.Errorf("initialize: %w", err)
	}
	a.hello = hello.Result
	if err := a.send(object{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		a.leave()
		return nil, err
	}
	return a, nil
}

// read hands out answers, and lists again when it is told that the list changed.
func (a *agent) read(ctx context.Context, out io.Reader) {
	var relists sync.WaitGroup
	defer relists.Wait()
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			for id, w := range a.waiting {
				close(w)
				delete(a.waiting, id)
			}
			a.closed = true
			return
		}
		var m struct {
			reply
			ID     *int   `json:"id"`
			Method string `json:"method"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			continue // a request of the server's, or nothing at all
		}
		a.mu.Lock()
		if m.Method != "" && a.heard.Len() < 1<<20 {
			a.heard.Write(line)
		}
		var w chan reply
		if m.ID != nil && m.Method == "" {
			w = a.waiting[*m.ID]
			delete(a.waiting, *m.ID)
		}
		a.mu.Unlock()
		if w != nil {
			w <- m.reply
		}
		if m.Method == "notifications/tools/list_changed" {
			relists.Go(func() { _ = a.list(ctx) })
		}
	}
}

func (a *agent) list(ctx context.Context) error {
	got, err := a.ask(ctx, "tools/list", object{})
	if err != nil {
		return err
	}
	var l struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(got.Result, &l); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tools, a.listed = a.tools[:0], got.Result
	for _, t := range l.Tools {
		a.tools = append(a.tools, t.Name)
	}
	return nil
}

func (a *agent) send(v any) error {
	_, err := a.in.Write(append(ipc.Encode(v), '\n'))
	return err
}

var errAgentEnded = errors.New("the shim ended")

// begin sends a request; its answer arrives on the channel.
func (a *agent) begin(method string, params any) (id int, answer chan reply, err error) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return 0, nil, errAgentEnded
	}
	a.next++
	id, answer = a.next, make(chan reply, 1)
	a.waiting[id] = answer
	a.mu.Unlock()
	return id, answer, a.send(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

func (a *agent) ask(ctx context.Context, method string, params any) (reply, error) {
	_, answer, err := a.begin(method, params)
	if err != nil {
		return reply{}, err
	}
	select {
	case got, ok := <-answer:
		if !ok {
			return reply{}, errAgentEnded
		}
		return got, nil
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// tool calls a tool by its name and returns the text of the answer, be it an
// error.
func (a *agent) tool(ctx context.Context, name string, arguments any) (text string, isError bool, err error) {
	got, err := a.ask(ctx, "tools/call", object{"name": name, "arguments": arguments})
	if err != nil {
		return "", false, err
	}
	if got.Error != nil {
		return got.Error.Message, true, nil
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(got.Result, &result); err != nil {
		return "", false, fmt.Errorf("%.200s: %w", got.Result, err)
	}
	for _, c := range result.Content {
		text += c.Text
	}
	return text, result.IsError, nil
}

// leave closes the agent's end and waits until all that it began has ended.
func (a *agent) leave() {
	a.in.Close()
	<-a.ended
}

// footprint is what this process, which is the daemon and all agents, holds.
type footprint struct {
	goroutines, descriptors, children int
	heap, resident                    uint64 // bytes
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d processes, %.1f MB heap, %.1f MB resident",
		f.goroutines, f.descriptors, f.children, float64(f.heap)/1e6, float64(f.resident)/1e6)
}

func measure(t testing.TB) footprint {
	t.Helper()
	runtime.GC()
	runtime.GC() // the first one only empties the pools into a second chance
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	f := footprint{goroutines: runtime.NumGoroutine(), children: len(descendants(t, os.Getpid())), heap: mem.HeapAlloc}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	f.descriptors = len(fds)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(string(status), "VmRSS:"); ok {
		kb, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		f.resident = kb << 10
	}
	return f
}

// descendants are the processes below one, zombies too.
func descendants(t testing.TB, root int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	below := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		if fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			below[parent] = append(below[parent], pid)
		}
	}
	var out []int
	for queue := below[root]; len(queue) > 0; queue = queue[1:] {
		out = append(out, queue[0])
		queue = append(queue, below[queue[0]]...)
	}
	return out
}

const (
	soakAgents = 20
	soakSteady = 10 // servers that no edit touches: a call to them that fails is a failure
	soakMoving = 5  // good ones that edits change, remove and bring back
)

// TestSoak lets 20 agents search, activate, call and cancel on 30 servers of which
// half are faulty, while config files are edited and sessions come and go. What
// the process holds must not grow after the first minute.
//
// It takes TOOLSD_SOAK, a duration, or 10 minutes when that is no duration, and
// is meant for the race detector:
//
//	TOOLSD_SOAK=10m go test -race -run TestSoak -timeout 30m -v ./daemon
func TestSoak(t *testing.T) {
	setting := os.Getenv("TOOLSD_SOAK")
	if setting == "" {
		t.Skip("TOOLSD_SOAK=10m runs it for 10 minutes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("processes and descriptors are counted in /proc")
	}
	total, err := time.ParseDuration(setting)
	if err != nil {
		total = 10 * time.Minute
	}
	s := &soak{m: newMachine(t), t: t}
	s.edit(s.steady())
	s.r = s.m.start()
	for name := range s.steady() {
		s.r.untilState(name, ipc.StateReady)
	}
	s.run(min(time.Minute, total/4))
	before := s.rest()
	t.Logf("after the first minute: %v", before)
	s.run(total - min(time.Minute, total/4))
	after := s.rest()
	t.Logf("at the end:             %v", after)
	t.Logf("%d searches, %d calls, %d cancelled, %d sessions, %d edits, %d handshakes over 2 s; the longest search took %v, the longest small call of a healthy server %v",
		s.searches.Load(), s.calls.Load(), s.cancelled.Load(), s.sessions.Load(), s.edits.Load(), s.unanswered.Load(),
		time.Duration(s.slowestSearch.Load()).Round(time.Millisecond), time.Duration(s.slowestCall.Load()).Round(time.Millisecond))
	if n := s.unanswered.Load(); n*100 > s.searches.Load()+s.calls.Load() {
		t.Errorf("%d handshakes took over 2 s", n)
	}
	if after.goroutines > before.goroutines+5 {
		buf := make([]byte, 1<<20)
		t.Errorf("goroutines grew from %d to %d\n%s", before.goroutines, after.goroutines, buf[:runtime.Stack(buf, true)])
	}
	if after.descriptors > before.descriptors+5 {
		t.Errorf("descriptors grew from %d to %d", before.descriptors, after.descriptors)
	}
	if after.children != before.children {
		t.Errorf("processes went from %d to %d", before.children, after.children)
	}
	// Names, notes and logs of servers that came and went may stay, a copy of
	// what they listed may not.
	if after.heap > before.heap+before.heap/4+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before.heap, after.heap)
	}
}

type soak struct {
	m *machine
	r *running
	t *testing.T

	searches, calls, cancelled, sessions, edits, unanswered atomic.Int64
	slowestSearch, slowestCall                              atomic.Int64
}

func (s *soak) steady() object {
	servers := object{}
	for i := range soakSteady {
		servers[fmt.Sprintf("steady%d", i)] = fault("ok")
	}
	return servers
}

// faulty are 15 servers, each with a fault of its own.
func (s *soak) faulty() object {
	servers := object{}
	for _, mode := range []string{
		"hang-init", "hang-list", "hang-ping", "exit", "exit-init", "deaf", "garbage", "endless",
		"storm", "bad-list", "stderr", "stubborn", "orphans", "leaves", "odd-tools",
	} {
		servers["f-"+mode] = fault(mode)
	}
	return servers
}

func (s *soak) edit(servers object) {
	s.m.config(servers, object{"toolSearch": object{"minPct": 0, "minTokens": 0}})
	s.edits.Add(1)
}

// run is that long of everything at once.
func (s *soak) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.editor(ctx, rand.New(rand.NewPCG(1, uint64(d)))) })
	for i := range soakAgents {
		random := rand.New(rand.NewPCG(uint64(i), uint64(d)))
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := s.session(ctx, random); err != nil && ctx.Err() == nil {
					s.t.Errorf("agent %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// rest takes away all but the steady servers, waits until nothing moves, and
// measures.
func (s *soak) rest() footprint {
	s.edit(s.steady())
	os.Remove(filepath.Join(s.m.home, ".cursor", "mcp.json"))
	s.m.write(s.m.project+"/.mcp.json", `{"mcpServers":{}}`)
	want := soakSteady + 1 // and the keeper
	s.r.until("what was removed has ended", func() bool { return len(descendants(s.t, os.Getpid())) == want })
	last, same := measure(s.t), 0
	for end := time.Now().Add(patience); same < 5 && time.Now().Before(end); {
		<-time.After(500 * time.Millisecond)
		now := measure(s.t)
		if now.goroutines == last.goroutines && now.descriptors == last.descriptors {
			same++
		} else {
			same = 0
		}
		last = now
	}
	for name := range s.steady() {
		s.r.untilState(name, ipc.StateReady)
	}
	return measure(s.t)
}

// editor changes config files every few seconds, as people and programs do.
func (s *soak) editor(ctx context.Context, random *rand.Rand) {
	moving := object{}
	for i := range soakMoving {
		moving[fmt.Sprintf("moving%d", i)] = fault("ok")
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf("moving%d", random.IntN(soakMoving))
		switch random.IntN(6) {
		case 0:
			delete(moving, name)
		case 1, 2:
			moving[name] = fault("ok", object{"env": object{"N": strconv.Itoa(n)}})
		case 3: // half of a file, as an editor that is killed leaves it
			data, err := os.ReadFile(s.m.dirs.ConfigFile)
			if err != nil {
				s.t.Error(err)
			}
			s.m.write(s.m.dirs.ConfigFile, string(data[:len(data)/2]))
			s.wait(ctx, time.Second)
		case 4:
			s.m.write(filepath.Join(s.m.home, ".cursor", "mcp.json"), []string{
				"\x00\xff garbage", `{"mcpServers": {"c": {"args": true}}}`, `{"mcpServers": {"c": {"command": "no-such-program"}}}`, "", `{}`,
			}[random.IntN(5)])
		case 5: // a repository's server that nobody approves
			s.m.write(s.m.project+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok", object{"env": object{"N": strconv.Itoa(n)}})}})
		}
		servers := s.steady()
		for _, more := range []object{s.faulty(), moving} {
			for k, v := range more {
				servers[k] = v
			}
		}
		s.edit(servers)
		if !s.wait(ctx, time.Second+time.Duration(random.IntN(3000))*time.Millisecond) {
			return
		}
	}
}

func (s *soak) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session is one agent from its handshake to its end.
func (s *soak) session(ctx context.Context, random *rand.Rand) error {
	s.sessions.Add(1)
	client := []string{"claude-code", "gemini-cli-mcp-client", "codex-mcp-client", "nobody-knows-me"}[random.IntN(4)]
	a, err := s.r.agent(ctx, client, s.m.project)
	if err != nil {
		return err
	}
	defer a.leave()
	if err := a.list(ctx); err != nil {
		return err
	}
	modes := faultserver.Modes
	for range 5 + random.IntN(40) {
		if ctx.Err() != nil {
			return nil
		}
		steady := fmt.Sprintf("steady%d", random.IntN(soakSteady))
		var err error
		switch random.IntN(10) {
		case 0, 1:
			err = s.search(ctx, a, steady+"::echo", true)
		case 2:
			err = s.search(ctx, a, []string{"echo", "answers after a while", "stats", "what is this", "prgress", "add tool", modes[random.IntN(len(modes))]}[random.IntN(7)], false)
		case 3, 4, 5:
			err = s.call(ctx, a, steady+"::echo", object{"n": random.IntN(1e9)})
		case 6:
			_, _, err = a.tool(ctx, "list_tool_categories", object{})
			if err == nil {
				_, _, err = a.tool(ctx, "get_category_tools", object{"category": steady})
			}
		case 7:
			err = s.cancel(ctx, a, steady+"::slow", object{"ms": 60000}, random)
		case 8:
			err = s.cancel(ctx, a, []string{"f-deaf::echo", "f-hang-ping::echo", "f-storm::hang", "f-hang-init::x", "f-exit::x", "moving0::crash", "moving1::large"}[random.IntN(7)], object{}, random)
		case 9:
			if random.IntN(4) == 0 {
				err = s.call(ctx, a, steady+"::large", object{"bytes": 1 << 20})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func slowest(max *atomic.Int64, d time.Duration) {
	for {
		old := max.Load()
		if int64(d) <= old || max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func (s *soak) search(ctx context.Context, a *agent, query string, must bool) error {
	s.searches.Add(1)
	begin := time.Now()
	text, isError, err := a.tool(ctx, "tool_search", object{"query": query})
	slowest(&s.slowestSearch, time.Since(begin))
	if err == nil && isError && strings.Contains(text, "does not answer") {
		s.unanswered.Add(1) // no handshake within 2 s: told as it should be, and counted
		return nil
	}
	if err == nil && must && (isError || !strings.Contains(text, query)) {
		return fmt.Errorf("searching %s: %.300s", query, text)
	}
	return err
}

// call calls a tool of a steady server, as an agent does: when it is shown the
// definition first, it calls again; when it must call by name, it does.
func (s *soak) call(ctx context.Context, a *agent, id string, arguments object) error {
	s.calls.Add(1)
	text, isError := "", false
	for range 3 {
		begin := time.Now()
		var err error
		text, isError, err = a.tool(ctx, "tool_call", object{"tool_id": id, "arguments": arguments})
		if err != nil {
			return err
		}
		if strings.HasSuffix(id, "::echo") {
			slowest(&s.slowestCall, time.Since(begin))
		}
		if isError && strings.Contains(text, "by its name") || isError && strings.Contains(text, "by name") {
			text, isError, err = a.tool(ctx, strings.Replace(id, "::", "_", 1), arguments)
			if err != nil {
				return err
			}
		}
		if !isError {
			return nil
		}
		if strings.Contains(text, "does not answer") {
			s.unanswered.Add(1)
			return nil
		}
	}
	return fmt.Errorf("calling %s: %.300s", id, text)
}

// cancel begins a call and cancels it some time later, if it has not ended.
func (s *soak) cancel(ctx context.Context, a *agent, id string, arguments object, random *rand.Rand) error {
	for range 2 { // the first may only show the definition
		request, answer, err := a.begin("tools/call", object{"name": "tool_call", "arguments": object{"tool_id": id, "arguments": arguments}})
		if err != nil {
			return err
		}
		timer := time.NewTimer(time.Duration(random.IntN(300)) * time.Millisecond)
		select {
		case _, ok := <-answer:
			timer.Stop()
			if !ok {
				return errAgentEnded
			}
			continue
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		s.cancelled.Add(1)
		a.mu.Lock()
		delete(a.waiting, request) // no answer follows
		a.mu.Unlock()
		return a.send(object{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": object{"requestId": request}})
	}
	return nil
}
