package upstream

import (
	"context"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Set holds a connection to each of the servers it was given.
type Set struct {
	opts  Options
	slots chan struct{}
	logs  *logFiles
	web   web
	fresh refresher
	spawn func(platform.Command) (*child, error)

	mu      sync.Mutex // guards what follows
	servers map[identity]*server
	order   []identity // as in the last Reconcile; the first of a key speaks for it
	running context.Context
	ended   bool
	wg      sync.WaitGroup
}

// New returns a Set without servers. It does nothing until Run.
func New(o Options) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnListing == nil {
		o.OnListing = func(string, Listing) []*tool.Tool { return nil }
	}
	if o.OnStatus == nil {
		o.OnStatus = func() {}
	}
	if o.Environ == nil {
		o.Environ = func(context.Context) (platform.Environ, error) { return platform.ProcessEnviron(), nil }
	}
	if o.Refresh == nil {
		o.Refresh = o.Environ
	}
	s := &Set{
		opts:    o,
		slots:   make(chan struct{}, 2*runtime.NumCPU()),
		logs:    &logFiles{byPath: map[string]*logFile{}},
		servers: map[identity]*server{},
	}
	s.spawn = s.start
	return s
}

const (
	// runTimeout bounds the end of Run. It leaves stopTimeout to the servers.
	runTimeout = 8 * time.Second
	// clockTick and clockSlack find a sleep of the machine: the clock moved on
	// by more than the tick and what a loaded machine may add.
	clockTick  = 5 * time.Second
	clockSlack = 15 * time.Second
)

// Run keeps the servers connected until ctx ends, then stops all of them at once
// and returns when they are gone, 8 s after ctx ended at the latest. A Set runs
// once.
func (t *Set) Run(ctx context.Context) error {
	t.mu.Lock()
	t.running = ctx
	for _, s := range t.servers {
		t.begin(s)
	}
	t.mu.Unlock()
	t.watchClock(ctx)

	t.mu.Lock()
	t.ended = true
	for _, s := range t.servers {
		s.cancel(context.Cause(ctx))
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	wait(done, runTimeout)
	t.web.closeIdle()
	return ctx.Err()
}

// watchClock returns when ctx ends. Until then it tells every server when the
// machine, or this process, was asleep.
func (t *Set) watchClock(ctx context.Context) {
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		// The monotonic clock stands still while a machine sleeps, the wall clock
		// does not; a stopped process sees both move.
		elapsed := max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
		last = now
		if elapsed > clockTick+clockSlack {
			t.jumped(elapsed)
		}
	}
}

func (t *Set) jumped(elapsed time.Duration) {
	t.opts.Log.Info("the clock jumped, all servers are checked", "by", elapsed)
	t.web.forget()
	for _, s := range t.all() {
		s.mu.Lock()
		s.graceEnd = time.Now().Add(grace)
		s.mu.Unlock()
		wish(s.jump)
	}
}

// Reconcile makes the servers those of wanted, which is complete: new ones are
// started, those whose definition changed are restarted, those that are absent
// are stopped, and all others are left alone. It returns at once.
func (t *Set) Reconcile(wanted []Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	old := t.servers
	t.servers = make(map[identity]*server, len(wanted))
	t.order = t.order[:0]
	spoken := map[string]bool{}
	for _, w := range wanted {
		id := identity{w.Key, w.Instance}
		if t.servers[id] != nil {
			continue
		}
		first := !spoken[w.Key]
		spoken[w.Key] = true
		t.order = append(t.order, id)
		s := old[id]
		delete(old, id)
		if s != nil && same(s.definition(), w) {
			s.mu.Lock()
			promoted := first && !s.first
			s.def, s.first = w, first
			s.mu.Unlock()
			if promoted {
				wish(s.relist)
			}
			t.servers[id] = s
			continue
		}
		n := t.newServer(id, w, first, s)
		if s != nil {
			t.drop(s)
			if t.running == nil {
				n.before = nil
			}
		}
		t.servers[id] = n
		if t.running != nil {
			t.begin(n)
		}
	}
	for _, s := range old {
		t.drop(s)
	}
}

// drop stops a server that is wanted no more, at least not like that.
func (t *Set) drop(s *server) {
	s.cancel(errRemoved)
	if t.running == nil { // its loop has never begun
		s.closeLog()
	}
}

// same reports whether two definitions run the same. Where an entry stands in
// its file, and what of its tools is shown, changes nothing for its process.
func same(a, b Server) bool {
	return reflect.DeepEqual(essence(a), essence(b))
}

