package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/platform"
)

// inProcess starts fault servers in this process, so that a bubble's clock is
// theirs too. The mode is the last argument, as for the program; "a,b,c" is a
// at the first start, b at the second, and c from then on.
type inProcess struct {
	mu     sync.Mutex
	starts map[string][]time.Time // by label
	live   int
	stop   func(ctx context.Context, end func()) // nil: end at once
}

func (p *inProcess) spawn(cmd platform.Command) (*child, error) {
	p.mu.Lock()
	n := len(p.starts[cmd.Label])
	p.starts[cmd.Label] = append(p.starts[cmd.Label], time.Now())
	p.live++
	p.mu.Unlock()
	modes := strings.Split(cmd.Args[len(cmd.Args)-1], ",")
	s, err := faultserver.New(modes[min(n, len(modes)-1)])
	if err != nil {
		return nil, err
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	done := make(chan struct{})
	code := 0
	s.Child = func() error { return nil }
	end := sync.OnceFunc(func() {
		inR.Close()
		outW.Close()
		errW.Close()
		p.mu.Lock()
		p.live--
		p.mu.Unlock()
		close(done)
	})
	s.Exit = func(c int) {
		code = c
		end()
		runtime.Goexit()
	}
	go func() {
		defer end()
		if err := s.Serve(inR, outW, errW); err != nil {
			code = 1
		}
	}()
	return &child{
		pid: 1000 + n, stdin: inW, stdout: outR, stderr: errR, done: done,
		exit: func() string { return fmt.Sprintf("exit status %d", code) },
		stop: func(ctx context.Context) {
			inW.Close()
			if p.stop != nil {
				p.stop(ctx, end)
			}
			<-done
		},
	}, nil
}

func (p *inProcess) started(label string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.starts[label]...)
}

// startHere runs a Set whose servers are in this process.
func startHere(t *testing.T, p *inProcess, servers ...Server) *fixture {
	f := &fixture{t: t, changed: make(chan struct{}), listings: map[string]Listing{}, lists: map[string]int{}}
	var o Options
	f.hook(&o)
	f.Set = New(o)
	f.Set.spawn = p.spawn
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	f.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(f.end)
	f.Reconcile(servers)
	return f
}

// bubble is startHere in a bubble with a clock of its own.
func bubble(t *testing.T, servers []Server, run func(t *testing.T, f *fixture, p *inProcess)) {
	synctest.Test(t, func(t *testing.T) {
		p := &inProcess{starts: map[string][]time.Time{}}
		f := startHere(t, p, servers...)
		synctest.Wait()
		run(t, f, p)
	})
}

// pass lets d pass and everything that follows from it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func named(name, mode string) Server {
	s := fault(mode)
	s.Key, s.Name, s.Def.Name = name, name, name
	return s
}

func within(starts []time.Time, from time.Time, d time.Duration) int {
	n := 0
	for _, at := range starts {
		if at.Sub(from) < d {
			n++
		}
	}
	return n
}

func TestCrashLoopIsParked(t *testing.T) {
	bubble(t, []Server{named("s", "exit")}, func(t *testing.T, f *fixture, p *inProcess) {
		began := time.Now()
		pass(time.Minute)
		st := f.Status("s")
		if n := len(p.started("s")); n != maxFailures || st.State != Failed {
			t.Errorf("%d starts in the first minute, state %+v", n, st)
		}
		if !strings.Contains(st.Reason, "failed 5 times in a row") || !strings.Contains(st.Reason, "left-pad") || st.Retry.Before(time.Now()) {
			t.Errorf("status %+v", st)
		}
		// Calls do not bring it back.
		for range 100 {
			var down *DownError
			if _, err := f.call("s", "echo", ""); !errors.As(err, &down) || !strings.Contains(down.Error(), "left-pad") {
				t.Fatalf("a call: %v", err)
			}
		}
		f.Wake("s")
		pass(time.Minute)
		if n := len(p.started("s")); n != maxFailures {
			t.Errorf("calls made %d starts", n)
		}
		pass(58 * time.Minute)
		if n := within(p.started("s"), began, time.Hour); n > maxFailures+12 || n < maxFailures+5 {
			t.Errorf("%d starts in an hour", n)
		}
		// A person does.
		n := len(p.started("s"))
		f.Restart(t.Context(), "s")
		if st := f.Status("s"); st.State != Backoff || !strings.Contains(st.Reason, "left-pad") {
			t.Errorf("a restart returned before its outcome: %+v", st)
		}
		if got := len(p.started("s")); got != n+1 {
			t.Errorf("a restart made %d starts", got-n)
		}
		if st := f.untilDown("s"); st.State != Backoff {
			t.Errorf("after a restart it is parked at once: %+v", st)
		}
		// So does an edit.
		edited := named("s", "ok")
		f.Reconcile([]Server{edited})
		f.untilState("s", Ready)
	})
}

