package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher/settings"
)

// lowConfidence is under what share of the best possible score a match is called
// weak. Nothing is hidden for it.
const lowConfidence = 0.15

// Search answers from the present world and index; it waits for nothing.
func (d *Daemon) Search(_ context.Context, r ipc.SearchRequest) (*ipc.SearchResult, error) {
	known := d.knows(r.CWD)
	v := d.world.Load().from(r.CWD)
	result, err := d.search(v, r, threshold(v.settings, r.Threshold))
	if err == nil && !known {
		result.Unread = r.CWD
	}
	return result, err
}

// threshold is the least score of a match: that of the caller's environment, if it
// has one and may.
func threshold(s settings.Settings, own *float64) float64 {
	if own == nil || s.IsLocked("toolSearch.matchingThreshold") {
		return s.ToolSearch.MatchingThreshold
	}
	return *own
}

func (d *Daemon) search(v view, r ipc.SearchRequest, threshold float64) (*ipc.SearchResult, error) {
	if strings.TrimSpace(r.Query) == "" {
		return nil, ipc.Errorf(ipc.CodeEmptyQuery, "the query is empty").WithHint("say what the tool should do, for example `toolsd search export gerber`")
	}
	snapshot := d.index.Snapshot()
	if r.Server != "" {
		s := v.server(r.Server)
		if s == nil {
			return nil, v.noSuchServer(r.Server)
		}
		if v.gateOf(s) == pending {
			return nil, needsTrust(s)
		}
		r.Server = s.Name
	}
	if r.Category != "" {
		c, err := findCategory(snapshot, v, r.Category)
		if err != nil {
			return nil, err
		}
		r.Category = c.Name
	}
	found := snapshot.Search(index.Query{
		Text: r.Query, Max: cmp.Or(r.Max, v.settings.ToolSearch.MaxResults), Server: r.Server, Category: r.Category,
		Threshold: threshold, Explain: r.Explain, View: v.visible,
	})
	result := &ipc.SearchResult{
		Query: r.Query, Count: len(found.Matches), Matches: make([]ipc.Match, 0, len(found.Matches)),
		Confidence: round(found.Confidence, 3), Rewrites: found.Rewrites, DidYouMean: found.DidYouMean,
		Waiting: d.neverIndexed(v), Servers: d.serverNotes(v, r),
	}
	for _, m := range found.Matches {
		result.Matches = append(result.Matches, ipc.Match{
			ToolInfo: d.toolInfo(v, m.Entry), Score: round(m.Score, 2), Matched: m.Matched,
		})
	}
	result.Note = note(found, result)
	if len(found.Matches) > 0 && result.Matches[0].State == ipc.ToolLazy {
		d.upstream.Wake(found.Matches[0].Key) // the likely next call finds it started
	}
	return result, nil
}

// round keeps a score short on the wire.
func round(f float64, digits int) float64 {
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return float64(int64(f*scale+0.5)) / scale
}

// note says in sentences what a list of matches cannot.
func note(found index.Result, result *ipc.SearchResult) string {
	var notes []string
	for _, w := range found.Rewrites {
		notes = append(notes, fmt.Sprintf("Read %q as %s.", w.Word, strings.Join(w.As, ", ")))
	}
	switch {
	case result.Count == 0:
		notes = append(notes, "Nothing matches.")
		if len(found.DidYouMean) > 0 {
			notes = append(notes, "Did you mean "+strings.Join(found.DidYouMean, ", ")+"?")
		}
		if len(found.Near) > 0 {
			notes = append(notes, "The nearest categories: "+strings.Join(found.Near, ", ")+".")
		}
	case found.Confidence < lowConfidence:
		notes = append(notes, "Low confidence: these match only in part.")
	}
	if len(result.Waiting) > 0 && result.Count == 0 {
		notes = append(notes, "Still starting for the first time: "+strings.Join(result.Waiting, ", ")+".")
	}
	return strings.Join(append(notes, result.Servers...), " ")
}

