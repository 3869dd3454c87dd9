package watcher

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// entriesOf reads entries written as "client[@root] name=command[ args]", one a
// line, in order of precedence. A project's entry whose client is in capitals is
// the user's own, as those of Claude Code are. A leading - switches it off, ! marks
// it as refused.
func entriesOf(spec string) []entry {
	var out []entry
	for line := range strings.Lines(spec) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		place, def, _ := strings.Cut(line, " ")
		client, root, inProject := strings.Cut(place, "@")
		name, command, _ := strings.Cut(def, "=")
		words := strings.Fields(command)
		var s clientconfig.Server
		s.Disabled = strings.HasPrefix(name, "-")
		rejected := strings.HasPrefix(name, "!")
		s.Name, s.Transport, s.Command, s.Args = strings.TrimLeft(name, "-!"), clientconfig.Stdio, words[0], words[1:]
		s.Source = clientconfig.Source{Client: strings.ToLower(client), Scope: clientconfig.User, File: client}
		if inProject {
			s.Source.Root = filepath.FromSlash(root)
			if client == strings.ToLower(client) {
				s.Source.Scope = clientconfig.Project
			}
		}
		out = append(out, entry{def: s, written: s, rejected: rejected})
	}
	return out
}

func namesOf(servers []Server) string {
	var out []string
	for _, s := range servers {
		line := s.Name + "=" + strings.Join(append([]string{s.Command}, s.Args...), " ")
		if s.Disabled {
			line = "-" + line
		}
		if s.Rejected {
			line = "!" + line
		}
		var from []string
		for _, source := range s.Sources {
			from = append(from, source.File)
		}
		out = append(out, fmt.Sprintf("%s %s from %s", filepath.ToSlash(s.Source.Root), line, strings.Join(from, ",")))
	}
	return strings.Join(out, "\n")
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ name, entries, want string }{
		{"plain",
			`claude-code a=x
			 cursor b=y`,
			` a=x from claude-code
			  b=y from cursor`},
		{"one server in two files",
			`claude-code a=x
			 cursor a=x`,
			` a=x from claude-code,cursor`},
		{"one definition under two names",
			`claude-code a=x
			 cursor b=x`,
			` a=x from claude-code
			  b=x from cursor`},
		{"a clash",
			`claude-code a=x
			 cursor a=y
			 vscode a=z
			 zed a=y`,
			` a=x from claude-code
			  a-cursor=y from cursor,zed
			  a-vscode=z from vscode`},
		{"a clash within one client",
			`claude-code a=x
			 claude-code a=y
			 claude-code a=z`,
			` a=x from claude-code
			  a-claude-code=y from claude-code
			  a-claude-code-2=z from claude-code`},
		{"a made name never displaces a written one",
			`claude-code a=x
			 cursor a=y
			 zed a-cursor=w`,
			` a=x from claude-code
			  a-cursor=w from zed
			  a-cursor-2=y from cursor`},
		{"user scope keeps the name, in whatever order",
			`cursor@/p a=y
			 zed a=x`,
			` a=x from zed
			 /p a-cursor=y from cursor`},
		{"a project's entry for the user's server",
			`zed a=x
			 cursor@/p a=x`,
			` a=x from zed,cursor`},
		{"a project's entry for a user's server that lost its name",
			`claude-code a=x
			 zed a=y
			 cursor@/p a=y`,
			` a=x from claude-code
			  a-zed=y from zed,cursor`},
		{"projects that do not meet",
			`cursor@/p a=x
			 cursor@/q a=y
			 vscode@/pp a=z`,
			`/p a=x from cursor
			 /pp a=z from vscode
			 /q a=y from cursor`},
		{"an inner project gives way",
			`cursor@/p/q a=x
			 claude-code@/p/q b=x
			 vscode@/p a=y`,
			`/p a=y from vscode
			 /p/q a-cursor=x from cursor
			 /p/q b=x from claude-code`},
		{"an inner project's copy",
			`cursor@/p/q a=x
			 vscode@/p a=x`,
			`/p a=x from vscode,cursor`},
		{"but not of what means something else there",
			`cursor@/p/q a=node ./server.js
			 vscode@/p a=node ./server.js
			 zed b=python tools/server.py
			 cursor@/p b=python tools/server.py
			 zed c=npx -y @scope/pkg.js
			 cursor@/p c=npx -y @scope/pkg.js`,
			` b=python tools/server.py from zed
			  c=npx -y @scope/pkg.js from zed,cursor
			 /p a=node ./server.js from vscode
			 /p b-cursor=python tools/server.py from cursor
			 /p/q a-cursor=node ./server.js from cursor`},
		{"what is above the home directory is not outside of a project in it",
			`cursor@/home/u/p a=x
			 cursor@/home a=y`,
			`/home a=y from cursor
			 /home/u/p a=x from cursor`},
		{"the user's own entry for a project comes first",
			`cursor@/p a=x
			 CLAUDE-CODE@/p a=y`,
			`/p a=y from CLAUDE-CODE
			 /p a-cursor=x from cursor`},
		{"and is the one that is trusted",
			`cursor@/p a=x
			 CLAUDE-CODE@/p a=x`,
			`/p a=x from CLAUDE-CODE,cursor`},
		{"off in one client, on in another",
			`claude-code -a=x
			 cursor a=x
			 zed -b=y
			 kiro -b=y`,
			` a=x from cursor,claude-code
			  -b=y from zed,kiro`},
		{"the user's is off, the project's is not",
			`claude-code -a=x
			 cursor@/p a=x`,
			` -a=x from claude-code
			 /p a-cursor=x from cursor`},
		{"refused in one client, not in another",
			`claude-code@/p !a=x
			 cursor@/p a=x
			 claude-code@/p !b=y`,
			`/p a=x from cursor,claude-code
			 /p !b=y from claude-code`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []string
			for line := range strings.Lines(c.want) {
				place, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				if !strings.HasPrefix(place, "/") {
					place, rest = "", strings.TrimSpace(line)
				}
				want = append(want, place+" "+rest)
			}
			servers := nameAll(entriesOf(c.entries), filepath.FromSlash("/home/u"))
			if d := cmp.Diff(strings.Join(want, "\n"), namesOf(servers)); d != "" {
				t.Error(d)
			}
			keys := map[string]bool{}
			for _, s := range servers {
				if keys[s.Key] {
					t.Errorf("two servers have the key %s", s.Key)
				}
				keys[s.Key] = true
				if (s.Source.Root == "") != (s.Key == s.Name) {
					t.Errorf("the key of %s in %q is %s", s.Name, s.Source.Root, s.Key)
				}
			}
		})
	}
}

