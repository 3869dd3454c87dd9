package trust

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsd/toolsd/platform"
)

// Subject identifies a server over the changes of its definition: the key that
// the watcher gives to its place.
type Subject string

// Store is the state on the disk and in memory.
type Store struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex // held over a change and its write, never by a reader
	unsaved bool       // memory is ahead of the disk; guarded by mu
	unfit   [2]bool    // what is at the two paths is not ours to overwrite; guarded by mu

	now    atomic.Pointer[state]  // never changed after it was stored
	behind atomic.Pointer[string] // why memory is ahead of the disk; nil when it is not
}

// Open reads the state at path. It always returns a Store: one that approves
// nothing where the file is not fit, which Problem then says.
//
// The copy (path.prev) is read too. It is written after the file, with the same
// counter of writes, so a file that was lost, damaged or replaced by an older one
// does not bring back what was revoked. Approvals are taken from the file itself
// only, and only when the copy is not newer.
func Open(path string, log *slog.Logger) *Store {
	s := &Store{path: path, log: log}
	file, err := readState(path)
	copied, copyErr := readState(path + prevSuffix)
	s.unfit = [2]bool{isUnfit(err), isUnfit(copyErr)}
	if s.unfit[1] {
		log.Warn("the previous copy of the approvals is not fit", "cause", copyErr)
	}
	loaded := newState()
	switch {
	case err == nil && (copyErr != nil || copied.Writes <= file.Writes):
		loaded = file
	case errors.Is(err, errAbsent) && errors.Is(copyErr, errAbsent): // the first start
	case err == nil:
		loaded = copied.withoutApprovals()
		loaded.Lost = fmt.Sprintf("%s is older than its copy, so somebody put it back; nothing is approved", path)
	case copyErr == nil:
		loaded = copied.withoutApprovals()
		loaded.Lost = fmt.Sprintf("%v; nothing is approved", err)
	default:
		// Which servers of the user's own files were revoked is lost with the
		// two files, so those wait as well.
		loaded.Closed = true
		loaded.Lost = fmt.Sprintf("%v; nothing is approved, and every server waits", err)
	}
	if loaded.Lost != "" {
		log.Error("reading the approvals", "problem", loaded.Lost)
	}
	s.now.Store(loaded)
	return s
}

// Problem says what is wrong with the file; empty when nothing is. That
// approvals were lost is said until the user approved something again.
func (s *Store) Problem() string {
	if b := s.behind.Load(); b != nil {
		return *b
	}
	return s.now.Load().Lost
}

// Hint says what to do about Problem.
func (s *Store) Hint() string {
	if s.behind.Load() != nil {
		return "make room on the disk; the daemon tries again by itself"
	}
	if s.now.Load().Lost != "" {
		return "look at what waits with `toolsd trust list`, then approve with `toolsd trust <server>` or `toolsd trust --all`"
	}
	return ""
}

// Approved reports whether the user approved this server as it is now.
func (s *Store) Approved(subject Subject, fp Fingerprint) bool {
	a, ok := s.now.Load().Approved[subject]
	return ok && fp != "" && a.Fingerprint == fp
}

// Revoked reports whether a server must not run even where no approval is asked
// for: the user said so, or what the user said is lost. An approval that was
// given after that ends it, for the approved fingerprint.
func (s *Store) Revoked(subject Subject) bool {
	now := s.now.Load()
	if _, ok := now.Revoked[subject]; ok {
		return true
	}
	_, approved := now.Approved[subject]
	return now.Closed && !approved
}

// Last returns what was approved last for a server, or was before the approval
// was revoked or lost, to show what is different now.
func (s *Store) Last(subject Subject) (Details, bool) {
	now := s.now.Load()
	if a, ok := now.Approved[subject]; ok {
		return a.Details, true
	}
	a, ok := now.Former[subject]
	return a.Details, ok
}

// Projects returns the roots of the projects that have an approved server, sorted.
func (s *Store) Projects() []string {
	roots := map[string]bool{}
	for _, a := range s.now.Load().Approved {
		if a.Details.Root != "" {
			roots[a.Details.Root] = true
		}
	}
	return slices.Sorted(maps.Keys(roots))
}

// Approval is one server that the user approved.
type Approval struct {
	Subject     Subject
	Fingerprint Fingerprint
	Details     Details
}

