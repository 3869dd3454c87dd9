// Package tool is the one description of a tool that the whole program shares:
// its id, its definition as the server sent it, and what is derived from that.
//
// A Tool is a value made once by Parse and never changed afterwards, so it may
// be shared between goroutines. The ground truth is Tool.Raw; every other field
// can be recomputed from it.
package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ID names a tool of a server. It is written server::tool.
type ID struct {
	Server string
	Name   string
}

// String writes the id as server::tool.
func (id ID) String() string { return id.Server + "::" + id.Name }

// ParseID splits s at its first "::". A server name never holds "::", so the
// rest belongs to the tool's name.
func ParseID(s string) (ID, bool) {
	server, name, ok := strings.Cut(s, "::")
	return ID{server, name}, ok && server != "" && name != ""
}

// MarshalText and UnmarshalText let an ID be a JSON string or a JSON object key.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

func (id *ID) UnmarshalText(b []byte) error {
	p, ok := ParseID(string(b))
	if !ok {
		return fmt.Errorf("tool id %q is not of the form server::tool", b)
	}
	*id = p
	return nil
}

// Hash identifies a definition: equal for definitions that mean the same to a
// model or to a client's permission rules, whatever the order of their keys.
// It covers everything but _meta, which servers use for values that vary.
type Hash string

// Tool is one tool of one server.
type Tool struct {
	ID
	Exposed     string          // the name an agent sees; see Names
	Raw         json.RawMessage // the definition as the server sent it, compact and cleaned
	Title       string
	Description string
	InputSchema json.RawMessage // null when the server sent none
	Annotations Annotations
	Hidden      bool // hidden characters were taken out of what the server sent
	Hash        Hash
	Tokens      int // estimated weight of {name, description, inputSchema} in a model's context

	schema *schema // shared by all copies of the tool
}

// Annotations are the server's hints about a tool's behaviour. A nil hint was
// not given.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// IsReadOnly reports whether the server says that the tool changes nothing.
func (a Annotations) IsReadOnly() bool { return a.ReadOnly != nil && *a.ReadOnly }

// MayRepeat reports whether the server says that calling twice is like calling once.
func (a Annotations) MayRepeat() bool {
	return a.IsReadOnly() || a.Idempotent != nil && *a.Idempotent
}

// Parse makes a Tool of one element of a server's tools/list answer. It refuses
// only what could not be called: an element that is no object or has no usable
// name. Any schema is accepted, since one odd tool must not hide the others.
func Parse(server string, raw json.RawMessage) (*Tool, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, errors.New("a tool of the list is not a JSON object")
	}
	var name string
	if err := json.Unmarshal(fields["name"], &name); err != nil || name == "" {
		return nil, errors.New("a tool of the list has no name")
	}
	if cleaned, changed := Clean(name); changed {
		return nil, fmt.Errorf("the name of tool %q holds hidden or control characters", cleaned)
	}
	clean, hidden, err := cleanJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("the definition of tool %q: %w", name, err)
	}
	fields = nil
	if err := json.Unmarshal(clean, &fields); err != nil {
		return nil, fmt.Errorf("the definition of tool %q: %w", name, err)
	}
	// Cleaning may have turned another key into "name": then there are two of them,
	// and readers of the definition would not agree on which one counts.
	var after string
	if err := json.Unmarshal(fields["name"], &after); err != nil || after != name {
		return nil, fmt.Errorf("the definition of tool %q has a second name behind hidden characters", name)
	}
	t := &Tool{ID: ID{server, name}, Raw: clean, InputSchema: fields["inputSchema"], Hidden: hidden, schema: new(schema)}
	// A title, description or annotation of the wrong type counts as absent.
	_ = json.Unmarshal(fields["title"], &t.Title)
	_ = json.Unmarshal(fields["description"], &t.Description)
	var hints map[string]json.RawMessage
	_ = json.Unmarshal(fields["annotations"], &hints)
	t.Annotations.ReadOnly = hint(hints["readOnlyHint"])
	t.Annotations.Destructive = hint(hints["destructiveHint"])
	t.Annotations.Idempotent = hint(hints["idempotentHint"])
	t.Annotations.OpenWorld = hint(hints["openWorldHint"])
	_ = json.Unmarshal(hints["title"], &t.Annotations.Title)
	if t.Title == "" {
		t.Title = t.Annotations.Title
	}
	values, err := meaning(fields)
	if err != nil {
		return nil, fmt.Errorf("the definition of tool %q: %w", name, err)
	}
	// Of the values and not of what was sent: a model sees ü also where the server
	// wrote \u00fc.
	t.Tokens = EstimateTokens(map[string]any{
		"name": values["name"], "description": values["description"], "inputSchema": values["inputSchema"],
	})
	t.Hash = hashOf(values)
	return t, nil
}

func hint(raw json.RawMessage) *bool {
	var b *bool
	if json.Unmarshal(raw, &b) != nil {
		return nil
	}
	return b
}

// On returns the same tool as one of another server name.
func (t *Tool) On(server string) *Tool {
	c := *t
	c.Server = server
	return &c
}

// As returns the definition under another name, every other byte unchanged: what
// an agent is given under the exposed name.
func (t *Tool) As(name string) json.RawMessage {
	quoted := Encode(name)
	// The first "name" key at depth one is replaced in place; later duplicates
	// are left alone by none of the servers known, so all of them are replaced.
	var out bytes.Buffer
	depth, last, key := 0, 0, false
	for i := 0; i < len(t.Raw); {
		switch c := t.Raw[i]; c {
		case '{', '[':
			depth++
			key = c == '{'
		case '}', ']':
			depth--
		case ',':
			key = true
		case '"':
			end := stringEnd(t.Raw, i)
			if depth == 1 && key && isName(t.Raw[i:end]) && end+1 < len(t.Raw) && t.Raw[end] == ':' && t.Raw[end+1] == '"' {
				value := end + 1
				out.Write(t.Raw[last:value])
				out.Write(quoted)
				last = stringEnd(t.Raw, value)
				end = last
			}
			key = false
			i = end
			continue
		}
		i++
	}
	out.Write(t.Raw[last:])
	return out.Bytes()
}

// isName reports whether a JSON string literal spells name, with escapes or not.
func isName(literal []byte) bool {
	if string(literal) == `"name"` {
		return true
	}
	if bytes.IndexByte(literal, '\\') < 0 {
		return false
	}
	var s string
	return json.Unmarshal(literal, &s) == nil && s == "name"
}

// meaning decodes what the hash of a definition covers.
func meaning(fields map[string]json.RawMessage) (map[string]any, error) {
	values := make(map[string]any, len(fields))
	for k, raw := range fields {
		if k == "_meta" {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber() // numbers above 2^53 must not collide
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		values[k] = v
	}
	return values, nil
}

func hashOf(values map[string]any) Hash {
	sum := sha256.Sum256(Encode(values)) // encoding/json sorts the keys of maps
	return Hash(hex.EncodeToString(sum[:16]))
}

// EstimateTokens is the weight of v in a model's context: a quarter of the
// characters of its compact JSON, rounded up. Models' own counts differ by some
// 10 %, and this one needs no tokenizer.
func EstimateTokens(v any) int { return (utf8.RuneCount(Encode(v)) + 3) / 4 }

// Encode is json.Marshal without its escaping of <, > and &, for values that came
// from JSON and for strings, which can always be encoded.
func Encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
