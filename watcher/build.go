package watcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// build makes a snapshot of what the files say now. As a side effect it notes the
// files whose text entries use.
func (l *loop) build() *Snapshot {
	s := &Snapshot{Settings: l.settings, Values: l.values, Projects: slices.Clone(l.roots), Complete: true}
	needed := map[string]*file{}
	needs := map[string]int{}
	var entries []entry
	refusals := l.refusals()
	layers := l.layers()
	told := map[string]bool{}
	for _, f := range l.files {
		if f.kind == values || f.loc.Glob || l.readAsUser(f) {
			continue
		}
		if !f.slow || !told[f.loc.Root] || f.loc.Root == "" { // a project's files are slow together
			for _, p := range f.problems() {
				p.Root = cmp.Or(p.Root, f.loc.Root) // who does not see the file is not told of it
				s.Problems = append(s.Problems, p)
			}
			told[f.loc.Root] = told[f.loc.Root] || f.slow
		}
		if f.kind == own && f.text == nil && (f.slow || len(f.fault) > 0) {
			s.SettingsUnread = true
		}
		for _, written := range f.content.Servers {
			if why := layers.overrules(f, written.Name); why != "" {
				if why != silently {
					s.Problems = append(s.Problems, clientconfig.Problem{File: f.loc.Path, Line: written.Source.Line,
						Col: written.Source.Col, Server: written.Name, Message: why})
				}
				continue
			}
			if e, ok := l.entry(written, needed, needs); ok {
				refusals.apply(&e)
				entries = append(entries, e)
			}
		}
	}
	if !maps.Equal(l.wanted, needed) {
		l.wanted, l.stale, l.linked = needed, true, true
	}
	s.Servers = nameAll(entries, resolve(l.o.Env.Home))
	s.Problems = append(s.Problems, l.aboutSettings(s.Problems)...)
	if p := l.trouble(); p != (clientconfig.Problem{}) {
		s.Problems = append(s.Problems, p)
	}
	return s
}

// maxNeeded is how many files the entries of one project may take values from: each
// is looked at in every poll.
const maxNeeded = 200

// entry expands one entry of a file. needed are the files that entries take values
// from, and needs is how many a project has of them.
func (l *loop) entry(written clientconfig.Server, needed map[string]*file, needs map[string]int) (entry, bool) {
	if clientconfig.IsSelf(written) {
		return entry{}, false
	}
	written.Source.Root = resolve(written.Source.Root)
	def := clientconfig.Expand(written, clientconfig.Expansion{
		Getenv: func(name string) string {
			v, _ := l.o.Environ(name)
			return v
		},
		Home: l.o.Env.Home,
		Root: written.Source.Root,
		ReadFile: func(path string) ([]byte, error) {
			path = filepath.Clean(path)
			if root := written.Source.Root; needed[path] == nil && root != "" {
				if needs[root]++; needs[root] > maxNeeded {
					return nil, fmt.Errorf("the project takes values from more than %d files", maxNeeded)
				}
			}
			f := l.wanted[path]
			if f == nil {
				f = &file{kind: values, loc: clientconfig.Location{Scope: clientconfig.User, Path: path}}
				l.linked = true
			}
			needed[path] = f
			return f.read()
		},
	})
	return entry{def: def, written: written}, !clientconfig.IsSelf(def)
}

// read returns the text of a file that an entry uses, as it was at the last look.
func (f *file) read() ([]byte, error) {
	switch {
	case f.text != nil:
		return f.text, nil
	case !f.known || f.slow:
		return nil, errors.New("reading it takes too long")
	case len(f.fault) > 0:
		return nil, errors.New(f.fault[0].Message)
	}
	return nil, &fs.PathError{Op: "read", Path: f.loc.Path, Err: fs.ErrNotExist}
}

// readAsUser reports whether a project's file is one that is read in user scope
// too, as when a request comes from ~/.config/opencode: then it is no project file.
func (l *loop) readAsUser(f *file) bool {
	return f.loc.Scope == clientconfig.Project && f.info != nil && slices.ContainsFunc(l.files, func(u *file) bool {
		return u.loc.Scope == clientconfig.User && u.kind != values && u.info != nil && os.SameFile(u.info, f.info)
	})
}

// layers are config.json and the managed file: of the same name in both, the
// user's server holds, unless the managed file locks it.
type layers struct {
	loop *loop
	user map[string]bool // names in config.json
}

func (l *loop) layers() layers {
	y := layers{l, map[string]bool{}}
	for _, f := range l.files {
		if f.kind == own && !f.loc.Managed {
			for _, s := range f.content.Servers {
				y.user[s.Name] = true
			}
		}
	}
	return y
}

// silently is a reason that nobody needs to be told.
const silently = "-"

// overrules says why a server of one of the two files does not count; empty when
// it does.
func (y layers) overrules(f *file, name string) string {
	if f.kind != own {
		return ""
	}
	locked := y.loop.settings.IsLocked("mcpServers." + name)
	switch on, ok := y.loop.settings.Clients["toolsd"]; {
	case ok && !on:
		return silently
	case !f.loc.Managed && locked:
		return "the managed file locks this server: the entry here has no effect"
	case f.loc.Managed && !locked && y.user[name]:
		return silently
	}
	return ""
}

// refusals are what the user said no to in Claude Code.
type refusals []clientconfig.Rejection

func (l *loop) refusals() refusals {
	var all refusals
	for _, f := range l.files {
		if f.loc.Scope != clientconfig.User {
			continue // a project's file says nothing in the user's name
		}
		for _, r := range f.content.Rejected {
			r.Root = resolve(r.Root)
			all = append(all, r)
		}
	}
	return all
}

// apply notes on an entry of Claude Code that it was refused. What the user said
// there is about no other client's entry.
func (all refusals) apply(e *entry) {
	source := e.def.Source
	if source.Client != "claude-code" {
		return
	}
	for _, r := range all {
		switch {
		case r.Name != e.written.Name || r.Of != source.Scope:
		case r.Of == clientconfig.Project && (r.Root == "" || fold(r.Root) == fold(source.Root)):
			e.rejected = true
		case r.Of == clientconfig.User && source.Root == "" && r.Root != "":
			e.offIn = append(e.offIn, r.Root)
		case r.Of == clientconfig.User && fold(r.Root) == fold(source.Root):
			e.def.Disabled = true
		}
	}
}

// aboutSettings are the problems of the settings, but for those of which the
// decoder of the servers told already, being at the same place.
func (l *loop) aboutSettings(told []clientconfig.Problem) []clientconfig.Problem {
	out := slices.DeleteFunc(slices.Clone(l.about), func(p clientconfig.Problem) bool {
		return p.Line > 0 && slices.ContainsFunc(told, func(t clientconfig.Problem) bool {
			return t.File == p.File && t.Line == p.Line && t.Col == p.Col
		})
	})
	for _, path := range l.settings.Files {
		full := l.expandPath(path)
		for _, f := range l.files {
			if f.loc.Path == full && f.loc.Client == "toolsd" && f.known && !f.present && !f.holds() {
				out = append(out, clientconfig.Problem{File: full, Message: fmt.Sprintf("the setting files names %s, which does not exist", path),
					Hint: "make the file, or take it out of files in " + strings.TrimSpace(l.o.ConfigFile)})
			}
		}
	}
	return out
}
