package clientconfig

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"go.yaml.in/yaml/v3"
)

var errFlow = errors.New("its servers are written in braces on one line; change the file by hand")

// yaml edits files in block style by whole lines, which is how Goose and Continue
// write them.
func (e *editor) yaml() error {
	text := bytes.TrimPrefix(e.data, bom)
	var doc yaml.Node
	if err := yaml.Unmarshal(e.data, &doc); err != nil {
		return err
	}
	starts := startsOf(e.data)
	if len(doc.Content) == 0 {
		e.appendRoot(text)
		return nil
	}
	top := doc.Content[0]
	var key, value *yaml.Node
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == e.loc.Pointer {
			key, value = top.Content[i], top.Content[i+1]
		}
	}
	if key == nil {
		if top.Style&yaml.FlowStyle != 0 && len(e.names) > 0 {
			return errFlow
		}
		e.appendRoot(text)
		return nil
	}
	keyAt := starts.offset(key.Line, key.Column)
	list := value.Kind == yaml.SequenceNode || len(value.Content) == 0 && e.client.Slug == "continue"
	if len(value.Content) == 0 { // null, {} or []
		if len(e.names) > 0 {
			rest := lineEnd(e.data, keyAt)
			colon := keyAt + bytes.IndexByte(e.data[keyAt:rest], ':') + 1
			end := colon
			if value.Style&yaml.FlowStyle != 0 || value.Value != "" {
				end = starts.offset(value.Line, value.Column)
				switch {
				case value.Kind == yaml.ScalarNode:
					end += len(value.Value)
				default:
					end += bytes.IndexAny(e.data[end:], "}]") + 1
				}
			}
			indent, _ := leading(e.data, keyAt)
			e.replace(colon, end, "")
			next := lineEnd(e.data, end) // a comment on the line stays there
			head := ""
			if e.data[next-1] != '\n' {
				head = e.eol
			}
			e.replace(next, next, head+e.yamlEntries(indent+"  ", list))
		}
		return nil
	}
	if value.Style&yaml.FlowStyle != 0 {
		return errFlow
	}
	place, indent, end := -1, "", 0
	left := 0
	step := 2
	if list {
		step = 1
	}
	for i := 0; i < len(value.Content); i += step {
		first := value.Content[i]
		at := starts.offset(first.Line, first.Column)
		name := first.Value
		if list {
			name = ""
			for j := 0; j+1 < len(first.Content); j += 2 {
				if first.Content[j].Value == "name" {
					name = first.Content[j+1].Value
				}
			}
		}
		from := lineStart(e.data, at)
		indent, _ = leading(e.data, at)
		to := e.blockEnd(from, len(indent))
		end = to
		if !e.gone[strings.TrimSpace(tool.CleanLine(name))] {
			left++
			continue
		}
		if place < 0 {
			place = from
		}
		e.replace(from, to, "")
	}
	switch {
	case len(e.names) > 0 && place >= 0:
		e.replace(place, place, e.yamlEntries(indent, list))
	case len(e.names) > 0:
		head := ""
		if end > 0 && e.data[end-1] != '\n' {
			head = e.eol
		}
		e.replace(end, end, head+e.yamlEntries(indent, list))
	case left == 0 && place >= 0: // a key without a value would be null
		empty := " {}"
		if list {
			empty = " []"
		}
		colon := keyAt + bytes.IndexByte(e.data[keyAt:], ':') + 1
		e.replace(colon, colon, empty)
	}
	return nil
}

// blockEnd is where the lines end that belong to the key or list item on the line
// at from: before the next line that is not indented more, without the blank
// lines and outer comments that lie between.
func (e *editor) blockEnd(from, indent int) int {
	end := lineEnd(e.data, from)
	for i := end; i < len(e.data); {
		next := lineEnd(e.data, i)
		line := e.data[i:next]
		trimmed := bytes.TrimLeft(line, " ")
		deeper := len(line)-len(trimmed) > indent
		switch {
		case blank(line):
		case deeper:
			end = next
		case trimmed[0] != '#':
			return end
		}
		i = next
	}
	return end
}

func (e *editor) appendRoot(text []byte) {
	if len(e.names) == 0 {
		return
	}
	head := ""
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		head = e.eol
	}
	list := e.client.Slug == "continue"
	e.replace(len(e.data), len(e.data), head+e.loc.Pointer+":"+e.eol+e.yamlEntries("  ", list))
}

func (e *editor) yamlEntries(indent string, list bool) string {
	var b strings.Builder
	for _, name := range e.names {
		fields := e.fields(e.named(name))
		if !list {
			b.WriteString(indent + yamlString(name) + ":" + e.eol)
			e.yamlFields(&b, fields, indent+"  ", indent+"  ")
			continue
		}
		e.yamlFields(&b, fields, indent+"- ", indent+"  ")
	}
	return b.String()
}

func (e *editor) yamlFields(b *strings.Builder, fields []field, first, indent string) {
	for i, f := range fields {
		if i == 0 {
			b.WriteString(first)
		} else {
			b.WriteString(indent)
		}
		b.WriteString(yamlString(f.key) + ":")
		switch v := f.value.(type) {
		case string:
			b.WriteString(" " + yamlString(v))
		case bool:
			b.WriteString(" " + strconv.FormatBool(v))
		case int64:
			b.WriteString(" " + strconv.FormatInt(v, 10))
		case []string:
			if len(v) == 0 {
				b.WriteString(" []")
			}
			for _, w := range v {
				b.WriteString(e.eol + indent + "  - " + yamlString(w))
			}
		case map[string]string:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				b.WriteString(e.eol + indent + "  " + yamlString(k) + ": " + yamlString(v[k]))
			}
		case []field:
			b.WriteString(e.eol)
			e.yamlFields(b, v, indent+"  ", indent+"  ")
			continue
		}
		b.WriteString(e.eol)
	}
}

// yamlString writes a text plainly where that can mean nothing else, and as a
// JSON string otherwise, which YAML reads too.
func yamlString(s string) string {
	plain := s != "" && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z' || s[0] == '/')
	for i := 0; plain && i < len(s); i++ {
		c := s[i]
		plain = c < 0x80 && isWordByte(c) || strings.IndexByte("-./", c) >= 0
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strings.NewReplacer("\x7f", `\x7f`, "\u0085", `\u0085`).Replace(encodeJSON(s))
}
