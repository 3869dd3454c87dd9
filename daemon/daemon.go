package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsd/toolsd/daemon/calllog"
	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// KeeperVerb and CheckVerb are the hidden verbs with which the daemon runs its
// own program again: as the parent of all servers, and to examine an index file.
const (
	KeeperVerb = "keeper"
	CheckVerb  = "check-index"
)

// Options are what a daemon needs from the program around it.
type Options struct {
	Dirs       platform.Dirs
	Log        *slog.Logger
	Executable string              // this program, for the keeper and the index check
	Getenv     func(string) string // the environment it was started with
	Environ    func() []string
	// FixedNames are the names of the shim's own tools: no tool of a server is
	// exposed under them. FixedTokens is their weight.
	FixedNames  []string
	FixedTokens int
}

// Daemon is the process behind every toolsd command. It implements ipc.Backend.
type Daemon struct {
	o       Options
	log     *slog.Logger
	started time.Time

	index    *index.Index
	noCache  string // why the index has no file
	names    *tool.Names
	trust    *trust.Store
	calls    *calllog.Log
	watcher  *watcher.Watcher
	upstream *upstream.Set
	keeper   *platform.Keeper

	world  atomic.Pointer[world]
	wake   chan struct{}      // reconcile again
	demand chan chan struct{} // reconcile again and say when it is done
	handed chan struct{}      // closed when upstream has the servers for the first time
	ended  chan struct{}      // closed when the daemon is about to end
	finish context.CancelCauseFunc

	environ      environ
	fingerprints fingerprints

	// settle gives memory back to the system once no list has come for a while:
	// taking lists over needs several times what keeping them does.
	settle *time.Timer

	// listed holds the keys of the servers that listed their tools since start.
	listed sync.Map

	saving sync.Mutex // orders the writes of names.json, and is held over one
	saved  int        // how many names it has

	mu        sync.Mutex
	sessions  map[string]*attached
	instances map[instance]time.Time // processes beside the shared one, and their last use
}

var _ ipc.Backend = (*Daemon)(nil)

// New makes a daemon. Nothing is read, started or locked before Run.
func New(o Options) *Daemon {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{
		o: o, log: o.Log, started: time.Now(),
		wake: make(chan struct{}, 1), demand: make(chan chan struct{}), handed: make(chan struct{}), ended: make(chan struct{}),
		sessions: map[string]*attached{}, instances: map[instance]time.Time{},
	}
	d.environ.ready = make(chan struct{})
	d.fingerprints.of, d.fingerprints.late = trust.FingerprintOf, map[string]bool{}
	d.world.Store(newWorld(nil))
	return d
}

// firstRead is how long the first reading of the config files may hold up the
// first answer. It takes a few milliseconds; a file system that hangs must not
// take the daemon with it.
const firstRead = 250 * time.Millisecond

// settleAfter is longer than the pauses between the first lists of servers that
// start together.
const settleAfter = 5 * time.Second

// gcPercent trades time for memory: the daemon allocates little between lists,
// and a developer's machine has better uses for spare heap.
const gcPercent = 25

// stopTimeout bounds a graceful stop: servers get 2 s to end by themselves, 2 s
// after a signal, and the rest is for reaping.
const stopTimeout = 8 * time.Second

