package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is how long an edit may take on a busy test machine. It is far below the
// poll, so that what a test waits for can only come from an event.
const live = 10 * time.Second

// world is a home directory with a running Watcher over it.
type world struct {
	t    testing.TB
	home string // no symbolic links
	*Watcher
	stop func()

	mu        sync.Mutex
	published []*Snapshot
	news      chan struct{}
	settled   int
}

// newWorld makes a home directory; start starts its watcher. Paths of files are
// relative to the home directory, or absolute.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldFor(t)
}

func worldFor(t testing.TB) *world {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, home: home, news: make(chan struct{}, 1)}
}

func (w *world) start(change ...func(*Options)) *world {
	w.t.Helper()
	o := Options{
		Env:         clientconfig.Env{GOOS: runtime.GOOS, Home: w.home, Getenv: func(string) string { return "" }},
		ConfigFile:  w.path("toolsd/config.json"),
		ManagedFile: w.path("managed/config.json"),
		OnChange: func() {
			w.mu.Lock()
			w.published = append(w.published, w.Latest())
			w.mu.Unlock()
			poke(w.news)
		},
	}
	for _, c := range change {
		c(&o)
	}
	w.Watcher = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				w.t.Errorf("Run returned %v", err)
			}
		})
	}
	w.t.Cleanup(w.stop)
	ready, cancelReady := context.WithTimeout(w.t.Context(), live)
	defer cancelReady()
	if err := w.Ready(ready); err != nil {
		w.t.Fatalf("the first reading: %v", err)
	}
	return w
}

func (w *world) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(w.home, filepath.FromSlash(p))
}

