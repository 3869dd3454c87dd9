package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPolicy(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, jitter := range []float64{0, 0.999} {
		p := newPolicy()
		p.jitter = func() float64 { return jitter }
		for i := 1; i < maxFailures; i++ {
			retry, parked := p.failed(now)
			wait := retry.Sub(now)
			if parked || wait < firstDelay || wait >= firstDelay<<i {
				t.Errorf("failure %d: retry after %v, parked %v", i, wait, parked)
			}
		}
		for range 3 {
			retry, parked := p.failed(now)
			if wait := retry.Sub(now); !parked || wait < maxDelay || wait > maxDelay*6/5 {
				t.Errorf("parked %v, retry after %v", parked, wait)
			}
		}
		p.lived(healthy - 1)
		if _, parked := p.failed(now); !parked {
			t.Error("a short life unparked")
		}
		p.lived(healthy)
		if _, parked := p.failed(now); parked {
			t.Error("a healthy minute did not clear the failures")
		}
	}
}

func TestPolicyCapsSpawns(t *testing.T) {
	p := newPolicy()
	now := time.Unix(1e9, 0)
	starts := map[int]int{} // by minute
	for minute := range 3 {
		for second := range 60 {
			at := now.Add(time.Duration(minute*60+second) * time.Second)
			if !p.earliest(at).After(at) {
				p.spawned(at)
				starts[minute]++
			}
		}
	}
	if starts[0] != maxSpawns || starts[1] > maxSpawns || starts[2] > maxSpawns {
		t.Errorf("starts per minute: %v", starts)
	}
}

func TestFreshness(t *testing.T) {
	for ttlMs, want := range map[string]time.Duration{
		``: noTTL, `null`: noTTL, `0`: noTTL, `-5`: noTTL, `"60000"`: noTTL, `{}`: noTTL,
		`1`: minTTL, `90000`: 90 * time.Second, `9e4`: 90 * time.Second, `3.2e12`: maxTTL, `1e300`: maxTTL, `1e999`: noTTL,
	} {
		if got := freshness(json.RawMessage(ttlMs)); got != want {
			t.Errorf("a ttlMs of %s: %v, want %v", ttlMs, got, want)
		}
	}
}

// A server that announces a change after each list, one that announces seldom,
// and the last change, which must be seen.
func TestCoalescer(t *testing.T) {
	run := func(announce func(now time.Duration, listed int) bool) (lists []time.Duration) {
		zero := time.Unix(1e9, 0)
		c := coalescer{last: zero, gap: minGap}
		for d := time.Duration(0); d < 10*time.Minute; d += 100 * time.Millisecond {
			if announce(d, len(lists)) {
				c.changed(zero.Add(d))
			}
			if at := c.next(); !at.IsZero() && !at.After(zero.Add(d)) {
				c.begin(zero.Add(d))
				lists = append(lists, d)
				c.end(true)
			}
		}
		return lists
	}
	storm := run(func(time.Duration, int) bool { return true })
	inFirst, inLast := 0, 0
	for _, at := range storm {
		if at < time.Minute {
			inFirst++
		}
		if at >= 8*time.Minute {
			inLast++
		}
	}
	if inFirst > 7 || inLast > 2 {
		t.Errorf("a storm: %d lists in the first minute, %d in the last two: %v", inFirst, inLast, storm)
	}
	seldom := run(func(now time.Duration, _ int) bool { return now > 0 && now%(20*time.Second) == 0 })
	if len(seldom) != 29 {
		t.Errorf("a change every 20 s: %d lists, want 29 at once: %v", len(seldom), seldom)
	}
	// Ten changes at once, then silence: the last one is followed by a list.
	burst := run(func(now time.Duration, _ int) bool { return now < time.Second })
	if len(burst) == 0 || burst[len(burst)-1] < 900*time.Millisecond {
		t.Errorf("a burst: %v", burst)
	}
}

func TestLimiterTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1)
		if err := l.enter(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		var order []string
		var wg sync.WaitGroup
		queue := func(from string) {
			wg.Go(func() {
				if err := l.enter(t.Context(), from); err != nil {
					t.Error(err)
				}
				order = append(order, from) // no lock: the limiter lets one through
				l.leave()
			})
			synctest.Wait()
		}
		for range 3 {
			queue("burst")
		}
		queue("other")
		gone, leave := context.WithCancelCause(t.Context())
		wg.Go(func() {
			if err := l.enter(gone, "gone"); err == nil || err.Error() != "left" {
				t.Errorf("a caller that left: %v", err)
			}
		})
		synctest.Wait()
		leave(errors.New("left"))
		synctest.Wait()
		l.leave()
		wg.Wait()
		if got := strings.Join(order, " "); got != "burst other burst burst" {
			t.Errorf("order %s", got)
		}
		if l.free != 1 || len(l.waiting) != 0 || len(l.order) != 0 {
			t.Errorf("left over: %d free, %v, %v", l.free, l.waiting, l.order)
		}
	})
}

func TestIDScan(t *testing.T) {
	tests := []struct {
		msg    string
		ids    string
		method bool
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":"\"id\":9"}}`, "[7]", false},
		{`{"result":{"a":[{"id":1}]},"id" : "12" }`, "[12]", false},
		{`{"id":7.0,"result":1}`, "[7]", false},
		{`{"id":null,"error":{}}`, "[]", false},
		{`{"result":"id","di":"id","id":3}`, "[3]", false},
		{`{"id":7,"method":"x","params":{}}`, "[]", true},
		{`[{"id":1,"result":{"id":5}},{"id":"2","result":[]}]`, "[1 2]", false},
		{`{"result":"{\"id\":4}\\","id":6}`, "[6]", false},
		{`no json "id":4`, "[]", false},
		{``, "[]", false},
	}
	for _, tt := range tests {
		for step := 1; step <= 7; step++ { // whatever pieces it comes in
			var s idScan
			for rest := tt.msg; rest != ""; {
				n := min(step, len(rest))
				s.feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := fmt.Sprint(s.ids); got != tt.ids || s.method != tt.method {
				t.Errorf("%s in pieces of %d: ids %s, method %v", tt.msg, step, got, s.method)
			}
		}
	}
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", readSize)
	r := newLineReader(strings.NewReader("a\r\n\n" + long + "y\n{\"id\":1," + strings.Repeat(long, 5) + "}\nb\nlast"))
	r.max = 2 * readSize
	for i, want := range []string{"a", "", long + "y", "over", "b", "last"} {
		line, over, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		got := string(line)
		if over != nil {
			got = "over"
			if fmt.Sprint(over.ids) != "[1]" || over.size < 5*readSize {
				t.Errorf("over: %+v", over)
			}
		}
		if got != want {
			t.Errorf("line %d: %.20q, want %.20q", i, got, want)
		}
	}
	if _, _, err := r.next(); err == nil {
		t.Error("no end")
	}
}

func FuzzIDScan(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`))
	f.Add([]byte(`[{"id":"a\"b"}]`))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var s idScan
		s.feed(msg) // must not panic, nor keep much
		if len(s.key) > maxIDScan || len(s.id) > maxIDScan+1 {
			t.Errorf("kept %d and %d bytes", len(s.key), len(s.id))
		}
	})
}
