package trust

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDifferences(t *testing.T) {
	before := `{"name":"a","description":"Cuts.","_meta":{"x":1},"inputSchema":{"type":"object","properties":{"n":{"type":"number"},"old":{}}}}`
	for _, tt := range []struct {
		now  string
		want []string
	}{
		{before, nil},
		{strings.Replace(before, `"x":1`, `"x":2`, 1), nil},
		{strings.Replace(before, "Cuts.", "Burns <all>.", 1), []string{`description was "Cuts.", is "Burns <all>."`}},
		{strings.Replace(before, `"old":{}`, `"new":{"type":"string"}`, 1), []string{
			`inputSchema.properties.new is new: {"type":"string"}`, "inputSchema.properties.old is gone, was {}",
		}},
		{strings.Replace(before, `{"type":"number"}`, "true", 1), []string{`inputSchema.properties.n was {"type":"number"}, is true`}},
	} {
		if diff := cmp.Diff(tt.want, Differences(json.RawMessage(before), json.RawMessage(tt.now))); diff != "" {
			t.Errorf("%s: %s", tt.now, diff)
		}
	}
	long := `{"name":"a","description":"` + strings.Repeat("x", 1000)
	if got := Differences(json.RawMessage(long+`a"}`), json.RawMessage(long+`b"}`)); len(got) != 1 || !strings.HasSuffix(got[0], "is different further on") {
		t.Errorf("%q", got)
	}
}
