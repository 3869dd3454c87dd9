package daemon

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// projectRead bounds how long a question about a project that was never asked
// about before waits for its config files. Search does not wait at all.
const projectRead = 2 * time.Second

// viewFor is the caller's view, with its project's files read.
func (d *Daemon) viewFor(ctx context.Context, cwd string) view {
	d.readProject(ctx, cwd, projectRead)
	return d.world.Load().from(cwd)
}

// knows reports whether the present world has what a caller in cwd sees, and
// makes sure that a later one does.
func (d *Daemon) knows(cwd string) bool {
	return d.watcher.See(cwd) && d.watcher.Covers(d.world.Load().of, cwd)
}

// readProject returns when the world has what a caller in cwd sees, or when the
// time is over.
func (d *Daemon) readProject(ctx context.Context, cwd string, limit time.Duration) {
	if d.knows(cwd) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if d.watcher.Wait(ctx, cwd) == nil {
		d.reconcileNow(ctx)
	}
}

// Status tells about the daemon and the servers that the caller sees.
func (d *Daemon) Status(ctx context.Context, r ipc.StatusRequest) (*ipc.Status, error) {
	v := d.viewFor(ctx, r.CWD)
	weights := d.weigh(v)
	out := &ipc.Status{Daemon: d.info(), Servers: []ipc.ServerInfo{}, Sessions: []ipc.SessionInfo{}, Problems: d.problems(v)}
	for _, s := range v.list() {
		info := d.serverInfo(v, s, weights)
		if info.PID > 0 {
			info.Memory, _ = platform.MemoryRSS(info.PID)
		}
		out.Servers = append(out.Servers, info)
		out.Totals.Servers++
		out.Totals.Tools += info.Tools
		out.Totals.Tokens += info.Tokens
	}
	for _, s := range d.attachedSessions() {
		info := ipc.SessionInfo{
			ID: s.id, Client: tool.CleanLine(s.request.Client), Version: tool.CleanLine(s.request.Version),
			CWD: s.request.CWD, Mode: s.mode, Since: s.since.UTC().Truncate(time.Second),
		}
		for _, l := range *s.sent.Load() {
			info.Active++
			info.Tokens += l.Tokens
		}
		out.Sessions = append(out.Sessions, info)
	}
	return out, nil
}

// problems are those of config files that concern this caller, nothing of another
// project, and those of what the daemon keeps.
func (d *Daemon) problems(v view) []ipc.Problem {
	out := []ipc.Problem{}
	for _, p := range v.world.problems {
		if !v.sees(p.Root) {
			continue
		}
		if s := v.declared(p.File, p.Server); s == nil && p.Root != "" || s != nil && s.gate == pending {
			p = p.Withheld()
		}
		out = append(out, p)
	}
	for _, own := range []ipc.Problem{
		{Message: d.trust.Problem(), Hint: d.trust.Hint()},
		{Message: d.index.Problem()},
		{Message: d.noCache},
		{Message: d.calls.Problem()},
	} {
		if own.Message != "" {
			out = append(out, own)
		}
	}
	return out
}

// weight is what the tools of one server come to.
type weight struct{ tools, tokens int }

func (d *Daemon) weigh(v view) map[string]weight {
	out := map[string]weight{}
	for e := range d.index.Snapshot().All(v.visible) {
		w := out[e.Key]
		w.tools++
		w.tokens += e.Tool.Tokens
		out[e.Key] = w
	}
	return out
}

// serverInfo describes a server. Of a pending one it says its name, where it
// stands and that it waits, nothing of its own.
func (d *Daemon) serverInfo(v view, s *server, weights map[string]weight) ipc.ServerInfo {
	info := ipc.ServerInfo{Name: s.Name, Scope: string(s.Source.Scope), Sources: []string{}, Since: s.since.UTC().Truncate(time.Second)}
	for _, source := range s.Sources {
		if v.sees(source.Root) && !slices.Contains(info.Sources, source.File) {
			info.Sources = append(info.Sources, source.File)
		}
	}
	switch v.gateOf(s) {
	case pending:
		info.State = ipc.StatePending
		info.Problem = "waits for approval"
		info.Hint = "look at it and approve it with `toolsd trust " + s.Name + "`"
		return info
	case disabled:
		info.State = ipc.StateDisabled
	case unusable:
		info.State, info.Problem, info.Hint = ipc.StateFailed, s.redactor.Redact(s.Problem), s.Hint
	}
	info.Transport = string(s.Transport)
	info.Tools, info.Tokens = weights[s.Key].tools, weights[s.Key].tokens
	if v.gateOf(s) != open {
		return info
	}
	st, ok := d.status(s.Key)
	if !ok {
		st = upstream.Status{State: upstream.Starting, Since: d.started}
	}
	info.State = ipc.ServerState(st.State)
	info.PID, info.Since = st.PID, st.Since.UTC().Truncate(time.Second)
	info.Problem, info.Hint = s.redactor.Redact(st.Reason), s.redactor.Redact(st.Hint)
	if !st.Retry.IsZero() {
		retry := st.Retry.UTC().Truncate(time.Second)
		info.Retry = &retry
	}
	for _, n := range st.Notes {
		info.Notes = append(info.Notes, s.redactor.Redact(n))
	}
	d.mu.Lock()
	for i := range d.instances {
		if i.key == s.Key {
			info.Instances++
		}
	}
	d.mu.Unlock()
	return info
}

