package clientconfig

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
)

// jsonBox is an object or a list in the text, as what may be edited in it.
type jsonBox struct {
	n     *node
	elems []jsonElem
}

type jsonElem struct {
	start, end int // from the key, if there is one, to the end of the value
	comma      int // of the comma that follows, or -1
	gone       bool
}

func (e *editor) box(n *node) jsonBox {
	b := jsonBox{n: n}
	put := func(start, end int) {
		p := &jsonParser{data: e.data, i: end}
		_ = p.space() // the text was parsed before
		comma := -1
		if p.i < len(e.data) && e.data[p.i] == ',' {
			comma = p.i
		}
		b.elems = append(b.elems, jsonElem{start: start, end: end, comma: comma})
	}
	for _, m := range n.members {
		put(m.at, m.val.end)
	}
	for _, i := range n.items {
		put(i.start, i.end)
	}
	return b
}

func (e *editor) json(before Content) error {
	if blank(bytes.TrimPrefix(e.data, bom)) {
		e.newJSON()
		return nil
	}
	file, err := parseJSON(e.data, everything)
	if err != nil {
		return err
	}
	if len(file.members) > 0 {
		if indent, own := indentAt(e.data, file.members[0].at); own && indent != "" {
			e.step = indent
		}
	}
	var home *node // where the new entries go
	pointers := ownRoots(e.loc, e.client)
	ours := len(pointers)
	for _, r := range roots {
		if !slices.Contains(pointers, r.pointer) && (!e.loc.Settings || r.strong) {
			pointers = append(pointers, r.pointer)
		}
	}
	edited := map[*node]bool{}
	for i, pointer := range pointers {
		n := file.lookup(pointer)
		if pointer == "" {
			if n = nil; home == nil && holdsServers(file) {
				n = file
			}
		}
		if n == nil || n.kind != kMap && n.kind != kList || edited[n] || i >= ours && !holdsServers(n) {
			continue
		}
		edited[n] = true
		if i < ours && home == nil {
			home, e.home = n, pointer
			e.jsonServers(n, e.names)
		} else {
			e.jsonServers(n, nil)
		}
	}
	if home == nil && len(edited) == 0 && !e.loc.Settings && !slices.Contains(e.client.Also, "") {
		e.jsonServers(file, nil) // a bare map
	}
	if home == nil && len(e.names) > 0 {
		e.newRoot(file)
	}
	e.allowed(file, before)
	return nil
}

// jsonServers takes the servers that go out of a map or list of servers and puts
// the new ones in.
func (e *editor) jsonServers(n *node, names []string) {
	b := e.box(n)
	for i := range b.elems {
		name := ""
		if n.kind == kMap {
			name = n.members[i].key
		} else if v := n.items[i].get("name"); v != nil {
			name = v.text
		}
		b.elems[i].gone = e.gone[strings.TrimSpace(tool.CleanLine(name))]
	}
	var texts []func(indent, unit string, inline bool) string
	for _, name := range names {
		texts = append(texts, func(indent, unit string, inline bool) string {
			fields := e.fields(e.named(name))
			if n.kind == kMap {
				return encodeJSON(name) + ": " + renderJSON(fields, indent, unit, e.eol, inline)
			}
			if fields[0].key != "name" {
				fields = append([]field{{"name", name}}, fields...)
			}
			return renderJSON(fields, indent, unit, e.eol, inline)
		})
	}
	e.change(b, texts)
}

func (e *editor) named(name string) Entry {
	s := e.add[name]
	s.Name = name
	return s
}

