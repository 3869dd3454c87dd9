package index

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
)

// maxWord is the longest word in bytes that is worth keeping: longer ones are
// hashes, keys and base64, which nobody types and no typo correction can reach.
const maxWord = 64

// piece is one word of a text as the analyzer gives it.
type piece struct {
	word  string // lower case, without accents
	pos   int    // number of the written part of a word within the text
	span  int    // how many parts it covers: 1, or more for a whole word beside its parts
	group int    // number of the uninterrupted run of letters and digits it belongs to
	start int    // byte offsets of its run in the text
	end   int
}

// analyze splits any bytes into words. A run of letters and digits is split where
// the case or the kind of character changes (exportPDFFile2 → export pdf file 2)
// and is also given as a whole when it has several parts (GitHub → git hub
// github). Runs of CJK become overlapping pairs of characters, since their words
// are not parted by spaces. visit returning false stops.
func analyze(text string, visit func(piece) bool) {
	a := analyzer{visit: visit}
	for i := 0; i < len(text); {
		r, size := decode(text[i:])
		switch {
		case isCJK(r):
			end := i
			for end < len(text) {
				r, n := decode(text[end:])
				if !isCJK(r) {
					break
				}
				end += n
			}
			if !a.cjk(text[i:end], i) {
				return
			}
			i = end
		case isWordRune(r):
			end := i
			for end < len(text) {
				r, n := decode(text[end:])
				if isCJK(r) || !isWordRune(r) && !isApostropheWithin(text, end, r) {
					break
				}
				end += n
			}
			if !a.run(text[i:end], i) {
				return
			}
			i = end
		default:
			i += size
		}
	}
}

func decode(s string) (rune, int) {
	if c := s[0]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(s) // U+FFFD for bytes that are no UTF-8: not a word rune
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r)
}

// isApostropheWithin keeps the apostrophe of don't and user's inside of the word.
func isApostropheWithin(text string, i int, r rune) bool {
	if r != '\'' && r != '’' {
		return false
	}
	_, n := decode(text[i:])
	if i+n >= len(text) {
		return false
	}
	next, _ := decode(text[i+n:])
	return next < utf8.RuneSelf && isWordRune(next) && !unicode.IsDigit(next)
}

func isCJK(r rune) bool {
	return r >= 0x2e80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
}

type analyzer struct {
	visit func(piece) bool
	pos   int
	group int
}

// cjk gives the pairs of characters of a run, or the one character it has.
func (a *analyzer) cjk(run string, start int) bool {
	defer func() { a.group++ }()
	_, first := utf8.DecodeRuneInString(run)
	if first == len(run) {
		a.pos++
		return a.visit(piece{run, a.pos - 1, 1, a.group, start, start + len(run)})
	}
	for i := 0; i < len(run); {
		_, n := utf8.DecodeRuneInString(run[i:])
		if i+n >= len(run) {
			break
		}
		_, m := utf8.DecodeRuneInString(run[i+n:])
		a.pos++
		if !a.visit(piece{run[i : i+n+m], a.pos - 1, 1, a.group, start, start + len(run)}) {
			return false
		}
		i += n
	}
	return true
}

// run gives the parts of a run of letters and digits, then the whole.
func (a *analyzer) run(run string, start int) bool {
	defer func() { a.group++ }()
	run = strings.TrimSuffix(strings.TrimSuffix(run, "'s"), "’s")
	first, parts := a.pos, 0
	begin := 0
	var prev rune
	for i := 0; i < len(run); {
		r, n := decode(run[i:])
		next := rune(0)
		if i+n < len(run) {
			next, _ = decode(run[i+n:])
		}
		if i > begin && boundary(prev, r, next) {
			parts++
			if !a.part(run[begin:i], start, start+len(run)) {
				return false
			}
			begin = i
		}
		prev = r
		i += n
	}
	if parts == 0 {
		return a.part(run, start, start+len(run))
	}
	if !a.part(run[begin:], start, start+len(run)) {
		return false
	}
	if whole := fold(run); whole != "" && len(whole) <= maxWord {
		return a.visit(piece{whole, first, a.pos - first, a.group, start, start + len(run)})
	}
	return true
}

func (a *analyzer) part(s string, start, end int) bool {
	a.pos++
	word := fold(s)
	if word == "" || len(word) > maxWord {
		return true
	}
	return a.visit(piece{word, a.pos - 1, 1, a.group, start, end})
}

// boundary reports whether a new part begins at r: aB, 1a, a1, and the last
// capital of an acronym that a small letter follows (PDFFile → PDF File). The
// plural of an acronym (PDFs, URLs) is no new part.
func boundary(prev, r, next rune) bool {
	if prev < utf8.RuneSelf && r < utf8.RuneSelf && r >= 'a' && prev >= 'a' {
		return false // most pairs are two small letters
	}
	switch {
	case unicode.IsDigit(prev) != unicode.IsDigit(r):
		return r != '\'' && prev != '\''
	case unicode.IsUpper(r):
		return unicode.IsLower(prev) || unicode.IsUpper(prev) && unicode.IsLower(next) && next != 's'
	}
	return false
}

// fold makes letters small and takes accents and apostrophes away.
func fold(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' || c == '\'' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\'' || r == '’' || unicode.Is(unicode.Mn, r):
		case r >= 0xc0 && r < 0x180:
			b.WriteString(withoutAccent(unicode.ToLower(r)))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// accents pairs the accented letters of Latin-1 and Latin Extended-A with what
// people type without that key.
const accents = "àáâãäåāăą a çćĉċč c ďđð d èéêëēĕėęě e ĝğġģ g ĥħ h ìíîïĩīĭįı i ĵ j ķ k ĺļľŀł l ñńņňŉ n òóôõöøōŏő o ŕŗř r śŝşšſ s ţťŧ t ùúûüũūŭůűų u ŵ w ýÿŷ y źżž z æ ae œ oe ß ss þ th"

func withoutAccent(r rune) string {
	i := strings.IndexRune(accents, r)
	if i < 0 {
		return string(r)
	}
	rest := accents[i:]
	rest = rest[strings.IndexByte(rest, ' ')+1:]
	if end := strings.IndexByte(rest, ' '); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// stem reduces an English word to what its forms share. Words of other scripts
// and those with digits stay as they are.
func stem(word string) string {
	for i := 0; i < len(word); i++ {
		if c := word[i]; c < 'a' || c > 'z' {
			return word
		}
	}
	if s, ok := irregular[word]; ok {
		return s
	}
	return english.Stem(word, true)
}

// irregular are forms that the stemmer takes apart or throws together wrongly.
var irregular = map[string]string{
	"news": "news", "new": "new", "data": "data", "datum": "data",
	"indices": "index", "indexes": "index", "vertices": "vertex", "matrices": "matrix",
	"people": "person", "persons": "person", "children": "child",
	"ran": "run", "sent": "send", "found": "find", "got": "get", "built": "build",
	"universe": "univers", "university": "universiti", "universal": "universal",
	"analyses": "analysi", "analyze": "analysi", "analysis": "analysi", "analyse": "analysi",
	"analyzing": "analysi", "analyzes": "analysi", "analyzed": "analysi", "analyzer": "analysi",
}

// squash keeps only letters and digits, in small letters: two names that squash
// to the same are the same to someone who types them.
func squash(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == utf8.RuneError:
		case r < utf8.RuneSelf:
			if isWordRune(r) {
				b.WriteRune(unicode.ToLower(r))
			}
		case isWordRune(r):
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}
