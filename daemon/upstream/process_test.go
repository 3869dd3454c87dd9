package upstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolsd/toolsd/platform"
)

// alive reports whether a process of that id exists.
func alive(t *testing.T, pid int) bool {
	if runtime.GOOS == "windows" {
		t.Skip("asks the way Unix does")
	}
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// Servers that want to stay are gone when Run returns, within its time.
func TestNothingIsLeft(t *testing.T) {
	f := start(t, Options{}, fault("stubborn"), fault("orphans"), fault("deaf"), fault("ok"), fault("hang-init"))
	pids := map[string]int{}
	for _, key := range []string{"stubborn", "orphans", "deaf", "ok"} {
		pids[key] = f.untilState(key, Ready).PID
	}
	f.until("a process of the one that hangs", func() bool { return f.Status("hang-init").PID != 0 })
	pids["hang-init"] = f.Status("hang-init").PID
	began := time.Now()
	f.end()
	if took := time.Since(began); took > runTimeout+patience {
		t.Errorf("the end took %v", took)
	}
	for key, pid := range pids {
		if alive(t, pid) {
			t.Errorf("%s (pid %d) is left", key, pid)
		}
	}
}

// A command is looked for in the user's PATH, or the entry's own, and again in a
// fresh environment before it counts as missing; then a change of the
// environment is enough to bring it back.
func TestCommandIsFoundInTheUsersPath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("makes a script")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	install := func(name string) string {
		dir := t.TempDir()
		script := "#!/bin/sh\nexec '" + exe + "' fault ok\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	shell, own, later := install("from-shell"), install("from-entry"), install("from-later")
	environ := func(dirs ...string) platform.Environ {
		return platform.Environ{Origin: "login shell", Vars: map[string]string{
			"PATH": strings.Join(append(dirs, "/usr/bin", "/bin"), string(filepath.ListSeparator)), "FORWARDED": "yes"}}
	}
	var installed atomic.Bool
	var refreshes atomic.Int64
	server := func(name string) Server {
		s := fault("ok")
		s.Key, s.Name, s.Def.Command, s.Def.Args = name, name, name, nil
		return s
	}
	entry := server("from-entry")
	entry.Def.Env = map[string]string{"PATH": own + ":/usr/bin:/bin"}
	f := start(t, Options{
		Environ: func(context.Context) (platform.Environ, error) {
			if installed.Load() {
				return environ(shell, later), nil
			}
			return environ(shell), nil
		},
		Refresh: func(context.Context) (platform.Environ, error) {
			refreshes.Add(1)
			return environ(shell), nil
		},
	}, server("from-shell"), entry, server("from-later"), server("from-nowhere"))
	f.untilState("from-shell", Ready)
	f.untilState("from-entry", Ready)
	st := f.untilState("from-later", Failed)
	if !strings.Contains(st.Reason, shell) || !strings.Contains(st.Reason, "login shell") {
		t.Errorf("it does not say where it looked: %s", st.Reason)
	}
	f.untilState("from-nowhere", Failed)
	if n := refreshes.Load(); n != 1 {
		t.Errorf("the environment was captured %d times for two missing commands", n)
	}
	installed.Store(true)
	f.Restart(t.Context(), "from-later")
	f.untilState("from-later", Ready)
}

// A container client that cannot be started leaves no file, however often it is
// tried.
func TestContainerThatCannotBeStarted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("makes a program that is none")
	}
	docker := filepath.Join(t.TempDir(), "docker")
	if err := os.WriteFile(docker, []byte("\x00"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := fault("ok")
	s.Def.Command, s.Def.Args = docker, []string{"run", "-i", "image"}
	f := start(t, Options{}, s)
	f.until("a second try", func() bool { st := f.Status(s.Key); return st.Spawns > 1 && st.State == Backoff })
	left, err := os.ReadDir(f.logDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if filepath.Ext(e.Name()) != ".log" {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestCommandEnvironment(t *testing.T) {
	s := fault("ok")
	s.Dir = t.TempDir()
	s.Def.Env = map[string]string{"OWN": "1", "BOTH": "entry"}
	s.Def.Forward = []string{"WANTED", "BOTH", "ABSENT"}
	set := New(Options{Environ: func(context.Context) (platform.Environ, error) {
		return platform.Environ{Vars: map[string]string{"HOME": "/h", "GITHUB_TOKEN": "secret", "WANTED": "w", "BOTH": "shell"}}, nil
	}})
	cmd, err := set.command(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(cmd.Env, " ")
	for _, want := range []string{"OWN=1", "BOTH=entry", "WANTED=w", "HOME=/h"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	if strings.Contains(got, "GITHUB_TOKEN") || strings.Contains(got, "ABSENT") {
		t.Errorf("too much in %s", got)
	}
	if cmd.Dir != s.Dir || cmd.Args[0] != s.Def.Command || cmd.Args[2] != "ok" {
		t.Errorf("%+v", cmd)
	}
}

// One of each fault beside good servers: the good ones' calls do not notice.
func TestFaultyServersDelayNoOther(t *testing.T) {
	const calls = 300
	measure := func(f *fixture) (worst time.Duration) {
		var all []time.Duration
		for range calls {
			began := time.Now()
			raw, err := f.call("ok", "echo", "")
			text(t, raw, err)
			all = append(all, time.Since(began))
		}
		return percentile(all, 99)
	}
	f := start(t, Options{}, fault("ok"))
	f.untilState("ok", Ready)
	alone := measure(f)
	servers := []Server{fault("ok")}
	for _, mode := range []string{"banner", "garbage", "hang-init", "hang-list", "exit", "exit-init", "deaf", "batch", "odd-tools", "storm", "endless",
		"same-cursor", "duplicates", "bad-list", "asks", "stderr", "null-id", "orphans", "leaves", "stubborn"} {
		servers = append(servers, fault(mode))
	}
	f.Reconcile(servers)
	f.untilState("storm", Ready)
	f.untilState("deaf", Ready)
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error)
	go func() {
		_, err := f.Call(ctx, "deaf", Call{Tool: "hang"})
		hung <- err
	}()
	beside := measure(f)
	t.Logf("99 %% of calls: %v alone, %v beside %d faulty servers", alone, beside, len(servers)-1)
	// The machine starts processes meanwhile, so this is no benchmark; what must
	// not happen is waiting for a fault, whose shortest time is a second.
	if beside > 900*time.Millisecond {
		t.Errorf("calls took %v beside faulty servers", beside)
	}
	cancel()
	if err := <-hung; !errors.Is(err, context.Canceled) {
		t.Errorf("the hung call: %v", err)
	}
}
