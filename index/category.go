package index

import (
	"cmp"
	"container/heap"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// smallServer is the number of tools up to which one category for the whole
// server is easier to survey than several.
const smallServer = 15

// minDerived is the smallest group of names that makes a category.
const minDerived = 3

// maxDescription is the length in bytes of a derived description: about the
// names of ten tools.
const maxDescription = 200

// group is a set of tools that share a text: a category, or the tools of one
// listing, which share their server's instructions.
type group struct {
	name        string // empty for instructions
	server      string // of all its tools; empty where they are of several
	description string
	own         bool // configured by the user
	docs        []uint32
}

// groupText is a server's instructions.
type groupText struct {
	key     string
	entries []entry
}

// configured is a category of the user's config with its text analyzed.
type configured struct {
	CategoryConfig
	entries []entry
}

// group sorts the documents into categories and indexes the texts of those and
// of the servers' instructions.
func (c *corpus) group(texts []groupText, conf []configured) {
	c.docGroups = make([][]uint16, len(c.docs))
	entries := make([][]entry, 0, len(conf))
	byName := map[string]int{}
	for _, k := range conf {
		g := group{name: k.Name, description: k.Description, own: true}
		globs := make([]glob, len(k.Tools))
		for i, s := range k.Tools {
			globs[i] = newGlob(s)
		}
		for i, d := range c.docs {
			if slices.ContainsFunc(globs, func(g glob) bool { return g.match(d.tool.Server, d.tool.Name) }) {
				g.docs = append(g.docs, uint32(i))
			}
		}
		if len(g.docs) == 0 || len(c.groups) == maxGroups {
			continue
		}
		byName[k.Name] = len(c.groups)
		c.groups = append(c.groups, g)
		entries = append(entries, k.entries)
		for _, i := range g.docs {
			c.docGroups[i] = append(c.docGroups[i], uint16(len(c.groups)-1))
		}
	}
	for lo := 0; lo < len(c.docs); {
		server := c.docs[lo].tool.Server
		hi := lo
		var rest []uint32
		for ; hi < len(c.docs) && c.docs[hi].tool.Server == server; hi++ {
			if len(c.docGroups[hi]) == 0 {
				rest = append(rest, uint32(hi))
			}
		}
		lo = hi
		for _, g := range c.derive(server, rest) {
			at, taken := byName[g.name]
			if !taken {
				if len(c.groups) == maxGroups {
					continue
				}
				at = len(c.groups)
				byName[g.name] = at
				c.groups = append(c.groups, g)
				entries = append(entries, c.dict.known(g.name+" "+g.description))
			} else {
				// The user named a category like this one: they are one.
				c.groups[at].docs = append(c.groups[at].docs, g.docs...)
				slices.Sort(c.groups[at].docs)
			}
			for _, i := range g.docs {
				c.docGroups[i] = append(c.docGroups[i], uint16(at))
			}
		}
	}
	for i := range c.groups {
		g := &c.groups[i]
		g.server = c.docs[g.docs[0]].tool.Server
		for _, d := range g.docs {
			if c.docs[d].tool.Server != g.server {
				g.server = ""
				break
			}
		}
	}
	for _, t := range texts {
		g := group{}
		for i, d := range c.docs {
			if d.key == t.key {
				g.docs = append(g.docs, uint32(i))
			}
		}
		if len(g.docs) > 0 && len(c.groups) < maxGroups {
			c.groups = append(c.groups, g)
			entries = append(entries, t.entries)
		}
	}
	c.indexGroups(entries)
}

// maxGroups is what a group's number can hold.
const maxGroups = 1 << 16

func (c *corpus) indexGroups(entries [][]entry) {
	for g, es := range entries {
		length := 0
		for _, e := range es {
			length += int(e.tf)
		}
		for j := 0; j < len(es); {
			s := c.dict.wordStem[es[j].word]
			tf := float32(0)
			for ; j < len(es) && c.dict.wordStem[es[j].word] == s; j++ {
				tf += float32(es[j].tf)
				c.known.set(es[j].word)
			}
			t := c.rank.group * tf / (1 - .7 + .7*float32(length)/groupLength)
			df := max(uint32(len(c.postings(s))), 1)
			c.groupPosts = append(c.groupPosts, groupPosting{s, uint16(g), c.idf(df) * t / (c.rank.k1 + t)})
		}
	}
	slices.SortFunc(c.groupPosts, func(a, b groupPosting) int {
		return cmp.Or(cmp.Compare(a.stem, b.stem), cmp.Compare(a.group, b.group))
	})
	c.groupPosts = slices.Clip(c.groupPosts)
}

// groupLength is about the number of words of a category's text.
const groupLength = 20

// known analyzes a text of words that the dictionary has, leaving out others.
func (d *dictionary) known(text string) []entry {
	var es []entry
	analyze(text, func(p piece) bool {
		if id, ok := d.word(p.word); ok {
			es = append(es, entry{word: id, field: fieldGroup, tf: 1})
		}
		return true
	})
	sortEntries(es, d.wordStem)
	return es
}

// derive sorts the tools of one server into categories after the words of their
// names: the word by which most of them begin or end makes the first category,
// and so on. What is left is named after the server.
func (c *corpus) derive(server string, docs []uint32) []group {
	if len(docs) == 0 {
		return nil
	}
	if len(docs) <= smallServer {
		return []group{c.wholeServer(server, docs)}
	}
	type ends struct{ first, last string }
	words := make([]ends, len(docs))
	common := map[string]int{}
	for _, d := range docs {
		names := c.nameWords(d)
		for j, w := range names {
			if w != "" && !slices.Contains(names[:j], w) {
				common[w]++
			}
		}
	}
	for i, d := range docs {
		// A word that most names hold (the server's own, often) parts nothing.
		name := slices.DeleteFunc(c.nameWords(d), func(w string) bool {
			return w == "" || common[w]*5 > len(docs)*3 || isDigits(w)
		})
		if len(name) > 0 {
			words[i] = ends{name[0], name[len(name)-1]}
		}
	}
	var groups []group
	holds := map[string][]int{} // by word: the places in docs of the names that begin or end with it
	left := make([]bool, len(docs))
	for i, w := range words {
		if left[i] = true; w.first == "" {
			continue
		}
		holds[w.first] = append(holds[w.first], i)
		if w.last != w.first {
			holds[w.last] = append(holds[w.last], i)
		}
	}
	var order candidates
	for w, at := range holds {
		order.offer(w, len(at))
	}
	heap.Init(&order)
	for len(order) > 0 {
		best := heap.Pop(&order).(candidate)
		at := slices.DeleteFunc(holds[best.word], func(i int) bool { return !left[i] })
		if holds[best.word] = at; len(at) < best.size {
			if order.offer(best.word, len(at)) { // others took some of its tools
				heap.Fix(&order, len(order)-1)
			}
			continue
		}
		var members []uint32
		for _, i := range at {
			members = append(members, docs[i])
			left[i] = false
		}
		g := c.wholeServer(server, members)
		g.name = server + "/" + c.commonForm(best.word, members)
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.name, b.name) })
	var rest []uint32
	for i, d := range docs {
		if left[i] {
			rest = append(rest, d)
		}
	}
	if len(rest) > 0 {
		groups = append(groups, c.wholeServer(server, rest))
	}
	return groups
}

