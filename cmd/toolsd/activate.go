package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func newActivateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "activate <id>...",
		Short: "Print the full definitions of tools",
		Long: `Print the full definitions of tools as their servers sent them, without the
characters that no terminal or model should see.`,
		Example: `  toolsd activate kicad::export_gerber
  toolsd activate kicad::export_gerber github::create_issue --json`,
		Args:              takes(1, -1, "the id of a tool, or several"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			var activation *ipc.Activation
			err = a.whenListed(cmd.Context(), client, dir, args, firstStart, func() (err error) {
				activation, err = client.Activate(cmd.Context(), ipc.ActivateRequest{ToolIDs: args, CWD: dir})
				return err
			})
			if err != nil {
				return err
			}
			a.print(activation, func(s *screen) {
				for i, t := range activation.Tools {
					if i > 0 {
						s.line("")
					}
					s.line("%s", s.style(bold+";"+cyan, cleanLine(t.ToolID)))
					s.line("%s", clean(indented(t.Definition)))
				}
			})
			if len(activation.Tools) == 1 {
				t := activation.Tools[0]
				a.hint("`%s` runs it", strings.TrimSpace("toolsd call "+t.ToolID+" "+exampleArguments(t.Definition)))
			}
			return nil
		},
	}
}

// indented is JSON for people. Keys, numbers and escapes stay as they are.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// argument is a property of an input schema, as far as a person needs it to
// type a call.
type argument struct {
	Name        string
	Type        string   // sole type, or several joined by |, or empty
	Sole        bool     // Type is the only one
	Enum        []string // as JSON, without quotes where they are strings
	Required    bool
	Default     string // JSON; empty: none
	Description string
}

// arguments reads the input schema of a definition. It is lenient: what it does
// not understand is left out, and the server has the last word.
func arguments(definition json.RawMessage) []argument {
	var d struct {
		Schema json.RawMessage `json:"inputSchema"`
	}
	if json.Unmarshal(definition, &d) != nil {
		return nil
	}
	var schema struct {
		Properties json.RawMessage `json:"properties"`
		Required   json.RawMessage `json:"required"`
	}
	if json.Unmarshal(d.Schema, &schema) != nil {
		return nil
	}
	var required []string
	_ = json.Unmarshal(schema.Required, &required) // of the wrong type: none is
	var properties map[string]json.RawMessage
	_ = json.Unmarshal(schema.Properties, &properties) // of the wrong type: none is
	var out []argument
	for _, name := range keysInOrder(schema.Properties) {
		r := references{d.Schema, maxRefs}
		a := r.argument(properties[name])
		a.Name, a.Required = name, slices.Contains(required, name)
		out = append(out, a)
	}
	slices.SortStableFunc(out, func(a, b argument) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return out
}

// maxRefs is how many references are followed for one argument. They may lead in
// circles, and from each place in a circle to all others.
const maxRefs = 32

// references follows those of a schema, up to a number.
type references struct {
	root json.RawMessage
	left int
}

func (r *references) argument(raw json.RawMessage) argument {
	var p struct {
		Ref         string            `json:"$ref"`
		Type        json.RawMessage   `json:"type"`
		Enum        []json.RawMessage `json:"enum"`
		Const       json.RawMessage   `json:"const"`
		Default     json.RawMessage   `json:"default"`
		Description json.RawMessage   `json:"description"`
		AnyOf       []json.RawMessage `json:"anyOf"`
		OneOf       []json.RawMessage `json:"oneOf"`
	}
	var a argument
	if json.Unmarshal(raw, &p) != nil {
		return a
	}
	if p.Ref != "" && r.left > 0 {
		r.left--
		if target := lookUp(r.root, p.Ref); target != nil {
			a = r.argument(target)
		}
	}
	var types []string
	var one string
	switch {
	case json.Unmarshal(p.Type, &one) == nil && one != "":
		types = []string{one}
	case json.Unmarshal(p.Type, &types) == nil:
	}
	if len(types) > 0 {
		a.Type, a.Sole = strings.Join(types, "|"), len(types) == 1
	} else if branches := append(p.AnyOf, p.OneOf...); len(branches) > 0 && a.Type == "" {
		for _, b := range branches {
			if t := r.argument(b).Type; t != "" && !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
		a.Type = strings.Join(types, "|")
	}
	if p.Const != nil && p.Enum == nil {
		p.Enum = []json.RawMessage{p.Const}
	}
	for _, e := range p.Enum {
		a.Enum = append(a.Enum, unquoted(e))
	}
	if p.Default != nil {
		a.Default = string(p.Default)
	}
	_ = json.Unmarshal(p.Description, &a.Description) // of the wrong type: none
	return a
}

// lookUp follows a reference inside of a schema: #/$defs/name and the like.
func lookUp(root json.RawMessage, ref string) json.RawMessage {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := root
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		var members map[string]json.RawMessage
		if json.Unmarshal(at, &members) != nil || members[part] == nil {
			return nil
		}
		at = members[part]
	}
	return at
}

// unquoted is a JSON value as a person types it.
func unquoted(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// keysInOrder returns the keys of a JSON object as they stand.
func keysInOrder(raw json.RawMessage) []string {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var keys []string
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return keys
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// form writes an argument as a line of a signature: name, type, values.
func (a argument) form() string {
	s := a.Type
	if s == "" {
		s = "any"
	}
	if len(a.Enum) > 0 {
		s = strings.Join(a.Enum, "|")
	}
	if a.Required {
		s += ", required"
	} else if a.Default != "" {
		s += ", default " + a.Default
	}
	return s
}

// exampleArguments writes the required arguments as they are typed.
func exampleArguments(definition json.RawMessage) string {
	var parts []string
	for _, a := range arguments(definition) {
		if !a.Required {
			continue
		}
		value := "<" + a.Type + ">"
		if len(a.Enum) > 0 {
			value = a.Enum[0]
		} else if a.Type == "" {
			value = "<value>"
		}
		sign := "="
		if a.Type == "object" || a.Type == "array" || !a.Sole && a.Type != "" {
			sign = ":="
		}
		parts = append(parts, a.Name+sign+value)
	}
	return strings.Join(parts, " ")
}

// signature writes the arguments of a definition, one a line: the expected shape
// after a call that did not fit.
func (s *screen) signature(definition json.RawMessage) {
	all := arguments(definition)
	if len(all) == 0 {
		s.line("it takes no arguments that its schema names")
		return
	}
	var rows [][]cell
	for _, a := range all {
		rows = append(rows, []cell{{"    " + a.Name, cyan}, plain(a.form()), plain(firstSentence(a.Description))})
	}
	s.line("it takes:")
	s.table([]string{"    argument", "type", "meaning"}, rows)
}