// serverNotes tells about servers that a search names and that cannot answer.
func (d *Daemon) serverNotes(v view, r ipc.SearchRequest) []string {
	words := strings.FieldsFunc(strings.ToLower(r.Query), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' })
	var notes []string
	for _, s := range v.list() {
		if s.Name != r.Server && !slices.Contains(words, strings.ToLower(s.Name)) {
			continue
		}
		switch info := d.serverInfo(v, s, nil); info.State {
		case ipc.StatePending:
			notes = append(notes, fmt.Sprintf("Server %s waits for the user's approval (`toolsd trust %s`).", s.Name, s.Name))
		case ipc.StateFailed, ipc.StateBackoff:
			note := "Server " + s.Name + " is down"
			if info.Problem != "" {
				note += ": " + strings.TrimSuffix(info.Problem, ".")
			}
			notes = append(notes, note+".")
		case ipc.StateDisabled:
			notes = append(notes, fmt.Sprintf("Server %s is disabled in %s.", s.Name, s.Source.File))
		case ipc.StateStarting:
			notes = append(notes, fmt.Sprintf("Server %s is starting.", s.Name))
		}
	}
	return notes
}

// neverIndexed names the visible servers that are starting and whose tools
// nobody knows yet. Failed, pending and disabled ones do not count.
func (d *Daemon) neverIndexed(v view) []string {
	snapshot := d.index.Snapshot()
	var names []string
	for _, s := range v.list() {
		if v.gateOf(s) != open {
			continue
		}
		if _, known := snapshot.Listing(s.Key); known {
			continue
		}
		if st, ok := d.status(s.Key); !ok || st.State == upstream.Starting {
			names = append(names, s.Name)
		}
	}
	return names
}

// status is how upstream sees a server; not ok before it was told of it.
func (d *Daemon) status(key string) (upstream.Status, bool) {
	st := d.upstream.Status(key)
	return st, st.State != ""
}

// toolInfo is what every list says of a tool.
func (d *Daemon) toolInfo(v view, e index.Entry) ipc.ToolInfo {
	return ipc.ToolInfo{
		ToolID: e.Tool.ID.String(), Server: e.Tool.Server, Tool: e.Tool.Name, Name: e.Tool.Exposed,
		Category: e.Category, Description: e.Tool.Description, Tokens: e.Tool.Tokens, State: d.toolState(v, e.Key),
	}
}

func (d *Daemon) toolState(v view, key string) ipc.ToolState {
	s := v.mine[key]
	if s == nil || v.gateOf(s) != open {
		return ipc.ToolDown
	}
	st, _ := d.status(key)
	_, confirmed := d.listed.Load(key)
	switch st.State {
	case upstream.Ready:
		if confirmed {
			return ipc.ToolReady
		}
		return ipc.ToolStarting
	case upstream.Starting:
		return ipc.ToolStarting
	case upstream.Lazy:
		return ipc.ToolLazy
	case upstream.Backoff, upstream.Failed:
		return ipc.ToolDown
	}
	return ipc.ToolStale
}

// resolve finds the one tool that ref names for this caller.
func (d *Daemon) resolve(v view, ref string) (index.Entry, error) {
	shown := tool.CleanLine(ref)
	snapshot := d.index.Snapshot()
	found := snapshot.Find(ref, v.visible)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
	default:
		err := ipc.Errorf(ipc.CodeAmbiguous, "%q is the name of %d tools", shown, len(found))
		for _, e := range found {
			err.Candidates = append(err.Candidates, e.Tool.ID.String())
		}
		return index.Entry{}, err.WithHint("name one of them: %s", strings.Join(err.Candidates, ", "))
	}
	s, name := v.serverOf(ref)
	if held := snapshot.Find(ref, v.heldBack); len(held) > 0 {
		// Of such a tool nothing is told but what was typed.
		err := ipc.Errorf(ipc.CodeNeedsTrust, "tool %q waits for approval: its definition is %s since the user's agents last saw it, and trust.tools is hold",
			shown, d.trust.Changed(trust.Subject(held[0].Key), held[0].Tool))
		if s == nil {
			return index.Entry{}, err.WithHint("`toolsd trust list` shows what waits")
		}
		return index.Entry{}, err.WithHint("look at it and approve it with `toolsd trust %s`", held[0].Tool.ID)
	}
	if s != nil {
		switch v.gateOf(s) {
		case pending:
			return index.Entry{}, needsTrust(s)
		case disabled:
			return index.Entry{}, ipc.Errorf(ipc.CodeNotFound, "server %s is disabled in %s", s.Name, s.Source.File).
				WithHint("enable it there to use %s", tool.CleanLine(name))
		case unusable:
			return index.Entry{}, ipc.Errorf(ipc.CodeServerDown, "server %s cannot be used: %s", s.Name, s.redactor.Redact(s.Problem)).WithHint("%s", s.Hint)
		}
		if !s.Passes(name) {
			return index.Entry{}, ipc.Errorf(ipc.CodeNotFound, "%s is hidden by the tool filter of server %s", shown, s.Name).
				WithHint("the filter stands in %s", s.Source.File)
		}
		if _, known := snapshot.Listing(s.Key); !known {
			info := d.serverInfo(v, s, nil)
			if info.Problem == "" {
				return index.Entry{}, ipc.Errorf(ipc.CodeServerDown, "server %s is %s and has not listed its tools yet", s.Name, info.State).
					WithHint("`toolsd status` shows when it is ready")
			}
			return index.Entry{}, ipc.Errorf(ipc.CodeServerDown, "server %s is %s: %s", s.Name, info.State, info.Problem).WithHint("%s", info.Hint)
		}
	}
	err := ipc.Errorf(ipc.CodeNotFound, "there is no tool %q", shown)
	if near := snapshot.Suggest(ref, 3, v.visible); len(near) > 0 {
		err.Candidates = near
		return index.Entry{}, err.WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return index.Entry{}, err.WithHint("`toolsd search <words>` finds tools by what they do")
}

// serverOf splits a spelling of a tool's id at a server that the caller sees.
func (v view) serverOf(ref string) (*server, string) {
	for _, separator := range []string{"::", ".", "/"} {
		for i := 0; i < len(ref); i++ {
			if strings.HasPrefix(ref[i:], separator) {
				if s := v.server(ref[:i]); s != nil {
					return s, ref[i+len(separator):]
				}
			}
		}
	}
	return nil, ""
}

func needsTrust(s *server) *ipc.Error {
	return ipc.Errorf(ipc.CodeNeedsTrust, "server %s, from %s, waits for approval", s.Name, s.Source.File).
		WithHint("look at it and approve it with `toolsd trust %s`", s.Name)
}

// findCategory finds a category by its name, or by its last part when that is
// the name of only one.
func findCategory(snapshot index.Reader, v view, name string) (index.Category, error) {
	all := snapshot.Categories(v.visible)
	var folded []index.Category
	var names []string
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
		if strings.EqualFold(c.Name, name) || strings.EqualFold(c.Name[strings.LastIndexByte(c.Name, '/')+1:], name) {
			folded = append(folded, c)
		}
		names = append(names, c.Name)
	}
	shown := tool.CleanLine(name)
	switch len(folded) {
	case 1:
		return folded[0], nil
	case 0:
		err := ipc.Errorf(ipc.CodeNotFound, "there is no category %q", shown)
		if near := tool.Nearest(name, names, 3); len(near) > 0 {
			err.Candidates = near
			return index.Category{}, err.WithHint("did you mean %s?", strings.Join(near, " or "))
		}
		return index.Category{}, err.WithHint("`toolsd categories` lists them")
	}
	err := ipc.Errorf(ipc.CodeAmbiguous, "%q is the name of %d categories", shown, len(folded))
	for _, c := range folded {
		err.Candidates = append(err.Candidates, c.Name)
	}
	return index.Category{}, err.WithHint("name one of them: %s", strings.Join(err.Candidates, ", "))
}
