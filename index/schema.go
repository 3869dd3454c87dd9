package index

import (
	"encoding/json"
	"maps"
	"slices"
)

// maxSchemaDepth bounds the walk through a stranger's schema. Real ones nest up
// to 9 levels deep.
const maxSchemaDepth = 12

// eachParameter visits the parameters of an input schema, nested ones too, each
// with the text that explains it.
func eachParameter(schema json.RawMessage, visit func(name, text string)) {
	if len(schema) == 0 {
		return
	}
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return
	}
	walkSchema(root, 0, visit)
}

func walkSchema(node any, depth int, visit func(name, text string)) {
	if depth > maxSchemaDepth {
		return
	}
	object, ok := node.(map[string]any)
	if !ok {
		if list, ok := node.([]any); ok {
			for _, n := range list {
				walkSchema(n, depth+1, visit)
			}
		}
		return
	}
	if properties, ok := object["properties"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			visit(name, explanation(properties[name]))
			walkSchema(properties[name], depth+1, visit)
		}
	}
	for _, k := range [...]string{"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties", "$defs", "definitions"} {
		switch child := object[k].(type) {
		case []any:
			walkSchema(child, depth+1, visit)
		case map[string]any:
			if k == "$defs" || k == "definitions" {
				for _, name := range slices.Sorted(maps.Keys(child)) {
					walkSchema(child[name], depth+1, visit)
				}
				continue
			}
			walkSchema(child, depth+1, visit)
		}
	}
}

// explanation is what a parameter's schema says in words: its title, its
// description and the values it takes.
func explanation(node any) string {
	object, ok := node.(map[string]any)
	if !ok {
		return ""
	}
	var text []byte
	for _, k := range [...]string{"title", "description"} {
		if s, ok := object[k].(string); ok {
			text = append(append(text, s...), '\n')
		}
	}
	if values, ok := object["enum"].([]any); ok {
		for _, v := range values {
			if s, ok := v.(string); ok {
				text = append(append(text, s...), '\n')
			}
		}
	}
	return string(text)
}
