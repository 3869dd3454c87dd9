package daemon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsd/toolsd/daemon/session"
	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher/settings"
)

// attached is one agent. It implements ipc.Session.
type attached struct {
	*session.Session
	d        *Daemon
	id       string
	request  ipc.AttachRequest
	mode     ipc.Mode
	settings settings.Settings // as they were when the session began
	since    time.Time
	events   ipc.Events
	hello    ipc.Hello
	poke     chan struct{} // the world or the index changed
	done     chan struct{}
	close    func()
	bye      atomic.Bool
	seeing   atomic.Pointer[view]

	// turn orders the lists that this session is sent. It is held while one is
	// written, so that a list is out before the answer that made it change; only
	// this session waits for it, and who looks at what was sent does not.
	turn sync.Mutex
	sent atomic.Pointer[[]ipc.Listed]
}

// attachRead is how long a session waits for the config files of a project that
// was never asked about before.
const attachRead = 500 * time.Millisecond

// Attach begins a session.
func (d *Daemon) Attach(ctx context.Context, r ipc.AttachRequest, events ipc.Events) (ipc.Session, error) {
	release := d.watcher.Keep(r.CWD)
	d.readProject(ctx, r.CWD, attachRead)
	w := d.world.Load()
	v := w.from(r.CWD)
	s := &attached{
		Session: session.New(r.Seen, r.Active, r.Listed),
		d:       d, id: "s-" + strings.ToLower(rand.Text()[:10]), request: r, settings: w.settings, since: time.Now(),
		events: events, poke: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.mode = s.request.Mode
	if s.mode == "" || s.mode == ipc.Auto {
		s.mode = d.decideMode(v)
	}
	list := s.build()
	s.sent.Store(&list)
	s.hello = ipc.Hello{Session: s.id, Mode: s.mode, Servers: d.briefs(v), List: list}
	ctx, cancel := context.WithCancel(ctx)
	var once sync.Once
	s.close = func() {
		once.Do(func() {
			cancel()
			release()
			d.detach(s)
			close(s.done)
		})
	}
	d.mu.Lock()
	d.sessions[s.id] = s
	d.mu.Unlock()
	s.hello.Daemon = d.info()
	context.AfterFunc(ctx, s.close)
	select {
	case <-d.ended: // closeSessions may not have found it
		s.end()
	default:
	}
	s.wake() // what changed since the list was built woke nobody
	go s.follow()
	d.log.Info("session", "id", s.id, "client", tool.CleanLine(r.Client), "mode", s.mode)
	return s, nil
}

func (d *Daemon) detach(s *attached) {
	d.mu.Lock()
	delete(d.sessions, s.id)
	own := false
	for i := range d.instances {
		if i.name == s.id {
			delete(d.instances, i)
			own = true
		}
	}
	d.mu.Unlock()
	if own {
		d.reconcileSoon()
	}
}

func (d *Daemon) closeSessions() {
	for _, s := range d.attachedSessions() {
		s.end()
	}
}

// end closes a session because the daemon was told to end.
func (s *attached) end() {
	s.bye.Store(true)
	s.close()
}

func (d *Daemon) attachedSessions() []*attached {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*attached, 0, len(d.sessions))
	for _, s := range d.sessions {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *attached) int { return cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id)) })
	return out
}

func (d *Daemon) wakeSessions() {
	for _, s := range d.attachedSessions() {
		s.wake()
	}
}

// wake makes follow compare once more. It never waits: anybody may call it, also
// while the session is not followed yet.
func (s *attached) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// decideMode is rule 12: search mode when the visible tool specs weigh more than
// either threshold allows, or when they cannot be weighed yet.
func (d *Daemon) decideMode(v view) ipc.Mode {
	t := v.settings.ToolSearch
	if !t.Enabled {
		return ipc.Direct
	}
	if t.MinPct == 0 && t.MinTokens == 0 {
		return ipc.Search
	}
	if len(d.neverIndexed(v)) > 0 || !v.complete {
		return ipc.Search
	}
	limit := math.MaxFloat64
	if t.MinPct > 0 {
		limit = t.MinPct / 100 * float64(t.ContextWindow)
	}
	if t.MinTokens > 0 {
		limit = min(limit, float64(t.MinTokens))
	}
	tokens := 0
	for e := range d.index.Snapshot().All(v.visible) {
		if tokens += e.Tool.Tokens; float64(tokens) > limit {
			return ipc.Search
		}
	}
	return ipc.Direct
}

