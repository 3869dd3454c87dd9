//go:build unix

package platform

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	// killPoll is how often a tree that is being ended is looked at again.
	killPoll = 20 * time.Millisecond
	// orphanGrace is what servers get between SIGTERM and SIGKILL when the
	// daemon is gone: with it, all is over well within the 2 s of the contract.
	orphanGrace = 500 * time.Millisecond
	// keeperPatience bounds the wait for a process that SIGKILL does not end.
	keeperPatience = 30 * time.Second
)

// KeeperMain is the parent of all server processes: what the hidden verb of the
// binary runs, before anything else in main, because what a Go process touches
// it keeps. It lives exactly as long as the daemon holds the other end of
// descriptor 3, and then ends everything below it.
//
// It is one loop: only it forks, waits and signals, so that a pid which it holds
// cannot be another process's.
func KeeperMain() int {
	debug.SetGCPercent(20) // it allocates a few kilobytes per start; a small heap is all it needs
	w, err := newWire(os.NewFile(3, "3"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "toolsd: this is started by the daemon only")
		return 2
	}
	if err := becomeSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, "toolsd: becoming the parent of orphans:", err)
		return 1
	}
	shieldKeeper()
	sealDescriptors(3)
	// Caught and dropped, not ignored: an ignored signal would stay ignored in
	// every server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)

	k := &wards{wire: w, self: os.Getpid(), byPID: make(map[int]*ward)}
	inbox := make(chan message)
	handled := make(chan struct{})
	go func() {
		defer close(inbox)
		for {
			m, err := w.receive()
			if err != nil {
				return
			}
			inbox <- m
			// A descriptor that arrives while the loop forks could get into
			// that child where the system cannot receive it close-on-exec.
			<-handled
		}
	}()
	var again <-chan time.Time
	for {
		select {
		case m, ok := <-inbox:
			if !ok {
				k.endAll(children)
				return 0
			}
			k.handle(m)
			handled <- struct{}{}
		case <-children:
			k.reap()
		case <-again:
		}
		again = nil
		if k.clear(time.Now()) {
			again = time.After(killPoll)
		}
	}
}

// ward is one server process and what it started.
type ward struct {
	pid      int
	marker   string
	tag      uint64
	session  bool // Command.session
	reaped   bool
	killing  bool
	asked    bool           // leftovers got their SIGTERM
	deadline time.Time      // when leftovers get SIGKILL
	members  map[int]uint64 // seen below it once: pid and start, though they may have moved since
}

type wards struct {
	wire  *wire
	self  int
	byPID map[int]*ward
}

func (k *wards) handle(m message) {
	switch m.Op {
	case "start":
		k.start(m)
	case "term":
		if w := k.byPID[m.PID]; w != nil && !w.reaped {
			// Who ends first takes the traces of the rest along.
			if table, err := processTable(); err == nil {
				k.left(w, table)
			}
			_ = syscall.Kill(-w.pid, syscall.SIGTERM)
		}
	case "kill":
		if w := k.byPID[m.PID]; w != nil {
			w.killing = true
		}
	}
}

func (k *wards) start(m message) {
	defer func() {
		for _, fd := range m.files {
			syscall.Close(fd)
		}
	}()
	if len(m.files) != 3 {
		_ = k.wire.send(message{Op: "failed", ID: m.ID, Errno: int(syscall.EBADF)})
		return
	}
	syscall.Umask(m.Umask)
	putTag(m.Tag)
	pid, err := syscall.ForkExec(string(m.Path), convert[string](m.Args), &syscall.ProcAttr{
		Dir:   string(m.Dir),
		Env:   convert[string](m.Env),
		Files: []uintptr{uintptr(m.files[0]), uintptr(m.files[1]), uintptr(m.files[2])},
		Sys:   &syscall.SysProcAttr{Setpgid: !m.Session, Setsid: m.Session},
	})
	if err != nil {
		errno, ok := errors.AsType[syscall.Errno](err)
		if !ok {
			errno = syscall.EINVAL
		}
		_ = k.wire.send(message{Op: "failed", ID: m.ID, Errno: int(errno)})
		return
	}
	k.byPID[pid] = &ward{pid: pid, marker: m.Marker, tag: m.Tag, session: m.Session, members: make(map[int]uint64)}
	p, _ := findProc(pid) // there at least as a zombie: only reap ends it
	_ = k.wire.send(message{Op: "started", ID: m.ID, PID: pid, Start: p.start})
}

