package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// TestProjects: the files of a project are read once a request came from there,
// with its parents up to the home directory, and stay watched.
func TestProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("u"))
	w.write(".mcp.json", mcp("home"))            // HOME is no project
	w.write("work/.mcp.json", mcp("w"))          // a parent
	w.write("work/p/.vscode/mcp.json", mcp("p")) // with another client's root
	w.write("other/.mcp.json", mcp("o"))
	w.mkdir("work/p/src/deep")
	w.start()
	w.awaitServers("u=run-u")
	if w.See(w.path("work/p/src/deep")) {
		t.Error("a project is known before it was read")
	}
	w.see("work/p/src/deep")
	if got, want := w.list(w.Latest()), "u=run-u w=run-w@work p=run-p@work/p"; got != want {
		t.Errorf("the servers are %s, want %s", got, want)
	}
	if !w.See(w.path("work/p")) || !w.See(w.path("work/p/src/deep")) || !w.See(w.home) {
		t.Error("a directory whose files are in the snapshot is not known")
	}
	want := []string{w.path("work"), w.path("work/p"), w.path("work/p/src"), w.path("work/p/src/deep")}
	if d := cmp.Diff(want, w.Latest().Projects); d != "" {
		t.Error(d)
	}
	w.write("work/p/src/.cursor/mcp.json", mcp("s"))
	w.awaitServers("u=run-u w=run-w@work p=run-p@work/p s=run-s@work/p/src")
	w.replace("work/.mcp.json", mcp("w=other"))
	w.awaitServers("u=run-u w=other@work p=run-p@work/p s=run-s@work/p/src")

	for _, s := range w.Latest().Servers {
		if s.Source.Root != "" && s.Source.Scope != clientconfig.Project {
			t.Errorf("%s of a project has the scope %s", s.Name, s.Source.Scope)
		}
		wantDir := s.Source.Root
		if wantDir == "" {
			wantDir = w.home
		}
		if s.Dir != wantDir {
			t.Errorf("%s runs in %s, want %s", s.Name, s.Dir, wantDir)
		}
	}
	w.remove("work")
	w.see("other")
	w.await("the removed project forgotten", func(s *Snapshot) bool {
		return w.list(s) == "o=run-o@other u=run-u" || len(s.Projects) == 5 // the grace is tested elsewhere
	})
}

func TestKnownProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("p/.mcp.json", mcp("p"))
	w.start(func(o *Options) { o.Projects = []string{w.path("p"), w.path("gone")} })
	if got := w.list(w.Latest()); got != "p=run-p@p" {
		t.Errorf("the servers are %s", got)
	}
}

func TestKeptProjects(t *testing.T) {
	t.Parallel()
	const most = 4
	w := newWorld(t).start(func(o *Options) { o.most = most })
	w.write("mine/.mcp.json", mcp("m"))
	w.see("mine")
	first, second := w.Keep(w.path("mine")), w.Keep(w.path("mine"))
	others := func() bool {
		for i := range 2 * most {
			dir := fmt.Sprintf("p%02d", i)
			w.mkdir(dir)
			w.see(dir)
		}
		return slices.ContainsFunc(w.Latest().Servers, func(s Server) bool { return s.Name == "m" })
	}
	if !others() || len(w.Latest().Projects) != most+1 {
		t.Errorf("a kept project is given up, or others for it: %q", w.Latest().Projects)
	}
	first()
	first()
	if !others() {
		t.Error("a project that another one keeps is given up")
	}
	second()
	if others() {
		t.Error("a project that nobody keeps any more stays")
	}
}

func TestManyProjects(t *testing.T) {
	t.Parallel()
	const most = 8
	w := newWorld(t).start(func(o *Options) { o.most = most })
	for i := range most + 4 {
		dir := fmt.Sprintf("p%02d", i)
		w.write(dir+"/.mcp.json", mcp("s"))
		w.see(dir)
	}
	if s := w.Latest(); len(s.Projects) != most || len(s.Servers) != most {
		t.Errorf("%d projects with %d servers are watched, want %d", len(s.Projects), len(s.Servers), most)
	}
	if w.See(w.path("p00")) {
		t.Error("the first project is still known")
	}
	w.see("p00")
}

