//go:build unix

package platform

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// own are the children of this process that are in a session of their own and
// that os/exec waits for. All other children in another session are orphans that
// came to us: they began below a keeper or below a login shell, and nobody waits
// for them. (A process cannot come back into a session, so what is in ours was
// started by this process.)
var own struct {
	mu   sync.Mutex // held over a start too, so that no one is taken for an orphan before it is listed
	pids map[int]bool
}

func startOwn(cmd *exec.Cmd) error {
	own.mu.Lock()
	defer own.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if own.pids == nil {
		own.pids = make(map[int]bool)
	}
	own.pids[cmd.Process.Pid] = true
	return nil
}

func disown(pid int) {
	own.mu.Lock()
	defer own.mu.Unlock()
	delete(own.pids, pid)
}

// adopted are the orphans that came to this process, and what is below them.
func adopted(table []proc) []proc {
	if !hasSubreaper {
		return nil
	}
	self, sid := os.Getpid(), ownSession()
	own.mu.Lock()
	defer own.mu.Unlock()
	var roots []int
	var alive []proc
	for _, p := range table {
		if p.ppid == self && p.sid != sid && !own.pids[p.pid] {
			roots = append(roots, p.pid)
			if !p.zombie {
				alive = append(alive, p)
			}
		}
	}
	for _, p := range descendants(table, roots...) {
		if !p.zombie {
			alive = append(alive, p)
		}
	}
	return alive
}

// unclaimed is how long an ended child in another session stays a zombie before
// it counts as an orphan: whoever started one through os/exec waits for it at
// once.
const unclaimed = time.Second

// reapOrphans waits for orphans that ended, each by its pid: Wait4(-1) would take
// os/exec's children away from it.
func reapOrphans(ctx context.Context) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	seen := make(map[int]time.Time)
	var again <-chan time.Time
	for {
		select {
		case <-children:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if seen = reapAdopted(seen, time.Now()); len(seen) > 0 {
			again = time.After(unclaimed)
		}
	}
}

// reapAdopted takes in those that were seen long enough ago, and is when the
// others were seen first.
func reapAdopted(seen map[int]time.Time, now time.Time) map[int]time.Time {
	waiting := make(map[int]time.Time)
	table, err := processTable()
	if err != nil {
		return waiting
	}
	self, sid := os.Getpid(), ownSession()
	own.mu.Lock()
	defer own.mu.Unlock()
	for _, p := range table {
		if p.ppid != self || p.sid == sid || !p.zombie || own.pids[p.pid] {
			continue
		}
		if first, ok := seen[p.pid]; !ok {
			waiting[p.pid] = now
		} else if now.Sub(first) < unclaimed {
			waiting[p.pid] = first
		} else {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
	return waiting
}

func ownSession() int {
	sid, err := unix.Getsid(0)
	if err != nil {
		return -1
	}
	return sid
}

// killSession ends all processes of a session and, when the leader was not waited
// for yet, what is below it in others, until none is left.
func killSession(leader int, unreaped bool) {
	deadline := time.Now().Add(stopStep)
	for empty := 0; empty < 2 && time.Now().Before(deadline); {
		table, err := processTable()
		if err != nil {
			return
		}
		var victims []proc
		if unreaped {
			victims = descendants(table, leader)
		}
		for _, p := range table {
			if p.sid == leader {
				victims = append(victims, p)
			}
		}
		alive := 0
		for _, p := range victims {
			if !p.zombie {
				alive++
				_ = signalProc(p, syscall.SIGKILL)
			}
		}
		if alive == 0 {
			empty++
			continue
		}
		empty = 0
		time.Sleep(2 * time.Millisecond) // SIGKILL needs a moment
	}
}
