package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index/tool"
)

// What goes to a server and what comes back keep every byte that matters.
func TestCallPassesRawJSON(t *testing.T) {
	f := start(t, Options{}, fault("ok"))
	f.untilState("ok", Ready)

	// The params that the server saw, numbers and unknown keys included.
	raw, err := f.Call(t.Context(), "ok", Call{Tool: "echo",
		Arguments: json.RawMessage("{\n \"n\": 9007199254740993,\n \"f\": 1.50, \"s\": \"a\\u00e9<b>\\u202e\"}"),
		Meta:      json.RawMessage(`{"x/y": {"big":12345678901234567890}}`)})
	want := `{"_meta":{"x/y":{"big":12345678901234567890}},"name":"echo","arguments":{"n":9007199254740993,"f":1.50,"s":"a\u00e9<b>\u202e"}}`
	if got := text(t, raw, err); got != want {
		t.Errorf("the server saw\n%s, want\n%s", got, want)
	}
	raw, err = f.call("ok", "echo", "")
	if got := text(t, raw, err); got != `{"name":"echo","arguments":{}}` {
		t.Errorf("without arguments the server saw %s", got)
	}
	raw, err = f.call("ok", "odd", "{}")
	if err != nil || string(raw) != faultserver.OddResult {
		t.Errorf("result %s, %v, want %s", raw, err, faultserver.OddResult)
	}
	_, err = f.call("ok", "fail", "{}")
	var refused *RPCError
	if !errors.As(err, &refused) || refused.Code != -32042 || refused.Message != "needs a <visit>" || string(refused.Data) != faultserver.FailData {
		t.Errorf("error %#v", err)
	}
	if _, err = f.call("ok", "echo", `[1]`); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
		t.Errorf("arguments that are no object: %v", err)
	}
}

func TestCallProgress(t *testing.T) {
	f := start(t, Options{}, fault("ok"))
	f.untilState("ok", Ready)
	var seen []string
	// Each step is within the time, all of them are not.
	raw, err := f.Call(t.Context(), "ok", Call{Tool: "progress", Arguments: json.RawMessage(`{"steps":6,"ms":300}`), Timeout: time.Second,
		Progress: func(p json.RawMessage) { seen = append(seen, string(p)) }})
	if got := text(t, raw, err); got != "done" {
		t.Errorf("result %q", got)
	}
	if len(seen) != 6 || !strings.Contains(seen[5], `"progress":6,"x":9007199254740993`) {
		t.Errorf("progress %q", seen)
	}
	// What a server writes in one go comes through, in its order.
	seen = nil
	if raw, err = f.Call(t.Context(), "ok", Call{Tool: "progress", Arguments: json.RawMessage(`{"steps":3000}`),
		Progress: func(p json.RawMessage) { seen = append(seen, string(p)) }}); text(t, raw, err) != "done" {
		t.Errorf("result %s, %v", raw, err)
	}
	if len(seen) != 3000 || !strings.Contains(seen[2999], `"progress":3000,`) {
		t.Errorf("%d of 3000 notifications", len(seen))
	}
	// Nobody asked, so the server must not be asked.
	raw, err = f.call("ok", "echo", "{}")
	if got := text(t, raw, err); strings.Contains(got, "progressToken") {
		t.Errorf("the server saw %s", got)
	}
}

// A call that runs out of time, or whose caller leaves, is cancelled upstream.
func TestCallCancellationReachesTheServer(t *testing.T) {
	f := start(t, Options{}, fault("ok"))
	f.untilState("ok", Ready)
	slow := Call{Tool: "slow", Arguments: json.RawMessage(`{"ms":60000}`), Timeout: 200 * time.Millisecond}
	if _, err := f.Call(t.Context(), "ok", slow); !errors.Is(err, ErrTimeout) {
		t.Errorf("a call out of time: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	slow.Timeout = 0
	slow.Tool, slow.Progress = "progress", func(json.RawMessage) { cancel() }
	slow.Arguments = json.RawMessage(`{"ms":50,"steps":10000}`)
	if _, err := f.Call(ctx, "ok", slow); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose caller left: %v", err)
	}
	f.until("two cancellations", func() bool { return f.stats("ok").Cancelled == 2 })
}

// 20 MB in one line cost that call, and nothing else.
func TestCallOversizedAnswer(t *testing.T) {
	f := start(t, Options{}, fault("ok"))
	pid := f.untilState("ok", Ready).PID
	var wg sync.WaitGroup
	other := make(chan error, 1)
	wg.Go(func() {
		_, err := f.call("ok", "slow", `{"ms":1500}`)
		other <- err
	})
	if _, err := f.call("ok", "large", `{"bytes":20000000}`); !errors.Is(err, ErrTooLarge) {
		t.Errorf("20 MB: %v", err)
	}
	if raw, err := f.call("ok", "large", `{"bytes":1000000}`); len(text(t, raw, err)) != 1000000 {
		t.Error("1 MB afterwards did not arrive")
	}
	wg.Wait()
	if err := <-other; err != nil {
		t.Errorf("a call beside it: %v", err)
	}
	if st := f.Status("ok"); st.PID != pid || !has(st.Notes, "19 MiB") {
		t.Errorf("status afterwards: %+v", st)
	}
}

// A server that dies during a call: the outcome is unknown, and nothing is sent
// twice unless the tool allows it.
func TestCallCrash(t *testing.T) {
	f := start(t, Options{}, fault("ok"))
	f.untilState("ok", Ready)
	_, err := f.call("ok", "crash", "{}")
	if !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "crash was called") {
		t.Errorf("a call that crashes: %v", err)
	}
	// It is in backoff, which the next call ends.
	raw, err := f.call("ok", "echo", "{}")
	text(t, raw, err)
	if st := f.Status("ok"); st.Spawns != 2 {
		t.Errorf("%d starts, want 2", st.Spawns)
	}
	_, err = f.Call(t.Context(), "ok", Call{Tool: "crash", MayRepeat: true})
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a repeated call that crashes twice: %v", err)
	}
	if st := f.Status("ok"); st.Spawns != 3 {
		t.Errorf("%d starts after a repeated call, want 3", st.Spawns)
	}
	log, err := os.ReadFile(LogFile(f.logDir, "ok"))
	if err != nil || strings.Count(string(log), "panic: crash was called") != 3 || strings.Count(string(log), "--- started, pid") != 3 {
		t.Errorf("log %s, %v", log, err)
	}
	if info, err := os.Stat(LogFile(f.logDir, "ok")); err == nil && info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode of the log: %v", info.Mode())
	}
}

