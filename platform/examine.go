package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Place is one of the directories of toolsd as it is, looked at without making or
// changing anything.
type Place struct {
	Role   string // config, state, cache, run
	Path   string
	Exists bool
	Mode   fs.FileMode
	Wide   bool  // others may look into a directory that should be private; Prepare tightens it
	Err    error // why it cannot be used: an *UnfitError
}

// Examine looks at the directories. Prepare mends what Wide tells of.
func (d Dirs) Examine() []Place {
	places := []Place{{Role: "config", Path: d.Config}, {Role: "state", Path: d.State}, {Role: "cache", Path: d.Cache}, {Role: "run", Path: d.Run}}
	for i := range places {
		p := &places[i]
		ours := p.Role != "config" && !(p.Role == "run" && d.chosen)
		look := os.Lstat
		if !ours {
			look = os.Stat
		}
		info, err := look(p.Path)
		if errors.Is(err, fs.ErrNotExist) {
			// It is made when it is needed, if it can be.
			if dir := existing(p.Path); !canWrite(dir) {
				p.Err = &UnfitError{p.Path, "does not exist and cannot be made in " + dir, "see who owns it: ls -ld " + shellQuote(dir)}
			} else if info, err := os.Stat(dir); err == nil && !info.IsDir() {
				p.Err = &UnfitError{p.Path, "cannot be made, because " + dir + " is not a directory", "move that file away"}
			}
			continue
		}
		if err != nil {
			p.Err = unusable(p.Path, err)
			continue
		}
		p.Exists, p.Mode = true, info.Mode()
		switch {
		case ours:
			if info, err = ownDir(p.Path); err != nil {
				p.Err = err
				continue
			}
			p.Wide = runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0
		case !info.IsDir():
			p.Err = &UnfitError{p.Path, "is not a directory", "move it away"}
			continue
		case p.Role == "run":
			// The same as checkSocketDir asks, which tightens as well.
			if info.Mode()&fs.ModeSticky == 0 && ownerOf(info) != 0 {
				if _, err := ownDir(p.Path); err != nil {
					p.Err = err
					continue
				}
				p.Wide = runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0
			}
		}
		if p.Role != "config" && !canWrite(p.Path) { // config.json may well be read-only
			p.Err = &UnfitError{p.Path, "cannot be written", "give yourself the right: chmod u+rwx " + shellQuote(p.Path)}
		}
	}
	return places
}

// existing is the nearest directory above path that there is.
func existing(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// FreeSpace is how many bytes this user may still write where path is or would be.
func FreeSpace(path string) (int64, error) {
	if _, err := os.Stat(path); err != nil {
		path = existing(path)
	}
	return freeSpace(path)
}

// RunAgain runs this program with other arguments, waits for its end, and returns
// in the error what it said. It is for what may crash or hang.
func RunAgain(ctx context.Context, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	_, err = listen(ctx, self, args...)
	return err
}
