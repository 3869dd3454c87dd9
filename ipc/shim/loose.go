package shim

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// looseObject reads an object, also one that was written into a string, once or
// twice as models do. Nothing, null and an empty string are an empty object.
func looseObject(raw json.RawMessage) (members map[string]json.RawMessage, wasText bool, err error) {
	for range 3 {
		if len(raw) == 0 || raw[0] != '"' {
			break
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, false, err
		}
		raw, wasText = json.RawMessage(strings.TrimSpace(text)), true
	}
	if wasText && len(raw) > 0 && !json.Valid(raw) {
		return nil, true, errors.New("a string that holds no JSON")
	}
	members, err = object(raw)
	return members, wasText, err
}

// empty reports whether a member says nothing.
func empty(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null" || string(raw) == `""`
}

// rename gives the member its proper name, if that is missing and just one of
// the others is there.
func rename(members map[string]json.RawMessage, proper string, say func(string, ...any), others ...string) {
	if _, ok := members[proper]; ok {
		return
	}
	for _, o := range others {
		if raw, ok := members[o]; ok {
			members[proper] = raw
			delete(members, o)
			say("Read %s as %s.", o, proper)
			return
		}
	}
}

func keys(members map[string]json.RawMessage) []string {
	return slices.Sorted(maps.Keys(members))
}

// plainName takes off what models put around a tool's name: quotes, and the
// prefix under which a client shows it.
func plainName(s string) string {
	s = strings.Trim(strings.TrimSpace(s), "`'\"")
	if rest, ok := strings.CutPrefix(s, "mcp__"); ok {
		// Exposed names hold no double underscore, so the last one ends the prefix.
		if i := strings.LastIndex(rest, "__"); i >= 0 && i+2 < len(rest) {
			s = rest[i+2:]
		}
	}
	return s
}
