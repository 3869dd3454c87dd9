package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// ErrNoDaemon says that nobody listens: the socket is not there, or is what a
// daemon that is gone left behind.
var ErrNoDaemon = errors.New("no daemon runs")

// Listen binds the socket, 0600. The caller holds the state lock, and gives it
// up only after Close: that makes it safe to remove a stale socket here. Only a
// socket is removed; anything else at path is an *UnfitError.
//
// Accept returns connections of the same user only; others are closed before a
// byte is read. Close removes the socket only when it is still this one.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, &UnfitError{path, fmt.Sprintf("is %d bytes long; a socket's path has at most %d", len(path), maxSocketPath), "set TOOLSD_SOCKET to a shorter path"}
	}
	if err := checkSocketDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, unusable(path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, &UnfitError{path, "is in the place of the socket and is none", "move it away"}
	default:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unusable(path, err)
		}
	}
	config := net.ListenConfig{Control: privateSocket}
	inner, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("binding the socket: %w", err)
	}
	l := &listener{UnixListener: inner.(*net.UnixListener), path: path}
	l.SetUnlinkOnClose(false)
	if runtime.GOOS != "windows" {
		err = os.Chmod(path, 0o600)
	}
	if err == nil {
		l.bound, err = os.Lstat(path)
	}
	if err != nil {
		l.UnixListener.Close()
		return nil, fmt.Errorf("binding the socket: %w", err)
	}
	return l, nil
}

// Bound reports whether the socket's path still leads to a listener that Listen
// returned. Somebody may have removed the file, and then nobody can connect.
func Bound(l net.Listener) bool {
	own, ok := l.(*listener)
	if !ok {
		return true
	}
	there, err := os.Lstat(own.path)
	return err == nil && os.SameFile(there, own.bound)
}

type listener struct {
	*net.UnixListener
	path  string
	bound os.FileInfo
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if samePeer(conn) == nil {
			return conn, nil
		}
		conn.Close()
	}
}

func (l *listener) Close() error {
	// The listener still holds the inode, so its number is not another
	// socket's.
	l.once.Do(func() {
		if there, err := os.Lstat(l.path); err == nil && os.SameFile(there, l.bound) {
			os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}

// dialPatience bounds the wait for room in the daemon's queue. Linux does not wait
// for it, and a crowd of agents that start at once can fill the queue for a
// moment. 2 s is what a daemon has for the handshake that follows.
const dialPatience = 2 * time.Second

func dialPatiently(ctx context.Context, path string) (net.Conn, error) {
	deadline := time.Now().Add(dialPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil || !backlogFull(err) || time.Now().After(deadline) {
			return conn, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Dial connects to the daemon. errors.Is(err, ErrNoDaemon): none runs, one can
// be started. An *UnfitError: the place is not to be trusted, or another user
// listens there; starting a daemon does not help.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > maxSocketPath {
		return nil, &UnfitError{path, fmt.Sprintf("is %d bytes long; a socket's path has at most %d", len(path), maxSocketPath), "set TOOLSD_SOCKET to a shorter path"}
	}
	if err := checkSocketDir(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("connecting to %s: %w", path, ErrNoDaemon)
	} else if err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("connecting to %s: %w", path, ErrNoDaemon)
	case err != nil:
		return nil, unusable(path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, &UnfitError{path, "is in the place of the socket and is none", "move it away"}
	case !isOurs(info):
		return nil, &UnfitError{path, "belongs to another user", "set TOOLSD_SOCKET to a place of your own"}
	}
	conn, err := dialPatiently(ctx, path)
	switch {
	case err == nil:
	case backlogFull(err):
		return nil, fmt.Errorf("connecting to %s: the daemon there takes no connections: %w", path, err)
	case errors.Is(err, fs.ErrNotExist), refused(err):
		return nil, fmt.Errorf("connecting to %s: %w", path, ErrNoDaemon)
	default:
		return nil, err
	}
	if err := samePeer(conn.(*net.UnixConn)); err != nil {
		conn.Close()
		return nil, &UnfitError{path, "is served by a process of another user: " + err.Error(), "set TOOLSD_SOCKET to a place of your own"}
	}
	return conn, nil
}
