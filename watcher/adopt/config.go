package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// config is config.json with what is planned to be in it.
type config struct {
	snapshot
	loc     clientconfig.Location
	entries map[string]clientconfig.Server
	taken   map[string]bool // names of entries that are of no use, but there
	managed map[string]clientconfig.Server
	locked  func(name string) bool
	refused string // why its servers would have no effect
}

func (s *Session) configLocation() clientconfig.Location {
	return clientconfig.Location{Client: "toolsd", Scope: clientconfig.User, Path: s.Config, Format: clientconfig.JSON, Pointer: "mcpServers", Settings: true}
}

func (s *Session) openConfig() (*config, error) {
	c := &config{loc: s.configLocation(), entries: map[string]clientconfig.Server{}, taken: map[string]bool{}, managed: map[string]clientconfig.Server{}}
	var err error
	if c.snapshot, err = s.read(s.Config); err != nil {
		return nil, err
	}
	content, err := clientconfig.Read(c.loc, c.data)
	if err != nil && !errors.Is(err, clientconfig.ErrEmpty) {
		return nil, fmt.Errorf("reading %s: %w", s.Config, err)
	}
	for _, p := range content.Problems {
		if p.Server != "" {
			c.taken[p.Server] = true
		}
	}
	for _, e := range content.Servers {
		c.entries[e.Name] = e
	}
	managed := settings.File{Path: s.Managed}
	if s.Managed != "" {
		managed.Data, _ = os.ReadFile(s.Managed) // an unreadable one holds for nobody
		loc := c.loc
		loc.Path, loc.Managed = s.Managed, true
		servers, _, _ := clientconfig.Decode(loc, managed.Data)
		for _, e := range servers {
			c.managed[e.Name] = e
		}
	}
	now, _, _ := settings.Load(managed, settings.File{Path: s.Config, Data: c.data}, nil)
	c.locked = func(name string) bool { return now.IsLocked("mcpServers." + name) }
	switch on, ok := now.Clients["toolsd"]; {
	case ok && !on:
		c.refused = "the setting clients.toolsd is false, so servers in config.json would have no effect; nothing was changed"
	case now.IsLocked("mcpServers"):
		c.refused = "the managed file " + s.Managed + " locks mcpServers, so servers in config.json would have no effect; nothing was changed"
	}
	return c, nil
}

// place finds the name under which an entry is or will be in config.json, and
// keeps it. isNew says that it has to be put there.
func (c *config) place(s *Session, e clientconfig.Server, slug string) (as string, isNew bool) {
	loc := clientconfig.Location{Client: slug, Path: e.Source.File}
	moved, _ := absolute(e, loc) // stays asked
	if moved.Origin == "" {
		moved.Origin = slug
	}
	for i := 0; i < 1000; i++ {
		name := e.Name
		switch {
		case i == 1:
			name = e.Name + "-" + slug
		case i > 1:
			name = fmt.Sprintf("%s-%s-%d", e.Name, slug, i)
		}
		there, ok := c.entries[name]
		switch {
		case c.locked(name):
		case ok && !clientconfig.IsSelf(there) && s.sameServer(there, moved):
			return name, false
		case ok || c.taken[name]:
		case c.clashes(s, name, moved):
		default:
			c.entries[name] = moved
			return name, true
		}
	}
	return "", false
}

// clashes reports whether the managed file has another server of that name, which
// ours would hide.
func (c *config) clashes(s *Session, name string, e clientconfig.Server) bool {
	m, ok := c.managed[name]
	return ok && !s.sameServer(m, e)
}

func (c *config) all() []clientconfig.Server {
	var all []clientconfig.Server
	for _, name := range sorted(c.entries) {
		all = append(all, c.entries[name])
	}
	return all
}

// putBefore are the names in config.json that an adoption which still holds put
// there.
func (s *Session) putBefore() (map[string]bool, error) {
	names := map[string]bool{}
	for _, c := range clientconfig.Clients() {
		runs, err := s.active(c.Slug)
		if err != nil {
			return nil, err
		}
		for _, m := range runs {
			for _, u := range m.Config.Servers {
				names[u.As] = names[u.As] || u.Put
			}
		}
	}
	return names, nil
}

