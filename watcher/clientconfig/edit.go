package clientconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Entry is a server that ReplaceServers writes. What a client's format has no key
// for (timeouts, tool filters, the toolsd block) is written for toolsd only, whose
// own file keeps all of a Server.
type Entry = Server

// ReplaceServers returns data without the servers named in remove and with those
// of add, written as the client of loc writes them, where the first removed one
// stood or behind the last. An entry of add takes the place of one of its name.
// Every other byte stays: comments, order, indentation, BOM, line ends. Empty data
// becomes a file that holds the new entries only.
//
// It touches the servers that hold for everybody who reads the file, not those
// of single projects in Claude Code's user file. A name that is not there is no
// error. The result was read back: it defines what it should and nothing else
// changed; otherwise there is an error and no result.
func ReplaceServers(loc Location, data []byte, remove []string, add map[string]Entry) ([]byte, error) {
	out, err := replaceServers(loc, data, remove, add)
	if err != nil {
		return nil, fmt.Errorf("changing the servers of %s: %w", loc.Path, err)
	}
	return out, nil
}

func replaceServers(loc Location, data []byte, remove []string, add map[string]Entry) ([]byte, error) {
	if _, utf16 := toUTF8(data); utf16 {
		return nil, errors.New("the file is UTF-16; save it as UTF-8 first")
	}
	before, err := Read(loc, data)
	if err != nil && !errors.Is(err, ErrEmpty) {
		return nil, err
	}
	client, ok := ClientOf(loc.Client)
	if !ok {
		client, _ = ClientOf("toolsd")
	}
	if loc.Pointer == "" {
		loc.Pointer = client.Pointer
	}
	if loc.Format == "" {
		loc.Format = formatOf(loc.Path)
	}
	gone := map[string]bool{}
	for _, name := range remove {
		gone[name] = true
	}
	for name := range add {
		gone[name] = true
	}
	e := &editor{
		loc: loc, client: client, data: data, gone: gone, names: slices.Sorted(maps.Keys(add)), add: add,
		eol: "\n", step: "  ", home: loc.Pointer,
	}
	if bytes.Contains(data, []byte("\r\n")) {
		e.eol = "\r\n"
	}
	switch loc.Format {
	case TOML:
		err = e.toml()
	case YAML:
		err = e.yaml()
	default:
		err = e.json(before)
	}
	if err != nil {
		return nil, err
	}
	out, err := e.apply()
	if err != nil {
		return nil, err
	}
	return out, e.verify(before, out)
}

// editor collects the changes to one file.
type editor struct {
	loc    Location
	client Client
	data   []byte
	gone   map[string]bool // names whose entries leave, those of add among them
	names  []string        // of add, sorted
	add    map[string]Entry
	eol    string
	step   string // one level of indentation
	home   string // the pointer under which the new entries go
	edits  []edit
}

// edit replaces data[start:end].
type edit struct {
	start, end int
	text       string
}

func (e *editor) replace(start, end int, text string) {
	e.edits = append(e.edits, edit{start, end, text})
}

func (e *editor) apply() ([]byte, error) {
	// What is put in at a place goes before what is taken out there.
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Or(a.start-b.start, a.end-b.end) })
	var out bytes.Buffer
	last := 0
	for _, c := range e.edits {
		if c.text == "" { // two that take the same white space out
			c.start, c.end = max(c.start, last), max(c.end, last)
		}
		if c.start < last {
			return nil, errors.New("its layout is one that cannot be edited here; change the file by hand")
		}
		out.Write(e.data[last:c.start])
		out.WriteString(c.text)
		last = c.end
	}
	out.Write(e.data[last:])
	return out.Bytes(), nil
}

// verify reads the result back. It is what makes editing other people's files
// safe, whatever layout the editors above did not foresee.
func (e *editor) verify(before Content, out []byte) error {
	after, err := Read(e.loc, out)
	if errors.Is(err, ErrEmpty) && len(e.names) == 0 {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("its layout is one that cannot be edited here; change the file by hand (%w)", err)
	}
	type key struct{ root, name string }
	have := map[key]Server{}
	for _, s := range after.Servers {
		have[key{s.Source.Root, s.Name}] = s
	}
	wrong := func(name string) error {
		return fmt.Errorf("its layout is one that cannot be edited here (%s would not come out right); change the file by hand", quoted(name))
	}
	expected := len(e.names)
	for _, s := range before.Servers {
		if s.Source.Root == e.loc.Root && e.gone[s.Name] {
			continue
		}
		expected++
		now := have[key{s.Source.Root, s.Name}]
		now.Source = s.Source
		// Gemini's allow list, which the editor extends, may switch no other on.
		if !reflect.DeepEqual(now, s) {
			return wrong(s.Name)
		}
	}
	if len(after.Servers) != expected {
		return errors.New("its layout is one that cannot be edited here; change the file by hand")
	}
	for _, name := range e.names {
		now, ok := have[key{e.loc.Root, name}]
		want := e.add[name]
		if !ok || !sameCommand(now, want) || e.client.Slug == "toolsd" && !sameEntry(now, want) {
			return wrong(name)
		}
	}
	return nil
}

// sameCommand compares what every client's format has keys for.
func sameCommand(a, b Server) bool {
	if b.URL != "" {
		return a.URL == b.URL && maps.Equal(canonical(a.Headers), canonical(b.Headers))
	}
	return a.Command == b.Command && slices.Equal(a.Args, b.Args) && maps.Equal(a.Env, b.Env)
}

// sameEntry compares everything that toolsd's own file keeps of an entry.
func sameEntry(a, b Server) bool {
	bare := func(s Server) Server {
		s.Name, s.Source, s.Problem, s.Hint, s.Unsupported, s.Secrets = "", Source{}, "", "", false, nil
		s.CallTimeout, s.StartTimeout = s.CallTimeout.Truncate(time.Millisecond), s.StartTimeout.Truncate(time.Millisecond)
		s.Transport = ""
		for _, list := range []*[]string{&s.Args, &s.Forward, &s.Include, &s.Exclude} {
			if len(*list) == 0 {
				*list = nil
			}
		}
		for _, m := range []*map[string]string{&s.Env, &s.Headers, &s.HeaderVars} {
			if len(*m) == 0 {
				*m = nil
			}
		}
		return s
	}
	return a.Transport == b.Transport && reflect.DeepEqual(bare(a), bare(b))
}

// lineStart is the start of the line that holds off, and lineEnd what follows its
// line break.
func lineStart(data []byte, off int) int {
	start := bytes.LastIndexByte(data[:off], '\n') + 1
	if start == 0 && bytes.HasPrefix(data, bom) {
		return min(len(bom), off)
	}
	return start
}

func lineEnd(data []byte, off int) int {
	if i := bytes.IndexByte(data[off:], '\n'); i >= 0 {
		return off + i + 1
	}
	return len(data)
}

func blank(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }

// indentAt is the white space before off when nothing else is on its line.
func indentAt(data []byte, off int) (string, bool) {
	before := data[lineStart(data, off):off]
	return string(before), strings.Trim(string(before), " \t") == ""
}
