// Package adopt moves the servers of a client's config files into toolsd's own
// config.json and puts toolsd in their place, and undoes that.
//
// Its promise: nothing is lost, whenever it is killed. The original bytes and a
// manifest are on the disk before anything changes; servers are added to
// config.json before they leave their client's file, and come back there before
// they leave config.json; every file is replaced whole or not at all, and only
// when it still holds the bytes that the plan was made of. Running Adopt or
// Release again finishes what was cut off.
//
// A Session plans (Adopt, Release) and applies (Apply). A plan holds a diff of
// each file with the values of env and headers masked, and touches nothing. One
// Session is for one goroutine; two processes exclude each other by a lock.
//
// Below <state>/adopt/<client>/<time>/ is one manifest.json per run with the
// files of before and after, all 0600. They stay after a release.
package adopt

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// World is the machine as this package sees it.
type World struct {
	Env     clientconfig.Env // where client files are looked for
	Config  string           // toolsd's own config.json
	Managed string           // the managed one; it may lock names
	State   string           // backups go below adopt/ in it
	// Shim is the entry that starts toolsd mcp, for the client of that slug.
	Shim func(slug string) clientconfig.Entry
	Now  func() time.Time
	// DryRun makes plans build on each other as if they had been applied.
	DryRun bool
}

// Status is what became, or would become, of one client.
type Status string

const (
	Adopted      Status = "adopted"
	WouldAdopt   Status = "would-adopt"
	Released     Status = "released"
	WouldRelease Status = "would-release"
	Nothing      Status = "nothing"
	Failed       Status = "failed"
)

// Client is what is told about one client.
type Client struct {
	Client  string `json:"client"`
	Files   []File `json:"files"`
	Status  Status `json:"status"`
	Message string `json:"message"`
}

// File is one file that changes, or whose entries stay for a reason.
type File struct {
	Path  string   `json:"path"`
	Diff  string   `json:"diff"` // unified; secrets are masked
	Moved []string `json:"moved"`
	// As are the names in config.json of those that are called otherwise there.
	As        map[string]string `json:"as"`
	Kept      []Kept            `json:"kept"`
	Conflicts []Kept            `json:"conflicts"`
	Backup    string            `json:"backup"` // of the bytes before; empty when there is none, as in a dry run
}

// newFile is a File whose lists are empty and not null.
func newFile(path string) File {
	return File{Path: path, Moved: []string{}, As: map[string]string{}, Kept: []Kept{}, Conflicts: []Kept{}}
}

// Kept is an entry that stays where it is.
type Kept struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// MissingError says that a client has no file of the user's on this machine. The
// command answers it as not found.
type MissingError struct {
	Client string // as people call it
	Paths  []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s has no config file here: looked for %s", e.Client, strings.Join(e.Paths, ", "))
}

// Plan is what a run would do. It is good for one Apply.
type Plan struct {
	Client

	writes []write   // in the order in which they must happen
	run    *manifest // of an adoption: to be saved first
	undone []*manifest
}

// Changes reports whether there is anything to apply.
func (p *Plan) Changes() bool { return len(p.writes) > 0 || len(p.undone) > 0 }

// Session makes plans over one world.
type Session struct {
	World

	// In a dry run: files as the plans would leave them, and the directories of
	// the runs that they would undo.
	planned map[string][]byte
	undone  map[string]bool
}

// New returns a session.
func New(w World) *Session {
	if w.Now == nil {
		w.Now = time.Now
	}
	return &Session{World: w, planned: map[string][]byte{}, undone: map[string]bool{}}
}

// maxFile bounds what is read: Claude Code's file has been seen with tens of MB,
// and more than this is no config file.
const maxFile = 256 << 20

// snapshot is a file as it was read. Data is nil when there is none.
type snapshot struct {
	path   string
	target string // path with links resolved: what is replaced
	data   []byte
	mode   fs.FileMode
	info   fs.FileInfo
}

func (s *Session) read(path string) (snapshot, error) {
	snap := snapshot{path: path, target: path, mode: 0o600}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		if _, lerr := os.Lstat(path); lerr == nil && os.IsNotExist(err) {
			return snap, fmt.Errorf("%s is a link to a file that does not exist", path)
		}
		if !gone(err) {
			return snap, fmt.Errorf("reading %s: %w", path, err)
		}
		if data, ok := s.planned[path]; ok {
			snap.data = data
		}
		return snap, nil
	}
	info, err := os.Stat(target)
	switch {
	case err != nil:
		return snap, fmt.Errorf("reading %s: %w", path, err)
	case !info.Mode().IsRegular():
		return snap, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return snap, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	data, err := os.ReadFile(target)
	if err != nil {
		return snap, fmt.Errorf("reading %s: %w", path, err)
	}
	snap.target, snap.data, snap.mode, snap.info = target, data, info.Mode().Perm(), info
	if data == nil {
		snap.data = []byte{}
	}
	if data, ok := s.planned[path]; ok {
		snap.data = data
	}
	return snap, nil
}

// gone reports whether an error means that there is no such file; a file in the
// place of a directory above it means that, too.
func gone(err error) bool {
	return os.IsNotExist(err) || strings.Contains(err.Error(), "not a directory")
}
