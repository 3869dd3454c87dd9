//go:build unix

package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout bounds one fork and exec in the keeper. They take a millisecond;
// ten seconds without an answer are a keeper that hangs.
const startTimeout = 10 * time.Second

// Keeper starts all server processes, through one process of its own, the
// keeper: this binary again, in a session of its own, parent of the servers and,
// on Linux, of every orphan below it. The daemon holds one end of a socket pair;
// whatever ends the daemon closes it, and the keeper ends everything below.
//
//   - The daemon is killed: the keeper sees the socket close.
//   - The keeper is killed: on Linux the servers fall to the daemon, which is a
//     subreaper as well, ends them at once, and starts a new keeper with the next
//     server. They count as exited.
//   - Both are killed: Sweep, at the next start.
//
// Elsewhere orphans fall to init. There a process is found by its group, its
// session, its parents or the marker in its environment; not found is one that
// changed all four.
//
// The keeper is started with the first server: a daemon whose servers are all
// remote has none, and the daemon's first answer does not wait for it.
type Keeper struct {
	options KeeperOptions
	log     *slog.Logger
	journal *journal
	key     stateKey
	stop    context.CancelFunc // of the reaper
	wg      sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held while waiting for the keeper
	link   *link
	closed bool
	number int // of the last server, for its marker
}

// link is a running keeper.
type link struct {
	keeper *Keeper
	cmd    *exec.Cmd
	start  uint64
	wire   *wire
	gone   chan struct{} // it ended, and all that it held
	err    error         // or what of it did not; read after gone

	mu      sync.Mutex
	closing bool
	lastID  uint64
	waiting map[uint64]*starting
	procs   map[int]*Process // until nothing is left of them
}

type starting struct {
	process *Process
	answer  chan message
}

type osCommand struct {
	// session gives it a session, and /dev/null for stdin and stderr. What of it
	// is in other sessions when it ends by itself lives on.
	session bool
}

type osProcess struct {
	link  *link
	start uint64
}

// NewKeeper makes this process the parent of orphans below it, where the system
// has that, and reaps them from then on. It starts no process yet.
func NewKeeper(o KeeperOptions) (*Keeper, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the own executable: %w", err)
		}
		o.Executable = exe
	}
	if err := becomeSubreaper(); err != nil {
		return nil, fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Keeper{options: o, log: o.Log, journal: newJournal(o.Journal, o.Log), key: stateKeyOf(o.Journal), stop: stop}
	if hasSubreaper {
		k.wg.Go(func() { reapOrphans(ctx) })
	}
	return k, nil
}

// Start starts a server in a process group of its own. The error wraps the
// system's (fs.ErrNotExist, fs.ErrPermission).
func (k *Keeper) Start(c Command) (*Process, error) {
	// Looked at here, by the caller's own goroutine: on a dead network file
	// system this hangs, and the keeper must not.
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil {
			return nil, fmt.Errorf("starting %s in %s: %w", c.Label, c.Dir, causeOf(err))
		} else if !info.IsDir() {
			return nil, fmt.Errorf("starting %s in %s: %w", c.Label, c.Dir, syscall.ENOTDIR)
		}
	}
	if _, err := os.Stat(c.Path); err != nil {
		return nil, fmt.Errorf("starting %s: %s: %w", c.Label, c.Path, causeOf(err))
	}
	stdin, in, err := pipe(true)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Label, err)
	}
	defer func() { syscall.Close(in) }()
	stdout, out, err := pipe(false)
	if err != nil {
		closePipes(stdin)
		return nil, fmt.Errorf("starting %s: %w", c.Label, err)
	}
	defer syscall.Close(out)
	stderr, errs, err := pipe(false)
	if err != nil {
		closePipes(stdin, stdout)
		return nil, fmt.Errorf("starting %s: %w", c.Label, err)
	}
	defer func() { syscall.Close(errs) }()
	if c.session {
		for _, fd := range []*int{&in, &errs} {
			null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				closePipes(stdin, stdout, stderr)
				return nil, fmt.Errorf("starting %s: %w", c.Label, err)
			}
			syscall.Close(*fd)
			*fd = null
		}
		closePipes(stdin, stderr)
	}

	ends := Process{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	p, err := k.start(c, ends, in, out, errs)
	if errors.Is(err, errKeeperGone) { // it was killed; what it had is, too
		p, err = k.start(c, ends, in, out, errs)
	}
	if err != nil {
		closePipes(stdin, stdout, stderr)
		return nil, fmt.Errorf("starting %s: %w", c.Label, err)
	}
	return p, nil
}

