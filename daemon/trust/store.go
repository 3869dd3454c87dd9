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

// Decisions are what the user decided, and what was seen. They take no lock and do
// no I/O.
type Decisions struct {
	now atomic.Pointer[state] // never changed after it was stored
}

// Store is the state on the disk and in memory.
type Store struct {
	Decisions
	path string
	log  *slog.Logger

	mu   sync.Mutex // held over a change and its write, never by a reader
	disk [2]onDisk  // the file and its copy; guarded by mu

	fault atomic.Pointer[string] // what could not be written; nil when all is
}

// onDisk is how one of the two files differs from the state in memory.
type onDisk struct {
	unfit  bool // not written by us: moved aside before it is replaced
	behind bool // older than memory
	allows bool // and it would let run what memory does not
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
	file, copied := readKept(path), readKept(path+prevSuffix)
	s.disk = [2]onDisk{{unfit: isUnfit(file.err)}, {unfit: isUnfit(copied.err)}}
	if s.disk[1].unfit {
		log.Warn("the previous copy of the approvals is not fit", "cause", copied.err)
	}
	loaded := together(path, file, copied)
	s.now.Store(loaded)
	// Both files are made whole at once, so that a second fault does not bring
	// back what the first one left on the disk.
	if loaded == file.state {
		s.disk[1].behind = copied.err != nil
	} else if loaded.Lost != "" {
		log.Error("reading the approvals", "problem", loaded.Lost)
		s.disk[0] = onDisk{unfit: !errors.Is(file.err, errAbsent), behind: true, allows: file.err == nil}
		s.disk[1].behind = true
		loaded.Writes++
	}
	if err := s.Sync(); err != nil {
		log.Error("writing the approvals", "cause", err)
	}
	return s
}

// Read returns what Open would find at path, and writes nothing: for who is not
// the owner of the files.
func Read(path string) *Decisions {
	d := new(Decisions)
	d.now.Store(together(path, readKept(path), readKept(path+prevSuffix)))
	return d
}

// kept is one of the two files as it was read.
type kept struct {
	state *state // nil with err
	err   error
}

func readKept(path string) kept {
	s, err := readState(path)
	return kept{s, err}
}

// together is what the file and its copy say, as Open promises it. It is the
// file's own state, or a new one.
func together(path string, file, copied kept) *state {
	loaded := newState()
	switch {
	case file.err == nil && (copied.err != nil || copied.state.Writes <= file.state.Writes):
		loaded = file.state
	case errors.Is(file.err, errAbsent) && errors.Is(copied.err, errAbsent): // the first start
	case file.err == nil:
		loaded = copied.state.withoutApprovals()
		loaded.Lost = fmt.Sprintf("%s is older than its copy, so somebody put it back; nothing is approved", path)
	case copied.err == nil:
		loaded = copied.state.withoutApprovals()
		loaded.Lost = fmt.Sprintf("%v; nothing is approved", file.err)
	default:
		// Which servers of the user's own files were revoked is lost with the
		// two files, so those wait as well.
		loaded.Closed = true
		loaded.Lost = fmt.Sprintf("%v; nothing is approved, and every server waits", file.err)
	}
	return loaded
}

// Problem says what is wrong with the file; empty when nothing is. That
// approvals were lost is said until the user approved something again.
func (s *Store) Problem() string {
	if f := s.fault.Load(); f != nil {
		return *f
	}
	return s.now.Load().Lost
}

// Hint says what to do about Problem.
func (s *Store) Hint() string {
	if s.fault.Load() != nil {
		return "make room on the disk; the daemon tries again by itself"
	}
	if s.now.Load().Lost != "" {
		return "look at what waits with `toolsd trust list`, then approve with `toolsd trust <server>` or `toolsd trust --all`"
	}
	return ""
}

// Approved reports whether the user approved this server as it is now.
func (d *Decisions) Approved(subject Subject, fp Fingerprint) bool {
	a, ok := d.now.Load().Approved[subject]
	return ok && fp != "" && a.Fingerprint == fp
}

// HasApproval reports whether the user approved this server, be it as it was
// earlier.
func (d *Decisions) HasApproval(subject Subject) bool {
	_, ok := d.now.Load().Approved[subject]
	return ok
}

// Barred reports whether a server must not run even where no approval is asked
// for: the user said so, or what the user said is lost. An approval that was
// given after that ends it, for the approved fingerprint.
func (d *Decisions) Barred(subject Subject) bool {
	now := d.now.Load()
	_, approved := now.Approved[subject]
	return d.Revoked(subject) || now.Closed && !approved
}