func TestHealthClearsFailures(t *testing.T) {
	bubble(t, []Server{named("s", "ok")}, func(t *testing.T, f *fixture, p *inProcess) {
		for round := range 8 {
			f.untilState("s", Ready)
			pass(healthy + time.Second)
			if _, err := f.call("s", "crash", ""); !errors.Is(err, ErrOutcomeUnknown) {
				t.Fatalf("round %d: %v", round, err)
			}
			if st := f.untilDown("s"); st.State != Backoff || time.Until(st.Retry) > 2*time.Second {
				t.Fatalf("round %d: %+v", round, st)
			}
		}
	})
}

// However often calls wake it, a server that dies in each is parked, and never
// started more than eight times a minute.
func TestCrashingCallsAreParked(t *testing.T) {
	bubble(t, []Server{named("s", "ok")}, func(t *testing.T, f *fixture, p *inProcess) {
		began := time.Now()
		var down *DownError
		calls := 0
		for ; calls < 100 && down == nil; calls++ {
			_, err := f.call("s", "crash", "")
			errors.As(err, &down)
		}
		if calls > maxFailures+1 || f.Status("s").State != Failed {
			t.Errorf("%d calls got through, then %+v", calls, f.Status("s"))
		}
		if n := within(p.started("s"), began, time.Minute); n > maxSpawns {
			t.Errorf("%d starts in a minute", n)
		}
	})
}

func TestCallEndsBackoff(t *testing.T) {
	servers := []Server{named("back", "exit,ok"), named("still", "exit,exit,ok")}
	bubble(t, servers, func(t *testing.T, f *fixture, p *inProcess) {
		f.untilState("back", Backoff)
		f.untilState("still", Backoff) // both for a second at least
		began := time.Now()
		raw, err := f.call("back", "echo", "")
		text(t, raw, err)
		// A try that fails ends the call with the reason; it does not wait for
		// yet another.
		var down *DownError
		if _, err := f.call("still", "echo", ""); !errors.As(err, &down) || down.State != Backoff || !strings.Contains(down.Reason, "left-pad") {
			t.Errorf("a call that woke a failing server: %v", err)
		}
		if took := time.Since(began); took >= firstDelay/2 {
			t.Errorf("the calls took %v", took)
		}
		if n := len(p.started("still")); n != 2 {
			t.Errorf("%d starts", n)
		}
	})
}