// TestAbsurdDirectories: what no system can open, or nests deeper than anything,
// is a caller's word and must not occupy the watcher.
func TestAbsurdDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("p/.mcp.json", mcp("p"))
	w.start()
	for _, cwd := range []string{"/" + strings.Repeat("a/", 100_000), "/" + strings.Repeat("a/", maxPath/2-1), "/a\x00b", "/" + strings.Repeat("a", 5000)} {
		if n := len(projectsOf(cwd, w.home)); n > maxParents {
			t.Errorf("a path of %d bytes gives %d projects", len(cwd), n)
		}
		w.See(cwd)
	}
	w.see("p")
	if n := len(w.Latest().Projects); n > 2*maxParents {
		t.Errorf("%d projects are read", n)
	}
	deep := w.home + "/p" + strings.Repeat("/d", maxParents-1)
	if roots := projectsOf(deep, w.home); len(roots) != maxParents || roots[0] != w.path("p") || roots[maxParents-1] != deep {
		t.Errorf("%d projects, from %s", len(roots), roots[0])
	}
}

// TestExpensiveProject: the files of a checkout cost no more than those of people do.
func TestExpensiveProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".claude.json", mcp("mine"))
	w.write("p/.mcp.json", mcp("p"))
	w.write("p/.cursor/mcp.json", "")
	if err := os.Truncate(w.path("p/.cursor/mcp.json"), maxProjectFile+1); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 20 * maxNeeded {
		fmt.Fprintf(&b, "{file:./v%d}", i)
	}
	w.write("p/opencode.json", `{"mcp": {"o": {"type": "local", "command": ["run", "`+b.String()+`"]}}}`)
	var valuesRead atomic.Int64
	w.start(func(o *Options) {
		o.look = func(q question) look {
			if q.kind == values {
				valuesRead.Add(1)
			}
			return lookAt(q)
		}
	})
	w.see("p")
	if got := w.list(w.Latest()); got != "mine=run-mine o=run@p p=run-p@p" {
		t.Errorf("the servers are %s", got)
	}
	if want := "p/.cursor/mcp.json:0:0: the file cannot be read: it is larger than 2 MiB"; !slices.Contains(w.messages(w.Latest()), want) {
		t.Errorf("missing %q in %q", want, w.messages(w.Latest()))
	}
	if n := valuesRead.Load(); n > 2*maxNeeded {
		t.Errorf("%d files were looked at for one entry", n)
	}
}

// TestPlaceThatHangs: a file system that does not answer is asked once, however
// often callers come from there, and what it said before holds.
func TestPlaceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan string, 1)
		var asked atomic.Int64
		c := newPlaces(func(string) string { asked.Add(1); return <-answer })
		answer <- "/real"
		if got := c.resolve("/link"); got != "/real" {
			t.Errorf("it leads to %s", got)
		}
		for range 100 {
			time.Sleep(2 * placeAge)
			if got := c.resolve("/link"); got != "/real" {
				t.Errorf("while nothing answers it leads to %s", got)
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("it was asked %d times", n)
		}
		answer <- "/other"
		synctest.Wait()
		if got := c.resolve("/link"); got != "/other" {
			t.Errorf("afterwards it leads to %s", got)
		}
	})
}

func TestVisible(t *testing.T) {
	w := newWorld(t)
	w.mkdir("p/q/r")
	w.mkdir("pq")
	w.link("p", "link")
	above := filepath.Dir(w.home)
	for _, c := range []struct {
		cwd, root string
		want      bool
	}{
		{"p", "p", true}, {"p/q/r", "p", true}, {"p/q/r", "p/q", true}, {"p", "p/q", false}, {"pq", "p", false},
		{"link", "p", true}, {"p/q", "link", true}, {"link/q/r", "link/q", true}, {"p/new/dir", "link", true},
		{w.home, w.home, true}, {"p", w.home, false}, {"p", above, false}, {above, above, true},
		{filepath.Join(above, "x"), above, true}, {"p", string(filepath.Separator), false}, {"", "p", false}, {"p", "", false},
	} {
		path := func(p string) string {
			if p == "" {
				return ""
			}
			return w.path(p)
		}
		if got := visible(path(c.cwd), path(c.root), w.home); got != c.want {
			t.Errorf("Visible(%q, %q) = %v", c.cwd, c.root, got)
		}
	}
	t.Setenv("HOME", w.home)
	t.Setenv("USERPROFILE", w.home)
	if Visible(w.path("p"), w.home) || !Visible(w.path("link/q"), w.path("p")) {
		t.Error("Visible does not go by the home directory of the environment")
	}
}

