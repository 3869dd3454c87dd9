package shim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// world is what the rules are tested in: a daemon and its servers, with the
// knobs that a test turns. The name of a tool says what it does when called:
//
//	fail…   answers the JSON-RPC error -32042 with data that a float64 cannot hold
//	wait…   answers only when it is cancelled
//	steps…  sends two progress notifications, then echoes
//	echo…   answers its arguments as text, in a result that every client takes
//	other   echoes: its arguments as text, its _meta, a content type that nobody
//	        knows, and a number above 2^53
type world interface {
	// Connect reaches the daemon.
	Connect(context.Context) (ipc.Backend, error)
	// Set gives a server exactly these tools, each a definition as JSON.
	Set(server string, definitions ...string)
	// Pin pins tools for sessions that begin later.
	Pin(ids ...string)
	// Calls are those that have reached a server, as "server::tool arguments";
	// one that was cancelled is there again as "cancelled server::tool".
	Calls() []string
	// Crash kills the daemon. Unless stayDown, Connect finds a new one that
	// remembers nothing of the sessions.
	Crash(stayDown bool)
	// Virtual says that the world may live in a synctest bubble.
	Virtual() bool
}

// memoryWorld is a daemon without processes: it keeps the rules about what may
// run as the real one does, over tools in maps.
type memoryWorld struct {
	mu       sync.Mutex
	names    *tool.Names
	tools    map[tool.ID]*tool.Tool
	entries  map[tool.ID]ipc.Listed
	order    []tool.ID
	pinned   []tool.ID
	about    map[string]string
	calls    []string
	sessions map[*memorySession]bool
	down     bool
	waiting  []string
	note     string
	attached []ipc.AttachRequest
}

func newMemoryWorld(*testing.T) world {
	return &memoryWorld{
		names: tool.NewNames(nil, shim.FixedNames()...), tools: map[tool.ID]*tool.Tool{}, entries: map[tool.ID]ipc.Listed{}, about: map[string]string{},
		sessions: map[*memorySession]bool{},
	}
}

func (w *memoryWorld) Virtual() bool { return true }

var errDown = ipc.Errorf(ipc.CodeNoDaemon, "no daemon runs").WithHint("start it with `toolsd start`")

func (w *memoryWorld) Connect(ctx context.Context) (ipc.Backend, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errDown
	}
	return &memoryBackend{w}, ctx.Err()
}

func (w *memoryWorld) Set(server string, definitions ...string) {
	var tools []*tool.Tool
	for _, d := range definitions {
		t, err := tool.Parse(server, json.RawMessage(d))
		if err != nil {
			panic(err)
		}
		tools = append(tools, t)
	}
	w.set(server, tools)
}

func (w *memoryWorld) set(server string, tools []*tool.Tool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[tool.ID]bool{}
	for _, t := range tools {
		t = t.On(server) // a copy
		t.Exposed = w.names.Of(t.ID)
		if w.tools[t.ID] == nil {
			w.order = append(w.order, t.ID)
		}
		w.tools[t.ID], w.entries[t.ID] = t, listed(t)
		now[t.ID] = true
	}
	w.order = slices.DeleteFunc(w.order, func(id tool.ID) bool {
		gone := id.Server == server && !now[id]
		if gone {
			delete(w.tools, id)
		}
		return gone
	})
	for s := range w.sessions {
		s.push()
	}
}

func (w *memoryWorld) Pin(ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pinned = nil
	for _, text := range ids {
		id, _ := tool.ParseID(text)
		w.pinned = append(w.pinned, id)
	}
}

func (w *memoryWorld) Calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *memoryWorld) Crash(stayDown bool) {
	w.mu.Lock()
	sessions := slices.Collect(maps.Keys(w.sessions))
	w.sessions = map[*memorySession]bool{}
	w.down = stayDown
	w.mu.Unlock()
	for _, s := range sessions {
		s.end()
	}
}

// up brings a daemon back that stayed down.
func (w *memoryWorld) up() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