func essence(s Server) Server {
	s.Known = false
	d := &s.Def
	d.Source = clientconfig.Source{}
	d.Include, d.Exclude, d.Secrets, d.Problem, d.Hint, d.Disabled = nil, nil, nil, "", "", false
	// Expanding has put what these say into Env and Headers.
	d.Origin, d.EnvFile, d.ForwardNeeded, d.HeaderVars, d.BearerVar = "", "", false, nil, ""
	if len(d.Args) == 0 {
		d.Args = nil
	}
	if len(d.Forward) == 0 {
		d.Forward = nil
	}
	if len(d.Env) == 0 {
		d.Env = nil
	}
	if len(d.Headers) == 0 {
		d.Headers = nil
	}
	return s
}

func (t *Set) newServer(id identity, def Server, first bool, before *server) *server {
	clean := newCleaner(def.Def)
	s := &server{
		set: t, id: id, def: def, first: first, before: before,
		clean: clean, notes: newNotes(clean), calls: newLimiter(maxCalls),
		stderr: &stderrLog{clean: clean}, stopped: make(chan struct{}), closeLog: func() {},
		wake: make(chan struct{}, 1), restart: make(chan struct{}, 1), jump: make(chan struct{}, 1), relist: make(chan struct{}, 1), check: make(chan struct{}, 1),
		changed: make(chan struct{}),
		status:  Status{State: Starting, Since: time.Now()},
	}
	if def.Def.Start == "lazy" && def.Known {
		s.status.State = Lazy
	}
	if t.opts.LogDir != "" {
		s.stderr.file, s.closeLog = t.logs.use(LogFile(t.opts.LogDir, def.Key))
	}
	s.gone, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// begin starts the loop of s. t.mu is held.
func (t *Set) begin(s *server) { t.wg.Go(s.run) }

func (t *Set) all() []*server {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*server, 0, len(t.order))
	for _, id := range t.order {
		out = append(out, t.servers[id])
	}
	return out
}

// find returns the server of that identity; without an instance the first of
// the key.
func (t *Set) find(key, instance string) *server {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.servers[identity{key, instance}]; s != nil || instance != "" {
		return s
	}
	for _, id := range t.order {
		if id.key == key {
			return t.servers[id]
		}
	}
	return nil
}

// Status returns how the server of that key is, of several instances the first.
// State is empty when there is none.
func (t *Set) Status(key string) Status {
	if s := t.find(key, ""); s != nil {
		return s.snapshot()
	}
	return Status{}
}

// All returns the status of every key.
func (t *Set) All() map[string]Status {
	out := map[string]Status{}
	for _, s := range t.all() {
		if _, ok := out[s.id.key]; !ok {
			out[s.id.key] = s.snapshot()
		}
	}
	return out
}

// Instances returns the status of every process of a key, by instance.
func (t *Set) Instances(key string) map[string]Status {
	out := map[string]Status{}
	for _, s := range t.all() {
		if s.id.key == key {
			out[s.id.instance] = s.snapshot()
		}
	}
	return out
}

// Tool returns the definition that a process of a server listed last, or nil.
func (t *Set) Tool(key, instance, name string) *tool.Tool {
	s := t.find(key, instance)
	if s == nil {
		return nil
	}
	return s.tool(name)
}

// Restart connects all instances of a key anew, whatever failed before, and
// returns when the outcome of each attempt is there or ctx has ended. It is what a
// person asks for, and what new credentials call for.
func (t *Set) Restart(ctx context.Context, key string) {
	before := map[*server]int{}
	for _, s := range t.all() {
		if s.id.key == key {
			s.mu.Lock()
			before[s] = s.attempts
			s.mu.Unlock()
			wish(s.restart)
		}
	}
	for s, attempts := range before {
		s.settled(ctx, attempts)
	}
}

// settled waits until an attempt after that many has come to an end, whatever it
// was, or s is to stop.
func (s *server) settled(ctx context.Context, attempts int) {
	for {
		s.mu.Lock()
		done, changed := s.attempts > attempts && s.status.State != Starting, s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-s.gone.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Wake starts a lazy server in the background, and ends a backoff now. A parked
// server stays parked.
func (t *Set) Wake(key string) {
	if s := t.find(key, ""); s != nil {
		wish(s.wake)
	}
}

// slot waits until another process may be started. What is dialled takes no CPU
// of this machine, so it needs none. The returned function may be called often.
func (t *Set) slot(ctx context.Context, def Server) (release func(), err error) {
	if !isStdio(def.Def) {
		return func() {}, nil
	}
	select {
	case t.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-t.slots }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