// change deletes the elements that are gone and writes new ones in the place of
// the first of them, else behind the last.
func (e *editor) change(b jsonBox, texts []func(indent, unit string, inline bool) string) {
	unit := e.step
	n := b.n
	inline := !bytes.Contains(e.data[n.start:n.end], []byte("\n")) && len(b.elems) > 0
	indent := ""
	if len(b.elems) > 0 {
		var own bool
		if indent, own = indentAt(e.data, b.elems[0].start); !own {
			outer, _ := leading(e.data, n.start)
			indent = outer + unit
		}
	} else {
		outer, _ := leading(e.data, n.start)
		indent = outer + unit
	}
	sep := "," + e.eol + indent
	if inline {
		sep = ", "
	}
	var parts []string
	for _, t := range texts {
		parts = append(parts, t(indent, unit, inline))
	}
	text := strings.Join(parts, sep)

	first := slices.IndexFunc(b.elems, func(x jsonElem) bool { return x.gone })
	last := -1 // of those that stay
	for i, x := range b.elems {
		if !x.gone {
			last = i
		}
	}
	if text != "" && first >= 0 {
		e.replace(b.elems[first].start, b.elems[first].end, text)
		last = max(last, first)
		b.elems[first].gone = false
	}
	// When the end of the list goes, the comma before it goes, too: plain JSON has
	// no trailing commas.
	if tail := len(b.elems) - 1; tail >= 0 && b.elems[tail].gone && b.elems[tail].comma < 0 && last >= 0 {
		e.replace(b.elems[last].comma, b.elems[last].comma+1, "")
	}
	for _, x := range b.elems {
		if x.gone {
			e.deleteElem(x)
		}
	}
	if text == "" || first >= 0 {
		return
	}
	switch {
	case len(b.elems) == 0:
		outer, _ := leading(e.data, n.start)
		inner := bytes.TrimRight(e.data[n.start+1:n.end-1], " \t\r\n") // nothing or comments
		e.replace(n.start+1+len(inner), n.end-1, e.eol+indent+text+e.eol+outer)
	default:
		tail := b.elems[len(b.elems)-1]
		end, comma := tail.end, ""
		if tail.comma >= 0 { // the file has trailing commas; it keeps them
			end, comma = tail.comma+1, ","
		} else {
			e.replace(end, end, ",")
		}
		// A comment behind the last element stays with it.
		if rest := bytes.TrimRight(e.data[end:lineEnd(e.data, end)], "\r\n"); !inline && bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), []byte("//")) {
			end += len(rest)
		}
		e.replace(end, end, strings.TrimPrefix(sep, ",")+text+comma)
	}
}

// deleteElem takes an element, its comma and, where nothing else is on them, its
// lines out. Comments around it stay.
func (e *editor) deleteElem(x jsonElem) {
	start, end := x.start, x.end
	if x.comma >= 0 {
		if blank(e.data[x.end:x.comma]) {
			end = x.comma + 1
		} else {
			e.replace(x.comma, x.comma+1, "")
		}
	}
	line := lineStart(e.data, start)
	next := lineEnd(e.data, end)
	switch {
	case blank(e.data[line:start]) && blank(e.data[end:next]) && next > end && e.data[next-1] == '\n':
		start, end = line, next
	case end < next:
		for end < len(e.data) && (e.data[end] == ' ' || e.data[end] == '\t') && x.comma >= 0 {
			end++
		}
		if x.comma < 0 && !blank(e.data[line:start]) {
			for start > line && (e.data[start-1] == ' ' || e.data[start-1] == '\t') {
				start--
			}
		}
	}
	e.replace(start, end, "")
}

// newRoot adds the client's root with the new entries to a file that has none.
func (e *editor) newRoot(file *node) {
	keys := strings.Split(e.loc.Pointer, ".")
	if e.client.Slug == "amp" {
		keys = []string{e.loc.Pointer} // one key with a dot in it
	}
	in := file
	for len(keys) > 1 && in.get(keys[0]) != nil && in.get(keys[0]).kind == kMap {
		in, keys = in.get(keys[0]), keys[1:]
	}
	if v := in.get(keys[0]); v != nil { // null, or there would be a home
		e.replace(v.start, v.end, e.rootObject(keys[1:], e.indentOf(in), e.step, false))
		return
	}
	e.change(e.box(in), []func(indent, unit string, inline bool) string{
		func(indent, unit string, inline bool) string {
			return encodeJSON(keys[0]) + ": " + e.rootObject(keys[1:], indent, unit, inline)
		},
	})
}