// follow sends the list again whenever the world or the index changed it.
func (s *attached) follow() {
	for {
		select {
		case <-s.done:
			return
		case <-s.poke:
			s.refresh()
		}
	}
}

// refresh sends the list if it differs from the one sent last.
func (s *attached) refresh() {
	s.turn.Lock()
	defer s.turn.Unlock()
	list := s.build()
	if slices.EqualFunc(list, *s.sent.Load(), sameListed) {
		return
	}
	s.sent.Store(&list)
	if s.events.List != nil {
		s.events.List(list)
	}
}

func sameListed(a, b ipc.Listed) bool {
	return a.ID == b.ID && a.Name == b.Name && bytes.Equal(a.Definition, b.Definition)
}

// build is the session's complete list: the active tools in the order in which
// they became so, the pinned first of all. In direct mode every visible tool is
// active. A tool leaves only when its server or its definition is gone.
func (s *attached) build() []ipc.Listed {
	v := s.view()
	snapshot := s.d.index.Snapshot()
	for _, p := range s.settings.Pinned {
		if id, ok := tool.ParseID(p); ok && find(snapshot, v, id) != nil {
			s.Activate(id)
		}
	}
	if s.mode == ipc.Direct {
		var all []tool.ID
		for e := range snapshot.All(v.visible) {
			all = append(all, e.Tool.ID)
		}
		s.Activate(all...)
	}
	s.Deactivate(func(id tool.ID) bool { return find(snapshot, v, id) == nil && !s.mayReturn(v, id) })
	list := []ipc.Listed{}
	for _, id := range s.Active() {
		if t := find(snapshot, v, id); t != nil {
			list = append(list, listedOf(t))
		}
	}
	return list
}

// toolAt is a tool by its server's key: the same id may be another one's in
// another project.
type toolAt struct{ key, name string }

// activeIn returns for each tool the sessions that have it active.
func (d *Daemon) activeIn() map[toolAt][]*attached {
	out := map[toolAt][]*attached{}
	for _, a := range d.attachedSessions() {
		v := a.view()
		for _, id := range a.Active() {
			if s := v.server(id.Server); s != nil {
				t := toolAt{s.Key, id.Name}
				out[t] = append(out[t], a)
			}
		}
	}
	return out
}

// find returns the visible tool of exactly that id, or nil.
func find(snapshot index.Reader, v view, id tool.ID) *tool.Tool {
	for _, e := range snapshot.Find(id.String(), v.visible) {
		if e.Tool.ID == id {
			return e.Tool
		}
	}
	return nil
}

// mayReturn reports whether a tool that is not indexed may only not have been
// listed yet: its server is there, and its index was lost; or nobody knows which
// servers there are, because the config files are still being read.
func (s *attached) mayReturn(v view, id tool.ID) bool {
	server := v.server(id.Server)
	if server == nil {
		return !s.d.watcher.Covers(v.of, s.request.CWD)
	}
	if v.gateOf(server) == pending || v.gateOf(server) == disabled {
		return false
	}
	_, confirmed := s.d.listed.Load(server.Key)
	return !confirmed
}

func listedOf(t *tool.Tool) ipc.Listed {
	return ipc.Listed{
		ID: t.ID, Name: t.Exposed, Hash: t.Hash, Tokens: t.Tokens, ReadOnly: t.Annotations.IsReadOnly(), Definition: t.As(t.Exposed),
	}
}

// view is what this session sees of the present world. It is kept, because a call
// asks for it some times.
func (s *attached) view() view {
	w := s.d.world.Load()
	if v := s.seeing.Load(); v != nil && v.world == w {
		return *v
	}
	v := w.from(s.request.CWD)
	s.seeing.Store(&v)
	return v
}