func TestLazy(t *testing.T) {
	lazy := func(name string, known bool) Server {
		s := named(name, "ok")
		s.Def.Start, s.Known, s.Def.Idle = "lazy", known, 3*time.Minute
		return s
	}
	session := lazy("session", true)
	session.Instance, session.Def.Share = "1", "session"
	bubble(t, []Server{lazy("known", true), lazy("new", false), session}, func(t *testing.T, f *fixture, p *inProcess) {
		if st := f.Status("known"); st.State != Lazy || len(p.started("known")) != 0 {
			t.Errorf("a known one: %+v", st)
		}
		f.untilState("new", Ready)
		if len(f.listing("new").Tools) == 0 {
			t.Error("a new one was not listed")
		}
		pass(4 * time.Minute)
		if st := f.Status("new"); st.State != Lazy || st.PID != 0 {
			t.Errorf("a new one, later: %+v", st)
		}
		// The definition is the same when the index has learnt its tools.
		f.Reconcile([]Server{lazy("known", true), lazy("new", true), session})
		raw, err := f.call("known", "echo", "")
		text(t, raw, err)
		pass(2 * time.Minute)
		// A call at work keeps it.
		done := make(chan error, 1)
		go func() {
			_, err := f.Call(t.Context(), "known", Call{Tool: "slow", Arguments: json.RawMessage(`{"ms":600000}`), Timeout: time.Hour})
			done <- err
		}()
		pass(9 * time.Minute)
		if st := f.Status("known"); st.State != Ready {
			t.Errorf("during a call: %+v", st)
		}
		pass(2 * time.Minute)
		if err := <-done; err != nil {
			t.Error(err)
		}
		pass(4 * time.Minute)
		if st := f.Status("known"); st.State != Lazy {
			t.Errorf("after the call: %+v", st)
		}
		f.Wake("known")
		f.untilState("known", Ready)
		if n := len(p.started("known")); n != 2 {
			t.Errorf("%d starts", n)
		}
		// What a session has in its own process is not taken from it.
		if _, err := f.Call(t.Context(), "session", Call{Tool: "echo", Instance: "1"}); err != nil {
			t.Error(err)
		}
		pass(time.Hour)
		if st := f.Status("session"); st.State != Ready {
			t.Errorf("a session's: %+v", st)
		}
	})
}

func TestListStorm(t *testing.T) {
	bubble(t, []Server{named("s", "storm")}, func(t *testing.T, f *fixture, p *inProcess) {
		pass(time.Minute)
		first := f.stats("s").Lists
		pass(9 * time.Minute)
		all := f.stats("s").Lists
		if first > 8 || all-first > 11 {
			t.Errorf("%d lists in the first minute, %d in the nine after it", first, all-first)
		}
		raw, err := f.call("s", "add_tool", `{"name":"late"}`)
		text(t, raw, err)
		pass(maxGap + time.Second)
		if find(f.listing("s").Tools, "late") == nil {
			t.Error("the last change was not seen")
		}
	})
}

// A modern server says how long its list is fresh. It is listed again when that
// is over, unless it announces changes; and its owner hears of it only when the
// list says something new.
func TestListGrowsOld(t *testing.T) {
	servers := []Server{
		named("two minutes", "ttl=120000"), named("a moment", "ttl=1"), named("none", "ttl=0"), named("unsaid", "ttl"),
		named("nonsense", `ttl="soon"`), named("unheard", "unheard=120000"), named("announces", "modern=120000"), named("legacy", "ok"),
	}
	bubble(t, servers, func(t *testing.T, f *fixture, p *inProcess) {
		for name, every := range map[string]time.Duration{
			"two minutes": 2 * time.Minute, "a moment": minTTL, "none": noTTL, "unsaid": noTTL, "nonsense": noTTL,
			"unheard": 2 * time.Minute, "announces": 0, "legacy": 0,
		} {
			f.untilState(name, Ready)
			before, told := f.stats(name).Lists, f.lists[name]
			span := 4 * noTTL
			pass(span + time.Second)
			want := 0
			if every > 0 {
				want = int(span / every)
			}
			// What the clock was before counts too.
			if got := f.stats(name).Lists - before; got < want || got > want+1 || every == 0 && got > 0 {
				t.Errorf("%s: %d lists in %v, want %d", name, got, span, want)
			}
			if f.lists[name] != told {
				t.Errorf("%s: the owner was told %d times of the same list", name, f.lists[name]-told)
			}
			if every == 0 {
				continue
			}
			raw, err := f.call(name, "add_tool", `{"name":"late"}`)
			text(t, raw, err)
			pass(every + time.Second)
			if find(f.listing(name).Tools, "late") == nil {
				t.Errorf("%s: the new tool was not seen", name)
			}
		}
	})
}

