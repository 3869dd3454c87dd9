package index

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// DefaultMax is how many matches a search returns when nobody says.
const DefaultMax = 5

// Search ranks the visible tools for a query. Its Result names nothing but what
// the View shows. Exact names and ids in the query come first, all of them; then
// what scores at least .4 of the best; then the tools whose category the query
// names. A query that is a list of ids, or of exposed names, finds just these tools,
// in its order.
func (s *Snapshot) Search(q Query) Result {
	c := s.corpusFor(q.View)
	limit := q.Max
	if limit <= 0 {
		limit = DefaultMax
	}
	keep, possible := c.filter(q)
	if !possible {
		return Result{}
	}
	listed := c.listed(q.Text, keep)
	named := c.named(q.Text, keep)
	if listed != nil {
		clear(named)
		for _, d := range listed {
			named[d] = sameBytes
		}
	}
	p := c.parse(q.Text)
	sc := scratchPool.Get().(*scratch)
	hits := c.score(p, sc)
	scratchPool.Put(sc)
	if keep != nil {
		hits = slices.DeleteFunc(hits, func(h hit) bool { return !keep(h.doc) })
	}

	top := float32(0)
	for _, h := range hits {
		top = max(top, h.score)
	}
	for i := range hits {
		hits[i].exact = named[hits[i].doc]
		delete(named, hits[i].doc)
	}
	for d, e := range named {
		hits = append(hits, hit{doc: d, exact: e})
	}
	exact := 0
	for i := range hits {
		h := &hits[i]
		if h.exact > 0 {
			exact++
			h.score = max(h.score, top, p.ideal) // nothing fits better than a name
		}
	}
	if exact > 0 {
		top = max(top, p.ideal)
	}
	if !q.NoCut {
		follow := c.followers(p)
		hits = slices.DeleteFunc(hits, func(h hit) bool {
			return h.exact == 0 && h.score < c.rank.cut*top && !c.follows(follow, h.doc)
		})
	}
	if q.Threshold > 0 {
		hits = slices.DeleteFunc(hits, func(h hit) bool { return h.exact == 0 && float64(h.score) < q.Threshold })
	}
	if listed == nil {
		slices.SortFunc(hits, c.compareHits)
	} else {
		hits = slices.DeleteFunc(hits, func(h hit) bool { return h.exact == 0 })
		slices.SortFunc(hits, func(a, b hit) int {
			return cmp.Compare(slices.Index(listed, a.doc), slices.Index(listed, b.doc))
		})
		p.rewrites = nil // a name is no slip of the finger
	}
	limit = max(limit, exact)
	if len(hits) > limit {
		hits = hits[:limit]
	}
	r := Result{Rewrites: p.rewrites}
	if len(hits) == 0 && q.Threshold <= 0 {
		hits = c.containing(q.Text, keep, limit)
	}
	for _, h := range hits {
		m := Match{Entry: c.entry(h.doc), Score: float64(h.score), Confidence: p.confidence(h)}
		if q.Explain {
			m.Matched = c.explain(p, h)
		}
		r.Matches = append(r.Matches, m)
	}
	if len(r.Matches) > 0 {
		r.Confidence = r.Matches[0].Confidence
		return r
	}
	r.Near = c.nearCategories(q.Text)
	r.DidYouMean = c.didYouMean(p)
	return r
}

// compareHits is the order of matches: exact names, score, server, tool.
func (c *corpus) compareHits(a, b hit) int {
	return cmp.Or(cmp.Compare(b.exact, a.exact), cmp.Compare(b.score, a.score), cmp.Compare(a.doc, b.doc))
}

// confidence is the share of the best thinkable score.
func (p *parsed) confidence(h hit) float64 {
	if h.exact > 0 {
		return 1
	}
	if p.ideal <= 0 {
		return 0
	}
	return float64(min(h.score/p.ideal, 1))
}

// filter returns which documents the server and the category of a query allow.
// possible is false when there is no such server or category.
func (c *corpus) filter(q Query) (keep func(uint32) bool, possible bool) {
	if q.Server == "" && q.Category == "" {
		return nil, true
	}
	g := -1
	if q.Category != "" {
		var ok bool
		if g, ok = c.groupNamed(q.Category); !ok {
			return nil, false
		}
	}
	server := q.Server
	if server != "" && !slices.ContainsFunc(c.docs, func(d *document) bool { return d.tool.Server == server }) {
		i := slices.IndexFunc(c.docs, func(d *document) bool { return strings.EqualFold(d.tool.Server, server) })
		if i < 0 {
			return nil, false
		}
		server = c.docs[i].tool.Server
	}
	return func(d uint32) bool {
		return (server == "" || c.docs[d].tool.Server == server) && (g < 0 || c.groups[g].has(d))
	}, true
}

