package trust

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// checkout makes a project of files and returns its root.
func checkout(t testing.TB, files map[string]string) string {
	t.Helper()
	root := filepath.Join(tempDir(t), "project")
	must(t, os.Mkdir(root, 0o700))
	for name, content := range files {
		put(t, root, name, content)
	}
	return root
}

func put(t testing.TB, root, name, content string) {
	t.Helper()
	p := filepath.Join(root, filepath.FromSlash(name))
	must(t, os.MkdirAll(filepath.Dir(p), 0o700))
	must(t, os.WriteFile(p, []byte(content), 0o700))
}

func base() clientconfig.Server {
	return clientconfig.Server{
		Name: "s", Transport: clientconfig.Stdio, Command: "node", Args: []string{"server.js", "--port", "1"},
		Env: map[string]string{"A": "1", "B": "2"}, Forward: []string{"X", "Y"}, Headers: map[string]string{"H": "1"},
		Source: clientconfig.Source{Client: "claude-code", Scope: clientconfig.Project, File: "/p/.mcp.json", Line: 3},
	}
}

func fingerprint(t testing.TB, s clientconfig.Server, root string) Fingerprint {
	t.Helper()
	fp, d := FingerprintOf(s, s, root)
	if fp == "" {
		t.Fatalf("no fingerprint: %s", d.Unfit)
	}
	return fp
}

// TestFingerprintOfDefinition: each part counts, and each change is told.
func TestFingerprintOfDefinition(t *testing.T) {
	root := checkout(t, map[string]string{"server.js": "1", "other.js": "1", "conf.env": "A=1"})
	before := base()
	fp, details := FingerprintOf(before, before, root)
	for name, c := range map[string]struct {
		change func(*clientconfig.Server)
		says   string
	}{
		"command":              {func(s *clientconfig.Server) { s.Command = "nodejs" }, "the command was node, is nodejs"},
		"one argument":         {func(s *clientconfig.Server) { s.Args[2] = "2" }, "argument 3 was 1, is 2"},
		"one more argument":    {func(s *clientconfig.Server) { s.Args = append(s.Args, "-v") }, "argument 4 is new: -v"},
		"one argument less":    {func(s *clientconfig.Server) { s.Args = s.Args[:2] }, "argument 3 is gone, was 1"},
		"order of arguments":   {func(s *clientconfig.Server) { s.Args = []string{"server.js", "1", "--port"} }, "argument 2 was --port, is 1"},
		"two arguments joined": {func(s *clientconfig.Server) { s.Args = []string{"server.js", "--port 1"} }, "argument 2"},
		"an empty argument":    {func(s *clientconfig.Server) { s.Args = append(s.Args, "") }, "argument 4 is new"},
		"one env value":        {func(s *clientconfig.Server) { s.Env["A"] = "3" }, "the value of env A is different"},
		"one env name":         {func(s *clientconfig.Server) { delete(s.Env, "A"); s.Env["C"] = "1" }, "env C is new"},
		"env value moved":      {func(s *clientconfig.Server) { s.Env["A"], s.Env["B"] = "2", "1" }, "env B"},
		"an empty env value":   {func(s *clientconfig.Server) { s.Env["C"] = "" }, "env C is new"},
		"header value":         {func(s *clientconfig.Server) { s.Headers["H"] = "2" }, "the value of header h is different"},
		"header name":          {func(s *clientconfig.Server) { s.Headers = map[string]string{"I": "1"} }, "header i is new"},
		"header variable":      {func(s *clientconfig.Server) { s.HeaderVars = map[string]string{"K": "V"} }, "header k is new"},
		"bearer variable":      {func(s *clientconfig.Server) { s.BearerVar = "V" }, "header authorization is new"},
		"env becomes header":   {func(s *clientconfig.Server) { s.Headers["A"] = "1"; delete(s.Env, "A") }, "header a is new"},
		"cwd":                  {func(s *clientconfig.Server) { s.Dir = "sub" }, "the working directory is new: sub"},
		"hidden characters":    {func(s *clientconfig.Server) { s.Dir = "s\x1b[8mub\u202e" }, "the working directory is new: s[8mub"},
		"url":                  {func(s *clientconfig.Server) { s.URL = "https://h/mcp" }, "the URL is new"},
		"transport":            {func(s *clientconfig.Server) { s.Transport = clientconfig.SSE }, "the transport was stdio, is sse"},
		"forward list":         {func(s *clientconfig.Server) { s.Forward = []string{"X"} }, "passed on"},
		"env file":             {func(s *clientconfig.Server) { s.EnvFile = "conf.env" }, "the env file is new"},
		"source file":          {func(s *clientconfig.Server) { s.Source.File = "/p/.cursor/mcp.json" }, "the source file was"},
	} {
		after := base()
		after.Args = slices.Clone(after.Args)
		c.change(&after)
		now, d := FingerprintOf(after, after, root)
		if now == fp || now == "" {
			t.Errorf("%s: the fingerprint is %q as before", name, now)
		}
		if says := strings.Join(details.Changes(d), "\n"); !strings.Contains(says, c.says) || strings.ContainsAny(says, "\x1b\u202e") {
			t.Errorf("%s: told %q, want %q", name, says, c.says)
		}
	}
	for name, change := range map[string]func(*clientconfig.Server){
		"the same":              func(*clientconfig.Server) {},
		"line in the file":      func(s *clientconfig.Server) { s.Source.Line = 9 },
		"order of the forwards": func(s *clientconfig.Server) { s.Forward = []string{"Y", "X"} },
		"order of the env":      func(s *clientconfig.Server) { s.Env = map[string]string{"B": "2", "A": "1"} },
		"case of a header":      func(s *clientconfig.Server) { s.Headers = map[string]string{"h": "1"} },
		"final name":            func(s *clientconfig.Server) { s.Name = "s-claude-code" },
		"a timeout":             func(s *clientconfig.Server) { s.CallTimeout = 1 },
		"secrets found in it":   func(s *clientconfig.Server) { s.Secrets = []string{"abcdef"} },
	} {
		after := base()
		change(&after)
		now, d := FingerprintOf(after, after, root)
		if now != fp {
			t.Errorf("%s: another fingerprint", name)
		}
		if says := details.Changes(d); len(says) > 0 {
			t.Errorf("%s: told %q", name, says)
		}
	}
}

