package adopt

import (
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// unit is a piece of a text: key is what it says, text is that with the white
// space around it.
type unit struct{ key, text string }

func unitsOfLines(text string) []unit {
	var units []unit
	for _, l := range lines(text) {
		units = append(units, unit{strings.TrimRight(l, " \t\r\n"), l})
	}
	return units
}

// unitsOfTokens cuts a text into words, strings, comments and single marks, each
// with the white space before it, so that a file whose layout its client changed
// is still recognised.
func unitsOfTokens(text string, format clientconfig.Format) []unit {
	var units []unit
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && strings.IndexByte(" \t\r\n", text[i]) >= 0 {
			i++
		}
		from := i
		i = tokenEnd(text, i, format)
		units = append(units, unit{text[from:i], text[start:i]})
	}
	return units
}

func tokenEnd(text string, i int, format clientconfig.Format) int {
	if i >= len(text) {
		return i
	}
	json := format == clientconfig.JSON
	rest := text[i:]
	until := func(mark string) int {
		if n := strings.Index(rest, mark); n >= 0 {
			return i + n
		}
		return len(text)
	}
	switch c := text[i]; {
	case c == '"', c == '\'' && !json:
		for j := i + 1; j < len(text); j++ {
			switch {
			case text[j] == '\\' && c == '"':
				j++
			case text[j] == c:
				return j + 1
			case text[j] == '\n':
				return j // not closed on its line: no string
			}
		}
		return len(text)
	case json && strings.HasPrefix(rest, "//"), !json && c == '#':
		return until("\n")
	case json && strings.HasPrefix(rest, "/*"):
		return min(len(text), until("*/")+2)
	case strings.IndexByte("{}[],:=", c) >= 0:
		return i + 1
	}
	j := i + 1
	for j < len(text) && strings.IndexByte(" \t\r\n{}[],:=\"", text[j]) < 0 {
		j++
	}
	return j
}

// contexts are how many unchanged units before and behind a change must be found
// with it, the safest first.
var contexts = [][2]int{{3, 3}, {2, 2}, {3, 0}, {0, 3}, {1, 1}, {2, 0}, {0, 2}, {1, 0}, {0, 1}, {0, 0}}

// patch makes the change from a to b in t, whatever else is different there: it
// looks for the place of each hunk by what was there and what is around it. It
// gives up unless every place is the only one and their order is kept. The
// caller checks what came out.
func patch(t, a, b []unit, near int) (string, bool) {
	keys := func(units []unit) []string {
		out := make([]string, len(units))
		for i, u := range units {
			out[i] = u.key
		}
		return out
	}
	tk, ak, bk := keys(t), keys(a), keys(b)
	var hunks []hunk
	for _, h := range changes(ak, bk) {
		// White space beside a change belongs to it.
		for h.a0 > 0 && h.b0 > 0 && a[h.a0-1].key == b[h.b0-1].key && a[h.a0-1].text != b[h.b0-1].text {
			h.a0, h.b0 = h.a0-1, h.b0-1
		}
		for h.a1 < len(a) && h.b1 < len(b) && a[h.a1].key == b[h.b1].key && a[h.a1].text != b[h.b1].text {
			h.a1, h.b1 = h.a1+1, h.b1+1
		}
		// Hunks near each other are one: small ones are not found for certain.
		if n := len(hunks); n > 0 && h.a0-hunks[n-1].a1 <= near {
			hunks[n-1].a1, hunks[n-1].b1 = h.a1, h.b1
			continue
		}
		hunks = append(hunks, h)
	}
	var out strings.Builder
	from := 0
	for _, h := range hunks {
		at, ok := locate(tk, ak, h)
		if !ok || at < from {
			return "", false
		}
		for _, u := range t[from:at] {
			out.WriteString(u.text)
		}
		for _, u := range b[h.b0:h.b1] {
			out.WriteString(u.text)
		}
		from = at + h.a1 - h.a0
	}
	for _, u := range t[from:] {
		out.WriteString(u.text)
	}
	return out.String(), true
}

// locate finds where in t the old units of a hunk are.
func locate(t, a []string, h hunk) (int, bool) {
	for _, c := range contexts {
		lead, tail := min(c[0], h.a0), min(c[1], len(a)-h.a1)
		old := a[h.a0-lead : h.a1+tail]
		if len(old) == 0 {
			continue
		}
		found, at := 0, 0
	places:
		for i := 0; i+len(old) <= len(t) && found < 2; i++ {
			for j, key := range old {
				if t[i+j] != key {
					continue places
				}
			}
			found++
			at = i + lead
		}
		if found > 0 {
			return at, found == 1
		}
	}
	return 0, false
}

// commas mends a JSON text into which two sides put elements at the same place:
// there may be a comma too many or too few between them.
func commas(text string) string {
	var out []string
	last := -1 // the last piece that is no comment
	lastKey := "{"
	for _, u := range unitsOfTokens(text, clientconfig.JSON) {
		switch {
		case u.key == "" || strings.HasPrefix(u.key, "//") || strings.HasPrefix(u.key, "/*"):
			out = append(out, u.text)
			continue
		case u.key == "," && lastKey == ",":
			continue
		case !strings.Contains("}],:", u.key) && !strings.Contains("{[,:", lastKey) && last >= 0:
			out[last] += ","
		}
		out = append(out, u.text)
		last, lastKey = len(out)-1, u.key
	}
	return strings.Join(out, "")
}