// reap takes in every child that ended, ours and adopted ones, and reports
// whether none is left at all.
func (k *wards) reap() (none bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return true
		case pid <= 0:
			return false
		}
		if w := k.byPID[pid]; w != nil && !w.reaped {
			w.reaped = true
			w.deadline = time.Now().Add(stopStep)
			_ = k.wire.send(message{Op: "exited", PID: pid, Status: uint32(status)})
		}
	}
}

// clear ends what servers that are gone, or are to be killed, left behind. It
// reports whether to look again soon.
func (k *wards) clear(now time.Time) (again bool) {
	var table []proc
	for pid, w := range k.byPID {
		if !w.reaped && !w.killing {
			continue
		}
		if table == nil {
			k.reap()
			var err error
			if table, err = processTable(); err != nil {
				return k.clearBlind()
			}
		}
		left := k.left(w, table)
		if len(left) == 0 && w.reaped {
			_ = k.wire.send(message{Op: "cleared", PID: pid})
			delete(k.byPID, pid)
			continue
		}
		again = true
		for _, p := range left {
			if w.killing || !now.Before(w.deadline) {
				_ = signalProc(p, syscall.SIGKILL)
			} else if !w.asked {
				_ = signalProc(p, syscall.SIGTERM)
			}
		}
		w.asked = true
	}
	return again
}

// clearBlind does what goes without a process table, in a container that has no
// /proc for instance: the group of each server is ended.
func (k *wards) clearBlind() (again bool) {
	for pid, w := range k.byPID {
		if w.reaped || w.killing {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		if w.reaped {
			_ = k.wire.send(message{Op: "cleared", PID: pid})
			delete(k.byPID, pid)
		} else if w.killing {
			again = true
		}
	}
	return again
}

// left is what lives of a server: itself, its group, its session, what is below
// those, what was seen below it before, and orphans that carry its marker or tag.
func (k *wards) left(w *ward, table []proc) []proc {
	var roots []int
	for _, p := range table {
		if p.pid == k.self || p.pid == w.pid && w.reaped {
			continue
		}
		if w.session && !w.killing && p.sid != w.pid {
			continue
		}
		start, member := w.members[p.pid]
		// An orphan is no ward, and a child of ours or of init.
		orphan := (p.ppid == k.self || p.ppid == 1 && !hasSubreaper) && k.byPID[p.pid] == nil
		if p.pid == w.pid || p.pgid == w.pid || p.sid == w.pid || member && start == p.start ||
			orphan && !p.zombie && (markerOf(p.pid) == w.marker || w.tag != 0 && tagOf(p.pid) == w.tag) {
			roots = append(roots, p.pid)
		}
	}
	var alive []proc
	rootSet := make(map[int]bool, len(roots))
	for _, r := range roots {
		rootSet[r] = true
	}
	for _, p := range table {
		if rootSet[p.pid] && !p.zombie {
			alive = append(alive, p)
		}
	}
	for _, p := range descendants(table, roots...) {
		if !p.zombie && p.pid != k.self && !(w.session && !w.killing && p.sid != w.pid) {
			alive = append(alive, p)
		}
	}
	for _, p := range alive {
		w.members[p.pid] = p.start
	}
	return alive
}

// endAll is the reason for all this: the daemon is gone, however that came.
// With a subreaper the end is certain: no child is left to wait for.
func (k *wards) endAll(children <-chan os.Signal) {
	begin := time.Now()
	asked := make(map[int]uint64)
	empty := 0
	for time.Since(begin) < keeperPatience {
		none := k.reap()
		if none && hasSubreaper {
			return
		}
		if table, err := processTable(); err != nil {
			for pid, w := range k.byPID {
				w.killing = true
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
		} else {
			victims := k.all(table)
			if len(victims) > 0 {
				empty = 0
			} else if empty++; empty > 1 && !hasSubreaper {
				return
			}
			for _, p := range victims {
				if time.Since(begin) >= orphanGrace {
					_ = signalProc(p, syscall.SIGKILL)
				} else if start, ok := asked[p.pid]; !ok || start != p.start {
					_ = signalProc(p, syscall.SIGTERM)
					asked[p.pid] = p.start
				}
			}
		}
		select {
		case <-children:
		case <-time.After(killPoll):
		}
	}
}

func (k *wards) all(table []proc) []proc {
	seen := make(map[int]bool)
	var all []proc
	add := func(list []proc) {
		for _, p := range list {
			if !p.zombie && !seen[p.pid] && p.pid != k.self {
				seen[p.pid] = true
				all = append(all, p)
			}
		}
	}
	add(descendants(table, k.self))
	if !hasSubreaper {
		for _, w := range k.byPID {
			add(k.left(w, table))
		}
	}
	return all
}
