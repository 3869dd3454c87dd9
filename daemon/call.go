package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon/calllog"
	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// Call runs a tool for a caller without an attached session, which counts as
// having seen the present definition, or for the session it names.
func (d *Daemon) Call(ctx context.Context, r ipc.CallRequest) (json.RawMessage, error) {
	if r.ToolID == "" {
		return nil, ipc.Errorf(ipc.CodeUsage, "no tool is named").WithHint(`give its id as tool_id, for example {"tool_id":"server::tool","arguments":{}}`)
	}
	s, v, err := d.caller(ctx, r.Session, r.CWD)
	if err != nil {
		return nil, err
	}
	outcome, err := ipc.Await(func(done func(*ipc.CallOutcome, error)) {
		d.begin(ctx, s, v, ipc.SessionCall{Tool: r.ToolID, Arguments: r.Arguments, Progress: r.Progress}, time.Duration(r.TimeoutMS)*time.Millisecond, done)
	})
	if err != nil {
		return nil, err
	}
	if r := outcome.Refused; r != nil {
		if s != nil { // the answer to this request shows it
			_ = s.Saw(ctx, map[tool.ID]tool.Hash{r.Tool.ID: r.Tool.Hash}, false)
		}
		return nil, refusalError(r)
	}
	return outcome.Result, nil
}

// refusalError says for a caller on the socket what a Refusal says to an agent.
func refusalError(r *ipc.Refusal) *ipc.Error {
	id := r.Tool.ID.String()
	switch r.Why {
	case ipc.BadArguments:
		e := ipc.Errorf(ipc.CodeBadArguments, "the arguments do not fit the input schema of %s: %s", id, strings.Join(r.Problems, "; ")).
			WithHint("`toolsd activate %s` shows the schema", id)
		e.Tool = r.Tool.Definition
		return e
	case ipc.Changed:
		e := ipc.Errorf(ipc.CodeNotSeen, "the definition of %s has changed since this session saw it", id).WithHint("read the definition in this answer and call again")
		e.Tool = r.Tool.Definition
		return e
	}
	e := ipc.Errorf(ipc.CodeNotSeen, "this session has not seen the definition of %s", id).WithHint("read the definition in this answer and call again")
	e.Tool = r.Tool.Definition
	return e
}

// Call runs a tool for this session if it has seen its present definition.
func (s *attached) Call(ctx context.Context, c ipc.SessionCall) (*ipc.CallOutcome, error) {
	return ipc.Await(func(done func(*ipc.CallOutcome, error)) { s.Begin(ctx, c, done) })
}

// Begin is Call for who does not wait.
func (s *attached) Begin(ctx context.Context, c ipc.SessionCall, done func(*ipc.CallOutcome, error)) {
	s.d.begin(ctx, s, s.view(), c, 0, done)
}

// large is the size of arguments that take milliseconds to be validated.
const large = 64 << 10

// begin is the only way from anyone to a server. s is nil for a caller without a
// session. done gets the outcome, once, and must not hold up who brings it.
func (d *Daemon) begin(ctx context.Context, s *attached, v view, c ipc.SessionCall, timeout time.Duration, done func(*ipc.CallOutcome, error)) {
	start := time.Now()
	entry := calllog.Entry{Time: start.UTC(), BytesIn: len(c.Arguments), Tool: tool.CleanLine(tool.Cut(c.Tool, 200)), Arguments: calllog.Digest(c.Arguments)}
	if s != nil {
		entry.Session, entry.Client = s.id, tool.CleanLine(s.request.Client)
	}
	end := func(outcome *ipc.CallOutcome, err error) {
		entry.MS = time.Since(start).Milliseconds()
		entry.Outcome = outcomeOf(ctx, outcome, err)
		if outcome != nil {
			entry.BytesOut = len(outcome.Result)
		}
		d.calls.Append(entry)
		done(outcome, err)
	}
	e, err := d.resolve(v, c.Tool)
	if err != nil {
		if s, name := v.serverOf(c.Tool); s != nil {
			entry.Server, entry.Tool, entry.Scope, entry.Project = s.Name, name, string(s.Source.Scope), s.Source.Root
		}
		end(nil, err)
		return
	}
	server := v.mine[e.Key]
	entry.Server, entry.Tool, entry.Scope, entry.Project = server.Name, e.Tool.Name, string(server.Source.Scope), server.Source.Root
	gated := func() { d.gatedCall(ctx, s, v, server, e.Tool, c, timeout, end) }
	if server.share == "shared" && d.hasHanded() && len(c.Arguments) < large {
		gated()
	} else {
		go gated() // it may have to wait for the server, and the caller must not
	}
}

