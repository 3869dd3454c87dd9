//go:build unix

package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK // a fifo in the place of a file must not block

func ownerOf(info fs.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return ^uint32(0)
}

func isOurs(info fs.FileInfo) bool { return ownerOf(info) == uint32(os.Geteuid()) }

func ownedByAnother(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && !isOurs(info)
}

func explainOpen(path string, err error) error {
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) { // EMLINK: FreeBSD
		return &UnfitError{path, "is a symbolic link, and is not followed", "remove the link: rm " + shellQuote(path)}
	}
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) { // ENXIO: a fifo or a socket
		return notRegular(path)
	}
	return err
}

func backlogFull(err error) bool { return errors.Is(err, syscall.EAGAIN) }

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a directory, and say EINVAL.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// privateSocket gives the socket its mode before it has a name, so that the
// file is never wider than 0600 whatever the umask; Linux does that, elsewhere
// the directory protects it until the chmod.
func privateSocket(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
}

func samePeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var uid uint32
	var sockErr error
	if err := raw.Control(func(fd uintptr) { uid, sockErr = peerUID(int(fd)) }); err != nil {
		return err
	}
	if sockErr != nil {
		return fmt.Errorf("asking for the peer's user: %w", sockErr)
	}
	if uid != uint32(os.Geteuid()) {
		return fmt.Errorf("its uid is %d, yours is %s", uid, userID())
	}
	return nil
}

// homeDir is HOME, or what the user data base says when a service manager
// started us without.
func homeDir(getenv func(string) string) (string, error) {
	if h := getenv("HOME"); filepath.IsAbs(h) {
		return h, nil
	}
	if u, err := user.LookupId(userID()); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir, nil
	}
	if e, ok := passwd(); ok && filepath.IsAbs(e.home) {
		return e.home, nil
	}
	return "", errors.New("HOME is not set, and the user data base names no home directory for uid " + userID())
}

// canExecute asks the kernel: the mode alone does not say for whom.
func canExecute(path string) bool { return unix.Access(path, unix.X_OK) == nil }

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
