//go:build unix

package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStartDetached(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	env := append(os.Environ(), roleEnv+"=detached", markerName+"=of-another:daemon:3", "TOOLSD_DIR=some/where")
	pid, err := StartDetached(must(os.Executable()), nil, env, log)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("pid %d sid %d ppid %d dir /\nmarker \"\" place %s\n", pid, pid, os.Getpid(), filepath.Join(must(os.Getwd()), "some/where"))
	within(t, 10*time.Second, "the log says where it runs", func() bool {
		data, _ := os.ReadFile(log)
		return strings.HasSuffix(string(data), "\n") && strings.Count(string(data), "\n") == 2
	})
	if data, _ := os.ReadFile(log); string(data) != want {
		t.Errorf("%q, want %q", data, want)
	}
	if info, _ := os.Stat(log); info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	within(t, 10*time.Second, "it is no zombie", func() bool { _, ok := findProc(pid); return !ok })
	if _, err := StartDetached("/none/such", nil, nil, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// What a shim inherited by mistake must not reach the daemon that it starts: an
// agent that waits for the end of a pipe would wait for the daemon.
func TestStartDetachedPassesNoDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
	roll := newRoll(t)
	pid, err := StartDetached(must(os.Executable()), nil, append(os.Environ(), roleEnv+"=stubborn", "PLATFORM_TEST_ROLL="+roll.dir), "")
	if err != nil {
		t.Fatal(err)
	}
	roll.wait(1)
	w.Close()
	r.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the background process holds the pipe")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	roll.gone(5 * time.Second)
}

func TestHarden(t *testing.T) {
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), roleEnv+"=hardened", "SECRET=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "umask 077\ncore 0\nserver umask 022\n"
	if runtime.GOOS == "linux" {
		want += "dumpable 0\n"
	}
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

func TestMemoryRSS(t *testing.T) {
	if rss, ok := MemoryRSS(os.Getpid()); !ok || rss < 1<<20 || rss > 4<<30 {
		t.Errorf("%d, %v", rss, ok)
	}
	if rss, ok := MemoryRSS(1 << 30); ok {
		t.Errorf("of no process: %d", rss)
	}
}

func TestTags(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("tags are of Linux")
	}
	a, b, other := makeTag(0x1234567890abcdef, 1), makeTag(0x1234567890abcdef, 65535), makeTag(0x1234567990abcdef, 1)
	if a == b || !sameDaemon(a, b) || sameDaemon(a, other) || sameDaemon(0, 0) {
		t.Errorf("%x %x %x", a, b, other)
	}
	if tagOf(os.Getpid()) != 0 {
		t.Error("an ordinary process has a tag")
	}
}

func TestDescendants(t *testing.T) {
	table := []proc{{pid: 1, ppid: 0}, {pid: 5, ppid: 3}, {pid: 3, ppid: 2}, {pid: 2, ppid: 1}, {pid: 4, ppid: 1}, {pid: 6, ppid: 6}}
	var got []int
	for _, p := range descendants(table, 2, 6) {
		got = append(got, p.pid)
	}
	if diff := cmp.Diff([]int{3, 5}, got); diff != "" {
		t.Error(diff)
	}
}

// A container client that is a script: it notes how it was called, and writes
// the id file as the real ones do.
func TestKillableContainer(t *testing.T) {
	dir := t.TempDir()
	client := filepath.Join(dir, "docker")
	script := `#!/bin/sh
echo "$@ E=$E" >> ` + dir + `/calls
while [ $# -gt 0 ]; do
  case $1 in
    --cidfile) [ -e "$2" ] && exit 125; printf %s 0123456789abcdef > "$2"; exit ;;
    --cidfile=*) printf %s feedfeedfeed > "${1#*=}"; exit ;;
  esac
  shift
done
`
	if err := os.WriteFile(client, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	calls := func() string {
		data, _ := os.ReadFile(filepath.Join(dir, "calls"))
		os.Remove(filepath.Join(dir, "calls"))
		return string(data)
	}
	for _, c := range []struct {
		argv []string
		kill string
	}{
		{[]string{client, "run", "-i", "--rm", "image", "run"}, "kill 0123456789abcdef E=x\n"},
		{[]string{client, "--context", "far", "--tls", "container", "run", "-i", "image"}, "--context far --tls kill 0123456789abcdef E=x\n"},
		{[]string{client, "run", "--cidfile=" + dir + "/theirs", "image"}, "kill feedfeedfeed E=x\n"},
	} {
		argv, cleanup := KillableContainer(c.argv, dir, "E=x", "PATH="+os.Getenv("PATH"))
		if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
			t.Fatalf("%q: %v", argv, err)
		}
		if got := calls(); strings.Count(got, "--cidfile") != 1 {
			t.Errorf("called with %q", got)
		}
		cleanup(t.Context())
		if got := calls(); got != c.kill {
			t.Errorf("%q: killed with %q, want %q", c.argv, got, c.kill)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*"+containerSuffix+"*")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "theirs")); err != nil {
		t.Errorf("the entry's own id file: %v", err)
	}
	for _, argv := range [][]string{
		nil, {"docker"}, {"docker", "exec", "-i", "c", "run"}, {"npx", "run", "docker"}, {"docker", "compose", "run", "x"}, {"docker", "mcp", "gateway", "run"}, {"podman", "--context", "run"},
	} {
		got, cleanup := KillableContainer(argv, dir)
		if diff := cmp.Diff(argv, got); diff != "" {
			t.Errorf("%q: %s", argv, diff)
		}
		cleanup(context.Background())
	}
	// What a killed daemon left, of the first server that it ever started.
	servers := filepath.Join(dir, "servers")
	argv, _ := KillableContainer([]string{client, "--context", "far", "run", "image"}, servers)
	if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
		t.Fatal(err)
	}
	calls()
	if n := SweepContainers(t.Context(), servers); n != 1 {
		t.Errorf("%d containers swept", n)
	}
	if got := calls(); got != "--context far kill 0123456789abcdef E=\n" {
		t.Errorf("swept with %q", got)
	}
	if n := SweepContainers(t.Context(), servers); n != 0 {
		t.Errorf("%d containers swept the second time", n)
	}
	// A client that never came to write the id: nothing to kill.
	_, cleanup := KillableContainer([]string{client, "run", "image"}, dir)
	cleanup(t.Context())
	if got := calls(); got != "" {
		t.Errorf("called with %q", got)
	}
}