// Tools lists all visible tools and what they weigh.
func (d *Daemon) Tools(ctx context.Context, r ipc.ToolsRequest) (*ipc.ToolList, error) {
	v := d.viewFor(ctx, r.CWD)
	snapshot := d.index.Snapshot()
	var only *server
	if r.Server != "" {
		if only = v.server(r.Server); only == nil {
			return nil, v.noSuchServer(r.Server)
		}
		if only.gate == pending {
			return nil, needsTrust(only)
		}
	}
	if r.Category != "" {
		c, err := findCategory(snapshot, v, r.Category)
		if err != nil {
			return nil, err
		}
		r.Category = c.Name
	}
	active := d.activeIn()
	out := &ipc.ToolList{Tools: []ipc.ToolEntry{}, Servers: []ipc.ServerTotal{}}
	for e := range snapshot.All(v.visible) {
		out.Context.AllTools += e.Tool.Tokens
		pinned := slices.Contains(v.settings.Pinned, e.Tool.ID.String())
		if pinned {
			out.Context.Pinned += e.Tool.Tokens
		}
		if only != nil && e.Key != only.Key || r.Category != "" && !slices.Contains(e.Categories, r.Category) {
			continue
		}
		entry := ipc.ToolEntry{ToolInfo: d.toolInfo(v, e), Reached: ipc.Deferred}
		switch {
		case pinned:
			entry.Reached = ipc.Pinned
		case len(active[toolAt{e.Key, e.Tool.Name}]) > 0:
			entry.Reached = ipc.Active
		}
		entry.Active = entry.Reached != ipc.Deferred
		out.Tools = append(out.Tools, entry)
		if n := len(out.Servers); n == 0 || out.Servers[n-1].Name != e.Tool.Server {
			out.Servers = append(out.Servers, ipc.ServerTotal{Name: e.Tool.Server})
			out.Totals.Servers++
		}
		total := &out.Servers[len(out.Servers)-1]
		total.Tools++
		total.Tokens += e.Tool.Tokens
		out.Totals.Tools++
		out.Totals.Tokens += e.Tool.Tokens
	}
	out.Context.FixedTools = d.o.FixedTokens
	out.Context.Window = v.settings.ToolSearch.ContextWindow
	out.Context.Mode = d.decideMode(v)
	return out, nil
}

// Categories lists the categories, or one with its tools.
func (d *Daemon) Categories(ctx context.Context, r ipc.CategoriesRequest) (*ipc.CategoryList, error) {
	v := d.viewFor(ctx, r.CWD)
	snapshot := d.index.Snapshot()
	out := &ipc.CategoryList{Categories: []ipc.CategoryInfo{}}
	if r.Name != "" {
		c, err := findCategory(snapshot, v, r.Name)
		if err != nil {
			return nil, err
		}
		info := ipc.CategoryInfo{Name: c.Name, Server: c.Server, Description: c.Description, Tools: len(c.Tools), Members: []ipc.ToolInfo{}}
		for _, e := range c.Tools {
			info.Members = append(info.Members, d.toolInfo(v, e))
		}
		out.Categories, out.Total = append(out.Categories, info), len(c.Tools)
		return out, nil
	}
	for _, c := range snapshot.Categories(v.visible) {
		out.Categories = append(out.Categories, ipc.CategoryInfo{Name: c.Name, Server: c.Server, Description: c.Description, Tools: len(c.Tools)})
	}
	for range snapshot.All(v.visible) {
		out.Total++
	}
	return out, nil
}

