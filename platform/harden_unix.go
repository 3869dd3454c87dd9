//go:build unix

package platform

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// umaskBefore is the umask that Harden found, plus one; 0 before Harden.
var umaskBefore atomic.Int64

// Harden shields what this process knows from the disk and from other processes
// of the machine: no core dumps, on Linux no reading of its memory by others of
// the same user, a umask of 077 for what it writes, and no inherited descriptor
// for what it starts. A process calls it once, first. Servers get the umask back that was there before: their files are the
// user's.
func Harden() error {
	umaskBefore.Store(int64(syscall.Umask(0o077)) + 1)
	sealDescriptors(3)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("switching core dumps off: %w", err)
	}
	limit.Cur = 0 // the hard limit stays: a server may ask for its own dumps again
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("switching core dumps off: %w", err)
	}
	if err := notDumpable(); err != nil {
		return fmt.Errorf("closing this process's memory to others: %w", err)
	}
	return nil
}

// inheritedUmask is the one for servers.
func inheritedUmask() int {
	if v := umaskBefore.Load(); v > 0 {
		return int(v - 1)
	}
	v := syscall.Umask(0o077) // the only way to read it is to set it
	syscall.Umask(v)
	return v
}

func sealEach(from int) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= from {
			syscall.CloseOnExec(fd)
		}
	}
}

// shieldKeeper is Harden for the keeper, which reads the environment of servers
// from the socket.
func shieldKeeper() { _ = notDumpable() }
