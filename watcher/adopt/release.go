package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Release plans to undo every adoption of a client that still holds, the newest
// first. It compares three states of each file: what was there before, what Adopt
// made of it, and what is there now.
func (s *Session) Release(slug string) (*Plan, error) {
	client, ok := clientconfig.ClientOf(slug)
	if !ok || slug == "toolsd" {
		return nil, fmt.Errorf("there is no client %q to release", slug)
	}
	p := &Plan{Client: Client{Client: slug, Files: []File{}}}
	runs, err := s.active(slug)
	if err != nil {
		return nil, err
	}
	slices.Reverse(runs)
	if len(runs) == 0 {
		p.Status, p.Message = Nothing, fmt.Sprintf("%s is not adopted: there is no backup in %s", client.Name, s.backups(slug))
		return p, nil
	}
	p.undone = runs

	var paths []string
	for _, m := range runs {
		for _, f := range m.Files {
			if !slices.Contains(paths, f.Path) {
				paths = append(paths, f.Path)
			}
		}
	}
	conflicts, verbatim := 0, true
	for i, path := range paths {
		u, err := s.undo(slug, path, runs)
		if err != nil {
			return nil, err
		}
		conflicts += len(u.file.Conflicts)
		verbatim = verbatim && !u.respelled
		if !u.same() {
			if !u.exact {
				runs[0].keep(fmt.Sprintf("%d.present", i+1), u.was.data)
			}
			p.writes = append(p.writes, write{was: u.was, after: u.now})
		}
		if !u.same() || len(u.file.Conflicts) > 0 {
			p.Files = append(p.Files, u.file)
		}
	}
	f, w, err := s.takeOut(runs)
	if err != nil {
		return nil, err
	}
	if w != nil {
		p.writes = append(p.writes, *w)
	}
	conflicts += len(f.Conflicts)
	if w != nil || len(f.Conflicts) > 0 || len(f.Kept) > 0 {
		p.Files = append(p.Files, f)
	}
	p.Status = WouldRelease
	p.Message = client.Name + " has its own servers again"
	if !verbatim {
		p.Message += "; some came back in another spelling, the original is in " + runs[len(runs)-1].dir
	}
	if conflicts > 0 {
		p.Message += "; " + counted(conflicts, "conflict") + " to look at"
	}
	return p, nil
}

// undoing is what becomes of one file.
type undoing struct {
	was       snapshot
	now       []byte
	file      File
	exact     bool // now is what a backup holds, and nobody had changed the file
	respelled bool // servers came back, but not byte for byte
}

func (u undoing) same() bool { return u.was.data != nil && bytes.Equal(u.was.data, u.now) }

// undo takes back what the runs, newest first, did to one file.
func (s *Session) undo(slug, path string, runs []*manifest) (undoing, error) {
	u := undoing{file: newFile(path), exact: true}
	var err error
	if u.was, err = s.read(path); err != nil {
		return u, err
	}
	u.now = u.was.data
	var loc clientconfig.Location
	var shown []clientconfig.Server
	for _, m := range runs {
		i := slices.IndexFunc(m.Files, func(f fileRecord) bool { return f.Path == path })
		if i < 0 {
			continue
		}
		r := m.Files[i]
		loc = r.location(slug)
		before, err := m.text(r.Before)
		if err != nil {
			return u, err
		}
		after, err := m.text(r.After)
		if err != nil {
			return u, err
		}
		if u.was.info == nil {
			u.was.mode = r.Mode // the file is made again
		}
		old, err := servers(loc, before)
		if err != nil {
			return u, err
		}
		shown = append(shown, old...)
		switch {
		case u.now == nil, bytes.Equal(u.now, after):
			u.now = before
		case bytes.Equal(u.now, before): // cut off before this file was written, or after it came back
		default:
			u.exact = false
			if err := s.merge(&u, loc, r, before, after, old); err != nil {
				return u, err
			}
		}
		for _, name := range r.Moved {
			if !slices.Contains(u.file.Moved, name) {
				u.file.Moved = append(u.file.Moved, name)
			}
		}
		if u.file.Backup == "" {
			u.file.Backup = m.dir
		}
	}
	if !u.same() {
		if present, err := servers(loc, u.was.data); err == nil {
			shown = append(shown, present...)
		}
		u.file.Diff = s.diff(path, loc.Format, u.was.data, u.now, shown)
	}
	return u, nil
}

