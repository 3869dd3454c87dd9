package trust

import (
	"fmt"

	"github.com/toolsd/toolsd/index/tool"
)

// Change says how a tool differs from what was seen of its server.
type Change string

// The kinds of change. A tool of a server that was never listed has none: the
// first list is what an approval of the server is given for.
const (
	Unchanged Change = ""
	Added     Change = "new"
	Altered   Change = "changed"
)

// maxTools is how many names are remembered for one server: more than an
// upstream's list may hold (10,000), with room for those that came and went.
const maxTools = 20_000

// NoteTools takes in a complete list. The first one of a server is remembered as
// seen. What is different in a later one is not: it stays so until SawTool or
// ApproveTool, also when the tool leaves and comes back.
func (s *Store) NoteTools(subject Subject, tools []*tool.Tool) {
	if _, known := s.now.Load().Tools[subject]; known {
		return
	}
	if err := s.remember(subject, tools, true); err != nil {
		s.log.Warn("remembering the tools of a server", "cause", err)
	}
}

func changeOf(seen map[string]def, t *tool.Tool) Change {
	switch d, ok := seen[t.Name]; {
	case !ok:
		return Added
	case d.Hash != t.Hash:
		return Altered
	}
	return Unchanged
}

// Changed says how a tool differs from what was seen.
func (d *Decisions) Changed(subject Subject, t *tool.Tool) Change {
	seen, known := d.now.Load().Tools[subject]
	if !known {
		return Unchanged
	}
	return changeOf(seen, t)
}

// Held reports whether a tool waits for the user where trust.tools is "hold".
func (d *Decisions) Held(subject Subject, t *tool.Tool) bool {
	return d.Changed(subject, t) != Unchanged
}

// SawTool remembers that the user's agents were shown definitions, so that they
// are not marked any more; many in one call are one write. It is for trust.tools
// "show"; where tools are held, only ApproveTool may do that.
func (s *Store) SawTool(subject Subject, tools ...*tool.Tool) error {
	var fresh []*tool.Tool
	for _, t := range tools {
		if s.Changed(subject, t) != Unchanged {
			fresh = append(fresh, t)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.remember(subject, fresh, false)
}

// ApproveTool lets a held tool through, with the definition it has now. After an
// error it is still held.
func (s *Store) ApproveTool(subject Subject, t *tool.Tool) error {
	if err := s.remember(subject, []*tool.Tool{t}, false); err != nil {
		return fmt.Errorf("the approval of %s was not given: %w", t.ID, err)
	}
	return nil
}

// remember adds tools to what was seen. A first list counts as seen even when it
// cannot be written: holding back all of a server's tools for a full disk would
// help nobody.
func (s *Store) remember(subject Subject, tools []*tool.Tool, first bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.now.Load()
	if _, known := old.Tools[subject]; known && first {
		return nil // another list was quicker
	}
	next := old.clone()
	seen := cloneMap(old.Tools[subject])
	for _, t := range tools {
		if _, ok := seen[t.Name]; !ok && len(seen) >= maxTools {
			if !first {
				return fmt.Errorf("more than %d names of tools of %s were seen", maxTools, t.Server)
			}
			break
		}
		seen[t.Name] = def{t.Hash}
	}
	next.Tools[subject] = seen
	err := s.grant(next)
	if err != nil && first {
		s.now.Store(next)
		s.disk[0].behind, s.disk[1].behind = true, true
	}
	return err
}
