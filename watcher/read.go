package watcher

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// maxFile is the largest file that is read. The largest that is known, a
// ~/.claude.json of years, has tens of megabytes.
const maxFile = 64 << 20

// maxProjectFile is the largest that is read of a project, whose files are a
// stranger's until they are approved. It holds thousands of servers, and takes a
// hundred megabytes to understand.
const maxProjectFile = 2 << 20

// maxValue is the largest file whose text an entry may use: such files hold a
// token, or some variables.
const maxValue = 1 << 20

// maxMatches is how many files of one pattern are read: agents of a person are
// a few dozen, a directory full of anything else must cost nothing.
const maxMatches = 200

// racy is how close to the time of reading a file may have been written for its
// time stamp to prove nothing: the coarsest in use, of FAT, counts in 2 s.
const racy = 2 * time.Second

// outcome is what a look at a file found.
type outcome int

const (
	same  outcome = iota // nothing that matters since the last look
	gone                 // no such file
	empty                // no text in it
	good
	bad // it is there and cannot be used
)

// seen is what the last look at a file found out about it; it makes the next one cheap.
type seen struct {
	info     fs.FileInfo // nil: never read
	hash     uint64
	at       time.Time
	links    []link // where a change can make this file another one
	rootGone bool   // not even the project's directory was there when paths were last followed
}

// look is the result of a look at a file.
type look struct {
	outcome outcome
	seen
	content clientconfig.Content
	text    []byte   // of a file that is read for more than its servers
	names   []string // of a pattern: the paths that it matches
}

