package adopt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolsd/toolsd/platform"
)

// Apply does what the plan says and sets its status. On an error what was done is
// undone as far as nobody wrote there since; the servers are in at least one
// place at every moment.
func (s *Session) Apply(p *Plan) error {
	if !p.Changes() {
		return nil
	}
	if s.DryRun {
		for _, w := range p.writes {
			s.planned[w.was.path] = w.after
		}
		for _, m := range p.undone {
			s.undone[m.dir] = true
		}
		return nil
	}
	err := s.apply(p)
	if err != nil {
		p.Status, p.Message = Failed, err.Error()
		return err
	}
	switch p.Status {
	case WouldAdopt:
		p.Status = Adopted
	case WouldRelease:
		p.Status = Released
	}
	return nil
}

func (s *Session) apply(p *Plan) (err error) {
	dir := filepath.Join(s.State, "adopt")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory for backups: %w", err)
	}
	lock, err := platform.AcquireLock(filepath.Join(dir, "lock"))
	if errors.Is(err, platform.ErrLocked) {
		return errors.New("another adopt or release is at work; try again when it has ended")
	}
	if err != nil {
		return err
	}
	defer lock.Release()

	for i := range p.writes {
		if err := p.writes[i].check(); err != nil {
			return err
		}
	}
	defer func() {
		for i := range p.writes {
			p.writes[i].discard()
		}
	}()
	for i := range p.writes {
		if err := p.writes[i].stage(); err != nil {
			return err
		}
		step("staged")
	}
	if p.run != nil {
		if err := p.run.save(); err != nil {
			return err
		}
	}
	for _, m := range p.undone {
		for _, name := range sorted(m.raw) { // what a merge replaces
			if err := platform.WriteFileAtomic(filepath.Join(m.dir, name), m.raw[name], 0o600); err != nil {
				return fmt.Errorf("making the backup: %w", err)
			}
		}
	}
	step("backup")
	for i := range p.writes {
		if err := p.writes[i].commit(); err != nil {
			if p.writes[i].done {
				return err // what is there now may rest on what was written before
			}
			return s.rollBack(p, i, err)
		}
		step("written")
	}
	now := s.Now()
	for _, m := range p.undone {
		m.Released = &now
		if err := m.write(); err != nil {
			return err
		}
		step("noted")
	}
	return nil
}

// rollBack undoes the writes before the one that failed, the last first. The
// order in which they were made kept every server in one place at least, and so
// does the reverse.
func (s *Session) rollBack(p *Plan, failed int, cause error) error {
	for i := failed - 1; i >= 0; i-- {
		if err := p.writes[i].back(); err != nil {
			return fmt.Errorf("%w; undoing the first part did not work either (%v): run this again, or `toolsd release %s`", cause, err, p.Client.Client)
		}
	}
	if p.run != nil {
		now := s.Now()
		p.run.Released = &now
		if err := p.run.write(); err != nil {
			return fmt.Errorf("%w (%v)", cause, err)
		}
	}
	return cause
}
