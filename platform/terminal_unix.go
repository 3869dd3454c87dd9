//go:build unix

package platform

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether f is a terminal. /dev/null and other devices are
// none: only a terminal has a window size.
func IsTerminal(f *os.File) bool {
	_, ok := windowSize(f)
	return ok
}

// TerminalWidth is the number of columns of the terminal f; 0 when it is not
// known.
func TerminalWidth(f *os.File) int {
	size, _ := windowSize(f)
	return int(size.Col)
}

// windowSize leaves f as non-blocking as it is, which File.Fd does not.
func windowSize(f *os.File) (size unix.Winsize, ok bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return size, false
	}
	_ = conn.Control(func(fd uintptr) {
		if s, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			size, ok = *s, true
		}
	})
	return size, ok
}
