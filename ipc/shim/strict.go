package shim

import (
	"encoding/json"
	"slices"
)

// listable reports whether a strict client takes a list with this definition. It
// checks every definition against the protocol and drops the whole list, the fixed
// tools too, for one that does not fit. What is not listed to it is still found,
// shown by the answers, and reached through tool_call. The checks are those that
// Claude Code was seen to make; Codex makes most of them.
func listable(definition json.RawMessage) bool {
	d, err := object(definition)
	if err != nil || !isSchema(d["inputSchema"]) {
		return false
	}
	annotations, icons := d["annotations"], d["icons"]
	hints, err := object(annotations)
	if err != nil || annotations != nil && annotations[0] != '{' {
		return false
	}
	var list []json.RawMessage
	if icons != nil && (icons[0] != '[' || json.Unmarshal(icons, &list) != nil) {
		return false
	}
	for _, raw := range list {
		icon, err := object(raw)
		if err != nil || !isText(icon["src"]) || !absentOr(isText, icon["mimeType"]) || !absentOr(isTexts, icon["sizes"]) || !absentOr(oneOf("light", "dark"), icon["theme"]) {
			return false
		}
	}
	execution, err := object(d["execution"])
	if err != nil || !absentOr(oneOf("required", "optional", "forbidden"), execution["taskSupport"]) {
		return false
	}
	return absentOr(isObject, d["outputSchema"], d["execution"], d["_meta"]) &&
		absentOr(isText, d["title"], d["description"], hints["title"]) &&
		absentOr(isBool, hints["readOnlyHint"], hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"])
}

// isSchema reports whether raw is an input schema as the protocol has it.
func isSchema(raw json.RawMessage) bool {
	s, err := object(raw)
	return err == nil && isText(s["type"]) && unquote(s["type"]) == "object" && absentOr(isObject, s["properties"]) && absentOr(isTexts, s["required"])
}

// absentOr reports whether each of the members is missing or of a kind. A null is
// not missing.
func absentOr(kind func(json.RawMessage) bool, members ...json.RawMessage) bool {
	for _, raw := range members {
		if raw != nil && !kind(raw) {
			return false
		}
	}
	return true
}

func isText(raw json.RawMessage) bool   { return len(raw) > 0 && raw[0] == '"' }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
func isBool(raw json.RawMessage) bool   { return len(raw) > 0 && (raw[0] == 't' || raw[0] == 'f') }

func oneOf(texts ...string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool { return isText(raw) && slices.Contains(texts, unquote(raw)) }
}

func isTexts(raw json.RawMessage) bool {
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return false
	}
	for _, e := range list {
		if !isText(e) {
			return false
		}
	}
	return true
}
