package index

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"
)

// Snapshot is everything that was listed at one moment. It never changes and may
// be asked by any number of goroutines.
type Snapshot struct {
	all      *corpus
	listings map[string]*listing
	texts    []groupText  // instructions
	conf     []configured // categories
	// views remembers corpora of parts of the tools, the last used first. It is a
	// memory only: whoever loses a race makes the corpus again.
	views atomic.Pointer[[]*partial]
}

// listing is a Listing with its tools analyzed.
type listing struct {
	Listing
	docs         []*document
	instructions []entry
}

// partial is the corpus of those tools whose bits are set.
type partial struct {
	mask   bitset
	corpus *corpus
}

// maxViews is how many parts of a snapshot are kept ready. There is one for each
// project that has servers of its own and is being worked in.
const maxViews = 8

var _ Reader = (*Snapshot)(nil)

func newSnapshot(rank *ranking, dict dictionary, listings map[string]*listing, syn func() *synonyms, conf []configured) *Snapshot {
	s := &Snapshot{listings: listings, conf: conf}
	n := 0
	for _, l := range listings {
		n += len(l.docs)
	}
	docs := make([]*document, 0, n)
	for _, key := range slices.Sorted(maps.Keys(listings)) {
		l := listings[key]
		docs = append(docs, l.docs...)
		if len(l.instructions) > 0 {
			s.texts = append(s.texts, groupText{key, l.instructions})
		}
	}
	slices.SortFunc(docs, compareDocuments)
	s.all = newCorpus(rank, syn, dict, docs, s.texts, conf)
	return s
}

// corpusFor returns the corpus of the tools that a view shows. A tool outside of
// it has no part in the corpus, so nothing that is read from it can tell that
// the tool exists.
func (s *Snapshot) corpusFor(view View) *corpus {
	if view == nil {
		return s.all
	}
	mask := newBits(len(s.all.docs))
	shown := 0
	for i, d := range s.all.docs {
		if view(d.key, d.tool) {
			mask.set(uint32(i))
			shown++
		}
	}
	if shown == len(s.all.docs) {
		return s.all
	}
	known := s.views.Load()
	if known != nil {
		for _, p := range *known {
			if slices.Equal(p.mask, mask) {
				return p.corpus
			}
		}
	}
	docs := make([]*document, 0, shown)
	for i, d := range s.all.docs {
		if mask.has(uint32(i)) {
			docs = append(docs, d)
		}
	}
	p := &partial{mask, newCorpus(s.all.rank, s.all.syn, s.all.dict, docs, s.texts, s.conf)}
	next := []*partial{p}
	if known != nil {
		next = append(next, (*known)[:min(len(*known), maxViews-1)]...)
	}
	s.views.CompareAndSwap(known, &next)
	return p.corpus
}

// All returns the visible tools, sorted by server, then name.
func (s *Snapshot) All(view View) iter.Seq[Entry] {
	c := s.corpusFor(view)
	return func(yield func(Entry) bool) {
		for i := range c.docs {
			if !yield(c.entry(uint32(i))) {
				return
			}
		}
	}
}

// Categories returns the categories of the visible tools: the configured ones in
// the order of their names, then the derived ones by server.
func (s *Snapshot) Categories(view View) []Category {
	c := s.corpusFor(view)
	var out []Category
	for i := range c.groups {
		g := &c.groups[i]
		if g.name == "" {
			continue
		}
		k := Category{Name: g.name, Server: g.server, Description: g.description, Tools: make([]Entry, len(g.docs))}
		for j, d := range g.docs {
			k.Tools[j] = c.entry(d)
		}
		out = append(out, k)
	}
	return out
}

// Listing returns what the server of a key listed last.
func (s *Snapshot) Listing(key string) (Listing, bool) {
	l, ok := s.listings[key]
	if !ok {
		return Listing{}, false
	}
	return l.Listing, true
}

// Keys returns the keys of all listings, sorted.
func (s *Snapshot) Keys() []string { return slices.Sorted(maps.Keys(s.listings)) }

func (c *corpus) entry(doc uint32) Entry {
	d := c.docs[doc]
	e := Entry{Key: d.key, Tool: d.tool}
	for _, g := range c.docGroups[doc] {
		e.Categories = append(e.Categories, c.groups[g].name)
	}
	if len(e.Categories) > 0 {
		e.Category = e.Categories[0]
	}
	return e
}