// Approve lets a server run as long as its fingerprint stays. It is given only
// when it is on the disk: after an error nothing was approved.
func (s *Store) Approve(subject Subject, fp Fingerprint, d Details) error {
	return s.approve([]Approval{{subject, fp, d}}, false)
}

// ApproveAll approves every server of the list, or none. It is the user's answer
// to all that waits, so it also ends the state in which every server waits
// because the file was lost.
func (s *Store) ApproveAll(list []Approval) error { return s.approve(list, true) }

func (s *Store) approve(list []Approval, all bool) error {
	for _, a := range list {
		if a.Fingerprint == "" {
			return fmt.Errorf("the approval was not given: %s", cmp.Or(a.Details.Unfit, "the server has no fingerprint"))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now.Load().clone()
	for _, a := range list {
		if before, ok := next.Approved[a.Subject]; !ok || before.Fingerprint != a.Fingerprint {
			delete(next.Tools, a.Subject) // another program: the approval is for what it lists first
		}
		next.Approved[a.Subject] = approval{a.Fingerprint, a.Details, today()}
		delete(next.Revoked, a.Subject)
		delete(next.Former, a.Subject)
	}
	if all {
		next.Closed = false
	}
	if !next.Closed {
		next.Lost = ""
	}
	if err := s.grant(next); err != nil {
		return fmt.Errorf("the approval was not given: %w", err)
	}
	return nil
}

// grant publishes a state that allows more than the present one, once the file
// has it. A copy that could not be written is written later: it grants nothing.
// s.mu is held.
func (s *Store) grant(next *state) error {
	next.Writes++
	if err := s.write(0, next); err != nil {
		return err
	}
	s.now.Store(next)
	if err := s.write(1, next); err != nil {
		s.unsaved = true
		s.log.Warn("writing the copy of the approvals", "cause", err)
		return nil
	}
	s.unsaved = false
	s.behind.Store(nil)
	return nil
}

// Revoke takes back the approval of a server and keeps it from running, whatever
// scope it has, until it is approved again. It holds in memory at once. An error
// says what the disk does not have; the store tries again with every later change
// and with Sync.
func (s *Store) Revoke(subject Subject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now.Load().clone()
	if a, ok := next.Approved[subject]; ok {
		next.Former[subject] = a
		delete(next.Approved, subject)
	}
	delete(next.Tools, subject)
	next.Revoked[subject] = today()
	next.Writes++
	s.now.Store(next)
	return s.flush()
}

// Sync writes what an earlier change could not. It is cheap when there is nothing.
func (s *Store) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsaved {
		return nil
	}
	return s.flush()
}

// flush writes the state in memory to the file and the copy. What cannot be
// written is emptied, which needs no space on the disk: the next start then
// approves nothing rather than what was revoked. s.mu is held.
func (s *Store) flush() error {
	now := s.now.Load()
	err, errCopy := s.write(0, now), s.write(1, now)
	if err == nil && errCopy == nil {
		s.unsaved = false
		s.behind.Store(nil)
		return nil
	}
	s.unsaved = true
	var voided error
	if err != nil {
		voided = empty(s.path)
	}
	if errCopy != nil {
		voided = errors.Join(voided, empty(s.path+prevSuffix))
	}
	switch {
	case voided != nil:
		err = fmt.Errorf("it holds only until the daemon ends, because it could not be written: %w", errors.Join(err, errCopy))
	case err != nil:
		err = fmt.Errorf("it holds, but could not be written, so the next start will approve nothing: %w", err)
	default:
		err = fmt.Errorf("it holds and was written, but not its copy: %w", errCopy)
	}
	text := "taking back an approval: " + err.Error()
	s.behind.Store(&text)
	s.log.Error("writing the approvals", "cause", err)
	return err
}

// write puts a state into the file (0) or its copy (1). What is there and was not
// written by this package is moved aside first, for a person to look at.
func (s *Store) write(which int, st *state) error {
	data, err := encodeState(st)
	if err != nil {
		return err
	}
	path := s.path
	if which == 1 {
		path += prevSuffix
	}
	if s.unfit[which] {
		if err := os.Rename(path, path+".unfit"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("moving the unfit file aside: %w", err)
		}
		s.unfit[which] = false
	}
	return platform.WriteFileAtomic(path, data, 0o600)
}

func today() time.Time { return time.Now().UTC().Truncate(time.Second) }
