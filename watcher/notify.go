package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// notifier keeps the directories watched that the loop wants. It has a goroutine
// of its own because adding a watch on a dead network mount can take for ever.
type notifier struct {
	fs    *fsnotify.Watcher
	added chan struct{} // a watch is new: what happened before it must be looked for
	wake  chan struct{}

	mu    sync.Mutex
	want  []string
	fault *clientconfig.Problem // why not all directories are watched
}

func newNotifier() (*notifier, error) {
	// Without a buffer: while the loop rests, events stay in the system, where they
	// wake up nobody.
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &notifier{fs: w, added: make(chan struct{}, 1), wake: make(chan struct{}, 1)}, nil
}

// watch replaces the set of watched directories, sorted. They hold no symbolic links:
// the same directory under two names would be one watch that reports one of them.
func (n *notifier) watch(dirs []string) {
	n.mu.Lock()
	n.want = dirs
	n.mu.Unlock()
	poke(n.wake)
}

// problem says why some directories are not watched, nil when all are.
func (n *notifier) problem() *clientconfig.Problem {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault
}

func (n *notifier) run(ctx context.Context) {
	defer func() { _ = n.fs.Close() }() // at the end of watching there is nothing to do about an error
	identity := map[string]fs.FileInfo{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		n.mu.Lock()
		want := n.want
		n.mu.Unlock()
		fault, isNew := n.sync(want, identity)
		n.mu.Lock()
		n.fault = fault
		n.mu.Unlock()
		if isNew {
			poke(n.added)
		}
	}
}

// sync adds and removes watches. A directory that was replaced by another one of
// the same name is added anew; fsnotify still lists the dead watch.
func (n *notifier) sync(want []string, identity map[string]fs.FileInfo) (fault *clientconfig.Problem, isNew bool) {
	listed := map[string]bool{}
	for _, dir := range n.fs.WatchList() {
		listed[dir] = true
		if _, ok := slices.BinarySearch(want, dir); !ok {
			_ = n.fs.Remove(dir) // it may have ended itself
			delete(identity, dir)
		}
	}
	for _, dir := range want {
		info, err := os.Stat(dir)
		if err != nil {
			continue // the event of its end, or the poll, leads to its parent
		}
		last, ok := identity[dir]
		if listed[dir] && ok && os.SameFile(last, info) {
			continue
		}
		if listed[dir] {
			_ = n.fs.Remove(dir)
		}
		err = n.fs.Add(dir)
		switch {
		case err == nil:
			identity[dir] = info
			isNew = true
		case errors.Is(err, fs.ErrNotExist):
		case fault == nil:
			fault = &clientconfig.Problem{File: dir, Message: fmt.Sprintf("watching the directory for changes: %v", err), Hint: fewerHint}
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) {
				fault = limitProblem(err)
			}
		}
	}
	return fault, isNew
}

const fewerHint = "edits are still found, by looking every few seconds"

// limitProblem is for the limits of the system: those on watches and on open files.
func limitProblem(err error) *clientconfig.Problem {
	return &clientconfig.Problem{
		Message: fmt.Sprintf("watching config files for changes: %v", err),
		Hint:    fewerHint + "; on Linux raise fs.inotify.max_user_watches and fs.inotify.max_user_instances",
	}
}

// interest says which files an event in a watched directory concerns.
type interest struct {
	fold  bool               // names differ in case only: it is the same file
	names map[string][]*file // by the path of a link
	globs map[string][]*file // by directory: files whose last link is a pattern
	dirs  map[string][]*file // by directory: all files that lead through it
}

func newInterest(files []*file, fold bool) *interest {
	in := &interest{fold: fold, names: map[string][]*file{}, globs: map[string][]*file{}, dirs: map[string][]*file{}}
	for _, f := range files {
		for i, l := range f.links {
			dir := in.key(l.dir)
			in.dirs[dir] = append(in.dirs[dir], f)
			if f.loc.Glob && i == len(f.links)-1 && strings.Contains(l.name, "*") {
				in.globs[dir] = append(in.globs[dir], f)
				continue
			}
			path := in.key(lexical(l.dir, []string{l.name}))
			in.names[path] = append(in.names[path], f)
		}
	}
	return in
}

func (in *interest) key(path string) string {
	if in.fold {
		return strings.ToLower(path)
	}
	return path
}

// of returns the files that a change at path concerns. In a busy directory this
// is asked thousands of times a second, and the answer is nearly always none.
func (in *interest) of(path string) []*file {
	path = in.key(path)
	if files := in.names[path]; files != nil {
		return files
	}
	if files := in.dirs[path]; files != nil { // the directory itself moved or went
		return files
	}
	if len(in.globs) == 0 {
		return nil
	}
	i := strings.LastIndexFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
	if i < 0 {
		return nil
	}
	name := path[i+1:]
	var hit []*file
	for _, f := range in.globs[path[:i]] {
		if ok, err := filepath.Match(in.key(filepath.Base(f.loc.Path)), name); ok || err != nil {
			hit = append(hit, f)
		}
	}
	return hit
}

// poke wakes a goroutine that is not awake already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