// A hung start takes a slot for 2 s only, and one that fails none.
func TestHungStartsDelayNoOther(t *testing.T) {
	var servers []Server
	for i := range 15 {
		servers = append(servers, named(fmt.Sprint("hung", i), "hang-init"))
	}
	for i := range 15 {
		servers = append(servers, named(fmt.Sprint("good", i), "ok"))
	}
	bubble(t, servers, func(t *testing.T, f *fixture, p *inProcess) {
		slots := cap(f.slots)
		pass(slotHold*time.Duration(15/slots) + time.Second)
		for i := range 15 {
			if st := f.Status(fmt.Sprint("good", i)); st.State != Ready {
				t.Errorf("good%d: %+v", i, st)
			}
		}
		pass(startTimeout)
		for i := range 15 {
			st := f.Status(fmt.Sprint("hung", i))
			if st.State != Backoff && st.State != Starting || !strings.Contains(st.Reason, "not ready within 1m0s") {
				t.Errorf("hung%d: %+v", i, st)
			}
		}
	})
	bubble(t, append(servers[15:29:29], servers[0]), func(t *testing.T, f *fixture, p *inProcess) {
		for i := range 14 { // no time has passed at all
			if st := f.Status(fmt.Sprint("good", i)); st.State != Ready {
				t.Errorf("good%d beside one that hangs: %+v", i, st)
			}
		}
	})
}

func TestPingFindsWhatHangs(t *testing.T) {
	bubble(t, []Server{named("s", "hang-ping,ok"), named("ok", "ok")}, func(t *testing.T, f *fixture, p *inProcess) {
		f.untilState("s", Ready)
		pass(pingEvery + pingTimeout + 5*time.Second)
		if n := len(p.started("s")); n != 2 {
			t.Errorf("%d starts, status %+v", n, f.Status("s"))
		}
		pass(time.Hour)
		if n := len(p.started("ok")); n != 1 {
			t.Errorf("a good server was started %d times", n)
		}
	})
}

// After a sleep of the machine what is dead is replaced at once and without
// blame, what lives is left alone, and what waits is tried.
func TestClockJump(t *testing.T) {
	bubble(t, []Server{named("dead", "hang-ping,ok"), named("ok", "ok"), named("down", "exit,exit,exit,exit,exit,ok")}, func(t *testing.T, f *fixture, p *inProcess) {
		f.untilState("dead", Ready)
		pass(time.Minute)
		f.untilState("down", Failed)
		f.jumped(time.Hour)
		synctest.Wait()
		f.untilState("down", Ready)
		pass(jumpTimeout + time.Second)
		if st := f.Status("dead"); st.State != Ready || st.Spawns != 2 {
			t.Errorf("a dead one: %+v", st)
		}
		if st := f.Status("ok"); st.State != Ready || st.Spawns != 1 {
			t.Errorf("a living one: %+v", st)
		}
	})
}

func TestReconcile(t *testing.T) {
	a, b, c := named("a", "ok"), named("b", "ok"), named("c", "ok")
	bubble(t, []Server{a, b, c}, func(t *testing.T, f *fixture, p *inProcess) {
		for _, key := range []string{"a", "b", "c"} {
			f.untilState(key, Ready)
		}
		moved := a
		moved.Known = true
		moved.Def.Source.Line, moved.Def.Source.File = 99, "elsewhere"
		moved.Def.Include, moved.Def.Env = []string{"x*"}, map[string]string{}
		changed := b
		changed.Def.Env = map[string]string{"DEBUG": "1"}
		for range 50 {
			f.Reconcile([]Server{moved, changed})
		}
		synctest.Wait()
		f.untilState("b", Ready)
		if n := []int{len(p.started("a")), len(p.started("b")), len(p.started("c"))}; fmt.Sprint(n) != "[1 2 1]" {
			t.Errorf("starts %v", n)
		}
		if st := f.Status("c"); st.State != "" {
			t.Errorf("a removed one: %+v", st)
		}
		if _, err := f.call("c", "echo", ""); err == nil {
			t.Error("a removed one was called")
		}
		pass(time.Second)
		if p.live != 2 {
			t.Errorf("%d processes", p.live)
		}
		if all := f.All(); len(all) != 2 {
			t.Errorf("status of %v", all)
		}
		f.Reconcile(nil)
		pass(time.Second)
		if p.live != 0 {
			t.Errorf("%d processes after all were removed", p.live)
		}
	})
}