// gatedCall asks every question before a call, and has it sent.
func (d *Daemon) gatedCall(ctx context.Context, s *attached, v view, server *server, listed *tool.Tool, c ipc.SessionCall, timeout time.Duration, end func(*ipc.CallOutcome, error)) {
	to := instanceOf(server, s, v)
	t, err := d.listedBy(server, to, listed)
	if err != nil {
		end(nil, err)
		return
	}
	if s != nil {
		if refusal := s.refuse(t, c.ViaCall); refusal != nil {
			end(&ipc.CallOutcome{Refused: refusal}, nil)
			return
		}
	}
	if refusal := badArguments(t, c.Arguments); refusal != nil {
		end(&ipc.CallOutcome{Refused: refusal}, nil)
		return
	}
	if v.gateOf(server) != open {
		end(nil, ipc.Errorf(ipc.CodeServerDown, "server %s cannot be used: %s", server.Name, server.redactor.Redact(server.Problem)).WithHint("%s", server.Hint))
		return
	}
	from := ""
	if s != nil {
		from = s.id
	}
	if err := d.awaitServers(ctx, timeout); err != nil {
		end(nil, callError(ctx, server, t, err))
		return
	}
	d.upstream.Begin(ctx, to.key, upstream.Call{
		Tool: t.Name, Instance: d.want(ctx, to), From: from, Arguments: c.Arguments, Meta: c.Meta, Progress: c.Progress,
		MayRepeat: t.Annotations.MayRepeat(), Timeout: timeout,
		Check: func() error { return d.recheck(s, v, t, to, c) },
	}, func(result json.RawMessage, err error) {
		if changed, ok := errors.AsType[*refusedError](err); ok {
			end(&ipc.CallOutcome{Refused: changed.refusal}, nil)
			return
		}
		if _, ok := errors.AsType[*ipc.Error](err); ok {
			end(nil, err)
			return
		}
		if err != nil {
			end(nil, callError(ctx, server, t, err))
			return
		}
		end(&ipc.CallOutcome{Result: result}, nil)
	})
}