// Activate answers with full definitions; with a session it makes them active
// there, and they count as seen.
func (d *Daemon) Activate(ctx context.Context, r ipc.ActivateRequest) (*ipc.Activation, error) {
	if len(r.ToolIDs) == 0 {
		return nil, ipc.Errorf(ipc.CodeUsage, "no tool is named").WithHint("give at least one id, for example server::tool")
	}
	s, v, err := d.caller(ctx, r.Session, r.CWD)
	if err != nil {
		return nil, err
	}
	out := &ipc.Activation{Tools: []ipc.ActivatedTool{}}
	seen := map[tool.ID]tool.Hash{}
	var ids []tool.ID
	for _, ref := range r.ToolIDs {
		e, err := d.resolve(v, ref)
		if err != nil {
			return nil, err
		}
		out.Tools = append(out.Tools, ipc.ActivatedTool{ToolID: e.Tool.ID.String(), Definition: e.Tool.Raw})
		seen[e.Tool.ID] = e.Tool.Hash
		ids = append(ids, e.Tool.ID)
	}
	d.noteShown(v, seen)
	if s != nil {
		s.Session.Saw(seen, false)
		if s.Session.Activate(ids...) {
			s.refresh()
		}
	}
	return out, nil
}

// caller is the session of that id and its view, or the view of a directory.
func (d *Daemon) caller(ctx context.Context, id, cwd string) (*attached, view, error) {
	if id == "" {
		return nil, d.viewFor(ctx, cwd), nil
	}
	d.mu.Lock()
	s := d.sessions[id]
	d.mu.Unlock()
	if s == nil {
		return nil, view{}, ipc.Errorf(ipc.CodeNotFound, "there is no session %q", tool.CleanLine(id)).WithHint("leave the session out, or begin one with POST /v1/sessions")
	}
	return s, s.view(), nil
}

// restartLimit is how long Restart waits: as long as a first start may take, and
// the end of what ran before.
const restartLimit = 75 * time.Second

// Restart connects a server anew and tells the outcome: how it is then, or that it
// is still starting after restartLimit.
func (d *Daemon) Restart(ctx context.Context, r ipc.ServerRequest) (*ipc.ServerInfo, error) {
	limited, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	_ = d.awaitServers(limited, 0) // ctx is asked below
	v := d.viewFor(limited, r.CWD)
	s := v.server(r.Name)
	if s != nil && v.gateOf(s) == unusable && d.readEnvironAgain(limited) == nil {
		v = d.world.Load().from(v.cwd)
		s = v.server(r.Name)
	}
	if s == nil {
		return nil, v.noSuchServer(r.Name)
	}
	switch v.gateOf(s) {
	case pending:
		return nil, needsTrust(s)
	case disabled:
		return nil, ipc.Errorf(ipc.CodeUsage, "server %s is disabled", s.Name).WithHint("enable it in %s", s.Source.File)
	case unusable:
		return nil, ipc.Errorf(ipc.CodeServerDown, "server %s cannot be used: %s", s.Name, s.redactor.Redact(s.Problem)).WithHint("%s", s.Hint)
	}
	d.upstream.Restart(limited, s.Key)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	info := d.serverInfo(v, s, d.weigh(v))
	return &info, nil
}

// defaultLogLines is the end of a log that fits on a screen or two.
const defaultLogLines = 50

// Log returns the end of what a server wrote to stderr.
func (d *Daemon) Log(ctx context.Context, r ipc.ServerRequest) (*ipc.ServerLog, error) {
	v := d.viewFor(ctx, r.CWD)
	s := v.server(r.Name)
	if s == nil {
		return nil, v.noSuchServer(r.Name)
	}
	if v.gateOf(s) == pending {
		return nil, needsTrust(s)
	}
	out := &ipc.ServerLog{Name: s.Name, File: upstream.LogFile(d.serversDir(), s.Key), Lines: []string{}}
	n := cmp.Or(r.Lines, defaultLogLines)
	lines := linesOf(out.File)
	if len(lines) < n { // the file may have been begun a moment ago
		lines = append(linesOf(upstream.OldLogFile(out.File)), lines...)
	}
	for _, line := range lines[max(0, len(lines)-n):] {
		out.Lines = append(out.Lines, s.redactor.Redact(tool.CleanLine(line)))
	}
	return out, nil
}

// linesOf are the lines of a file, none where there is no file.
func linesOf(path string) []string {
	data, _ := os.ReadFile(path) // nothing was written yet
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n")
}
