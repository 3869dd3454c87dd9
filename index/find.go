package index

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// How exactly a text names a tool; more is better.
const (
	sameLetters = 1 + iota // letters and digits only
	sameFolded             // but for case
	sameBytes
)

// byReference returns the tools that ref names as an id, an exposed name or a
// bare name, with how exactly.
func (c *corpus) byReference(ref string, visit func(doc uint32, how uint8)) {
	s := squash(ref)
	c.squashingTo(s, func(doc uint32) {
		if how := referenceTo(c.docs[doc], ref, s); how > 0 {
			visit(doc, how)
		}
	})
}

// squashingTo visits the tools of which the name, id or exposed name has the hash of
// a squashed text.
func (c *corpus) squashingTo(squashed string, visit func(doc uint32)) {
	if squashed == "" {
		return
	}
	h := hash64(squashed)
	i := sort.Search(len(c.byName), func(i int) bool { return c.byName[i].hash >= h })
	last := -1
	for ; i < len(c.byName) && c.byName[i].hash == h; i++ {
		if int(c.byName[i].doc) != last {
			last = int(c.byName[i].doc)
			visit(uint32(last))
		}
	}
}

func referenceTo(d *document, ref, squashed string) uint8 {
	t := d.tool
	best := uint8(0)
	for _, form := range [...]string{t.Name, t.Server + "::" + t.Name, t.Server + "." + t.Name, t.Server + "/" + t.Name, t.Exposed} {
		switch {
		case form == "":
		case form == ref:
			return sameBytes
		case strings.EqualFold(form, ref):
			best = max(best, sameFolded)
		case best == 0 && squash(form) == squashed:
			best = sameLetters
		}
	}
	return best
}

// named returns the tools that a query names: as a whole, or as a list whose
// parts, by commas, spaces or newlines, are all names.
func (c *corpus) named(text string, keep func(uint32) bool) map[uint32]uint8 {
	out := map[uint32]uint8{}
	collect := func(ref string, least uint8) bool {
		found := false
		c.byReference(ref, func(doc uint32, how uint8) {
			if how >= least && (keep == nil || keep(doc)) {
				found = true
				out[doc] = max(out[doc], how)
			}
		})
		return found
	}
	text = strings.TrimSpace(text)
	if len(text) < maxQueryText && collect(text, sameLetters) {
		return out
	}
	lists := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' })
	all := len(lists) > 0
	for _, part := range lists {
		part = strings.TrimSpace(part)
		if part == "" || collect(part, sameFolded) {
			continue
		}
		for _, word := range strings.Fields(part) {
			if !collect(word, sameFolded) {
				all = false
			}
		}
	}
	if all {
		return out
	}
	// Among other words only what is written like an identifier is a name.
	for d := range out {
		delete(out, d)
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' || r == ' ' || r == '\t' }) {
		if strings.Contains(word, "::") || strings.Contains(word, "_") {
			collect(word, sameFolded)
		}
	}
	return out
}

// listed returns the tools of a query that is nothing but a list of ids, or of two
// or more exposed names, in the order of the query: whoever names tools so exactly
// wants these and no neighbours. Parts stand between commas, spaces or newlines,
// perhaps in quotes or brackets; a part may hold spaces where an id does. With
// one part that is none, or is unknown, the query is a search.
func (c *corpus) listed(text string, keep func(uint32) bool) []uint32 {
	if len(text) > maxQueryText {
		return nil
	}
	var out []uint32
	parts, ids := 0, 0
	take := func(words []string) bool {
		part := strings.Join(words, " ")
		if len(words) > 1 && !strings.Contains(part, "::") {
			return false // clients allow no spaces in exposed names
		}
		docs, isID := c.exactly(part, keep)
		if len(docs) == 0 {
			return false
		}
		parts++
		if isID {
			ids++
		}
		for _, d := range docs {
			if !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
		return true
	}
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		words := strings.Fields(line)
		for len(words) > 0 {
			n := min(len(words), maxIDWords)
			for n > 0 && !take(words[:n]) {
				n--
			}
			switch {
			case n > 0:
				words = words[n:]
			case squash(words[0]) == "": // a bullet or a bracket
				words = words[1:]
			default:
				return nil
			}
		}
	}
	if parts >= 2 || ids == parts {
		return out
	}
	return nil
}

// maxIDWords is how many words an id has at most that is found in a list parted by
// spaces. Servers are named by people, who use a few.
const maxIDWords = 8

