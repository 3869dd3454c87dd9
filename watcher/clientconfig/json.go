package clientconfig

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that a hostile file cannot exhaust the stack. Real
// files stay below 20.
const maxDepth = 1000

// wanted says which subtrees of a file to keep. The rest is checked and skipped
// without an allocation: Claude Code's user file is tens of MB of history around
// a few servers.
type wanted struct {
	keys map[string]*wanted
	any  *wanted // for keys that are not in keys; nil skips them
}

// everything wants everything below.
var everything = func() *wanted {
	w := &wanted{}
	w.any = w
	return w
}()

func (w *wanted) child(key []byte) *wanted {
	if w == nil {
		return nil
	}
	if c, ok := w.keys[string(key)]; ok {
		return c
	}
	return w.any
}

// parseJSON reads JSON with // and /* */ comments and trailing commas. The whole
// text is checked, also what is not wanted, so that a truncated file never passes
// for one with fewer servers.
func parseJSON(data []byte, want *wanted) (*node, error) {
	p := &jsonParser{data: data}
	if bytes.HasPrefix(data, bom) {
		p.i = len(bom)
	}
	n, err := p.document(want)
	if err != nil {
		return nil, err
	}
	return n, nil
}

type jsonParser struct {
	data  []byte
	i     int
	depth int
}

func (p *jsonParser) document(want *wanted) (*node, *syntaxAt) {
	if err := p.space(); err != nil {
		return nil, err
	}
	n, err := p.value(want)
	if err != nil {
		return nil, err
	}
	if err := p.space(); err != nil {
		return nil, err
	}
	if p.i < len(p.data) {
		return nil, p.fault("more text after the end of the value; a bracket may be closed too early")
	}
	return n, nil
}

func (p *jsonParser) fault(message string) *syntaxAt {
	return p.faultAt(p.i, message)
}

func (p *jsonParser) faultAt(off int, message string) *syntaxAt {
	if off >= len(p.data) {
		return &syntaxAt{off: len(p.data), message: "the file ends in the middle of " + p.within(), hint: "it may be cut off or still being written"}
	}
	return &syntaxAt{off: off, message: message}
}

func (p *jsonParser) within() string {
	if p.depth == 0 {
		return "a value"
	}
	return "an object or a list"
}

// space skips white space and comments.
func (p *jsonParser) space() *syntaxAt {
	for p.i < len(p.data) {
		switch c := p.data[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		case '/':
			rest := p.data[p.i:]
			switch {
			case bytes.HasPrefix(rest, []byte("//")):
				if end := bytes.IndexByte(rest, '\n'); end >= 0 {
					p.i += end + 1
				} else {
					p.i = len(p.data)
				}
			case bytes.HasPrefix(rest, []byte("/*")):
				end := bytes.Index(rest[2:], []byte("*/"))
				if end < 0 {
					return &syntaxAt{off: p.i, message: "a comment that starts with /* has no end"}
				}
				p.i += end + 4
			default:
				return p.fault("a lone slash; a comment starts with // or /*")
			}
		default:
			return nil
		}
	}
	return nil
}

// value reads one value. It returns nil for what is not wanted.
func (p *jsonParser) value(want *wanted) (*node, *syntaxAt) {
	if p.i >= len(p.data) {
		return nil, p.fault("")
	}
	start := p.i
	switch c := p.data[p.i]; {
	case c == '{':
		return p.object(want)
	case c == '[':
		return p.list(want)
	case c == '"':
		text, err := p.str(want != nil)
		return p.leaf(want, kString, start, text), err
	case c == '-' || c >= '0' && c <= '9':
		if err := p.number(); err != nil {
			return nil, err
		}
		return p.leaf(want, kNumber, start, ""), nil
	case p.word("true"), p.word("false"):
		return p.leaf(want, kBool, start, ""), nil
	case p.word("null"):
		return p.leaf(want, kNull, start, ""), nil
	}
	return nil, p.unexpected("a value is expected here")
}

func (p *jsonParser) leaf(want *wanted, k kind, start int, text string) *node {
	if want == nil {
		return nil
	}
	if k == kNumber || k == kBool {
		text = string(p.data[start:p.i])
	}
	return &node{kind: k, start: start, end: p.i, text: text}
}

