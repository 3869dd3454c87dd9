package clientconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads TOML. The parser below tells the places of everything but gives
// single expressions only; a key or table that is defined twice stays in the tree
// twice, so that it can be reported like in any other file.
func parseTOML(data []byte) (root *node, err error) {
	// The text may be a stranger's; a panic of the parser must cost one file only.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &syntaxAt{message: "the file cannot be read as TOML"}
		}
	}()
	text := data
	base := 0
	if strings.HasPrefix(string(data[:min(len(data), len(bom))]), string(bom)) {
		base = len(bom)
		text = data[base:]
	}
	text = text[:len(text):len(text)] // faults are placed by the capacity of their slice
	t := &tomlTree{data: text, base: base, explicit: map[*node]bool{}}
	t.root = &node{kind: kMap, start: base, end: len(data)}
	table := t.root
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, err = t.header(e)
		case unstable.KeyValue:
			err = t.keyValue(table, e, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.Error(); err != nil {
		return nil, t.fault(err)
	}
	return t.root, nil
}

type tomlTree struct {
	data []byte
	base int // bytes before data in the file
	root *node
	// explicit are the tables that have a header of their own; the others exist
	// because a longer key went through them.
	explicit map[*node]bool
}

func (t *tomlTree) fault(err error) error {
	var pe *unstable.ParserError
	if !errors.As(err, &pe) {
		return &syntaxAt{message: "the file cannot be read as TOML"}
	}
	off := len(t.data)
	if pe.Highlight != nil {
		if o := cap(t.data) - cap(pe.Highlight); o >= 0 && o <= len(t.data) {
			off = o
		}
	}
	hint := ""
	if off >= len(t.data) {
		hint = "it may be cut off or still being written"
	}
	return &syntaxAt{off: t.base + off, message: "not valid TOML: " + pe.Message, hint: hint}
}

type tomlKey struct {
	name string
	at   int
	end  int
}

func (t *tomlTree) keys(e *unstable.Node) []tomlKey {
	var keys []tomlKey
	for it := e.Key(); it.Next(); {
		k := it.Node()
		at := t.base + int(k.Raw.Offset)
		keys = append(keys, tomlKey{validText(k.Data), at, at + int(k.Raw.Length)})
	}
	return keys
}

func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// descend follows keys through maps, making those that are missing. Through a
// list of tables it takes the last one.
func (t *tomlTree) descend(n *node, keys []tomlKey) *node {
	for _, k := range keys {
		next := n.get(k.name)
		if next != nil && next.kind == kList && len(next.items) > 0 {
			next = next.items[len(next.items)-1]
		}
		if next == nil || next.kind != kMap {
			next = &node{kind: kMap, start: k.at}
			n.members = append(n.members, member{k.name, k.at, next})
		}
		n = next
	}
	return n
}

// header opens [a.b] or [[a.b]].
func (t *tomlTree) header(e *unstable.Node) (*node, error) {
	keys := t.keys(e)
	if len(keys) > maxDepth {
		return nil, tooDeep(keys[0].at)
	}
	parent, last := t.descend(t.root, keys[:len(keys)-1]), keys[len(keys)-1]
	at := parent.find(last.name)
	var old *node
	if at >= 0 {
		old = parent.members[at].val
	}
	table := &node{kind: kMap, start: last.at}
	t.explicit[table] = true
	switch {
	case e.Kind == unstable.ArrayTable:
		if old == nil || old.kind != kList {
			old = &node{kind: kList, start: last.at}
			parent.members = append(parent.members, member{last.name, last.at, old})
		}
		old.items = append(old.items, table)
	case old != nil && old.kind == kMap && !t.explicit[old]:
		t.explicit[old] = true
		parent.members[at].at = last.at // where people look for it
		return old, nil
	default:
		parent.members = append(parent.members, member{last.name, last.at, table})
	}
	return table, nil
}

func (t *tomlTree) keyValue(n *node, e *unstable.Node, depth int) error {
	keys := t.keys(e)
	if len(keys)+depth > maxDepth {
		return tooDeep(keys[0].at)
	}
	last := keys[len(keys)-1]
	// Lists and tables do not know their place; theirs is behind the equals sign.
	start := last.end - t.base
	for start < len(t.data) && strings.IndexByte(" \t=", t.data[start]) >= 0 {
		start++
	}
	v, err := t.value(e.Value(), t.base+start, depth+len(keys))
	if err != nil {
		return err
	}
	n = t.descend(n, keys[:len(keys)-1])
	n.members = append(n.members, member{last.name, last.at, v})
	return nil
}

func (t *tomlTree) value(v *unstable.Node, start, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, tooDeep(start)
	}
	n := &node{start: start}
	if v.Raw.Length > 0 {
		n.start = t.base + int(v.Raw.Offset)
		n.end = n.start + int(v.Raw.Length)
	}
	switch v.Kind {
	case unstable.String:
		n.kind, n.text = kString, validText(v.Data)
	case unstable.Bool:
		n.kind, n.text = kBool, validText(v.Data)
	case unstable.Integer, unstable.Float:
		n.kind, n.text = kNumber, strings.ReplaceAll(validText(v.Data), "_", "")
	case unstable.Array:
		n.kind = kList
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			item, err := t.value(it.Node(), n.start, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case unstable.InlineTable:
		n.kind, n.end = kMap, 0
		for it := v.Children(); it.Next(); {
			if it.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := t.keyValue(n, it.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	default:
		n.kind, n.text = kDate, validText(v.Data)
	}
	return n, nil
}

func tooDeep(off int) error {
	return &syntaxAt{off: off, message: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
}
