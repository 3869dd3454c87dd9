package index

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// The score of a tool for a query, all of it deterministic:
//
//	word    each word of the query gives the BM25F score of its best reading in
//	        the tool: idf · t/(k1+t), t the sum over the fields of
//	        weight · tf / (1 - b + b · length/average)
//	words   the sum of these, times 1 + coverage · (share of the query's weight
//	        that matched) + nameCoverage · (share of the tool's name that matched)
//	clause  for a query of several sentences, which often asks for several tools:
//	        the best sentence's own score, and a bonus for being (nearly) the best
//	        tool of a sentence, so that each sentence brings up its tool; of
//	        alternatives ("this or that") only the best one's own score
//	server  a part of the average score of the tools of the same server: a tool
//	        among others that fit is rarely the wrong one
type scratch struct {
	cells  []cell
	hit    []uint32 // documents that this search has touched
	clause []uint32 // … in the clause at hand
	word   []uint32 // … by the word at hand
}

// cell is what a search knows of one document.
type cell struct {
	words       float32 // sum over the words of the query
	clause      float32 // sum over those of the clause at hand
	best        float32 // the best clause so far
	bonus       float32 // how near to the best tool of a clause, 0..1
	share       float32 // of the query's weight that matched
	clauseShare float32
	word        float32 // best reading of the word at hand
	mask        uint8   // words of the name that matched
	clauseMask  uint8
	state       uint8
}

// What lists of the scratch a document is in.
const (
	inHit = 1 << iota
	inClause
	inWord
)

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// reset makes the scratch ready for n documents. Only what the last search
// touched has to be cleared.
func (s *scratch) reset(n int) {
	if len(s.cells) < n {
		s.cells = make([]cell, n+n/4) // the next snapshot may be a little larger
	} else {
		for _, d := range s.hit {
			s.cells[d] = cell{}
		}
	}
	s.hit, s.clause, s.word = s.hit[:0], s.clause[:0], s.word[:0]
}

// hit is a scored document.
type hit struct {
	doc    uint32
	exact  uint8
	score  float32
	words  float32 // the parts of the score, for explanations
	server float32
	clause float32
}

// score ranks all documents for a query. The hits are in no order.
func (c *corpus) score(q *parsed, s *scratch) []hit {
	s.reset(len(c.docs))
	for i := 0; i < len(q.concepts); {
		clause := q.concepts[i].clause
		share, ideal := float32(0), float32(0)
		for ; i < len(q.concepts) && q.concepts[i].clause == clause; i++ {
			k := &q.concepts[i]
			c.scoreConcept(k, s)
			share += k.share
			ideal += c.rank.ideal(k.idf)
		}
		if q.clauses > 1 {
			c.endClause(s, share, ideal, q.choice[clause])
		}
	}
	r := c.rank
	hits := make([]hit, len(s.hit))
	top := float32(0)
	for i, d := range s.hit {
		x := &s.cells[d]
		hits[i] = hit{doc: d, words: x.words * (1 + r.coverage*x.share + r.nameCoverage*c.nameShare(d, x.mask)), clause: r.clause * x.best}
		top = max(top, hits[i].words+hits[i].clause)
	}
	servers := make([]float32, len(c.serverSize))
	for i := range hits {
		h := &hits[i]
		servers[c.serverOf[h.doc]] += h.words + h.clause
	}
	for i := range hits {
		h := &hits[i]
		n := c.serverOf[h.doc]
		h.server = r.server * servers[n] / (float32(c.serverSize[n]) + serverPrior)
		if q.clauses > 1 {
			h.clause += r.clauseBest * top * s.cells[h.doc].bonus
		}
		h.score = h.words + h.clause + h.server
	}
	return hits
}

// serverPrior is how many tools that do not fit every server is taken to have, so
// that one or two tools alone do not vouch for themselves. More of them (3, 6) make
// the evidence of small servers, which are most, too weak to matter.
const serverPrior = 1

// nameShare is the share of a tool's name that is covered by mask.
func (c *corpus) nameShare(doc uint32, mask uint8) float32 {
	n := c.docs[doc].nameLen
	if n == 0 {
		return 0
	}
	return float32(bits.OnesCount8(mask)) / float32(n)
}

