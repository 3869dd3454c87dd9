package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
)

// key describes one setting: how a value of a file becomes a field of Settings.
type key struct {
	name string // dotted
	want string // what a value must be, for messages
	// read takes over the value of a file. It reports what it cannot use, keeping
	// the rest, and says whether it used anything.
	read func(s *Settings, n *node, report report) bool
	get  func(s *Settings) any
	// parse makes JSON of what a person typed where that need not be JSON itself.
	parse func(text string) string
}

// report receives a problem at a byte offset of the file that is being read.
type report func(at int, message string)

// keys are all settings in the order in which they are listed.
var keys = []key{
	scalar("toolSearch.enabled", "true or false", func(s *Settings) *bool { return &s.ToolSearch.Enabled }, boolean),
	scalar("toolSearch.minPct", "a number from 0 to 100", func(s *Settings) *float64 { return &s.ToolSearch.MinPct }, number(0, 100)),
	scalar("toolSearch.minTokens", "a whole number from 0", func(s *Settings) *int { return &s.ToolSearch.MinTokens }, whole(0)),
	scalar("toolSearch.contextWindow", "a whole number from 1", func(s *Settings) *int { return &s.ToolSearch.ContextWindow }, whole(1)),
	scalar("toolSearch.maxResults", "a whole number from 1", func(s *Settings) *int { return &s.ToolSearch.MaxResults }, whole(1)),
	scalar(threshold, "a number from 0", func(s *Settings) *float64 { return &s.ToolSearch.MatchingThreshold }, number(0, 1e9)),
	{"pinned", "a list of tool ids",
		func(s *Settings, n *node, r report) bool { return list(&s.Pinned, n, "pinned", r) },
		func(s *Settings) any { return some(s.Pinned) }, typedList},
	{"categories", "an object of categories by name", readCategories,
		func(s *Settings) any { return someMap(s.Categories) }, nil},
	{"clients", "an object of client name: true or false", readClients,
		func(s *Settings) any { return someMap(s.Clients) }, nil},
	{"files", "a list of paths",
		func(s *Settings, n *node, r report) bool { return list(&s.Files, n, "files", r) },
		func(s *Settings) any { return some(s.Files) }, typedList},
	{"synonyms", "a list of lists of words", readSynonyms,
		func(s *Settings) any { return some(s.Synonyms) }, nil},
	scalar("trust.userScope", `"auto" or "ask"`, func(s *Settings) *string { return &s.Trust.UserScope }, oneOf("auto", "ask")),
	scalar("trust.tools", `"show" or "hold"`, func(s *Settings) *string { return &s.Trust.Tools }, oneOf("show", "hold")),
}

const threshold = "toolSearch.matchingThreshold"

// notSettings are names that may stand at the top of a file beside the settings.
// $schema is what editors write for completion.
var notSettings = []string{"mcpServers", "locked", "$schema"}

// scalar is a key of one plain value.
func scalar[T any](name, want string, field func(*Settings) *T, take func(*node) (T, bool)) key {
	return key{name, want,
		func(s *Settings, n *node, r report) bool {
			v, ok := take(n)
			if !ok {
				r(n.start, fmt.Sprintf("%s must be %s, not %s", name, want, n.describe()))
				return false
			}
			*field(s) = v
			return true
		},
		func(s *Settings) any { return *field(s) },
		func(text string) string {
			if strings.HasPrefix(want, `"`) && !strings.HasPrefix(text, `"`) {
				return quote(text)
			}
			return text
		},
	}
}

func boolean(n *node) (bool, bool) { return n.text == "true", n.kind == 't' }

func number(low, high float64) func(*node) (float64, bool) {
	return func(n *node) (float64, bool) {
		v, err := strconv.ParseFloat(n.text, 64)
		return v, n.kind == '0' && err == nil && v >= low && v <= high
	}
}

func whole(low int) func(*node) (int, bool) {
	return func(n *node) (int, bool) {
		v, ok := number(float64(low), 1<<31)(n) // 1e5 and 5.0 are whole numbers too
		return int(v), ok && v == float64(int(v))
	}
}

func oneOf(words ...string) func(*node) (string, bool) {
	return func(n *node) (string, bool) { return n.text, n.kind == '"' && slices.Contains(words, n.text) }
}

// list takes over the strings of a list; others are reported one by one.
func list(into *[]string, n *node, name string, r report) bool {
	if n.kind != '[' {
		r(n.start, fmt.Sprintf("%s must be a list of strings, not %s", name, n.describe()))
		return false
	}
	out := []string{}
	for i := range n.elements {
		e := &n.elements[i]
		if e.kind != '"' || e.text == "" {
			r(e.start, fmt.Sprintf("an entry of %s must be a string that is not empty, not %s", name, e.describe()))
			continue
		}
		if !slices.Contains(out, e.text) {
			out = append(out, e.text)
		}
	}
	*into = out
	return true
}

