package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// call answers tools/call. What it returns is sent if it is wanted.
func (s *shim) call(ctx context.Context, m *message, wanted claim) (json.RawMessage, *rpcError) {
	params, err := object(m.Params)
	if err != nil {
		return nil, &rpcError{Code: codeInvalidParams, Message: "the params of tools/call must be an object"}
	}
	named := params["name"]
	if empty(named) || named[0] != '"' {
		return nil, &rpcError{Code: codeInvalidParams, Message: "the params of tools/call must have the name of a tool"}
	}
	name := unquote(named)
	c := ipc.SessionCall{Tool: name, Arguments: params["arguments"]}
	if string(c.Arguments) == "null" {
		c.Arguments = nil
	}
	var over func()
	c.Meta, c.Progress, over = s.progress(ctx, params["_meta"])
	defer over()
	if !isFixed(name) {
		return s.run(ctx, c, nil, wanted)
	}
	return s.callFixed(ctx, name, c, nil, wanted)
}

// callFixed runs a fixed tool. c holds what came with the call.
func (s *shim) callFixed(ctx context.Context, name string, c ipc.SessionCall, understood []string, wanted claim) (json.RawMessage, *rpcError) {
	if name == toolCall {
		target, problem := understand(c.Arguments)
		if problem != "" {
			return textResult(problem, true), nil
		}
		understood = append(understood, target.understood...)
		c.Arguments = target.arguments
		switch {
		case target.tool == toolCall && len(understood) < maxNested:
			return s.callFixed(ctx, toolCall, c, append(understood, "Read the tool_call inside of tool_call as one."), wanted)
		case target.tool == toolCall:
			return textResult("tool_call cannot call itself.", true), nil
		case isFixed(target.tool):
			return s.callFixed(ctx, target.tool, c, understood, wanted)
		}
		c.Tool, c.ViaCall = target.tool, true
		return s.run(ctx, c, understood, wanted)
	}
	input, _, err := looseObject(c.Arguments)
	if err != nil {
		return textResult(fmt.Sprintf("The arguments of %s must be a JSON object.", name), true), nil
	}
	switch name {
	case toolSearch:
		return s.search(ctx, input, wanted), nil
	case listCategories:
		return s.categories(ctx), nil
	default:
		return s.categoryTools(ctx, input), nil
	}
}

// maxNested bounds how often a tool_call may hold another.
const maxNested = 8

// run calls a tool through the daemon. A call that was sent is never sent again.
func (s *shim) run(ctx context.Context, c ipc.SessionCall, understood []string, wanted claim) (json.RawMessage, *rpcError) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.upstream, cancel)()
	start := time.Now()
	outcome, err := s.send(ctx, c)
	// What is taken off a name may belong to it, so it is taken off second.
	if plain := plainName(c.Tool); notFound(err) && c.ViaCall && plain != c.Tool {
		understood = append(understood, fmt.Sprintf("Read %q as %s.", tool.Cut(c.Tool, 100), plain))
		c.Tool = plain
		outcome, err = s.send(ctx, c)
	}
	if notFound(err) && c.ViaCall {
		// Another spelling: server.tool, or a name that only a search knows.
		if id := s.resolve(ctx, c.Tool); id != "" && id != c.Tool {
			understood = append(understood, fmt.Sprintf("Read %q as %s.", tool.Cut(c.Tool, 100), id))
			c.Tool = id
			outcome, err = s.send(ctx, c)
		}
	}
	switch {
	case err == nil && outcome.Refused != nil:
		r := outcome.Refused
		s.view.awaitRelist(ctx, start, []ipc.Listed{r.Tool}, s.ended)
		if r.Why != ipc.CallByName && wanted() {
			s.saw(ctx, map[tool.ID]tool.Hash{r.Tool.ID: r.Tool.Hash})
		}
		return refusal(r, s.view.facts(), c.ViaCall, understood), nil
	case err == nil && outcome.Result == nil:
		return nil, &rpcError{Code: codeInternal, Message: "the daemon answered without a result"}
	case err == nil:
		return compact(outcome.Result), nil
	case s.upstream.Err() != nil:
		return textResult("The call was cancelled, because the agent closed its end of the connection.", true), nil
	}
	if e, ok := errors.AsType[*ipc.Error](err); ok && e.RPC != nil {
		return nil, e.RPC
	}
	return failure(err), nil
}

// send waits for a daemon and hands it the call. Only a daemon that was found
// gone before it got the call is replaced by the next.
func (s *shim) send(ctx context.Context, c ipc.SessionCall) (*ipc.CallOutcome, error) {
	for again := true; ; again = false {
		_, session, err := s.link.current(ctx)
		if err != nil {
			return nil, unreachable(err)
		}
		outcome, err := session.Call(ctx, c)
		if e, ok := errors.AsType[*ipc.Error](err); ok && e.Code == ipc.CodeNoDaemon && again {
			s.link.lost(ctx, session)
			continue
		}
		if err == nil && outcome == nil {
			outcome = &ipc.CallOutcome{}
		}
		return outcome, err
	}
}

