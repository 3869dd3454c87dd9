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
var places = struct {
	mu  sync.Mutex
	now map[string]place
}{now: map[string]place{}}

type place struct {
	real string
	at   time.Time
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
	path = filepath.Clean(path)
	places.mu.Lock()
	p, ok := places.now[path]
	places.mu.Unlock()
	if age := time.Since(p.at); ok && age >= 0 && age < placeAge {
		return p.real
	}
	answer := make(chan string, 1)
	go func() { answer <- follow(path) }()
	timeout := time.NewTimer(placeWait)
	defer timeout.Stop()
	select {
	case p.real = <-answer:
	case <-timeout.C:
		p.real = path
	}
	p.at = time.Now()
	places.mu.Lock()
	if len(places.now) >= maxPlaces {
		clear(places.now)
	}
	places.now[path] = p
	places.mu.Unlock()
	return p.real
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