func (w *memoryWorld) find(ref string) *tool.Tool {
	for _, separator := range []string{"::", ".", "/"} {
		if server, name, ok := strings.Cut(ref, separator); ok {
			if t := w.tools[tool.ID{Server: server, Name: name}]; t != nil {
				return t
			}
		}
	}
	for _, id := range w.order {
		if t := w.tools[id]; strings.EqualFold(t.Exposed, ref) || t.Name == ref {
			return t
		}
	}
	return nil
}

// memoryBackend is one daemon of the world.
type memoryBackend struct{ *memoryWorld }

func (b *memoryBackend) unused() error { return errors.New("no agent asks this") }

func (b *memoryBackend) Status(context.Context, ipc.StatusRequest) (*ipc.Status, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Search(context.Context, ipc.SearchRequest) (*ipc.SearchResult, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Tools(context.Context, ipc.ToolsRequest) (*ipc.ToolList, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Activate(context.Context, ipc.ActivateRequest) (*ipc.Activation, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Call(context.Context, ipc.CallRequest) (json.RawMessage, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Why(context.Context, ipc.WhyRequest) (*ipc.Why, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Trust(context.Context, ipc.TrustRequest) (*ipc.TrustList, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Restart(context.Context, ipc.ServerRequest) (*ipc.ServerInfo, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Log(context.Context, ipc.ServerRequest) (*ipc.ServerLog, error) {
	return nil, b.unused()
}
func (b *memoryBackend) Stop(context.Context) (*ipc.DaemonInfo, error) { return nil, b.unused() }

// Categories of this world are the servers.
func (b *memoryBackend) Categories(_ context.Context, r ipc.CategoriesRequest) (*ipc.CategoryList, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &ipc.CategoryList{}
	for _, id := range b.order {
		t := b.tools[id]
		if r.Name != "" && r.Name != id.Server {
			continue
		}
		if n := len(out.Categories); n == 0 || out.Categories[n-1].Name != id.Server {
			out.Categories = append(out.Categories, ipc.CategoryInfo{Name: id.Server, Server: id.Server, Description: "holds " + id.String() + " and more"})
		}
		c := &out.Categories[len(out.Categories)-1]
		c.Tools++
		out.Total++
		if r.Name != "" {
			c.Members = append(c.Members, info(t))
		}
	}
	if r.Name != "" && len(out.Categories) == 0 {
		err := ipc.Errorf(ipc.CodeNotFound, "there is no category %q", r.Name)
		if len(b.order) > 0 {
			err.Candidates = []string{b.order[0].Server}
		}
		return nil, err
	}
	return out, nil
}

func info(t *tool.Tool) ipc.ToolInfo {
	return ipc.ToolInfo{
		ToolID: t.ID.String(), Server: t.Server, Tool: t.Name, Name: t.Exposed, Category: t.Server,
		Description: t.Description, Tokens: t.Tokens, State: ipc.ToolReady,
	}
}

func (b *memoryBackend) Attach(ctx context.Context, r ipc.AttachRequest, events ipc.Events) (ipc.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, errDown
	}
	b.attached = append(b.attached, r)
	s := &memorySession{w: b.memoryWorld, events: events, mode: r.Mode, done: make(chan struct{}), seen: maps.Clone(r.Seen), has: map[tool.ID]bool{}, listed: map[tool.ID]bool{}}
	if s.seen == nil {
		s.seen = map[tool.ID]tool.Hash{}
	}
	for _, id := range r.Listed {
		s.listed[id] = true
	}
	for _, id := range slices.Concat(r.Active, b.pinned) {
		s.activate(id)
	}
	if s.mode == "" || s.mode == ipc.Auto {
		s.mode = ipc.Search
	}
	s.sent = s.list()
	s.hello = ipc.Hello{Session: fmt.Sprintf("s%d", len(b.attached)), Mode: s.mode, List: s.sent}
	for _, id := range b.order {
		if n := len(s.hello.Servers); n == 0 || s.hello.Servers[n-1].Name != id.Server {
			s.hello.Servers = append(s.hello.Servers, ipc.ServerBrief{Name: id.Server, About: b.about[id.Server]})
		}
		s.hello.Servers[len(s.hello.Servers)-1].Tools++
	}
	b.sessions[s] = true
	context.AfterFunc(ctx, s.end)
	return s, nil
}

type memorySession struct {
	w      *memoryWorld
	events ipc.Events
	mode   ipc.Mode
	hello  ipc.Hello
	done   chan struct{}
	once   sync.Once

	// guarded by w.mu
	seen   map[tool.ID]tool.Hash
	active []tool.ID
	has    map[tool.ID]bool // active
	listed map[tool.ID]bool
	sent   []ipc.Listed
}

func (s *memorySession) Hello() ipc.Hello      { return s.hello }
func (s *memorySession) Done() <-chan struct{} { return s.done }
func (s *memorySession) Bye() bool             { return false }
func (s *memorySession) end()                  { s.once.Do(func() { close(s.done) }) }

func (s *memorySession) Close() error {
	s.w.mu.Lock()
	delete(s.w.sessions, s)
	s.w.mu.Unlock()
	s.end()
	return nil
}

func (s *memorySession) Saw(_ context.Context, seen map[tool.ID]tool.Hash, listed bool) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	maps.Copy(s.seen, seen)
	if listed {
		s.listed = map[tool.ID]bool{}
		for id := range seen {
			s.listed[id] = true
		}
	}
	return nil
}

func (s *memorySession) activate(id tool.ID) {
	if !s.has[id] {
		s.has[id] = true
		s.active = append(s.active, id)
	}
}

func listed(t *tool.Tool) ipc.Listed {
	return ipc.Listed{ID: t.ID, Name: t.Exposed, Hash: t.Hash, Tokens: t.Tokens, ReadOnly: t.Annotations.IsReadOnly(), Definition: t.As(t.Exposed)}
}

// list is built with w.mu held.
func (s *memorySession) list() []ipc.Listed {
	if s.mode == ipc.Direct {
		for _, id := range s.w.order {
			s.activate(id)
		}
	}
	out := []ipc.Listed{}
	for _, id := range s.active {
		if s.w.tools[id] != nil {
			out = append(out, s.w.entries[id])
		}
	}
	return out
}

// push sends the list if it changed, with w.mu held.
func (s *memorySession) push() {
	list := s.list()
	same := slices.EqualFunc(list, s.sent, func(a, b ipc.Listed) bool {
		return a.Name == b.Name && string(a.Definition) == string(b.Definition)
	})
	if s.sent = list; !same && s.events.List != nil {
		s.events.List(list)
	}
}

func (s *memorySession) Search(_ context.Context, r ipc.SearchRequest) (*ipc.SearchResult, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	out := &ipc.SearchResult{Query: r.Query, Matches: []ipc.Match{}, Confidence: 1, Note: s.w.note, Waiting: s.w.waiting}
	var hits []*tool.Tool
	if r.ToolID != "" {
		t := s.w.find(r.ToolID)
		if t == nil {
			return nil, s.w.unknown(r.ToolID)
		}
		out.Query, hits = r.ToolID, append(hits, t)
	} else {
		words := strings.FieldsFunc(strings.ToLower(r.Query), func(r rune) bool { return strings.ContainsRune(", \n", r) })
		for _, id := range s.w.order {
			t := s.w.tools[id]
			if slices.ContainsFunc(words, func(word string) bool {
				return word == id.String() || strings.Contains(strings.ToLower(t.Name+" "+t.Description), word)
			}) {
				hits = append(hits, t)
			}
		}
		limit := r.Max
		if limit == 0 {
			limit = 5
		}
		hits = hits[:min(limit, len(hits))]
		if typo := strings.Contains(r.Query, "gerbr"); typo {
			out.Rewrites = []index.Rewrite{{Word: "gerbr", As: []string{"gerber"}, Why: "typo"}}
		}
	}
	for _, t := range hits {
		l := listed(t)
		s.activate(t.ID)
		out.Matches = append(out.Matches, ipc.Match{ToolInfo: info(t), Listed: &l})
	}
	out.Count = len(out.Matches)
	s.push()
	return out, nil
}

func (w *memoryWorld) unknown(ref string) *ipc.Error {
	err := ipc.Errorf(ipc.CodeNotFound, "there is no tool %q", ref)
	for _, id := range w.order {
		if strings.Contains(ref, id.Name[:len(id.Name)/2+1]) {
			err.Candidates = append(err.Candidates, id.String())
		}
	}
	return err.WithHint("`toolsd search` finds tools")
}

func (s *memorySession) Call(ctx context.Context, c ipc.SessionCall) (*ipc.CallOutcome, error) {
	select {
	case <-s.done:
		return nil, ipc.Errorf(ipc.CodeNoDaemon, "no daemon is attached")
	default:
	}
	t, refused, err := s.gate(c)
	if refused != nil || err != nil {
		return &ipc.CallOutcome{Refused: refused}, err
	}
	name, args := t.ID.String(), string(c.Arguments)
	if args == "" {
		args = "{}"
	}
	s.w.note1(name + " " + args)
	switch {
	case strings.HasPrefix(t.Name, "fail"):
		return nil, &ipc.Error{Code: ipc.CodeToolError, Message: "it failed", RPC: &ipc.RPCError{
			Code: -32042, Message: "URL elicitation required", Data: json.RawMessage(`{"n":9007199254740993,"list":[1.0]}`),
		}}
	case strings.HasPrefix(t.Name, "wait"):
		select {
		case <-ctx.Done():
			s.w.note1("cancelled " + name)
			return nil, context.Cause(ctx)
		case <-s.done:
			return nil, ipc.Errorf(ipc.CodeOutcomeUnknown, "the daemon went away while the call was running; whether the tool ran is not known").WithHint("check what the tool did before you call it again")
		}
	case strings.HasPrefix(t.Name, "steps") && c.Progress != nil:
		c.Progress(json.RawMessage(`{"progressToken":"upstream-7","progress":1,"total":2,"message":"half"}`))
		c.Progress(json.RawMessage(`{"progressToken":"upstream-7","progress":9007199254740993}`))
	}
	meta := c.Meta
	if meta == nil {
		meta = json.RawMessage(`{}`)
	}
	text, _ := json.Marshal(args)
	if strings.HasPrefix(t.Name, "echo") {
		return &ipc.CallOutcome{Result: json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`)}, nil
	}
	return &ipc.CallOutcome{Result: json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `},{"type":"hologram","x":1e400}],"structuredContent":{"n":9007199254740993},"_meta":` + string(meta) + `}`)}, nil
}

func (w *memoryWorld) note1(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
}

func (s *memorySession) Begin(ctx context.Context, c ipc.SessionCall, done func(*ipc.CallOutcome, error)) {
	go func() { done(s.Call(ctx, c)) }()
}

func (s *memorySession) gate(c ipc.SessionCall) (*tool.Tool, *ipc.Refusal, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	// Of other spellings this daemon knows less than its search does.
	t := s.w.find(c.Tool)
	if t == nil || strings.ContainsAny(c.Tool, "./") {
		return nil, nil, s.w.unknown(c.Tool)
	}
	if c.ViaCall && s.listed[t.ID] && s.seen[t.ID] == t.Hash && !t.Annotations.IsReadOnly() {
		return nil, &ipc.Refusal{Why: ipc.CallByName, Tool: listed(t)}, nil
	}
	refuse := func(why ipc.RefusalReason, problems ...string) (*tool.Tool, *ipc.Refusal, error) {
		s.activate(t.ID)
		s.push()
		return nil, &ipc.Refusal{Why: why, Problems: problems, Tool: listed(t)}, nil
	}
	switch s.seen[t.ID] {
	case t.Hash:
	case "":
		return refuse(ipc.NotSeen)
	default:
		return refuse(ipc.Changed)
	}
	if bad, ok := errors.AsType[*tool.ArgumentError](t.Validate(c.Arguments)); ok {
		return refuse(ipc.BadArguments, bad.Problems...)
	}
	return t, nil, nil
}