func readCategories(s *Settings, n *node, r report) bool {
	if n.kind != '{' {
		r(n.start, "categories must be an object of categories by name, not "+n.describe())
		return false
	}
	merged := maps.Clone(s.Categories)
	for i := range n.members {
		m := &n.members[i]
		if c, ok := readCategory(m.name, &m.value, r); ok {
			if merged == nil {
				merged = map[string]Category{}
			}
			merged[m.name] = c
		}
	}
	s.Categories = merged
	return true
}

func readCategory(name string, n *node, r report) (Category, bool) {
	c := Category{Tools: []string{}}
	if n.kind != '{' || name == "" {
		r(n.start, fmt.Sprintf(`category %q must have a name and be an object like {"description": "…", "tools": ["server::tool*"]}`, name))
		return c, false
	}
	for i := range n.members {
		m := &n.members[i]
		switch m.name {
		case "description":
			if m.value.kind != '"' {
				r(m.value.start, fmt.Sprintf("the description of category %q must be a string, not %s", name, m.value.describe()))
				continue
			}
			c.Description = m.value.text
		case "tools":
			list(&c.Tools, &m.value, fmt.Sprintf("the tools of category %q", name), r)
		default:
			r(m.start, unknown(m.name, []string{"description", "tools"}))
		}
	}
	return c, true
}

func readClients(s *Settings, n *node, r report) bool {
	if n.kind != '{' {
		r(n.start, "clients must be an object of client name: true or false, not "+n.describe())
		return false
	}
	merged := maps.Clone(s.Clients)
	for i := range n.members {
		m := &n.members[i]
		on, ok := boolean(&m.value)
		switch {
		case !slices.Contains(slugs(), m.name):
			r(m.start, fmt.Sprintf("unknown client %q%s", m.name, didYouMean(m.name, slugs())))
		case !ok:
			r(m.value.start, fmt.Sprintf("clients.%s must be true or false, not %s", m.name, m.value.describe()))
		default:
			if merged == nil {
				merged = map[string]bool{}
			}
			merged[m.name] = on
		}
	}
	s.Clients = merged
	return true
}

func readSynonyms(s *Settings, n *node, r report) bool {
	if n.kind != '[' {
		r(n.start, "synonyms must be a list of lists of words, not "+n.describe())
		return false
	}
	out := [][]string{}
	for i := range n.elements {
		var group []string
		switch e := &n.elements[i]; {
		case !list(&group, e, "a group of synonyms", r):
		case len(group) < 2:
			r(e.start, "a group of synonyms needs two words or more")
		default:
			out = append(out, group)
		}
	}
	s.Synonyms = out
	return true
}

// describe says in words what stands there; never a long text.
func (n *node) describe() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return strconv.Quote(cut(n.text))
	}
	return cut(n.text)
}

func cut(s string) string {
	if r := []rune(s); len(r) > 40 { // enough to recognize it by
		return string(r[:40]) + "…"
	}
	return s
}

// typedList lets a person type a,b instead of ["a","b"].
func typedList(text string) string {
	if t := strings.TrimSpace(text); t == "" || strings.HasPrefix(t, "[") {
		return text
	}
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		items = append(items, quote(strings.TrimSpace(item)))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// quote writes s as JSON, without the escapes of <, > and & that only HTML needs.
func quote(s string) string { return string(tool.Encode(s)) }

// some and someMap keep an absent list or object from being shown as null.
func some[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func someMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// isMap says that the key holds entries by name, each of which is a setting of
// its own: categories.export.
func (k key) isMap() bool { return k.name == "categories" || k.name == "clients" }

// entries are those of a map.
func (k key) entries(s *Settings) map[string]any {
	out := map[string]any{}
	switch k.name {
	case "categories":
		for name, c := range s.Categories {
			out[name] = c
		}
	case "clients":
		for name, on := range s.Clients {
			out[name] = on
		}
	}
	return out
}

// entryWant is what one entry of a map must be.
var entryWant = map[string]string{
	"categories": `an object like {"description": "…", "tools": ["server::tool*"]}`,
	"clients":    "true or false",
}

// segments splits a key where the file nests: a category's name may hold dots.
func segments(name string) []string { return strings.SplitN(name, ".", 2) }

// lookUp returns the key of that name, with the entry's name for one of a map.
func lookUp(name string) (k key, entry string) {
	for _, k := range keys {
		if k.name == name {
			return k, ""
		}
		if rest, ok := strings.CutPrefix(name, k.name+"."); ok && k.isMap() {
			return k, rest
		}
	}
	return key{}, ""
}

// find returns the place of a key in a file.
func find(root *node, name string) *member {
	at := root
	var m *member
	for _, part := range segments(name) {
		if m = at.member(part); m == nil {
			return nil
		}
		at = &m.value
	}
	return m
}

// groupMembers are the names below toolSearch or trust; nil for what is no such group.
func groupMembers(group string) []string {
	var members []string
	for _, k := range keys {
		if member, ok := strings.CutPrefix(k.name, group+"."); ok {
			members = append(members, member)
		}
	}
	return members
}
