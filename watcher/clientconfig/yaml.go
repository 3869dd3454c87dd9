package clientconfig

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads the first document of a YAML file. Aliases are resolved, merge
// keys too; a file of comments is null.
func parseYAML(data []byte) (root *node, err error) {
	// The text may be a stranger's; a panic of the parser must cost one file only.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &syntaxAt{message: "the file cannot be read as YAML"}
		}
	}()
	t := &yamlTree{data: data, starts: startsOf(data), done: map[*yaml.Node]*anchor{}}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, t.fault(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return &node{kind: kNull}, nil
	}
	return t.convert(doc.Content[0], 0)
}

type yamlTree struct {
	data   []byte
	starts *lineStarts
	// done keeps a converted anchor, which its aliases share: a file of aliases
	// to aliases stays as small as it looks. nil is one that is being converted.
	done map[*yaml.Node]*anchor
	// size counts values, those behind an alias too; repeated are the latter.
	size, repeated int
}

// anchor is a value that aliases may stand for.
type anchor struct {
	*node
	size int
}

// maxRepeated is how many values aliases may stand for in all. Who reads the tree
// meets them each time: a server of a thousand variables under a thousand names
// would be a million.
const maxRepeated = 100_000

var (
	yamlLine   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:yaml: )?line (\d+): `) })
	yamlAnchor = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`unknown anchor '(.*)' referenced`) })
)

// fault places an error of the parser, which tells lines only, at the first
// character of its line.
func (t *yamlTree) fault(err error) error {
	message, off := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := yamlLine().FindStringSubmatch(err.Error()); m != nil {
		message = strings.TrimPrefix(message, m[0][strings.Index(m[0], "line"):])
		line, _ := strconv.Atoi(m[1])
		if strings.HasPrefix(message, "did not find expected") {
			line++ // the parser counts from 0 here, the scanner from 1
		}
		off = t.starts.offset(line, 1)
		off += len(t.data[off:]) - len(bytes.TrimLeft(t.data[off:], " \t"))
	}
	if m := yamlAnchor().FindStringSubmatch(message); m != nil {
		off = max(0, bytes.Index(t.data, []byte("*"+m[1])))
	}
	// An anchor's name is the only part of the file that these texts may hold.
	return &syntaxAt{off: off, message: "not valid YAML: " + strings.Trim(quoted(message), `"`)}
}

func (t *yamlTree) convert(y *yaml.Node, depth int) (*node, error) {
	start := t.starts.offset(y.Line, y.Column)
	if depth > maxDepth {
		return nil, tooDeep(start)
	}
	if y.Kind == yaml.AliasNode {
		a, ok := t.done[y.Alias]
		switch {
		case !ok:
			return t.convert(y.Alias, depth+1)
		case a == nil:
			return nil, &syntaxAt{off: start, message: "an alias stands inside of its own anchor"}
		}
		t.size += a.size
		if t.repeated += a.size; t.repeated > maxRepeated {
			return nil, &syntaxAt{off: start, message: fmt.Sprintf("its aliases stand for more than %d values", maxRepeated)}
		}
		return a.node, nil
	}
	if a := t.done[y]; a != nil {
		return a.node, nil
	}
	if y.Anchor != "" {
		t.done[y] = nil
	}
	before := t.size
	t.size++
	n := &node{start: start}
	var err error
	switch y.Kind {
	case yaml.ScalarNode:
		n.text = strings.ToValidUTF8(y.Value, "\uFFFD")
		switch y.ShortTag() {
		case "!!null":
			n.kind = kNull
		case "!!bool":
			n.kind = kBool
		case "!!int", "!!float":
			n.kind = kNumber
		case "!!timestamp":
			n.kind = kDate
		default:
			n.kind = kString
		}
	case yaml.SequenceNode:
		n.kind = kList
		for _, c := range y.Content {
			var item *node
			if item, err = t.convert(c, depth+1); err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case yaml.MappingNode:
		n.kind = kMap
		err = t.mapping(n, y, depth)
	}
	if err != nil {
		return nil, err
	}
	if y.Anchor != "" {
		t.done[y] = &anchor{n, t.size - before}
	}
	return n, nil
}

func (t *yamlTree) mapping(n *node, y *yaml.Node, depth int) error {
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		at := t.starts.offset(k.Line, k.Column)
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		v, err := t.convert(y.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		if k.ShortTag() == "!!merge" {
			if v.kind == kList {
				merged = append(merged, v.items...)
			} else {
				merged = append(merged, v)
			}
			continue
		}
		n.members = append(n.members, member{strings.ToValidUTF8(k.Value, "\uFFFD"), at, v})
	}
	if merged == nil {
		return nil
	}
	// What the map says itself wins, then the first of the merged ones.
	have := map[string]bool{}
	for _, m := range n.members {
		have[m.key] = true
	}
	for _, from := range merged {
		for _, m := range from.members {
			if !have[m.key] {
				have[m.key] = true
				n.members = append(n.members, m)
			}
		}
	}
	return nil
}
