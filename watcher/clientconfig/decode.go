package clientconfig

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/toolsd/toolsd/index/tool"
)

// ErrEmpty is returned for a file without any text: an editor that saves in place
// leaves one for a moment, so the watcher keeps the last good servers. A file
// that says {} is not empty.
var ErrEmpty = errors.New("the file is empty")

// maxProblems is how many problems one file may have; a person reads no more.
const maxProblems = 100

// maxServers is how many servers one file may have, and maxUserServers how many one
// of the user's, where Claude Code keeps those of all projects. People have a few
// dozen; a file that came with a project must not have more compared than that
// takes a moment.
const maxServers, maxUserServers = 500, 5000

// Content is all that a file says.
type Content struct {
	Servers  []Server // in the order of the file
	Problems []Problem
	Rejected []Rejection
}

// Rejection is a recorded no of the user to a server of another file. Recorded
// approvals are not returned: a yes to one program is none to toolsd.
type Rejection struct {
	Root string // the project in which it holds
	Name string
	// Of is the scope of the refused server: Project for one of the project's
	// .mcp.json, User for one of the user's own that is off in this project.
	Of Scope
}

// Decode reads the bytes of the file at loc. err is ErrEmpty for a file without
// text, and a *SyntaxError when the file as a whole cannot be used; then the
// caller keeps what it knew, and problems hold the fault. A bad entry is a
// problem and no server. A server with a Problem of its own is not in problems.
// Disabled servers and entries that are toolsd itself are returned.
func Decode(loc Location, data []byte) (servers []Server, problems []Problem, err error) {
	c, err := Read(loc, data)
	return c.Servers, c.Problems, err
}

// Read is Decode with everything that the file says.
func Read(loc Location, data []byte) (Content, error) {
	data, utf16 := toUTF8(data)
	if len(bytes.TrimSpace(bytes.TrimPrefix(data, bom))) == 0 {
		return Content{}, ErrEmpty
	}
	client, ok := ClientOf(loc.Client)
	if !ok {
		client, _ = ClientOf("toolsd") // an unknown slug is read as Claude Code's shape
	}
	if loc.Pointer == "" {
		loc.Pointer = client.Pointer
	}
	if loc.Format == "" {
		loc.Format = formatOf(loc.Path)
	}
	if loc.Scope == "" {
		loc.Scope = Project // the scope that trusts less
	}
	d := &decoder{loc: loc, client: client, data: data, places: newPlaces(data)}
	if utf16 {
		d.problem(0, "", "the file is UTF-16", "save it as UTF-8: other programs cannot read it")
	} else if !utf8.Valid(data) {
		d.problem(invalidAt(data), "", "the file is not valid UTF-8; the bad bytes are read as \uFFFD", "save it as UTF-8")
	}
	root, err := d.parse()
	if err == nil && root.kind == kNull && loc.Format == YAML {
		return d.out, nil // only comments
	}
	if err == nil && root.kind != kMap {
		err = &syntaxAt{off: root.start, message: fmt.Sprintf("the file is %s, not an object with servers in it", root.kind)}
	}
	if err == nil {
		err = d.roots(root)
	}
	if err != nil {
		var at *syntaxAt
		if !errors.As(err, &at) {
			at = &syntaxAt{message: err.Error()}
		}
		line, col := d.places.at(at.off)
		p := Problem{File: loc.Path, Line: line, Col: col, Message: at.message, Hint: at.hint}
		return Content{Problems: append(d.out.Problems, p)}, &SyntaxError{Line: line, Col: col, Message: at.message, Hint: at.hint}
	}
	return d.out, nil
}

// decoder reads one file.
type decoder struct {
	loc    Location
	client Client
	data   []byte
	places *places
	out    Content
	// root is where the servers of the root at hand begin in out.Servers: of two
	// under one root the last counts, of two roots the first.
	root int
	many bool // there are more servers than are read
}

func (d *decoder) parse() (*node, error) {
	switch d.loc.Format {
	case TOML:
		return parseTOML(d.data)
	case YAML:
		return parseYAML(d.data)
	}
	want := everything
	if d.loc.Settings {
		want = d.wanted()
	}
	return parseJSON(d.data, want)
}

// wanted are the subtrees of a settings file that this package looks at.
func (d *decoder) wanted() *wanted {
	w := &wanted{keys: map[string]*wanted{}}
	for _, r := range roots {
		first, _, _ := strings.Cut(r.pointer, ".")
		w.keys[r.pointer], w.keys[first] = everything, everything
	}
	for _, key := range []string{"mcp", "tools", "disabledMcpServers", "allowMCPServers", "excludeMCPServers"} {
		w.keys[key] = everything
	}
	w.keys["projects"] = &wanted{any: &wanted{keys: map[string]*wanted{
		"mcpServers": everything, "disabledMcpServers": everything, "disabledMcpjsonServers": everything,
	}}}
	return w
}

