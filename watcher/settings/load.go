package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// File is a file that was read. Data is nil when it does not exist.
type File struct {
	Path string
	Data []byte
}

// environment overrides one key.
const environmentThreshold = "TOOLSD_TOOL_SEARCH_MATCHING_THRESHOLD"

// Valid returns a *SyntaxError when data is no JSONC. An empty text is valid.
func Valid(data []byte) error {
	_, err := parse(data)
	return err
}

// Load computes the effective settings: the environment over the user's file over
// the managed file over the defaults, but for the keys that the managed file
// locks. It also returns every setting with its origin, in a fixed order, and
// everything in the files that could not be used.
func Load(managed, user File, getenv func(string) string) (Settings, []Value, []clientconfig.Problem) {
	l := loader{settings: Default(), origin: map[string]string{}}
	if root := l.open(managed); root != nil {
		l.readLocked(root)
		l.layer(root, FromManaged, nil)
	}
	if root := l.open(user); root != nil {
		if m := root.member("locked"); m != nil {
			l.report(m.start, `"locked" has a meaning only in the managed file`)
		}
		l.layer(root, FromUser, l.settings.Locked)
	}
	l.environment(getenv)
	return l.settings, l.values(), l.problems
}

type loader struct {
	file     File // the one being read
	settings Settings
	origin   map[string]string // of each key, and of each entry of a map: categories.export
	problems []clientconfig.Problem
}

func (l *loader) report(at int, message string) {
	line, col := position(l.file.Data, at)
	l.problems = append(l.problems, clientconfig.Problem{File: l.file.Path, Line: line, Col: col, Message: message})
}

// open returns the object that a file holds, or nil when it holds none.
func (l *loader) open(f File) *node {
	l.file = f
	root, err := parse(f.Data)
	var syntax *SyntaxError
	switch {
	case errors.As(err, &syntax):
		l.problems = append(l.problems, clientconfig.Problem{File: f.Path, Line: syntax.Line, Col: syntax.Col,
			Message: "not valid JSON: " + syntax.Message})
		return nil
	case root.kind == 0:
		return nil
	case root.kind != '{':
		l.report(root.start, "the file must hold an object, not "+root.describe())
		return nil
	}
	return &root
}

func (l *loader) readLocked(root *node) {
	m := root.member("locked")
	if m == nil {
		return
	}
	var names []string
	if list(&names, &m.value, "locked", l.report) {
		for _, name := range names {
			if err := checkKey(name); err != nil && name != "mcpServers" && !strings.HasPrefix(name, "mcpServers.") {
				l.report(m.value.start, "locked: "+err.Error())
				continue
			}
			l.settings.Locked = append(l.settings.Locked, name)
		}
	}
}

// layer takes over what the file says and is not locked.
func (l *loader) layer(root *node, origin string, locked []string) {
	l.check(root, "", topNames())
	group := root.member("trust")
	odd := group != nil && group.value.kind != '{'
	for _, k := range keys {
		m := find(root, k.name)
		if odd && !isLocked(locked, k.name) && l.settings.forbid(k.name) {
			l.origin[k.name] = origin
		}
		if m == nil {
			continue
		}
		if isLocked(locked, k.name) {
			l.report(m.start, k.name+" is locked by the managed file: this value has no effect")
			continue
		}
		if !k.isMap() {
			if k.read(&l.settings, &m.value, l.report) || l.settings.forbid(k.name) {
				l.origin[k.name] = origin
			}
			continue
		}
		value := m.value
		value.members = nil
		for _, entry := range m.value.members {
			if name := k.name + "." + entry.name; isLocked(locked, name) {
				l.report(entry.start, name+" is locked by the managed file: this value has no effect")
				continue
			}
			value.members = append(value.members, entry)
		}
		var own Settings
		k.read(&own, &value, func(int, string) {})
		for name := range k.entries(&own) {
			l.origin[k.name+"."+name] = origin
		}
		k.read(&l.settings, &value, l.report)
	}
}

