//go:build unix

package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// home is a user's home directory with these files.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.Contains(name, "bin/") {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// guard is what Debian's .bashrc opens with.
const guard = "case $- in *i*) ;; *) return;; esac\n"

func needBash(t *testing.T) string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	return bash
}

func login(t *testing.T, vars ...string) Environ {
	t.Helper()
	e, err := LoginEnviron(t.Context(), func() []string { return vars })
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A login shell reads .bashrc only where the profile says so; a terminal always
// does.
func TestLoginEnvironWithoutAProfileThatReadsBashrc(t *testing.T) {
	t.Parallel()
	bash := needBash(t)
	const rc = guard + `export PATH="$HOME/tools/bin:$PATH" TIMES="$TIMES."`
	for name, profiles := range map[string]map[string]string{
		"none":                  {},
		"of another program":    {".bash_profile": "export A=1\n", ".profile": ". ~/.bashrc\n"},
		"that reads another":    {".bash_profile": ". ~/.profile\n", ".profile": ". ~/.bashrc\n"},
		"that reads one of two": {".bash_login": "[ -f ~/.bashrc ] && . ~/.bashrc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{".bashrc": rc, "tools/bin/only-there": "#!/bin/sh\n"}
			maps.Copy(files, profiles)
			h := home(t, files)
			e := login(t, "HOME="+h, "SHELL="+bash)
			if _, err := e.LookPath("only-there", "/"); err != nil || e.Origin != "login shell (bash -l -i)" {
				t.Errorf("%v, origin %q, problem %q", err, e.Origin, e.Problem)
			}
			if e.Vars["TIMES"] != "." {
				t.Errorf("read %d times", len(e.Vars["TIMES"]))
			}
		})
	}
}

func TestLoginEnviron(t *testing.T) {
	t.Parallel()
	bash := needBash(t)
	k := newTestKeeper(t)
	profile := "export FROM_PROFILE=1\n[ -f ~/.bashrc ] && . ~/.bashrc\n"
	for _, c := range []struct {
		name, bashrc string
		slow         bool
		origin       string
		found        bool // the command that only .bashrc has on PATH
		problem      string
	}{
		{"behind the interactive guard", guard + `export PATH="$HOME/tools/bin:$PATH"`, false, "login shell (bash -l -i)", true, ""},
		{"that prints", guard + "echo welcome; cat /etc/passwd; printf '\\0\\1\\2'\nexport PATH=$HOME/tools/bin:$PATH\ntrap 'echo bye' EXIT", false, "login shell (bash -l -i)", true, ""},
		{"that has env as an alias and a function", guard + "alias env='echo no'\nprintf() { :; }\ncommand() { :; }\nexport PATH=$HOME/tools/bin:$PATH", false, "login shell (bash -l -i)", true, ""},
		{"that fails", guard + "export PATH=$HOME/tools/bin:$PATH\nfalse\nset -e\nfalse", false, "", false, ""},
		{"that leaves a process which holds the output", guard + "export PATH=$HOME/tools/bin:$PATH\nsleep 300 &\ndisown", false, "login shell (bash -l -i)", true, ""},
		{"that exits", guard + "exit 3", false, "login shell (bash -l) and well-known directories", false, "exit status 3, before it printed its environment"},
		{"that exits with a status of its own at the end", guard + "export PATH=$HOME/tools/bin:$PATH\ntrap 'exit 9' EXIT", false, "login shell (bash -l -i)", true, ""},
		{"that becomes another program", guard + "exec cat", false, "login shell (bash -l) and well-known directories", false, "printed no environment"},
		{"that hangs", guard + "(trap '' TERM HUP INT; while :; do sleep 1; done)", true, "login shell (bash -l) and well-known directories", false, "no answer in 5s"},
		{"that exits after it set PATH", guard + "export PATH=$HOME/tools/bin:$PATH\nexit 3", false, "login shell (bash -l) and well-known directories", true, "exit status 3, before it printed its environment"},
		{"that hangs after it set PATH", guard + "f() { export PATH=$HOME/tools/bin:$PATH; }\nf\nexec >/dev/null\nsleep 1000", true, "login shell (bash -l) and well-known directories", true, "no answer in 5s"},
		{"that asks", guard + "read -p 'name? ' name\nexport PATH=$HOME/tools/bin:$PATH", false, "login shell (bash -l -i)", true, ""},
	} {
		ask := func(t *testing.T, how func(context.Context, func() []string) (Environ, error)) {
			t.Parallel()
			h := home(t, map[string]string{".profile": profile, ".bashrc": c.bashrc, "tools/bin/only-there": "#!/bin/sh\n", ".local/bin/well-known": "#!/bin/sh\n"})
			began := time.Now()
			e, err := how(t.Context(), func() []string { return []string{"HOME=" + h, "SHELL=" + bash} })
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if c.origin != "" && e.Origin != c.origin {
				t.Errorf("origin %q, problem %q", e.Origin, e.Problem)
			}
			if _, err := e.LookPath("only-there", "/"); c.origin != "" && (err == nil) != c.found {
				t.Errorf("found: %v", err)
			}
			if _, err := e.LookPath("well-known", "/"); !c.found && err != nil {
				t.Error(err)
			}
			if e.Vars["FROM_PROFILE"] != "1" {
				t.Error("what .profile exports is missing")
			}
			if !strings.Contains(e.Problem, c.problem) || c.problem == "" && c.origin != "" && e.Problem != "" {
				t.Errorf("problem %q", e.Problem)
			}
			if e.Vars["HOME"] != h || e.Vars["PATH"] == "" || e.Vars["USER"] != userName() {
				t.Errorf("%v", e.Vars)
			}
			for _, name := range []string{resolving, markerName, "DISABLE_AUTO_UPDATE", "SHLVL", "PWD", "_"} {
				if v, ok := e.Vars[name]; ok {
					t.Errorf("%s=%s is in it", name, v)
				}
			}
			if !c.slow && took > shellTimeout {
				t.Errorf("took %v", took)
			}
			within(t, 2*stopStep, "nothing of the session runs", func() bool { return len(processesIn(h)) == 0 })
		}
		t.Run(c.name, func(t *testing.T) { ask(t, LoginEnviron) })
		t.Run(c.name+", below the keeper", func(t *testing.T) { ask(t, k.LoginEnviron) })
	}
}

