package shim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// slowly makes every connection take a time, and counts them.
type slowly struct {
	*memoryWorld
	takes time.Duration

	mu    sync.Mutex
	times []time.Time
}

func (w *slowly) Connect(ctx context.Context) (ipc.Backend, error) {
	w.mu.Lock()
	w.times = append(w.times, time.Now())
	w.mu.Unlock()
	select {
	case <-time.After(w.takes):
		return w.memoryWorld.Connect(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *slowly) attempts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.times)
}

func newSlowly(t *testing.T, takes time.Duration) *slowly {
	return &slowly{memoryWorld: newMemoryWorld(t).(*memoryWorld), takes: takes}
}

// A daemon that must be started first does not hold up the handshake for more
// than a second, and what it brings is announced when it comes.
func TestHandshakeWaitsASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowly(t, 3*time.Second)
		w.Set("kicad", gerber, create)
		w.Pin("kicad::create_project")
		a := start(t, w, relisting)
		before := time.Now()
		a.initialize("claude-code")
		if took := time.Since(before); took != time.Second {
			t.Errorf("initialize took %v", took)
		}
		want(t, a.list(), shim.FixedNames()...)
		if strings.Contains(string(a.init), "kicad") {
			t.Errorf("whence does it know? %s", a.init)
		}
		// A call waits for the daemon that is being started.
		if f := a.search("gerber"); f.Count != 1 || time.Since(before) > 4*time.Second {
			t.Errorf("after %v: %+v", time.Since(before), f)
		}
		want(t, a.names(), append(shim.FixedNames(), "kicad_create_project", "kicad_export_gerber")...)
	})
}

// A daemon whose session would be in another mode than the agent was told is
// asked again, for that mode.
func TestModeThatWasDecidedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &directByDefault{newSlowly(t, 0)}
		w.Set("kicad", gerber)
		a := start(t, w)
		a.initialize("claude-code")
		want(t, a.list(), shim.FixedNames()...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, a.list(), shim.FixedNames()...)
		if got := w.requests(); len(got) != 2 || got[0].Mode == ipc.Search || got[1].Mode != ipc.Search {
			t.Errorf("the sessions were begun in %+v", got)
		}
	})
}

// directByDefault decides for direct mode, after two seconds.
type directByDefault struct{ *slowly }

func (w *directByDefault) Connect(ctx context.Context) (ipc.Backend, error) {
	return &directBackend{memoryBackend{w.memoryWorld}}, ctx.Err()
}

func (w *memoryWorld) requests() []ipc.AttachRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.attached)
}

type directBackend struct{ memoryBackend }

func (b *directBackend) Attach(ctx context.Context, r ipc.AttachRequest, e ipc.Events) (ipc.Session, error) {
	asked := r
	if r.Mode == "" || r.Mode == ipc.Auto {
		time.Sleep(2 * time.Second)
		r.Mode = ipc.Direct
	}
	s, err := b.memoryBackend.Attach(ctx, r, e)
	b.mu.Lock()
	b.attached[len(b.attached)-1] = asked
	b.mu.Unlock()
	return s, err
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowly(t, 0)
		w.Set("kicad", gerber, drill, create)
		w.Pin("kicad::create_project")
		a := attach(t, w, "claude-code", relisting)
		a.search("drill")
		a.call("tool_search", `{"tool_id":"kicad::export_gerber"}`)
		names := a.names()
		time.Sleep(time.Minute)

		w.Crash(true)
		synctest.Wait()
		lost := time.Now()
		if got := a.list(); !slices.Equal(got, names) || time.Since(lost) != 0 {
			t.Errorf("without a daemon the list is %q after %v", got, time.Since(lost))
		}
		// The first attempt is made at once, the next ones soon, later ones seldom.
		before := w.attempts()
		time.Sleep(time.Second)
		early := w.attempts() - before
		time.Sleep(time.Minute)
		late := w.attempts() - before - early
		if early < 3 || early > 12 || late < 5 || late > 16 {
			t.Errorf("%d attempts in the first second, %d in the next minute", early, late)
		}
		if w.mu.Lock(); w.times[before-1].Sub(lost) > 0 {
			t.Error("the first attempt did not come at once")
		}
		w.mu.Unlock()

		// A call that comes now waits, for a while.
		_, pending := a.begin("tools/call", `{"name":"kicad_export_gerber","arguments":{"dir":"o"}}`)
		time.Sleep(3 * time.Second)
		w.up()
		if r := a.result(<-pending); r.IsError {
			t.Errorf("the call that waited: %s", r.text())
		}
		handed := w.requests()[1]
		if handed.Mode != ipc.Search || len(handed.Seen) != 3 || len(handed.Listed) != 3 || fmt.Sprint(handed.Active) != "[kicad::create_project kicad::export_drill kicad::export_gerber]" || handed.Client != "claude-code" {
			t.Errorf("handed over: %+v", handed)
		}
		if got := a.list(); !slices.Equal(got, names) {
			t.Errorf("the list is %q", got)
		}
		want(t, w.Calls(), `kicad::export_gerber {"dir":"o"}`)

		w.Crash(true)
		asked := time.Now()
		r := a.call("kicad_export_gerber", `{"dir":"o"}`)
		if took := time.Since(asked); !r.IsError || !strings.Contains(r.text(), "toolsd start") || took != 5*time.Second {
			t.Errorf("after %v: %s", took, r.text())
		}
	})
}

