// Package watcher turns the config files of all clients into complete Snapshots of
// the servers that they define, and publishes a new one whenever an edit means
// something else.
//
// An event of the file system is only a hint: it wakes a comparison of the files
// with what was read before, so a doubled or needless one costs nothing but time,
// and a poll of everything finds what no event told. A file that cannot be read keeps its
// last good servers; a missing or empty one keeps them for 10 s. One file that
// hangs, for instance on a dead network mount, delays no other.
//
// Files of a project are untrusted: they are read inside of the project only.
// Client files are never written. A Watcher is safe for concurrent use.
package watcher

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// Options are what a Watcher needs to know. Env, ConfigFile and ManagedFile have
// no defaults.
type Options struct {
	Env         clientconfig.Env
	ConfigFile  string // toolsd's own, which need not exist
	ManagedFile string // a team's, which need not exist
	Log         *slog.Logger

	// Environ looks up a variable that an entry uses; nil: Env.Getenv. It must not
	// block. After its answers changed, call Refresh.
	Environ func(name string) (string, bool)
	// Projects are roots that are known from earlier, as in Snapshot.Projects.
	Projects []string
	// OnChange is called after a new snapshot was published, on the watcher's own
	// goroutine: it must not block.
	OnChange func()

	// Poll is the time between two comparisons without a hint; default 30 s, the
	// promise for file systems without events.
	Poll time.Duration
	// Debounce is how long a change must be over before the files are read; default
	// 300 ms: an editor's save is several events within 10 to 100 ms, Claude Code's
	// up to 300, and an edit must be live within 1 s.
	Debounce time.Duration
	// MaxWait is when they are read although changes go on; default 600 ms, which
	// leaves 400 of that second for reading and publishing.
	MaxWait time.Duration

	// For tests: blind leaves out the events of the file system, as on one that has
	// none; look stands for lookAt, as on one that does not answer; most for maxProjects.
	blind bool
	look  func(question) look
	most  int
}

const (
	// fastPoll replaces Poll while some directory cannot be watched.
	fastPoll = 2 * time.Second
	// breath is how long events are left to gather in the system after some were
	// taken: in a busy home directory, waking up for each costs more than all else.
	// Taking them ends after a pause, or when it has gone on for a while.
	breath     = 50 * time.Millisecond
	drainPause = time.Millisecond
	drainLimit = 10 * time.Millisecond
	// patience is how long one comparison waits for a file. Local files take
	// milliseconds; a slower one is taken in when it arrives.
	patience = time.Second
	// maxProjects bounds the files that are looked at: some 30 places for each, at
	// 10 µs, in each poll. The least recently asked for go first, and those that are
	// kept do not count.
	maxProjects = 256
)

// Watcher watches the config files; Run does the work.
type Watcher struct {
	o      Options
	log    *slog.Logger
	latest atomic.Pointer[Snapshot]
	wake   chan struct{} // look at once

	// The environment changed: expand anew. expanded is what asked was when the
	// latest snapshot was made.
	asked, expanded atomic.Uint64

	mu       sync.Mutex
	projects map[string]time.Time // by root: when it was last asked for
	kept     map[string]int       // by root: how many keep it
	turn     chan struct{}        // closed and replaced after each comparison
}

// New returns a Watcher that has not read anything yet.
func New(o Options) *Watcher {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Poll <= 0 {
		o.Poll = 30 * time.Second
	}
	if o.Debounce <= 0 {
		o.Debounce = 300 * time.Millisecond
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 600 * time.Millisecond
	}
	if o.most <= 0 {
		o.most = maxProjects
	}
	if o.look == nil {
		o.look = lookAt
	}
	if o.Environ == nil {
		o.Environ = func(name string) (string, bool) {
			if o.Env.Getenv == nil {
				return "", false
			}
			v := o.Env.Getenv(name)
			return v, v != ""
		}
	}
	w := &Watcher{o: o, log: o.Log, wake: make(chan struct{}, 1), projects: map[string]time.Time{}, kept: map[string]int{}, turn: make(chan struct{})}
	for _, root := range o.Projects {
		for _, p := range projectsOf(root, o.Env.Home) {
			w.projects[p] = time.Now()
		}
	}
	w.latest.Store(&Snapshot{Settings: settings.Default()})
	return w
}

// Latest returns the snapshot that holds now; never nil.
func (w *Watcher) Latest() *Snapshot { return w.latest.Load() }

