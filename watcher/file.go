package watcher

import (
	"slices"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// grace is how long a file may be missing or empty before its servers go. It is
// part of the contract: editors and dotfile tools remove a file and write it anew.
const grace = 10 * time.Second

// file is a watched file with what is known of it. The methods are pure but for
// the time, which is given: what the file says now is a function of the looks at
// it and of when they were.
type file struct {
	loc  clientconfig.Location
	kind kind
	seen

	content clientconfig.Content // last good
	text    []byte               // last good text, of toolsd's own files and of values
	names   []string             // of a pattern: the paths that it matches
	matched []string             // of a pattern: those that are watched
	fault   []clientconfig.Problem
	known   bool      // was looked at
	present bool      // existed at the last look
	absent  time.Time // since when it has been missing or empty; zero while it is neither

	busy  bool // a look at it is under way
	slow  bool // and takes so long that it is a problem
	force bool // its next look must not trust the time stamp
}

// kind is what a file is read for.
type kind int

const (
	servers kind = iota
	own          // servers and settings: config.json and the managed file
	values       // a file whose text an entry uses: envFile, {file:…}
)

// apply takes over what a look found. It reports whether the file says something
// else now.
func (f *file) apply(l look, now time.Time) (changed bool) {
	wasSlow := f.slow
	first := !f.known
	f.seen, f.known, f.busy, f.slow = l.seen, true, false, false
	hadFault := len(f.fault) > 0
	f.present = l.outcome != gone
	switch l.outcome {
	case same:
		if !f.absent.IsZero() {
			changed = f.expire(now)
		}
	case gone, empty:
		f.fault, changed = nil, hadFault
		if f.absent.IsZero() {
			f.absent = now
			if first {
				f.absent = now.Add(-grace) // nothing to keep
			}
		}
		if l.outcome == gone {
			f.names = nil
		}
		changed = f.expire(now) || changed
	case good:
		changed = !f.loc.Glob || hadFault || !slices.Equal(f.names, l.names)
		f.content, f.text, f.names, f.fault, f.absent = l.content, l.text, l.names, nil, time.Time{}
	case bad:
		changed = !slices.Equal(f.fault, l.content.Problems)
		f.fault, f.absent = l.content.Problems, time.Time{}
		if l.text != nil {
			f.text, changed = l.text, true
		}
	}
	return changed || wasSlow
}

// expire drops the servers of a file that has been missing or empty for longer
// than the grace. It reports whether the file says something else now.
func (f *file) expire(now time.Time) bool {
	if f.absent.IsZero() || now.Sub(f.absent) < grace {
		return false
	}
	changed := f.holds()
	f.content, f.text = clientconfig.Content{}, nil
	if f.present && f.kind != values && len(f.fault) == 0 {
		f.fault = []clientconfig.Problem{problem(f.loc, "the file is empty", "write {} into it if it shall define nothing")}
		changed = true
	}
	return changed
}

// holds reports whether the file's last good content says anything.
func (f *file) holds() bool {
	return len(f.content.Servers)+len(f.content.Problems)+len(f.content.Rejected) > 0 || f.text != nil
}

// deadline is when expire will have something to do.
func (f *file) deadline() (time.Time, bool) {
	if f.absent.IsZero() || !f.holds() {
		return time.Time{}, false
	}
	return f.absent.Add(grace), true
}

// problems are those of the file: of its last good content, or why it cannot be
// read now.
func (f *file) problems() []clientconfig.Problem {
	switch {
	case f.kind == values:
		return nil // its entry says what it lacks
	case f.slow:
		return []clientconfig.Problem{problem(f.loc, "reading the file takes too long",
			"is the file system it is on still there?")}
	case len(f.fault) > 0:
		return f.fault
	}
	return f.content.Problems
}
