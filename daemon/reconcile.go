package daemon

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// approvalCheck is how often the files that approved project servers run are
// compared with what was approved. A changed script must stop its server soon,
// and a stat costs microseconds.
const approvalCheck = time.Second

// reconcileSoon wakes the reconcile goroutine. Any number of calls make one
// round: it compares everything, so nothing is lost.
func (d *Daemon) reconcileSoon() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// reconcileNow returns after a round that began after the call, or with ctx. There
// is such a round in any case.
func (d *Daemon) reconcileNow(ctx context.Context) {
	done := make(chan struct{})
	select {
	case d.demand <- done:
	case <-ctx.Done():
		d.reconcileSoon()
		return
	case <-d.ended:
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-d.ended:
	}
}

// reconcileLoop is the one goroutine that makes worlds.
func (d *Daemon) reconcileLoop(ctx context.Context) {
	tick := time.NewTicker(approvalCheck)
	defer tick.Stop()
	d.reconcile() // the first one, before Run served, gave upstream nothing
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case done := <-d.demand:
			d.reconcile()
			close(done)
			continue
		case <-tick.C:
			err := d.trust.Sync()
			if err != nil && !failing { // a full disk stays so for hours
				d.log.Warn("keeping decisions about servers", "cause", err)
			}
			failing = err != nil
			if moved, expired := d.approvalsMoved(), d.instancesExpired(); !moved && !expired {
				continue
			}
		}
		d.reconcile()
	}
}

// reconcile makes a world of the latest config files and approvals, and tells
// everyone who depends on it.
func (d *Daemon) reconcile() {
	snapshot := d.watcher.Latest()
	effective := d.settingsOf(snapshot)
	servers := make([]*server, 0, len(snapshot.Servers))
	for _, s := range snapshot.Servers {
		if d.isSelf(s.Server) {
			continue
		}
		servers = append(servers, d.judge(s, effective))
	}
	w := newWorld(servers)
	w.settings = effective
	w.of, w.complete = snapshot, snapshot.Complete
	w.problems = slices.Clone(snapshot.Problems)
	before := d.world.Load()
	for _, s := range servers {
		s.since = time.Now()
		if old := before.byKey[s.Key]; old != nil && old.gate == s.gate && (old.fingerprint == s.fingerprint || s.gate != pending) {
			s.since = old.since
		}
	}
	d.world.Store(w)
	if !maps.EqualFunc(before.settings.Categories, w.settings.Categories, sameCategory) ||
		!slices.EqualFunc(before.settings.Synonyms, w.settings.Synonyms, slices.Equal) {
		d.index.Configure(indexConfig(w.settings))
	}
	if w.complete {
		if err := d.index.Retain(func(key string) bool { return w.byKey[key] != nil }); err != nil {
			d.log.Warn("dropping the tools of removed servers", "cause", err)
		}
		d.listed.Range(func(key, _ any) bool {
			if w.byKey[key.(string)] == nil {
				d.listed.Delete(key)
			}
			return true
		})
	}
	d.rename(w)
	if d.environ.applied.Load() { // before that nobody knows what to start
		d.upstream.Reconcile(d.wanted(w))
		select {
		case <-d.handed:
		default:
			close(d.handed)
		}
	}
	d.wakeSessions()
}

// settingsOf are the settings of a snapshot. Where a file of them is there and
// cannot be read, those of trust are the last known ones: nothing is allowed
// because nobody knows what was forbidden.
func (d *Daemon) settingsOf(snapshot *watcher.Snapshot) settings.Settings {
	s := snapshot.Settings
	switch {
	case !snapshot.Complete: // it has no servers, and no settings yet
	case snapshot.SettingsUnread:
		if d.trust.Rules().Ask {
			s.Trust.UserScope = "ask"
		}
		if d.trust.Rules().Hold {
			s.Trust.Tools = "hold"
		}
	default:
		if err := d.trust.SetRules(trust.Rules{Ask: s.Trust.UserScope == "ask", Hold: s.Trust.Tools == "hold"}); err != nil {
			d.log.Warn("remembering the settings of trust", "cause", err)
		}
	}
	return s
}

