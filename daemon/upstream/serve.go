package upstream

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// serve is the time in which the server is ready. It returns why that ended,
// with the link closed.
func (s *server) serve(l *link, lazy bool) error {
	defer s.stop(l)
	s.mu.Lock()
	s.link = l
	s.mu.Unlock()
	s.publish(func(st *Status) {
		*st = Status{State: Ready, PID: l.pid(), Spawns: st.Spawns, Version: l.version, Since: st.Since}
	})
	defer func() {
		s.mu.Lock()
		s.link = nil
		s.mu.Unlock()
	}()

	ctx, cancel := context.WithCancel(s.gone)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()

	c := coalescer{last: time.Now(), gap: minGap}
	listAt := newAlarm()
	listDone := make(chan error, 1)
	agedAt := newAlarm()
	aging := false // the listing is only for the list's age
	age := func() {
		if l.modern && l.hasTools {
			agedAt.set(time.Now().Add(l.ttl))
		}
	}
	age()
	pingAt := newAlarm()
	pingDone := make(chan error, 1)
	pinging := false
	ping := func(limit time.Duration) {
		if pinging {
			return
		}
		pinging = true
		work.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not answer a ping within %s", brief(limit)))
			defer cancel()
			pingDone <- l.ping(ctx)
		})
	}
	pingAt.set(time.Now().Add(pingEvery))
	idleAt := newAlarm()
	idle := s.definition().Def.Idle
	if idle <= 0 {
		idle = idleTimeout
	}
	// A session's own process holds what the session did so far.
	if lazy && !(s.id.instance != "" && s.definition().Def.Share == "session") {
		idleAt.set(time.Now().Add(idle))
	}
	defer func() { listAt.stop(); agedAt.stop(); pingAt.stop(); idleAt.stop() }()

	for {
		select {
		case <-s.gone.Done():
			return context.Cause(s.gone)
		case <-l.peer.done:
			return l.peer.cause()
		case <-s.restart:
			return errRestart
		case <-s.wake: // it is awake
		case <-s.relist:
			s.report()

		case <-l.changed:
			aging = false
			c.changed(time.Now())
			listAt.set(c.next())
		case <-agedAt.c():
			if l.hears() {
				age()
				break
			}
			aging = true
			c.changed(time.Now())
			listAt.set(c.next())
		case <-listAt.c():
			c.begin(time.Now())
			agedAt.stop()
			onlyNews := aging
			work.Go(func() {
				ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no answer within %s", brief(startTimeout)))
				defer cancel()
				listing, err := l.list(ctx, s.definition().Name, s.clean)
				if err == nil && !(onlyNews && s.says(listing)) {
					s.listed(listing)
				}
				listDone <- err
			})
		case err := <-listDone:
			if err != nil {
				s.notes.add("relist", "asked again: %v; the tools from before are kept", err)
			}
			c.end(err == nil)
			listAt.set(c.next())
			age()

		case <-pingAt.c():
			quiet := time.Unix(0, l.peer.heard.Load()).Add(pingEvery)
			if time.Now().Before(quiet) || l.busy() {
				pingAt.set(latest(quiet, time.Now().Add(pingEvery/5)))
				break
			}
			ping(pingTimeout)
		case <-s.jump:
			ping(jumpTimeout)
		case <-s.check:
			ping(pingTimeout)
		case err := <-pingDone:
			pinging = false
			pingAt.set(time.Now().Add(pingEvery))
			if err != nil && s.gone.Err() == nil && l.peer.cause() == nil {
				return err
			}

		case <-idleAt.c():
			again := l.idle(time.Now(), idle)
			if again.IsZero() {
				return errIdle
			}
			idleAt.set(again)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// alarm is a timer that may be off.
type alarm struct{ t *time.Timer }

func newAlarm() *alarm { return &alarm{} }

func (a *alarm) set(at time.Time) {
	a.stop()
	if !at.IsZero() {
		a.t = time.NewTimer(time.Until(at))
	}
}

func (a *alarm) stop() {
	if a.t != nil {
		a.t.Stop()
		a.t = nil
	}
}

func (a *alarm) c() <-chan time.Time {
	if a.t == nil {
		return nil
	}
	return a.t.C
}