// candidate is a word by which a number of tools may become a category.
type candidate struct {
	word        string
	size, score int
}

// candidates are a heap with the best one first.
type candidates []candidate

// offer appends a word that is one.
func (c *candidates) offer(word string, size int) bool {
	if size < minDerived {
		return false
	}
	score := 2 * size
	if genericVerb(word) {
		score = size // what is done to everything says less than to what it is done
	}
	*c = append(*c, candidate{word, size, score})
	return true
}

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].score > c[j].score || c[i].score == c[j].score && c[i].word < c[j].word
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}

// wholeServer makes the category of a whole server, described by the names it holds.
func (c *corpus) wholeServer(server string, docs []uint32) group {
	var b strings.Builder
	for i, d := range docs {
		name := c.docs[d].tool.Name
		if b.Len()+len(name) > maxDescription && i > 0 {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return group{name: server, description: b.String(), docs: docs}
}

// nameWords returns the stems of a tool's name in their order.
func (c *corpus) nameWords(doc uint32) []string {
	d := c.docs[doc]
	words := make([]string, d.nameLen)
	for _, e := range d.entries {
		if e.field == fieldName {
			for m := e.mask; m != 0; m &= m - 1 {
				// A whole word beside its parts covers several places; the parts win.
				if at := bits.TrailingZeros8(m); bits.OnesCount8(e.mask) == 1 || words[at] == "" {
					words[at] = c.dict.stems[c.dict.wordStem[e.word]]
				}
			}
		}
	}
	return words
}

// commonForm is the spelling of a stem that most of the names use, the shortest
// among equals.
func (c *corpus) commonForm(stem string, docs []uint32) string {
	count := map[string]int{}
	for _, d := range docs {
		for _, e := range c.docs[d].entries {
			if e.field == fieldName && c.dict.stems[c.dict.wordStem[e.word]] == stem {
				count[c.dict.words[e.word]]++
			}
		}
	}
	best := stem
	for w, n := range count {
		if m := count[best]; n > m || n == m && (len(w) < len(best) || len(w) == len(best) && w < best) {
			best = w
		}
	}
	return best
}

func genericVerb(stem string) bool {
	switch stem {
	case "get", "list", "set", "add", "creat", "updat", "delet", "remov", "is", "has", "run", "search", "find", "fetch", "read", "write", "make", "do":
		return true
	}
	return false
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// glob is a pattern over tool ids in which * stands for any characters and ? for
// one. There is no escape, since ids hold neither in practice.
type glob string

func newGlob(s string) glob { return glob(s) }

func (g glob) match(server, name string) bool { return globMatch(string(g), server+"::"+name) }

// Matches reports whether a configured category of that pattern has the tool.
func Matches(pattern, server, name string) bool { return newGlob(pattern).match(server, name) }

func globMatch(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && (pattern[p] == s[i] && pattern[p] != '*' || pattern[p] == '?'):
			p++
			i++
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case star >= 0:
			p = star + 1
			mark++
			i = mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// groupNamed returns the number of the category of a name: same bytes win
// over the same but for case.
func (c *corpus) groupNamed(name string) (int, bool) {
	folded := -1
	for i := range c.groups {
		if c.groups[i].name == "" {
			continue
		}
		if c.groups[i].name == name {
			return i, true
		}
		if folded < 0 && strings.EqualFold(c.groups[i].name, name) {
			folded = i
		}
	}
	return folded, folded >= 0
}

// has reports whether a document is in a group.
func (g *group) has(doc uint32) bool {
	i := sort.Search(len(g.docs), func(i int) bool { return g.docs[i] >= doc })
	return i < len(g.docs) && g.docs[i] == doc
}
