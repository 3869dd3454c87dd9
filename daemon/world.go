package daemon

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// world is what the config files and the user's approvals say at one moment.
// It is complete, and never changed after reconcile published it.
type world struct {
	settings settings.Settings
	servers  []*server // sorted by name, then key
	byKey    map[string]*server
	problems []clientconfig.Problem
	of       *watcher.Snapshot
	complete bool // false until the config files were read for the first time
}

// server is a configured server and whether it may run.
type server struct {
	watcher.Server
	fingerprint trust.Fingerprint // where an approval decides whether it may run
	gate        gate
	since       time.Time             // of the gate
	held        func(*tool.Tool) bool // nil: none is
	redactor    *trust.Redactor
	share       string // shared, project or session
}

// gate says why a server may not run; open when it may.
type gate int

const (
	open     gate = iota
	pending       // waits for the user's approval
	disabled      // by its entry
	unusable      // its entry cannot be served (Problem says why)
)

func newWorld(servers []*server) *world {
	slices.SortFunc(servers, func(a, b *server) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
	})
	w := &world{of: &watcher.Snapshot{}, servers: servers, byKey: make(map[string]*server, len(servers))}
	for _, s := range servers {
		w.byKey[s.Key] = s
	}
	return w
}

// view is what one caller sees of the world: user scope and its own project. It
// is made for each request and asked at read time; the index is never the
// control.
type view struct {
	*world
	cwd  string
	mine map[string]*server // by key: all that exist for this caller, pending ones too
	open map[string]*server // those of them whose tools it may see
}

func (w *world) from(cwd string) view {
	v := view{world: w, cwd: cwd, mine: make(map[string]*server, len(w.servers)), open: make(map[string]*server, len(w.servers))}
	for _, s := range w.servers {
		if !v.sees(s.Source.Root) {
			continue
		}
		v.mine[s.Key] = s
		if g := v.gateOf(s); g != pending && g != disabled {
			v.open[s.Key] = s
		}
	}
	return v
}

// sees reports whether what belongs to a project is this caller's.
func (v view) sees(root string) bool { return root == "" || watcher.Visible(v.cwd, root) }

// gateOf is why a server may not be used by this caller.
func (v view) gateOf(s *server) gate {
	if s.gate == open && slices.ContainsFunc(s.OffIn, v.sees) {
		return disabled
	}
	return s.gate
}

// visible is the one gate: whether a tool exists for this caller. A search asks
// it for every tool there is.
func (v view) visible(key string, t *tool.Tool) bool {
	s := v.open[key]
	return s != nil && s.Passes(t.Name) && (s.held == nil || !s.held(t))
}

// heldBack reports whether a tool would be visible if the user approved it.
func (v view) heldBack(key string, t *tool.Tool) bool {
	s := v.open[key]
	return s != nil && s.Passes(t.Name) && s.held != nil && s.held(t)
}

// list returns the servers that exist for this caller, in the world's order.
func (v view) list() []*server {
	out := make([]*server, 0, len(v.mine))
	for _, s := range v.servers {
		if v.mine[s.Key] != nil {
			out = append(out, s)
		}
	}
	return out
}

// server finds one by its name; case is ignored where no name has the same bytes.
func (v view) server(name string) *server {
	var folded *server
	for _, s := range v.list() {
		if s.Name == name {
			return s
		}
		if folded == nil && strings.EqualFold(s.Name, name) {
			folded = s
		}
	}
	return folded
}

// declared finds one by where it stands: its name there may be another's here.
func (v view) declared(file, name string) *server {
	for _, s := range v.list() {
		if s.Declared == name && slices.ContainsFunc(s.Sources, func(at clientconfig.Source) bool { return at.File == file }) {
			return s
		}
	}
	return nil
}

func (v view) names() []string {
	var names []string
	for _, s := range v.list() {
		names = append(names, s.Name)
	}
	return names
}

// noSuchServer is the error for a name that v.server does not know.
func (v view) noSuchServer(name string) *ipc.Error {
	name = tool.CleanLine(name)
	err := ipc.Errorf(ipc.CodeNotFound, "there is no server %q", name)
	if near := tool.Nearest(name, v.names(), 3); len(near) > 0 {
		err.Candidates = near
		return err.WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return err.WithHint("`toolsd servers` lists those that are configured")
}
