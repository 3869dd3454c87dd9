package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/toolsd/toolsd/platform"
)

// maxLog is how long the log may get before it is moved aside. Two files of
// 4 MiB hold some weeks of an ordinary daemon, and both together can be sent.
const maxLog = 4 << 20

// rotatingLog is a log file of bounded size: path, and path.1 with what was
// before. It never fails its caller, since a daemon must live on a full disk.
type rotatingLog struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

func newRotatingLog(path string) *rotatingLog { return &rotatingLog{path: path} }

func (l *rotatingLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size+int64(len(p)) > maxLog {
		l.file.Close()
		l.file = nil
		_ = os.Rename(l.path, l.path+".1") // else it grows on, and the next line tries again
	}
	if l.file == nil {
		file, err := platform.OpenPrivate(l.path)
		if err != nil {
			return len(p), nil
		}
		l.file, l.size = file, sizeOf(l.path)
	}
	n, _ := l.file.Write(p)
	l.size += int64(n)
	return len(p), nil
}

func (l *rotatingLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return fmt.Errorf("closing %s: %w", l.path, err)
	}
	return nil
}
