package sample

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// property is a property of an input schema, with whether it is required.
type property struct {
	name     string
	required bool
	schema   map[string]any
}

func typed(kind, name, description string) property {
	return property{name, true, map[string]any{"type": kind, "description": description}}
}

func text(name, description string) property    { return typed("string", name, description) }
func number(name, description string) property  { return typed("number", name, description) }
func integer(name, description string) property { return typed("integer", name, description) }

func texts(name, description string) property {
	p := typed("array", name, description)
	p.schema["items"] = map[string]any{"type": "string"}
	return p
}

func choice(name, description string, values ...string) property {
	p := text(name, description)
	p.schema["enum"] = values
	return p
}

// or makes a property optional.
func (p property) or(value any) property {
	p.required = false
	p.schema["default"] = value
	return p
}

// optional makes a property optional without a default.
func (p property) optional() property {
	p.required = false
	return p
}

func (p property) min(v float64) property {
	p.schema["minimum"] = v
	return p
}

func object(properties []property) json.RawMessage {
	all, required := map[string]any{}, []string{}
	for _, p := range properties {
		all[p.name] = p.schema
		if p.required {
			required = append(required, p.name)
		}
	}
	raw, err := json.Marshal(map[string]any{
		"type": "object", "properties": all, "required": required, "additionalProperties": false,
	})
	if err != nil {
		panic(fmt.Sprintf("sample: a schema of our own does not encode: %v", err))
	}
	return raw
}

// kind says what a tool does to the state.
type kind int

const (
	reads kind = iota
	changes
	destroys
)

// define makes a Tool of a function with typed arguments. Defaults are the zero
// values, or what the function sets before it looks.
func define[A any](name string, k kind, description string, properties []property, run func(context.Context, A, Progress) (any, error)) Tool {
	return Tool{
		Name: name, Description: description, InputSchema: object(properties),
		Annotations: &Annotations{ReadOnly: k == reads, Destructive: k == destroys},
		Run: func(ctx context.Context, arguments json.RawMessage, progress Progress) (any, error) {
			var a A
			d := json.NewDecoder(bytes.NewReader(arguments))
			d.DisallowUnknownFields()
			if err := d.Decode(&a); err != nil {
				return nil, fmt.Errorf("the arguments of %s: %w", name, err)
			}
			return run(ctx, a, progress)
		},
	}
}