// TestCheckoutReadsNothingElse: a link in a checkout does not lead out of it.
func TestCheckoutReadsNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("secret/mcp.json", mcp("secret"))
	w.write("p/conf/real.json", mcp("inside"))
	w.link("../secret/mcp.json", "p/.mcp.json")
	w.link(w.path("secret"), "p/.cursor")
	w.link("../conf/real.json", "p/.vscode/mcp.json")
	w.link(w.path("p/conf/real.json"), "p/.roo/mcp.json") // absolute, but inside
	w.start()
	w.see("p")
	if got := w.list(w.Latest()); got != "inside=run-inside@p" {
		t.Errorf("the servers are %s", got)
	}
	if sources := w.Latest().Servers[0].Sources; len(sources) != 2 {
		t.Errorf("the sources are %v", sources)
	}
	messages := w.messages(w.Latest())
	for _, file := range []string{"p/.mcp.json", "p/.cursor/mcp.json"} {
		if m := file + ":0:0: the file cannot be read: it is a symbolic link that leads out of the project"; !slices.Contains(messages, m) {
			t.Errorf("missing %q in %q", m, messages)
		}
	}
	for _, p := range w.Latest().Problems {
		if strings.Contains(p.Message, "leads out") && p.Root != w.path("p") {
			t.Errorf("the problem %+v does not name its project", p)
		}
	}
	w.replace("p/.mcp.json", mcp("mine"))
	w.await("the file itself", func(s *Snapshot) bool { return strings.Contains(w.list(s), "mine=run-mine@p") })
}

// TestUserFileIsNoProjectFile: a request from a directory whose project files are
// the user's own.
func TestUserFileIsNoProjectFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := ".config/opencode"
	if runtime.GOOS == "windows" {
		t.Skip("opencode keeps its file elsewhere")
	}
	w.write(dir+"/opencode.json", `{"mcp": {"o": {"type": "local", "command": ["run-o"]}}}`)
	w.start()
	w.see(dir)
	if got := w.list(w.Latest()); got != "o=run-o" {
		t.Errorf("the servers are %s", got)
	}
	if n := len(w.Latest().Servers[0].Sources); n != 1 {
		t.Errorf("it has %d sources", n)
	}
}

