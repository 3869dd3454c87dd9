package settings

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// KeyError says that there is no setting of that name.
type KeyError struct {
	Key  string
	Near string // the name that was probably meant, or empty
	Hint string
}

func (e *KeyError) Error() string {
	if e.Near != "" {
		return fmt.Sprintf("unknown setting %q (did you mean %s?)", e.Key, e.Near)
	}
	return fmt.Sprintf("unknown setting %q", e.Key)
}

// ValueError says that a setting cannot have that value.
type ValueError struct {
	Key     string
	Message string
}

func (e *ValueError) Error() string { return fmt.Sprintf("setting %s: %s", e.Key, e.Message) }

// LockedError says that the managed file alone decides about a setting.
type LockedError struct{ Key string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("setting %s: the managed file locks it", e.Key)
}

// checkKey returns a *KeyError unless name is a setting, a group of settings or
// an entry of a map.
func checkKey(name string) error {
	if groupMembers(name) != nil {
		return nil
	}
	for _, k := range keys {
		entry, isEntry := strings.CutPrefix(name, k.name+".")
		switch {
		case k.name == name:
			return nil
		case k.isMap() && isEntry && entry != "":
			if k.name == "clients" && !slices.Contains(slugs(), entry) {
				near := nearest(entry, slugs())
				if near != "" {
					near = "clients." + near
				}
				return &KeyError{Key: name, Near: near, Hint: "the clients are " + strings.Join(slugs(), ", ")}
			}
			return nil
		}
	}
	err := &KeyError{Key: name, Near: nearest(name, suggestions()), Hint: "`toolsd settings` lists all settings"}
	if name == "mcpServers" || strings.HasPrefix(name, "mcpServers.") {
		err.Near, err.Hint = "", "servers are no settings: edit mcpServers in config.json itself"
	}
	return err
}

// Set changes one setting in the text of the user's config.json and leaves every
// other byte of it as it is: comments, order, indentation, line ends. value is
// JSON; words and comma-separated lists need no quotes. Objects that are missing
// on the way to the key are made, and an empty text becomes a file.
//
// It returns a *KeyError, a *ValueError or, for a key that locked
// (Settings.Locked) covers, a *LockedError; and a *SyntaxError for a text that is
// no JSONC, which it never changes.
func Set(userData []byte, name, value string, locked ...string) ([]byte, error) {
	if err := checkKey(name); err != nil {
		return nil, err
	}
	if isLocked(locked, name) {
		return nil, &LockedError{name}
	}
	if groupMembers(name) != nil {
		return nil, &KeyError{Key: name, Hint: "it is a group: set one of " + name + "." + strings.Join(groupMembers(name), ", "+name+".")}
	}
	literal, err := checkValue(name, value)
	if err != nil {
		return nil, err
	}
	return put(userData, segments(name), literal)
}

// checkValue returns the JSON of what a person typed for a setting, when the
// setting can have that value.
func checkValue(name, typed string) (string, error) {
	k, entry := lookUp(name)
	if k.parse != nil && entry == "" {
		typed = k.parse(strings.TrimSpace(typed))
	}
	typed = strings.TrimSpace(typed)
	var problems []string
	refuse := func(message string) error { return &ValueError{name, message} }
	want := k.want
	if entry != "" {
		want = entryWant[k.name]
	}
	n, err := parse([]byte(typed))
	switch {
	case err != nil && typed != "" && strings.ContainsRune(`{["`, rune(typed[0])): // JSON was meant
		return "", refuse(fmt.Sprintf("the value is not valid JSON: %s", err))
	case err != nil, n.kind == 0:
		return "", refuse(fmt.Sprintf("the value must be %s, not %q", want, cut(typed)))
	}
	literal := typed[n.start:n.end] // without comments around it
	if entry != "" {
		whole := node{kind: '{', members: []member{{name: entry, value: n}}}
		n = whole
	}
	var s Settings
	k.read(&s, &n, func(_ int, message string) { problems = append(problems, message) })
	if len(problems) > 0 {
		return "", refuse(strings.TrimPrefix(problems[0], name+" "))
	}
	return literal, nil
}

// put sets the value at path in a JSONC text.
func put(text []byte, path []string, literal string) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	style := styleOf(text)
	if root.kind == 0 {
		// Comments of a file that holds nothing else stay above the new object.
		out := slices.Clone(text)
		if body := bytes.TrimPrefix(text, bom); len(bytes.TrimSpace(body)) > 0 && !bytes.HasSuffix(body, []byte("\n")) {
			out = append(out, style.newline...)
		}
		return append(out, style.nest(nil, path, literal, 0)+style.newline...), nil
	}
	at := &root
	for i, name := range path {
		if at.kind != '{' {
			line, _ := position(text, at.start)
			where := "the file"
			if i > 0 {
				where = strings.Join(path[:i], ".")
			}
			return nil, &ValueError{strings.Join(path, "."), fmt.Sprintf("%s must be an object, but line %d has %s", where, line, at.describe())}
		}
		m := at.member(name)
		if m == nil {
			return style.insert(text, at, path[i:], literal), nil
		}
		at = &m.value
	}
	return slices.Concat(text[:at.start], []byte(literal), text[at.end:]), nil
}

