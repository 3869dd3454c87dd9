package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	Renamed   Change = "renamed" // new, with the definition of a tool that is not listed any more
)

// ToolChange is one tool that differs.
type ToolChange struct {
	Tool *tool.Tool
	Kind Change
	Was  string // the former name of a renamed tool
}

// maxTools is how many names are remembered for one server: more than an
// upstream's list may hold (10,000), with room for those that came and went.
const maxTools = 20_000

// NoteTools compares a complete list with what was seen of the server. The first
// list of a server is remembered as seen. Later differences are not: they stay
// until SawTool or ApproveTool, also when the tool leaves and comes back.
func (s *Store) NoteTools(subject Subject, tools []*tool.Tool) []ToolChange {
	seen, known := s.now.Load().Tools[subject]
	if !known {
		if err := s.remember(subject, tools, true); err != nil {
			s.log.Warn("remembering the tools of a server", "cause", err)
		}
		return nil
	}
	listed := make(map[string]bool, len(tools))
	for _, t := range tools {
		listed[t.Name] = true
	}
	gone := map[string]string{} // body → name
	for name, d := range seen {
		if was, ok := gone[d.Body]; !listed[name] && (!ok || name < was) {
			gone[d.Body] = name
		}
	}
	var out []ToolChange
	for _, t := range tools {
		c := ToolChange{Tool: t, Kind: changeOf(seen, t)}
		if c.Kind == Unchanged {
			continue
		}
		if c.Kind == Added {
			if was, ok := gone[bodyHash(t)]; ok {
				c.Kind, c.Was = Renamed, was
			}
		}
		out = append(out, c)
	}
	return out
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

// Changed says how a tool differs from what was seen, Renamed counting as Added.
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
		seen[t.Name] = def{t.Hash, bodyHash(t)}
	}
	next.Tools[subject] = seen
	err := s.grant(next)
	if err != nil && first {
		s.now.Store(next)
		s.disk[0].behind, s.disk[1].behind = true, true
	}
	return err
}

// bodyHash is the hash of a definition without its name. 64 bits are enough for
// telling a renamed tool from a new one, since both wait alike.
func bodyHash(t *tool.Tool) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(t.Raw, &fields) != nil {
		return ""
	}
	delete(fields, "name")
	delete(fields, "_meta")
	values := make(map[string]any, len(fields))
	for k, raw := range fields {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return ""
		}
		values[k] = v
	}
	canonical, err := json.Marshal(values)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:8])
}