func TestFingerprintOfVariables(t *testing.T) {
	written := base()
	written.Command, written.URL = "${BIN}", "https://${HOST}/mcp?key=${KEY}"
	written.Env = map[string]string{"TOKEN": "${TOKEN}"}
	expand := func(bin, host, key, token string) Fingerprint {
		e := written
		e.Command, e.URL = bin, "https://"+host+"/mcp?key="+key
		e.Env = map[string]string{"TOKEN": token}
		fp, _ := FingerprintOf(written, e, "")
		return fp
	}
	first := expand("/bin/a", "h", "k", "t")
	if expand("/bin/a", "h", "k2", "t2") != first {
		t.Error("a secret of the environment that rotates asks again")
	}
	if expand("/bin/b", "h", "k", "t") == first || expand("/bin/a", "evil", "k", "t") == first {
		t.Error("another program or host behind a variable does not ask again")
	}
}

// TestFingerprintOfFiles: what of a project is part of a definition.
func TestFingerprintOfFiles(t *testing.T) {
	stdio := func(command string, args ...string) clientconfig.Server {
		return clientconfig.Server{Transport: clientconfig.Stdio, Command: command, Args: args}
	}
	with := func(s clientconfig.Server, change func(*clientconfig.Server)) clientconfig.Server {
		change(&s)
		return s
	}
	const abs = "{root}" // stands for the root in what follows
	for name, c := range map[string]struct {
		def    clientconfig.Server
		file   string // whose content counts, or not
		counts bool
	}{
		"script":                 {stdio("node", "a/server.js"), "a/server.js", true},
		"dotted":                 {stdio("node", "./a/server.js"), "a/server.js", true},
		"through the parent":     {stdio("node", "b/../a/server.js"), "a/server.js", true},
		"back in by its name":    {stdio("node", "../project/a/server.js"), "a/server.js", true},
		"absolute":               {stdio("node", abs+"/a/server.js"), "a/server.js", true},
		"by proc":                {stdio("node", "/proc/self/cwd/a/server.js"), "a/server.js", true},
		"without its ending":     {stdio("node", "a/server"), "a/server.js", true},
		"command":                {stdio("./run.sh"), "run.sh", true},
		"absolute command":       {stdio(abs + "/run.sh"), "run.sh", true},
		"command under cwd":      {with(stdio("./server.js"), func(s *clientconfig.Server) { s.Dir = "a" }), "a/server.js", true},
		"script under cwd":       {with(stdio("node", "server.js"), func(s *clientconfig.Server) { s.Dir = "a" }), "a/server.js", true},
		"script under abs cwd":   {with(stdio("node", "server.js"), func(s *clientconfig.Server) { s.Dir = abs + "/a" }), "a/server.js", true},
		"up from cwd":            {with(stdio("node", "../run.sh"), func(s *clientconfig.Server) { s.Dir = "a" }), "run.sh", true},
		"flag with =":            {stdio("x", "--config=./a/conf.json"), "a/conf.json", true},
		"flag and value":         {stdio("x", "--config", "a/conf.json"), "a/conf.json", true},
		"short flag":             {stdio("node", "-r./a/server.js", "x"), "a/server.js", true},
		"file URL":               {stdio("node", "--import", "file://"+abs+"/a/server.js"), "a/server.js", true},
		"escaped file URL":       {stdio("node", "--import", "file://"+abs+"/a/%73erver.js"), "a/server.js", true},
		"in a shell line":        {stdio("sh", "-c", "cd a && exec node 'a/server.js' --x"), "a/server.js", true},
		"variable":               {stdio("node", "${workspaceFolder}/a/server.js"), "a/server.js", true},
		"default of a variable":  {stdio("node", "${SCRIPT:-./a/server.js}"), "a/server.js", true},
		"main of a directory":    {stdio("node", "pkg"), "pkg/dist/main.js", true},
		"manifest":               {stdio("node", "./pkg"), "pkg/package.json", true},
		"index of a directory":   {stdio("node", "c"), "c/index.js", true},
		"python directory":       {stdio("python3", "py"), "py/__main__.py", true},
		"python module":          {stdio("python3.12", "-m", "py.sub"), "py/sub.py", true},
		"package of a module":    {stdio("/usr/bin/python3", "-m", "py"), "py/__main__.py", true},
		"npm script":             {stdio("npm", "run", "mcp"), "package.json", true},
		"file of an npm script":  {stdio("npm", "run", "--silent", "mcp"), "tools/mcp.js", true},
		"before an npm script":   {stdio("npm", "run", "mcp"), "tools/pre.js", true},
		"npmrc":                  {stdio("npx", "-y", "foo@1"), ".npmrc", true},
		"local package":          {stdio("npx", "-y", "@s/foo@1.0"), "node_modules/.bin/foo", true},
		"main of local package":  {stdio("npx", "-y", "@s/foo@1.0"), "node_modules/@s/foo/index.js", true},
		"Makefile":               {stdio("make", "-s", "mcp"), "Makefile", true},
		"through env":            {stdio("env", "A=1", "make", "mcp"), "Makefile", true},
		"env file":               {with(stdio("x"), func(s *clientconfig.Server) { s.EnvFile = "a/conf.json" }), "a/conf.json", true},
		"NODE_OPTIONS":           {with(stdio("x"), func(s *clientconfig.Server) { s.Env = map[string]string{"NODE_OPTIONS": "--require ./a/server.js"} }), "a/server.js", true},
		"PATH":                   {with(stdio("tool"), func(s *clientconfig.Server) { s.Env = map[string]string{"PATH": "./bin:/usr/bin"} }), "bin/tool", true},
		"opencode's file":        {with(stdio("x"), func(s *clientconfig.Server) { s.Headers = map[string]string{"K": "{file:./a/conf.json}"} }), "a/conf.json", true},
		"executable value of db": {stdio("./run.sh", "--db", "a/server.js"), "a/server.js", true},

		"log that is read too": {with(stdio("x", "--log", "notes.txt"), func(s *clientconfig.Server) { s.EnvFile = "notes.txt" }), "notes.txt", true},

		"another file":       {stdio("node", "a/server.js"), "run.sh", false},
		"plain env value":    {with(stdio("x"), func(s *clientconfig.Server) { s.Env = map[string]string{"DATA": "a/conf.json"} }), "a/conf.json", false},
		"data directory":     {stdio("npx", "-y", "@m/server-filesystem@1", "."), "package.json", false},
		"database":           {stdio("uvx", "mcp-server-sqlite==1", "--db-path", "data.db"), "data.db", false},
		"log file":           {stdio("x", "--log-file=notes.txt"), "notes.txt", false},
		"foreign path":       {stdio("node", "/a/server.js"), "a/server.js", false},
		"foreign same start": {stdio("node", abs+"x/a/server.js"), "a/server.js", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := checkout(t, map[string]string{
				"a/server.js": "1", "b/x": "", "run.sh": "#!/bin/sh", "a/conf.json": "{}", "c/index.js": "1",
				"pkg/package.json": `{"main":"dist/main"}`, "pkg/dist/main.js": "1", "py/__init__.py": "1", "py/__main__.py": "1", "py/sub.py": "1",
				"package.json": `{"scripts":{"mcp":"node tools/mcp.js --x","premcp":"node tools/pre"}}`, "tools/mcp.js": "1", "tools/pre.js": "1",
				".npmrc": "a=b", "node_modules/.bin/foo": "1", "node_modules/@s/foo/index.js": "1", "Makefile": "mcp:", "bin/tool": "1",
				"data.db": "SQLite format 3\x00....", "notes.txt": "one",
			})
			must(t, os.Chmod(filepath.Join(root, "notes.txt"), 0o600))
			def := c.def
			def.Command = strings.ReplaceAll(def.Command, abs, root)
			def.Dir = strings.ReplaceAll(def.Dir, abs, root)
			def.Args = slices.Clone(def.Args)
			for i := range def.Args {
				def.Args[i] = strings.ReplaceAll(def.Args[i], abs, root)
			}
			before, details := FingerprintOf(def, def, root)
			if before == "" {
				t.Fatal(details.Unfit)
			}
			p := filepath.Join(root, filepath.FromSlash(c.file))
			content, err := os.ReadFile(p)
			must(t, err)
			content[len(content)-1] ^= 1 // one bit, the same size
			if strings.HasSuffix(c.file, "package.json") {
				content = append(content[:len(content)-1], "} "...)
			}
			must(t, os.WriteFile(p, content, 0))
			after, now := FingerprintOf(def, def, root)
			if (after != before) != c.counts {
				t.Errorf("changing %s: another fingerprint is %v, want %v (files %v)", c.file, after != before, c.counts, details.Files)
			}
			if says := strings.Join(details.Changes(now), "\n"); c.counts != strings.Contains(says, "the content of the file "+c.file+" is different") {
				t.Errorf("told %q", says)
			}
			must(t, os.Remove(p))
			if gone := fingerprint(t, def, root); c.counts && gone == before {
				t.Error("removing it is not noticed")
			}
		})
	}
}