// Run is the life of the daemon, from the state lock to the last server's end.
// It returns platform.ErrLocked when another daemon holds the lock.
func (d *Daemon) Run(ctx context.Context) error {
	dirs := d.o.Dirs
	if err := dirs.Prepare(); err != nil {
		return err
	}
	lock, err := platform.AcquireLock(filepath.Join(dirs.State, LockName))
	if err != nil {
		return err
	}
	defer lock.Release()
	recordSocket(dirs)

	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	d.settle = time.AfterFunc(settleAfter, debug.FreeOSMemory) // after a warm start too
	defer d.settle.Stop()
	ctx, d.finish = context.WithCancelCause(ctx)
	defer d.finish(nil)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer d.finish(nil)
	if err := d.openKeeper(ctx); err != nil {
		return err
	}
	captured := make(chan struct{}) // the slowest part of a start, so it begins first
	parts.Go(func() {
		defer close(captured)
		d.captureEnviron(ctx)
	})
	if err := d.open(); err != nil {
		return err
	}
	defer d.index.Close()
	defer d.calls.Close()
	defer parts.Wait() // they use what is closed above
	defer d.finish(nil)
	parts.Go(func() {
		if err := d.watcher.Run(ctx); err != nil && ctx.Err() == nil {
			d.finish(fmt.Errorf("watching config files: %w", err))
		}
	})
	read, cancel := context.WithTimeout(ctx, firstRead)
	_ = d.watcher.Ready(read) // in time or not: what is there now is what there is
	cancel()
	d.reconcile()

	listener, err := platform.Listen(dirs.Socket)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           ipc.NewHandler(d, d.writeMetrics),
		ReadHeaderTimeout: 10 * time.Second, // a caller that says nothing holds nothing
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	serve := func(l net.Listener) {
		parts.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && platform.Bound(l) {
				d.finish(fmt.Errorf("serving %s: %w", dirs.Socket, err))
			}
		})
	}
	serve(listener)
	parts.Go(func() { d.keepPlace(ctx, lock, listener, serve) })
	d.log.Info("ready", "pid", os.Getpid(), "version", ipc.Version(), "socket", dirs.Socket, "after", time.Since(d.started).Round(time.Millisecond))

	upstreams := make(chan struct{})
	parts.Go(func() {
		defer close(upstreams)
		if err := d.upstream.Run(ctx); err != nil && ctx.Err() == nil {
			d.finish(fmt.Errorf("supervising servers: %w", err))
		}
	})
	parts.Go(func() { d.reconcileLoop(ctx) })
	parts.Go(func() {
		select {
		case <-captured:
			// ${VAR} in config files may have other values now. Servers are started
			// when the snapshot has them, so that none is started twice.
			if d.watcher.Refresh(ctx) == nil {
				d.environ.applied.Store(true)
				d.reconcileSoon()
			}
		case <-ctx.Done():
		}
	})

	<-ctx.Done()
	close(d.ended)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	d.log.Info("stopping")
	d.closeSessions()
	quick, cancelQuick := context.WithTimeout(stop, time.Second) // an answer under way is a small one
	if server.Shutdown(quick) != nil {
		server.Close()
	}
	cancelQuick()
	select {
	case <-upstreams:
	case <-stop.Done():
	}
	_ = d.keeper.Close(stop)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// keepPlace looks after the two files that make this process the daemon. A socket
// that somebody removed is bound again, since the lock is ours. A lock file that
// was removed or replaced ends the daemon: another one can be up already, and
// two must not run.
func (d *Daemon) keepPlace(ctx context.Context, lock *platform.Lock, listener net.Listener, serve func(net.Listener)) {
	tick := time.NewTicker(placeCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !lock.Held() {
			d.finish(errors.New("the lock file was removed; the next verb starts another daemon"))
			return
		}
		if platform.Bound(listener) {
			continue
		}
		fresh, err := platform.Listen(d.o.Dirs.Socket)
		if err != nil {
			d.log.Warn("binding the socket again", "cause", err)
			continue
		}
		d.log.Warn("the socket was removed and is bound again", "socket", d.o.Dirs.Socket)
		serve(fresh)
		_ = listener.Close() // nobody can reach it; its connections live on
		listener = fresh
	}
}

// placeCheck is how soon a removed socket is there again: two stats cost
// microseconds.
const placeCheck = time.Second

// open reads what is kept between runs and makes the parts. None of it waits on
// a server.
func (d *Daemon) open() error {
	dirs := d.o.Dirs
	state := func(name string) string { return filepath.Join(dirs.State, name) }
	names, err := readNames(state("names.json"))
	if err != nil {
		d.log.Warn("names.json cannot be read; exposed names are chosen anew", "cause", err)
	}
	d.names = tool.NewNames(names, d.o.FixedNames...)
	d.saved = d.names.Len()
	d.trust = trust.Open(state("trust.json"), d.log)
	d.calls = calllog.Open(state("calls.log"))
	path := filepath.Join(dirs.Cache, "index.db")
	if err := dirs.PrepareCache(); err != nil {
		d.log.Warn("the index is kept in memory only", "cause", err)
		d.noCache = fmt.Sprintf("the index is kept in memory only, so every start waits for the servers to list their tools: %v", err)
		path = ""
	}
	d.index = index.Open(index.Options{
		Path:   path,
		Check:  d.checkIndex,
		Expose: d.names.Of,
		Log:    d.log,
	})
	home, _ := os.UserHomeDir()
	d.watcher = watcher.New(watcher.Options{
		Env:         clientconfig.Env{GOOS: runtime.GOOS, Home: home, Getenv: d.o.Getenv},
		ConfigFile:  dirs.ConfigFile,
		ManagedFile: dirs.ManagedConfig,
		Log:         d.log,
		Environ:     d.lookupEnv,
		Projects:    d.trust.Projects(),
		OnChange:    d.reconcileSoon,
	})
	d.upstream = upstream.New(upstream.Options{
		Log:       d.log,
		LogDir:    d.serversDir(),
		Version:   ipc.Version(),
		Environ:   d.waitEnviron,
		Refresh:   d.refreshEnviron,
		Starter:   d.keeper,
		MayStart:  d.mayStart,
		OnListing: d.onListing,
		OnStatus:  func() {},
	})
	return nil
}