// style is how a text is laid out.
type style struct{ newline, indent string }

func styleOf(text []byte) style {
	s := style{"\n", "  "}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	for line := range bytes.Lines(text) { // the first indented key tells
		trimmed := bytes.TrimLeft(line, " \t")
		if depth := len(line) - len(trimmed); depth > 0 && bytes.HasPrefix(trimmed, []byte(`"`)) {
			s.indent = string(line[:depth])
			break
		}
	}
	return s
}

// nest writes {"path[0]": {"path[1]": literal}} over several lines. base is the
// indentation of the line on which it begins.
func (s style) nest(base []byte, path []string, literal string, depth int) string {
	if len(path) == 0 {
		return literal
	}
	outer := string(base) + strings.Repeat(s.indent, depth)
	return "{" + s.newline + outer + s.indent + quote(path[0]) + ": " +
		s.nest(base, path[1:], literal, depth+1) + s.newline + outer + "}"
}

// insert adds a member behind the last one of an object.
func (s style) insert(text []byte, object *node, path []string, literal string) []byte {
	if len(object.members) == 0 {
		return s.insertFirst(text, object, path, literal)
	}
	last := object.members[len(object.members)-1]
	entry := func(base []byte) string { return quote(path[0]) + ": " + s.nest(base, path[1:], literal, 0) }
	after := last.value.end
	comma := after + skipToComma(text[after:object.end-1])
	hasComma := text[comma] == ','
	if !bytes.ContainsAny(text[object.start:last.start], "\n") {
		// All on one line, and so is the new one, unless a comment would swallow it.
		if bytes.Contains(text[after:object.end], []byte("//")) {
			return splice(text, after, ","+s.newline+entry(nil), hasComma, comma)
		}
		return splice(text, after, ", "+s.flat(path, literal), hasComma, comma)
	}
	indent := indentOf(text, last.start)
	if hasComma {
		// The new member goes behind the comma and what is written after it on its
		// line, and has a comma too, as the file's writer does it.
		end := lineRest(text, comma+1, object.end-1)
		return slices.Concat(text[:end], []byte(s.newline), indent, []byte(entry(indent)+","), text[end:])
	}
	end := lineRest(text, after, object.end-1)
	return slices.Concat(text[:after], []byte(","), text[after:end], []byte(s.newline), indent, []byte(entry(indent)), text[end:])
}

// splice puts a new member, which begins with a comma, at after; a trailing comma
// of the object stays behind the new member.
func splice(text []byte, after int, entry string, hasComma bool, comma int) []byte {
	if hasComma {
		return slices.Concat(text[:comma], []byte(entry), text[comma:])
	}
	return slices.Concat(text[:after], []byte(entry), text[after:])
}

// flat writes a member on one line.
func (s style) flat(path []string, literal string) string {
	if len(path) == 1 {
		return quote(path[0]) + ": " + literal
	}
	return quote(path[0]) + ": { " + s.flat(path[1:], literal) + " }"
}

// insertFirst fills an object that has no member yet but may hold comments.
func (s style) insertFirst(text []byte, object *node, path []string, literal string) []byte {
	base := indentOf(text, object.start)
	inner := string(base) + s.indent
	entry := quote(path[0]) + ": " + s.nest([]byte(inner), path[1:], literal, 0)
	body := text[object.start+1 : object.end-1]
	if i := bytes.LastIndexByte(body, '\n'); i >= 0 && len(bytes.TrimSpace(body[i:])) == 0 {
		body = bytes.TrimSuffix(body[:i], []byte("\r")) // blanks before it may belong to a // comment
	} else {
		body = bytes.TrimRight(body, " \t")
	}
	return slices.Concat(text[:object.start+1], body, []byte(s.newline+inner+entry+s.newline), base, text[object.end-1:])
}

// skipToComma returns where the comma behind a value is, past comments, or where
// the search ended.
func skipToComma(text []byte) int {
	p := &parser{text: text}
	_ = p.space() // the whole text was parsed before
	return p.pos
}

// lineRest returns the end of white space and comments that follow on the same
// line, so that a remark stays with the member it is about.
func lineRest(text []byte, from, limit int) int {
	p := &parser{text: text[:limit], pos: from}
	end := from
	for p.pos < limit {
		switch c := text[p.pos]; {
		case c == ' ' || c == '\t':
			p.pos++
		case c == '/':
			next := p.pos
			if bytes.HasPrefix(text[p.pos:], []byte("//")) {
				for next < limit && text[next] != '\n' && text[next] != '\r' {
					next++
				}
			} else if close := bytes.Index(text[p.pos+2:limit], []byte("*/")); close >= 0 {
				next = p.pos + 2 + close + 2
			}
			if next == p.pos {
				return end
			}
			p.pos, end = next, next
		default:
			return end
		}
	}
	return end
}

// indentOf returns the white space at the beginning of the line of an offset.
func indentOf(text []byte, at int) []byte {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	line = bytes.TrimPrefix(line, bom)
	return line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
}
