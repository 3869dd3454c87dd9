package index

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxReadings is how many corrections of one kind an unknown word gets.
const maxReadings = 8

// correct gives a word that the corpus does not know the readings under which it
// does: words that it begins, two words that it joins, words that are one or two
// slips of the finger away. It returns what they are and the best one's kind.
func (c *corpus) correct(k *concept) (as []string, why string) {
	add := func(word uint32, weight float32, h how) {
		id := c.dict.wordStem[word]
		for _, v := range k.variants {
			if v.how != bySynonym && len(v.stems) == 1 && v.stems[0] == id {
				return
			}
		}
		k.variants = append(k.variants, variant{[]uint32{id}, weight, h, c.dict.words[word]})
		as = append(as, c.dict.words[word])
		why = cmp.Or(why, howNames[h])
	}
	for _, w := range c.completions(k.word) {
		add(w, c.rank.prefix, byPrefix)
	}
	if at, stems := c.splitWord(k.word); at > 0 {
		v := variant{stems: stems, weight: c.rank.split, how: bySplit, as: k.word[:at] + " " + k.word[at:]}
		k.variants = append(k.variants, v)
		as = append(as, v.as)
		why = cmp.Or(why, howNames[bySplit])
	}
	one, two := c.typos(k.word)
	for _, w := range one {
		add(w, c.rank.typo1, byTypo)
	}
	if len(one) == 0 {
		for _, w := range two {
			add(w, c.rank.typo2, byTypo)
		}
	}
	return as, why
}

// completions returns words that begin with p, those that most tools hold first.
func (c *corpus) completions(p string) []uint32 {
	if utf8.RuneCountInString(p) < 2 || isDigits(p) {
		return nil
	}
	var found []uint32
	c.dict.prefixed(p, func(w uint32) {
		if c.known.has(w) {
			found = append(found, w)
		}
	})
	return c.mostCommon(found)
}

// mostCommon sorts words by how many tools hold them and keeps the first ones,
// one of each stem.
func (c *corpus) mostCommon(words []uint32) []uint32 {
	slices.SortFunc(words, func(a, b uint32) int {
		return cmp.Or(
			cmp.Compare(len(c.postings(c.dict.wordStem[b])), len(c.postings(c.dict.wordStem[a]))),
			cmp.Compare(len(c.dict.words[a]), len(c.dict.words[b])),
			strings.Compare(c.dict.words[a], c.dict.words[b]))
	})
	var out []uint32
	for _, w := range words {
		if len(out) == maxReadings {
			break
		}
		if !slices.ContainsFunc(out, func(o uint32) bool { return c.dict.wordStem[o] == c.dict.wordStem[w] }) {
			out = append(out, w)
		}
	}
	return out
}

// splitWord reads a word as two known ones of at least two letters: the split
// whose rarer half is the most common. It returns where, or 0.
func (c *corpus) splitWord(w string) (at int, stems []uint32) {
	best := 0
	for i := 2; i+2 <= len(w); i++ {
		if !utf8.RuneStart(w[i]) {
			continue
		}
		left, ok := c.find(w[:i])
		if !ok {
			continue
		}
		right, ok := c.find(w[i:])
		if !ok {
			continue
		}
		// Longer halves are less of a coincidence than short ones.
		score := min(len(c.postings(left)), len(c.postings(right))) * min(i, len(w)-i)
		if score > best {
			best, at, stems = score, i, []uint32{left, right}
		}
	}
	return at, stems
}

// typos returns the known words that one slip turns into w, and those that two do.
func (c *corpus) typos(w string) (one, two []uint32) {
	n := utf8.RuneCountInString(w)
	if n < 4 || isDigits(w) {
		return nil, nil
	}
	limit := 1
	if n >= 6 {
		limit = 2
	}
	set := letterSet(w)
	for id, s := range c.dict.wordSet {
		// Each slip changes at most two letters of the set: a substitution takes one
		// and brings one.
		if bits.OnesCount32(s^set) > 2*limit || !c.known.has(uint32(id)) {
			continue
		}
		word := c.dict.words[id]
		if d := len(word) - len(w); d > 2*limit || d < -2*limit || len(word) < 3 {
			continue
		}
		switch d := distance(w, word, limit); {
		case d == 1:
			one = append(one, uint32(id))
		case d <= limit:
			two = append(two, uint32(id))
		}
	}
	return c.mostCommon(one), c.mostCommon(two)
}

// letterSet has a bit for each letter of w; other characters share bits.
func letterSet(w string) uint32 {
	set := uint32(0)
	for i := 0; i < len(w); i++ {
		set |= 1 << (w[i] & 31)
	}
	return set
}

// distance counts the slips between two words: a letter added, left out, changed
// or swapped with its neighbour. It gives limit+1 for anything beyond the limit.
func distance(a, b string, limit int) int {
	var bufA, bufB [maxWord]rune
	ra, rb := appendRunes(bufA[:0], a), appendRunes(bufB[:0], b)
	if d := len(ra) - len(rb); d > limit || -d > limit {
		return limit + 1
	}
	var rows [3][maxWord + 2]int
	before, prev, row := &rows[0], &rows[1], &rows[2]
	for j := 0; j <= len(rb); j++ {
		prev[j] = j
	}
	for i := 1; i <= len(ra); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			d := min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			least = min(least, d)
		}
		if least > limit {
			return limit + 1
		}
		before, prev, row = prev, row, before
	}
	return min(prev[len(rb)], limit+1)
}

func appendRunes(dst []rune, s string) []rune {
	for _, r := range s {
		if len(dst) == maxWord {
			break
		}
		dst = append(dst, r)
	}
	return dst
}
