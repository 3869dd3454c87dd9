package index

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolsd/toolsd/index/tool"
)

// field is a part of a tool that words are found in.
type field uint8

const (
	fieldName field = iota
	fieldTitle
	fieldServer
	fieldFirst  // first sentence of the description
	fieldRest   // rest of the description
	fieldParam  // names of parameters, nested ones too
	fieldParams // descriptions and enumerated values of parameters
	numFields
	fieldGroup = numFields // category or server instructions: shared by many tools, see category.go
)

var fieldNames = [...]string{"name", "title", "server", "description", "description", "parameter", "parameter description", "category"}

// entry says that a word occurs tf times in a field.
type entry struct {
	word  uint32
	field field
	tf    uint8
	mask  uint8 // in the name: which of its first eight words it covers
}

// document is a tool as the index sees it. It is made once for a definition and
// shared by all snapshots that hold the tool.
type document struct {
	key      string
	tool     *tool.Tool
	entries  []entry           // by stem, field
	length   [numFields]uint16 // words
	nameLen  uint8             // words of the name, at most 8
	squashed uint64            // hash of the squashed name
	squashID uint64            // hash of the squashed id
	exposed  uint64            // hash of the squashed exposed name
}

// analyzeTool makes the document of a tool.
func (l *lexicon) analyzeTool(key string, t *tool.Tool) *document {
	d := &document{key: key, tool: t}
	b := l.builder(d)
	b.name(t.Name)
	b.text(fieldTitle, t.Title)
	b.text(fieldServer, t.Server)
	first, rest := firstSentence(t.Description)
	b.text(fieldFirst, first)
	b.text(fieldRest, rest)
	eachParameter(t.InputSchema, func(name, text string) {
		b.text(fieldParam, name)
		b.text(fieldParams, text)
	})
	sortEntries(b.entries, l.dict.wordStem)
	d.entries = b.done()
	d.squashed = hash64(squash(t.Name))
	d.squashID = hash64(squash(t.Server + t.Name))
	d.exposed = hash64(squash(t.Exposed))
	return d
}

// analyzeGroup makes the entries of a text that several tools share.
func (l *lexicon) analyzeGroup(text string) []entry {
	b := l.builder(nil)
	analyze(text, func(p piece) bool {
		b.add(fieldGroup, p.word, 0)
		return true
	})
	sortEntries(b.entries, l.dict.wordStem)
	return b.done()
}

func sortEntries(es []entry, stems []uint32) {
	slices.SortFunc(es, func(a, b entry) int {
		return cmp.Or(cmp.Compare(stems[a.word], stems[b.word]), cmp.Compare(a.field, b.field), cmp.Compare(a.word, b.word))
	})
}

type entryKey struct {
	word  uint32
	field field
}

type builder struct {
	lex     *lexicon
	doc     *document
	at      map[entryKey]int
	entries []entry
}

// builder returns an empty builder that uses the memory of the last one.
func (l *lexicon) builder(d *document) *builder {
	clear(l.at)
	return &builder{lex: l, doc: d, at: l.at, entries: l.entries[:0]}
}

// done returns the entries in memory of their own.
func (b *builder) done() []entry {
	b.lex.entries = b.entries
	return slices.Clone(b.entries)
}

func (b *builder) add(f field, word string, mask uint8) {
	k := entryKey{b.lex.word(word), f}
	if i, ok := b.at[k]; ok {
		if b.entries[i].tf < 255 {
			b.entries[i].tf++
		}
		b.entries[i].mask |= mask
		return
	}
	b.at[k] = len(b.entries)
	b.entries = append(b.entries, entry{k.word, f, 1, mask})
}

func (b *builder) text(f field, s string) {
	n := 0
	analyze(s, func(p piece) bool {
		b.add(f, p.word, 0)
		if p.span == 1 {
			n++
		}
		return true
	})
	b.doc.length[f] = uint16(min(int(b.doc.length[f])+n, 1<<16-1))
}

func (b *builder) name(s string) {
	n := 0
	analyze(s, func(p piece) bool {
		mask := uint8(0)
		for i := p.pos; i < p.pos+p.span && i < 8; i++ {
			mask |= 1 << i
		}
		b.add(fieldName, p.word, mask)
		n = max(n, p.pos+p.span)
		return true
	})
	b.doc.length[fieldName] = uint16(min(n, 1<<16-1))
	b.doc.nameLen = uint8(min(n, 8))
}

// maxFirst is where a first sentence ends at the latest: what comes after is
// detail, whether or not its author used a full stop.
const maxFirst = 240

// firstSentence cuts a description after its first sentence or line.
func firstSentence(s string) (first, rest string) {
	s = strings.TrimLeft(s, " \t\r\n#*-")
	for i := 0; i < len(s); i++ {
		if i >= maxFirst {
			for i > 0 && !utf8.RuneStart(s[i]) {
				i--
			}
			if sp := strings.LastIndexByte(s[:i], ' '); sp > maxFirst/2 {
				i = sp
			}
			return s[:i], s[i:]
		}
		switch s[i] {
		case '\n':
			// A line that was only wrapped goes on; an empty line or a very short
			// heading does not end the thought.
			if i >= 20 {
				return s[:i], s[i:]
			}
		case '.', '!', '?', ';':
			if i >= 12 && i+1 < len(s) && (s[i+1] == ' ' || s[i+1] == '\n') && !strings.HasSuffix(s[:i+1], "e.g.") && !strings.HasSuffix(s[:i+1], "i.e.") {
				return s[:i+1], s[i+1:]
			}
		default:
			if strings.HasPrefix(s[i:], "。") && i >= 12 {
				return s[:i], s[i:]
			}
		}
	}
	return s, ""
}

// hash64 is FNV-1a. Whoever finds a hash compares the strings too.
func hash64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