// openKeeper ends what an earlier daemon left and prepares to start processes.
func (d *Daemon) openKeeper(ctx context.Context) (err error) {
	dirs := d.o.Dirs
	journal := filepath.Join(dirs.State, "journal")
	if killed, err := platform.Sweep(journal, d.log); err != nil {
		d.log.Warn("looking for processes of an earlier daemon", "cause", err)
	} else if killed > 0 {
		d.log.Warn("ended processes that an earlier daemon left", "count", killed)
	}
	d.keeper, err = platform.NewKeeper(platform.KeeperOptions{
		Executable: d.o.Executable, Args: []string{KeeperVerb}, Journal: journal, Instance: dirs.State, Log: d.log,
	})
	if err != nil {
		return fmt.Errorf("preparing to start servers: %w", err)
	}
	return nil
}

// checkIndex examines an index file in a process of its own.
func (d *Daemon) checkIndex(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, d.o.Executable, CheckVerb, path)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.200s", err, out)
	}
	return nil
}

// serversDir holds the logs of the servers, and the ids of containers that run
// for them.
func (d *Daemon) serversDir() string { return filepath.Join(d.o.Dirs.State, "servers") }

func readNames(path string) (map[string]string, error) {
	data, err := platform.ReadState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names map[string]string
	if err == nil {
		err = json.Unmarshal(data, &names)
	}
	return names, err
}

// saveNames keeps new exposed names. They are small, and a name that was shown
// must survive, so this happens before a listing can be searched. What could not be
// written is tried again with the next list, whosever it is.
func (d *Daemon) saveNames() {
	d.saving.Lock()
	defer d.saving.Unlock()
	if d.names.Len() == d.saved {
		return
	}
	names := d.names.Export()
	if err := platform.WriteFileAtomic(filepath.Join(d.o.Dirs.State, "names.json"), ipc.Encode(names), 0o600); err != nil {
		d.log.Warn("keeping exposed names", "cause", err)
		return
	}
	d.saved = len(names)
}

// onListing takes over a server's complete list of tools.
func (d *Daemon) onListing(key string, l upstream.Listing) []*tool.Tool {
	s := d.world.Load().byKey[key]
	if s == nil {
		return nil // removed while it was listing
	}
	for _, t := range l.Tools {
		d.names.Of(t.ID)
	}
	d.saveNames()
	d.trust.NoteTools(trust.Subject(key), l.Tools)
	before, _ := d.index.Snapshot().Listing(key)
	err := d.index.Replace(index.Listing{
		Key: key, Server: s.Name, Instructions: l.Instructions, Tools: l.Tools, Listed: time.Now(), Was: d.lastSeen(key, before, l.Tools),
	})
	if err != nil {
		d.log.Warn("keeping the tools of a server", "server", s.Name, "cause", err)
	}
	d.listed.Store(key, true)
	if now := d.world.Load().byKey[key]; now == nil || now.Name != s.Name {
		d.reconcileSoon() // the round that removed or renamed it may have come before this list
	}
	d.log.Info("listed", "server", s.Name, "tools", len(l.Tools), "dropped", len(l.Problems))
	d.wakeSessions()
	d.settle.Reset(settleAfter)
	if err != nil {
		return nil
	}
	kept, _ := d.index.Snapshot().Listing(key)
	return kept.Tools
}

// Stop ends the daemon after the answer is out.
func (d *Daemon) Stop(context.Context) (*ipc.DaemonInfo, error) {
	info := d.info()
	time.AfterFunc(50*time.Millisecond, func() { d.finish(nil) }) // the answer is small
	return &info, nil
}

func (d *Daemon) info() ipc.DaemonInfo {
	d.mu.Lock()
	sessions := len(d.sessions)
	d.mu.Unlock()
	memory, _ := platform.MemoryRSS(os.Getpid())
	return ipc.DaemonInfo{
		Version: ipc.Version(), Protocol: ipc.Supported, PID: os.Getpid(), Started: d.started.UTC().Truncate(time.Second),
		Socket: d.o.Dirs.Socket, Sessions: sessions, Memory: memory, Path: d.environ.origin(),
	}
}
