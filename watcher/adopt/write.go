package adopt

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/toolsd/toolsd/platform"
)

// step is called at every point at which a kill may leave things half done. Tests
// end the process there, or change a file.
var step = func(string) {}

// ChangedError says that a file is not any more what the plan was made of.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return e.Path + " was changed by another program in the meantime; it was left as it is"
}

// ReadOnlyError says that a file may not be written.
type ReadOnlyError struct{ Path string }

func (e *ReadOnlyError) Error() string { return e.Path + " is read-only" }

// write is one file that changes.
type write struct {
	was   snapshot
	after []byte // nil: the file goes

	staged string // path of the new bytes, until they are in place
	done   bool   // the file was replaced
}

// stage puts the new bytes beside the file, on the disk, with the mode and owner
// of the file. What can fail fails here, before anything changed.
func (w *write) stage() error {
	if w.after == nil {
		return nil
	}
	dir := filepath.Dir(w.was.target)
	if w.was.info == nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("writing %s: %w", w.was.path, err)
		}
	}
	// One name per file: what a kill leaves is taken up by the next run. The
	// extension is none that any client reads.
	staged := filepath.Join(dir, "."+filepath.Base(w.was.target)+".toolsd-new")
	if err := platform.WriteFileAtomic(staged, w.after, w.was.mode); err != nil {
		return err
	}
	w.staged = staged
	if w.was.info == nil {
		return nil
	}
	info, err := os.Stat(staged)
	if err != nil {
		return fmt.Errorf("writing %s: %w", w.was.path, err)
	}
	uid, gid, ok := owner(w.was.info)
	if u, g, _ := owner(info); ok && (u != uid || g != gid) {
		if err := os.Chown(staged, uid, gid); err != nil && u != uid {
			return fmt.Errorf("%s belongs to another user, and replacing it would make it yours: %w", w.was.path, err)
		}
		if err := os.Chmod(staged, w.was.mode); err != nil {
			return fmt.Errorf("writing %s: %w", w.was.path, err)
		}
	}
	return nil
}

// owner reads uid and gid where the system has them. The type that holds them
// differs per system, and only platform has build tags.
func owner(info fs.FileInfo) (uid, gid int, ok bool) {
	v := reflect.Indirect(reflect.ValueOf(info.Sys()))
	if v.Kind() != reflect.Struct {
		return 0, 0, false
	}
	u, g := v.FieldByName("Uid"), v.FieldByName("Gid")
	if !u.IsValid() || !g.IsValid() || !u.CanUint() || !g.CanUint() {
		return 0, 0, false
	}
	return int(u.Uint()), int(g.Uint()), true
}

// check refuses a file that its user protected, though replacing it would work,
// and one that is not any more what the plan was made of.
func (w *write) check() error {
	if w.was.info != nil && w.was.mode&0o200 == 0 {
		return &ReadOnlyError{w.was.path}
	}
	return w.unchanged()
}

func (w *write) unchanged() error {
	now, err := os.ReadFile(w.was.path)
	switch {
	case err != nil && gone(err) && w.was.data == nil:
		return nil
	case err != nil && !gone(err):
		return fmt.Errorf("reading %s again: %w", w.was.path, err)
	case err != nil || w.was.data == nil || !bytes.Equal(now, w.was.data):
		return &ChangedError{w.was.path}
	}
	return nil
}

// commit puts the staged bytes in the place of the file and looks whether they
// are there.
func (w *write) commit() error {
	if err := w.unchanged(); err != nil {
		return err
	}
	if w.after == nil {
		if err := os.Remove(w.was.target); err != nil {
			return fmt.Errorf("removing %s: %w", w.was.path, err)
		}
		syncDir(filepath.Dir(w.was.target))
		return nil
	}
	if err := os.Rename(w.staged, w.was.target); err != nil {
		return fmt.Errorf("writing %s: %w", w.was.path, err)
	}
	w.staged, w.done = "", true
	syncDir(filepath.Dir(w.was.target))
	step("written, not checked")
	now, err := os.ReadFile(w.was.path)
	if err != nil {
		return fmt.Errorf("reading %s again: %w", w.was.path, err)
	}
	if !bytes.Equal(now, w.after) {
		return fmt.Errorf("%s was rewritten by another program right after; close its client and run this again", w.was.path)
	}
	return nil
}

// discard removes what was staged and not used.
func (w *write) discard() {
	if w.staged != "" {
		_ = os.Remove(w.staged)
		w.staged = ""
	}
}

// back undoes a commit, unless somebody wrote there since.
func (w *write) back() error {
	now, err := os.ReadFile(w.was.path)
	if err != nil || !bytes.Equal(now, w.after) {
		return &ChangedError{w.was.path}
	}
	if w.was.data == nil {
		return os.Remove(w.was.target)
	}
	undo := write{was: w.was, after: w.was.data}
	undo.was.data = w.after
	if err := undo.stage(); err != nil {
		undo.discard()
		return err
	}
	return undo.commit()
}

// syncDir makes a rename last. Where directories cannot be synced there is
// nothing to be done.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