// processesIn are the processes whose HOME it is.
func processesIn(home string) (pids []int) {
	table, _ := processTable()
	for _, p := range table {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err == nil && !p.zombie && strings.Contains("\x00"+string(data), "\x00HOME="+home+"\x00") {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func userName() string {
	e, _ := passwd()
	return e.name
}

// What an rc file puts into a session of its own, as ssh-agent does, is meant to
// stay: as long as the daemon.
func TestLoginShellsAgentLivesWithTheKeeper(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip(err)
	}
	k, err := NewKeeper(testKeeperOptions(filepath.Join(t.TempDir(), "journal")))
	if err != nil {
		t.Fatal(err)
	}
	h := home(t, map[string]string{".profile": setsid + " -f sleep 300 </dev/null >/dev/null 2>&1; export AGENT=up"})
	e, err := k.LoginEnviron(t.Context(), func() []string { return []string{"HOME=" + h, "SHELL=/bin/sh"} })
	if err != nil || e.Vars["AGENT"] != "up" {
		t.Errorf("%+v, %v", e, err)
	}
	within(t, 2*stopStep, "the shell is gone and its agent is not", func() bool { return len(processesIn(h)) == 1 })
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := processesIn(h); len(left) > 0 {
		t.Errorf("%v outlive the keeper", left)
	}
}

// A service manager may give nothing at all.
func TestLoginEnvironFromNothing(t *testing.T) {
	if userName() == "" {
		t.Skip("the user data base does not know this user")
	}
	e := login(t)
	for _, name := range []string{"HOME", "PATH", "USER", "LOGNAME", "SHELL"} {
		if e.Vars[name] == "" {
			t.Errorf("%s is empty; %s", name, e.Problem)
		}
	}
	if _, err := e.LookPath("sh", "/"); err != nil {
		t.Error(err)
	}
}

func TestLoginEnvironKeepsValuesAsTheyAre(t *testing.T) {
	bash := needBash(t)
	h := home(t, map[string]string{".profile": "export ODD=$'a=b\\nPATH=/evil\\n c\\t\"q\" \\'s\\' \\\\ \\xff é'\nexport EMPTY=\nf() { :; }; export -f f\nexport OVER=login\n"})
	e := login(t, "HOME="+h, "SHELL="+bash, "OVER=own", "KEPT=own", "PATH=/mine:/usr/bin:/bin", markerName+"=other:daemon:1")
	if got, want := e.Vars["ODD"], "a=b\nPATH=/evil\n c\t\"q\" 's' \\ \xff é"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, ok := e.Vars["EMPTY"]; !ok {
		t.Error("an empty variable is gone")
	}
	if e.Vars["OVER"] != "login" || e.Vars["KEPT"] != "own" {
		t.Errorf("OVER=%q KEPT=%q", e.Vars["OVER"], e.Vars["KEPT"])
	}
	if !slices.Contains(filepath.SplitList(e.Vars["PATH"]), "/mine") {
		t.Errorf("PATH=%s", e.Vars["PATH"])
	}
	for name := range e.Vars {
		if strings.HasPrefix(name, "BASH_FUNC_") || name == markerName {
			t.Errorf("%s is in it", name)
		}
	}
}

func TestLoginEnvironWithoutAShell(t *testing.T) {
	h := home(t, map[string]string{
		".nvm/versions/node/v9.1.0/bin/node": "", ".nvm/versions/node/v22.3.0/bin/node": "", ".nvm/versions/node/v22.11.0/bin/node": "", ".nvm/versions/node/v24.0.1/bin/node": "",
		".nvm/alias/default": "lts/*\n", ".nvm/alias/lts/*": "lts/jod\n", ".nvm/alias/lts/jod": "v22.11.0\n",
		".cargo/bin/x": "", ".bun/bin/x": "",
	})
	for _, shell := range []string{"/none/such", "/bin/false", "/etc/passwd"} {
		e := login(t, "HOME="+h, "SHELL="+shell)
		if e.Origin != "well-known directories" || !strings.Contains(e.Problem, shell) {
			t.Errorf("%s: origin %q, problem %q", shell, e.Origin, e.Problem)
		}
		if got, err := e.LookPath("node", "/"); err != nil || got != filepath.Join(h, ".nvm/versions/node/v22.11.0/bin/node") {
			t.Errorf("%s: %q, %v", shell, got, err)
		}
		for _, dir := range []string{".cargo/bin", ".bun/bin"} {
			if !slices.Contains(filepath.SplitList(e.Vars["PATH"]), filepath.Join(h, dir)) {
				t.Errorf("%s is not in %s", dir, e.Vars["PATH"])
			}
		}
	}
	// No alias: the newest, by number and not by letter.
	os.RemoveAll(filepath.Join(h, ".nvm/alias"))
	if got := nvmBin(filepath.Join(h, ".nvm")); filepath.Base(filepath.Dir(got)) != "v24.0.1" {
		t.Error(got)
	}
}

// The shells of other users, those of them that this machine has.
func TestLoginEnvironOfOtherShells(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"dash": {".profile": "export FROM_RC=1"},
		"zsh":  {".zshrc": "export FROM_RC=1"},
		"fish": {".config/fish/config.fish": "status is-interactive; and set -gx FROM_RC 1"},
		"tcsh": {".tcshrc": "setenv FROM_RC 1"},
		"nu":   {".config/nushell/env.nu": "$env.FROM_RC = '1'"},
	} {
		shell, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			e := login(t, "HOME="+home(t, files), "SHELL="+shell, "PATH="+os.Getenv("PATH"))
			if e.Vars["FROM_RC"] != "1" || e.Problem != "" {
				t.Errorf("origin %q, problem %q, FROM_RC=%q", e.Origin, e.Problem, e.Vars["FROM_RC"])
			}
		})
	}
}

