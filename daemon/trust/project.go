package trust

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

const (
	// A compiled server in a project has 10 to 100 MB, and hashing 256 MB takes
	// some 0.3 s once. What is larger cannot be approved.
	maxHashed = 256 << 20
	// A command line that names more files than this is not one of a server.
	maxFiles = 256
	// As many links as Linux follows in one path.
	maxLinks = 40
	// What a definition may ask for: a path costs some 0.5 µs, and a look at the disk
	// some 5 µs, so that this is about .2 s. An inline script of 20 KB takes a tenth of
	// it; what takes more cannot be approved.
	maxWork  = 300_000
	lookWork = 10
)

// project reads the files of one project for one fingerprint.
type project struct {
	root  *os.Root
	roots []string // absolute spellings of the root, with slashes
	dir   string   // where the server runs, below the root; words are relative to it
	out   bool     // it runs outside of the root
	files map[string]File
	tried map[string]role // paths that were looked at; the definition names most of them often
	work  int             // that was done, in units of a path
	err   error           // the first file that could not be read

	scripts map[string]string // of package.json; nil: not read yet
}

func projectFiles(written, expanded clientconfig.Server, root string) ([]File, error) {
	if root == "" {
		return nil, nil
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("opening the project: %w", err)
	}
	defer opened.Close()
	p := &project{root: opened, roots: []string{filepath.ToSlash(filepath.Clean(root))}, files: map[string]File{}, tried: map[string]role{}}
	if real, err := filepath.EvalSymlinks(root); err == nil && real != root {
		p.roots = append(p.roots, filepath.ToSlash(real))
	}
	if expanded.Dir != "" {
		rel, inside := p.below(expanded.Dir, "")
		p.dir, p.out = rel, !inside
	}
	p.collect(expanded)
	p.collect(written)
	if p.err == nil && len(p.files) > maxFiles {
		p.err = fmt.Errorf("the definition names more than %d files of the project", maxFiles)
	}
	if p.err != nil {
		return nil, p.err
	}
	out := make([]File, 0, len(p.files))
	for _, f := range p.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// at adds the file that a path names, relative to where the server runs or to the
// root. Directories are no files.
func (p *project) at(word string, r role) {
	if !p.spend(1) {
		return
	}
	for _, rel := range p.places(word) {
		p.add(rel, r)
	}
}

// spend counts work and reports whether it may be done.
func (p *project) spend(work int) bool {
	if p.work += work; p.work > maxWork && p.err == nil {
		p.err = errors.New("the definition names so many paths that its files cannot be checked")
	}
	return p.err == nil
}

// places are the paths below the root that a word may mean, not cleaned: x/../y
// is not y where x is a link.
func (p *project) places(word string) []string {
	if word == "" || len(word) > 4096 || strings.ContainsRune(word, 0) {
		return nil
	}
	if runtime.GOOS == "windows" {
		word = strings.ReplaceAll(word, `\`, "/")
	}
	// Linux has names for the present directory that look foreign.
	for _, alias := range []string{"/proc/self/cwd/", "/proc/thread-self/cwd/"} {
		if rest, ok := strings.CutPrefix(word, alias); ok {
			word = rest
		}
	}
	var out []string
	if rel, ok := p.below(word, p.dir); ok && !(p.out && !strings.HasPrefix(word, "/")) {
		out = append(out, rel)
	}
	if p.dir != "" || p.out {
		if rel, ok := p.below(word, ""); ok && !slices.Contains(out, rel) {
			out = append(out, rel)
		}
	}
	return out
}

// below makes a path relative to the root. Letters of different case count as the
// same: where they are not, a file that is not there costs nothing.
func (p *project) below(name, dir string) (string, bool) {
	name = filepath.ToSlash(name)
	if !strings.HasPrefix(name, "/") && filepath.VolumeName(name) == "" {
		if dir != "" {
			name = dir + "/" + name
		}
		return name, true
	}
	for _, root := range p.roots {
		if rest, ok := cutFold(path.Clean(name), root); ok {
			// The uncleaned rest keeps its dots when the root is spelled plainly.
			if raw, ok := cutFold(name, root); ok {
				rest = raw
			}
			return rest, true
		}
	}
	return "", false
}

func cutFold(name, root string) (string, bool) {
	if len(name) < len(root) || !strings.EqualFold(name[:len(root)], root) {
		return "", false
	}
	rest := name[len(root):]
	if rest == "" {
		return ".", true
	}
	if root != "/" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

// walk follows a path from the root component by component, as the system would,
// without leaving the root. Where the path leads out, outside is where to. info
// is nil for a path that leads out, or to nothing.
func (p *project) walk(rel string) (found, outside string, info fs.FileInfo) {
	var at []string
	todo := strings.Split(rel, "/")
	links := 0
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			if len(at) > 0 {
				at = at[:len(at)-1]
				continue
			}
			// Out of the root, and perhaps back in by its name.
			up := path.Join(path.Dir(p.roots[len(p.roots)-1]), path.Join(todo...))
			rest, ok := p.below(up, "")
			if links++; !ok || links > maxLinks {
				return "", up, nil
			}
			todo = strings.Split(rest, "/")
			continue
		}
		here := strings.Join(append(slices.Clone(at), c), "/")
		i, err := p.root.Lstat(here)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				p.note(here, err)
			}
			return "", "", nil
		}
		if i.Mode()&fs.ModeSymlink == 0 {
			at = append(at, c)
			info = i
			continue
		}
		target, err := p.root.Readlink(here)
		if err != nil {
			p.note(here, err)
			return "", "", nil
		}
		if links++; links > maxLinks {
			return "", "", nil // a circle: nothing can run it
		}
		target = filepath.ToSlash(target)
		if strings.HasPrefix(target, "/") || filepath.VolumeName(target) != "" {
			rest, ok := p.below(target, "")
			if !ok {
				return "", path.Join(append([]string{target}, todo...)...), nil
			}
			at, target = nil, rest
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if len(at) == 0 {
		return "", "", nil // the root itself
	}
	return strings.Join(at, "/"), "", info
}

// note keeps the first file that is there but cannot be read. A name that is too
// long, or goes through a file, is no file.
func (p *project) note(name string, err error) {
	if p.err == nil && errors.Is(err, fs.ErrPermission) {
		p.err = fmt.Errorf("reading %s of the project: %w", shown(name), err)
	}
}

func (p *project) add(rel string, r role) {
	if before, ok := p.tried[rel]; ok && before <= r {
		return
	}
	p.tried[rel] = r
	if !p.spend(lookWork) {
		return
	}
	found, outside, info := p.walk(rel)
	if outside != "" {
		if name := path.Clean(rel); name != ".." && !strings.HasPrefix(name, "../") { // else the argument itself says it
			p.files[rel] = File{Path: rel, Link: outside}
		}
		return
	}
	if info == nil || !info.Mode().IsRegular() {
		return
	}
	if _, done := p.files[found]; done && r != code {
		return
	}
	if len(p.files) > maxFiles {
		return
	}
	f, err := p.root.Open(found)
	if err != nil {
		p.note(found, err)
		return
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || !os.SameFile(info, opened) {
		p.fail(found, cmp.Or(err, errors.New("it was replaced while it was read")))
		return
	}
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		p.fail(found, err)
		return
	}
	if !counts(r, found, opened, head[:n]) {
		return
	}
	if opened.Size() > maxHashed {
		p.fail(found, fmt.Errorf("it has %d MB, and more than %d MB are not hashed", opened.Size()>>20, maxHashed>>20))
		return
	}
	sum, err := contentHash(p.roots[len(p.roots)-1]+"/"+found, f, opened)
	if err != nil {
		p.fail(found, err)
		return
	}
	p.files[found] = File{Path: found, Hash: sum}
}

func (p *project) fail(name string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("reading %s of the project: %w", shown(name), err)
	}
}
