package shim

import (
	"io"
	"sync"
)

// output writes messages whole, in the order in which they were handed over. A
// sender never waits for the agent to read: the order of a notification and an
// answer is fixed under the locks of view, where no I/O may be done.
type output struct {
	mu     sync.Mutex
	queue  [][]byte
	closed bool
	wake   chan struct{}
}

// maxUnread is how many messages may wait for an agent that does not read before
// progress is dropped. Answers never are: the agent asked for each of them.
const maxUnread = 1024

func newOutput() *output { return &output{wake: make(chan struct{}, 1)} }

// send takes over a message.
func (o *output) send(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(message)
}

// offer is send for what may be lost.
func (o *output) offer(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) < maxUnread {
		o.add(message)
	}
}

func (o *output) add(message []byte) {
	if !o.closed {
		o.queue = append(o.queue, append(message, '\n'))
		o.signal()
	}
}

func (o *output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close lets run return once everything was written.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

// run writes until close, or until the agent takes no more. Each message is a
// write of its own: some clients lose a notification that they read in one piece
// with the answer behind it.
func (o *output) run(w io.Writer) error {
	for range o.wake {
		o.mu.Lock()
		queue, closed := o.queue, o.closed
		o.queue = nil
		o.mu.Unlock()
		for _, message := range queue {
			if _, err := w.Write(message); err != nil {
				return err
			}
		}
		if closed {
			return nil
		}
	}
	return nil
}