func notFound(err error) bool {
	e, ok := errors.AsType[*ipc.Error](err)
	return ok && e.Code == ipc.CodeNotFound
}

// resolve asks for a tool by any of its names.
func (s *shim) resolve(ctx context.Context, name string) string {
	r, err := s.find(ctx, ipc.SearchRequest{ToolID: name})
	if err != nil || len(r.Matches) != 1 {
		return ""
	}
	return r.Matches[0].ToolID
}

// progress takes the agent's progress token out of _meta, since the daemon's
// server gets another one, and returns what passes progress on under it until
// over is called.
func (s *shim) progress(ctx context.Context, meta json.RawMessage) (rest json.RawMessage, pass func(json.RawMessage), over func()) {
	members, err := object(meta)
	token := members["progressToken"]
	if err != nil || len(token) == 0 || string(token) == "null" {
		return meta, nil, func() {}
	}
	if delete(members, "progressToken"); len(members) > 0 {
		rest = encode(members)
	}
	ctx, cancel := context.WithCancel(ctx)
	return rest, func(params json.RawMessage) {
		members, err := object(params)
		if err != nil || ctx.Err() != nil {
			return
		}
		members["progressToken"] = token
		s.out.offer(slices.Concat([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":`), encode(members), []byte("}")))
	}, cancel
}

// target is what an input of tool_call was understood to mean.
type target struct {
	tool       string
	arguments  json.RawMessage
	understood []string // what was not said as it should be
}

const callExample = ` Example: {"tool_id":"<server>::<tool>","arguments":{"path":"a.txt"}}`

// understand reads the input of tool_call as models write it: arguments as a
// string, the tool named inside of the arguments, other words for the keys, the
// arguments beside the tool's name.
func understand(raw json.RawMessage) (t target, problem string) {
	input, wasText, err := looseObject(raw)
	if err != nil {
		return t, "The input of tool_call must be a JSON object." + callExample
	}
	say := func(format string, args ...any) { t.understood = append(t.understood, fmt.Sprintf(format, args...)) }
	if wasText {
		say("Read the input, a string, as JSON.")
	}
	rename(input, "tool_id", say, "tool", "id", "toolId", "tool_name", "toolName")
	rename(input, "arguments", say, "params", "parameters", "input", "args", "tool_input", "tool_arguments")

	var arguments map[string]json.RawMessage
	hasArguments := false
	if raw, ok := input["arguments"]; ok {
		if arguments, wasText, err = looseObject(raw); err != nil {
			return t, fmt.Sprintf("The arguments of tool_call must be a JSON object, not %s.", tool.Cut(string(raw), 200)) + callExample
		}
		hasArguments = true
		if wasText {
			say("Read the arguments, a string, as JSON.")
		}
	}
	id, name, given := input["tool_id"], input["name"], input["arguments"]
	delete(input, "tool_id")
	delete(input, "name")
	delete(input, "arguments")
	if empty(id) && empty(name) {
		for _, k := range []string{"tool_id", "tool", "tool_name", "name"} {
			if !empty(arguments[k]) {
				id = arguments[k]
				delete(arguments, k)
				say("Read %s inside of the arguments as the tool.", k)
				if nested, ok := arguments["arguments"]; ok && len(arguments) == 1 {
					if inner, _, err := looseObject(nested); err == nil {
						arguments = inner
					}
				}
				break
			}
		}
	}
	switch {
	case empty(id) && empty(name):
		return t, "tool_call needs either the tool_id or the name of a tool." + callExample
	case !empty(id) && !empty(name) && string(id) != string(name):
		return t, fmt.Sprintf("tool_call takes either tool_id or name, not both: %s and %s were given.", tool.Cut(string(id), 100), tool.Cut(string(name), 100))
	case empty(id):
		id = name
	}
	if json.Unmarshal(id, &t.tool) != nil {
		return t, fmt.Sprintf("tool_call takes the tool as a string, not %s.", tool.Cut(string(id), 100)) + callExample
	}
	if plain := plainName(t.tool); plain != t.tool && isFixed(plain) {
		say("Read %q as %s.", tool.Cut(t.tool, 100), plain)
		t.tool = plain
	}
	if len(input) > 0 {
		if hasArguments && len(arguments) > 0 {
			return t, fmt.Sprintf("tool_call takes tool_id or name, and arguments; %s does not belong beside them. What is meant for the tool goes into arguments.", strings.Join(keys(input), ", "))
		}
		say("Read %s as the arguments.", strings.Join(keys(input), ", "))
		arguments = input
	}
	switch {
	case len(t.understood) == 0 && !empty(given):
		t.arguments = given // byte for byte
	case len(arguments) == 0:
		t.arguments = json.RawMessage("{}")
	default:
		t.arguments = encode(arguments)
	}
	return t, ""
}
