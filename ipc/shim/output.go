package shim

import (
	"io"
	"sync"
)

// output writes messages whole, in the order in which they were handed over. A
// sender never waits for the agent to read: the order of a notification and an
// answer is fixed under the locks of view, where no I/O may be done.
type output struct {
	mu      sync.Mutex
	pending []byte
	count   int // messages in pending
	closed  bool
	wake    chan struct{}
}

// maxUnread is how many messages may wait for an agent that does not read before
// progress is dropped. Answers never are: the agent asked for each of them.
const maxUnread = 1024

// keepBuffer is the largest buffer kept for the next message; one result may
// have been a thousand times larger than the usual.
const keepBuffer = 1 << 20

func newOutput() *output { return &output{wake: make(chan struct{}, 1)} }

// send takes over one message, given in parts.
func (o *output) send(parts ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.append(parts)
}

// offer is send for what may be lost.
func (o *output) offer(parts ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count < maxUnread {
		o.append(parts)
	}
}

func (o *output) append(parts [][]byte) {
	if o.closed {
		return
	}
	for _, p := range parts {
		o.pending = append(o.pending, p...)
	}
	o.pending = append(o.pending, '\n')
	o.count++
	o.signal()
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

// run writes until close, or until the agent takes no more.
func (o *output) run(w io.Writer) error {
	var spare []byte
	for range o.wake {
		o.mu.Lock()
		batch, closed := o.pending, o.closed
		o.pending, o.count = spare[:0], 0
		o.mu.Unlock()
		if len(batch) > 0 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
		}
		if spare = batch; cap(spare) > keepBuffer {
			spare = nil
		}
		if closed {
			return nil
		}
	}
	return nil
}
