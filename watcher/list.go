package watcher

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// arrange makes the list of files from the settings, the projects and the patterns.
func (l *loop) arrange() {
	l.mu.Lock()
	roots := slices.Sorted(maps.Keys(l.projects))
	l.mu.Unlock()
	if !l.stale && slices.Equal(roots, l.roots) {
		return
	}
	l.stale, l.roots = false, roots
	var order []clientconfig.Location
	add := func(loc clientconfig.Location) {
		if on, ok := l.settings.Clients[loc.Client]; ok && !on && loc.Client != "toolsd" {
			return
		}
		order = append(order, loc)
		if f := l.byPlace[loc]; f != nil && loc.Glob {
			order = append(order, l.matched(f)...)
		}
	}
	for _, own := range l.own() {
		add(own)
	}
	for _, path := range l.settings.Files { // they stand behind toolsd's own, being named there
		add(clientconfig.ExtraFile(l.expandPath(path)))
	}
	for _, loc := range clientconfig.UserFiles(l.o.Env) {
		if loc.Client != "toolsd" {
			add(loc)
		}
	}
	for _, root := range roots {
		for _, loc := range clientconfig.ProjectFiles(root, l.o.Env) {
			add(loc)
		}
	}

	files := make([]*file, 0, len(order)+len(l.wanted))
	listed := make(map[clientconfig.Location]bool, len(order))
	for _, loc := range order {
		if listed[loc] {
			continue
		}
		listed[loc] = true
		f := l.byPlace[loc]
		if f == nil {
			f = &file{loc: loc}
			if slices.Contains(l.own(), loc) {
				f.kind = own
			}
			l.byPlace[loc] = f
			l.linked = true
		}
		files = append(files, f)
	}
	for loc, f := range l.byPlace {
		if !listed[loc] {
			delete(l.byPlace, loc)
			l.linked = true
			l.changed = l.changed || f.holds() || len(f.problems()) > 0
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.wanted)) {
		files = append(files, l.wanted[path])
	}
	l.files = files
}

// own are toolsd's own files.
func (l *loop) own() []clientconfig.Location {
	var all []clientconfig.Location
	for _, path := range []string{l.o.ConfigFile, l.o.ManagedFile} {
		if path == "" {
			continue
		}
		loc := clientconfig.ExtraFile(path)
		loc.Settings, loc.Managed = true, path == l.o.ManagedFile
		all = append(all, loc)
	}
	return all
}

// matched are the files of a pattern: those that are there, and those that were
// and still hold servers.
func (l *loop) matched(pattern *file) []clientconfig.Location {
	paths := slices.Clone(pattern.names)
	for _, path := range pattern.matched {
		if f := l.byPlace[pattern.loc.At(path)]; f != nil && f.holds() {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	pattern.matched = slices.Compact(paths)
	out := make([]clientconfig.Location, 0, len(paths))
	for _, p := range pattern.matched {
		out = append(out, pattern.loc.At(p))
	}
	return out
}

// expandPath makes a path of the files setting absolute: relative ones are
// relative to config.json.
func (l *loop) expandPath(path string) string {
	switch {
	case path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, `~\`):
		return filepath.Join(l.o.Env.Home, path[1:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(l.o.ConfigFile), path)
}

// forget drops projects whose directory is gone and whose servers are too.
func (l *loop) forget(begin time.Time) {
	alive := map[string]bool{}
	for _, f := range l.files {
		if !f.rootGone || !f.known || f.busy || f.holds() {
			alive[f.loc.Root] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roots = slices.DeleteFunc(l.roots, func(root string) bool {
		gone := !alive[root] && begin.Sub(l.projects[root]) > grace
		if gone {
			delete(l.projects, root)
		}
		return gone
	})
}