func TestLoginEnvironCancelled(t *testing.T) {
	h := home(t, map[string]string{".profile": "while :; do sleep 1; done"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := LoginEnviron(ctx, func() []string { return []string{"HOME=" + h, "SHELL=/bin/sh"} })
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 4*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if left := processesIn(h); len(left) > 0 {
		t.Errorf("%v still run", left)
	}
}

// awk stands in where env has no -0.
func TestParseEnvOfBothKinds(t *testing.T) {
	want := map[string]string{"A": "1\n2", "B": ""}
	for _, section := range []string{"A=1\n2\x00B=\x00", "A=1\n2<next>B=<next>"} {
		if diff := cmp.Diff(want, parseEnv([]byte(section), "<next>")); diff != "" {
			t.Errorf("%q: %s", section, diff)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	file("a/tool", 0o700)
	file("b/tool", 0o700)
	file("a/plain", 0o600)
	file("b/plain", 0o700)
	file("a/only-plain", 0o600)
	file("project/run.sh", 0o700)
	file("project/evil/node", 0o700)
	os.Mkdir(filepath.Join(dir, "a", "folder"), 0o700)
	e := Environ{Vars: map[string]string{"PATH": ":evil:./evil:" + dir + "/none:" + dir + "/a:" + dir + "/b"}, Origin: "a test"}
	project := filepath.Join(dir, "project")
	for name, want := range map[string]string{
		"tool": "a/tool", "plain": "b/plain", "./run.sh": "project/run.sh", "evil/node": "project/evil/node",
		filepath.Join(dir, "a", "tool"): "a/tool", "../b/tool": "b/tool",
	} {
		got, err := e.LookPath(name, project)
		if err != nil || got != filepath.Join(dir, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"node": "a test", "npx": "none", "folder": "is a directory", "only-plain": "is not executable",
		"": "empty", "./none.sh": "does not exist", "~/bin/x": "does not exist", filepath.Join(dir, "a", "plain"): "is not executable",
	} {
		_, err := e.LookPath(name, project)
		notFound, ok := errors.AsType[*NotFoundError](err)
		if !ok || !strings.Contains(err.Error(), want) || notFound.Hint() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := e.LookPath("npx", project)
	notFound, _ := errors.AsType[*NotFoundError](err)
	if diff := cmp.Diff([]string{dir + "/none", dir + "/a", dir + "/b"}, notFound.Looked); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(notFound.Hint(), "Node.js") {
		t.Errorf("hint %q", notFound.Hint())
	}
}

func TestForChild(t *testing.T) {
	e := Environ{Vars: map[string]string{
		"HOME": "/h", "PATH": "/p", "LC_TIME": "de", "XDG_DATA_HOME": "/x", "NVM_DIR": "/n", "https_proxy": "http://proxy",
		"GITHUB_TOKEN": "secret", "LD_PRELOAD": "/evil.so", "NODE_OPTIONS": "--require x", "PATHX": "no", "UV_PUBLISH_TOKEN": "secret", markerName: "k", "TOOLSD_DIR": "/d",
	}}
	got := e.ForChild(map[string]string{"PATH": "/own", "TOKEN": "t", "EMPTY": "", "": "x", "A=B": "x", "NUL": "a\x00b"})
	want := []string{"EMPTY=", "HOME=/h", "LC_TIME=de", "NVM_DIR=/n", "PATH=/own", "TOKEN=t", "XDG_DATA_HOME=/x", "https_proxy=http://proxy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParsePasswd(t *testing.T) {
	e, ok := parsePasswd("ann:x:1000:1000:Ann,,,:/home/ann:/usr/bin/fish\n", "1000")
	if !ok || e != (passwdEntry{"ann", "/home/ann", "/usr/bin/fish"}) {
		t.Errorf("%+v, %v", e, ok)
	}
	for _, line := range []string{"", "ann:x:1000:1000:Ann:/home/ann", "ann:x:10000:1:::", "+::::::"} {
		if e, ok := parsePasswd(line, "1000"); ok {
			t.Errorf("%q: %+v", line, e)
		}
	}
}
