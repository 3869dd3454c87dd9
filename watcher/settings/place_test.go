package settings

import "testing"

func TestPlace(t *testing.T) {
	const text = "{ // ours\n  \"pinned\": [\"a::b\", \"c::d\"],\n  \"categories\": {\"x.y\": {\"description\": \"c::d\",\n    \"tools\": [\"c::*\"]}}\n}"
	for _, test := range []struct {
		data, key, entry string
		line, col        int
	}{
		{text, "pinned", "c::d", 2, 22},
		{text, "categories.x.y", "c::*", 4, 15},
		{text, "categories.x.y", "c::d", 0, 0}, // its description is no tool
		{text, "categories.x", "c::*", 0, 0},
		{text, "categories", "c::*", 0, 0},
		{text, "pinned", "a", 0, 0},
		{`{"pinned": "a::b"}`, "pinned", "a::b", 0, 0},
		{`{"categories": {"x": ["a"]}}`, "categories.x", "a", 0, 0},
		{`{"pinned": [`, "pinned", "a", 0, 0},
		{``, "pinned", "a", 0, 0},
	} {
		if line, col := Place([]byte(test.data), test.key, test.entry); line != test.line || col != test.col {
			t.Errorf("%s in %s of %.30q: %d:%d, want %d:%d", test.entry, test.key, test.data, line, col, test.line, test.col)
		}
	}
}