// start has the running keeper start it, with our ends of its pipes: Close may
// stop it before start has returned. When the error is errKeeperGone there may be
// another keeper now.
func (k *Keeper) start(c Command, ends Process, files ...int) (*Process, error) {
	l, number, err := k.connect()
	if err != nil {
		return nil, err
	}
	p := &Process{Stdin: ends.Stdin, Stdout: ends.Stdout, Stderr: ends.Stderr, keeper: k, label: c.Label, done: make(chan struct{}), cleared: make(chan struct{}), osProcess: osProcess{link: l}}
	marker := fmt.Sprintf("%v:%s:%d", k.key, k.options.Instance, number)
	answer, err := l.ask(p, message{Op: "start", Path: raw(c.Path), Args: convert[raw](c.Args), Dir: raw(c.Dir),
		Env: convert[raw](withMarker(c.Env, marker)), Marker: marker, Tag: makeTag(uint64(k.key), number), Umask: inheritedUmask(), Session: c.session}, files...)
	if errors.Is(err, errKeeperGone) {
		<-l.gone
		return nil, err
	}
	if err == nil && answer.Op == "failed" {
		err = explainExec(c.Path, syscall.Errno(answer.Errno))
	}
	return p, err
}

// closePipes is for a process that did not come to be.
func closePipes(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func explainExec(path string, errno syscall.Errno) error {
	switch errno {
	case syscall.ENOENT: // the file is there: Start looked
		return fmt.Errorf("%s: the interpreter that its first line names, or its loader, is missing: %w", path, errno)
	case syscall.ENOEXEC:
		return fmt.Errorf("%s is no program for this system, or a script without a first line such as #!/bin/sh: %w", path, errno)
	case syscall.E2BIG:
		return fmt.Errorf("%s: its arguments and environment are larger than the system allows: %w", path, errno)
	}
	return fmt.Errorf("%s: %w", path, errno)
}

// connect is the running keeper, or a new one.
func (k *Keeper) connect() (*link, int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, 0, ErrClosed
	}
	k.number++
	if k.link != nil {
		return k.link, k.number, nil
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, 0, err
	}
	defer theirs.Close()
	path := k.options.Executable
	if self, err := os.Executable(); runtime.GOOS == "linux" && err == nil && self == path {
		// The image that runs, also when an upgrade has replaced the file.
		path = "/proc/self/exe"
	}
	cmd := &exec.Cmd{
		Path:       path,
		Args:       append([]string{k.options.Executable}, k.options.Args...),
		Dir:        "/",
		Env:        []string{"GOMAXPROCS=1", markerName + "=" + k.key.String() + ":" + k.options.Instance + ":keeper"},
		Stderr:     os.Stderr, // a crash of it belongs into the daemon's log
		ExtraFiles: []*os.File{theirs},
		// Its own session: no signal of a terminal, and every server below it
		// is in another session than the daemon.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	w, err := newWire(ours)
	if err != nil {
		return nil, 0, err
	}
	if err := startOwn(cmd); err != nil {
		w.conn.Close()
		return nil, 0, fmt.Errorf("starting the parent process of servers: %w", err)
	}
	p, _ := findProc(cmd.Process.Pid)
	l := &link{keeper: k, cmd: cmd, start: p.start, wire: w, gone: make(chan struct{}), waiting: make(map[uint64]*starting), procs: make(map[int]*Process)}
	k.link = l
	k.journal.addKeeper(cmd.Process.Pid)
	k.wg.Go(l.run)
	return l, k.number, nil
}

// ask sends a start and waits for its answer.
func (l *link) ask(p *Process, m message, files ...int) (message, error) {
	s := &starting{p, make(chan message, 1)}
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return message{}, errKeeperGone
	}
	l.lastID++
	m.ID = l.lastID
	l.waiting[m.ID] = s
	l.mu.Unlock()
	if err := l.wire.send(m, files...); err != nil {
		return message{}, fmt.Errorf("%w (%v)", errKeeperGone, err)
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case answer, ok := <-s.answer:
		if !ok {
			return message{}, errKeeperGone
		}
		return answer, nil
	case <-timer.C:
		_ = l.cmd.Process.Kill() // run sees it end and clears up
		return message{}, fmt.Errorf("the parent process of servers did not answer in %v", startTimeout)
	}
}

var errKeeperGone = errors.New("the parent process of servers ended")

// run takes in what the keeper says, to its end.
func (l *link) run() {
	for {
		m, err := l.wire.receive()
		if err != nil {
			break
		}
		l.take(m)
	}
	l.wire.conn.Close()
	l.lost()
}

