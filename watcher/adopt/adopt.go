package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// source is a file of the client that is there.
type source struct {
	snapshot
	loc     clientconfig.Location
	content clientconfig.Content
	moved   []clientconfig.Server
	kept    []Kept
	self    string // the entry of toolsd that is there and on
	blocked bool   // the name toolsd is taken by an entry that stays
}

// Adopt plans to move a client's servers. It returns a *MissingError for a client
// that has no file.
func (s *Session) Adopt(slug string) (*Plan, error) {
	client, ok := clientconfig.ClientOf(slug)
	if !ok || slug == "toolsd" {
		return nil, fmt.Errorf("there is no client %q to adopt", slug)
	}
	p := &Plan{Client: Client{Client: slug, Files: []File{}}}
	sources, looked, err := s.sources(slug)
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, &MissingError{client.Name, looked}
	}
	config, err := s.openConfig()
	if err != nil {
		return nil, err
	}
	if config.refused != "" {
		return nil, errors.New(config.refused)
	}
	previous, err := s.putBefore()
	if err != nil {
		return nil, err
	}

	add := map[string]clientconfig.Entry{}
	var puts []put
	for i := range sources {
		src := &sources[i]
		stay := src.moved[:0]
		for _, e := range src.moved {
			as, isNew := config.place(s, e, slug)
			if as == "" {
				src.kept = append(src.kept, Kept{e.Name, "the managed file of toolsd locks this name"})
				continue
			}
			entry := config.entries[as]
			if isNew {
				add[as] = entry
			}
			puts = append(puts, put{Name: e.Name, As: as, File: src.path, Put: isNew || previous[as]})
			stay = append(stay, e)
		}
		src.moved = stay
	}

	p.run = &manifest{Version: manifestVersion, Client: slug, Time: s.Now()}
	s.reserve(p.run)
	var files []write
	for i, src := range sources {
		shim := ""
		if src.self == "" && s.wantsShim(sources, i) {
			shim = shimName
			if src.blocked {
				shim += "-mcp"
			}
		}
		f := newFile(src.path)
		f.Kept = append(f.Kept, src.kept...)
		for _, e := range src.moved {
			f.Moved = append(f.Moved, e.Name)
		}
		if shim == "" && len(src.moved) == 0 {
			if len(f.Kept) > 0 {
				p.Files = append(p.Files, f)
			}
			continue
		}
		after, err := s.replaced(src, f.Moved, shim)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(after, src.data) {
			continue
		}
		for _, u := range puts {
			if u.File == src.path && u.As != u.Name {
				f.As[u.Name] = u.As
			}
		}
		name := fmt.Sprintf("%d.before", len(files)+1)
		f.Diff = s.diff(src.path, src.loc.Format, src.data, after, src.content.Servers)
		if !s.DryRun {
			f.Backup = filepath.Join(p.run.dir, name)
		}
		p.Files = append(p.Files, f)
		p.run.Files = append(p.run.Files, fileRecord{
			Path: src.path, Format: src.loc.Format, Pointer: src.loc.Pointer, Settings: src.loc.Settings, Mode: src.mode,
			Before: p.run.keep(name, src.data), After: p.run.keep(fmt.Sprintf("%d.after", len(files)+1), after),
			Moved: f.Moved, Shim: shim,
		})
		files = append(files, write{was: src.snapshot, after: after})
	}
	if len(files) == 0 {
		p.run = nil
		p.Status, p.Message = Nothing, client.Name+" already has toolsd, and nothing is left that it can serve"
		if !slices.ContainsFunc(sources, func(src source) bool { return src.self != "" }) {
			p.Message = client.Name + " has only servers that stay where they are"
		}
		return p, nil
	}
	if len(add) > 0 {
		after, err := clientconfig.ReplaceServers(config.loc, config.data, nil, add)
		if err != nil {
			return nil, err
		}
		f := newFile(config.path)
		f.Diff = s.diff(config.path, clientconfig.JSON, config.data, after, config.all())
		record := p.run.keep("config.before", config.data)
		if record.Name != "" && !s.DryRun {
			f.Backup = filepath.Join(p.run.dir, record.Name)
		}
		p.Files = append(p.Files, f)
		p.run.Config.Before, p.run.Config.After = record, p.run.keep("config.after", after)
		p.writes = append(p.writes, write{was: config.snapshot, after: after})
	} else {
		p.run.Config.Before = p.run.keep("config.before", config.data)
		p.run.Config.After = p.run.Config.Before
	}
	p.run.Config.Path, p.run.Config.Mode, p.run.Config.Servers = config.path, config.mode, puts
	p.writes = append(p.writes, files...)
	p.Status = WouldAdopt
	p.Message = fmt.Sprintf("%s: %s in config.json, toolsd in the place of them", client.Name, counted(len(puts), "server"))
	if len(puts) == 0 {
		p.Message = client.Name + ": toolsd is added; there was no server to move"
	}
	return p, nil
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sources reads the user's files of a client. Files that are the same one behind
// links count once. A file that is not usable fails them all.
func (s *Session) sources(slug string) (found []source, looked []string, err error) {
	for _, loc := range clientconfig.UserFiles(s.Env) {
		if loc.Client != slug {
			continue
		}
		paths := []string{loc.Path}
		if loc.Glob {
			entries, _ := os.ReadDir(filepath.Dir(loc.Path)) // without it there are none
			paths = loc.Matches(entries)
		} else {
			looked = append(looked, loc.Path)
		}
		for _, path := range paths {
			src, err := s.source(loc.At(path), loc.Glob)
			if err != nil {
				return nil, nil, err
			}
			if src == nil || slices.ContainsFunc(found, func(o source) bool { return o.info != nil && src.info != nil && os.SameFile(o.info, src.info) }) {
				continue
			}
			found = append(found, *src)
		}
	}
	own := slices.ContainsFunc(found, func(src source) bool {
		return !src.loc.Managed && (!src.loc.Glob || src.self != "" || len(src.moved)+len(src.kept) > 0)
	})
	if !own {
		return nil, looked, nil
	}
	return found, looked, nil
}

