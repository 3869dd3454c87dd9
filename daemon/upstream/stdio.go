package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/platform"
)

// child is a running server process.
type child struct {
	pid    int
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr io.ReadCloser
	done   <-chan struct{} // closed when the process has ended
	exit   func() string   // how it ended, after done: "exited with code 1"
	// stop ends the process and all its descendants: politely first, by force
	// when ctx ends at the latest. It returns when they are gone.
	stop func(ctx context.Context)
}

const (
	// writeLimit is how long a server may leave a message unread before it
	// counts as hung. A busy single-threaded server reads nothing while it
	// works, so this is not short.
	writeLimit = 60 * time.Second
	// queueSize is how many messages wait for the pipe; then callers wait, each
	// within its own deadline.
	queueSize = 64
	// lastWords is how long after a process' end its pipes are still read: a
	// grandchild that inherited them may keep them open for ever.
	lastWords = 300 * time.Millisecond
)

// stdioConn talks to a child process, one JSON message per line.
type stdioConn struct {
	*peer
	child  *child
	queue  chan *outgoing
	turn   sync.Mutex // held by who writes
	stderr *stderrLog
	began  time.Time
	wg     sync.WaitGroup

	readDone, stderrDone chan struct{}
}

func newStdioConn(c *child, log *stderrLog, n *notes, onChanged func()) *stdioConn {
	s := &stdioConn{
		child: c, stderr: log, began: time.Now(),
		queue:    make(chan *outgoing, queueSize),
		readDone: make(chan struct{}), stderrDone: make(chan struct{}),
	}
	s.peer = newPeer(s, onChanged, n)
	s.wg.Go(s.read)
	s.wg.Go(s.write)
	s.wg.Go(s.watch)
	s.wg.Go(func() {
		defer close(s.stderrDone)
		log.drain(c.stderr)
	})
	return s
}

func (s *stdioConn) side() *peer       { return s.peer }
func (s *stdioConn) pid() int          { return s.child.pid }
func (s *stdioConn) setVersion(string) {}

// close stops the process and waits until nothing of the connection is left.
func (s *stdioConn) close(ctx context.Context) {
	s.fail(errClosed)
	s.child.stop(ctx)
	// A descendant that escaped every kill could hold the pipes open.
	s.child.stdin.Close()
	s.child.stdout.Close()
	s.child.stderr.Close()
	s.wg.Wait()
}

// errClosed ends a connection that we gave up ourselves.
var errClosed = errors.New("the connection was closed by toolsd")

func (s *stdioConn) send(ctx context.Context, m *outgoing) error {
	select {
	case s.queue <- m:
		return nil
	case <-s.done:
		return s.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try writes m itself when nothing waits before it: waking the goroutine of write
// takes longer than the write.
func (s *stdioConn) try(m *outgoing) bool {
	if s.turn.TryLock() {
		written := len(s.queue) == 0 && m.call.claim() && platform.WriteNow(s.child.stdin, append(m.body, '\n')) > 0
		s.turn.Unlock()
		if written {
			return true
		}
		m.call.unclaim()
		if !s.waiting(m.call) {
			m.call.abandon()
		}
	}
	select {
	case s.queue <- m:
		return true
	default:
		return false
	}
}

func (s *stdioConn) offer(m *outgoing) {
	select {
	case s.queue <- m:
	default: // it does not read, so it would not see this either
	}
}

// write is the only goroutine that a server which stops reading can block.
func (s *stdioConn) write() {
	for {
		var m *outgoing
		select {
		case <-s.done:
			return
		case m = <-s.queue:
		}
		if m.call != nil && !m.call.claim() {
			continue
		}
		late := time.AfterFunc(writeLimit, func() {
			s.fail(fmt.Errorf("it did not read its input for %v", writeLimit))
		})
		s.turn.Lock()
		_, err := s.child.stdin.Write(append(m.body, '\n'))
		s.turn.Unlock()
		late.Stop()
		if err != nil {
			// Most often it has exited, and the exit code says more than this.
			select {
			case <-s.done:
			case <-time.After(3 * lastWords):
				s.fail(fmt.Errorf("it closed its input: %v", err))
			}
			return
		}
	}
}

var bom = []byte("\xef\xbb\xbf")

func (s *stdioConn) read() {
	defer close(s.readDone)
	lines := newLineReader(s.child.stdout)
	for {
		line, over, err := lines.next()
		if err != nil {
			return
		}
		if over != nil {
			s.tooLarge(over)
			continue
		}
		if trimmed := bytes.TrimPrefix(line, bom); len(trimmed) != len(line) {
			s.notes.add("bom", "its output begins with a byte order mark, which was dropped")
			line = trimmed
		}
		if len(bytes.TrimSpace(line)) == 0 {
			s.notes.add("blank", "a blank line on stdout was dropped")
			continue
		}
		if !s.receive(line) {
			s.notes.add("garbage", "a line on stdout that is no message was dropped: %q", cut(string(line[:min(len(line), 400)]), 120))
		}
	}
}

// watch ends the connection when the process or its output ends, with what the
// process said last.
func (s *stdioConn) watch() {
	select {
	case <-s.done:
		return
	case <-s.child.done:
		wait(s.readDone, lastWords) // an answer may still be in the pipe
	case <-s.readDone:
		wait(s.child.done, lastWords)
	}
	select {
	case <-s.child.done:
		wait(s.stderrDone, lastWords)
		s.fail(&exitError{
			how: fmt.Sprintf("%s after %s", s.child.exit(), brief(time.Since(s.began))), said: s.said()})
	default:
		s.fail(&exitError{how: "it closed its output but runs on", said: s.said()})
	}
}

// said is the end of what the process wrote to stderr.
func (s *stdioConn) said() string {
	tail := s.stderr.lines()
	// Three lines: the message of an exception and the one before it.
	return cut(strings.Join(tail[max(0, len(tail)-3):], " | "), maxReason)
}

// exitError says how a process ended. said is cleaned and redacted.
type exitError struct{ how, said string }

func (e *exitError) Error() string {
	if e.said == "" {
		return e.how + " without a word on stderr"
	}
	return e.how + "; stderr: " + e.said
}

func wait(c <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	}
}

// brief is a duration as a person says it.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