// See makes the projects that a caller in cwd is in part of the snapshots and
// returns at once, saying whether they are part of the latest one.
func (w *Watcher) See(cwd string) bool {
	roots := projectsOf(cwd, w.o.Env.Home)
	w.mu.Lock()
	isNew := false
	for _, root := range roots {
		_, known := w.projects[root]
		isNew = isNew || !known
		w.projects[root] = time.Now()
	}
	for len(w.projects)-len(w.kept) > max(w.o.most, len(roots)) {
		oldest := ""
		for root, at := range w.projects {
			if w.kept[root] == 0 && (oldest == "" || at.Before(w.projects[oldest])) {
				oldest = root
			}
		}
		delete(w.projects, oldest)
	}
	w.mu.Unlock()
	if isNew {
		poke(w.wake)
	}
	return w.latest.Load().covers(roots)
}

// Keep makes the projects that a caller in cwd is in part of the snapshots until
// release is called, however many others are asked about meanwhile.
func (w *Watcher) Keep(cwd string) (release func()) {
	roots := projectsOf(cwd, w.o.Env.Home)
	w.mu.Lock()
	for _, root := range roots {
		if _, known := w.projects[root]; !known {
			w.projects[root] = time.Now()
			poke(w.wake)
		}
		w.kept[root]++
	}
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, root := range roots {
			if w.kept[root]--; w.kept[root] == 0 {
				delete(w.kept, root)
				w.projects[root] = time.Now()
			}
		}
	})
}

// Covers reports whether what a caller in cwd sees is part of s, a snapshot that
// Latest returned at some time.
func (w *Watcher) Covers(s *Snapshot, cwd string) bool {
	return s.covers(projectsOf(cwd, w.o.Env.Home))
}

func (s *Snapshot) covers(roots []string) bool {
	return s.Complete && !slices.ContainsFunc(roots, func(root string) bool {
		_, ok := slices.BinarySearch(s.Projects, root)
		return !ok
	})
}

// Wait returns once what a caller in cwd sees is part of the latest snapshot. Its
// only error is that of ctx.
func (w *Watcher) Wait(ctx context.Context, cwd string) error {
	for {
		w.mu.Lock()
		turn := w.turn
		w.mu.Unlock()
		if w.See(cwd) {
			return nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Ready returns once all files of user scope were read for the first time. Its
// only error is that of ctx.
func (w *Watcher) Ready(ctx context.Context) error { return w.Wait(ctx, "") }

// Refresh expands all entries anew, since variables may have other values now,
// and returns once the latest snapshot says so. Its only error is that of ctx.
func (w *Watcher) Refresh(ctx context.Context) error {
	mine := w.asked.Add(1)
	poke(w.wake)
	for {
		w.mu.Lock()
		turn := w.turn
		w.mu.Unlock()
		if w.expanded.Load() >= mine {
			return nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Run reads and watches until ctx ends. It is called once.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := newLoop(w, ctx.Done())
	defer l.finish()
	defer cancel()
	var events, listen chan fsnotify.Event // listen is nil while resting
	var errs chan error
	var added chan struct{}
	hear := func() {
		n, err := newNotifier()
		if err != nil {
			l.deaf = limitProblem(err)
			return
		}
		events, listen, errs, added = n.fs.Events, n.fs.Events, n.fs.Errors, n.added
		l.notifier, l.deaf, l.linked = n, nil, true
		l.jobs.Go(func() { n.run(ctx) })
	}
	if !w.o.blind {
		hear()
	}
	l.scan(retrace)
	timer, rest := time.NewTimer(0), time.NewTimer(0)
	defer timer.Stop()
	defer rest.Stop()
	for {
		timer.Reset(time.Until(l.next()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
			l.scan(unknown)
		case <-added:
			l.lost = true
			l.hint(nil)
		case e := <-listen:
			l.event(e)
			l.drain(events)
			listen = nil
			rest.Reset(breath)
		case <-rest.C:
			listen = events
		case err := <-errs:
			w.log.Warn("events of the file system were lost", "cause", err)
			l.lost = true
			l.hint(l.files)
		case results := <-l.late:
			l.take(results)
			l.scan(unknown)
		case <-timer.C:
			if l.deaf != nil { // there may be room by now
				hear()
			}
			l.tick()
		}
	}
}
