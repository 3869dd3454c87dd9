package shim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// relistWait is how long an answer waits for the client's re-list. Clients that
// re-list at all do it within 300 to 500 ms.
const relistWait = time.Second

// view is what the agent has before its eyes: the list of its tools, what its
// client has taken of it, and which definitions it was shown. It is what
// survives the daemon.
type view struct {
	out  *output
	asks ipc.AttachRequest // for: directory, mode, threshold; each session begins with it

	mu      sync.Mutex
	begun   bool
	client  string
	version string
	profile profile
	mode    ipc.Mode // decided once
	servers []ipc.ServerBrief

	list     []ipc.Listed          // all that the client is given, the fixed tools excepted
	hashes   map[tool.ID]tool.Hash // of list; replaced with it, never changed
	rendered []byte                // the result of tools/list, likewise
	told     []byte                // what the client last listed or was told of; the same bytes need no notification

	greeting int                   // initialize requests that are not answered yet
	greeted  chan struct{}         // closed when there are none
	opened   bool                  // the client may be sent notifications
	opening  bool                  // it may as soon as they are
	listedIt bool                  // the client has listed at least once
	served   map[tool.ID]tool.Hash // what it listed last
	order    []tool.ID             // what a list answer holds that is out, or on its way
	notified time.Time             // of the last notification that no list followed yet
	relisted time.Time             // when a list last followed a notification
	habit    habit                 // as observed, to begin with the profile's

	seen    map[tool.ID]tool.Hash
	edits   int           // of seen and served
	changed chan struct{} // closed and replaced when the client lists
}

func newView(out *output, asks ipc.AttachRequest) *view {
	v := &view{
		out: out, asks: asks, profile: profileOf(""), rendered: render(nil),
		served: map[tool.ID]tool.Hash{}, seen: map[tool.ID]tool.Hash{}, changed: make(chan struct{}),
	}
	v.told = v.rendered
	return v
}

// render is the result of tools/list: the fixed tools, then the daemon's list in
// its order, each definition byte for byte.
func render(list []ipc.Listed) []byte {
	b := append([]byte(nil), `{"tools":[`...)
	for i, f := range fixed {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.definition...)
	}
	for _, l := range list {
		b = append(b, ',')
		b = append(b, compact(l.Definition)...)
	}
	return append(b, "]}"...)
}

// begin notes the client and reports whether this is the first time.
func (v *view) begin(client, version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := !v.begun
	v.begun = true
	if first || client != "" {
		v.client, v.version, v.profile = client, version, profileOf(client)
		v.habit = v.profile.habit
	}
	return first
}

// decide fixes the mode if no daemon has decided it in time: without one nothing
// is known to be listed, so the agent must search.
func (v *view) decide() ipc.Mode {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mode == "" {
		if v.mode = ipc.Search; v.asks.Mode == ipc.Direct {
			v.mode = ipc.Direct
		}
	}
	return v.mode
}

// handOver is what the next session of this agent begins with, and the number
// of edits that it holds.
func (v *view) handOver() (ipc.AttachRequest, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.asks
	r.Client, r.Version = v.client, v.version
	r.Seen, r.Listed = maps.Clone(v.seen), slices.Clone(v.order)
	if v.mode != "" {
		r.Mode = v.mode
	}
	// The whole list, so that it comes back in the order in which the agent has it.
	for _, l := range v.list {
		r.Active = append(r.Active, l.ID)
	}
	return r, v.edits
}

// attached takes over what a new session begins with. It refuses a session in
// another mode than the agent was told.
func (v *view) attached(h ipc.Hello) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mode != "" && v.mode != h.Mode {
		return false
	}
	v.mode, v.servers = h.Mode, h.Servers
	return true
}

