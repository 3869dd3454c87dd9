package upstream

import (
	"context"
	"sync"
)

// maxCalls is how many calls one server works on at a time. Most servers have
// one thread; what is over this only queues inside of them, where nobody's turn
// is kept.
const maxCalls = 32

// limiter lets a bounded number of calls through. Those that wait are served in
// turn by who they come from, so that one agent's burst does not stand before
// another's single call.
type limiter struct {
	mu      sync.Mutex
	free    int
	order   []string                   // who waits, next one first
	waiting map[string][]chan struct{} // first come first served within one caller
}

func newLimiter(n int) *limiter { return &limiter{free: n, waiting: map[string][]chan struct{}{}} }

// enter waits for a place. Every nil answer must be followed by leave.
func (l *limiter) enter(ctx context.Context, from string) error {
	l.mu.Lock()
	if l.place() {
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(l.waiting[from]) == 0 {
		l.order = append(l.order, from)
	}
	l.waiting[from] = append(l.waiting[from], turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	for i, t := range l.waiting[from] {
		if t == turn {
			l.waiting[from] = append(l.waiting[from][:i:i], l.waiting[from][i+1:]...)
			l.tidy(from)
			l.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	l.mu.Unlock()
	l.leave() // the turn came at the same moment
	return context.Cause(ctx)
}

// tryEnter is enter for who does not wait; it reports whether there was a place.
func (l *limiter) tryEnter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.place()
}

// place takes a place if one is free. l.mu is held.
func (l *limiter) place() bool {
	if l.free == 0 || len(l.order) > 0 {
		return false
	}
	l.free--
	return true
}

// leave gives the place to the next one.
func (l *limiter) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) == 0 {
		l.free++
		return
	}
	from := l.order[0]
	turn := l.waiting[from][0]
	l.waiting[from] = l.waiting[from][1:]
	l.order = l.order[1:]
	if len(l.waiting[from]) > 0 {
		l.order = append(l.order, from)
	} else {
		delete(l.waiting, from)
	}
	close(turn)
}

// tidy removes from when none of its calls waits any more.
func (l *limiter) tidy(from string) {
	if len(l.waiting[from]) > 0 {
		return
	}
	delete(l.waiting, from)
	for i, f := range l.order {
		if f == from {
			l.order = append(l.order[:i:i], l.order[i+1:]...)
			return
		}
	}
}
