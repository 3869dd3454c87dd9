package upstream

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// tailLines is how much of a server's stderr is kept in memory: what a
	// person wants to see beside a failure.
	tailLines = 50
	// maxTailLine cuts what is kept of one line.
	maxTailLine = 1 << 10
	// maxStderrLine splits endless lines, so that they need no more memory.
	maxStderrLine = 64 << 10
	// maxLog rotates a server's log. With the one old file that is kept, 44
	// talkative servers stay under 100 MB.
	maxLog = 1 << 20
)

// LogFile is the stderr log of the server of that key. Keys, not names: two
// projects may have a server of one name, and neither may read the other's.
func LogFile(dir, key string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || r < ' ' || strings.ContainsRune(`<>"|?*`, r) {
			return '_'
		}
		return r
	}, key)
	if strings.Trim(safe, ".") == "" {
		safe = "_" + safe
	}
	// File systems take 255 bytes, a server's name may be longer. What was changed
	// could be the name of another one.
	if safe = cut(safe, 200); safe != key {
		sum := sha256.Sum256([]byte(key))
		safe += "-" + hex.EncodeToString(sum[:4])
	}
	return filepath.Join(dir, safe+".log")
}

// OldLogFile is what came before in a log that became too long.
func OldLogFile(file string) string { return file + ".1" }

// stderrLog keeps the last lines of a server's stderr and writes all of them to
// its log, cleaned and redacted. It outlives the server's processes.
type stderrLog struct {
	clean cleaner
	file  *logFile // nil: no log

	mu   sync.Mutex
	tail []string
}

// drain reads r to its end. It never stops before: a full pipe would block the
// server.
func (s *stderrLog) drain(r io.Reader) {
	br := bufio.NewReaderSize(r, 4<<10)
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if err == bufio.ErrBufferFull && len(line) < maxStderrLine {
			continue
		}
		if text := s.clean.line(string(line)); text != "" {
			s.add(text)
		}
		line = line[:0]
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

func (s *stderrLog) add(text string) {
	s.mu.Lock()
	if len(s.tail) >= tailLines {
		s.tail = append(s.tail[:0], s.tail[1:]...)
	}
	s.tail = append(s.tail, cut(text, maxTailLine))
	s.mu.Unlock()
	if s.file != nil {
		s.file.write(text)
	}
}

// mark writes a line of our own, so that the log tells the runs apart.
func (s *stderrLog) mark(format string, args ...any) {
	if s.file != nil {
		s.file.write("--- " + s.clean.line(fmt.Sprintf(format, args...)))
	}
}

func (s *stderrLog) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tail...)
}

// forget empties the memory before a new process starts: the last words of an
// earlier one would mislead.
func (s *stderrLog) forget() {
	s.mu.Lock()
	s.tail = nil
	s.mu.Unlock()
}

// logFile appends lines to a file and rotates it. It is opened by the first
// line and shared by all processes of a server.
type logFile struct {
	path string

	mu     sync.Mutex
	users  int
	f      *os.File
	size   int64
	broken bool // could not be opened; tried again by the next user
}

func (l *logFile) write(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 || l.broken {
		return
	}
	if l.f == nil || l.size > maxLog {
		l.open()
	}
	if l.f == nil {
		l.broken = true // a log that cannot be written harms nobody else
		return
	}
	n, _ := fmt.Fprintf(l.f, "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), text)
	l.size += int64(n)
}

func (l *logFile) open() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
	if info, err := os.Lstat(l.path); err == nil {
		if !info.Mode().IsRegular() {
			return // a link would have us write elsewhere
		}
		l.size = info.Size()
		if l.size > maxLog && os.Rename(l.path, OldLogFile(l.path)) == nil {
			l.size = 0
		}
	}
	if os.MkdirAll(filepath.Dir(l.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Chmod(0o600) // one that was there with a wider mode
	l.f = f
}

// logFiles are the open logs of a Set.
type logFiles struct {
	mu     sync.Mutex
	byPath map[string]*logFile
}

// use returns the log at path until the returned function is called.
func (l *logFiles) use(path string) (*logFile, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.byPath[path]
	if f == nil {
		f = &logFile{path: path}
		l.byPath[path] = f
	}
	f.mu.Lock()
	f.users++
	f.broken = false
	f.mu.Unlock()
	return f, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users--; f.users == 0 {
			if f.f != nil {
				f.f.Close()
				f.f = nil
			}
			delete(l.byPath, path)
		}
	}
}
