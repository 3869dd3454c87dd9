package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

const (
	// startTimeout is how long a daemon may take until it answers. It answers
	// within 0.3 s even when every server hangs; the rest is for a machine that
	// is busy, and for an older daemon that still ends (8 s).
	startTimeout = 20 * time.Second
	// startAgain is when a caller whose daemon lost the race for the state lock
	// starts another: the winner may have been one that was about to end.
	startAgain = 500 * time.Millisecond
	// pollEvery is how often the socket is tried meanwhile. A try costs 0.1 ms.
	pollEvery = 10 * time.Millisecond
	// startLockName is the file that one of any number of callers locks while it
	// starts the daemon. The state lock would let only one daemon live anyway, but
	// fifty that are born to end keep two cores from the one.
	startLockName = "toolsd.start"
	// handshakes is how often a daemon is tried that ends, or comes up, at the
	// very moment; more would be a daemon that is broken.
	handshakes = 5
)

// connect returns a daemon that answered the handshake, starting one when none
// runs and starting is not forbidden.
func (a *app) connect(ctx context.Context) (*ipc.Client, error) {
	client, dirs, err := a.running(ctx)
	if !errors.Is(err, errNoneRuns) {
		return client, err
	}
	if err := elsewhere(ctx, dirs, false); err != nil {
		client.Close()
		return nil, err
	}
	if a.noStart || a.getenv("TOOLSD_NO_START") == "1" {
		return nil, ipc.Errorf(ipc.CodeNoDaemon, "no daemon runs at %s, and starting one is forbidden here", dirs.Socket).
			WithHint("start it with `toolsd start`")
	}
	return a.startDaemon(ctx, client, dirs)
}

// errNoneRuns says that nobody listens at the socket. Callers start a daemon or
// are content with none.
var errNoneRuns = errors.New("no daemon runs")

// running returns the daemon that runs. A daemon that does not answer is an
// error other than errNoneRuns: its place is taken.
func (a *app) running(ctx context.Context) (*ipc.Client, platform.Dirs, error) {
	dirs, err := platform.FindDirs(a.getenv)
	if err != nil {
		return nil, dirs, err
	}
	client := ipc.NewClient(dirs.Socket)
	for range handshakes {
		begin := time.Now()
		_, err = client.Handshake(ctx)
		if err == nil || ctx.Err() != nil {
			break
		}
		e, ok := errors.AsType[*ipc.Error](err)
		if !ok {
			continue // the connection broke: that daemon was ending
		}
		if e.Code != ipc.CodeNoDaemon {
			break
		}
		// A daemon that hangs gives the same code, and a new one would not help.
		conn, dialErr := platform.Dial(ctx, dirs.Socket)
		if errors.Is(dialErr, platform.ErrNoDaemon) {
			return client, dirs, errNoneRuns
		}
		if dialErr != nil {
			break
		}
		conn.Close()
		if time.Since(begin) > time.Second {
			break // it hangs: a handshake takes 2 s to fail
		}
		// One came up between the two: it gets a handshake of its own.
	}
	if err != nil {
		client.Close()
		return nil, dirs, byHand(err, filepath.Join(dirs.State, lockName))
	}
	return client, dirs, nil
}

// startDaemon starts a daemon, and waits until it or somebody else's answers. Of
// any number of callers the one with the start lock starts it; when that caller
// ends without a daemon, however it ends, the next takes its place. Since the
// state lock may be held by a daemon that is about to end, a caller that still has
// no answer starts another one, after pauses that double.
func (a *app) startDaemon(ctx context.Context, client *ipc.Client, dirs platform.Dirs) (*ipc.Client, error) {
	if err := dirs.Prepare(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	log := filepath.Join(dirs.State, logName)
	begin := sizeOf(log)
	// The token tells in the log which daemon was ours.
	token := fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errStartTimeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	pause, again := startAgain, time.Time{}
	began := time.Now()
	var turn *platform.Lock
	defer func() {
		if turn != nil {
			_ = turn.Release()
		}
	}()
	for i := 0; ; i++ {
		if turn == nil && i%5 == 0 {
			turn, err = platform.AcquireLock(filepath.Join(dirs.State, startLockName))
			if err != nil && !errors.Is(err, platform.ErrLocked) {
				return nil, notStarted(fmt.Errorf("starting the daemon: %w", err))
			}
		}
		if now := time.Now(); turn != nil && now.After(again) {
			if _, err := platform.StartDetached(self, []string{"serve", detachedFlag + "=" + token}, nil, log); err != nil {
				return nil, notStarted(err)
			}
			again, pause = now.Add(pause), 2*pause
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if context.Cause(ctx) == errStartTimeout {
				return nil, startFailed(fmt.Sprintf("the daemon did not answer within %v of its start", startTimeout), log, begin)
			}
			return nil, ctx.Err()
		}
		_, err := client.Handshake(ctx)
		if err == nil {
			return client, nil
		}
		if e, ok := errors.AsType[*ipc.Error](err); ok && e.Code == ipc.CodeVersionSkew {
			return nil, byHand(err, filepath.Join(dirs.State, lockName))
		}
		if i%10 != 9 {
			continue // reading files costs more than dialling
		}
		if strings.Contains(lastLines(log, begin, 100), "start="+token) {
			return nil, startFailed("the daemon ended while it started", log, begin)
		}
		if err := elsewhere(ctx, dirs, time.Since(began) > elsewhereAfter); err != nil {
			return nil, err
		}
	}
}

// notStarted is the error of a daemon that could not even be run.
func notStarted(err error) *ipc.Error {
	e := ipc.Errorf(ipc.CodeNoDaemon, "%v", err).WithHint("`toolsd doctor` looks for what is in the way")
	if unfit, ok := errors.AsType[*platform.UnfitError](err); ok {
		e.WithHint("%s", unfit.Hint())
	}
	return e
}

var errStartTimeout = errors.New("the daemon did not answer in time")

// startFailed says what the daemon wrote to its log since it was started.
func startFailed(what, log string, begin int64) *ipc.Error {
	if why := lastLines(log, begin, 5); why != "" {
		what += ":\n" + why
	}
	return ipc.Errorf(ipc.CodeNoDaemon, "%s", what).WithHint("its log is %s; `toolsd serve` runs it in this terminal", log)
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastLines returns the last n lines that were added to a file behind an offset.
func lastLines(path string, begin int64, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < begin {
		begin = 0 // it was rotated
	}
	if _, err := f.Seek(begin, io.SeekStart); err != nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<20)) // a daemon that just began wrote less
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