// takeOut plans what happens to config.json: the servers that the runs put there
// leave, but for those that another adoption rests on or that the user changed.
func (s *Session) takeOut(runs []*manifest) (File, *write, error) {
	f := newFile(s.Config)
	snap, err := s.read(s.Config)
	if err != nil {
		return f, nil, err
	}
	loc := s.configLocation()
	present, err := servers(loc, snap.data)
	if err != nil {
		return f, nil, err
	}
	others := map[string]string{} // names that other clients' adoptions rest on
	for _, c := range clientconfig.Clients() {
		if c.Slug == runs[0].Client {
			continue
		}
		active, err := s.active(c.Slug)
		if err != nil {
			return f, nil, err
		}
		for _, m := range active {
			for _, u := range m.Config.Servers {
				others[u.As] = c.Name
			}
		}
	}
	// The oldest run first: what it put there is the definition that counts.
	put := map[string]clientconfig.Server{}
	for i := len(runs) - 1; i >= 0; i-- {
		after, err := runs[i].text(runs[i].Config.After)
		if err != nil {
			return f, nil, err
		}
		written, err := servers(loc, after)
		if err != nil {
			return f, nil, err
		}
		for _, u := range runs[i].Config.Servers {
			if at := find(written, u.As); u.Put && at >= 0 {
				put[u.As] = written[at]
			}
		}
	}
	var remove []string
	untouched := true
	for _, as := range sorted(put) {
		at := find(present, as)
		switch {
		case at < 0:
			continue
		case others[as] != "":
			f.Kept = append(f.Kept, Kept{as, "the adoption of " + others[as] + " rests on it"})
			untouched = false
		case !identical(present[at], put[as]):
			f.Conflicts = append(f.Conflicts, Kept{as, "it was changed in config.json since; it stays there"})
			untouched = false
		default:
			remove = append(remove, as)
		}
	}
	if len(remove) == 0 {
		return f, nil, nil
	}
	after, err := s.withoutPut(runs, snap.data, remove, untouched)
	if err != nil {
		return f, nil, err
	}
	f.Diff = s.diff(s.Config, clientconfig.JSON, snap.data, after, present)
	f.Moved = remove
	return f, &write{was: snap, after: after}, nil
}

// withoutPut is config.json after the release: byte for byte what it was before
// the runs when nobody else wrote there since.
func (s *Session) withoutPut(runs []*manifest, data []byte, remove []string, untouched bool) ([]byte, error) {
	was := data
	for _, m := range runs {
		if m.Config.Before == m.Config.After {
			continue
		}
		before, err := m.text(m.Config.Before)
		if err != nil {
			return nil, err
		}
		after, err := m.text(m.Config.After)
		if err != nil {
			return nil, err
		}
		switch {
		case was != nil && bytes.Equal(was, after):
			was = before
		case was == nil && before == nil, was != nil && bytes.Equal(was, before): // this run was cut off
		default:
			untouched = false
		}
	}
	loc := s.configLocation()
	if left, err := servers(loc, was); untouched && err == nil && !slices.ContainsFunc(left, func(e clientconfig.Server) bool { return slices.Contains(remove, e.Name) }) {
		return was, nil
	}
	out, err := clientconfig.ReplaceServers(loc, data, remove, nil)
	if err != nil {
		return nil, fmt.Errorf("taking %s out: %w", strings.Join(remove, ", "), err)
	}
	made := s.made(runs)
	if made.key {
		bare := false
		if out, bare, err = clientconfig.DropEmptyRoot(loc, out); err != nil {
			return nil, fmt.Errorf("taking %s out: %w", loc.Pointer, err)
		}
		if bare && made.file {
			return nil, nil
		}
	}
	for _, before := range made.from {
		if sameTokens(string(before), string(out)) { // but for the layout
			return before, nil
		}
	}
	return out, nil
}

// sameTokens compares two JSON texts with their comments, but without their layout.
func sameTokens(a, b string) bool {
	tokens := func(text string) []string {
		var all []string
		for _, u := range unitsOfTokens(text, clientconfig.JSON) {
			if u.key != "" {
				all = append(all, u.key)
			}
		}
		return all
	}
	return slices.Equal(tokens(a), tokens(b))
}

// madeBy is what of config.json is there because of adoptions, and the texts that
// they found.
type madeBy struct {
	key, file bool
	from      [][]byte
}

// made finds out what the runs made, or those that held when they were made: the
// first to be released is not always the first that came. A backup that cannot be
// read any more says nothing.
func (s *Session) made(runs []*manifest) madeBy {
	var all []*manifest
	for _, c := range clientconfig.Clients() {
		some, err := s.runs(c.Slug)
		if err != nil {
			continue
		}
		all = append(all, some...)
	}
	var out madeBy
	seen := map[string]bool{}
	var look func(m *manifest)
	look = func(m *manifest) {
		if seen[m.dir] {
			return
		}
		seen[m.dir] = true
		before, err := m.text(m.Config.Before)
		if err != nil {
			return
		}
		after, err := m.text(m.Config.After)
		if err != nil {
			return
		}
		key := s.configLocation().Pointer
		out.key = out.key || !clientconfig.HasKey(before, key) && clientconfig.HasKey(after, key)
		out.file = out.file || before == nil && after != nil
		if before != nil {
			out.from = append(out.from, before)
		}
		for _, other := range all {
			if other.Time.Before(m.Time) && (other.Released == nil || other.Released.After(m.Time)) {
				look(other)
			}
		}
	}
	for _, m := range runs {
		look(m)
	}
	return out
}
