package clientconfig

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/toolsd/toolsd/index/tool"
)

// toml removes whole expressions with their lines: the tables of a server, or
// dotted keys that define it. New servers are tables of their own.
func (e *editor) toml() error {
	base := 0
	if bytes.HasPrefix(e.data, bom) {
		base = len(bom)
	}
	text := e.data[base:]
	text = text[:len(text):len(text)]
	t := &tomlTree{data: text, base: base}
	var p unstable.Parser
	p.Reset(text)
	place := -1 // where the new tables go
	var table []string
	leaving := false // the table at hand goes out
	from, to := -1, -1
	flush := func() {
		if from >= 0 {
			e.deleteLines(from, to)
		}
		from = -1
	}
	for p.NextExpression() {
		x := p.Expression()
		keys := t.keys(x)
		var path []string
		for _, k := range keys {
			path = append(path, k.name)
		}
		start := lineStart(e.data, keys[0].at)
		switch x.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = path
			end := lineEnd(e.data, keys[len(keys)-1].end)
			was := leaving
			leaving = e.leaves(path)
			if was && leaving && blank(e.data[to:start]) {
				to = end // one deletion for all tables of a server
				continue
			}
			flush()
			if leaving {
				from, to = start, end
				if place < 0 {
					place = start
				}
			}
		case unstable.KeyValue:
			end := lineEnd(e.data, base+int(x.Raw.Offset+x.Raw.Length))
			full := append(slices.Clone(table), path...)
			switch {
			case leaving:
				to = end
			case e.leaves(full):
				e.deleteLines(start, end)
			case len(full) == 1 && full[0] == e.loc.Pointer && e.inlineHolds(x, t):
				return errors.New("its servers are all in one inline table; change the file by hand")
			}
		}
	}
	flush()
	if len(e.names) == 0 {
		return nil
	}
	var b strings.Builder
	for i, name := range e.names {
		if i > 0 {
			b.WriteString(e.eol)
		}
		b.WriteString(e.tomlTable(name))
	}
	if place >= 0 {
		// What follows a table that left is another table or the end, unless
		// comments stand between them.
		if bytes.HasPrefix(e.after(place), []byte("[")) {
			b.WriteString(e.eol)
		}
		e.replace(place, place, b.String())
		return nil
	}
	head := ""
	switch {
	case blank(text):
	case !bytes.HasSuffix(text, []byte("\n")):
		head = e.eol + e.eol
	default:
		head = e.eol
	}
	e.replace(len(e.data), len(e.data), head+b.String())
	return nil
}

// after is the text behind the deletion that begins at place.
func (e *editor) after(place int) []byte {
	for _, c := range e.edits {
		if c.start == place {
			return e.data[c.end:]
		}
	}
	return e.data[place:]
}

// leaves reports whether a key path belongs to a server that goes.
func (e *editor) leaves(path []string) bool {
	return len(path) > 1 && path[0] == e.loc.Pointer && e.gone[strings.TrimSpace(tool.CleanLine(path[1]))]
}

func (e *editor) inlineHolds(x *unstable.Node, t *tomlTree) bool {
	n, err := t.value(x.Value(), 0, 0)
	if err != nil || n.kind != kMap {
		return true
	}
	return len(e.names) > 0 || slices.ContainsFunc(n.members, func(m member) bool { return e.gone[m.key] })
}

// deleteLines takes lines out, and one blank line with them where that would
// leave two.
func (e *editor) deleteLines(from, to int) {
	before := from == 0 || bytes.HasSuffix(e.data[:from], []byte("\n\n")) || bytes.HasSuffix(e.data[:from], []byte("\n\r\n"))
	if next := lineEnd(e.data, to); before && to < len(e.data) && blank(e.data[to:next]) {
		to = next
	}
	e.replace(from, to, "")
}

func (e *editor) tomlTable(name string) string {
	var b, tables strings.Builder
	head := "[" + tomlKeyText(e.loc.Pointer) + "." + tomlKeyText(name)
	b.WriteString(head + "]" + e.eol)
	for _, f := range e.fields(e.named(name)) {
		if m, ok := f.value.(map[string]string); ok {
			tables.WriteString(e.eol + head + "." + tomlKeyText(f.key) + "]" + e.eol)
			for _, k := range slices.Sorted(maps.Keys(m)) {
				tables.WriteString(tomlKeyText(k) + " = " + tomlString(m[k]) + e.eol)
			}
			continue
		}
		b.WriteString(tomlKeyText(f.key) + " = ")
		switch v := f.value.(type) {
		case string:
			b.WriteString(tomlString(v))
		case []string:
			var words []string
			for _, w := range v {
				words = append(words, tomlString(w))
			}
			b.WriteString("[" + strings.Join(words, ", ") + "]")
		case bool:
			b.WriteString(strconv.FormatBool(v))
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		}
		b.WriteString(e.eol)
	}
	return b.String() + tables.String()
}

func tomlKeyText(k string) string {
	for i := range len(k) {
		if c := k[i]; c != '-' && (!isWordByte(c) || c >= 0x80) {
			return tomlString(k)
		}
	}
	if k == "" {
		return `""`
	}
	return k
}

// tomlString writes a string as TOML. JSON's escapes are TOML's, but for DEL,
// which TOML wants escaped, and the slash, which encodeJSON leaves alone.
func tomlString(s string) string { return strings.ReplaceAll(encodeJSON(s), "\x7f", `\u007f`) }
