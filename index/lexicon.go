package index

import (
	"slices"
	"sort"
	"strings"
)

// lexicon numbers the words and stems of all tools. It only grows, under the
// lock of its Index; snapshots read a dictionary, which never changes.
type lexicon struct {
	wordID map[string]uint32
	stemID map[string]uint32
	dict   dictionary

	at      map[entryKey]int // for builders
	entries []entry
}

// dictionary is one state of a lexicon. Its slices are only ever appended to
// beyond the length seen here, and the orders are replaced as a whole.
type dictionary struct {
	words     []string
	wordStem  []uint32
	wordSet   []uint32 // which letters a word has, see letterSet
	stems     []string
	wordOrder []uint32 // words by spelling
	stemOrder []uint32
}

func newLexicon() *lexicon {
	return &lexicon{wordID: map[string]uint32{}, stemID: map[string]uint32{}, at: map[entryKey]int{}}
}

func (l *lexicon) word(w string) uint32 {
	if id, ok := l.wordID[w]; ok {
		return id
	}
	w = strings.Clone(w) // a part of a description must not keep all of it alive
	id := uint32(len(l.dict.words))
	l.wordID[w] = id
	s := stem(w)
	sid, ok := l.stemID[s]
	if !ok {
		sid = uint32(len(l.dict.stems))
		l.stemID[s] = sid
		l.dict.stems = append(l.dict.stems, s)
	}
	l.dict.words = append(l.dict.words, w)
	l.dict.wordStem = append(l.dict.wordStem, sid)
	l.dict.wordSet = append(l.dict.wordSet, letterSet(w))
	return id
}

// dictionary returns the present state with its orders complete.
func (l *lexicon) dictionary() dictionary {
	l.dict.wordOrder = mergeOrder(l.dict.wordOrder, l.dict.words)
	l.dict.stemOrder = mergeOrder(l.dict.stemOrder, l.dict.stems)
	return l.dict
}

// mergeOrder returns order extended by the strings it does not hold yet, which
// are the last ones. The given slice is not changed.
func mergeOrder(order []uint32, all []string) []uint32 {
	if len(order) == len(all) {
		return order
	}
	fresh := make([]uint32, 0, len(all)-len(order))
	for i := len(order); i < len(all); i++ {
		fresh = append(fresh, uint32(i))
	}
	slices.SortFunc(fresh, func(a, b uint32) int { return strings.Compare(all[a], all[b]) })
	merged := make([]uint32, 0, len(all))
	for len(order) > 0 && len(fresh) > 0 {
		if all[order[0]] < all[fresh[0]] {
			merged, order = append(merged, order[0]), order[1:]
		} else {
			merged, fresh = append(merged, fresh[0]), fresh[1:]
		}
	}
	merged = append(merged, order...)
	return append(merged, fresh...)
}

func lookup(order []uint32, all []string, s string) (uint32, bool) {
	i := sort.Search(len(order), func(i int) bool { return all[order[i]] >= s })
	if i < len(order) && all[order[i]] == s {
		return order[i], true
	}
	return 0, false
}

// word returns the number of a word.
func (d *dictionary) word(w string) (uint32, bool) { return lookup(d.wordOrder, d.words, w) }

// stem returns the number of a stem.
func (d *dictionary) stem(s string) (uint32, bool) { return lookup(d.stemOrder, d.stems, s) }

// prefixed calls visit for the words that begin with p, in order.
func (d *dictionary) prefixed(p string, visit func(word uint32)) {
	i := sort.Search(len(d.wordOrder), func(i int) bool { return d.words[d.wordOrder[i]] >= p })
	for ; i < len(d.wordOrder) && strings.HasPrefix(d.words[d.wordOrder[i]], p); i++ {
		visit(d.wordOrder[i])
	}
}
