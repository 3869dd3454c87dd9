package upstream

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

const (
	// firstDelay and maxDelay bound the wait before another start.
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	// maxFailures in a row park a server: what failed five times within half a
	// minute needs a person more than a sixth try. It is still tried every
	// maxDelay, since some causes (a VPN, a database) come back by themselves.
	maxFailures = 5
	// healthy is how long a connection must live to clear what was before.
	healthy = 60 * time.Second
	// maxSpawns bounds starts per minute whoever asks for them: calls wake a
	// server that waits, and a hundred agents may call.
	maxSpawns   = 8
	spawnWindow = time.Minute
)

// policy decides when a server is started again. It knows no clock and no
// goroutine; the server's loop asks it.
type policy struct {
	failures int         // in a row
	spawns   []time.Time // within spawnWindow
	jitter   func() float64
}

func newPolicy() *policy { return &policy{jitter: rand.Float64} }

// failed counts a failure and returns when to try again, and whether the server
// is parked until then.
func (p *policy) failed(now time.Time) (retry time.Time, parked bool) {
	p.failures++
	if p.failures >= maxFailures {
		// A little spread keeps servers that failed together (no network) from
		// coming back together for ever.
		return now.Add(maxDelay + time.Duration(p.jitter()*float64(maxDelay)/5)), true
	}
	// Full jitter between the first delay and a limit that doubles: 2, 4, 8, 16 s.
	limit := firstDelay << p.failures
	delay := firstDelay + time.Duration(p.jitter()*float64(limit-firstDelay))
	return now.Add(delay), false
}

// lived tells how long a connection lived that has ended.
func (p *policy) lived(d time.Duration) {
	if d >= healthy {
		p.failures = 0
	}
}

// reset forgets all, after a person or an edit changed something.
func (p *policy) reset() { p.failures, p.spawns = 0, nil }

// earliest returns when the next start is allowed.
func (p *policy) earliest(now time.Time) time.Time {
	for len(p.spawns) > 0 && now.Sub(p.spawns[0]) >= spawnWindow {
		p.spawns = p.spawns[1:]
	}
	if len(p.spawns) < maxSpawns {
		return now
	}
	return p.spawns[len(p.spawns)-maxSpawns].Add(spawnWindow)
}

func (p *policy) spawned(now time.Time) { p.spawns = append(p.spawns, now) }

const (
	// minGap and maxGap bound how often a server that keeps announcing changes
	// is listed.
	minGap = time.Second
	maxGap = time.Minute
)

// coalescer turns any number of list_changed into few listings: at most one in
// flight and one to follow, with a gap that grows while they keep coming. The
// last change is always followed by a listing.
type coalescer struct {
	gap     time.Duration
	last    time.Time // when the last listing began
	dirty   bool
	running bool
}

// changed notes an announcement.
func (c *coalescer) changed(now time.Time) {
	if !c.dirty && now.Sub(c.last) >= 2*c.gap {
		c.gap = 0 // it was quiet for long enough
	}
	c.dirty = true
}

// next returns when to list; zero: not now.
func (c *coalescer) next() time.Time {
	if !c.dirty || c.running {
		return time.Time{}
	}
	return c.last.Add(c.gap)
}

// begin notes that a listing begins.
func (c *coalescer) begin(now time.Time) {
	c.last, c.dirty, c.running = now, false, true
	c.gap = min(max(minGap, 2*c.gap), maxGap)
}

// end notes that it is over. One that did not work is owed again.
func (c *coalescer) end(worked bool) {
	c.running = false
	c.dirty = c.dirty || !worked
}

const (
	// minTTL and maxTTL bound how long a list counts as fresh, whatever its server
	// says: a listing a minute is nothing to a server and costs no model anything,
	// and a day is the longest that a new tool may go unseen.
	minTTL = time.Minute
	maxTTL = 24 * time.Hour
	// noTTL is for a server that says 0, or nothing, which means the same: stale at
	// once. That is what libraries write when nobody chose a number, so it is worth
	// no more than a ping.
	noTTL = pingEvery
)

// freshness is how long a page of a list counts as fresh, from its ttlMs.
func freshness(ttlMs json.RawMessage) time.Duration {
	var ms float64
	if json.Unmarshal(ttlMs, &ms) != nil || !(ms > 0) {
		return noTTL
	}
	return time.Duration(min(max(ms, float64(minTTL/time.Millisecond)), float64(maxTTL/time.Millisecond))) * time.Millisecond
}