// TestPerProjectEntries of the user's own file are seen in that project only, and
// are trusted like the user's.
func TestPerProjectEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mkdir("real")
	w.link("real", "link")
	w.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"a": {"command": "x"}}, "projects": {%q: {"mcpServers": {"a": {"command": "y"}}}}}`, w.path("link")))
	w.start()
	if got := w.list(w.Latest()); got != "a=x a-claude-code=y@real" {
		t.Errorf("the servers are %s", got)
	}
	if s := w.Latest().Servers[1]; s.Source.Scope != clientconfig.User || s.Source.Root != w.path("real") || s.Declared != "a" {
		t.Errorf("got %+v", s)
	}
}

// TestRefusals: what the user said no to in Claude Code.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"mine": {"command": "x"}},
		"projects": {%q: {"disabledMcpjsonServers": ["no"], "disabledMcpServers": ["mine"]}}}`, w.path("p")))
	w.write("p/.mcp.json", mcp("no", "yes"))
	w.write("q/.mcp.json", mcp("no"))
	w.start()
	w.see("p")
	w.see("q")
	var got []string
	for _, s := range w.Latest().Servers {
		got = append(got, fmt.Sprint(filepath.Base(s.Source.Root), " ", s.Name, " ", s.Rejected, " ", len(s.OffIn)))
	}
	want := []string{". mine false 1", "p no true 0", "p yes false 0", "q no false 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestOwnSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("toolsd/config.json", `{
  "mcpServers": {"both": {"command": "mine"}, "locked": {"command": "mine"}, "self": {"command": "/usr/bin/toolsd", "args": ["mcp"]}},
  "files": ["~/team.json", "more.json", "none.json"],
  "toolSerch": {}
}`)
	w.write("managed/config.json", `{
  "mcpServers": {"both": {"command": "team"}, "locked": {"command": "team"}, "team": {"command": "team"}},
  "locked": ["mcpServers.locked", "toolSearch.maxResults"],
  "toolSearch": {"maxResults": 7, "minPct": 3}
}`)
	w.write("team.json", mcp("t"))
	w.write("toolsd/more.json", mcp("m"))
	w.write(".cursor/mcp.json", mcp("c"))
	w.write("p/.cursor/mcp.json", mcp("pc"))
	w.start()
	w.see("p")
	s := w.Latest()
	if got, want := w.list(s), "both=mine c=run-c locked=team m=run-m t=run-t team=team pc=run-pc@p"; got != want {
		t.Errorf("the servers are %s\nwant            %s", got, want)
	}
	want := []string{
		"toolsd/config.json:2:47: the managed file locks this server: the entry here has no effect",
		`toolsd/config.json:4:3: unknown key "toolSerch" (did you mean toolSearch?)`,
		"toolsd/none.json:0:0: the setting files names none.json, which does not exist",
	}
	if d := cmp.Diff(want, w.messages(s)); d != "" {
		t.Error(d)
	}
	if s.Settings.ToolSearch.MaxResults != 7 || s.Settings.ToolSearch.MinPct != 3 {
		t.Errorf("the settings are %+v", s.Settings.ToolSearch)
	}

	w.write("toolsd/config.json", `{"clients": {"cursor": false}, "toolSearch": {"minPct": 1}}`)
	w.awaitServers("both=team locked=team team=team")
	if got := w.Latest().Settings.ToolSearch.MinPct; got != 1 {
		t.Errorf("minPct is %v", got)
	}
	w.write("toolsd/config.json", `{"toolSearch": {"minPct": 1`)
	w.await("a problem", func(s *Snapshot) bool { return len(s.Problems) > 0 })
	if got := w.Latest().Settings; got.ToolSearch.MinPct != 1 || got.Clients["cursor"] {
		t.Errorf("a broken file changed the settings to %+v", got)
	}
	w.write("toolsd/config.json", `{"mcpServers": 5, "toolSearch": {"minPct": 2}}`)
	w.await("the settings beside a wrong mcpServers", func(s *Snapshot) bool {
		return s.Settings.ToolSearch.MinPct == 2 && len(s.Problems) == 1 && w.list(s) == "both=team c=run-c locked=team team=team pc=run-pc@p"
	})
}

// TestExpansion: variables come from the environment that the daemon captured,
// and files that entries name are watched too.
func TestExpansion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	value := make(chan string, 1)
	value <- "one"
	w.write(".claude.json", `{"mcpServers": {"a": {"command": "run", "args": ["${WHICH}"]}, "b": {"command": "run", "args": ["${NOT_SET}"]}}}`)
	w.write(".cursor/mcp.json", `{"mcpServers": {"e": {"command": "run", "envFile": "${userHome}/e.env"}}}`)
	w.write("e.env", "TOKEN=first\n")
	w.start(func(o *Options) {
		o.Environ = func(name string) (string, bool) {
			if name != "WHICH" {
				return "", false
			}
			v := <-value
			value <- v
			return v, true
		}
	})
	find := func(s *Snapshot, name string) Server {
		i := slices.IndexFunc(s.Servers, func(s Server) bool { return s.Name == name })
		if i < 0 {
			t.Fatalf("no server %s in %s", name, w.list(s))
		}
		return s.Servers[i]
	}
	a := find(w.Latest(), "a")
	if a.Args[0] != "one" || a.Written.Args[0] != "${WHICH}" {
		t.Errorf("expanded %q, written %q", a.Args, a.Written.Args)
	}
	if b := find(w.Latest(), "b"); !strings.Contains(b.Problem, "NOT_SET") {
		t.Errorf("the problem of b is %q", b.Problem)
	}
	if e := find(w.Latest(), "e"); e.Env["TOKEN"] != "first" || e.Problem != "" {
		t.Errorf("e has %v, %q", e.Env, e.Problem)
	}
	before := w.count()
	<-value
	value <- "two"
	if err := w.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := find(w.Latest(), "a"); a.Args[0] != "two" {
		t.Errorf("after Refresh the argument is %q", a.Args)
	}
	w.replace("e.env", "TOKEN=second\n")
	w.await("the new token", func(s *Snapshot) bool { return find(s, "e").Env["TOKEN"] == "second" })
	if got := w.count() - before; got != 2 {
		t.Errorf("%d snapshots were published, want 2", got)
	}
}

// TestPlacesMoveSilently: lines that move are right in the latest snapshot but
// are no news.
func TestPlacesMoveSilently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".claude.json", mcp("c"))
	w.start()
	before, line := w.count(), w.Latest().Servers[0].Source.Line
	w.replace(".claude.json", "\n\n\n"+mcp("c"))
	deadline := time.NewTimer(live)
	defer deadline.Stop()
	for w.Latest().Servers[0].Source.Line != line+3 {
		select {
		case <-w.nextTurn():
		case <-deadline.C:
			t.Fatalf("the line is still %d", w.Latest().Servers[0].Source.Line)
		}
	}
	if w.count() != before {
		t.Error("a moved line was published")
	}
}

func (w *world) nextTurn() <-chan struct{} {
	w.Watcher.mu.Lock()
	defer w.Watcher.mu.Unlock()
	return w.turn
}

// TestPermission: a file that may not be read keeps its servers.
func TestPermission(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("nothing is forbidden to this user, or the system does not count users")
	}
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.start()
	if err := os.Chmod(w.path(".cursor/mcp.json"), 0); err != nil {
		t.Fatal(err)
	}
	w.await("a problem", func(s *Snapshot) bool { return len(s.Problems) == 1 && w.list(s) == "a=run-a" })
}