// isSelf reports whether an entry runs this very program as an agent would,
// whatever the program is called there: a daemon that mounts itself would show
// every tool twice. The watcher skips those that are called toolsd.
func (d *Daemon) isSelf(s clientconfig.Server) bool {
	// A project's paths are not touched before they are approved.
	if s.Source.Scope != clientconfig.User || len(s.Args) == 0 || s.Args[0] != "mcp" || !filepath.IsAbs(s.Command) {
		return false
	}
	theirs, err1 := os.Stat(s.Command)
	ours, err2 := os.Stat(d.o.Executable)
	return err1 == nil && err2 == nil && os.SameFile(theirs, ours)
}

func sameCategory(a, b settings.Category) bool {
	return a.Description == b.Description && slices.Equal(a.Tools, b.Tools)
}

func indexConfig(s settings.Settings) index.Config {
	c := index.Config{Synonyms: s.Synonyms}
	for _, name := range slices.Sorted(maps.Keys(s.Categories)) {
		category := s.Categories[name]
		shown := tool.CleanLine(name)
		if _, taken := s.Categories[shown]; shown == "" || shown != name && taken {
			continue // it would pass for another one
		}
		description, _ := tool.Clean(category.Description)
		c.Categories = append(c.Categories, index.CategoryConfig{Name: shown, Description: description, Tools: category.Tools})
	}
	return c
}

// judge decides whether a server may run.
func (d *Daemon) judge(w watcher.Server, s settings.Settings) *server {
	out := &server{Server: w, share: w.Share, redactor: trust.NewRedactor(w.Secrets)}
	if out.share == "" {
		out.share = defaultShare(w.Server)
	}
	subject := trust.Subject(w.Key)
	asks := w.Source.Scope != clientconfig.User || s.Trust.UserScope == "ask"
	if asks && d.trust.HasApproval(subject) { // else the files of a project are nobody's to read yet
		out.fingerprint, _ = d.fingerprints.get(w)
	}
	switch {
	case w.Rejected, d.trust.Barred(subject), asks && !d.trust.Approved(subject, out.fingerprint):
		out.gate = pending
	case w.Disabled:
		out.gate = disabled
	case w.Problem != "":
		out.gate = unusable
	}
	if s.Trust.Tools == "hold" {
		out.held = func(t *tool.Tool) bool { return d.trust.Held(subject, t) }
	}
	return out
}

// approvalsMoved reports whether a file that an approved project server runs is
// not the approved one any more, or is again.
func (d *Daemon) approvalsMoved() bool {
	for _, s := range d.world.Load().servers {
		// The user's own files may run what they name, and what was never approved
		// waits whatever it is.
		if s.Source.Scope == clientconfig.User || !d.trust.HasApproval(trust.Subject(s.Key)) {
			continue
		}
		if now, _ := d.fingerprints.get(s.Server); now != s.fingerprint {
			return true
		}
	}
	return false
}

// mayStart looks once more at what a project server would run: a file may have
// changed since the world was made.
func (d *Daemon) mayStart(key string) error {
	s := d.world.Load().byKey[key]
	if s == nil || s.gate != open {
		return errors.New("it is not allowed to run any more")
	}
	if s.Source.Scope == clientconfig.User {
		return nil
	}
	if now, _ := trust.FingerprintOf(s.Written, s.Server.Server, s.Source.Root); now != s.fingerprint {
		d.reconcileSoon()
		return errors.New("what it runs has changed since it was approved")
	}
	return nil
}

// rename gives the tools of a server whose name changed their new ids.
func (d *Daemon) rename(w *world) {
	snapshot := d.index.Snapshot()
	for _, key := range snapshot.Keys() {
		listing, ok := snapshot.Listing(key)
		s := w.byKey[key]
		if !ok || s == nil || listing.Server == s.Name {
			continue
		}
		renamed := make([]*tool.Tool, len(listing.Tools)) // the others are the snapshot's, which somebody reads
		for i, t := range listing.Tools {
			renamed[i] = t.On(s.Name)
		}
		listing.Server, listing.Tools = s.Name, renamed
		if err := d.index.Replace(listing); err != nil {
			d.log.Warn("keeping the tools of a renamed server", "server", s.Name, "cause", err)
		}
	}
}