// awaitServers waits until the servers of the config files were handed to
// upstream, which is some hundred milliseconds after a start.
func (d *Daemon) awaitServers(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, upstream.ErrTimeout)
		defer cancel()
	}
	select {
	case <-d.handed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hasHanded reports whether awaitServers has nothing to wait for.
func (d *Daemon) hasHanded() bool {
	select {
	case <-d.handed:
		return true
	default:
		return false
	}
}

// refusedError carries a Refusal through a call that got as far as its server.
type refusedError struct{ refusal *ipc.Refusal }

func (e *refusedError) Error() string { return "the call was refused: " + string(e.refusal.Why) }

// listedBy is the definition that an instance has of a tool. The index has that of
// the shared process, and one that was started at another time, or elsewhere, may
// list another: then that is what the caller must have seen. What it does not list
// at all, it answers for itself.
func (d *Daemon) listedBy(s *server, i instance, t *tool.Tool) (*tool.Tool, error) {
	if i.name == "" {
		return t, nil
	}
	own := d.upstream.Tool(i.key, i.name, t.Name)
	if own == nil || own.Hash == t.Hash {
		return t, nil
	}
	if s.held != nil && s.held(own) {
		return nil, ipc.Errorf(ipc.CodeNeedsTrust, "the process of server %s that runs for this caller has another definition of %s than the approved one", s.Name, t.ID).
			WithHint("`toolsd restart %s` lists its tools anew, and `toolsd trust list` shows what waits then", s.Name)
	}
	own = own.On(t.Server)
	own.Exposed = t.Exposed
	return own, nil
}

// recheck is the gate once more, when the server is there: one that was away may
// have come back with another definition, or none, and what was seen was the old
// one. A caller without a session counts as having seen the present definition,
// so its arguments only have to fit that.
func (d *Daemon) recheck(s *attached, v view, was *tool.Tool, to instance, c ipc.SessionCall) error {
	if s != nil {
		v = s.view()
	} else {
		v = d.world.Load().from(v.cwd)
	}
	t := find(d.index.Snapshot(), v, was.ID)
	if t == nil {
		_, err := d.resolve(v, was.ID.String())
		if err == nil {
			err = ipc.Errorf(ipc.CodeNotFound, "there is no tool %q any more", was.ID)
		}
		return err
	}
	if server := v.byKey[to.key]; server != nil {
		own, err := d.listedBy(server, to, t)
		if err != nil {
			return err
		}
		t = own
	}
	if t.Hash == was.Hash {
		return nil
	}
	if s != nil {
		if refusal := s.refuse(t, c.ViaCall); refusal != nil {
			return &refusedError{refusal}
		}
	}
	if refusal := badArguments(t, c.Arguments); refusal != nil {
		return &refusedError{refusal}
	}
	return nil
}

// badArguments refuses arguments that do not fit the input schema.
func badArguments(t *tool.Tool, arguments json.RawMessage) *ipc.Refusal {
	err := t.Validate(arguments)
	if err == nil {
		return nil
	}
	refusal := &ipc.Refusal{Why: ipc.BadArguments, Tool: listedOf(t), Problems: []string{err.Error()}}
	if invalid, ok := errors.AsType[*tool.ArgumentError](err); ok {
		refusal.Problems = invalid.Problems
	}
	return refusal
}

// refuse is invariant 3. What it returns holds the definition, so that the next
// call can run. That the agent has seen it is not known here: the answer may be
// cancelled on its way. Who hands it over says so, with Saw.
func (s *attached) refuse(t *tool.Tool, viaCall bool) *ipc.Refusal {
	if viaCall && s.Lists(t.ID) && !t.Annotations.IsReadOnly() {
		return &ipc.Refusal{Why: ipc.CallByName, Tool: listedOf(t)}
	}
	seen := s.Seen(t.ID)
	if seen == t.Hash {
		return nil
	}
	why := ipc.Changed
	if seen == "" {
		why = ipc.NotSeen
	}
	if !viaCall && s.Session.Activate(t.ID) {
		s.refresh()
	}
	return &ipc.Refusal{Why: why, Tool: listedOf(t)}
}

// callError makes what went wrong at a server an error that a caller can act on.
func callError(ctx context.Context, s *server, t *tool.Tool, err error) error {
	id := t.ID.String()
	if rpc, ok := errors.AsType[*upstream.RPCError](err); ok {
		e := ipc.Errorf(ipc.CodeToolError, "%s", rpc.Message)
		e.RPC = &ipc.RPCError{Code: rpc.Code, Message: rpc.Message, Data: rpc.Data}
		return e
	}
	if down, ok := errors.AsType[*upstream.DownError](err); ok {
		e := ipc.Errorf(ipc.CodeServerDown, "server %s is %s: %s", s.Name, down.State, s.redactor.Redact(down.Reason))
		switch {
		case down.State == "":
			e.Message = "server " + s.Name + " was removed"
		case down.Reason == "":
			e.Message = "server " + s.Name + " is " + down.State
		}
		hint := s.redactor.Redact(down.Hint)
		if hint == "" {
			hint = "`toolsd logs " + s.Name + "` shows what it wrote; `toolsd restart " + s.Name + "` tries again"
		}
		return e.WithHint("%s", hint)
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ipc.Errorf(ipc.CodeCancelled, "the call of %s was cancelled", id)
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return ipc.Errorf(ipc.CodeTimeout, "%s did not answer in time; the call was cancelled", id).
			WithHint("a timeout in the entry of server %s gives each call more, `toolsd call --timeout` a single one", s.Name)
	case errors.Is(err, upstream.ErrOutcomeUnknown):
		return ipc.Errorf(ipc.CodeOutcomeUnknown, "server %s went away while %s was running; whether it ran to its end is not known", s.Name, id).
			WithHint("check what the tool did before you call it again")
	}
	return ipc.Errorf(ipc.CodeInternal, "%s", s.redactor.Redact(err.Error())).WithHint("`toolsd logs %s` shows what the server wrote", s.Name)
}

func outcomeOf(ctx context.Context, outcome *ipc.CallOutcome, err error) calllog.Outcome {
	switch {
	case err == nil && outcome.Refused != nil:
		return calllog.Refused
	case err == nil:
		var result struct {
			IsError bool `json:"isError"`
		}
		// A result that is not an object is the server's business.
		if json.Unmarshal(outcome.Result, &result) == nil && result.IsError {
			return calllog.ToolError
		}
		return calllog.OK
	case ctx.Err() != nil:
		return calllog.Cancelled
	}
	switch ipc.AsError(err).Code {
	case ipc.CodeToolError:
		return calllog.RPCError
	case ipc.CodeTimeout:
		return calllog.Timeout
	case ipc.CodeOutcomeUnknown:
		return calllog.Unknown
	case ipc.CodeServerDown:
		return calllog.Down
	case ipc.CodeInternal:
		return calllog.Failed
	}
	return calllog.Refused
}