func (s *attached) Hello() ipc.Hello      { return s.hello }
func (s *attached) Done() <-chan struct{} { return s.done }
func (s *attached) Bye() bool             { return s.bye.Load() }

func (s *attached) Close() error {
	s.close()
	return nil
}

func (s *attached) Saw(_ context.Context, seen map[tool.ID]tool.Hash, listed bool) error {
	s.Session.Saw(seen, listed)
	s.d.noteShown(s.view(), seen)
	return nil
}

// noteShown takes the mark "changed" from tools whose present definition an
// agent has been shown. Where changed tools are held, only an approval does.
func (d *Daemon) noteShown(v view, seen map[tool.ID]tool.Hash) {
	if v.settings.Trust.Tools == "hold" {
		return
	}
	snapshot := d.index.Snapshot()
	shown := map[trust.Subject][]*tool.Tool{}
	for id, hash := range seen {
		for _, e := range snapshot.Find(id.String(), v.visible) {
			if e.Tool.ID == id && e.Tool.Hash == hash {
				shown[trust.Subject(e.Key)] = append(shown[trust.Subject(e.Key)], e.Tool)
			}
		}
	}
	for subject, tools := range shown {
		if err := d.trust.SawTool(subject, tools...); err != nil {
			d.log.Warn("remembering definitions that were shown", "server", tools[0].Server, "cause", err)
		}
	}
}

// Search finds and activates in one step.
func (s *attached) Search(ctx context.Context, r ipc.SearchRequest) (*ipc.SearchResult, error) {
	r.CWD = s.request.CWD
	v := s.view()
	if r.Max == 0 {
		r.Max = s.settings.ToolSearch.MaxResults
	}
	var result *ipc.SearchResult
	if r.ToolID != "" {
		e, err := s.d.resolve(v, r.ToolID)
		if err != nil {
			return nil, err
		}
		result = &ipc.SearchResult{Query: r.ToolID, Count: 1, Confidence: 1, Matches: []ipc.Match{{ToolInfo: s.d.toolInfo(v, s.d.index.Snapshot().Categorized(e, v.visible))}}}
	} else {
		var err error
		if result, err = s.d.search(v, r, threshold(s.settings, s.request.Threshold)); err != nil {
			return nil, err
		}
	}
	snapshot := s.d.index.Snapshot()
	ids := make([]tool.ID, 0, len(result.Matches))
	for i := range result.Matches {
		m := &result.Matches[i]
		id := tool.ID{Server: m.Server, Name: m.Tool}
		if t := find(snapshot, v, id); t != nil {
			l := listedOf(t)
			m.Listed = &l
			ids = append(ids, id)
		}
	}
	if s.Activate(ids...) {
		s.refresh()
	}
	return result, nil
}

// briefs describes the visible servers to an agent.
func (d *Daemon) briefs(v view) []ipc.ServerBrief {
	snapshot := d.index.Snapshot()
	tools := map[string]int{}
	for e := range snapshot.All(v.visible) {
		tools[e.Key]++
	}
	about := map[string][]string{} // by server: what its categories are about
	for _, c := range snapshot.Categories(v.visible) {
		text := cmp.Or(c.Description, c.Name)
		for i, e := range c.Tools {
			if (i == 0 || e.Key != c.Tools[i-1].Key) && !slices.Contains(about[e.Key], text) {
				about[e.Key] = append(about[e.Key], text)
			}
		}
	}
	out := []ipc.ServerBrief{}
	for _, s := range v.list() {
		if tools[s.Key] == 0 {
			continue
		}
		text := strings.Join(about[s.Key], "; ")
		if l, ok := snapshot.Listing(s.Key); ok && l.Instructions != "" {
			text = l.Instructions
		}
		out = append(out, ipc.ServerBrief{Name: s.Name, Tools: tools[s.Key], About: tool.Cut(tool.CleanLine(text), 200)})
	}
	return out
}
