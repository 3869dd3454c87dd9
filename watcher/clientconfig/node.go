package clientconfig

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toolsd/toolsd/index/tool"
)

// kind is what a value is.
type kind uint8

const (
	kNull kind = iota
	kBool
	kNumber
	kString
	kDate // TOML and YAML have them
	kList
	kMap
)

// String names a kind as a problem does.
func (k kind) String() string {
	return [...]string{"null", "true or false", "a number", "text", "a date", "a list", "an object"}[k]
}

// node is a value of a file, whatever its syntax, with its place.
type node struct {
	kind       kind
	start, end int    // bytes of the document; end is 0 where a parser does not tell
	text       string // the string; a bool, number or date as it is spelled
	members    []member
	items      []*node

	// Of many members: where the last one of each key is, as far as they are known.
	last  map[string]int
	known int
}

// member is a key of a map with its value. A key may be there twice.
type member struct {
	key string
	at  int // the key's first byte
	val *node
}

// get returns the value of key, or nil. Of several the last one counts, as in
// nearly every client.
func (n *node) get(key string) *node {
	if n == nil || n.kind != kMap {
		return nil
	}
	if i := n.find(key); i >= 0 {
		return n.members[i].val
	}
	return nil
}

// few is how many members are searched one by one, which for the ten keys of an
// entry costs less than a map. Without one, an object of a million keys, each of
// which is asked for, would take hours.
const few = 32

// find is the place of the last member of that key, or -1. Members are only ever
// appended.
func (n *node) find(key string) int {
	if len(n.members) <= few {
		for i := len(n.members) - 1; i >= 0; i-- {
			if n.members[i].key == key {
				return i
			}
		}
		return -1
	}
	if n.last == nil {
		n.last = make(map[string]int, len(n.members))
	}
	for ; n.known < len(n.members); n.known++ {
		n.last[n.members[n.known].key] = n.known
	}
	if i, ok := n.last[key]; ok {
		return i
	}
	return -1
}

// distinct yields the members, of several of one key the last one.
func (n *node) distinct(yield func(member) bool) {
	for i, m := range n.members {
		if n.find(m.key) == i && !yield(m) {
			return
		}
	}
}

// lookup follows a dotted pointer. A key that holds the dots itself goes first:
// settings files are written both ways.
func (n *node) lookup(pointer string) *node {
	if v := n.get(pointer); v != nil {
		return v
	}
	if first, rest, ok := strings.Cut(pointer, "."); ok {
		return n.get(first).lookup(rest)
	}
	return nil
}

// scalar is the text of a value that is one piece of text in a command line or an
// environment.
func (n *node) scalar() (string, bool) {
	switch n.kind {
	case kString, kNumber, kBool, kDate:
		return n.text, true
	}
	return "", false
}

// SyntaxError says that a file cannot be read at all, and where.
type SyntaxError struct {
	Line, Col int // 1-based; Col counts characters
	Message   string
	Hint      string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, e.Message)
}

// syntaxAt is what parsers return: the place is still an offset.
type syntaxAt struct {
	off           int
	message, hint string
}

func (e *syntaxAt) Error() string { return e.message }

// places turns offsets into lines and columns. Asked in ascending order, as
// decoders do, it reads the text once; a file may be one line of 30 MB.
type places struct {
	data            []byte
	off, start      int // the place of the last answer, and the start of its line
	line, col, base int // base is the offset of the first character after a BOM
}

func newPlaces(data []byte) *places {
	base := 0
	if bytes.HasPrefix(data, bom) {
		base = len(bom)
	}
	return &places{data: data, off: base, start: base, line: 1, col: 1, base: base}
}

func (p *places) at(off int) (line, col int) {
	off = min(max(off, p.base), len(p.data))
	if off < p.off {
		if off >= p.start {
			p.off, p.col = p.start, 1
		} else {
			p.off, p.start, p.line, p.col = p.base, p.base, 1, 1
		}
	}
	for {
		i := bytes.IndexByte(p.data[p.off:off], '\n')
		if i < 0 {
			break
		}
		p.off += i + 1
		p.start, p.col = p.off, 1
		p.line++
	}
	p.col += utf8.RuneCount(p.data[p.off:off])
	p.off = off
	return p.line, p.col
}

// lineStarts is the reverse for parsers that only tell lines and columns. Lines end
// as YAML has it. Asked in ascending order, it reads a line once.
type lineStarts struct {
	data           []byte
	starts         []int
	line, col, off int // the last answer
}

func startsOf(data []byte) *lineStarts {
	s := &lineStarts{data: data, starts: []int{0}}
	if bytes.HasPrefix(data, bom) {
		s.starts[0] = len(bom)
	}
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\n',
			c == '\r' && (i+1 == len(data) || data[i+1] != '\n'):
			s.starts = append(s.starts, i+1)
		case c == 0xc2 && i+1 < len(data) && data[i+1] == 0x85: // next line
			i++
			s.starts = append(s.starts, i+1)
		case c == 0xe2 && i+2 < len(data) && data[i+1] == 0x80 && (data[i+2] == 0xa8 || data[i+2] == 0xa9):
			i += 2
			s.starts = append(s.starts, i+1)
		}
	}
	return s
}

func (s *lineStarts) offset(line, col int) int {
	line = max(line, 1)
	if line > len(s.starts) {
		return len(s.data)
	}
	if line != s.line || col < s.col {
		s.line, s.col, s.off = line, 1, s.starts[line-1]
	}
	for ; s.col < col && s.off < len(s.data); s.col++ {
		_, n := utf8.DecodeRune(s.data[s.off:])
		s.off += n
	}
	return s.off
}

var bom = []byte("\xef\xbb\xbf")

// maxShown is how many characters of a name a problem shows: it must fit a line
// of a terminal.
const maxShown = 60

// quoted is the name of a key or a server as a problem shows it.
func quoted(name string) string {
	name = tool.CleanLine(strings.ToValidUTF8(name, "\uFFFD"))
	if utf8.RuneCountInString(name) > maxShown {
		name = string([]rune(name)[:maxShown]) + "…"
	}
	return `"` + name + `"`
}
