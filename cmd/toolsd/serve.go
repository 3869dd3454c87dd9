package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/daemon"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
	"github.com/toolsd/toolsd/platform"
)

const (
	logName  = "toolsd.log"
	lockName = daemon.LockName
	// detachedFlag marks a daemon that a verb started, with a token of that verb.
	// When another one holds the lock it has nothing to say, because that other
	// one answers the verb; what else ends it is logged with the token.
	detachedFlag = "--detached"
	// stopTimeout is how long the daemon may take to end: 8 s are promised.
	stopTimeout = 10 * time.Second
)

func newServeCommand(a *app) *cobra.Command {
	var token string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon in this terminal",
		Example: `  toolsd serve
  TOOLSD_DIR=/tmp/second toolsd serve`,
		Long: `Run the daemon in the foreground until Ctrl-C. Verbs that need a daemon start
one in the background by themselves; this is for watching it work, and for
service managers.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), token)
		},
	}
	cmd.Flags().StringVar(&token, detachedFlag[2:], "", "started by a verb")
	_ = cmd.Flags().MarkHidden(detachedFlag[2:])
	return cmd
}

func (a *app) serve(ctx context.Context, token string) error {
	longLived()
	hardenErr := platform.Harden()
	// A reader of our stderr that leaves must not take the daemon with it.
	signal.Ignore(syscall.SIGPIPE)
	dirs, err := platform.FindDirs(a.getenv)
	if err != nil {
		return err
	}
	if err := dirs.Prepare(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	file := newRotatingLog(filepath.Join(dirs.State, logName))
	defer file.Close()
	var out io.Writer = file
	if a.err.terminal {
		out = io.MultiWriter(os.Stderr, file)
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	if hardenErr != nil {
		log.Warn("protecting this process", "cause", hardenErr)
	}
	err = daemon.New(daemon.Options{
		Dirs: dirs, Log: log, Executable: self, Getenv: a.getenv, Environ: os.Environ,
		FixedNames: shim.FixedNames(), FixedTokens: shim.FixedTokens(),
	}).Run(ctx)
	locked := errors.Is(err, platform.ErrLocked)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled), locked && token != "":
		return nil
	case locked:
		if err := elsewhere(ctx, dirs, false); err != nil {
			return err
		}
		message := "another daemon runs"
		if pid, ok := platform.LockHolder(filepath.Join(dirs.State, lockName)); ok {
			message += fmt.Sprintf(" (process %d)", pid)
		}
		return ipc.Errorf(ipc.CodeInternal, "%s", message).WithHint("`toolsd status` shows it, `toolsd stop` ends it")
	case token != "":
		log.Error("the daemon ended", "cause", err, "start", token)
		return exit(exitFailed) // stderr is the same log
	}
	log.Error("the daemon ended", "cause", err)
	return err
}

// daemonAnswer is what start and stop print with --json.
type daemonAnswer struct {
	Daemon  *ipc.DaemonInfo `json:"daemon"`
	Changed bool            `json:"changed"` // it was started, or stopped, by this verb
}

func newStartCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "start",
		Short:   "Run the daemon in the background",
		Example: "  toolsd start",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.noStart {
				return usage(cmd, "--no-start forbids what `toolsd start` does").WithHint("leave --no-start out, or type `toolsd status --no-start` to see whether a daemon runs")
			}
			ctx := cmd.Context()
			client, dirs, err := a.running(ctx)
			started := errors.Is(err, errNoneRuns)
			if started {
				if err = elsewhere(ctx, dirs, false); err != nil {
					client.Close()
					return err
				}
				client, err = a.startDaemon(ctx, client, dirs)
			}
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(ctx, ipc.StatusRequest{})
			if err != nil {
				return err
			}
			a.print(daemonAnswer{&status.Daemon, started}, func(s *screen) {
				if started {
					s.line("started: process %d, %s", status.Daemon.PID, cleanLine(home(status.Daemon.Socket)))
				} else {
					s.line("already running: process %d, since %s", status.Daemon.PID, ago(status.Daemon.Started))
				}
			})
			a.hint("`toolsd status` shows its servers")
			return nil
		},
	}
}

func newStopCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "End the daemon and its servers",
		Example: "  toolsd stop",
		Long: `End the daemon and its servers. Agents that use it stay as they are; the next
verb, or the next call of an agent, starts it again.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stop(cmd.Context()) },
	}
}