func (e *editor) indentOf(n *node) string {
	if len(n.members) > 0 {
		if indent, own := indentAt(e.data, n.members[0].at); own {
			return indent
		}
	}
	outer, _ := leading(e.data, n.start)
	return outer + e.step
}

// rootObject is the object under the client's root, inside of objects for the
// remaining keys of its pointer.
func (e *editor) rootObject(keys []string, indent, unit string, inline bool) string {
	if len(keys) > 0 {
		return renderObject([]string{encodeJSON(keys[0]) + ": " + e.rootObject(keys[1:], indent+unit, unit, inline)}, indent, unit, e.eol, inline)
	}
	var parts []string
	for _, name := range e.names {
		parts = append(parts, encodeJSON(name)+": "+renderJSON(e.fields(e.named(name)), indent+unit, unit, e.eol, inline))
	}
	return renderObject(parts, indent, unit, e.eol, inline)
}

func (e *editor) newJSON() {
	if len(e.names) == 0 {
		return
	}
	unit := "  "
	keys := strings.Split(e.loc.Pointer, ".")
	if e.client.Slug == "amp" {
		keys = []string{e.loc.Pointer}
	}
	start := 0
	if bytes.HasPrefix(e.data, bom) {
		start = len(bom)
	}
	text := renderObject([]string{encodeJSON(keys[0]) + ": " + e.rootObject(keys[1:], unit, unit, false)}, "", unit, e.eol, false)
	e.replace(start, len(e.data), text+e.eol)
}

// allowed keeps Gemini's list of allowed servers in step: a new server must be in
// it, and the shim leaves it with its entry.
func (e *editor) allowed(file *node, before Content) {
	if e.client.Slug != "gemini" && e.client.Slug != "qwen" {
		return
	}
	list := firstOf(file.lookup("mcp.allowed"), file.get("allowMCPServers"))
	if list == nil || list.kind != kList || len(list.items) == 0 {
		return
	}
	b := e.box(list)
	have := map[string]bool{}
	for i, item := range list.items {
		have[item.text] = true
		self := slices.ContainsFunc(before.Servers, func(s Server) bool { return s.Name == item.text && IsSelf(s) })
		b.elems[i].gone = self && e.gone[item.text] && !slices.Contains(e.names, item.text)
	}
	var texts []func(string, string, bool) string
	for _, name := range e.names {
		if !have[name] {
			texts = append(texts, func(string, string, bool) string { return encodeJSON(name) })
		}
	}
	e.change(b, texts)
}

// leading is the white space at the start of the line that holds off.
func leading(data []byte, off int) (string, int) {
	start := lineStart(data, off)
	end := start
	for end < off && (data[end] == ' ' || data[end] == '\t') {
		end++
	}
	return string(data[start:end]), start
}

func renderObject(parts []string, indent, unit, eol string, inline bool) string {
	switch {
	case len(parts) == 0:
		return "{}"
	case inline:
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return "{" + eol + indent + unit + strings.Join(parts, ","+eol+indent+unit) + eol + indent + "}"
}

func renderJSON(fields []field, indent, unit, eol string, inline bool) string {
	var parts []string
	for _, f := range fields {
		parts = append(parts, encodeJSON(f.key)+": "+jsonValue(f.value, indent+unit, unit, eol, inline))
	}
	return renderObject(parts, indent, unit, eol, inline)
}

func jsonValue(v any, indent, unit, eol string, inline bool) string {
	switch v := v.(type) {
	case []string:
		var words []string
		for _, w := range v {
			words = append(words, encodeJSON(w))
		}
		return "[" + strings.Join(words, ", ") + "]"
	case map[string]string:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, encodeJSON(k)+": "+encodeJSON(v[k]))
		}
		return renderObject(parts, indent, unit, eol, inline)
	case []field:
		return renderJSON(v, indent, unit, eol, inline)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return encodeJSON(v)
	}
	panic("clientconfig: a field of a kind that no entry has")
}

// encodeJSON writes a string as JSON, with <, > and & as they are.
func encodeJSON(s string) string { return string(tool.Encode(s)) }