// What the agent was shown while there was no daemon is known to the next one.
func TestListedWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowly(t, 0)
		w.Set("kicad", gerber, drill)
		a := attach(t, w, "gemini-cli-mcp-client")
		a.search("gerber") // no re-list followed
		w.Crash(true)
		synctest.Wait()
		a.list()
		w.up()
		if r := a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"o"}}`); !r.IsError || !strings.Contains(r.text(), "in your tool list") {
			t.Errorf("the new daemon does not know what the client lists: %s", r.text())
		}
		if r := a.call("kicad_export_gerber", `{"dir":"o"}`); r.IsError {
			t.Errorf("nor what it saw: %s", r.text())
		}
	})
}

// Spellings that only a search knows are understood by tool_call, and said in a
// refusal.
func TestOtherSpellings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemoryWorld(t)
		w.Set("kicad", gerber, drill)
		a := attach(t, w, "codex")
		r := a.call("tool_call", `{"tool":"kicad.export_gerber","args":"{\"dir\":\"o\"}"}`)
		if !r.IsError || !strings.Contains(r.text(), `Read "kicad.export_gerber" as kicad::export_gerber.`) || !strings.Contains(r.text(), "Read tool as tool_id.") {
			t.Errorf("not said what was understood: %s", r.text())
		}
		r = a.call("tool_call", `{"tool":"kicad.export_gerber","args":"{\"dir\":\"o\"}"}`)
		if r.IsError || r.text() != `{"dir":"o"}` {
			t.Errorf("the result was touched: %s", r.raw)
		}
	})
}

// What models and clients put around a name is taken off, but not from a name that
// has it: no other tool may run in its place.
func TestNamesThatLookDressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemoryWorld(t)
		w.Set("mcp__a__b", `{"name":"echo_args"}`)
		w.Set("b", `{"name":"echo_args"}`)
		a := attach(t, w, "codex")
		for _, id := range []string{"mcp__a__b::echo_args", " `b::echo_args` ", "mcp__toolsd__b_echo_args"} {
			for range 2 { // the first time it is shown
				a.call("tool_call", fmt.Sprintf(`{"tool_id":%q,"arguments":{}}`, id))
			}
		}
		want(t, w.Calls(), "mcp__a__b::echo_args {}", "b::echo_args {}", "b::echo_args {}", "b::echo_args {}")
		if r := a.call("tool_search", `{"tool_id":"mcp__toolsd__b_echo_args"}`); r.IsError || !strings.Contains(r.text(), `"tool_id":"b::echo_args"`) {
			t.Errorf("the name that its client shows is unknown: %s", r.text())
		}
	})
}

// A model that calls the fixed tools through tool_call means them.
func TestFixedThroughToolCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemoryWorld(t)
		w.Set("kicad", gerber)
		a := attach(t, w, "codex")
		for _, input := range []string{
			`{"name":"tool_search","arguments":{"query":"gerber"}}`,
			`{"tool_id":"mcp__toolsd__tool_call","arguments":{"name":"tool_search","arguments":{"query":"gerber"}}}`,
		} {
			if r := a.call("tool_call", input); r.IsError || !strings.Contains(r.text(), `"count":1`) {
				t.Errorf("%s: %s", input, r.text())
			}
		}
		deep := `{"name":"tool_search","arguments":{"query":"gerber"}}`
		for range 20 {
			deep = `{"name":"tool_call","arguments":` + deep + `}`
		}
		if r := a.call("tool_call", deep); !r.IsError {
			t.Error("there is no end to it")
		}
	})
}

// The notes tell what only they can.
func TestNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemoryWorld(t).(*memoryWorld)
		w.note, w.waiting = `Read "gerbr" as gerber.`, []string{"slow"}
		var many []string
		for i := range 60 {
			many = append(many, fmt.Sprintf(`{"name":"bulk_%02d","description":"one of many","inputSchema":{"type":"object"}}`, i))
		}
		w.Set("kicad", many...)
		a := attach(t, w, "claude-code", relisting)
		f := a.search("nothing")
		for _, part := range []string{`Read "gerbr" as gerber.`, "list_tool_categories", "a few seconds"} {
			if !strings.Contains(f.Note, part) {
				t.Errorf("%q is missing in %q", part, f.Note)
			}
		}
		if f.Matches == nil {
			t.Error("matches is null")
		}
		if f = a.search("bulk_01"); strings.Contains(f.Note, "weigh") || !strings.Contains(f.Note, "slow") {
			t.Errorf("one active tool: %s", f.Note)
		}
		var r found
		text := a.call("tool_search", `{"query":"many","max_results":50}`).text()
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Count != 50 || !strings.Contains(r.Note, "50 tools are active") {
			t.Errorf("of %d: %s", r.Count, r.Note)
		}
	})
}

// Many calls at once each get their own answer.
func TestManyAtOnce(t *testing.T) {
	w := newMemoryWorld(t)
	w.Set("kicad", drill, steps)
	a := attach(t, w, bareClient, mode(ipc.Direct))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			args := fmt.Sprintf(`{"i":%d}`, i)
			if r := a.call("kicad_export_drill", args); r.text() != args {
				t.Errorf("asked with %s, answered with %s", args, r.text())
			}
		})
	}
	wg.Wait()
}
