package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// message builds a request (or, without an id, a notification). Params keep
// their bytes but for white space between tokens, which could break the framing.
func message(id, method string, params json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0"`)
	if id != "" {
		b.WriteString(`,"id":` + id)
	}
	b.WriteString(`,"method":`)
	quoted, _ := json.Marshal(method)
	b.Write(quoted)
	if len(params) > 0 {
		b.WriteString(`,"params":`)
		if err := json.Compact(&b, params); err != nil {
			return nil, fmt.Errorf("the parameters of %s are not valid JSON: %w", method, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// mergeMeta puts ours before the members of meta, whose bytes stay as they are
// unless they hold a key of ours.
func mergeMeta(meta json.RawMessage, ours map[string]any) json.RawMessage {
	meta = bytes.TrimSpace(meta)
	var theirs map[string]json.RawMessage
	if len(meta) == 0 || json.Unmarshal(meta, &theirs) != nil {
		meta = nil
	}
	if len(ours) == 0 {
		return meta
	}
	first, _ := json.Marshal(ours)
	if len(theirs) == 0 {
		return first
	}
	clash := false
	for key := range ours {
		_, has := theirs[key]
		clash = clash || has
	}
	if clash {
		for key, value := range ours {
			theirs[key], _ = json.Marshal(value)
		}
		all, _ := json.Marshal(maps.Clone(theirs))
		return all
	}
	return append(append(first[:len(first)-1], ','), meta[1:]...)
}

// withMeta adds _meta to an object.
func withMeta(params []byte, meta json.RawMessage) json.RawMessage {
	if len(meta) == 0 {
		return params
	}
	var b bytes.Buffer
	b.WriteString(`{"_meta":`)
	b.Write(meta)
	if rest := bytes.TrimSpace(params); len(rest) > 2 {
		b.WriteByte(',')
		b.Write(rest[1:])
	} else {
		b.WriteByte('}')
	}
	return b.Bytes()
}
