package shim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/ipc"
)

func TestUnderstandToolCall(t *testing.T) {
	for _, c := range []struct {
		name, input     string
		tool, arguments string
		understood      string // a part of what is said about it; "" for nothing
		problem         string
	}{
		{"as documented", `{"tool_id":"lab::echo","arguments":{"n":9007199254740993, "a":1}}`, "lab::echo", `{"n":9007199254740993, "a":1}`, "", ""},
		{"by name", `{"name":"lab_echo","arguments":{}}`, "lab_echo", `{}`, "", ""},
		{"no arguments", `{"tool_id":"lab::echo"}`, "lab::echo", `{}`, "", ""},
		{"null arguments", `{"tool_id":"lab::echo","arguments":null}`, "lab::echo", `{}`, "", ""},
		{"both, the same", `{"tool_id":"lab_echo","name":"lab_echo"}`, "lab_echo", `{}`, "", ""},
		{"an empty one does not count", `{"tool_id":"","name":"lab_echo"}`, "lab_echo", `{}`, "", ""},
		{"arguments as a string", `{"tool_id":"lab::echo","arguments":"{\"text\":\"hi\"}"}`, "lab::echo", `{"text":"hi"}`, "string", ""},
		{"arguments as an empty string", `{"tool_id":"lab::echo","arguments":""}`, "lab::echo", `{}`, "string", ""},
		{"arguments encoded twice", `{"tool_id":"lab::echo","arguments":"\"{\\\"text\\\":\\\"hi\\\"}\""}`, "lab::echo", `{"text":"hi"}`, "string", ""},
		{"everything as a string", `"{\"tool_id\":\"lab::echo\",\"arguments\":{\"text\":\"hi\"}}"`, "lab::echo", `{"text":"hi"}`, "string", ""},
		{"the name inside", `{"arguments":{"tool_id":"lab::echo","text":"hi"}}`, "lab::echo", `{"text":"hi"}`, "inside", ""},
		{"all inside", `{"arguments":{"name":"lab_echo","arguments":{"text":"hi"}}}`, "lab_echo", `{"text":"hi"}`, "inside", ""},
		{"other words", `{"tool":"lab::echo","params":{"text":"hi"}}`, "lab::echo", `{"text":"hi"}`, "Read tool as tool_id", ""},
		{"other words still", `{"toolName":"lab::echo","input":{"text":"hi"}}`, "lab::echo", `{"text":"hi"}`, "input", ""},
		{"arguments beside", `{"tool_id":"lab::echo","text":"hi","n":1}`, "lab::echo", `{"n":1,"text":"hi"}`, "n, text", ""},
		{"the client's own name of a fixed tool", `{"tool_id":"mcp__toolsd__tool_search"}`, "tool_search", `{}`, "mcp__toolsd__", ""},
		{"what may be taken off, or belong to it", `{"tool_id":"mcp__a__b::c "}`, "mcp__a__b::c ", `{}`, "", ""},
		{"a tool's own name argument", `{"tool_id":"lab::echo","arguments":{"name":"x","tool_id":"y"}}`, "lab::echo", `{"name":"x","tool_id":"y"}`, "", ""},

		{"neither", `{"arguments":{"text":"hi"}}`, "", "", "", "tool_id"},
		{"nothing", ``, "", "", "", "tool_id"},
		{"both", `{"tool_id":"a::b","name":"c"}`, "", "", "", "not both"},
		{"arguments as a list", `{"tool_id":"a::b","arguments":[1]}`, "", "", "", "JSON object"},
		{"arguments as a number", `{"tool_id":"a::b","arguments":3}`, "", "", "", "JSON object"},
		{"arguments as prose", `{"tool_id":"a::b","arguments":"say hi"}`, "", "", "", "JSON object"},
		{"a number for a tool", `{"tool_id":5}`, "", "", "", "string"},
		{"something beside arguments", `{"tool_id":"a::b","arguments":{"x":1},"dry_run":true}`, "", "", "", "dry_run"},
		{"a list", `[1]`, "", "", "", "JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problem := understand(json.RawMessage(c.input))
			if c.problem != "" {
				if !strings.Contains(problem, c.problem) {
					t.Errorf("got %+v, %q; want a problem with %q", got, problem, c.problem)
				}
				return
			}
			said := strings.Join(got.understood, " ")
			if problem != "" || got.tool != c.tool || string(got.arguments) != c.arguments || !strings.Contains(said, c.understood) || (said == "") != (c.understood == "") {
				t.Errorf("got %s %s, said %q, problem %q", got.tool, got.arguments, said, problem)
			}
		})
	}
}

// What the daemon says about failures names ids; a text must say how those are
// reached.
func TestFailuresSayHowToReachWhatTheyName(t *testing.T) {
	for _, err := range []error{
		ipc.Errorf(ipc.CodeTimeout, "lab::echo did not answer in time").WithHint("give it more"),
		&ipc.Error{Code: ipc.CodeNotFound, Message: "there is no tool \"x\"", Candidates: []string{"lab::echo", "lab::add"}},
		&ipc.Error{Code: ipc.CodeAmbiguous, Message: "\"echo\" is the name of 2 tools", Candidates: []string{"lab::echo", "kicad::echo"}},
		ipc.Errorf(ipc.CodeNotFound, "there is no tool").WithHint("`toolsd search <words>` finds tools"),
	} {
		var r struct {
			Content []struct{ Text string }
			IsError bool
		}
		if json.Unmarshal(failure(err), &r) != nil || !r.IsError {
			t.Fatalf("%v: no error result", err)
		}
		if text := r.Content[0].Text; !strings.Contains(text, "tool_call") && !strings.Contains(text, "tool_search") {
			t.Errorf("%v: %q names no fixed tool", err, text)
		}
	}
	held := ipc.Errorf(ipc.CodeNeedsTrust, "tool \"lab::burn\" waits for approval").WithHint("look at it with `toolsd trust lab::burn`")
	if text := string(failure(held)); strings.Contains(text, "tool_call") || !strings.Contains(text, "toolsd trust lab::burn") {
		t.Errorf("%s of a tool that waits", text)
	}
}