// Revoked reports whether the user took the approval of a server back.
func (d *Decisions) Revoked(subject Subject) bool {
	_, ok := d.now.Load().Revoked[subject]
	return ok
}

// Last returns what was approved last for a server, or was before the approval
// was revoked or lost, to show what is different now.
func (d *Decisions) Last(subject Subject) (Details, bool) {
	now := d.now.Load()
	if a, ok := now.Approved[subject]; ok {
		return a.Details, true
	}
	a, ok := now.Former[subject]
	return a.Details, ok
}

// Rules are the settings that make something wait.
type Rules struct {
	Ask  bool `json:"ask"`  // trust.userScope is ask
	Hold bool `json:"hold"` // trust.tools is hold
}

// Rules returns what SetRules was given last, by an earlier daemon perhaps.
func (d *Decisions) Rules() Rules { return d.now.Load().Rules }

// SetRules remembers the settings, for a start at which their file cannot be read:
// a config.json that a full disk cut off must not let everything run. It is cheap
// when they are the same.
func (s *Store) SetRules(r Rules) error {
	if s.Rules() == r {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now.Load().clone()
	next.Rules = r
	next.Writes++
	s.now.Store(next)
	s.disk[0].behind, s.disk[1].behind = true, true
	return s.flush()
}

// Projects returns the roots of the projects that have an approved server, sorted.
func (d *Decisions) Projects() []string {
	roots := map[string]bool{}
	for _, a := range d.now.Load().Approved {
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

// Approve lets every server of the list run as long as its fingerprint stays, or
// none of them. It is given only when it is on the disk: after an error nothing was
// approved. last says that nothing else waits, which ends the state in which every
// server waits because the file was lost.
func (s *Store) Approve(list []Approval, last bool) error {
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
	if last {
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
		// The content may be there although the last step failed; what was refused
		// must not hold after a restart.
		if there, readErr := readState(s.path); readErr == nil && there.Writes == next.Writes {
			old := s.now.Load().clone()
			old.Writes = next.Writes + 1
			s.now.Store(old)
			s.disk = [2]onDisk{{behind: true, allows: true}, {behind: true}}
			s.flush()
		}
		return err
	}
	s.now.Store(next)
	s.disk[1].behind = true
	if err := s.flush(); err != nil {
		s.log.Warn("writing the copy of the approvals", "cause", err)
	}
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
	for i := range s.disk {
		s.disk[i].behind, s.disk[i].allows = true, true
	}
	err := s.flush()
	if err != nil {
		s.log.Error("writing the approvals", "cause", err)
	}
	return err
}

// Sync writes what an earlier change could not. It is cheap when there is nothing.
func (s *Store) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

// flush writes the state in memory where the disk is behind. A file that cannot be
// written and would let run what was taken back is emptied, which needs no space:
// the next start then approves nothing. s.mu is held.
func (s *Store) flush() error {
	now := s.now.Load()
	var failed error
	open, voided := false, false
	for i := range s.disk {
		d := &s.disk[i]
		if !d.behind {
			continue
		}
		err := s.write(i, now)
		if err == nil {
			continue
		}
		failed = cmp.Or(failed, err)
		if d.allows {
			d.allows = empty(s.file(i)) != nil
			open = open || d.allows
			voided = voided || i == 0 && !d.allows
		}
	}
	switch {
	case failed == nil:
		s.fault.Store(nil)
		return nil
	case open:
		failed = fmt.Errorf("what was taken back holds only until the daemon ends, because it could not be written: %w", failed)
	case voided:
		failed = fmt.Errorf("what was taken back could not be written, so the next start will approve nothing: %w", failed)
	}
	text := "the approvals: " + failed.Error()
	s.fault.Store(&text)
	return failed
}

func (s *Store) file(i int) string { return s.path + [2]string{"", prevSuffix}[i] }

// write puts a state into the file (0) or its copy (1). What is there and was not
// written by this package is moved aside first, for a person to look at.
func (s *Store) write(i int, st *state) error {
	data, err := encodeState(st)
	if err != nil {
		return err
	}
	path := s.file(i)
	if s.disk[i].unfit {
		if err := os.Rename(path, path+".unfit"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("moving the unfit file aside: %w", err)
		}
		s.disk[i].unfit = false
	}
	if err := platform.WriteFileAtomic(path, data, 0o600); err != nil {
		return err
	}
	s.disk[i] = onDisk{}
	return nil
}

func today() time.Time { return time.Now().UTC().Truncate(time.Second) }