// instance is a process of a server beside the shared one.
type instance struct {
	key  string
	name string // the session's id, or the project's root
	dir  string // where it runs; empty: as the shared one
}

// instanceIdle is how long a project's own process of a server stays without a
// call. A session's stays as long as the session.
const instanceIdle = 30 * time.Minute

func (d *Daemon) instancesExpired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	expired := false
	for i, used := range d.instances {
		_, session := d.sessions[i.name]
		if !session && time.Since(used) > instanceIdle {
			delete(d.instances, i)
			expired = true
		}
	}
	return expired
}

// wanted is the complete set of servers that shall be connected.
func (d *Daemon) wanted(w *world) []upstream.Server {
	snapshot := d.index.Snapshot()
	var out []upstream.Server
	for _, s := range w.servers {
		if s.gate != open {
			continue
		}
		_, known := snapshot.Listing(s.Key)
		def := s.Server.Server
		if s.share != "shared" {
			def.Start = "lazy" // the shared process only teaches the tools
		}
		out = append(out, upstream.Server{Key: s.Key, Name: s.Name, Def: def, Dir: s.Dir, Known: known})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.instances {
		s := w.byKey[i.key]
		if s == nil || s.gate != open {
			continue
		}
		dir := cmp.Or(i.dir, s.Dir)
		out = append(out, upstream.Server{Key: s.Key, Name: s.Name, Instance: i.name, Def: s.Server.Server, Dir: dir, Known: true})
	}
	return out
}

// instanceOf is the process that a call must go to. Its name is empty where that is
// the shared one.
func instanceOf(s *server, session *attached, v view) instance {
	i := instance{key: s.Key}
	switch {
	case s.share == "session" && session != nil:
		i.name = session.id
	case s.share == "project" && v.cwd != "":
		i.name = projectRoot(v.cwd)
	default:
		return i
	}
	if s.Written.Dir == "" { // an entry that names its own directory keeps it
		i.dir = projectRoot(v.cwd)
	}
	return i
}

// want makes an instance wanted when it is new, and returns its name.
func (d *Daemon) want(ctx context.Context, i instance) string {
	if i.name == "" {
		return ""
	}
	d.mu.Lock()
	_, there := d.instances[i]
	d.instances[i] = time.Now()
	d.mu.Unlock()
	if !there {
		d.reconcileNow(ctx)
	}
	return i.name
}

// projectRoot is the directory that a person would call the project of cwd: the
// nearest one above it that is a repository, else cwd itself.
func projectRoot(cwd string) string {
	for dir := cwd; dir != ""; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return cwd
}

// stateful names what programs keep per caller: the page that a browser shows,
// the variables of an interpreter. Two agents in one such process would disturb
// each other, so each session gets its own unless the entry says otherwise.
var stateful = []string{
	"@playwright/mcp", "playwright-mcp", "mcp-server-playwright", "@executeautomation/playwright-mcp-server",
	"chrome-devtools-mcp", "server-puppeteer", "puppeteer-mcp", "browsermcp", "browser-use", "mcp-server-browserbase",
	"selenium-mcp", "mcp-selenium", "mcp-python-interpreter", "mcp-run-python", "jupyter-mcp-server", "mcp-repl",
}

func defaultShare(s clientconfig.Server) string {
	if s.Transport == clientconfig.Stdio {
		for _, word := range append([]string{s.Command}, s.Args...) {
			for _, name := range stateful {
				if isProgram(word, name) {
					return "session"
				}
			}
		}
	}
	return "shared"
}

// isProgram reports whether a word of a command line names a program or package,
// with or without a path before and a version behind it.
func isProgram(word, name string) bool {
	i := strings.Index(word, name)
	if i < 0 || i > 0 && word[i-1] != '/' && word[i-1] != '\\' {
		return false
	}
	rest := word[i+len(name):]
	return rest == "" || rest[0] == '@' || rest[0] == '=' || rest[0] == '/' || strings.HasPrefix(rest, ".")
}
