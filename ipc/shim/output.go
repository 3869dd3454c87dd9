package shim

import (
	"io"
	"sync"
)

// output writes messages whole, in the order in which they were handed over.
//
// Handing over only queues, since the order of a notification and an answer is
// fixed under the locks of view, where no I/O may be done. Whoever has answered a
// request then writes what is queued himself: waking a goroutine to do it would
// cost more than the write. For everybody else the goroutine of run writes.
type output struct {
	w    io.Writer
	wake chan struct{}

	mu      sync.Mutex
	queue   [][]byte
	writing bool
	closed  bool
	err     error         // of the write that failed; nothing is written after it
	over    chan struct{} // closed with err, or when closed and all was written
}

// maxUnread is how many messages may wait for an agent that does not read before
// progress is dropped. Answers never are: the agent asked for each of them.
const maxUnread = 4096

func newOutput(w io.Writer) *output {
	return &output{w: w, wake: make(chan struct{}, 1), over: make(chan struct{})}
}

// add queues a message for the next flush.
func (o *output) add(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.err == nil {
		o.queue = append(o.queue, append(message, '\n'))
	}
}

// put queues a message and has it written soon.
func (o *output) put(message []byte) {
	o.add(message)
	o.signal()
}

// offer is put for what may be lost.
func (o *output) offer(message []byte) {
	o.mu.Lock()
	full := len(o.queue) >= maxUnread
	o.mu.Unlock()
	if !full {
		o.put(message)
	}
}

// flush writes until the queue is empty. Each message is a write of its own:
// some clients lose a notification that they read in one piece with the answer
// behind it.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return
	}
	o.writing = true
	for len(o.queue) > 0 && o.err == nil {
		queue := o.queue
		o.queue = nil
		o.mu.Unlock()
		var err error
		for _, message := range queue {
			if _, err = o.w.Write(message); err != nil {
				break
			}
		}
		o.mu.Lock()
		if err != nil {
			o.err, o.queue = err, nil
			close(o.over)
		}
	}
	o.writing = false
	if o.closed && o.err == nil {
		o.err = io.EOF
		close(o.over)
	}
}

func (o *output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes what was only queued, until the output is over.
func (o *output) run() {
	for {
		select {
		case <-o.wake:
			o.flush()
		case <-o.over:
			return
		}
	}
}

// close takes no more messages and lets over come when all are written.
func (o *output) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

// failure returns why the agent takes no more, or nil.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == io.EOF {
		return nil
	}
	return o.err
}
