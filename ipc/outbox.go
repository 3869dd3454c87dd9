package ipc

import (
	"io"
	"sync"

	"github.com/toolsd/toolsd/platform"
)

// outbox writes the daemon's frames to one agent, each whole, in the order in which
// they were put in. Putting in never waits for the agent: what it leaves unread is
// kept. Whoever puts a frame in writes it himself as far as that takes no waiting,
// since waking a goroutine for it takes longer than the write.
type outbox struct {
	w io.Writer // set before the first put

	mu      sync.Mutex
	changed sync.Cond // of mu: frames were written, or will not be
	queue   [][]byte  // not written yet, the first one perhaps in part
	size    int       // of queue, in bytes
	writing bool      // a goroutine writes, and waits for the agent
	failed  bool      // nothing is written any more
}

const (
	// maxUnread is how much an agent may leave unread before its progress is
	// dropped: the next one says all. Answers never are, for it asked for each.
	maxUnread = 4 << 20
	// maxKept is how much it may leave unread before it is asked nothing more.
	maxKept = 64 << 20
)

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w}
	o.changed.L = &o.mu
	return o
}

// put adds a frame.
func (o *outbox) put(v outFrame) {
	line := v.line()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(line)
}

// offer is put for what may be lost.
func (o *outbox) offer(v outFrame) {
	line := v.line()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size <= maxUnread {
		o.add(line)
	}
}

// add is put for who holds mu.
func (o *outbox) add(line []byte) {
	if o.failed {
		return
	}
	o.queue, o.size = append(o.queue, line), o.size+len(line)
	for !o.writing {
		n := platform.WriteNow(o.w, o.queue[0])
		if o.wrote(n); len(o.queue) == 0 {
			return
		}
		if n == 0 {
			o.writing = true
			go o.write()
		}
	}
}

// wrote takes n bytes off the first frame. mu is held.
func (o *outbox) wrote(n int) {
	o.size -= n
	if o.queue[0] = o.queue[0][n:]; len(o.queue[0]) == 0 {
		o.queue[0] = nil
		o.queue = o.queue[1:]
	}
	o.changed.Broadcast()
}

// write writes what has to wait for the agent.
func (o *outbox) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 {
		line := o.queue[0]
		o.mu.Unlock()
		_, err := o.w.Write(line)
		o.mu.Lock()
		if err != nil {
			o.failed, o.queue, o.size = true, nil, 0
			break
		}
		o.wrote(len(line))
	}
	o.writing = false
	o.changed.Broadcast()
}

// room waits until the agent has read enough to be listened to.
func (o *outbox) room() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > maxKept {
		o.changed.Wait()
	}
}

// flush waits until all is written, or will not be.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.changed.Wait()
	}
}
