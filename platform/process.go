package platform

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"
)

// The stop ladder: a server that was told by a closed stdin, then by SIGTERM,
// has this long at each step. MCP names the steps; 2 s is what npm wrappers need
// to end what they wrap, with room.
const stopStep = 2 * time.Second

// ErrClosed is the error of Start after Close.
var ErrClosed = errors.New("the keeper of server processes is closed")

// Command is what to start.
type Command struct {
	Path  string   // resolved: Environ.LookPath
	Args  []string // argv, Args[0] too
	Env   []string // complete: Environ.ForChild
	Dir   string
	Label string // for the log and the journal

	osCommand
}

// ExitState is how a process ended.
type ExitState struct {
	Code   int    // -1 when it was ended by a signal or is not known
	Signal string // "SIGKILL"; empty when it exited
	Text   string // for people: "exit status 1", "killed by SIGKILL"
}

// KeeperOptions are what a Keeper needs from the daemon.
type KeeperOptions struct {
	Executable string   // that runs KeeperMain; empty: this one
	Args       []string // its arguments, e.g. the hidden verb
	Journal    string   // file that names what runs, for Sweep
	Instance   string   // of the daemon; for people who look at a process's environment
	Log        *slog.Logger
}

// Process is a started server. Stdin, Stdout and Stderr are pipes with
// deadlines (*os.File). Stop closes Stdin; the reader of the others closes them.
type Process struct {
	PID    int
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	Stderr io.ReadCloser

	keeper  *Keeper
	label   string
	done    chan struct{} // the process was reaped; exit is set
	cleared chan struct{} // and nothing that it started is left
	exit    ExitState
	osProcess
}

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended; the zero value before Done.
func (p *Process) Exit() ExitState {
	select {
	case <-p.done:
		return p.exit
	default:
		return ExitState{}
	}
}

// Stop ends the process and all that it started: stdin closed, 2 s, SIGTERM to
// its group, 2 s, SIGKILL to every descendant. A ctx that ends skips the waits.
// It returns when nothing is left; the error is for the case that something
// cannot be killed.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.Stdin.Close()
	if !p.wait(ctx, stopStep) {
		p.terminate()
		if !p.wait(ctx, stopStep) {
			p.Kill()
		}
	}
	// What is left of its tree is being killed. A process in an uninterruptible
	// wait ends when its disk answers; nobody waits for that.
	timer := time.NewTimer(2*stopStep + time.Second)
	defer timer.Stop()
	select {
	case <-p.cleared:
		return nil
	case <-ctx.Done():
		p.Kill()
	case <-timer.C:
		p.Kill()
	}
	timer.Reset(stopStep)
	select {
	case <-p.cleared:
		return nil
	case <-timer.C:
		return errors.New("stopping " + p.label + ": a process is left that SIGKILL does not end")
	}
}

func (p *Process) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
