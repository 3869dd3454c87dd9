package watcher

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// These tests run on a clock of their own (testing/synctest) over real files.
// Events cannot be part of that, so they test what a Watcher without them does.

// TestMissing: a file that is away for less than 10 s changes nothing, and for
// longer its servers are gone by 12 s.
func TestMissing(t *testing.T) {
	for _, how := range []string{"removed", "emptied", "with its directory", "with its project", "one of a pattern"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			file := ".cursor/mcp.json"
			want := "a=run-a"
			if how == "with its project" {
				file, want = "p/.cursor/mcp.json", "a=run-a@p"
			}
			if how == "one of a pattern" {
				file = ".kiro/agents/one.json"
			}
			away := func() {
				switch how {
				case "removed", "one of a pattern":
					w.remove(file)
				case "emptied":
					w.write(file, "")
				case "with its directory":
					w.remove(".cursor")
				default:
					w.remove("p")
				}
			}
			w.write(file, mcp("a"))
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				w.start(func(o *Options) {
					o.blind = true
					o.Poll = time.Second
					if how == "with its project" {
						o.Projects = []string{w.path("p")}
					}
				})
				synctest.Wait()
				before := w.count()
				if got := w.list(w.Latest()); got != want {
					t.Fatalf("the servers are %s", got)
				}

				away()
				<-time.After(9 * time.Second)
				w.write(file, mcp("a"))
				<-time.After(15 * time.Second)
				if w.count() != before || w.list(w.Latest()) != want {
					t.Errorf("away for 9 s: %d snapshots, servers %q", w.count()-before, w.list(w.Latest()))
				}

				away()
				<-time.After(9900 * time.Millisecond)
				synctest.Wait()
				if got := w.list(w.Latest()); got != want {
					t.Errorf("after 9.9 s the servers are %q", got)
				}
				<-time.After(2100 * time.Millisecond)
				synctest.Wait()
				if got := w.list(w.Latest()); got != "" {
					t.Errorf("after 12 s the servers are %q", got)
				}
				problems := strings.Join(w.messages(w.Latest()), "\n")
				if said := strings.Contains(problems, "the file is empty"); said != (how == "emptied") {
					t.Errorf("the problems are %q", problems)
				}
				w.stop()
			})
		})
	}
}

// TestPoll: without any event an edit is live within the 30 s of the contract.
func TestPoll(t *testing.T) {
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.start(func(o *Options) { o.blind = true })
		w.write(".cursor/mcp.json", mcp("a", "b"))
		w.write(".codeium/windsurf/mcp_config.json", mcp("w"))
		<-time.After(30*time.Second + time.Millisecond)
		synctest.Wait()
		if got := w.list(w.Latest()); got != "a=run-a b=run-b w=run-w" {
			t.Errorf("the servers are %s", got)
		}
		w.stop()
	})
}

// TestHanging: a file that does not answer delays no other one, is a problem, and
// is taken in when it answers after all.
func TestHanging(t *testing.T) {
	w := newWorld(t)
	w.write("net/.mcp.json", mcp("n"))
	w.write("p/.mcp.json", mcp("p"))
	w.write(".cursor/mcp.json", mcp("a"))
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		answer := make(chan struct{})
		w.start(func(o *Options) {
			o.blind = true
			o.Poll = 5 * time.Second
			o.look = func(q question) look {
				if q.loc.Root == w.path("net") {
					<-answer
				}
				return lookAt(q)
			}
		})
		begin := time.Now()
		w.see("net")
		if took := time.Since(begin); took > 2*patience {
			t.Errorf("waiting for a project that hangs took %v", took)
		}
		problems := strings.Join(w.messages(w.Latest()), "\n")
		if !strings.Contains(problems, "net/.mcp.json:0:0: reading the file takes too long") {
			t.Errorf("the problems are %q", problems)
		}

		begin = time.Now()
		w.see("p")
		if took := time.Since(begin); took > 0 { // on this clock only waiting takes time
			t.Errorf("another project waited %v", took)
		}
		w.write(".cursor/mcp.json", mcp("a", "b"))
		<-time.After(5*time.Second + time.Millisecond)
		synctest.Wait()
		if got := w.list(w.Latest()); got != "a=run-a b=run-b p=run-p@p" {
			t.Errorf("the servers are %s", got)
		}

		close(answer)
		synctest.Wait()
		if got := w.list(w.Latest()); got != "a=run-a b=run-b n=run-n@net p=run-p@p" {
			t.Errorf("after the answer the servers are %s", got)
		}
		if p := w.messages(w.Latest()); len(p) > 0 {
			t.Errorf("after the answer there are problems: %q", p)
		}
		w.stop()
	})
}

// TestApply is what a file says after a series of looks at it.
func TestApply(t *testing.T) {
	start := time.Unix(1e9, 0)
	servers := func(names ...string) clientconfig.Content {
		var c clientconfig.Content
		for _, n := range names {
			c.Servers = append(c.Servers, clientconfig.Server{Name: n})
		}
		return c
	}
	broken := clientconfig.Content{Problems: []clientconfig.Problem{{Message: "broken"}}}
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		at      time.Duration
		look    look
		changed bool
		want    string
	}
	there := seen{info: info}
	for name, steps := range map[string][]step{
		"never there": {{0, look{outcome: gone}, false, ""}, {20 * time.Second, look{outcome: gone}, false, ""}},
		"empty from the start": {
			{0, look{outcome: empty, seen: there}, true, "! the file is empty"},
			{time.Second, look{outcome: same, seen: there}, false, "! the file is empty"},
			{2 * time.Second, look{outcome: gone}, true, ""}},
		"emptied": {
			{0, look{outcome: good, content: servers("a")}, true, "a"},
			{1 * time.Second, look{outcome: empty, seen: there}, false, "a"},
			{9 * time.Second, look{outcome: same, seen: there}, false, "a"},
			{11 * time.Second, look{outcome: same, seen: there}, true, "! the file is empty"},
			{12 * time.Second, look{outcome: good, content: servers("b")}, true, "b"}},
		"gone and back": {
			{0, look{outcome: good, content: servers("a")}, true, "a"},
			{1 * time.Second, look{outcome: gone}, false, "a"},
			{2 * time.Second, look{outcome: good, content: servers("a")}, true, "a"},
			{3 * time.Second, look{outcome: gone}, false, "a"},
			{12 * time.Second, look{outcome: gone}, false, "a"},
			{13 * time.Second, look{outcome: gone}, true, ""}},
		"broken keeps the last good for ever": {
			{0, look{outcome: good, content: servers("a")}, true, "a"},
			{1 * time.Second, look{outcome: bad, content: broken}, true, "a ! broken"},
			{100 * time.Second, look{outcome: same}, false, "a ! broken"},
			{101 * time.Second, look{outcome: bad, content: broken}, false, "a ! broken"},
			{102 * time.Second, look{outcome: gone}, true, "a"},
			{112 * time.Second, look{outcome: gone}, true, ""}},
		"emptied on purpose": {
			{0, look{outcome: good, content: servers("a")}, true, "a"},
			{1 * time.Second, look{outcome: good}, true, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var f file
			for i, s := range steps {
				changed := f.apply(s.look, start.Add(s.at))
				var got []string
				for _, server := range f.content.Servers {
					got = append(got, server.Name)
				}
				for _, p := range f.problems() {
					got = append(got, "! "+p.Message)
				}
				if g := strings.Join(got, " "); changed != s.changed || g != s.want {
					t.Errorf("step %d: %q, changed %v; want %q, %v", i, g, changed, s.want, s.changed)
				}
			}
		})
	}
}
