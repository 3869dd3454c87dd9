package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// hidden reports whether r has no place in text that a terminal or a model
// reads: it is invisible, or it makes the text look like another one.
func hidden(r rune) bool {
	switch {
	case r < 0x20:
		return r != '\n' && r != '\t' && r != '\r' // C0, ESC among them
	case r >= 0x80 && r <= 0x9f:
		return true // C1; U+009B starts a terminal sequence like ESC [
	case r == 0x200b, r == 0x180e, r == 0xfeff, r >= 0x2060 && r <= 0x2064:
		return true // zero width; U+200C and U+200D are needed to write Persian, Hindi and emoji
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true // bidi controls
	case r >= 0xe0000 && r <= 0xe007f:
		return true // tags
	}
	return false
}

// Clean takes hidden characters out of s. Every string that a server or a config
// file supplied goes through it before it reaches a terminal, a log or an agent,
// except the content of results.
func Clean(s string) (cleaned string, changed bool) {
	if strings.IndexFunc(s, hidden) < 0 {
		return s, false
	}
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, s), true
}

// CleanLine is Clean for a text that must stay on one line: line breaks and tabs
// become spaces.
func CleanLine(s string) string {
	s, _ = Clean(s)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

// Cut shortens s to at most most bytes, on a rune boundary and with a mark.
func Cut(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	end := max(0, most-len(mark))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + mark
}

// cleanJSON makes raw compact and takes hidden characters out of its strings and
// keys; changed says whether there were any. Whatever needs no cleaning keeps its
// bytes: key order, duplicate keys, number spelling and escapes.
func cleanJSON(raw json.RawMessage) (clean json.RawMessage, changed bool, err error) {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, false, fmt.Errorf("not valid JSON: %w", err)
	}
	b := compact.Bytes()
	var out []byte // nil until the first change
	last := 0
	for i := 0; i < len(b); {
		if b[i] != '"' {
			i++
			continue
		}
		end := stringEnd(b, i)
		var s string
		if err := json.Unmarshal(b[i:end], &s); err != nil {
			return nil, false, fmt.Errorf("not valid JSON: %w", err)
		}
		if cleaned, changed := Clean(s); changed {
			out = append(out, b[last:i]...)
			out = append(out, Encode(cleaned)...)
			last = end
		}
		i = end
	}
	if out != nil {
		b = append(out, b[last:]...)
	}
	// Definitions are kept as long as the daemon lives: not one spare byte.
	return bytes.Clone(b), out != nil, nil
}

// stringEnd returns the index after the JSON string literal that starts at i.
// The text was checked to be JSON before.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