// check reports the names of an object that have no meaning, and names given twice.
func (l *loader) check(n *node, group string, known []string) {
	seen := map[string]bool{}
	for i := range n.members {
		m := &n.members[i]
		if seen[m.name] {
			l.report(m.start, fmt.Sprintf("the key %q is given twice: the last one holds", m.name))
		}
		seen[m.name] = true
		if !slices.Contains(known, m.name) {
			l.report(m.start, l.unknown(group, m.name, known))
			continue
		}
		if members := groupMembers(m.name); group == "" && members != nil {
			if m.value.kind == '{' {
				l.check(&m.value, m.name, members)
			} else {
				l.report(m.value.start, fmt.Sprintf("%s must be an object, not %s", m.name, m.value.describe()))
			}
		}
	}
}

func (l *loader) unknown(group, name string, known []string) string {
	if group != "" {
		return fmt.Sprintf("unknown key %q in %s%s", name, group, didYouMean(name, known))
	}
	if outer, inner, ok := strings.Cut(name, "."); ok && checkKey(name) == nil {
		return fmt.Sprintf("unknown key %q (write it as %q: { %q: … })", name, outer, inner)
	}
	return unknown(name, suggestions())
}

// EnvironmentThreshold is the value of toolSearch.matchingThreshold that an
// environment sets, or nil.
func EnvironmentThreshold(getenv func(string) string) (*float64, error) {
	text := ""
	if getenv != nil {
		text = strings.TrimSpace(getenv(environmentThreshold))
	}
	if text == "" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1e9) {
		return nil, fmt.Errorf("the environment variable %s must be a number from 0, not %q", environmentThreshold, cut(text))
	}
	return &v, nil
}

func (l *loader) environment(getenv func(string) string) {
	v, err := EnvironmentThreshold(getenv)
	if err != nil {
		l.problems = append(l.problems, clientconfig.Problem{Message: err.Error()})
	}
	if v == nil {
		return
	}
	if l.settings.IsLocked(threshold) {
		l.problems = append(l.problems, clientconfig.Problem{
			Message: fmt.Sprintf("%s is locked by the managed file: the environment variable %s has no effect", threshold, environmentThreshold)})
		return
	}
	l.settings.ToolSearch.MatchingThreshold = *v
	l.origin[threshold] = FromEnvironment
}

// values lists every setting. A map has one value per entry, since each may come
// from another file; a map without entries is one value.
func (l *loader) values() []Value {
	var out []Value
	add := func(name string, value any) {
		origin := l.origin[name]
		if origin == "" {
			origin = FromDefault
		}
		out = append(out, Value{name, value, origin, l.settings.IsLocked(name)})
	}
	for _, k := range keys {
		entries := map[string]any{}
		if k.isMap() {
			entries = k.entries(&l.settings)
		}
		if len(entries) == 0 {
			add(k.name, k.get(&l.settings))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			add(k.name+"."+name, entries[name])
		}
	}
	return out
}

// Find returns the setting of that key out of the values of Load. The name of a
// group (toolSearch, categories) gives all of the group as one object, with the
// origin of its first member that is not a default. A client that no file names
// is on. It returns a *KeyError for a key that does not exist.
func Find(values []Value, name string) (Value, error) {
	whole := Value{Key: name, Origin: FromDefault}
	members := map[string]any{}
	for _, v := range values {
		if v.Key == name {
			return v, nil
		}
		if member, ok := strings.CutPrefix(v.Key, name+"."); ok {
			members[member] = v.Value
			if whole.Origin == FromDefault {
				whole.Origin = v.Origin
			}
			whole.Locked = v.Locked && (whole.Locked || len(members) == 1)
		}
	}
	if whole.Value = members; len(members) > 0 {
		return whole, nil
	}
	if err := checkKey(name); err != nil {
		return Value{}, err
	}
	if client, ok := strings.CutPrefix(name, "clients."); ok && client != "" {
		whole.Value = true
		return whole, nil
	}
	return Value{}, &KeyError{Key: name, Hint: "no file defines it; `toolsd settings` lists what is there"}
}