// source reads one file and says what becomes of each of its entries; nil when it
// does not exist.
func (s *Session) source(loc clientconfig.Location, glob bool) (*source, error) {
	snap, err := s.read(loc.Path)
	if err != nil {
		if loc.Managed { // not the user's to mend
			return nil, nil
		}
		return nil, err
	}
	if snap.data == nil {
		return nil, nil
	}
	src := &source{snapshot: snap, loc: loc}
	src.loc.Glob = glob
	src.content, err = clientconfig.Read(loc, snap.data)
	if err != nil && !errors.Is(err, clientconfig.ErrEmpty) {
		if loc.Managed {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", loc.Path, err)
	}
	keep := func(name, reason string) { src.kept = append(src.kept, Kept{name, reason}) }
	names := map[string]bool{}
	for _, e := range src.content.Servers {
		names[e.Name] = true
		switch reason := ""; {
		case loc.Managed:
			keep(e.Name, "an administrator put it into a managed file")
		case clientconfig.IsSelf(e) && e.Source.Root == "":
			if !e.Disabled && (src.self == "" || e.Name == shimName) {
				src.self = e.Name
			}
		default:
			if reason = s.stays(loc, snap.data, src.content, e); reason == "" {
				src.moved = append(src.moved, e)
				continue
			}
			keep(e.Name, reason)
			src.blocked = src.blocked || e.Name == shimName && e.Source.Root == ""
		}
	}
	for _, p := range src.content.Problems {
		if p.Server != "" && !names[p.Server] {
			names[p.Server] = true
			keep(p.Server, p.Message)
			src.blocked = src.blocked || p.Server == shimName
		}
	}
	return src, nil
}

// wantsShim reports whether the file is one to put toolsd into: each that had
// servers, or, when the client has none at all, its first.
func (s *Session) wantsShim(sources []source, i int) bool {
	usable := func(src source) bool { return !src.loc.Managed && !src.loc.Glob }
	if sources[i].loc.Managed {
		return false
	}
	if len(sources[i].moved) > 0 {
		return true
	}
	for _, src := range sources {
		if len(src.moved) > 0 || src.self != "" {
			return false
		}
	}
	return usable(sources[i]) && i == slices.IndexFunc(sources, usable)
}

// replaced is the file without the servers that move and with toolsd.
func (s *Session) replaced(src source, moved []string, shim string) ([]byte, error) {
	loc := src.loc
	loc.Glob = false
	if shim == "" {
		return clientconfig.ReplaceServers(loc, src.data, moved, nil)
	}
	return putShim(loc, src.data, moved, shim, s.Shim(loc.Client))
}

// diff shows a change without what is secret in it.
func (s *Session) diff(path string, format clientconfig.Format, before, after []byte, servers []clientconfig.Server) string {
	d := unified(path, mask(before, format), mask(after, format))
	if d == "" && !bytes.Equal(before, after) {
		return fmt.Sprintf("--- %s\n+++ %s\n@@ only values that are not shown @@\n", path, path)
	}
	head := strings.Index(d, "@@")
	if head < 0 {
		return d
	}
	return d[:head] + hide(maskText(d[head:]), s.secrets(servers))
}
