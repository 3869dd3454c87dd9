package watcher

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// entry is one entry of one file on its way to a Server.
type entry struct {
	def      clientconfig.Server // expanded; Source.Root holds no symbolic links
	written  clientconfig.Server
	rejected bool
	offIn    []string
}

// group are the entries of one root that have one name and one definition.
type group struct {
	entries []entry // the one that is served comes first
}

func (g *group) first() *entry { return &g.entries[0] }

// namedServer is a Server with its definition as it is compared: before it was
// given a name and a directory.
type namedServer struct {
	Server
	def clientconfig.Server
}

// nameAll makes servers of all entries, which come in order of precedence: those
// of one name and definition are one server, and no two that any one caller can
// see have the same name.
//
// A name must not depend on who asks. So the roots are taken from the outside in,
// user scope before all, and a name that an outer root has given is not given
// again below it. Roots of which none is inside the other never meet.
func nameAll(entries []entry, home string) []Server {
	byRoot := map[string][]entry{}
	for _, e := range entries {
		root := e.def.Source.Root
		byRoot[root] = append(byRoot[root], e)
	}
	var roots []string
	for root := range byRoot {
		roots = append(roots, root)
	}
	slices.SortFunc(roots, func(a, b string) int { // a parent is shorter than what is in it
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	named := map[string][]*namedServer{}
	for _, root := range roots {
		var outer []*namedServer
		for _, r := range roots {
			if r != root && (r == "" || root != "" && below(root, r, home)) {
				outer = append(outer, named[r]...)
			}
		}
		named[root] = nameRoot(root, byRoot[root], outer, home)
	}
	var all []Server
	for _, servers := range named {
		for _, s := range servers {
			all = append(all, s.Server)
		}
	}
	slices.SortFunc(all, func(a, b Server) int {
		return cmp.Or(strings.Compare(a.Source.Root, b.Source.Root), strings.Compare(a.Name, b.Name))
	})
	return all
}

// nameRoot names the entries of one root. outer are the servers that its callers
// see besides.
func nameRoot(root string, entries []entry, outer []*namedServer, home string) []*namedServer {
	// Within a project the user's own entries come before those of its files.
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(rank(a), rank(b)) })
	taken := map[string]bool{}
	known := map[string][]*namedServer{} // outer, as they are called in their files
	for _, o := range outer {
		taken[o.Name] = true
		known[o.Declared] = append(known[o.Declared], o)
	}
	var groups []*group
	called := map[string][]*group{}
next:
	for _, e := range entries {
		name := e.written.Name
		for _, o := range known[name] {
			if o.takes(e, home) {
				o.Sources = append(o.Sources, e.def.Source)
				continue next
			}
		}
		for _, g := range called[name] {
			if equal(g.first().def, e.def, home) {
				g.add(e)
				continue next
			}
		}
		g := &group{[]entry{e}}
		groups, called[name] = append(groups, g), append(called[name], g)
	}

	// Names as the files have them go first: one that was made for a clash must
	// not displace one that somebody wrote.
	var out []*namedServer
	var clashes []*group
	for _, g := range groups {
		if name := g.first().written.Name; !taken[name] {
			taken[name] = true
			out = append(out, g.server(name, root, home))
		} else {
			clashes = append(clashes, g)
		}
	}
	for _, g := range clashes {
		stem := g.first().written.Name + "-" + g.first().def.Source.Client
		name := stem
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d", stem, n)
		}
		taken[name] = true
		out = append(out, g.server(name, root, home))
	}
	return out
}

func rank(e entry) int {
	if e.def.Source.Scope == clientconfig.User {
		return 0
	}
	return 1
}

// add adds another file's entry for the same server. One that is off in one
// client and on in another is on, as it is for these clients.
func (g *group) add(e entry) {
	first := g.first()
	switch {
	case rank(e) != rank(*first): // a project's file changes nothing about the user's server
		g.entries = append(g.entries, e)
	case first.def.Disabled && !e.def.Disabled, first.rejected && !e.rejected && !e.def.Disabled:
		g.entries = slices.Insert(g.entries, 0, e)
	case first.def.Disabled == e.def.Disabled:
		first.def.Restrict(e.def)
		if first.def.Transport == clientconfig.Auto {
			first.def.Transport = e.def.Transport
		}
		fallthrough
	default:
		g.entries = append(g.entries, e)
	}
}

// takes reports whether an entry of an inner root, of the same name, is this server
// once more. One that is switched off here and not there is not.
func (s *namedServer) takes(e entry, home string) bool {
	return s.Disabled == e.def.Disabled && !s.Rejected && equal(s.def, e.def, home)
}

// equal reports whether two entries define the same server. Where an entry leaves
// its directory open, that counts only if the definition means something else in
// another directory.
func equal(a, b clientconfig.Server, home string) bool {
	if a.Dir == "" && b.Dir == "" && a.URL == "" && (relative(a) || relative(b)) {
		a.Dir, b.Dir = dirOf(a, home), dirOf(b, home)
	}
	return clientconfig.Equal(a, b)
}

// relative reports whether the command or an argument is a path that starts in
// the directory where the server runs.
func relative(s clientconfig.Server) bool {
	for i, word := range append([]string{s.Command}, s.Args...) {
		if strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") || word == "." || word == ".." ||
			strings.HasPrefix(word, `.\`) || strings.HasPrefix(word, `..\`) {
			return true
		}
		if i == 0 && strings.ContainsAny(word, `/\`) && !filepath.IsAbs(word) {
			return true
		}
		// scripts/server.py: a name with a directory before it and no @scope/package
		if i > 0 && strings.Contains(word, "/") && filepath.Ext(word) != "" && !strings.ContainsAny(word[:1], "/@-~") && !strings.Contains(word, ":") {
			return true
		}
	}
	return false
}

// dirOf is where a server runs.
func dirOf(s clientconfig.Server, home string) string {
	base := home
	if s.Source.Root != "" {
		base = s.Source.Root
	}
	switch {
	case s.Dir == "":
		return base
	case filepath.IsAbs(s.Dir):
		return filepath.Clean(s.Dir)
	case s.Dir == "~" || strings.HasPrefix(s.Dir, "~/") || strings.HasPrefix(s.Dir, `~\`):
		return filepath.Join(home, s.Dir[1:])
	}
	return filepath.Join(base, s.Dir)
}

func (g *group) server(name, root, home string) *namedServer {
	first := g.first()
	s := &namedServer{def: first.def, Server: Server{Server: first.def, Key: keyOf(name, root),
		Declared: first.written.Name, Written: first.written, Rejected: first.rejected, OffIn: first.offIn}}
	s.Name = name
	if s.URL == "" {
		s.Dir = dirOf(first.def, home)
	}
	for _, e := range g.entries {
		s.Sources = append(s.Sources, e.def.Source)
	}
	return s
}

// keyOf makes a key that no other server has: two roots may use one name.
func keyOf(name, root string) string {
	if root == "" {
		return name
	}
	sum := sha256.Sum256([]byte(fold(root)))
	return name + "@" + hex.EncodeToString(sum[:5]) // 10 digits: a machine has a few hundred roots
}
