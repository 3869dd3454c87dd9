package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/toolsd/toolsd/daemon"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// elsewhereAfter is how long a daemon that holds the lock and answers at no socket
// counts as one that comes up or ends, though its record names another socket.
const elsewhereAfter = 2 * time.Second

// elsewhere is the error of a daemon that lives but listens on another socket than
// the one of these directories, or nil. One that does not answer there either may
// be coming up or ending; it counts when patient is set.
func elsewhere(ctx context.Context, dirs platform.Dirs, patient bool) error {
	lock := filepath.Join(dirs.State, lockName)
	pid, socket, known := daemon.RecordedSocket(dirs)
	if !known || socket == dirs.Socket {
		return nil
	}
	if conn, err := platform.Dial(ctx, socket); err == nil {
		conn.Close()
	} else if free, lockErr := lockIsFree(lock); !patient || lockErr != nil || free {
		return nil
	}
	return ipc.Errorf(ipc.CodeNoDaemon, "a daemon (process %d) runs, but listens on another socket than %s: %s", pid, dirs.Socket, socket).
		WithHint("TOOLSD_SOCKET and XDG_RUNTIME_DIR decide which socket it is (TMPDIR too, where a path is too long): set them as they were when it started, or end it with `kill %d`", pid)
}