func (l *link) take(m message) {
	k := l.keeper
	switch m.Op {
	case "started", "failed":
		l.mu.Lock()
		s := l.waiting[m.ID]
		delete(l.waiting, m.ID)
		if s != nil && m.Op == "started" {
			s.process.PID, s.process.start = m.PID, m.Start
			l.procs[m.PID] = s.process
		}
		l.mu.Unlock()
		if s == nil {
			return
		}
		if m.Op == "started" {
			k.journal.add(m.PID, m.Start, s.process.label)
		}
		s.answer <- m
	case "exited":
		l.mu.Lock()
		p := l.procs[m.PID]
		l.mu.Unlock()
		if p != nil {
			p.exit = exitState(syscall.WaitStatus(m.Status))
			close(p.done)
		}
	case "cleared":
		l.mu.Lock()
		p := l.procs[m.PID]
		delete(l.procs, m.PID)
		l.mu.Unlock()
		if p != nil {
			// The journal keeps it until nothing is left of it.
			k.journal.remove(m.PID)
			close(p.cleared)
		}
	}
}

// lost is the end of a keeper, wanted or not. Nothing it held stays.
func (l *link) lost() {
	k := l.keeper
	l.mu.Lock()
	closing := l.closing
	waiting, procs := l.waiting, l.procs
	l.waiting, l.procs = nil, nil
	l.mu.Unlock()
	if !closing { // else Close sees to its end
		_ = l.cmd.Process.Kill()
	}
	_ = l.cmd.Wait()
	disown(l.cmd.Process.Pid)

	if !closing {
		k.log.Warn("the parent process of servers ended; ending the servers", "pid", l.cmd.Process.Pid, "servers", len(procs))
	}
	if l.err = l.killOrphans(procs); l.err != nil {
		k.log.Error("ending servers", "error", l.err)
	}
	k.journal.removeKeeper(l.cmd.Process.Pid)
	// Only now may there be a new keeper: its servers carry the same marks.
	k.mu.Lock()
	k.link = nil
	k.mu.Unlock()
	for _, s := range waiting {
		close(s.answer)
	}
	for _, p := range procs {
		select {
		case <-p.done:
		default:
			p.exit = ExitState{Code: -1, Text: "ended together with the parent process of servers"}
			close(p.done)
		}
		close(p.cleared)
	}
	close(l.gone)
}

// killOrphans ends what a keeper that is gone held.
func (l *link) killOrphans(procs map[int]*Process) error {
	c := claim{data: journalData{Keepers: []journalEntry{{PID: l.cmd.Process.Pid, Start: l.start}}}, key: l.keeper.key}
	for pid := range procs {
		c.data.Children = append(c.data.Children, journalEntry{PID: pid, Start: procs[pid].start})
	}
	deadline := time.Now().Add(2 * stopStep) // new servers wait for this
	for empty := 0; empty < 2; {
		table, err := processTable()
		if err != nil {
			return err
		}
		victims := c.pick(table)
		if !tagsWork() {
			victims = append(victims, adopted(table)...)
		}
		if len(victims) == 0 {
			empty++
			continue
		}
		empty = 0
		for _, p := range victims {
			_ = signalProc(p, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not end, the first has pid %d", len(victims), victims[0].pid)
		}
		time.Sleep(5 * time.Millisecond) // SIGKILL needs a moment
	}
	return nil
}

func (p *Process) terminate() { _ = p.link.wire.send(message{Op: "term", PID: p.PID}) }

// Kill ends the process and all that it started at once, without waiting.
func (p *Process) Kill() { _ = p.link.wire.send(message{Op: "kill", PID: p.PID}) }

// Close stops all servers in parallel, each by the ladder of Stop, then the
// keeper. A ctx that ends shortens the ladder. The error says what did not end.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	l := k.link
	k.mu.Unlock()
	var err error
	if l != nil {
		l.mu.Lock()
		l.closing = true
		procs := slices.Collect(maps.Values(l.procs)) // none: there is nothing to stop, or it was lost
		l.mu.Unlock()
		var stops sync.WaitGroup
		for _, p := range procs {
			stops.Go(func() { _ = p.Stop(ctx) }) // what that leaves ends with the keeper
		}
		stops.Wait()
		_ = l.wire.conn.CloseWrite()
		// It ends within orphanGrace, unless it hangs.
		timer := time.AfterFunc(stopStep, func() { _ = l.cmd.Process.Kill() })
		<-l.gone
		timer.Stop()
		err = l.err
	}
	k.stop()
	k.wg.Wait()
	k.journal.close()
	return err
}

// PID is the keeper's, 0 when none runs.
func (k *Keeper) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == nil {
		return 0
	}
	return k.link.cmd.Process.Pid
}

func exitState(s syscall.WaitStatus) ExitState {
	if s.Signaled() {
		name := unix.SignalName(s.Signal())
		if name == "" {
			name = "signal " + strconv.Itoa(int(s.Signal()))
		}
		return ExitState{Code: -1, Signal: name, Text: "killed by " + name}
	}
	return ExitState{Code: s.ExitStatus(), Text: "exit status " + strconv.Itoa(s.ExitStatus())}
}
