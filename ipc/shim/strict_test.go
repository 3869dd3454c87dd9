package shim

import (
	"encoding/json"
	"testing"
)

func TestListable(t *testing.T) {
	const good = `{"name":"a","inputSchema":{"type":"object"}`
	for _, d := range []string{
		good + `}`,
		good + `,"title":"A","description":"d","_meta":{"x":1e400},"annotations":{"title":"t","readOnlyHint":true,"x":1},"execution":{"taskSupport":"forbidden"}}`,
		good + `,"icons":[{"src":"x","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}],"outputSchema":{"type":"array"},"x":null}`,
		`{"name":"a","inputSchema":{"type":"object","anyOf":[{}],"properties":{"x":true},"required":["x"],"x-y":null}}`,
	} {
		if !listable(json.RawMessage(d)) {
			t.Errorf("%s is not listed", d)
		}
	}
	for _, d := range []string{
		`{"name":"a"}`, `{"name":"a","inputSchema":null}`, `{"name":"a","inputSchema":true}`, `{"name":"a","inputSchema":{}}`,
		`{"name":"a","inputSchema":{"anyOf":[{"type":"object"}]}}`, `{"name":"a","inputSchema":{"type":["object","null"]}}`,
		`{"name":"a","inputSchema":{"type":"object","properties":[]}}`, `{"name":"a","inputSchema":{"type":"object","properties":null}}`,
		`{"name":"a","inputSchema":{"type":"object","required":"x"}}`, `{"name":"a","inputSchema":{"type":"object","required":[1]}}`,
		good + `,"title":5}`, good + `,"description":null}`, good + `,"annotations":null}`, good + `,"annotations":{"title":5}}`, good + `,"annotations":{"readOnlyHint":"yes"}}`,
		good + `,"icons":{"src":"x"}}`, good + `,"icons":[{}]}`, good + `,"icons":[{"src":"x","sizes":"48x48"}]}`, good + `,"icons":[{"src":"x","theme":"blue"}]}`,
		good + `,"_meta":5}`, good + `,"execution":{"taskSupport":"no"}}`, good + `,"execution":null}`, good + `,"outputSchema":true}`, good + `,"outputSchema":null}`,
	} {
		if listable(json.RawMessage(d)) {
			t.Errorf("%s is listed", d)
		}
	}
}