func (w *world) mkdir(p string) {
	w.t.Helper()
	if err := os.MkdirAll(w.path(p), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

// write writes in place.
func (w *world) write(p, text string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(w.path(p)))
	if err := os.WriteFile(w.path(p), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// replace writes a temporary file and renames it.
func (w *world) replace(p, text string) {
	w.t.Helper()
	w.write(p+".tmp123", text)
	w.rename(p+".tmp123", p)
}

func (w *world) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(w.path(from), w.path(to)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(p string) {
	w.t.Helper()
	if err := os.RemoveAll(w.path(p)); err != nil {
		w.t.Fatal(err)
	}
}

// link makes or re-points a symbolic link, atomically as ln -sfn does not.
func (w *world) link(target, p string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(w.path(p)))
	if err := os.Symlink(target, w.path(p)+".new"); err != nil {
		w.t.Skipf("no symbolic links here: %v", err)
	}
	w.rename(p+".new", p)
}

// mcp is a file in Claude Code's shape with one server for each name; name=word
// gives it another definition.
func mcp(servers ...string) string {
	var entries []string
	for _, s := range servers {
		name, word, ok := strings.Cut(s, "=")
		if !ok {
			word = "run-" + name
		}
		entries = append(entries, fmt.Sprintf("%q: {\"command\": %q}", name, word))
	}
	return fmt.Sprintf("{\n  \"mcpServers\": {%s}\n}\n", strings.Join(entries, ", "))
}

// list is what a snapshot defines: name=command, and @root for a project's.
func (w *world) list(s *Snapshot) string {
	var out []string
	for _, server := range s.Servers {
		if strings.HasPrefix(server.Name, "settled-") {
			continue
		}
		line := server.Name + "=" + server.Command
		if server.Source.Root != "" {
			line += "@" + strings.TrimPrefix(filepath.ToSlash(server.Source.Root), filepath.ToSlash(w.home)+"/")
		}
		if server.Disabled {
			line += " off"
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

func (w *world) messages(s *Snapshot) []string {
	out := []string{}
	for _, p := range s.Problems {
		file := strings.TrimPrefix(filepath.ToSlash(p.File), filepath.ToSlash(w.home)+"/")
		out = append(out, fmt.Sprintf("%s:%d:%d: %s", file, p.Line, p.Col, p.Message))
	}
	return out
}

// await waits until the latest snapshot fulfils a condition.
func (w *world) await(what string, ok func(*Snapshot) bool) time.Duration {
	w.t.Helper()
	begin := time.Now()
	deadline := time.NewTimer(live)
	defer deadline.Stop()
	for {
		if ok(w.Latest()) {
			return time.Since(begin)
		}
		select {
		case <-w.news:
		case <-deadline.C:
			s := w.Latest()
			w.t.Fatalf("after %v not %s\nservers: %s\nproblems: %q", live, what, w.list(s), w.messages(s))
		}
	}
}

func (w *world) awaitServers(want string) time.Duration {
	w.t.Helper()
	return w.await("the servers "+want, func(s *Snapshot) bool { return w.list(s) == want })
}

func (w *world) see(cwd string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), live)
	defer cancel()
	if err := w.Wait(ctx, w.path(cwd)); err != nil {
		w.t.Fatalf("waiting for %s: %v", cwd, err)
	}
}

// settle waits until nothing is under way, so that what follows can only be found
// by an event of its own: the second of two edits comes after all the comparisons
// that new watches cause.
func (w *world) settle() {
	w.t.Helper()
	for range 2 {
		w.settled++
		name := fmt.Sprintf("settled-%d", w.settled)
		w.write(".lmstudio/mcp.json", mcp(name))
		w.await("settled", func(s *Snapshot) bool {
			return slices.ContainsFunc(s.Servers, func(server Server) bool { return server.Name == name })
		})
	}
}

// count is how many snapshots were published until now.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.published)
}

// ticks calls f n times, some milliseconds apart.
func ticks(n int, apart time.Duration, f func(i int)) {
	ticker := time.NewTicker(apart)
	defer ticker.Stop()
	for i := range n {
		f(i)
		<-ticker.C
	}
}

// TestEdits is the matrix of ways in which config files change: each edit, and
// another one after it, is live by an event.
func TestEdits(t *testing.T) {
	const file = ".cursor/mcp.json"
	for name, c := range map[string]struct {
		before func(w *world)
		edit   func(w *world)
		again  func(w *world) // nil: a write in place
	}{
		"in place": {
			func(w *world) { w.write(file, mcp("a")) },
			func(w *world) { w.write(file, mcp("b")) }, nil},
		"in place, same size and time": {
			func(w *world) { w.write(file, mcp("a")) },
			func(w *world) {
				info, err := os.Stat(w.path(file))
				if err != nil {
					w.t.Fatal(err)
				}
				w.write(file, mcp("b"))
				if err := os.Chtimes(w.path(file), info.ModTime(), info.ModTime()); err != nil {
					w.t.Fatal(err)
				}
			}, nil},
		"atomic rename": {
			func(w *world) { w.write(file, mcp("a")) },
			func(w *world) { w.replace(file, mcp("b")) },
			func(w *world) { w.replace(file, mcp("c")) }},
		"target of a symbolic link": {
			func(w *world) { w.write("dots/cursor.json", mcp("a")); w.link("../dots/cursor.json", file) },
			func(w *world) { w.write("dots/cursor.json", mcp("b")) },
			func(w *world) { w.replace("dots/cursor.json", mcp("c")) }},
		"link re-pointed": {
			func(w *world) {
				w.write("dots/1.json", mcp("a"))
				w.write("dots2/2.json", mcp("b"))
				w.link(w.path("dots/1.json"), file)
			},
			func(w *world) { w.link(w.path("dots2/2.json"), file) },
			func(w *world) { w.write("dots2/2.json", mcp("c")) }},
		"link of a link": {
			func(w *world) {
				w.write("x/y/real.json", mcp("a"))
				w.write("x/z/real.json", mcp("b"))
				w.link("y", "x/now")
				w.link("../x/now/real.json", file)
			},
			func(w *world) { w.link("z", "x/now") },
			func(w *world) { w.write("x/z/real.json", mcp("c")) }},
		"directory link re-pointed": {
			func(w *world) {
				w.write("one/mcp.json", mcp("a"))
				w.write("two/mcp.json", mcp("b"))
				w.link("one", ".cursor")
			},
			func(w *world) { w.link("two", ".cursor") },
			func(w *world) { w.replace("two/mcp.json", mcp("c")) }},
		"link becomes a file": {
			func(w *world) { w.write("dots/1.json", mcp("a")); w.link(w.path("dots/1.json"), file) },
			func(w *world) { w.replace(file, mcp("b")) }, nil},
		"late link target": {
			func(w *world) { w.link("../dots/deep/1.json", file) },
			func(w *world) { w.write("dots/deep/1.json", mcp("b")) },
			func(w *world) { w.replace("dots/deep/1.json", mcp("c")) }},
		"late directory": {
			func(w *world) {},
			func(w *world) { w.write(file, mcp("b")) }, nil},
		"late file": {
			func(w *world) { w.mkdir(".cursor") },
			func(w *world) { w.write(file, mcp("b")) }, nil},
		"directory replaced": {
			func(w *world) { w.write(file, mcp("a")) },
			func(w *world) {
				w.write("new/mcp.json", mcp("b"))
				w.rename(".cursor", ".cursor.old")
				w.rename("new", ".cursor")
			}, nil},
		"directory removed and made": {
			func(w *world) { w.write(file, mcp("a")) },
			func(w *world) { w.remove(".cursor"); w.write(file, mcp("b")) }, nil},
		"moved in with its directory": {
			func(w *world) { w.write("away/mcp.json", mcp("b")) },
			func(w *world) { w.rename("away", ".cursor") },
			func(w *world) { w.replace(file, mcp("c")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.before(w)
			w.write(".lmstudio/mcp.json", mcp("settled-0"))
			w.start(func(o *Options) { o.Debounce = 30 * time.Millisecond }) // the time is not what this is about
			w.settle()
			c.edit(w)
			first := w.awaitServers("b=run-b")
			w.settle()
			if c.again == nil {
				w.write(file, mcp("c"))
			} else {
				c.again(w)
			}
			second := w.awaitServers("c=run-c")
			w.write(file+".backup.1", mcp("x"))
			t.Logf("live after %v and %v", first.Round(time.Millisecond), second.Round(time.Millisecond))
		})
	}
}

// TestDeepLateDirectories makes every directory of a path one by one, each after
// the watcher has seen the one before, and all at once.
func TestDeepLateDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	w.write(".kiro/agents/one.json", mcp("k"))
	w.awaitServers("k=run-k")
	w.write(".kiro/agents/two.json", mcp("l"))
	w.awaitServers("k=run-k l=run-l")
	w.write(".codeium/windsurf/mcp_config.json", mcp("w"))
	took := w.awaitServers("k=run-k l=run-l w=run-w")
	w.write(".kiro/agents/one.json", `{}`)
	w.awaitServers("l=run-l w=run-w")
	w.write(".kiro/agents/two.json", mcp("m"))
	w.awaitServers("m=run-m w=run-w")
	t.Logf("live after %v", took.Round(time.Millisecond))
}

// TestNoise: what means nothing is not published, however much of it there is.
func TestNoise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.write(".claude.json", `{"numStartups": 0, "mcpServers": {"c": {"command": "run-c"}}}`)
	w.start()
	before := w.count()
	text := mcp("a")
	ticks(200, 5*time.Millisecond, func(i int) {
		now := time.Now()
		if err := os.Chtimes(w.path(".cursor/mcp.json"), now, now); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 { // 50 truncations, with the text back before the next
			w.write(".cursor/mcp.json", "")
			w.write(".cursor/mcp.json", text)
		}
		for n := range 5 { // 1,000 rewrites as Claude Code does it
			w.mkdir(".claude.json.lock")
			lines := strings.Repeat("\n", i%7)
			w.replace(".claude.json", fmt.Sprintf(`{"numStartups": %d,%s "mcpServers": {"c": {"command": "run-c"}}}`, i*5+n, lines))
			w.remove(".claude.json.lock")
		}
	})
	w.write(".codeium/windsurf/mcp_config.json", mcp("w")) // the one thing that is news
	w.awaitServers("a=run-a c=run-c w=run-w")
	if got := w.count() - before; got != 1 {
		t.Errorf("%d snapshots were published, want 1", got)
	}
}

// TestConstantEvents: a stream of events does not keep an edit from being live.
func TestConstantEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".claude.json", mcp("c"))
	w.start()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond) // far below the debounce
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.replace(".claude.json", fmt.Sprintf(`{"n": %d, "mcpServers": {"c": {"command": "run-c"}}}`, i))
			}
		}
	}()
	w.write(".cursor/mcp.json", mcp("b"))
	took := w.awaitServers("b=run-b c=run-c")
	close(stop)
	<-ended
	t.Logf("live after %v", took)
}

