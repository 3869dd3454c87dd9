package watcher

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// loop is the state of Run; only its goroutine touches it.
type loop struct {
	*Watcher
	done     <-chan struct{}
	notifier *notifier             // nil: no events
	deaf     *clientconfig.Problem // why there are none

	byPlace  map[clientconfig.Location]*file
	files    []*file // in order of precedence
	roots    []string
	interest *interest
	linked   bool // the links of some file changed: interest is out of date
	late     chan []found

	settings settings.Settings
	values   []settings.Value
	about    []clientconfig.Problem // the settings
	wanted   map[string]*file       // files whose text an entry uses, by path
	changed  bool                   // some file says something else than at the last publication
	lost     bool                   // events were: the next look must follow every path
	stale    bool                   // the list of files is out of date
	reload   bool                   // the settings are

	lastTrouble clientconfig.Problem
	jobs        sync.WaitGroup

	firstHint, lastHint time.Time // of changes that were not looked at yet; zero: none
	notBefore           time.Time // of the next look, after one that was expensive
	nextPoll            time.Time
	expiry              time.Time // when the grace of some file is over; zero: none is missing
}

// found is a look at a file, on its way to the loop.
type found struct {
	f *file
	look
}

func newLoop(w *Watcher, done <-chan struct{}) *loop {
	l := &loop{Watcher: w, done: done, byPlace: map[clientconfig.Location]*file{}, late: make(chan []found),
		wanted: map[string]*file{}, interest: newInterest(nil, false), changed: true, reload: true}
	l.load()
	return l
}

// event takes in what the system told. Nearly all of it is about other files.
func (l *loop) event(e fsnotify.Event) {
	if files := l.interest.of(e.Name); len(files) > 0 {
		l.hint(files)
	}
}

// drain takes what else the system has to tell now.
func (l *loop) drain(events <-chan fsnotify.Event) {
	end := time.Now().Add(drainLimit)
	pause := time.NewTimer(drainPause)
	defer pause.Stop()
	for n := 1; ; n++ {
		select {
		case e := <-events:
			l.event(e)
			if n%64 == 0 { // asking for the time costs as much as an event
				if time.Now().After(end) {
					return
				}
				pause.Reset(drainPause)
			}
		case <-pause.C:
			return
		}
	}
}

// hint notes that files may have changed; their time stamps need not show it.
func (l *loop) hint(files []*file) {
	for _, f := range files {
		f.force = true
	}
	l.lastHint = time.Now()
	if l.firstHint.IsZero() {
		l.firstHint = l.lastHint
	}
}

// next is when there is something to do, should nothing happen before.
func (l *loop) next() time.Time {
	next := l.nextPoll
	if !l.firstHint.IsZero() {
		look := l.lastHint.Add(l.o.Debounce)
		if limit := l.firstHint.Add(l.o.MaxWait); look.After(limit) {
			look = limit
		}
		if look.Before(l.notBefore) {
			look = l.notBefore
		}
		if look.Before(next) {
			next = look
		}
	}
	if !l.expiry.IsZero() && l.expiry.Before(next) {
		next = l.expiry
	}
	return next
}

// expire notes when the grace of a missing file will be over.
func (l *loop) expire() {
	l.expiry = time.Time{}
	for _, f := range l.files {
		if at, ok := f.deadline(); ok && !f.busy && (l.expiry.IsZero() || at.Before(l.expiry)) {
			l.expiry = at
		}
	}
}

// tick does what next foretold.
func (l *loop) tick() {
	switch now := time.Now(); {
	case now.Before(l.next()):
	case l.lost || !now.Before(l.nextPoll):
		l.scan(retrace)
	default:
		l.scan(compare)
	}
}

// depth is how much a scan looks at.
type depth int

const (
	unknown depth = iota // only files that were never looked at
	compare              // all files of the user, and those of projects that events concern
	retrace              // all files, and anew where their paths lead
)

// skips reports whether a scan leaves a file out. Files of projects are many, and
// nearly all of them do not exist; only the poll and lost events lead to them all.
func (how depth) skips(f *file) bool {
	switch {
	case !f.known || how == retrace:
		return false
	case how == unknown:
		return true
	}
	_, expires := f.deadline()
	return f.loc.Scope == clientconfig.Project && !f.force && !expires
}

// scan compares everything with what was read before and publishes what differs.
func (l *loop) scan(how depth) {
	begin := time.Now()
	if how >= compare {
		l.firstHint, l.lastHint = time.Time{}, time.Time{}
	}
	if how == retrace {
		l.lost = false
	}
	looked := map[*file]bool{}
	// A file can name other files: config.json in files, a pattern by matching, an
	// entry in envFile. None of these can name further ones but config.json.
	for {
		l.arrange()
		if !l.look(looked, how) {
			break
		}
		l.load()
		if l.changed {
			l.build()
		}
	}
	l.forget(begin)
	l.watch(how)
	l.publish()
	l.expire()
	poll := l.o.Poll
	if l.trouble() != (clientconfig.Problem{}) {
		poll = min(poll, fastPoll)
	}
	now := time.Now()
	if how == retrace || l.nextPoll.After(now.Add(poll)) {
		l.nextPoll = now.Add(poll)
	}
	// A file of 30 MB that is rewritten all the time must not cost a core: looks
	// take at most a third of the time, as long as an edit is live within 1 s.
	l.notBefore = now.Add(min(2*now.Sub(begin), 400*time.Millisecond))
}

