package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// socketName is the daemon's own record of its socket, beside the lock: its pid
// and the path, a line each. A verb whose variables lead to another socket learns
// from it that it waits in vain. A record of another pid than the lock's is old.
const socketName = "toolsd.socket"

// elsewhereAfter is how long a daemon that holds the lock and answers at no socket
// counts as one that comes up or ends, though its record names another socket.
const elsewhereAfter = 2 * time.Second

// recordSocket writes the record as soon as this process holds the lock, and
// gives up when done is closed. It is for messages, so that failing is no failure.
func recordSocket(dirs platform.Dirs, done <-chan struct{}) {
	ticker := time.NewTicker(5 * time.Millisecond) // it is a small file that is read
	defer ticker.Stop()
	for {
		if pid, ok := platform.LockHolder(filepath.Join(dirs.State, lockName)); ok && pid == os.Getpid() {
			_ = platform.WriteFileAtomic(filepath.Join(dirs.State, socketName), fmt.Appendf(nil, "%d\n%s\n", pid, dirs.Socket), 0o600)
			return
		}
		select {
		case <-ticker.C:
		case <-done:
			return
		}
	}
}

// elsewhere is the error of a daemon that lives but listens on another socket than
// the one of these directories, or nil. One that does not answer there either may
// be coming up or ending; it counts when patient is set.
func elsewhere(ctx context.Context, dirs platform.Dirs, patient bool) error {
	lock := filepath.Join(dirs.State, lockName)
	data, err := os.ReadFile(filepath.Join(dirs.State, socketName))
	if err != nil {
		return nil
	}
	first, rest, _ := strings.Cut(string(data), "\n")
	socket := strings.TrimSuffix(rest, "\n")
	recorded, err := strconv.Atoi(first)
	if pid, known := platform.LockHolder(lock); err != nil || !known || pid != recorded || socket == "" || socket == dirs.Socket {
		return nil
	}
	if conn, err := platform.Dial(ctx, socket); err == nil {
		conn.Close()
	} else if free, lockErr := lockIsFree(lock); !patient || lockErr != nil || free {
		return nil
	}
	return ipc.Errorf(ipc.CodeNoDaemon, "a daemon (process %d) runs, but listens on another socket than %s: %s", recorded, dirs.Socket, socket).
		WithHint("TOOLSD_SOCKET and XDG_RUNTIME_DIR decide which socket it is (TMPDIR too, where a path is too long): set them as they were when it started, or end it with `kill %d`", recorded)
}