func TestAFileThatAppearsCounts(t *testing.T) {
	root := checkout(t, map[string]string{"package.json": "{}"})
	def := clientconfig.Server{Command: "npx", Args: []string{"-y", "foo@1.0.0"}}
	before := fingerprint(t, def, root)
	put(t, root, "node_modules/.bin/foo", "#!/bin/sh")
	if fingerprint(t, def, root) == before {
		t.Error("a local copy in the place of the published package is not noticed")
	}
	def = clientconfig.Server{Command: "node", Args: []string{"late.js"}}
	before = fingerprint(t, def, root)
	put(t, root, "late.js", "x")
	if fingerprint(t, def, root) == before {
		t.Error("a script that appears is not noticed")
	}
}

func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	root := checkout(t, map[string]string{"a/server.js": "1", "a/sub/x.js": "1", "evil.js": "1", "x.js": "1"})
	outside := filepath.Join(filepath.Dir(root), "outside.js")
	must(t, os.WriteFile(outside, []byte("1"), 0o600))
	link := func(target, name string) { must(t, os.Symlink(target, filepath.Join(root, name))) }
	link("a/server.js", "in.js")
	link(outside, "out.js")
	link("../outside.js", "rel.js")
	link("a/sub", "dir")
	link("round.js", "round.js")
	link(root+"/a", "home")
	files := func(arg string) map[string]File {
		def := clientconfig.Server{Command: "node", Args: []string{arg}}
		_, d := FingerprintOf(def, def, root)
		out := map[string]File{}
		for _, f := range d.Files {
			out[f.Path] = f
		}
		return out
	}
	if f := files("in.js"); f["a/server.js"].Hash == "" {
		t.Errorf("a link inside: %v", f)
	}
	if f := files("home/server.js"); f["a/server.js"].Hash == "" {
		t.Errorf("an absolute link back in: %v", f)
	}
	for _, name := range []string{"out.js", "rel.js"} {
		if f := files(name)[name]; f.Hash != "" || !strings.HasSuffix(f.Link, "/outside.js") {
			t.Errorf("a link out: %+v", f)
		}
	}
	// What the system opens for dir/../x.js is a/x.js, not x.js.
	put(t, root, "a/x.js", "2")
	if f := files("dir/../x.js"); f["a/x.js"].Hash == "" || f["x.js"].Hash != "" {
		t.Errorf("the parent of a link: %v", f)
	}
	if f := files("round.js"); len(f) != 0 {
		t.Errorf("a circle: %v", f)
	}
	// Another target asks again, other content outside does not.
	def := clientconfig.Server{Command: "node", Args: []string{"out.js"}}
	before := fingerprint(t, def, root)
	must(t, os.WriteFile(outside, []byte("2"), 0o600))
	if fingerprint(t, def, root) != before {
		t.Error("the content outside was read")
	}
	must(t, os.Remove(filepath.Join(root, "out.js")))
	link("/etc/hostname", "out.js")
	if fingerprint(t, def, root) == before {
		t.Error("another target of the link is not noticed")
	}
	// The same project by another name.
	alias := root + "-alias"
	must(t, os.Symlink(root, alias))
	for _, spelled := range []string{root, alias} {
		def := clientconfig.Server{Command: "node", Args: []string{spelled + "/a/server.js"}}
		if _, d := FingerprintOf(def, def, alias); len(d.Files) != 1 {
			t.Errorf("%s seen from %s: %v", spelled, alias, d.Files)
		}
	}
}

func TestUnfitScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("fifos and modes of Unix")
	}
	root := checkout(t, map[string]string{"a.js": "1"})
	must(t, exec.Command("mkfifo", filepath.Join(root, "fifo.js")).Run())
	def := clientconfig.Server{Command: "node", Args: []string{"fifo.js"}}
	fingerprint(t, def, root) // must return at all
	must(t, os.WriteFile(filepath.Join(root, "big"), nil, 0o700))
	must(t, os.Truncate(filepath.Join(root, "big"), maxHashed+1))
	def = clientconfig.Server{Command: "./big"}
	if fp, d := FingerprintOf(def, def, root); fp != "" || !strings.Contains(d.Unfit, "256 MB") {
		t.Errorf("a file beyond the limit: %q %q", fp, d.Unfit)
	}
	if fp, d := FingerprintOf(def, def, root+"/nowhere"); fp != "" || d.Unfit == "" {
		t.Errorf("a project that is not there: %q %q", fp, d.Unfit)
	}
	if os.Geteuid() != 0 {
		must(t, os.Chmod(filepath.Join(root, "a.js"), 0))
		def = clientconfig.Server{Command: "node", Args: []string{"a.js"}}
		if fp, d := FingerprintOf(def, def, root); fp != "" || d.Unfit == "" {
			t.Errorf("an unreadable script: %q %q", fp, d.Unfit)
		}
	}
}