// followers returns the categories that hold a word of the query. In one that
// was derived, whose description is only a list of names, the word must carry
// half of the query's weight: else a long query would name every category.
func (c *corpus) followers(p *parsed) []uint16 {
	held := map[uint16]float32{}
	for i := range p.concepts {
		k := &p.concepts[i]
		var in []uint16
		for _, v := range k.variants {
			if v.how == bySynonym || len(v.stems) != 1 {
				continue
			}
			for _, g := range c.inGroups(v.stems[0]) {
				if c.groups[g.group].name != "" && !slices.Contains(in, g.group) {
					in = append(in, g.group)
				}
			}
		}
		for _, g := range in {
			held[g] += k.share
		}
	}
	var out []uint16
	for g, share := range held {
		if c.groups[g].own || share >= .5 {
			out = append(out, g)
		}
	}
	return out
}

func (c *corpus) follows(groups []uint16, doc uint32) bool {
	for _, g := range c.docGroups[doc] {
		if slices.Contains(groups, g) {
			return true
		}
	}
	return false
}

// containing finds tools by a plain part of their name or of their category's:
// what is left when no word matched.
func (c *corpus) containing(text string, keep func(uint32) bool, limit int) []hit {
	part := squash(text)
	if len(part) < 2 || len(part) > maxWord*2 {
		return nil
	}
	var hits []hit
	for i, d := range c.docs {
		doc := uint32(i)
		if keep != nil && !keep(doc) {
			continue
		}
		if strings.Contains(squash(d.tool.Name), part) || slices.ContainsFunc(c.docGroups[i], func(g uint16) bool {
			return strings.Contains(squash(c.groups[g].name), part)
		}) {
			hits = append(hits, hit{doc: doc, score: substringScore})
			if len(hits) == limit {
				break
			}
		}
	}
	return hits
}

// substringScore is below any score of a word that matched.
const substringScore = .01

// didYouMean returns words of the corpus that look like the unknown ones of a
// query.
func (c *corpus) didYouMean(p *parsed) []string {
	var out []string
	for _, w := range p.unknown {
		n := utf8.RuneCountInString(w)
		if n < 4 || len(out) >= 5 {
			continue
		}
		limit := max(2, n/3)
		best, bestDistance := "", limit+1
		set := letterSet(w)
		for id, other := range c.dict.wordSet {
			if bits.OnesCount32(other^set) > 2*limit || !c.known.has(uint32(id)) {
				continue
			}
			word := c.dict.words[id]
			if isDigits(word) {
				continue
			}
			d := distance(w, word, limit)
			if d < bestDistance || d == bestDistance && d <= limit && word < best {
				best, bestDistance = word, d
			}
		}
		if best != "" && !slices.Contains(out, best) {
			out = append(out, best)
		}
	}
	return out
}

// nearCategories returns the categories whose names and descriptions share most
// groups of three letters with a text.
func (c *corpus) nearCategories(text string) []string {
	var want trigramSet
	total := want.add(text[:min(len(text), 512)])
	type near struct {
		name  string
		score float64
	}
	var all []near
	for i := range c.groups {
		g := &c.groups[i]
		if g.name == "" {
			continue
		}
		var have trigramSet
		n := have.add(g.name) + have.add(g.description)
		shared := 0
		for j := range want {
			shared += bits.OnesCount64(want[j] & have[j])
		}
		if shared >= 2 {
			all = append(all, near{g.name, float64(shared) / float64(total+n)})
		}
	}
	slices.SortFunc(all, func(a, b near) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.name, b.name))
	})
	var out []string
	for _, n := range all[:min(len(all), 3)] {
		out = append(out, n.name)
	}
	return out
}

// trigramSet holds the groups of three letters of a text, hashed to 2,048 bits:
// enough to compare a description with a query.
type trigramSet [32]uint64

func (t *trigramSet) add(s string) (n int) {
	var window uint32
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		} else if c < '0' {
			c = ' '
		}
		window = (window<<8 | uint32(c)) & 0xffffff
		if i < 2 || byte(window>>8) == ' ' {
			continue
		}
		h := window * 2654435761 >> 21
		if t[h/64]&(1<<(h%64)) == 0 {
			t[h/64] |= 1 << (h % 64)
			n++
		}
	}
	return n
}

func trigrams(s string) map[string]bool {
	if len(s) > 512 {
		s = s[:512]
	}
	set := map[string]bool{}
	analyze(s, func(p piece) bool {
		w := " " + p.word + " "
		for i := 0; i+3 <= len(w); i++ {
			set[w[i:i+3]] = true
		}
		return true
	})
	return set
}