// servers decodes a file; a missing or empty one has none.
func servers(loc clientconfig.Location, data []byte) ([]clientconfig.Server, error) {
	all, _, err := clientconfig.Decode(loc, data)
	if err != nil && !errors.Is(err, clientconfig.ErrEmpty) {
		return nil, fmt.Errorf("reading %s: %w", loc.Path, err)
	}
	return all, nil
}

// merge brings the servers of one run back into a file that was edited since.
// What the user did there stays; a server that the user defined anew under the
// same name keeps it, and the old one comes back as name-released.
func (s *Session) merge(u *undoing, loc clientconfig.Location, r fileRecord, before, after []byte, old []clientconfig.Server) error {
	present, err := servers(loc, u.now)
	if err != nil {
		return err
	}
	shim := ""
	if i := find(present, r.Shim); r.Shim != "" && i >= 0 && clientconfig.IsSelf(present[i]) {
		shim = r.Shim
	}
	back := map[string]clientconfig.Server{} // what has to come, by its name there
	var gone []string                        // names that must not come, by that name
	renamed := map[string]clientconfig.Entry{}
	for _, name := range r.Moved {
		i := find(old, name)
		if i < 0 {
			return fmt.Errorf("the backup of %s does not hold %s, which it should", r.Path, name)
		}
		e := old[i]
		at := find(present, name)
		switch {
		case at < 0 || name == shim:
			back[name] = e
			continue
		case identical(present[at], e):
			gone = append(gone, name)
			continue
		}
		gone = append(gone, name)
		other := name + "-released"
		for n := 2; ; n++ {
			at := find(present, other)
			if at < 0 {
				renamed[other], back[other] = e, e
				break
			}
			if identical(present[at], e) {
				break
			}
			other = fmt.Sprintf("%s-released-%d", name, n)
		}
		u.file.Conflicts = append(u.file.Conflicts, Kept{name, "it was defined anew since; that stays, and the old one is " + other})
	}
	want := slices.Clone(present)
	if shim != "" {
		want = slices.Delete(want, find(want, shim), find(want, shim)+1)
	}
	// Before the adoption there may have been an entry of the shim's name that was
	// switched off.
	if i := find(old, r.Shim); shim != "" && i >= 0 && !slices.Contains(r.Moved, shim) {
		back[shim] = old[i]
	}
	for _, name := range sorted(back) {
		e := back[name]
		e.Name = name
		want = append(want, e)
	}
	right := func(text []byte) bool {
		got, err := servers(loc, text)
		return err == nil && sameSet(got, want)
	}

	// The best: the change from after to before, made in the present file.
	if target, err := clientconfig.ReplaceServers(loc, before, gone, renamed); err == nil {
		base := u.now
		if shim != "" { // as it was written, whatever the client made of it since
			if i := find(mustServers(loc, after), shim); i >= 0 {
				entry := mustServers(loc, after)[i]
				if as, err := putShim(loc, base, nil, shim, entry); err == nil {
					base = as
				}
			}
		}
		if len(gone) == 0 && len(renamed) == 0 {
			target = before
		}
		tokens := func(t string) []unit { return unitsOfTokens(t, loc.Format) }
		for _, way := range []struct {
			cut  func(string) []unit
			near int
		}{{unitsOfLines, 1}, {tokens, 8}, {tokens, 0}} { // the coarser, the surer
			text, ok := patch(way.cut(string(base)), way.cut(string(after)), way.cut(string(target)), way.near)
			if ok && loc.Format == clientconfig.JSON && !right([]byte(text)) {
				text = commas(text)
			}
			if ok && right([]byte(text)) {
				u.now = []byte(text)
				return nil
			}
		}
	}
	// Else: as toolsd writes such entries, which loses comments in them and keys
	// that it does not know.
	var remove []string
	if shim != "" {
		remove = []string{shim}
	}
	entries := map[string]clientconfig.Entry{}
	for name, e := range back {
		entries[name] = e
	}
	text, err := clientconfig.ReplaceServers(loc, u.now, remove, entries)
	if err != nil {
		return fmt.Errorf("bringing the servers back: %w; the original is %s", err, r.Before.Name)
	}
	u.now, u.respelled = text, u.respelled || len(entries) > 0
	return nil
}

func mustServers(loc clientconfig.Location, data []byte) []clientconfig.Server {
	all, _, _ := clientconfig.Decode(loc, data)
	return all
}

// sameSet compares two lists of servers, whatever their order.
func sameSet(a, b []clientconfig.Server) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !slices.ContainsFunc(b, func(y clientconfig.Server) bool {
			return x.Name == y.Name && identical(x, y)
		}) {
			return false
		}
	}
	return true
}
