package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServiceUnderSystemd installs the service with a real user manager of systemd:
// one that runs in namespaces of its own, with its own /run, /opt, cgroups and
// process numbers, so that nothing of this machine changes. What it needs (root,
// systemd, dbus, cgroup 2) is not everywhere, and it takes half a minute, so it
// runs when asked for:
//
//	TOOLSD_TEST_SYSTEMD=1 go test -run ServiceUnderSystemd ./cmd/toolsd
func TestServiceUnderSystemd(t *testing.T) {
	if os.Getenv("TOOLSD_TEST_SYSTEMD") != "1" {
		t.Skip("TOOLSD_TEST_SYSTEMD=1 runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("it makes namespaces, which takes root here")
	}
	for _, name := range []string{"unshare", "systemctl", "dbus-daemon", "bash"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s here", name)
		}
	}
	toolsd, err := exec.LookPath("toolsd")
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "service.sh"))
	if err != nil {
		t.Fatal(err)
	}
	group := cgroup(t)
	// The shell joins the cgroup before the namespace is made, whose root it is then.
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --cgroup --fork --kill-child --mount-proc bash "$2" "$3"`,
		"bash", group, script, toolsd)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "SHELL=/bin/sh", "NO_COLOR=1"}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 77 {
		t.Skipf("no user manager could be run here: %s", out)
	}
	if err != nil || !strings.HasSuffix(string(out), "all done\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// cgroup makes a cgroup for the manager to make its own in.
func cgroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue // version 1
		}
		dir, err := os.MkdirTemp(root, "toolsd-test-")
		if err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		t.Cleanup(func() {
			// The lowest first; the kernel takes a moment to see that they are empty,
			// and an empty cgroup that is left harms nobody.
			_ = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
		})
		return dir
	}
	t.Skip("there is no cgroup 2 here")
	return ""
}