// TestRememberedHash: a file that was hashed before is read again when it changed,
// even if its size and time are the same.
func TestRememberedHash(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no change time there")
	}
	root := checkout(t, map[string]string{"a.js": "1"})
	p := filepath.Join(root, "a.js")
	old, err := os.Stat(root)
	must(t, err)
	long := old.ModTime().Add(-1e12)
	must(t, os.Chtimes(p, long, long))
	def := clientconfig.Server{Command: "node", Args: []string{"a.js"}}
	before := fingerprint(t, def, root)
	if fingerprint(t, def, root) != before {
		t.Fatal("not stable")
	}
	hashed.Lock()
	_, remembered := hashed.files[filepath.ToSlash(p)]
	hashed.Unlock()
	if !remembered {
		t.Error("a settled file is hashed each time")
	}
	put(t, root, "a.js", "2")
	must(t, os.Chtimes(p, long, long))
	rewritten := fingerprint(t, def, root)
	if rewritten == before {
		t.Error("a file rewritten in place with the same size and time is not noticed")
	}
	put(t, root, "new", "1")
	must(t, os.Chtimes(filepath.Join(root, "new"), long, long))
	must(t, os.Rename(filepath.Join(root, "new"), p))
	if fingerprint(t, def, root) == rewritten {
		t.Error("a replaced file of the same size and time is not noticed")
	}
}

