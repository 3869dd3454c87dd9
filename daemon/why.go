package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Why explains a tool or a server: found or not, active where, held by what,
// down since when, defined in which file, and what to type.
func (d *Daemon) Why(ctx context.Context, r ipc.WhyRequest) (*ipc.Why, error) {
	v := d.viewFor(ctx, r.CWD)
	subject := tool.CleanLine(r.Subject)
	out := &ipc.Why{Subject: subject, Reasons: []string{}}
	if strings.TrimSpace(subject) == "" {
		return nil, ipc.Errorf(ipc.CodeUsage, "nothing is named").WithHint("name a tool or a server, for example `toolsd why server::tool`")
	}
	if s := v.server(r.Subject); s != nil {
		out.Found = true
		d.whyServer(out, v, s)
		return out, nil
	}
	found := d.index.Snapshot().Find(r.Subject, v.visible)
	switch len(found) {
	case 1:
		out.Found = true
		d.whyTool(out, v, found[0])
		return out, nil
	case 0:
	default:
		_, err := d.resolve(v, r.Subject)
		return nil, err
	}
	if s, name := v.serverOf(r.Subject); s != nil {
		d.whyMissing(out, v, s, name)
		return out, nil
	}
	out.State = "unknown"
	out.Reasons = append(out.Reasons, fmt.Sprintf("there is no tool and no server %q in what %s sees", subject, cwdWord(r.CWD)))
	if near := tool.Nearest(subject, v.names(), 3); len(near) > 0 {
		out.Hint = "did you mean the server " + strings.Join(near, " or ") + "?"
		return out, nil
	}
	_, err := d.resolve(v, r.Subject)
	out.Hint = ipc.AsError(err).Hint
	return out, nil
}

func cwdWord(cwd string) string {
	if cwd == "" {
		return "a caller without a directory"
	}
	return cwd
}

func (d *Daemon) whyServer(out *ipc.Why, v view, s *server) {
	info := d.serverInfo(v, s, d.weigh(v))
	out.State, out.Hint = string(info.State), info.Hint
	say := func(format string, args ...any) { out.Reasons = append(out.Reasons, fmt.Sprintf(format, args...)) }
	if info.State == ipc.StatePending {
		switch {
		case d.trust.Revoked(trust.Subject(s.Key)):
			say("you took back its approval with `toolsd distrust`; it is defined in %s", s.Source.File)
		case d.trust.Barred(trust.Subject(s.Key)) && s.Source.Scope == clientconfig.User:
			say("it is defined in %s, and what you took back with `toolsd distrust` is lost: every server waits for your approval", s.Source.File)
		case s.Source.Scope == clientconfig.User:
			say("it is defined in %s, and trust.userScope is ask: it waits for your approval", s.Source.File)
		default:
			say("it is defined in the project's file %s and waits for your approval, since projects may come from others", s.Source.File)
		}
		if s.Rejected {
			say("Claude Code recorded that you rejected it")
		}
		return
	}
	say("it is defined in %s", strings.Join(info.Sources, " and "))
	if s.Declared != s.Name {
		say("its name there is %s; another server has that name already", tool.CleanLine(s.Declared))
	}
	if info.Problem != "" {
		say("%s since %s: %s", info.State, clock(info.Since), info.Problem)
	} else {
		say("%s since %s", info.State, clock(info.Since))
	}
	if info.Retry != nil {
		say("the next try is at %s", clock(*info.Retry))
	}
	if info.Tools > 0 {
		say("%d of its tools are searchable", info.Tools)
	}
	for _, n := range info.Notes {
		say("%s", n)
	}
	if held := d.heldTools(v, s); len(held) > 0 {
		say("held until you approve them: %s", strings.Join(held, ", "))
		out.Hint = "approve one with `toolsd trust " + held[0] + "`"
	}
}

