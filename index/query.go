package index

import (
	"strings"
)

// Bounds on what one query can cost. People type 1 to 10 words and agents up to
// 60; pasted files are longer.
const (
	maxQueryText = 16 << 10 // bytes that are read
	maxConcepts  = 96       // words that are scored
	maxVariants  = 24       // readings of one word
	maxUnknown   = 16       // unknown words that are corrected
)

// how a word of the query came to match a term.
type how uint8

const (
	byStem how = iota
	bySynonym
	byJoined
	byTypo
	byPrefix
	bySplit
)

var howNames = [...]string{"stem", "synonym", "joined", "typo", "prefix", "split"}

// variant is one reading of a word: a stem, or several that must all be there.
type variant struct {
	stems  []uint32
	weight float32
	how    how
	as     string // the words, for explanations
}

// concept is one word of the query with all its readings. Of these, only the
// best one counts for a tool.
type concept struct {
	word     string
	stem     string
	clause   int
	known    bool
	idf      float32
	share    float32 // of the query's weight
	variants []variant
}

// parsed is a query that was read against a corpus.
type parsed struct {
	concepts []concept
	clauses  int
	choice   []bool  // by clause: whether it is one of several alternatives
	ideal    float32 // score of a tool that has every word in its name
	rewrites []Rewrite
	unknown  []string // words without any reading
}

// parse reads a query.
func (c *corpus) parse(text string) *parsed {
	if len(text) > maxQueryText {
		text = text[:maxQueryText]
	}
	text = literals(text)
	q := &parsed{}
	q.words(text, true)
	if len(q.concepts) == 0 {
		q.words(text, false)
	}
	c.read(q)
	return q
}

// words makes the concepts, without stop words where drop says so.
func (q *parsed) words(text string, drop bool) {
	q.clauses, q.choice = 1, []bool{false}
	// Without sentences a comma parts what is wanted ("read a file, run a script");
	// within them it only parts phrases.
	breaks := ".?!;\n。？！；"
	// In one sentence "or" parts other words for the same tool ("search paintings or
	// artwork lookup"): each is a clause, but none is a wish of its own. Among
	// several sentences it mostly parts values ("lunch or dinner").
	choices := !several(text, breaks)
	if !several(text, ".?!") {
		breaks += ",，、"
	}
	type whole struct {
		word     string
		from, to int // concepts
	}
	var wholes []whole
	group, groupFrom := -1, 0
	end, pending, choice := 0, false, false
	analyze(text, func(p piece) bool {
		if p.group != group {
			group, groupFrom = p.group, len(q.concepts)
			choice = choice || choices && p.word == "or"
			pending = pending || choice || parts(text[end:p.start], breaks)
			end = p.end
		}
		if p.span > 1 {
			if len(q.concepts) > groupFrom {
				wholes = append(wholes, whole{p.word, groupFrom, len(q.concepts)})
			}
			return true
		}
		if drop && stopWord(p.word) {
			return true
		}
		if len(q.concepts) == maxConcepts {
			return false
		}
		if pending && len(q.concepts) > 0 {
			q.clauses++
			q.choice = append(q.choice, choice)
			q.choice[q.clauses-2] = q.choice[q.clauses-2] || choice
		}
		pending, choice = false, false
		k := concept{word: p.word, stem: stem(p.word), clause: q.clauses - 1}
		for i := len(q.concepts) - 1; i >= 0 && q.concepts[i].clause == k.clause; i-- {
			if q.concepts[i].stem == k.stem {
				return true // said twice is meant once
			}
		}
		q.concepts = append(q.concepts, k)
		return true
	})
	for _, w := range wholes {
		for i := w.from; i < w.to; i++ {
			q.concepts[i].variants = append(q.concepts[i].variants, variant{as: w.word, how: byJoined})
		}
	}
}

// parts reports whether the text between two words ends a clause. A full stop with
// nothing beside it belongs to a name or number (next.js, 3.5).
func parts(between, breaks string) bool {
	return between != "." && strings.ContainsAny(between, breaks)
}

// several reports whether one of the marks parts a text. Those at its end do not,
// and neither does a full stop as in parts.
func several(text, marks string) bool {
	text = strings.TrimRight(text, marks+" \n")
	for {
		i := strings.IndexAny(text, marks)
		if i < 0 {
			return false
		}
		if text[i] != '.' || isSpace(text[i+1]) { // the text does not end in a mark
			return true
		}
		text = text[i+1:]
	}
}

