package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// node is one value of a JSONC text with its place in it. Offsets are in bytes.
type node struct {
	start, end int
	kind       byte // '{' '[' '"' '0' 't' (true and false) 'n'
	members    []member
	elements   []node
	text       string // of a string, without its escapes; of any other scalar, as written
}

// member is one "name": value of an object.
type member struct {
	name       string
	start, end int // of the name with its quotes
	value      node
}

// member returns the last value of that name: with a name given twice, the last
// one holds, as in every JSON parser that the clients use.
func (n *node) member(name string) *member {
	for i := len(n.members) - 1; i >= 0; i-- {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// SyntaxError is the place where a text stops being JSONC.
type SyntaxError struct {
	Line, Col int // 1-based; Col counts characters
	Message   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, e.Message)
}

var bom = []byte("\ufeff")

// maxDepth bounds the recursion on hostile input; config.json needs 5.
const maxDepth = 200

// parser reads JSON with // and /* comments, trailing commas and a BOM. It keeps
// no comments: edits are made in the text itself, by offset.
type parser struct {
	text  []byte
	pos   int
	depth int
}

// parse returns the value that text holds, or a *SyntaxError. A text of nothing
// but white space and comments has kind 0.
func parse(text []byte) (node, error) {
	p := &parser{text: text}
	if bytes.HasPrefix(text, bom) {
		p.pos = len(bom)
	}
	if err := p.space(); err != nil {
		return node{}, err
	}
	if p.pos == len(text) {
		return node{start: p.pos, end: p.pos}, nil
	}
	root, err := p.value()
	if err != nil {
		return node{}, err
	}
	if err := p.space(); err != nil {
		return node{}, err
	}
	if p.pos < len(text) {
		return node{}, p.fail(p.pos, "more text after the end of the value")
	}
	return root, nil
}

func (p *parser) fail(at int, message string) error {
	line, col := position(p.text, at)
	return &SyntaxError{line, col, message}
}

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// space skips white space and comments.
func (p *parser) space() error {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.pos++
		case c == '/' && bytes.HasPrefix(p.text[p.pos:], []byte("//")):
			for p.pos < len(p.text) && p.text[p.pos] != '\n' {
				p.pos++
			}
		case c == '/' && bytes.HasPrefix(p.text[p.pos:], []byte("/*")):
			end := bytes.Index(p.text[p.pos+2:], []byte("*/"))
			if end < 0 {
				return p.fail(p.pos, "a comment is not closed")
			}
			p.pos += 2 + end + 2
		default:
			return nil
		}
	}
	return nil
}

func (p *parser) value() (node, error) {
	if p.depth++; p.depth > maxDepth {
		return node{}, p.fail(p.pos, "nested too deeply")
	}
	defer func() { p.depth-- }()
	switch c := p.peek(); {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		start := p.pos
		s, err := p.str()
		return node{start: start, end: p.pos, kind: '"', text: s}, err
	case p.pos == len(p.text):
		return node{}, p.fail(p.pos, "the text ends where a value belongs")
	}
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte(",:]}[{\"/ \t\r\n", p.text[p.pos]) < 0 {
		p.pos++
	}
	word := string(p.text[start:p.pos])
	n := node{start: start, end: p.pos, text: word}
	switch {
	case word == "true" || word == "false":
		n.kind = 't'
	case word == "null":
		n.kind = 'n'
	case word != "" && (word[0] == '-' || word[0] >= '0' && word[0] <= '9') && json.Valid([]byte(word)):
		n.kind = '0'
	default:
		return node{}, p.fail(start, "expected a value")
	}
	return n, nil
}

func (p *parser) str() (string, error) {
	start := p.pos
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch p.text[p.pos] {
		case '\\':
			p.pos++
		case '\n':
			return "", p.fail(start, "a string is not closed on its line")
		case '"':
			p.pos++
			var s string
			if err := json.Unmarshal(p.text[start:p.pos], &s); err != nil {
				return "", p.fail(start, "a string with a character or an escape that JSON does not have")
			}
			return s, nil
		}
	}
	p.pos = len(p.text)
	return "", p.fail(start, "the text ends inside a string")
}

func (p *parser) object() (node, error) {
	n := node{start: p.pos, kind: '{'}
	err := p.items('}', func() error {
		if p.peek() != '"' {
			return p.fail(p.pos, `expected a key in double quotes or "}"`)
		}
		m := member{start: p.pos}
		var err error
		if m.name, err = p.str(); err != nil {
			return err
		}
		m.end = p.pos
		if err := p.space(); err != nil {
			return err
		}
		if p.peek() != ':' {
			return p.fail(p.pos, fmt.Sprintf("expected \":\" after the key %q", m.name))
		}
		p.pos++
		if err := p.space(); err != nil {
			return err
		}
		if m.value, err = p.value(); err != nil {
			return err
		}
		n.members = append(n.members, m)
		return nil
	})
	n.end = p.pos
	return n, err
}

func (p *parser) array() (node, error) {
	n := node{start: p.pos, kind: '['}
	err := p.items(']', func() error {
		v, err := p.value()
		n.elements = append(n.elements, v)
		return err
	})
	n.end = p.pos
	return n, err
}

// items reads what stands between the bracket at pos and the closing one, with
// commas between the items and perhaps one behind the last.
func (p *parser) items(closing byte, item func() error) error {
	open := p.pos
	p.pos++
	for {
		if err := p.space(); err != nil {
			return err
		}
		switch {
		case p.pos == len(p.text):
			line, _ := position(p.text, open)
			return p.fail(p.pos, fmt.Sprintf("the text ends before the %q that closes line %d", closing, line))
		case p.peek() == closing:
			p.pos++
			return nil
		}
		if err := item(); err != nil {
			return err
		}
		if err := p.space(); err != nil {
			return err
		}
		switch p.peek() {
		case ',':
			p.pos++
		case closing:
		default:
			if p.pos < len(p.text) {
				return p.fail(p.pos, fmt.Sprintf("expected \",\" or %q", closing))
			}
		}
	}
}

// position returns the 1-based line and column of a byte offset. A BOM is no
// character.
func position(text []byte, at int) (line, col int) {
	before := bytes.TrimPrefix(text[:min(at, len(text))], bom)
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
