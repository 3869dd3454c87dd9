// Package session remembers what each attached agent has been shown and which
// tools are active for it. It is memory only: an agent's shim keeps the same
// facts and hands them over when it attaches again.
//
// A Session is safe for concurrent use. It knows ids and hashes, nothing of how
// they are shown or called.
package session

import (
	"maps"
	"slices"
	"sync"

	"github.com/toolsd/toolsd/index/tool"
)

// Session is the memory of one agent.
type Session struct {
	mu     sync.Mutex
	seen   map[tool.ID]tool.Hash // the definition that was shown last
	active []tool.ID             // in the order of activation
	has    map[tool.ID]bool      // what active holds
	listed map[tool.ID]bool      // what its client listed last
}

// New begins with what an earlier session of the same agent handed over.
func New(seen map[tool.ID]tool.Hash, active, listed []tool.ID) *Session {
	s := &Session{seen: map[tool.ID]tool.Hash{}, has: map[tool.ID]bool{}, listed: map[tool.ID]bool{}}
	maps.Copy(s.seen, seen)
	s.Activate(active...)
	for _, id := range listed {
		s.listed[id] = true
	}
	return s
}

// Saw notes which definitions the agent has been shown. listed says that they
// are all that its client listed last.
func (s *Session) Saw(seen map[tool.ID]tool.Hash, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.seen, seen)
	if listed {
		clear(s.listed)
		for id := range seen {
			s.listed[id] = true
		}
	}
}

// Seen returns the hash of the definition that was shown last, or "".
func (s *Session) Seen(id tool.ID) tool.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[id]
}

// Lists reports whether the agent's client can call the tool by its own name.
func (s *Session) Lists(id tool.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed[id]
}

// Activate appends the tools that are not active yet and reports whether there
// were any. Nothing is ever moved: the order is part of the agent's prompt cache.
func (s *Session) Activate(ids ...tool.ID) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if !s.has[id] {
			s.has[id] = true
			s.active = append(s.active, id)
			changed = true
		}
	}
	return changed
}

// Deactivate drops the tools for which gone reports true.
func (s *Session) Deactivate(gone func(tool.ID) bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.active)
	s.active = slices.DeleteFunc(s.active, func(id tool.ID) bool {
		if gone(id) {
			delete(s.has, id)
			return true
		}
		return false
	})
	return len(s.active) != before
}

// Active returns the active tools in the order of their activation.
func (s *Session) Active() []tool.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}