func (a *app) stop(ctx context.Context) error {
	client, dirs, err := a.running(ctx)
	lock := filepath.Join(dirs.State, lockName)
	if errors.Is(err, errNoneRuns) {
		free, lockErr := lockIsFree(lock)
		if lockErr != nil {
			return lockErr
		}
		if free {
			a.print(daemonAnswer{}, func(s *screen) { s.line("no daemon runs") })
			return nil
		}
		if err := elsewhere(ctx, dirs, false); err != nil {
			return err
		}
		// One that is ending, or that has not bound its socket yet: that one is
		// told as soon as it can be.
		var gone bool
		if client, gone, err = a.bornOrGone(ctx, lock); gone {
			a.print(daemonAnswer{Changed: true}, func(s *screen) { s.line("stopped") })
			return nil
		}
		if err != nil {
			if err := elsewhere(ctx, dirs, true); err != nil {
				return err
			}
			return err
		}
	}
	if err != nil {
		return err
	}
	defer client.Close()
	info, err := client.Stop(ctx)
	if err != nil {
		return err
	}
	if err := waitUntilFree(ctx, lock); err != nil {
		return err
	}
	a.print(daemonAnswer{info, true}, func(s *screen) { s.line("stopped: process %d", info.PID) })
	return nil
}

// bornOrGone waits until the daemon that holds the lock answers, or until nobody
// holds it any more.
func (a *app) bornOrGone(ctx context.Context, lock string) (client *ipc.Client, gone bool, err error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); {
		if free, err := lockIsFree(lock); free || err != nil {
			return nil, free, err
		}
		client, _, err := a.running(ctx)
		if !errors.Is(err, errNoneRuns) {
			return client, false, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	return nil, false, waitUntilFree(ctx, lock)
}

// byHand says how to end a daemon that cannot be asked to: it hangs, or speaks
// another version. Its process is not signalled from here, since the number in
// the lock file is no proof of who it is.
func byHand(err error, lock string) error {
	e, ok := errors.AsType[*ipc.Error](err)
	if !ok || e.Code != ipc.CodeNoDaemon && e.Code != ipc.CodeVersionSkew {
		return err
	}
	if pid, known := platform.LockHolder(lock); known {
		if free, lockErr := lockIsFree(lock); lockErr == nil && !free {
			e.WithHint("it is process %d: see that it is toolsd (`ps -p %d`), then `kill %d`, or `kill -9 %d` when that does not help; the next verb starts another", pid, pid, pid, pid)
		}
	}
	return e
}

// lockIsFree reports whether no daemon lives.
func lockIsFree(path string) (bool, error) {
	lock, err := platform.AcquireLock(path)
	switch {
	case errors.Is(err, platform.ErrLocked):
		return false, nil
	case errors.Is(err, os.ErrNotExist):
		return true, nil // no daemon ever ran here
	case err != nil:
		return false, err
	}
	return true, lock.Release()
}

func waitUntilFree(ctx context.Context, lock string) error {
	end := time.After(stopTimeout)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if free, err := lockIsFree(lock); free || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-end:
			e := ipc.Errorf(ipc.CodeTimeout, "the daemon has not ended after %v", stopTimeout)
			if pid, ok := platform.LockHolder(lock); ok {
				e.WithHint("it is process %d; its log is %s", pid, filepath.Join(filepath.Dir(lock), logName))
			}
			return e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
