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

// call answers tools/call through send, exactly once, and waits for nothing where
// a tool of a server is called. What it sends is sent if it is wanted.
func (s *shim) call(ctx context.Context, m *message, wanted claim, send respond) {
	params, err := object(m.Params)
	if err != nil {
		send(nil, &rpcError{Code: codeInvalidParams, Message: "the params of tools/call must be an object"})
		return
	}
	named := params["name"]
	if empty(named) || named[0] != '"' {
		send(nil, &rpcError{Code: codeInvalidParams, Message: "the params of tools/call must have the name of a tool"})
		return
	}
	c := ipc.SessionCall{Tool: unquote(named), Arguments: params["arguments"]}
	if string(c.Arguments) == "null" {
		c.Arguments = nil
	}
	var over func()
	c.Meta, c.Progress, over = s.progress(ctx, params["_meta"])
	answer := func(result json.RawMessage, err *rpcError) {
		over()
		send(result, err)
	}
	var understood []string
	for c.Tool == toolCall {
		target, problem := understand(c.Arguments)
		understood = append(understood, target.understood...)
		if target.tool == toolCall {
			if len(understood) >= maxNested {
				problem = "tool_call cannot call itself."
			}
			understood = append(understood, "Read the tool_call inside of tool_call as one.")
		}
		if problem != "" {
			answer(textResult(problem, true), nil)
			return
		}
		c.Tool, c.Arguments, c.ViaCall = target.tool, target.arguments, true
	}
	if isFixed(c.Tool) {
		answer(s.discovery(ctx, c.Tool, c.Arguments, wanted), nil)
		return
	}
	s.run(ctx, c, understood, wanted, answer)
}

// maxNested bounds how often a tool_call may hold another.
const maxNested = 8

// discovery runs a fixed tool other than tool_call.
func (s *shim) discovery(ctx context.Context, name string, arguments json.RawMessage, wanted claim) json.RawMessage {
	input, _, err := looseObject(arguments)
	if err != nil {
		return textResult(fmt.Sprintf("The arguments of %s must be a JSON object.", name), true)
	}
	switch name {
	case toolSearch:
		return s.search(ctx, input, wanted)
	case listCategories:
		return s.categories(ctx)
	default:
		return s.categoryTools(ctx, input)
	}
}

// run calls a tool through the daemon. With a session at hand it waits for nothing:
// who reads the daemon's answer passes a result on.
func (s *shim) run(ctx context.Context, c ipc.SessionCall, understood []string, wanted claim, send respond) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.upstream, cancel)
	start := time.Now()
	begun := func(outcome *ipc.CallOutcome, err error) {
		defer cancel()
		defer stop()
		send(s.settle(ctx, c, outcome, err, start, understood, wanted))
	}
	_, session := s.link.alive()
	if session == nil {
		begun(s.send(ctx, c))
		return
	}
	session.Begin(ctx, c, func(outcome *ipc.CallOutcome, err error) {
		switch {
		case err == nil && outcome != nil && outcome.Result != nil:
			begun(outcome, nil)
		case gone(err):
			go func() {
				s.link.lost(ctx, session)
				begun(s.send(ctx, c))
			}()
		default: // what else there is to do may take its time
			go begun(outcome, err)
		}
	})
}

// settle makes what came of a call its answer. A call that was sent is never sent
// again.
func (s *shim) settle(ctx context.Context, c ipc.SessionCall, outcome *ipc.CallOutcome, err error, start time.Time, understood []string, wanted claim) (json.RawMessage, *rpcError) {
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
	case err == nil && outcome == nil, err == nil && outcome.Refused == nil && outcome.Result == nil:
		return nil, &rpcError{Code: codeInternal, Message: "the daemon answered without a result"}
	case err == nil && outcome.Refused != nil:
		r := outcome.Refused
		s.view.awaitRelist(ctx, start, []ipc.Listed{r.Tool}, s.ended)
		if r.Why != ipc.CallByName && wanted() {
			s.saw(ctx, map[tool.ID]tool.Hash{r.Tool.ID: r.Tool.Hash})
		}
		return refusal(r, s.view.facts(), c.ViaCall, understood), nil
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
		if gone(err) && again {
			s.link.lost(ctx, session)
			continue
		}
		return outcome, err
	}
}

// gone reports whether the daemon never got what it was sent.
func gone(err error) bool {
	e, ok := errors.AsType[*ipc.Error](err)
	return ok && e.Code == ipc.CodeNoDaemon
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
