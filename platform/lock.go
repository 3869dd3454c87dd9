package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// ErrLocked says that another process holds the lock: a daemon runs.
var ErrLocked = errors.New("another toolsd holds the lock")

// Lock is the state lock. Who holds it is the daemon; only it may bind or
// unlink the socket and sweep what an earlier daemon left.
type Lock struct {
	path string
	lock *flock.Flock
}

// AcquireLock takes the lock at path without waiting; errors.Is(err, ErrLocked)
// when another holds it, fs.ErrNotExist when there is no such directory, and an
// *UnfitError when what is at path cannot be locked. The kernel drops it when the process ends, however it
// ends. The file stays and names the last holder's pid, for people.
func AcquireLock(path string) (*Lock, error) {
	for {
		l := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openNoFollow), flock.SetPermissions(0o600))
		ok, err := l.TryLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("locking: %w", err)
		case err != nil:
			if err = explainOpen(path, err); !isUnfit(err) {
				err = unusable(path, err)
			}
			return nil, fmt.Errorf("locking: %w", err)
		}
		if !ok {
			l.Close()
			return nil, fmt.Errorf("locking %s: %w", path, ErrLocked)
		}
		// Someone may have removed the file between the open and the lock; then
		// another process can lock the new file at that path.
		locked, err := l.Stat()
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !locked.Mode().IsRegular() {
			l.Close()
			return nil, notRegular(path)
		}
		there, err := os.Lstat(path)
		if err != nil || !os.SameFile(locked, there) {
			l.Close()
			continue
		}
		writePID(path)
		return &Lock{path, l}, nil
	}
}

// Held reports whether the file at the lock's path is still the locked one. Where
// it is not, another process can lock the new file and be a daemon too.
func (l *Lock) Held() bool {
	locked, err := l.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(l.path)
	return err == nil && os.SameFile(locked, there)
}

// writePID is for people, so that failing to is no failure.
func writePID(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|openNoFollow, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if f.Truncate(0) == nil {
		_, _ = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}
}

// Release gives the lock up. The file stays: removing it would let two
// processes lock two files of one name.
func (l *Lock) Release() error {
	if err := l.lock.Close(); err != nil {
		return fmt.Errorf("releasing %s: %w", l.path, err)
	}
	return nil
}

// LockHolder is the process that last took the lock at path, which need not
// live any more. It is for messages, never for a decision.
func LockHolder(path string) (pid int, ok bool) {
	data, err := ReadState(path)
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return pid, err == nil && pid > 0
}