// read gives every concept its variants and its weight.
func (c *corpus) read(q *parsed) {
	r := c.rank
	for i := range q.concepts {
		k := &q.concepts[i]
		wholes := k.variants
		k.variants = nil
		if id, ok := c.find(k.word); ok {
			k.known = true
			k.variants = append(k.variants, variant{[]uint32{id}, 1, byStem, k.word})
		}
		for _, w := range wholes {
			if id, ok := c.find(w.as); ok {
				k.variants = append(k.variants, variant{[]uint32{id}, r.joined, byJoined, w.as})
			}
		}
	}
	for i := range q.concepts {
		c.joinNeighbours(q, i)
		c.readSynonyms(q, i)
	}
	corrected := 0
	for i := range q.concepts {
		k := &q.concepts[i]
		if k.known || joinedAlready(k) || corrected == maxUnknown {
			continue
		}
		corrected++
		if as, why := c.correct(k); len(as) > 0 {
			q.rewrites = append(q.rewrites, Rewrite{Word: k.word, As: as, Why: why})
		}
	}
	total, rarest := float32(0), c.idf(0)
	for i := range q.concepts {
		k := &q.concepts[i]
		for _, v := range k.variants {
			if idf := c.variantIDF(v); v.how == byStem || !k.known && idf > k.idf {
				k.idf = idf
			}
		}
		if len(k.variants) == 0 {
			q.unknown = append(q.unknown, k.word)
			k.idf = rarest // no tool has it: the more of these, the less is matched
		}
		total += k.idf
	}
	for i := range q.concepts {
		k := &q.concepts[i]
		if total > 0 {
			k.share = k.idf / total
		}
		q.ideal += r.ideal(k.idf)
	}
}

func joinedAlready(k *concept) bool {
	for _, v := range k.variants {
		if v.how == byJoined {
			return true
		}
	}
	return false
}

func (c *corpus) variantIDF(v variant) float32 {
	idf := float32(0)
	for _, s := range v.stems {
		idf = max(idf, c.idfs[s])
	}
	return idf
}

// joinNeighbours reads two words as one: git hub → github.
func (c *corpus) joinNeighbours(q *parsed, i int) {
	if i+1 >= len(q.concepts) || q.concepts[i].clause != q.concepts[i+1].clause {
		return
	}
	a, b := &q.concepts[i], &q.concepts[i+1]
	whole := a.word + b.word
	if len(whole) > maxWord || isCJK(firstRune(whole)) {
		return
	}
	if id, ok := c.find(whole); ok {
		v := variant{[]uint32{id}, c.rank.joined, byJoined, whole}
		a.variants = append(a.variants, v)
		b.variants = append(b.variants, v)
	}
}

func firstRune(s string) rune {
	for _, r := range s {
		return r
	}
	return 0
}

// readSynonyms adds the synonyms of the phrases that begin at concept i.
func (c *corpus) readSynonyms(q *parsed, i int) {
	for _, r := range c.syn().byFirst[q.concepts[i].stem] {
		if i+len(r.from) > len(q.concepts) {
			continue
		}
		same := true
		for j, s := range r.from {
			same = same && q.concepts[i+j].stem == s
		}
		if !same {
			continue
		}
		for _, words := range r.to {
			v := variant{weight: c.rank.synonym, how: bySynonym, as: strings.Join(words, " ")}
			for _, w := range words {
				id, ok := c.find(w)
				if !ok {
					v.stems = nil
					break
				}
				v.stems = append(v.stems, id)
			}
			if v.stems == nil {
				continue
			}
			for j := range r.from {
				k := &q.concepts[i+j]
				if len(k.variants) < maxVariants {
					k.variants = append(k.variants, v)
				}
			}
		}
	}
}

// stopWord reports whether a word of a query says nothing about a tool: the
// small words of English and what people say to an assistant.
func stopWord(w string) bool {
	switch w {
	case "a", "an", "the", "this", "that", "these", "those", "some", "any", "each", "every", "all", "both", "such", "other", "another", "own", "same", "more", "most", "very", "too", "also", "just", "only", "even", "ever", "so", "than", "then", "there", "here", "now",
		"and", "or", "but", "nor", "not", "no", "if", "as", "because", "while", "although", "though", "whether",
		"of", "in", "on", "at", "to", "for", "from", "by", "with", "without", "into", "onto", "about", "over", "under", "between", "through", "during", "within", "along", "upon", "via", "per", "up", "out", "off",
		"i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "you", "your", "yours", "he", "him", "his", "she", "her", "hers", "it", "its", "they", "them", "their", "theirs", "itself", "themselves",
		"is", "am", "are", "was", "were", "be", "been", "being", "do", "does", "did", "doing", "done", "have", "has", "had", "having", "will", "would", "shall", "should", "can", "could", "may", "might", "must", "cannot", "im", "ive", "ill", "dont", "doesnt", "cant", "lets", "s", "t", "m", "re", "ve", "d", "ll",
		"what", "which", "who", "whom", "whose", "when", "where", "why", "how",
		"please", "want", "wants", "wanted", "need", "needs", "needed", "help", "helps", "using", "use", "uses", "used", "like", "let", "make", "sure", "give", "gives", "tell", "know", "could've", "provide", "provides", "able", "try", "trying", "looking", "look", "thanks", "thank", "hello", "hi", "tool", "tools", "additionally", "finally", "furthermore", "moreover", "lastly", "firstly", "first", "secondly", "afterwards", "after", "following", "based", "including", "specific", "interested", "planning", "etc", "well":
		return true
	}
	return false
}