// look looks at all files that were not looked at in this scan and waits for them,
// but not for those that hang. It reports whether there were any.
func (l *loop) look(looked map[*file]bool, how depth) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	// Each of the user's files has a goroutine, and each project has one: its files
	// are many, and on one file system.
	batches := map[string][]*file{}
	pending := map[*file]bool{}
	for _, f := range l.files {
		if looked[f] {
			continue
		}
		looked[f] = true
		if f.busy || how.skips(f) {
			continue
		}
		f.busy = true
		pending[f] = true
		batch := f.loc.Root
		if batch == "" || f.kind == values {
			batch = "\x00" + f.loc.Client + "\x00" + f.loc.Path
		}
		batches[batch] = append(batches[batch], f)
	}
	if len(pending) == 0 {
		return false
	}
	results := make(chan []found)
	given := make(chan struct{}) // closed when this scan waits no longer
	defer close(given)
	for _, batch := range batches {
		l.start(batch, how, results, given)
	}
	for len(pending) > 0 {
		select {
		case batch := <-results:
			for _, r := range batch {
				delete(pending, r.f)
			}
			l.take(batch)
		case batch := <-l.late:
			l.take(batch)
		case <-timeout.C:
			for f := range pending {
				f.slow = true
				l.changed = true
				l.log.Warn("reading a config file takes too long", "file", f.loc.Path)
			}
			return true
		case <-l.done:
			return false
		}
	}
	return true
}

// start looks at files one after the other. A look that hangs in the system
// cannot be ended; its goroutine stays until the system answers, and is one for a
// file at most, since a busy file is not looked at again.
func (l *loop) start(batch []*file, how depth, results chan<- []found, given <-chan struct{}) {
	questions := make([]question, len(batch))
	for i, f := range batch {
		anchor := f.loc.Root
		if anchor == "" {
			anchor = resolve(l.o.Env.Home)
		}
		questions[i] = question{f.loc, f.kind, f.seen, anchor, f.force, how == retrace}
		f.force = false
	}
	done, late, look := l.done, l.late, l.o.look
	l.jobs.Go(func() {
		answers := make([]found, len(batch))
		for i, q := range questions {
			answers[i] = found{batch[i], look(q)}
		}
		select {
		case results <- answers:
			return
		case <-given:
		case <-done:
			return
		}
		select {
		case late <- answers:
		case <-done:
		}
	})
}

// finish waits for the goroutines that look at files and watch directories, but
// not for one that the system holds.
func (l *loop) finish() {
	ended := make(chan struct{})
	go func() { l.jobs.Wait(); close(ended) }()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	}
}

func (l *loop) take(batch []found) {
	for _, r := range batch {
		if !slices.Equal(r.f.links, r.links) {
			l.linked = true
		}
		if r.f.apply(r.look, time.Now()) {
			l.changed, l.stale = true, true
			l.reload = l.reload || r.f.kind == own
		}
	}
}

// load makes the settings of what config.json and the managed file say.
func (l *loop) load() {
	if !l.reload {
		return
	}
	l.reload, l.stale = false, true
	user, managed := settings.File{Path: l.o.ConfigFile}, settings.File{Path: l.o.ManagedFile}
	for _, f := range l.files {
		if f.kind == own && f.loc.Managed {
			managed.Data = f.text
		} else if f.kind == own {
			user.Data = f.text
		}
	}
	l.settings, l.values, l.about = settings.Load(managed, user, l.o.Env.Getenv)
}

// watch tells the notifier which directories matter now.
func (l *loop) watch(how depth) {
	if !l.linked {
		if l.notifier != nil && how >= compare {
			poke(l.notifier.wake) // a watch may have ended with its directory
		}
		return
	}
	l.linked = false
	l.interest = newInterest(l.files, l.o.Env.GOOS == "darwin" || l.o.Env.GOOS == "windows")
	if l.notifier == nil {
		return
	}
	dirs := map[string]bool{}
	for _, f := range l.files {
		for _, k := range f.links {
			dirs[k.dir] = true
		}
	}
	l.notifier.watch(slices.Sorted(maps.Keys(dirs)))
}

// publish makes a snapshot of what the files say and publishes it when it means
// something else than the latest. One that differs only in places is put in its
// stead without telling anyone.
func (l *loop) publish() {
	asked := l.asked.Load()
	fresh := asked != l.expanded.Load()
	defer func() {
		l.expanded.Store(asked)
		l.mu.Lock()
		close(l.turn)
		l.turn = make(chan struct{})
		l.mu.Unlock()
	}()
	before := l.latest.Load()
	if !l.changed && !fresh && l.trouble() == l.lastTrouble && slices.Equal(before.Projects, l.roots) {
		return
	}
	l.changed, l.lastTrouble = false, l.trouble()
	s := l.build()
	same := s.sameMeaning(before)
	l.latest.Store(s)
	if same {
		return
	}
	l.log.Info("config files say something new", "servers", len(s.Servers), "problems", len(s.Problems), "projects", len(s.Projects))
	if l.o.OnChange != nil {
		l.o.OnChange()
	}
}

// trouble says why edits are found by polling only; empty when they are not.
func (l *loop) trouble() clientconfig.Problem {
	if l.deaf != nil {
		return *l.deaf
	}
	if l.notifier != nil {
		if p := l.notifier.problem(); p != nil {
			return *p
		}
	}
	return clientconfig.Problem{}
}
