package tool

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"strings"
	"sync"
)

// maxExposed is the longest exposed name. Model APIs take 64 characters, of
// which a client's own prefix (mcp__toolsd__) takes 13.
const maxExposed = 50

// Names gives every tool the name under which agents see it, and never gives
// that name to another tool, not even after the first one is gone: a permission
// rule or a transcript that holds the name must keep its meaning.
// It is safe for concurrent use.
type Names struct {
	mu    sync.Mutex
	byID  map[string]string // id → exposed name
	owner map[string]string // folded exposed name → id
}

// NewNames continues with the names that Export returned earlier. reserved are
// names that no tool may get.
func NewNames(remembered map[string]string, reserved ...string) *Names {
	n := &Names{byID: map[string]string{}, owner: map[string]string{}}
	for _, r := range reserved {
		n.owner[fold(r)] = r
	}
	for id, name := range remembered {
		if _, taken := n.owner[fold(name)]; !taken && validExposed(name) {
			n.byID[id], n.owner[fold(name)] = name, id
		}
	}
	return n
}

// Of returns the exposed name of a tool, choosing one at the first question.
func (n *Names) Of(id ID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := id.String()
	if name, ok := n.byID[key]; ok {
		return name
	}
	name := plainName(id)
	for salt := ""; ; salt += "+" {
		_, taken := n.owner[fold(name)]
		if !taken && validExposed(name) {
			break
		}
		name = hashedName(id, salt)
	}
	n.byID[key], n.owner[fold(name)] = name, key
	return name
}

// Export returns a copy of all names for keeping.
func (n *Names) Export() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.byID)
}

// Len is the number of names, which only grows.
func (n *Names) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.byID)
}

// fold makes names that differ only in case or in - and _ the same one: some
// clients do not tell them apart.
func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }

// plainName is <server>_<tool> with every other character replaced by one
// underscore. A name that had to be changed beyond that, or is too long, is not
// valid and gets a hash, so that two different ids never look the same.
func plainName(id ID) string {
	server, ok1 := sanitize(id.Server)
	name, ok2 := sanitize(id.Name)
	if !ok1 || !ok2 {
		return ""
	}
	return server + "_" + name
}

func hashedName(id ID, salt string) string {
	sum := sha256.Sum256([]byte(id.String() + salt))
	hash := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:5])) // 8 characters
	server, _ := sanitize(id.Server)
	name, _ := sanitize(id.Name)
	stem := strings.Trim(server+"_"+name, "_-")
	if keep := maxExposed - 1 - len(hash); len(stem) > keep {
		stem = strings.Trim(stem[:keep], "_-")
	}
	return strings.TrimLeft(stem+"_"+hash, "_")
}

// sanitize maps s to [a-zA-Z0-9_-] without doubled or outer underscores. exact
// says that only characters were replaced which leave the name readable.
func sanitize(s string) (out string, exact bool) {
	exact = true
	var b strings.Builder
	for _, r := range s {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			b.WriteRune(r)
			continue
		}
		if r != '_' && r != '.' && r != '/' && r != ' ' {
			exact = false
		}
		if n := b.Len(); n > 0 && b.String()[n-1] == '_' {
			exact = false
			continue
		}
		b.WriteByte('_')
	}
	trimmed := strings.Trim(b.String(), "_")
	return trimmed, exact && trimmed == b.String() && trimmed != ""
}

func validExposed(s string) bool {
	if s == "" || len(s) > maxExposed || strings.Contains(s, "__") {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return true
}
