package index

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// corpus is a set of tools ready to be searched, with statistics, vocabulary and
// categories that come from these tools alone. It never changes.
type corpus struct {
	rank  *ranking
	syn   func() *synonyms
	dict  dictionary
	docs  []*document // by server, name, key
	start []uint32    // by stem: where its postings begin in posts
	posts []posting
	idfs  []float32 // by stem
	known bitset    // words that occur in these tools or their groups

	serverOf   []uint32 // by document: number of its server
	serverSize []uint32 // by that number

	groups     []group
	groupPosts []groupPosting // by stem, group
	docGroups  [][]uint16     // by document: its categories, the first one first
	byName     []nameRef      // by hash
}

// posting says that a tool holds a stem. impact is the whole BM25F score of that
// stem in that tool, computed when the corpus was made: idf · t/(k1+t).
type posting struct {
	doc    uint32
	impact float32
	mask   uint8 // the words of the tool's name that it covers
}

// groupPosting is the same for a group of tools.
type groupPosting struct {
	stem   uint32
	group  uint16
	impact float32
}

type nameRef struct {
	hash uint64
	doc  uint32
}

// ranking holds the numbers of the ranking formula. They were measured on the
// public sets that the tests of this package run; TestAblation shows what each
// part is worth.
type ranking struct {
	weight [numFields]float32 // of a field
	b      [numFields]float32 // how much a long field counts less
	k1     float32
	group  float32 // weight of category texts and server instructions

	// What a reading of a word is worth beside the word itself.
	synonym, joined, split float32
	prefix, typo1, typo2   float32

	coverage     float32 // of the query
	nameCoverage float32
	clause       float32 // the best sentence
	clauseBest   float32 // being the best tool of a sentence
	server       float32 // the company of fitting tools
	cut          float32 // share of the best score under which nothing is shown
}

var defaultRanking = ranking{
	weight: [numFields]float32{fieldName: 3, fieldTitle: 1.5, fieldServer: 1.5, fieldFirst: 1.5, fieldRest: .4, fieldParam: .6, fieldParams: .5},
	b:      [numFields]float32{fieldName: .75, fieldTitle: .75, fieldServer: .3, fieldFirst: .65, fieldRest: .7, fieldParam: .3, fieldParams: .7},
	k1:     1.8,
	group:  .2,

	synonym: .55, joined: .9, split: .9,
	prefix: .7, typo1: .7, typo2: .5,

	coverage: .2, nameCoverage: .75,
	clause: 1, clauseBest: .5,
	server: .6,
	cut:    .4,
}

// newCorpus makes a corpus of docs, which must be in order (compareDocuments).
func newCorpus(rank *ranking, syn func() *synonyms, dict dictionary, docs []*document, texts []groupText, conf []configured) *corpus {
	c := &corpus{rank: rank, syn: syn, dict: dict, docs: docs, known: newBits(len(dict.words))}
	c.index()
	c.group(texts, conf)
	c.names()
	return c
}

func compareDocuments(a, b *document) int {
	return cmp.Or(cmp.Compare(a.tool.Server, b.tool.Server), cmp.Compare(a.tool.Name, b.tool.Name), cmp.Compare(a.key, b.key))
}

// index computes the postings. The entries of a document are sorted by stem, so
// that one pass over them sees all fields of a stem together.
func (c *corpus) index() {
	df := make([]uint32, len(c.dict.stems)+1)
	var sum, count [numFields]float64
	for _, d := range c.docs {
		last := uint32(math.MaxUint32)
		for _, e := range d.entries {
			c.known.set(e.word)
			if s := c.dict.wordStem[e.word]; s != last {
				df[s]++
				last = s
			}
		}
		for f, n := range d.length {
			if n > 0 {
				sum[f] += float64(n)
				count[f]++
			}
		}
	}
	var avg [numFields]float32
	for f := range avg {
		avg[f] = 1
		if count[f] > 0 {
			avg[f] = float32(sum[f] / count[f])
		}
	}
	c.start = make([]uint32, len(c.dict.stems)+1)
	total := uint32(0)
	for s := range c.start {
		c.start[s] = total
		total += df[s]
	}
	c.posts = make([]posting, total)
	next := slices.Clone(c.start)
	c.idfs = make([]float32, len(c.dict.stems))
	for i := range c.idfs {
		c.idfs[i] = c.idf(df[i])
	}
	c.serverOf = make([]uint32, len(c.docs))
	for i, d := range c.docs {
		if i == 0 || d.tool.Server != c.docs[i-1].tool.Server {
			c.serverSize = append(c.serverSize, 0)
		}
		c.serverOf[i] = uint32(len(c.serverSize) - 1)
		c.serverSize[c.serverOf[i]]++
	}
	for i, d := range c.docs {
		var norm [numFields]float32 // weight over length normalization
		for f := range norm {
			b := c.rank.b[f]
			norm[f] = c.rank.weight[f] / (1 - b + b*float32(d.length[f])/avg[f])
		}
		for j := 0; j < len(d.entries); {
			s := c.dict.wordStem[d.entries[j].word]
			t, mask := float32(0), uint8(0)
			for ; j < len(d.entries) && c.dict.wordStem[d.entries[j].word] == s; j++ {
				e := d.entries[j]
				t += norm[e.field] * float32(e.tf)
				mask |= e.mask
			}
			c.posts[next[s]] = posting{uint32(i), c.idfs[s] * t / (c.rank.k1 + t), mask}
			next[s]++
		}
	}
}

// idf is how much a stem that df of the tools hold tells them apart.
func (c *corpus) idf(df uint32) float32 {
	return float32(math.Log(1 + (float64(len(c.docs))-float64(df)+.5)/(float64(df)+.5)))
}

// postings returns the tools that hold a stem.
func (c *corpus) postings(stem uint32) []posting {
	if int(stem)+1 >= len(c.start) {
		return nil
	}
	return c.posts[c.start[stem]:c.start[stem+1]]
}

// inGroups returns the groups that hold a stem.
func (c *corpus) inGroups(stem uint32) []groupPosting {
	i := sort.Search(len(c.groupPosts), func(i int) bool { return c.groupPosts[i].stem >= stem })
	j := i
	for j < len(c.groupPosts) && c.groupPosts[j].stem == stem {
		j++
	}
	return c.groupPosts[i:j]
}

// find returns the number of a word's stem when a tool or group of this corpus
// holds it.
func (c *corpus) find(word string) (stemID uint32, ok bool) {
	if id, found := c.dict.word(word); found {
		stemID = c.dict.wordStem[id]
	} else if id, found := c.dict.stem(stem(word)); found {
		stemID = id
	} else {
		return 0, false
	}
	return stemID, len(c.postings(stemID)) > 0 || len(c.inGroups(stemID)) > 0
}

// names makes the table by which exact names are found.
func (c *corpus) names() {
	c.byName = make([]nameRef, 0, 3*len(c.docs))
	for i, d := range c.docs {
		c.byName = append(c.byName, nameRef{d.squashed, uint32(i)}, nameRef{d.squashID, uint32(i)})
		if d.exposed != d.squashID {
			c.byName = append(c.byName, nameRef{d.exposed, uint32(i)})
		}
	}
	slices.SortFunc(c.byName, func(a, b nameRef) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.doc, b.doc))
	})
}

// bitset is a set of small numbers.
type bitset []uint64

func newBits(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i uint32) { b[i/64] |= 1 << (i % 64) }

func (b bitset) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]&(1<<(i%64)) != 0 }
