package shim

import (
	"encoding/json"
	"errors"
)

// members calls visit with each member of a JSON object, the value byte for
// byte. raw must be valid JSON, which is checked once where a line comes in:
// each message is looked through several times on its way, and doing that by
// reflection was most of what a call cost.
func members(raw json.RawMessage, visit func(name string, value json.RawMessage)) error {
	i := space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return errors.New("not a JSON object")
	}
	for i = space(raw, i+1); raw[i] != '}'; {
		if raw[i] == ',' {
			i = space(raw, i+1)
		}
		end := skip(raw, i)
		name := raw[i:end]
		i = space(raw, space(raw, end)+1) // the colon
		end = skip(raw, i)
		visit(unquote(name), raw[i:end:end])
		i = space(raw, end)
	}
	return nil
}

// unquote decodes a JSON string.
func unquote(raw []byte) string {
	for _, c := range raw {
		if c == '\\' {
			var s string
			_ = json.Unmarshal(raw, &s) // it is valid
			return s
		}
	}
	return string(raw[1 : len(raw)-1])
}

// space returns the index of the next byte that is no white space.
func space(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// skip returns the index behind the value that begins at i.
func skip(raw []byte, i int) int {
	for depth := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
			continue
		default: // a number or a literal
			for i+1 < len(raw) && !ends(raw[i+1]) {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

func ends(c byte) bool {
	switch c {
	case ',', ':', '}', ']', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

// object reads the members of a JSON object. A missing one has none.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if len(raw) == 0 || string(raw) == "null" {
		return out, nil
	}
	err := members(raw, func(name string, value json.RawMessage) { out[name] = value })
	return out, err
}