// TestFingerprintIsInjective: two definitions that differ anywhere differ in
// their fingerprint.
func TestFingerprintIsInjective(t *testing.T) {
	word := rapid.StringMatching(`[ab:\n0-9]{0,4}`)
	server := rapid.Custom(func(t *rapid.T) clientconfig.Server {
		return clientconfig.Server{
			Command: word.Draw(t, "command") + "x", Args: rapid.SliceOfN(word, 0, 3).Draw(t, "args"), Dir: word.Draw(t, "dir"),
			Env: rapid.MapOfN(word, word, 0, 2).Draw(t, "env"), EnvFile: word.Draw(t, "env file"),
			Source: clientconfig.Source{File: word.Draw(t, "file")},
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := server.Draw(t, "a"), server.Draw(t, "b")
		same := a.Command == b.Command && slices.Equal(a.Args, b.Args) && a.Dir == b.Dir && maps.Equal(a.Env, b.Env) && a.EnvFile == b.EnvFile && a.Source == b.Source
		fa, _ := FingerprintOf(a, a, "")
		fb, _ := FingerprintOf(b, b, "")
		if (fa == fb) != same {
			t.Fatalf("same %v, fingerprints %s %s", same, fa, fb)
		}
	})
}

func FuzzProjectFiles(f *testing.F) {
	f.Add("node", "a/../b.js", "sub")
	f.Add("sh", "-c './x; ../y' --a=@b", "../..")
	f.Add("python3", "-m", "\x00")
	f.Fuzz(func(t *testing.T, command, arg, dir string) {
		root := checkout(t, map[string]string{"a/b.js": "1", "x": "#!", "package.json": `{"scripts":{"a":"b"},"main":"../../x"}`})
		def := clientconfig.Server{Command: command, Args: []string{arg, arg}, Dir: dir}
		_, d := FingerprintOf(def, def, root)
		for _, file := range d.Files {
			if file.Hash != "" && !filepath.IsLocal(filepath.FromSlash(file.Path)) {
				t.Errorf("read %q out of the project", file.Path)
			}
		}
	})
}

func BenchmarkFingerprint(b *testing.B) {
	root := checkout(b, map[string]string{"dist/index.js": strings.Repeat("x", 1<<20), "package.json": "{}"})
	p := filepath.Join(root, "dist", "index.js")
	info, err := os.Stat(p)
	must(b, err)
	must(b, os.Chtimes(p, info.ModTime(), info.ModTime().Add(-1e12)))
	def := clientconfig.Server{Command: "node", Args: []string{"${workspaceFolder}/dist/index.js", "--stdio"}, Env: map[string]string{"TOKEN": "x"}}
	for b.Loop() {
		FingerprintOf(def, def, root)
	}
}

// TestADefinitionOfManyWords is about text that a stranger wrote to keep the daemon
// busy: a launcher looks at all words behind it.
func TestADefinitionOfManyWords(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "last.js"), []byte("x"), 0o600))
	inline := func(text string) ([]File, string) {
		_, d := FingerprintOf(clientconfig.Server{Command: "sh", Args: []string{"-c", text}}, clientconfig.Server{}, root)
		return d.Files, d.Unfit
	}
	if files, unfit := inline(strings.Repeat("node npm ", 20_000) + "last"); unfit != "" || len(files) != 1 || files[0].Path != "last.js" {
		t.Errorf("%v %q", files, unfit)
	}
	var text strings.Builder
	for name := range launchers {
		text.WriteString(name + " ")
	}
	for i := range 20_000 {
		fmt.Fprintf(&text, "word%d ", i)
	}
	if _, unfit := inline(text.String()); !strings.Contains(unfit, "so many paths") {
		t.Errorf("%q", unfit)
	}
}