// endClause rates the documents that a clause has touched as if the clause had
// been the query. An alternative gives no bonus: its best tool may be one that the
// other alternatives rule out ("search paintings" in any search tool).
func (c *corpus) endClause(s *scratch, share, ideal float32, choice bool) {
	r := c.rank
	top := float32(0)
	for _, d := range s.clause {
		x := &s.cells[d]
		x.clause *= 1 + r.coverage*x.clauseShare/share + r.nameCoverage*c.nameShare(d, x.clauseMask)
		top = max(top, x.clause)
	}
	// A sentence that nothing fits well ("thank you for your help") has no best tool.
	fits := float32(math.Sqrt(float64(min(top/ideal, 1))))
	if choice {
		fits = 0
	}
	for _, d := range s.clause {
		x := &s.cells[d]
		near := x.clause / top
		near *= near
		x.best = max(x.best, x.clause)
		x.bonus = max(x.bonus, near*near*fits)
		x.clause, x.clauseShare, x.clauseMask = 0, 0, 0
		x.state &^= inClause
	}
	s.clause = s.clause[:0]
}

// ideal is the score of a word of that rarity in a tool that has it in a name of
// usual length, and nothing else in the name.
func (r *ranking) ideal(idf float32) float32 {
	t := r.weight[fieldName]
	return idf * t / (r.k1 + t) * (1 + r.coverage + r.nameCoverage)
}

// scoreConcept adds the best variant of a word to every document that has one.
func (c *corpus) scoreConcept(k *concept, s *scratch) {
	for i := range k.variants {
		v := &k.variants[i]
		if len(v.stems) > 1 {
			c.scorePhrase(k, v, s)
			continue
		}
		factor := v.weight * c.rarity(k, v.stems[0])
		for _, p := range c.postings(v.stems[0]) {
			s.offer(p.doc, p.impact*factor, p.mask)
		}
		for _, g := range c.inGroups(v.stems[0]) {
			for _, d := range c.groups[g.group].docs {
				s.offer(d, g.impact*factor, 0)
			}
		}
	}
	for _, d := range s.word {
		x := &s.cells[d]
		x.words += x.word
		x.clause += x.word
		x.share += k.share
		x.clauseShare += k.share
		x.word = 0
		if x.state&inHit == 0 {
			s.hit = append(s.hit, d)
		}
		if x.state&inClause == 0 {
			s.clause = append(s.clause, d)
		}
		x.state = inHit | inClause
	}
	s.word = s.word[:0]
}

// rarity keeps a rare reading from counting more than the word that was typed.
func (c *corpus) rarity(k *concept, stem uint32) float32 {
	idf := c.idfs[stem]
	if idf <= k.idf || idf == 0 {
		return 1
	}
	return k.idf / idf
}

func (s *scratch) offer(d uint32, v float32, mask uint8) {
	x := &s.cells[d]
	if x.state&inWord == 0 {
		x.state |= inWord
		s.word = append(s.word, d)
	}
	x.mask |= mask
	x.clauseMask |= mask
	x.word = max(x.word, v)
}

// scorePhrase offers a variant of several stems to the documents that have them
// all, for the average of what each is worth.
func (c *corpus) scorePhrase(k *concept, v *variant, s *scratch) {
	share := v.weight / float32(len(v.stems))
	factor := c.rarity(k, v.stems[0])
	for _, p := range c.postings(v.stems[0]) {
		sum, mask, all := p.impact*factor, p.mask, true
		for _, id := range v.stems[1:] {
			q, ok := c.posting(id, p.doc)
			if !ok {
				all = false
				break
			}
			sum += q.impact * c.rarity(k, id)
			mask |= q.mask
		}
		if all {
			s.offer(p.doc, sum*share, mask)
		}
	}
}

// posting returns the posting of a stem in a document.
func (c *corpus) posting(stem, doc uint32) (posting, bool) {
	ps := c.postings(stem)
	i, ok := slices.BinarySearchFunc(ps, doc, func(p posting, d uint32) int { return cmp.Compare(p.doc, d) })
	if !ok {
		return posting{}, false
	}
	return ps[i], true
}
