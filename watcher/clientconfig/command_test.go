package clientconfig

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplitCommand(t *testing.T) {
	rows := []struct {
		in      string
		hasArgs bool
		want    []string
	}{
		{"npx", false, []string{"npx"}},
		{"  npx\t-y\n p ", false, []string{"npx", "-y", "p"}},
		{"npx -y", true, []string{"npx", "-y"}},
		{`sh -c "echo 'a b' && x"`, false, []string{"sh", "-c", "echo 'a b' && x"}},
		{`x 'a "b" \c' ''`, false, []string{"x", `a "b" \c`, ""}},
		{`x a\ b "c\"d\\e\f" \'`, false, []string{"x", "a b", `c"d\e\f`, "'"}},
		{`x --a="b c"d`, false, []string{"x", "--a=b cd"}},
		{"${HOME}/bin/x ${A:-b c} d", false, []string{"${HOME}/bin/x", "${A:-b c}", "d"}},
		{"{env:A b} {file:~/my file}", false, []string{"{env:A b}", "{file:~/my file}"}},
		{"x ${A:-${B:-c d}} e", false, []string{"x", "${A:-${B:-c d}}", "e"}},
		{"x ${A e", false, []string{"x", "${A", "e"}},
		{"x a&b;c http://e.example/?a=1&b=2", false, []string{"x", "a&b;c", "http://e.example/?a=1&b=2"}},
		{"x '&&' \"|\"", false, []string{"x", "&&", "|"}},

		// Paths with spaces.
		{`C:\Program Files\nodejs\node.exe`, false, []string{`C:\Program Files\nodejs\node.exe`}},
		{`C:\Program Files\nodejs\node.exe`, true, []string{`C:\Program Files\nodejs\node.exe`}},
		{`C:\Program Files (x86)\My App\srv.cmd`, true, []string{`C:\Program Files (x86)\My App\srv.cmd`}},
		{`C:/Program Files/nodejs/node.exe`, false, []string{`C:/Program Files/nodejs/node.exe`}},
		{`C:\Program Files\nodejs\node.exe C:\x\index.js --a "b c"`, false, []string{`C:\Program Files\nodejs\node.exe`, `C:\x\index.js`, "--a", "b c"}},
		{`"C:\Program Files\nodejs\node.exe" C:\x\index.js`, false, []string{`C:\Program Files\nodejs\node.exe`, `C:\x\index.js`}},
		{`C:\My Tools\server`, true, []string{`C:\My Tools\server`}},
		{`\\nas\My Share\srv.exe`, false, []string{`\\nas\My Share\srv.exe`}},
		{`node C:\x\index.js`, false, []string{"node", `C:\x\index.js`}},
		{"/Applications/My App.app/Contents/MacOS/srv", false, []string{"/Applications/My App.app/Contents/MacOS/srv"}},
		{"/Applications/My App.app/Contents/MacOS/srv", true, []string{"/Applications/My App.app/Contents/MacOS/srv"}},
		{"/Users/mira/My Server", true, []string{"/Users/mira/My Server"}},
		{"~/my tools/x", true, []string{"~/my tools/x"}},
		{"./my server", true, []string{"./my server"}},
		{"/usr/bin/env node", true, []string{"/usr/bin/env", "node"}},
		{"/usr/bin/node server.js", false, []string{"/usr/bin/node", "server.js"}},
		{"/usr/bin/node dist/server.js", false, []string{"/usr/bin/node", "dist/server.js"}},
		{"/usr/bin/node /srv/x.js", true, []string{"/usr/bin/node", "/srv/x.js"}},
		{"./run.sh data/dir", false, []string{"./run.sh", "data/dir"}},
		{"/opt/acme/srv --port 1", true, []string{"/opt/acme/srv", "--port", "1"}},
		{"/opt/acme/srv run", false, []string{"/opt/acme/srv", "run"}},
		{"/opt/acme/srv https://e.example/x", false, []string{"/opt/acme/srv", "https://e.example/x"}},
	}
	for _, r := range rows {
		line, err := splitCommand(r.in, r.hasArgs)
		if err != nil {
			t.Errorf("%q: %s", r.in, err.message)
			continue
		}
		if got := append([]string{line.command}, line.args...); !reflect.DeepEqual(got, r.want) {
			t.Errorf("%q (args %v) is split to %q, want %q", r.in, r.hasArgs, got, r.want)
		}
	}
	for _, in := range []string{`x "a`, `x 'a`, "cd x && y", "x | y", "x > y", "x ; y"} {
		if line, err := splitCommand(in, false); err == nil {
			t.Errorf("%q is split to %q %q", in, line.command, line.args)
		}
	}
	line, err := splitCommand("A=1 B='x y' npx p C=2", false)
	if err != nil || line.command != "npx" || !reflect.DeepEqual(line.args, []string{"p", "C=2"}) || !reflect.DeepEqual(line.env, map[string]string{"A": "1", "B": "x y"}) {
		t.Errorf("%+v %v", line, err)
	}
}

func FuzzSplitCommand(f *testing.F) {
	for _, s := range []string{`npx -y "a b"`, `C:\Program Files\x.exe a`, "${A:-b c} d", "a'b", "A=1 x", strings.Repeat("{", 100)} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, hasArgs bool) {
		line, err := splitCommand(s, hasArgs)
		if err != nil {
			if err.message == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		// Splitting loses white space, quotes and backslashes, and nothing else.
		n := len(line.command)
		for _, a := range line.args {
			n += len(a)
		}
		for k, v := range line.env {
			n += len(k) + len(v) + 1
		}
		if n > len(s) {
			t.Errorf("%q grew to %+v", s, line)
		}
	})
}