// set takes over the daemon's list, as far as the client can, and tells the client
// if a byte of it changed.
func (v *view) set(list []ipc.Listed) {
	v.mu.Lock()
	strict := v.profile.strict
	v.mu.Unlock()
	if strict {
		list = slices.DeleteFunc(slices.Clone(list), func(l ipc.Listed) bool { return !listable(l.Definition) })
	}
	rendered := render(list)
	hashes := make(map[tool.ID]tool.Hash, len(list))
	for _, l := range list {
		hashes[l.ID] = l.Hash
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list, v.hashes = list, hashes
	if bytes.Equal(rendered, v.rendered) {
		return
	}
	v.rendered = rendered
	v.notify()
}

// notify tells the client that its list is not the present one. Before the
// handshake is over it may not; open does it then.
func (v *view) notify() {
	if !v.opened || bytes.Equal(v.rendered, v.told) {
		return
	}
	v.told = v.rendered
	v.notified = time.Now()
	v.out.put([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
}

// open says that the handshake is over. A client that has not listed yet will
// get the present list, and has nothing to be told.
func (v *view) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opening = true
	v.openNow()
}

// greet keeps everything back until the answer to initialize is out, also from a
// client that sends what follows without waiting for it. The function it returns
// says that it is.
func (v *view) greet() (done func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.greeting++; v.greeting == 1 {
		v.greeted = make(chan struct{})
	}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.greeting--; v.greeting == 0 {
			close(v.greeted)
		}
		v.openNow()
	}
}

// awaitGreeting returns when no initialize is unanswered.
func (v *view) awaitGreeting() {
	v.mu.Lock()
	greeted := v.greeted
	v.mu.Unlock()
	if greeted != nil {
		<-greeted
	}
}

// openNow opens when the time for it has come. v.mu is held.
func (v *view) openNow() {
	if v.opened || !v.opening || v.greeting > 0 {
		return
	}
	v.opened = true
	if !v.listedIt {
		v.told = v.rendered
	}
	v.notify()
}

// current returns the bytes of the list and the definitions in it, and notes
// that the client is about to have them: a session that begins before the answer
// is out must know it.
func (v *view) current() ([]byte, map[tool.ID]tool.Hash) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.Copy(v.seen, v.hashes)
	v.order = v.order[:0:0]
	for _, l := range v.list {
		v.order = append(v.order, l.ID)
	}
	v.edits++
	return v.rendered, v.hashes
}

// serve lets send answer a list request with what current returned, unless that
// is not the present list any more.
func (v *view) serve(rendered []byte, send func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !bytes.Equal(v.rendered, rendered) {
		return false
	}
	if !v.notified.IsZero() {
		// A list that comes late may be a client's routine rather than its reaction.
		if time.Since(v.notified) <= relistWait || v.profile.habit == relists {
			v.habit = relists
		}
		v.notified, v.relisted = time.Time{}, time.Now()
	}
	v.listedIt, v.told, v.served = true, rendered, v.hashes
	close(v.changed)
	v.changed = make(chan struct{})
	send()
	return true
}

// saw notes definitions that an answer shows.
func (v *view) saw(seen map[tool.ID]tool.Hash) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.Copy(v.seen, seen)
	v.edits++
}

// facts are what texts are made of.
type facts struct {
	mode    ipc.Mode
	profile profile
	relists bool // the client is known to, or nothing is known
	active  int  // tools beside the fixed ones
	tokens  int
	served  map[tool.ID]tool.Hash
}

// lists reports whether the client has this very definition in its list.
func (f facts) lists(l ipc.Listed) bool { return f.served[l.ID] == l.Hash }

func (v *view) facts() facts {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := facts{mode: v.mode, profile: v.profile, relists: v.habit != ignores, active: len(v.list), served: v.served}
	for _, l := range v.list {
		f.tokens += l.Tokens
	}
	return f
}

// awaitRelist waits until the client has listed the tools, if it was told of
// them and can be expected to list again, and lets it settle. since is when the
// request began that made the list change; ended says that nothing will come.
func (v *view) awaitRelist(ctx context.Context, since time.Time, tools []ipc.Listed, ended <-chan struct{}) {
	timer := time.NewTimer(relistWait)
	defer timer.Stop()
	for {
		v.mu.Lock()
		complete := v.complete(tools)
		expected := v.habit != ignores && !v.notified.IsZero()
		changed, settled := v.changed, v.relisted.Add(v.profile.settle)
		reacted := !v.relisted.Before(since)
		v.mu.Unlock()
		switch {
		case complete && !reacted, !complete && !expected:
			return
		case complete:
			changed = nil
			timer.Reset(time.Until(settled))
		}
		select {
		case <-changed:
			continue
		case <-timer.C:
			if !complete {
				v.missed()
			}
		case <-ctx.Done():
		case <-ended:
		}
		return
	}
}

// complete reports whether those of the tools that are in the list at all have
// been listed.
func (v *view) complete(tools []ipc.Listed) bool {
	for _, l := range v.list {
		if v.served[l.ID] != l.Hash && slices.ContainsFunc(tools, func(t ipc.Listed) bool { return t.ID == l.ID }) {
			return false
		}
	}
	return true
}

// missed notes that the client did not list again when it was told to.
func (v *view) missed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.notified.IsZero() {
		v.habit = ignores
	}
}
