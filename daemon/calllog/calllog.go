// Package calllog keeps one line of JSON for each call of a tool: who called what,
// when, how long it took and how it ended. It never holds arguments or results,
// only their sizes and a hash of the arguments, by which equal calls can be told.
//
// A line is one write to a file opened for appending, so that a crash loses at
// most the last one. Nothing that goes wrong here fails a call: the line is lost,
// counted, and Problem says why. A Log is safe for concurrent use.
package calllog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
)

// Outcome says how a call ended.
type Outcome string

// The outcomes.
const (
	OK        Outcome = "ok"
	ToolError Outcome = "tool_error" // the tool's own isError
	RPCError  Outcome = "rpc_error"  // a JSON-RPC error of the server
	Refused   Outcome = "refused"    // never sent: unseen, arguments that do not fit, held
	Timeout   Outcome = "timeout"
	Cancelled Outcome = "cancelled" // by the caller
	Unknown   Outcome = "unknown"   // the connection was lost after it was sent
	Down      Outcome = "down"      // the server could not be reached
	Failed    Outcome = "failed"    // by a fault of the daemon itself
)

// outcomes are all of them, in the order in which Counts gives them.
var outcomes = [...]Outcome{OK, ToolError, RPCError, Refused, Timeout, Cancelled, Unknown, Down, Failed}

// Entry is one call.
type Entry struct {
	Time      time.Time `json:"time"` // when it began
	Session   string    `json:"session,omitempty"`
	Client    string    `json:"client,omitempty"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`
	Scope     string    `json:"scope,omitempty"`     // of the server: user or project; "" when nobody knew the tool
	Project   string    `json:"project,omitempty"`   // root of the one that brings the server
	Arguments string    `json:"arguments,omitempty"` // Digest of them
	BytesIn   int       `json:"bytes_in"`            // of the arguments
	BytesOut  int       `json:"bytes_out"`           // of the result
	MS        int64     `json:"ms"`
	Outcome   Outcome   `json:"outcome"`
}

// Digest tells equal arguments without holding them: 12 hex digits of their sha256.
func Digest(arguments []byte) string {
	sum := sha256.Sum256(arguments)
	return hex.EncodeToString(sum[:6])
}

const (
	// A line has about 200 bytes: 8 MB are 40,000 calls, and as many in the file
	// before.
	maxSize = 8 << 20
	// A name that a client made up must not make lines of any length. PIPE_BUF is
	// no limit for files, but a page keeps a torn line improbable.
	maxName = 200
	// After a failure the file is not tried for this long: a full disk must not
	// cost each call a few system calls.
	pause = time.Second
	// look is how often the file is looked for at its place: at each call it would
	// cost as much as the write.
	look = time.Second
)

// Log appends to one file.
type Log struct {
	path string

	mu      sync.Mutex // guards what follows; held over one write
	f       *os.File
	size    int64
	broken  bool // the last write was cut; the next line starts on a new one
	failed  time.Time
	looked  time.Time // that the open file is the one at path
	problem error
	lost    int
	closed  bool
	counts  map[Outcome]int64
}

// Open returns the log at path. The file is opened by the first Append, so that
// no failure of it can keep the daemon from starting.
func Open(path string) *Log { return &Log{path: path, counts: map[Outcome]int64{}} }

// Append adds an entry. It reports nothing: see Problem.
func (l *Log) Append(e Entry) {
	for _, s := range []*string{&e.Session, &e.Client, &e.Server, &e.Tool, &e.Arguments} {
		*s = short(*s)
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	line, err := json.Marshal(e)
	if err != nil {
		return // a year beyond 9999; there is nothing to write
	}
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[e.Outcome]++
	if l.closed {
		return
	}
	if err := l.write(line); err != nil {
		l.problem = err
		l.lost++
	} else {
		l.problem = nil
	}
}

func short(s string) string {
	s = tool.CleanLine(s)
	if len(s) > maxName {
		s = strings.ToValidUTF8(s[:maxName], "")
	}
	return s
}

// write appends one line. l.mu is held.
func (l *Log) write(line []byte) error {
	if l.problem != nil && time.Since(l.failed) < pause {
		return l.problem
	}
	err := l.ready(int64(len(line)))
	if err == nil {
		if l.broken {
			line = append([]byte{'\n'}, line...)
		}
		var n int
		n, err = l.f.Write(line)
		l.size += int64(n)
		if l.broken = n > 0 && n < len(line) || l.broken && n == 0; err == nil {
			return nil
		}
	}
	l.failed = time.Now()
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
	return fmt.Errorf("writing the call log: %w", err)
}

// ready opens the file and rotates it when n more bytes would be too many. A file
// that was moved or removed by someone is left alone and a new one begun.
func (l *Log) ready(n int64) error {
	if now := time.Now(); l.f != nil && now.Sub(l.looked) >= look {
		l.looked = now
		if there, err := os.Lstat(l.path); err != nil || !same(l.f, there) {
			l.f.Close()
			l.f = nil
		}
	}
	if l.f == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+n > maxSize {
		l.f.Close()
		l.f = nil
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
		return l.open()
	}
	return nil
}

func same(f *os.File, there os.FileInfo) bool {
	info, err := f.Stat()
	return err == nil && os.SameFile(info, there)
}

func (l *Log) open() error {
	f, err := platform.OpenPrivate(l.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size, l.looked = f, info.Size(), time.Now()
	l.broken = l.size > 0 && !endsLine(l.path, l.size)
	return nil
}

// endsLine reports whether the file's last byte ends a line; a daemon that was
// killed in the middle of a write leaves half of one.
func endsLine(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return err == nil && last[0] == '\n'
}

// Problem says why lines are lost at the moment, and how many were; empty when
// the last one was written.
func (l *Log) Problem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem == nil {
		return ""
	}
	return fmt.Sprintf("%v; %d calls are not in it", l.problem, l.lost)
}

// Counts are the calls since Open by outcome, whether or not they could be written.
func (l *Log) Counts() iter.Seq2[Outcome, int64] {
	l.mu.Lock()
	counts := maps.Clone(l.counts)
	l.mu.Unlock()
	return func(yield func(Outcome, int64) bool) {
		for _, o := range outcomes {
			if !yield(o, counts[o]) {
				return
			}
		}
	}
}

// Close ends the log; later entries are dropped.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// Read returns the last n entries of the log at path, oldest first; all for n ≤ 0.
// It works without a daemon and beside a writing one. Lines that are torn or not
// entries are left out. A log that is not there has none.
func Read(path string, n int) ([]Entry, error) {
	out := []Entry{}
	older, err := readFile(path + ".1")
	if err != nil {
		return nil, err
	}
	newer, err := readFile(path)
	if err != nil {
		return nil, err
	}
	out = append(append(out, older...), newer...)
	if n > 0 && len(out) > n {
		out = out[len(out)-n:]
	}
	return out, nil
}

var errLink = errors.New("it is not a regular file")