func (p *jsonParser) word(w string) bool {
	if !bytes.HasPrefix(p.data[p.i:], []byte(w)) {
		return false
	}
	if end := p.i + len(w); end < len(p.data) && isWordByte(p.data[end]) {
		return false
	}
	p.i += len(w)
	return true
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf
}

// unexpected tells what stands in the place of something else, for the mistakes
// that people make.
func (p *jsonParser) unexpected(expected string) *syntaxAt {
	if p.i >= len(p.data) {
		return p.fault("")
	}
	switch c := p.data[p.i]; {
	case c == '#':
		return &syntaxAt{off: p.i, message: "# does not start a comment in this file", hint: "write // in its place"}
	case c == '\'':
		return &syntaxAt{off: p.i, message: "text stands in single quotes", hint: `write " in their place`}
	case c == 0:
		return &syntaxAt{off: p.i, message: "the file holds zero bytes", hint: "it was damaged or is not a text file"}
	case c == '}' || c == ']' || c == ',' || c == ':':
		return &syntaxAt{off: p.i, message: expected + `, not "` + string(c) + `"`}
	case bytes.HasPrefix(p.data[p.i:], []byte("\u201c")), bytes.HasPrefix(p.data[p.i:], []byte("\u201d")):
		return &syntaxAt{off: p.i, message: "text stands in typographic quotes", hint: `write " in their place`}
	}
	return &syntaxAt{off: p.i, message: expected}
}

func (p *jsonParser) enter() *syntaxAt {
	p.depth++
	if p.depth > maxDepth {
		return &syntaxAt{off: p.i, message: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
	}
	p.i++
	return p.space()
}

func (p *jsonParser) object(want *wanted) (*node, *syntaxAt) {
	var n *node
	if want != nil {
		n = &node{kind: kMap, start: p.i}
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	for {
		if p.i < len(p.data) && p.data[p.i] == '}' {
			break
		}
		at := p.i
		if p.i >= len(p.data) || p.data[p.i] != '"' {
			return nil, p.unexpected(`a key in double quotes or "}" is expected here`)
		}
		key, err := p.str(want != nil)
		if err != nil {
			return nil, err
		}
		if err := p.space(); err != nil {
			return nil, err
		}
		if p.i >= len(p.data) || p.data[p.i] != ':' {
			return nil, p.unexpected("a colon is expected after the key")
		}
		p.i++
		if err := p.space(); err != nil {
			return nil, err
		}
		var below *wanted
		if want != nil {
			below = want.child([]byte(key))
		}
		v, err := p.value(below)
		if err != nil {
			return nil, err
		}
		if v != nil {
			n.members = append(n.members, member{key, at, v})
		}
		if more, err := p.comma('}'); err != nil {
			return nil, err
		} else if !more {
			break
		}
	}
	p.i++
	p.depth--
	if n != nil {
		n.end = p.i
	}
	return n, nil
}

func (p *jsonParser) list(want *wanted) (*node, *syntaxAt) {
	var n *node
	if want != nil {
		n = &node{kind: kList, start: p.i}
		want = everything // a list that matters matters whole
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	for {
		if p.i < len(p.data) && p.data[p.i] == ']' {
			break
		}
		v, err := p.value(want)
		if err != nil {
			return nil, err
		}
		if n != nil {
			n.items = append(n.items, v)
		}
		if more, err := p.comma(']'); err != nil {
			return nil, err
		} else if !more {
			break
		}
	}
	p.i++
	p.depth--
	if n != nil {
		n.end = p.i
	}
	return n, nil
}

// comma skips what follows an element. more is false when the closing bracket
// follows; after a trailing comma the caller's loop finds it.
func (p *jsonParser) comma(closing byte) (more bool, err *syntaxAt) {
	if err := p.space(); err != nil {
		return false, err
	}
	if p.i < len(p.data) {
		switch p.data[p.i] {
		case ',':
			p.i++
			return true, p.space()
		case closing:
			return false, nil
		}
	}
	return false, p.unexpected(`a comma or "` + string(closing) + `" is expected here`)
}