func (d *decoder) problem(off int, server, message, hint string) {
	switch n := len(d.out.Problems); {
	case n == maxProblems:
		d.out.Problems = append(d.out.Problems, Problem{File: d.loc.Path, Message: "there are more problems in this file"})
		return
	case n > maxProblems:
		return
	}
	line, col := d.places.at(off)
	d.out.Problems = append(d.out.Problems, Problem{
		File: d.loc.Path, Line: line, Col: col, Server: server, Message: message, Hint: hint,
	})
}

// duplicates reports the keys of n that are there twice.
func (d *decoder) duplicates(n *node, server string) {
	if n == nil || n.kind != kMap || len(n.members) < 2 {
		return
	}
	first := make(map[string]int, len(n.members))
	for _, m := range n.members {
		if at, twice := first[m.key]; twice {
			d.twice(quoted(m.key), at, m.at, server)
		} else {
			first[m.key] = m.at
		}
	}
}

// twice reports something that is in the file twice. The problem's place is the
// second one, which counts.
func (d *decoder) twice(what string, first, second int, server string) {
	if len(d.out.Problems) > maxProblems {
		return // finding the two places takes longer than the rest
	}
	line, col := d.places.at(first)
	line2, col2 := d.places.at(second)
	d.problem(second, server,
		fmt.Sprintf("%s is there twice, at line %d, column %d and at line %d, column %d; the last one counts", what, line, col, line2, col2),
		"remove or rename one of them")
}

// servers reads the entries of a map or a list of servers. project is the root
// for which they hold.
func (d *decoder) servers(n *node, project string) {
	d.root = len(d.out.Servers)
	switch n.kind {
	case kMap:
		for _, m := range n.members {
			d.server(m.key, m.at, m.val, project)
		}
	case kList:
		for i, item := range n.items {
			name := item.get("name")
			if item.kind != kMap {
				d.problem(item.start, "", fmt.Sprintf("server %d of the list is %s, not an object", i+1, item.kind), "")
				continue
			}
			if name == nil && item.get("uses") != nil {
				d.problem(item.start, "", fmt.Sprintf("server %d of the list comes from the hub of %s", i+1, d.client.Name),
					"toolsd cannot read it there; write its command or url into this file")
				continue
			}
			text, ok := "", false
			if name != nil {
				text, ok = name.scalar()
			}
			if !ok {
				d.problem(item.start, "", fmt.Sprintf("server %d of the list has no name", i+1), `give it a "name"`)
				continue
			}
			d.server(text, item.start, item, project)
		}
	}
}

// server reads one entry and appends what it makes of it.
func (d *decoder) server(name string, at int, n *node, project string) {
	if n.kind == kMap && d.client.Slug == "goose" && gooseBuiltin(n) {
		return
	}
	cleaned := strings.TrimSpace(tool.CleanLine(name))
	switch {
	case cleaned == "":
		d.problem(at, "", "a server has an empty name", "give it a name")
		return
	case strings.Contains(cleaned, "::"):
		d.problem(at, cleaned, `the name of a server holds "::", which parts a server from its tools`, "rename the server")
		return
	case cleaned != strings.TrimSpace(name):
		d.problem(at, cleaned, "the name of a server holds hidden characters; they were taken out", "rename the server")
	}
	most := maxServers
	if d.loc.Scope == User {
		most = maxUserServers
	}
	if len(d.out.Servers) >= most {
		if !d.many {
			d.many = true
			d.problem(at, "", fmt.Sprintf("the file has more than %d servers; this one and those after it are not read", most), "")
		}
		return
	}
	line, col := d.places.at(at)
	s := Server{Name: cleaned, Source: Source{
		Client: d.loc.Client, Scope: d.loc.Scope, File: d.loc.Path, Root: project, Line: line, Col: col,
	}}
	e := entryReader{decoder: d, s: &s}
	f := e.read(n)
	// The last of two entries counts, also when it is a bad one: the client
	// itself sees only that one.
	if i := slices.IndexFunc(d.out.Servers, func(o Server) bool { return o.Name == cleaned && o.Source.Root == project }); i >= 0 {
		old := d.out.Servers[i].Source
		which := "last"
		if i < d.root {
			which = "first"
		}
		d.problem(at, cleaned, fmt.Sprintf("a server of this name is there twice, at line %d, column %d and at line %d, column %d; the %s one counts",
			old.Line, old.Col, line, col, which), "remove or rename one of them")
		if i < d.root {
			return
		}
		d.out.Servers = slices.Delete(d.out.Servers, i, i+1)
	}
	if f != nil {
		d.problem(f.off, cleaned, f.message, f.hint)
		return
	}
	d.out.Servers = append(d.out.Servers, s)
}

// gooseBuiltin reports whether an extension is a part of Goose itself.
func gooseBuiltin(n *node) bool {
	t := n.get("type")
	return t != nil && slices.Contains([]string{"builtin", "platform", "frontend", "inline_python"}, t.text)
}

// toUTF8 converts a file that PowerShell or Notepad wrote as UTF-16.
func toUTF8(data []byte) (_ []byte, converted bool) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return data, false
	}
	units := make([]uint16, 0, len(data)/2)
	for i := 2; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return []byte(string(utf16.Decode(units))), true
}

func invalidAt(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}
