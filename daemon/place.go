package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toolsd/toolsd/platform"
)

// LockName is the state lock, in the state directory.
const LockName = "toolsd.lock"

// socketName is the daemon's own record of its socket, beside the lock: its pid
// and the path, a line each. A program whose variables lead to another socket
// learns from it that it waits in vain.
const socketName = "toolsd.socket"

// recordSocket writes the record. Only the holder of the lock may, and does so at
// once, since a daemon that comes up is found by it too. It is for messages, so
// that failing is no failure.
func recordSocket(dirs platform.Dirs) {
	_ = platform.WriteFileAtomic(filepath.Join(dirs.State, socketName), fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), dirs.Socket), 0o600)
}

// RecordedSocket returns which process last took the state lock and where it
// listens. A record of another process than the lock's is old, and none.
func RecordedSocket(dirs platform.Dirs) (pid int, socket string, ok bool) {
	data, err := platform.ReadState(filepath.Join(dirs.State, socketName))
	if err != nil {
		return 0, "", false
	}
	first, rest, _ := strings.Cut(string(data), "\n")
	socket = strings.TrimSuffix(rest, "\n")
	pid, err = strconv.Atoi(first)
	holder, known := platform.LockHolder(filepath.Join(dirs.State, LockName))
	return pid, socket, err == nil && known && holder == pid && socket != ""
}
