//go:build unix

package platform

import (
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// WriteNow writes b to a pipe or a socket as far as that takes no waiting, and
// returns how much that was. A pipe takes all or nothing. Nobody else may write
// meanwhile; what is left, and what is wrong, is for Write.
func WriteNow(w io.Writer, b []byte) (n int) {
	c, ok := w.(syscall.Conn)
	if _, pipe := w.(*os.File); !ok || pipe && len(b) > pipeBuf() {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		n, _ = unix.Write(int(fd), b)
		return true // once, whatever came of it
	})
	return max(n, 0)
}

// pipeBuf is PIPE_BUF, the largest write that a pipe takes whole or not at all:
// what POSIX guarantees, and what Linux does.
func pipeBuf() int {
	if runtime.GOOS == "linux" {
		return 4096
	}
	return 512
}