// exactly returns the tools whose id, but for case, or whose exposed name a text
// is. As in Find, the same bytes win over others.
func (c *corpus) exactly(text string, keep func(uint32) bool) (docs []uint32, isID bool) {
	for _, ref := range [...]string{text, strings.Trim(text, "\"'`()[]{}<>")} {
		same, likeID := false, strings.Contains(ref, "::")
		c.squashingTo(squash(ref), func(doc uint32) {
			t := c.docs[doc].tool
			exact := t.Exposed == ref || likeID && t.ID.String() == ref
			if keep != nil && !keep(doc) || !exact && !(likeID && strings.EqualFold(t.ID.String(), ref)) {
				return
			}
			if exact && !same {
				docs, same = docs[:0], true
			}
			if exact == same {
				docs = append(docs, doc)
			}
			isID = isID || t.Exposed != ref
		})
		if len(docs) > 0 {
			return docs, isID
		}
	}
	return nil, false
}

// Find resolves an id, server.tool, server/tool, an exposed name or a bare tool
// name: none, one, or the candidates. Case is ignored, but a tool of the same
// bytes wins over others. White space around ref counts only if a tool is named
// so. It looks at no other tool, so that a call costs the same whatever the number
// of tools is; Categorized adds the categories.
func (s *Snapshot) Find(ref string, view View) []Entry {
	found := s.find(ref, view)
	if trimmed := strings.TrimSpace(ref); len(found) == 0 && trimmed != ref {
		found = s.find(trimmed, view)
	}
	return found
}

func (s *Snapshot) find(ref string, view View) []Entry {
	c := s.all
	var docs []uint32
	best := uint8(sameFolded)
	c.byReference(ref, func(doc uint32, how uint8) {
		if d := c.docs[doc]; view != nil && !view(d.key, d.tool) {
			return
		}
		if how > best {
			best, docs = how, docs[:0]
		}
		if how == best {
			docs = append(docs, doc)
		}
	})
	// An id says more than a bare name that happens to look like it.
	if ids := slices.DeleteFunc(slices.Clone(docs), func(d uint32) bool {
		return !strings.EqualFold(c.docs[d].tool.ID.String(), ref)
	}); len(ids) > 0 {
		docs = ids
	}
	out := make([]Entry, len(docs))
	for i, d := range docs {
		out[i] = Entry{Key: c.docs[d].key, Tool: c.docs[d].tool}
	}
	return out
}

// Categorized returns a visible entry with the categories that this view has it in.
func (s *Snapshot) Categorized(e Entry, view View) Entry {
	c := s.corpusFor(view)
	for doc, d := range c.docs {
		if d.key == e.Key && d.tool.ID == e.Tool.ID {
			return c.entry(uint32(doc))
		}
	}
	return e
}

// Suggest returns ids of visible tools that look like ref, best first.
func (s *Snapshot) Suggest(ref string, max int, view View) []string {
	c := s.corpusFor(view)
	if max <= 0 || len(ref) > 1024 {
		return nil
	}
	want := squash(ref)
	if want == "" {
		return nil
	}
	type near struct {
		doc  uint32
		cost float64
	}
	var all []near
	set := trigrams(ref)
	for i, d := range c.docs {
		cost := likeness(want, squash(d.tool.Name), squash(d.tool.Server+d.tool.Name))
		if cost > .5 {
			// Words in another order, or some of them.
			have, shared := trigrams(d.tool.Server+" "+d.tool.Name), 0
			for t := range set {
				if have[t] {
					shared++
				}
			}
			if 2*shared >= len(set) && len(set) > 1 {
				cost = 1 - .5*float64(shared)/float64(len(set))
			} else {
				continue
			}
		}
		all = append(all, near{uint32(i), cost})
	}
	slices.SortFunc(all, func(a, b near) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.doc, b.doc)) })
	var out []string
	for _, n := range all {
		if id := c.docs[n.doc].tool.ID.String(); !slices.Contains(out, id) {
			out = append(out, id)
		}
		if len(out) == max {
			break
		}
	}
	return out
}

// likeness is the share of letters that must change to make want one of the
// forms; more than .34 is nothing alike and gives 1.
func likeness(want string, forms ...string) float64 {
	best := 1.0
	for _, f := range forms {
		if len(f) == 0 || len(f) > maxWord || len(want) > maxWord {
			continue
		}
		n := max(utf8.RuneCountInString(want), utf8.RuneCountInString(f))
		limit := n / 3
		if d := distance(want, f, limit); d <= limit {
			best = min(best, float64(d)/float64(n))
		} else if strings.Contains(f, want) && 2*len(want) >= len(f) {
			best = min(best, .4)
		}
	}
	return best
}
