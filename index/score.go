package index

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
)

// scratch is the working memory of one search, kept for the next one.
type scratch struct {
	total   []float32 // by document: sum over concepts
	clause  []float32 // sum over the concepts of the clause at hand
	best    []float32 // the best clause so far
	share   []float32 // of the query that matched
	mask    []uint8   // words of the name that matched
	current []float32 // best variant of the concept at hand
	own     []bool    // matched in a field of its own, not only by its group
	touched []uint32  // documents of this search
	now     []uint32  // documents of the concept at hand
	inNow   []bool
	seen    []bool
	phrase  []float32
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) reset(n int) {
	if len(s.total) < n {
		n += n / 4 // the next snapshot may be a little larger
		*s = scratch{
			total: make([]float32, n), clause: make([]float32, n), best: make([]float32, n), share: make([]float32, n),
			mask: make([]uint8, n), current: make([]float32, n), own: make([]bool, n), inNow: make([]bool, n), seen: make([]bool, n),
			phrase: make([]float32, n), touched: s.touched[:0], now: s.now[:0],
		}
		return
	}
	for _, d := range s.touched {
		s.total[d], s.clause[d], s.best[d], s.share[d], s.mask[d], s.own[d], s.seen[d] = 0, 0, 0, 0, 0, false, false
	}
	s.touched = s.touched[:0]
}

// hit is a scored document.
type hit struct {
	doc   uint32
	score float32
	group bool // its category holds a word that matters
	exact uint8
}

// score ranks all documents for a query. The hits are in no order.
func (c *corpus) score(q *parsed, s *scratch, keep func(doc uint32) bool) []hit {
	s.reset(len(c.docs))
	clause := 0
	for i := range q.concepts {
		k := &q.concepts[i]
		if k.clause != clause {
			s.endClause()
			clause = k.clause
		}
		c.scoreConcept(k, s)
	}
	s.endClause()
	r := c.rank
	hits := make([]hit, 0, len(s.touched))
	for _, d := range s.touched {
		if keep != nil && !keep(d) {
			continue
		}
		score := s.total[d]
		name := float32(0)
		if n := c.docs[d].nameLen; n > 0 {
			name = float32(bits.OnesCount8(s.mask[d])) / float32(n)
		}
		score *= 1 + r.coverage*s.share[d] + r.nameCoverage*name
		if q.clauses > 1 {
			score += r.clause * s.best[d]
		}
		hits = append(hits, hit{doc: d, score: score})
	}
	return hits
}

func (s *scratch) endClause() {
	for _, d := range s.touched {
		s.best[d] = max(s.best[d], s.clause[d])
		s.clause[d] = 0
	}
}

// scoreConcept adds the best variant of a concept to every document that has one.
func (c *corpus) scoreConcept(k *concept, s *scratch) {
	s.now = s.now[:0]
	for _, v := range k.variants {
		switch {
		case len(v.stems) == 1:
			factor := v.weight * c.rarity(k, v.stems[0])
			for _, p := range c.postings(v.stems[0]) {
				s.offer(p.doc, p.impact*factor, p.mask)
			}
			for _, g := range c.inGroups(v.stems[0]) {
				for _, d := range c.groups[g.group].docs {
					s.offer(d, g.impact*factor, 0)
				}
			}
		default:
			c.scorePhrase(k, v, s)
		}
	}
	for _, d := range s.now {
		v := s.current[d]
		s.total[d] += v
		s.clause[d] += v
		s.share[d] += k.share
		s.current[d], s.inNow[d] = 0, false
		if !s.seen[d] {
			s.seen[d] = true
			s.touched = append(s.touched, d)
		}
	}
}

// rarity keeps a rare reading from counting more than the word that was typed.
func (c *corpus) rarity(k *concept, stem uint32) float32 {
	idf := c.idf(uint32(len(c.postings(stem))))
	if idf <= k.idf || idf == 0 {
		return 1
	}
	return k.idf / idf
}

func (s *scratch) offer(d uint32, v float32, mask uint8) {
	if !s.inNow[d] {
		s.inNow[d] = true
		s.now = append(s.now, d)
	}
	s.mask[d] |= mask
	s.current[d] = max(s.current[d], v)
}

// scorePhrase offers a variant of several stems to the documents that have them
// all, for the average of what each is worth.
func (c *corpus) scorePhrase(k *concept, v variant, s *scratch) {
	rest := make([][]posting, len(v.stems))
	for i, id := range v.stems {
		rest[i] = c.postings(id)
	}
	first := rest[0]
	for _, p := range first {
		sum, mask, all := p.impact*c.rarity(k, v.stems[0]), p.mask, true
		for i := 1; i < len(rest) && all; i++ {
			j, ok := slices.BinarySearchFunc(rest[i], p.doc, func(q posting, d uint32) int { return cmp.Compare(q.doc, d) })
			if all = ok; ok {
				sum += rest[i][j].impact * c.rarity(k, v.stems[i])
				mask |= rest[i][j].mask
			}
		}
		if all {
			s.offer(p.doc, v.weight*sum/float32(len(v.stems)), mask)
		}
	}
}