// TestNamesDoNotDependOnUnrelatedRoots: adding a project changes nothing about
// the servers of one that is neither above nor below it.
func TestNamesDoNotDependOnUnrelatedRoots(t *testing.T) {
	base := "cursor a=x\ncursor@/p a=y\ncursor@/p/q a=z\nvscode@/p/q a-cursor=w\n"
	before := nameAll(entriesOf(base), "/home/u")
	after := nameAll(entriesOf("vscode@/r a=1\nvscode@/r a-cursor=y\nvscode@/r/p a=z\n"+base), "/home/u")
	var kept []Server
	for _, s := range after {
		if !strings.HasPrefix(s.Source.Root, filepath.FromSlash("/r")) {
			kept = append(kept, s)
		}
	}
	if d := cmp.Diff(namesOf(before), namesOf(kept)); d != "" {
		t.Error(d)
	}
}

func TestFiltersOfOneServerInTwoFiles(t *testing.T) {
	entries := entriesOf("claude-code a=x\ncursor a=x\nzed@/p a=x\n")
	entries[0].def.Exclude = []string{"one"}
	entries[1].def.Exclude = []string{"two"}
	entries[2].def.Exclude = []string{"*"} // a checkout hides nothing of the user's
	got := nameAll(entries, "/home/u")
	if len(got) != 1 || strings.Join(got[0].Exclude, " ") != "one two" {
		t.Errorf("got %+v", got)
	}
}

func TestDirOf(t *testing.T) {
	for _, c := range []struct{ root, dir, want string }{
		{"", "", "/home/u"}, {"", "sub", "/home/u/sub"}, {"", "/abs/./x", "/abs/x"}, {"", "~", "/home/u"}, {"", "~/x", "/home/u/x"},
		{"/p", "", "/p"}, {"/p", "sub", "/p/sub"}, {"/p", "../q", "/q"}, {"/p", "~/x", "/home/u/x"},
	} {
		s := clientconfig.Server{Dir: c.dir, Source: clientconfig.Source{Root: c.root}}
		if got := filepath.ToSlash(dirOf(s, "/home/u")); got != c.want {
			t.Errorf("%q in root %q: %s, want %s", c.dir, c.root, got, c.want)
		}
	}
}

// TestNamesProperty: whatever the files say, no caller sees two servers of one
// name, every entry is in exactly one server, and who asks from elsewhere does
// not matter.
func TestNamesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.Custom(func(t *rapid.T) string {
			client := rapid.SampledFrom([]string{"claude-code", "cursor", "zed", "CLAUDE-CODE"}).Draw(t, "client")
			root := rapid.SampledFrom([]string{"", "@/p", "@/p/q", "@/p/q/r", "@/p/s", "@/home", "@/home/u/w", "@/home/u"}).Draw(t, "root")
			name := rapid.SampledFrom([]string{"a", "-a", "!a", "b", "a-cursor", "a-cursor-2", "a-claude-code"}).Draw(t, "name")
			def := rapid.SampledFrom([]string{"x", "y", "z", "node ./s.js"}).Draw(t, "def")
			return client + root + " " + name + "=" + def + "\n"
		})
		lines := rapid.SliceOfN(line, 0, 14).Draw(t, "entries")
		entries := entriesOf(strings.Join(lines, ""))
		servers := nameAll(entries, "/home/u")
		sources := 0
		for i, s := range servers {
			sources += len(s.Sources)
			if s.Sources[0] != s.Source {
				t.Fatalf("the first source of %s is not its own", s.Name)
			}
			for _, o := range servers[i+1:] {
				meet := s.Source.Root == "" || o.Source.Root == "" || below(s.Source.Root, o.Source.Root, "/home/u") || below(o.Source.Root, s.Source.Root, "/home/u")
				if meet && s.Name == o.Name {
					t.Fatalf("a caller sees two servers %s:\n%s", s.Name, namesOf(servers))
				}
				if s.Key == o.Key {
					t.Fatalf("two servers have the key %s", s.Key)
				}
			}
		}
		if sources != len(entries) {
			t.Fatalf("%d entries became %d sources", len(entries), sources)
		}
		kept := slices.DeleteFunc(entriesOf(strings.Join(lines, "")), func(e entry) bool { return strings.HasPrefix(e.def.Source.Root, "/home") })
		without := nameAll(kept, "/home/u")
		servers = slices.DeleteFunc(servers, func(s Server) bool { return strings.HasPrefix(s.Source.Root, "/home") })
		for i := range servers { // those below /home may have added sources to the user's
			servers[i].Sources = slices.DeleteFunc(servers[i].Sources, func(s clientconfig.Source) bool { return strings.HasPrefix(s.Root, "/home") })
		}
		if d := cmp.Diff(namesOf(without), namesOf(servers)); d != "" {
			t.Fatal(d)
		}
	})
}