// A server that stops reading blocks its own callers no longer than they want,
// and nobody else's.
func TestCallDeafServer(t *testing.T) {
	f := start(t, Options{}, fault("deaf"), fault("ok"))
	f.untilState("deaf", Ready)
	f.untilState("ok", Ready)
	big := json.RawMessage(`{"x":"` + strings.Repeat("y", 100<<10) + `"}`) // more than a pipe takes
	var wg sync.WaitGroup
	for range 80 { // more than the cap of calls in flight
		wg.Go(func() {
			began := time.Now()
			_, err := f.Call(t.Context(), "deaf", Call{Tool: "echo", Arguments: big, Timeout: time.Second})
			if !errors.Is(err, ErrTimeout) {
				t.Errorf("a deaf server: %v", err)
			}
			if took := time.Since(began); took > patience { // a busy machine is late, a blocked caller never comes
				t.Errorf("a deadline of 1 s took %v", took)
			}
		})
	}
	for range 100 {
		raw, err := f.call("ok", "echo", "{}")
		text(t, raw, err)
	}
	wg.Wait()
}

func TestCallDown(t *testing.T) {
	gone := fault("ok")
	gone.Key, gone.Name, gone.Def.Command = "gone", "gone", "no-such-command-anywhere"
	hangs := fault("hang-init")
	f := start(t, Options{}, gone, hangs)
	st := f.untilState("gone", Failed)
	if !strings.Contains(st.Reason, "no-such-command-anywhere") || st.Retry.IsZero() || st.Hint == "" {
		t.Errorf("status %+v", st)
	}
	var down *DownError
	if _, err := f.call("gone", "x", ""); !errors.As(err, &down) || down.State != Failed || !strings.Contains(down.Reason, "no-such-command") {
		t.Errorf("a call to it: %#v", err)
	}
	if _, err := f.Call(t.Context(), "hang-init", Call{Tool: "x", Timeout: 300 * time.Millisecond}); !errors.As(err, &down) || down.State != Starting {
		t.Errorf("a call to a starting one: %#v", err)
	}
	if _, err := f.call("nobody", "x", ""); !errors.As(err, &down) || down.State != "" {
		t.Errorf("a call to nobody: %#v", err)
	}
	if st := f.Status("nobody"); st.State != "" {
		t.Errorf("status of nobody: %+v", st)
	}
}

// Thousands of calls from many callers at once, over a cap of 32.
func TestCallMany(t *testing.T) {
	f := start(t, Options{}, fault("ok"), fault("string-ids"))
	var wg sync.WaitGroup
	var good atomic.Int64
	for caller := range 100 {
		key := []string{"ok", "string-ids"}[caller%2]
		wg.Go(func() {
			for i := range 30 {
				want := fmt.Sprintf(`{"name":"echo","arguments":{"i":"%d/%d"}}`, caller, i)
				raw, err := f.Call(t.Context(), key, Call{Tool: "echo", From: fmt.Sprint(caller), Arguments: json.RawMessage(fmt.Sprintf(`{"i":"%d/%d"}`, caller, i))})
				if err != nil {
					t.Error(err)
					return
				}
				if got := text(t, raw, err); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				good.Add(1)
			}
		})
	}
	wg.Wait()
	if good.Load() != 3000 {
		t.Errorf("%d of 3000 calls", good.Load())
	}
}

// Every definition of the 44 real servers arrives as it was sent.
func TestCatalog(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(catalog(t), "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d lists, %v", len(files), err)
	}
	var servers []Server
	want := map[string][]json.RawMessage{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tools []json.RawMessage
		if err := json.Unmarshal(raw, &tools); err != nil {
			t.Fatal(err)
		}
		s := fault("tools=" + file)
		s.Key = filepath.Base(file)
		want[s.Key] = tools
		servers = append(servers, s)
	}
	began := time.Now()
	f := startHere(t, &inProcess{starts: map[string][]time.Time{}}, servers...)
	for key := range want {
		f.untilState(key, Ready)
	}
	t.Logf("%d servers ready after %v", len(want), time.Since(began))
	total := 0
	for key, tools := range want {
		l := f.listing(key)
		if len(l.Problems) > 0 || len(l.Tools) != len(tools) {
			t.Errorf("%s: %d of %d tools, %q", key, len(l.Tools), len(tools), l.Problems)
			continue
		}
		total += len(tools)
		for i, sent := range tools {
			want, err := tool.Parse(key, sent)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(decode(t, l.Tools[i].Raw), decode(t, want.Raw)) {
				t.Errorf("%s: %s arrived as %.200s", key, want.Raw, l.Tools[i].Raw)
			}
		}
	}
	if total < 1500 {
		t.Errorf("only %d tools", total)
	}
}

func decode(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