// Several processes of one definition: one listing for all, a call reaches its
// own, and the next one speaks when the first is gone.
func TestInstances(t *testing.T) {
	one, two := named("s", "ok"), named("s", "ok")
	one.Instance, two.Instance = "one", "two"
	one.Dir, two.Dir = "/one", "/two"
	bubble(t, []Server{one, two}, func(t *testing.T, f *fixture, p *inProcess) {
		pass(time.Second)
		if f.lists["s"] != 1 || len(f.Instances("s")) != 2 {
			t.Errorf("%d listings of %v", f.lists["s"], f.Instances("s"))
		}
		for _, instance := range []string{"", "one", "two", "two"} {
			if _, err := f.Call(t.Context(), "s", Call{Tool: "echo", Instance: instance}); err != nil {
				t.Error(err)
			}
		}
		for instance, want := range map[string]int{"one": 2, "two": 2} {
			raw, err := f.Call(t.Context(), "s", Call{Tool: "stats", Instance: instance})
			if got := text(t, raw, err); !strings.Contains(got, fmt.Sprintf(`"echo":%d`, want)) {
				t.Errorf("%s got %s", instance, got)
			}
		}
		f.Reconcile([]Server{two})
		pass(time.Second)
		if f.lists["s"] != 2 || len(p.started("s")) != 2 {
			t.Errorf("%d listings, %d starts", f.lists["s"], len(p.started("s")))
		}
	})
}

// Progress keeps a call alive, but not for ever.
func TestProgressExtendsToTenMinutes(t *testing.T) {
	bubble(t, []Server{named("s", "ok")}, func(t *testing.T, f *fixture, p *inProcess) {
		began := time.Now()
		_, err := f.Call(t.Context(), "s", Call{Tool: "progress", Arguments: json.RawMessage(`{"steps":1000,"ms":50000}`), Timeout: time.Minute, Progress: func(json.RawMessage) {}})
		if took := time.Since(began); !errors.Is(err, ErrTimeout) || took != maxExtended {
			t.Errorf("after %v: %v", took, err)
		}
		began = time.Now()
		_, err = f.Call(t.Context(), "s", Call{Tool: "hang", Progress: func(json.RawMessage) {}})
		if took := time.Since(began); !errors.Is(err, ErrTimeout) || took != callTimeout {
			t.Errorf("without progress after %v: %v", took, err)
		}
	})
}

// Run returns 8 s after its end at the latest, whatever its servers do.
func TestRunEnds(t *testing.T) {
	var servers []Server
	for i := range 20 {
		servers = append(servers, named(fmt.Sprint(i), []string{"ok", "hang-init", "hang-list", "exit"}[i%4]))
	}
	for name, stop := range map[string]func(ctx context.Context, end func()){
		"all stop when told":      nil,
		"all stop when killed":    func(ctx context.Context, end func()) { <-ctx.Done(); end() },
		"all stop after the time": func(ctx context.Context, end func()) { <-time.After(time.Minute); end() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, servers, func(t *testing.T, f *fixture, p *inProcess) {
				p.stop = stop
				f.untilState("0", Ready)
				call := make(chan error, 1)
				go func() {
					_, err := f.call("0", "hang", "")
					call <- err
				}()
				synctest.Wait()
				began := time.Now()
				f.end()
				if took := time.Since(began); took > runTimeout {
					t.Errorf("Run took %v", took)
				}
				if err := <-call; !errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("a call at work: %v", err)
				}
				f.Reconcile(servers) // does nothing now
				pass(2 * time.Minute)
				if p.live != 0 {
					t.Errorf("%d processes are left", p.live)
				}
			})
		})
	}
}
