package upstream

import (
	"fmt"
	"sync"
)

// maxNotes bounds the kinds of notes kept about one server.
const maxNotes = 20

// notes collects odd things that did not stop a server, one per kind, with how
// often it happened. It is safe for concurrent use.
type notes struct {
	clean cleaner

	mu    sync.Mutex
	kinds []string
	texts map[string]string
	count map[string]int
}

func newNotes(c cleaner) *notes {
	return &notes{clean: c, texts: map[string]string{}, count: map[string]int{}}
}

// maxTexts is how often the text of a kind is renewed: a server may print
// garbage by the megabyte, which must cost next to nothing.
const maxTexts = 10

// add notes that something of that kind happened; the latest text stands.
func (n *notes) add(kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count[kind] == 0 {
		if len(n.kinds) == maxNotes {
			return
		}
		n.kinds = append(n.kinds, kind)
	}
	if n.count[kind]++; n.count[kind] > maxTexts {
		return
	}
	n.texts[kind] = n.clean.short(fmt.Sprintf(format, args...), 300)
}

// reset forgets all, when a new connection begins.
func (n *notes) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kinds = nil
	clear(n.texts)
	clear(n.count)
}

// all returns the notes in the order in which their kinds first appeared.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, kind := range n.kinds {
		text := n.texts[kind]
		if c := n.count[kind]; c > 1 {
			text = fmt.Sprintf("%s (%d times)", text, c)
		}
		out = append(out, text)
	}
	return out
}