// disk is where a file is looked for: the whole system, or, for the files of a
// project, the project alone.
type disk interface {
	Stat(name string) (fs.FileInfo, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
}

type system struct{}

func (system) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
func (system) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

var seed = maphash.MakeSeed()

// question is what lookAt is asked.
type question struct {
	loc    clientconfig.Location
	kind   kind
	last   seen
	anchor string // below this directory, every directory on the way matters
	force  bool   // read it even when its time stamp and size are those of the last look
	// follow says to follow the path anew and to trust no time stamp that is racy:
	// no event may have told of a change. Where events come, the event of a write
	// within the same tick of the clock forces.
	follow bool
}

// lookAt looks at a file.
func lookAt(q question) look {
	now := look{seen: q.last}
	info, d, name, closeDisk, err := find(q.loc)
	defer closeDisk()
	if q.follow && q.loc.Root != "" {
		_, rootErr := os.Lstat(q.loc.Root)
		now.rootGone = isGone(rootErr)
	}
	if q.force || q.follow || q.last.links == nil || (info == nil) != (q.last.info == nil) || info != nil && !os.SameFile(info, q.last.info) {
		now.links = chain(q.loc, q.anchor)
	}
	switch {
	case isGone(err):
		now.outcome, now.info = gone, nil
	case err != nil:
		now.fault(q.loc, err)
	case q.loc.Glob:
		now.outcome, now.info = good, info
		now.names, err = matches(d, name, q.loc)
		if err != nil {
			now.fault(q.loc, err)
		}
	case !q.force && unchanged(info, q.last, q.follow):
		now.outcome = same
	default:
		now.read(d, name, q)
	}
	return now
}

func unchanged(info fs.FileInfo, last seen, careful bool) bool {
	if last.info == nil || !os.SameFile(info, last.info) || info.Size() != last.info.Size() ||
		info.Mode() != last.info.Mode() || !info.ModTime().Equal(last.info.ModTime()) {
		return false
	}
	return !careful || last.at.Sub(info.ModTime()).Abs() > racy
}

// find looks where the file of loc is. d is nil when there is an error.
func find(loc clientconfig.Location) (info fs.FileInfo, d disk, name string, closeDisk func(), err error) {
	name = loc.Path
	closeDisk = func() {}
	if loc.Glob {
		name = filepath.Dir(name)
	}
	if loc.Scope != clientconfig.Project {
		info, err = os.Stat(name)
		return info, system{}, name, closeDisk, err
	}
	if name, err = filepath.Rel(loc.Root, name); err != nil {
		return nil, nil, name, closeDisk, err
	}
	// Nearly all places of a project are empty, and this finds it out at a tenth of
	// the price.
	first := filepath.Join(loc.Root, names(name)[0])
	if _, err = os.Lstat(first); isGone(err) {
		return nil, nil, name, closeDisk, err
	}
	root, err := os.OpenRoot(loc.Root)
	if err != nil {
		return nil, nil, name, closeDisk, err
	}
	closeDisk = func() { _ = root.Close() } // opened for reading: nothing can be lost
	info, name, err = stat(root, name, loc)
	return info, root, name, closeDisk, err
}

// errOutside is the fault of a project's file that is a link to somewhere else.
var errOutside = errors.New("it is a symbolic link that leads out of the project")

// stat returns what stands at name in a project and under which name to open it.
func stat(d disk, name string, loc clientconfig.Location) (fs.FileInfo, string, error) {
	info, err := d.Stat(name)
	if err == nil || isGone(err) {
		return info, name, err
	}
	// os.Root follows no absolute link, not even one that stays in the project.
	real, realErr := filepath.EvalSymlinks(filepath.Join(loc.Root, name))
	if realErr != nil {
		if isGone(realErr) {
			err = realErr
		}
		return nil, name, err
	}
	inside, relErr := filepath.Rel(loc.Root, real)
	if relErr != nil || !filepath.IsLocal(inside) {
		return nil, name, errOutside
	}
	info, err = d.Stat(inside)
	return info, inside, err
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// read takes in the text of a file and what it says.
func (l *look) read(d disk, name string, q question) {
	limit := maxFile
	switch {
	case q.kind == values:
		limit = maxValue
	case q.loc.Scope == clientconfig.Project:
		limit = maxProjectFile
	}
	info, data, err := readFile(d, name, limit)
	if isGone(err) {
		l.outcome, l.info = gone, nil
		return
	}
	if err != nil {
		l.fault(q.loc, err)
		return
	}
	l.info, l.hash, l.at = info, maphash.Bytes(seed, data), time.Now()
	if q.last.info != nil && l.hash == q.last.hash {
		l.outcome = same
		return
	}
	if q.kind == values {
		l.outcome, l.text = good, data
		return
	}
	l.decode(q.loc, q.kind, data)
}

// decode never lets a file of a stranger take the daemon down.
func (l *look) decode(loc clientconfig.Location, kind kind, data []byte) {
	defer func() {
		if r := recover(); r != nil {
			l.outcome = bad
			l.content = clientconfig.Content{Problems: []clientconfig.Problem{
				problem(loc, fmt.Sprintf("reading the file broke off: %v", r), "please report this as a fault of toolsd")}}
		}
	}()
	content, err := clientconfig.Read(loc, data)
	l.content = content
	switch {
	case errors.Is(err, clientconfig.ErrEmpty):
		l.outcome = empty
	case err != nil:
		l.outcome = bad
		if len(content.Problems) == 0 {
			l.content.Problems = []clientconfig.Problem{problem(loc, err.Error(), "")}
		}
	default:
		l.outcome = good
	}
	if kind != own || l.outcome == empty {
		return
	}
	var syntax *settings.SyntaxError
	if err := settings.Valid(data); !errors.As(err, &syntax) {
		l.text = data // the settings hold even when the servers cannot be read
	} else if l.outcome == good {
		p := problem(loc, "not valid JSON: "+syntax.Message, "")
		p.Line, p.Col = syntax.Line, syntax.Col
		l.outcome, l.content.Problems = bad, []clientconfig.Problem{p}
	}
}

// ReadFile reads a config file of the user's, for programs that look at one
// themselves: a regular file of the size that the watcher takes, and nothing that
// would have to be waited for.
func ReadFile(path string) ([]byte, error) {
	_, data, err := readFile(system{}, path, maxFile)
	return data, err
}

// readFile reads a regular file whole. It never waits for a pipe or a device:
// those are not opened, and should one take the file's place between the two
// steps, opening does not wait for its other end.
func readFile(d disk, name string, limit int) (fs.FileInfo, []byte, error) {
	info, err := d.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := fit(info, limit); err != nil {
		return nil, nil, err
	}
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // read only: closing can lose nothing
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if err := fit(info, limit); err != nil {
		return nil, nil, err
	}
	data := make([]byte, 0, info.Size()+512)
	for {
		if len(data) > limit {
			return nil, nil, tooLarge(limit)
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data)/2)
		}
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return info, data, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

func tooLarge(limit int) error { return fmt.Errorf("it is larger than %d MiB", limit>>20) }

func fit(info fs.FileInfo, limit int) error {
	switch {
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return errors.New("it is a pipe, a socket or a device")
	case info.Size() > int64(limit):
		return tooLarge(limit)
	}
	return nil
}

// fault makes of l the look at a file that is there and cannot be read.
func (l *look) fault(loc clientconfig.Location, err error) {
	cause := err
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		cause = inner.Err // the path is said already
	}
	hint := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = "make it readable for you, or switch this client off: `toolsd settings clients." + loc.Client + " false`"
	case errors.Is(err, errOutside):
		hint = "put the file itself into the project: a checkout must not choose what else is read"
	}
	l.outcome, l.info = bad, nil
	l.content = clientconfig.Content{Problems: []clientconfig.Problem{
		problem(loc, "the file cannot be read: "+cause.Error(), hint)}}
}

func problem(loc clientconfig.Location, message, hint string) clientconfig.Problem {
	return clientconfig.Problem{File: loc.Path, Root: loc.Root, Message: message, Hint: hint}
}

// matches returns the paths in a directory that a pattern names, sorted.
func matches(d disk, dir string, loc clientconfig.Location) ([]string, error) {
	info, err := d.Stat(dir)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	f, err := d.OpenFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	paths := loc.Matches(entries)
	return paths[:min(len(paths), maxMatches)], nil
}
