package clientconfig

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string; keep says whether its text is wanted. Every byte is looked
// at once: a large file is mostly long texts full of escapes.
func (p *jsonParser) str(keep bool) (string, *syntaxAt) {
	start := p.i
	p.i++
	escaped := false
	for {
		for p.i < len(p.data) && !special[p.data[p.i]] {
			p.i++
		}
		if p.i >= len(p.data) {
			return "", p.fault("")
		}
		switch c := p.data[p.i]; c {
		case '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return "", err
			}
			continue
		case '\n', '\r':
			return "", &syntaxAt{off: start, message: "a text has no closing quote on its line"}
		case '\t':
			return "", p.fault(`a text holds a tab character; write \t`)
		case '"':
			p.i++
		default:
			return "", p.fault("a text holds a control character")
		}
		break
	}
	if !keep {
		return "", nil
	}
	raw := p.data[start+1 : p.i-1]
	if escaped {
		raw = unescape(raw)
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD"), nil
}

// special are the bytes that end a run of plain text in a string.
var special = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

func (p *jsonParser) escape() *syntaxAt {
	if p.i+1 >= len(p.data) {
		return p.faultAt(len(p.data), "")
	}
	switch p.data[p.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.i += 2
		return nil
	case 'u':
		for j := p.i + 2; j < p.i+6; j++ {
			if j >= len(p.data) {
				return p.faultAt(len(p.data), "")
			}
			if c := p.data[j]; !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
				return p.faultAt(p.i, `\u must be followed by four hexadecimal digits`)
			}
		}
		p.i += 6
		return nil
	}
	e := p.faultAt(p.i, "a backslash that starts no known escape")
	e.hint = `write \\ for one backslash, as in C:\\tools`
	return e
}

// unescape replaces the escapes of a text that escape has checked.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		c := raw[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					if both := utf16.DecodeRune(r, hex4(raw[i+2:])); both != utf8.RuneError {
						out = utf8.AppendRune(out, both)
						i += 6
						continue
					}
				}
				r = utf8.RuneError
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return out
}

func hex4(b []byte) rune {
	v, _ := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(v)
}

func (p *jsonParser) number() *syntaxAt {
	start := p.i
	digits := func() bool {
		from := p.i
		for p.i < len(p.data) && p.data[p.i] >= '0' && p.data[p.i] <= '9' {
			p.i++
		}
		return p.i > from
	}
	bad := func() *syntaxAt { return p.faultAt(start, "not a number as JSON writes it") }
	if p.data[p.i] == '-' {
		p.i++
	}
	if p.i < len(p.data) && p.data[p.i] == '0' {
		p.i++
	} else if !digits() {
		return bad()
	}
	if p.i < len(p.data) && p.data[p.i] == '.' {
		p.i++
		if !digits() {
			return bad()
		}
	}
	if p.i < len(p.data) && p.data[p.i]|0x20 == 'e' {
		p.i++
		if p.i < len(p.data) && (p.data[p.i] == '+' || p.data[p.i] == '-') {
			p.i++
		}
		if !digits() {
			return bad()
		}
	}
	if p.i < len(p.data) && isWordByte(p.data[p.i]) {
		return bad()
	}
	return nil
}