// clock is a time for people, with its day where that is not the present one.
func clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func (d *Daemon) whyTool(out *ipc.Why, v view, e index.Entry) {
	t := e.Tool
	s := v.mine[e.Key]
	info := d.serverInfo(v, s, nil)
	out.State = string(d.toolState(v, e.Key))
	say := func(format string, args ...any) { out.Reasons = append(out.Reasons, fmt.Sprintf(format, args...)) }
	say("server %s is %s; it is defined in %s", s.Name, info.State, strings.Join(info.Sources, " and "))
	if info.Problem != "" {
		say("the server's problem: %s", info.Problem)
		out.Hint = info.Hint
	}
	var active []string
	for _, a := range d.activeIn()[toolAt{e.Key, t.Name}] {
		active = append(active, fmt.Sprintf("%s (%s)", tool.CleanLine(a.request.Client), a.id))
	}
	switch {
	case len(active) > 0:
		say("active in %s", strings.Join(active, ", "))
	case slices.Contains(v.settings.Pinned, t.ID.String()):
		say("pinned: every new session lists it")
	default:
		say("deferred: no attached session has it active; a search that finds it activates it")
	}
	say("agents see it as %s", t.Exposed)
	if err := t.SchemaError(); err != nil {
		say("its input schema cannot be used to check arguments: %v", err)
	}
	if change := d.trust.Changed(trust.Subject(e.Key), t); change != trust.Unchanged {
		say("its definition is %s since the user's agents last saw it", change)
		for _, c := range d.changes(e.Key, t) {
			say("%s", c)
		}
	}
	for _, w := range trust.LintTool(t, d.otherNames(v, e.Key)) {
		say("its text %s", w)
	}
	if out.Hint == "" {
		out.Hint = "`toolsd activate " + t.ID.String() + "` shows its definition"
	}
}

// otherNames answers whether a name is that of a tool of another visible server,
// and of none of this one.
func (d *Daemon) otherNames(v view, key string) func(string) bool {
	snapshot := d.index.Snapshot()
	return func(name string) bool {
		others := false
		for _, e := range snapshot.Find(name, v.visible) {
			if e.Tool.Name != name {
				continue
			}
			if e.Key == key {
				return false
			}
			others = true
		}
		return others
	}
}

// whyMissing explains a tool of a known server that the caller cannot see.
func (d *Daemon) whyMissing(out *ipc.Why, v view, s *server, name string) {
	subject := trust.Subject(s.Key)
	if v.gateOf(s) == open && !s.Passes(name) {
		out.State, out.Found = "hidden", true
		out.Reasons = append(out.Reasons, "the tool filter of its server hides it in "+s.Source.File)
		out.Hint = "change the filter there"
		return
	}
	if t := d.listedTool(s, name); t != nil && v.gateOf(s) == open && d.trust.Held(subject, t) {
		out.State, out.Found = "held", true
		out.Reasons = append(out.Reasons, "trust.tools is hold, and it is not approved")
		out.Reasons = append(out.Reasons, fmt.Sprintf("its definition is %s since the user's agents last saw it", d.trust.Changed(subject, t)))
		out.Reasons = append(out.Reasons, d.changes(s.Key, t)...)
		for _, w := range trust.LintTool(t, d.otherNames(v, s.Key)) {
			out.Reasons = append(out.Reasons, "its text "+w)
		}
		out.Hint = "approve it with `toolsd trust " + t.ID.String() + "`"
		return
	}
	if v.gateOf(s) == pending {
		out.Found = true
		d.whyServer(out, v, s)
		return
	}
	_, err := d.resolve(v, s.Name+"::"+name)
	e := ipc.AsError(err)
	out.State, out.Hint = "unknown", e.Hint
	out.Reasons = append(out.Reasons, e.Message)
	d.whyServer(out, v, s)
	out.State = "unknown"
	if e.Hint != "" {
		out.Hint = e.Hint
	}
}

// heldTools are the ids of a server's tools that wait for approval.
func (d *Daemon) heldTools(v view, s *server) []string {
	if s.held == nil || v.gateOf(s) != open {
		return nil
	}
	listing, _ := d.index.Snapshot().Listing(s.Key)
	var out []string
	for _, t := range listing.Tools {
		if s.held(t) {
			out = append(out, t.ID.String())
		}
	}
	return out
}