// TestInvalidKeepsLastGood: a file that is broken is a problem with its place at
// once, and its servers stay.
func TestInvalidKeepsLastGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.start()
	w.write(".cursor/mcp.json", "{\n  \"mcpServers\": {\"a\": {")
	w.await("a problem with a place", func(s *Snapshot) bool {
		return len(s.Problems) == 1 && s.Problems[0].Line == 2 && s.Problems[0].Col > 1 && s.Problems[0].File == w.path(".cursor/mcp.json")
	})
	if got := w.list(w.Latest()); got != "a=run-a" {
		t.Errorf("the servers are %s", got)
	}
	w.write(".cursor/mcp.json", mcp("b"))
	w.await("well again", func(s *Snapshot) bool { return w.list(s) == "b=run-b" && len(s.Problems) == 0 })
	w.write(".cursor/mcp.json", `{"mcpServers": {}}`)
	w.awaitServers("")
	w.write(".cursor/mcp.json", mcp("b"))
	w.awaitServers("b=run-b")
	w.write(".cursor/mcp.json", `{}`)
	w.awaitServers("")
}

// TestOddFiles: what cannot be read is a problem, and nothing waits for it.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.mkdir(".codeium/windsurf/mcp_config.json")
	w.write(".aws/amazonq/mcp.json", "")
	if err := os.Truncate(w.path(".aws/amazonq/mcp.json"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	w.write(".lmstudio/mcp.json", " \n")
	w.link(".junie-loop", ".junie-loop")
	w.link("../.junie-loop", ".junie/mcp")
	want := []string{
		".codeium/windsurf/mcp_config.json:0:0: the file cannot be read: it is a directory",
		".aws/amazonq/mcp.json:0:0: the file cannot be read: it is larger than 64 MiB",
		".lmstudio/mcp.json:0:0: the file is empty",
	}
	if fifo(t, w.path(".kiro/settings/mcp.json")) {
		want = append(want, ".kiro/settings/mcp.json:0:0: the file cannot be read: it is a pipe, a socket or a device")
	}
	w.start()
	got := w.messages(w.Latest())
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("missing %q in %q", m, got)
		}
	}
	if !slices.ContainsFunc(got, func(m string) bool { return strings.HasPrefix(m, ".junie/mcp/mcp.json:0:0: the file cannot be read: ") }) {
		t.Errorf("nothing about the link to itself in %q", got)
	}
	if got := w.list(w.Latest()); got != "a=run-a" {
		t.Errorf("the servers are %s", got)
	}
}
