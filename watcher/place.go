package watcher

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Visible reports whether a server of the project at root is seen from cwd: cwd
// is root or below it. Both may be spelled with symbolic links. The home
// directory and what is above it are no projects: what is defined for them is
// seen from there only, not from every directory of the user.
func Visible(cwd, root string) bool {
	home, _ := os.UserHomeDir() // "": no directory is the home directory
	return visible(cwd, root, home)
}

func visible(cwd, root, home string) bool {
	if cwd == "" || root == "" {
		return false
	}
	return below(resolve(cwd), resolve(root), resolve(home))
}

// below is visible for paths without symbolic links.
func below(cwd, root, home string) bool {
	cwd, root, home = fold(cwd), fold(root), fold(home)
	switch {
	case cwd == root:
		return true
	case !within(cwd, root), filepath.Dir(root) == root:
		return false
	}
	return !(within(home, root) && within(cwd, home))
}

const (
	// maxPath is the longest path that Linux opens; other systems take less. A
	// longer one is no directory, whatever a caller says.
	maxPath = 4096
	// maxParents is deeper than people's trees are. Each directory costs some 30
	// places to look at, in each poll, whether it exists or not.
	maxParents = 64
)

// projectsOf returns the directories whose project files a caller in cwd sees, the
// outermost first: cwd and its parents, up to but without home and the root of
// the file system, and not more than maxParents.
func projectsOf(cwd, home string) []string {
	if cwd == "" || !filepath.IsAbs(cwd) || len(cwd) > maxPath {
		return nil
	}
	home = fold(resolve(home))
	var roots []string
	for dir := resolve(cwd); fold(dir) != home && filepath.Dir(dir) != dir && len(roots) < maxParents; dir = filepath.Dir(dir) {
		roots = append(roots, dir)
	}
	slices.Reverse(roots)
	return roots
}

// fold makes paths comparable: on Windows case means nothing.
func fold(path string) string {
	if runtime.GOOS == "windows" {
		return strings.ToLower(path)
	}
	return path
}

// places remembers where paths lead, so that asking for every server of every
// request needs no system call. What it says may be a second old.
var places = newPlaces(follow)

type placeCache struct {
	follow func(path string) string

	mu    sync.Mutex
	now   map[string]place
	asked map[string]chan struct{} // questions without an answer yet; closed with it
}

type place struct {
	real string
	at   time.Time
}

func newPlaces(follow func(path string) string) *placeCache {
	return &placeCache{follow: follow, now: map[string]place{}, asked: map[string]chan struct{}{}}
}

const (
	placeAge = time.Second
	// maxPlaces bounds the memory; callers come from a few dozen directories.
	maxPlaces = 4096
	// placeWait bounds a question to a file system that does not answer. Every
	// other one answers within a millisecond.
	placeWait = 250 * time.Millisecond
)

// resolve returns path without symbolic links, as far as it exists.
func resolve(path string) string {
	if path == "" {
		return ""
	}
	return places.resolve(filepath.Clean(path))
}

// resolve asks a file system that does not answer once: the question cannot be taken
// back, and holds a thread of the system.
func (c *placeCache) resolve(path string) string {
	c.mu.Lock()
	p, ok := c.now[path]
	if age := time.Since(p.at); ok && age >= 0 && age < placeAge {
		c.mu.Unlock()
		return p.real
	}
	asked := c.asked[path]
	if asked == nil {
		asked = make(chan struct{})
		c.asked[path] = asked
		go func() {
			c.answer(path, c.follow(path))
			c.mu.Lock()
			delete(c.asked, path)
			c.mu.Unlock()
			close(asked)
		}()
	}
	c.mu.Unlock()
	timeout := time.NewTimer(placeWait)
	defer timeout.Stop()
	select {
	case <-asked:
	case <-timeout.C:
		if !ok {
			p.real = path
		}
		c.answer(path, p.real)
		return p.real
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.now[path]; ok {
		return p.real
	}
	return path // forgotten since, among very many
}

func (c *placeCache) answer(path, real string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.now) >= maxPlaces {
		clear(c.now)
	}
	c.now[path] = place{real, time.Now()}
}

// follow resolves the part of path that exists.
func follow(path string) string {
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(dir) == dir {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
