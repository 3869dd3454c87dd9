package watcher

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fifo makes a named pipe where the system can.
func fifo(t *testing.T, path string) bool {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	return exec.Command("mkfifo", path).Run() == nil
}

// TestOverflow: when more happens than the system can tell, nothing is missed.
func TestOverflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	held, release := make(chan struct{}, 1), make(chan struct{})
	first := true
	var log strings.Builder // written by the watcher's goroutine, read after its end
	w.start(func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		publish := o.OnChange
		o.OnChange = func() {
			publish()
			if len(w.Latest().Servers) == 2 && first { // the watcher's goroutine stands still
				first = false
				held <- struct{}{}
				<-release
			}
		}
	})
	w.write(".cursor/mcp.json", mcp("a", "b"))
	select {
	case <-held:
	case <-time.After(live):
		t.Fatal("the first edit was not seen")
	}
	for i := range 8500 { // each is two events; Linux keeps 16,384
		if err := os.Mkdir(w.path(fmt.Sprintf("d%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(w.path(fmt.Sprintf("d%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	w.write(".cursor/mcp.json", mcp("c"))
	close(release)
	w.awaitServers("c=run-c")
	w.stop()
	if runtime.GOOS == "linux" && !strings.Contains(log.String(), "events of the file system were lost") {
		t.Errorf("there was no overflow, so this proves nothing; the log: %s", log.String())
	}
}

// limited runs the test again in a user namespace, after a command that sets limits
// of its own there. It reports whether this is that run.
func limited(t *testing.T, command string) bool {
	t.Helper()
	const inside = "TOOLSD_TEST_LIMITED"
	if os.Getenv(inside) != "" {
		return true
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "-Ur", "sh", "-c", command+` && echo limited && exec "$0" -test.run='^`+t.Name()+`$' -test.v`, self)
	c.Env = append(os.Environ(), inside+"=1")
	out, err := c.CombinedOutput()
	if !strings.Contains(string(out), "limited") {
		t.Skipf("no user namespaces here: %v\n%s", err, out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestFewWatches: at the system's limit of watches edits are still found, and the
// user is told.
func TestFewWatches(t *testing.T) {
	if !limited(t, "echo 2 > /proc/sys/user/max_inotify_watches") {
		return
	}
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.write(".codeium/windsurf/mcp_config.json", mcp("w"))
	w.write(".lmstudio/mcp.json", mcp("l"))
	w.start()
	w.await("a problem", func(s *Snapshot) bool {
		return strings.Contains(strings.Join(w.messages(s), "\n"), "watching config files for changes: no space left on device")
	})
	for _, file := range []string{".cursor/mcp.json", ".codeium/windsurf/mcp_config.json", ".lmstudio/mcp.json"} {
		w.write(file, mcp("new-"+filepath.Base(filepath.Dir(file))))
	}
	w.awaitServers("new-.cursor=run-new-.cursor new-.lmstudio=run-new-.lmstudio new-windsurf=run-new-windsurf")
	w.write(".codeium/windsurf/mcp_config.json", mcp("w")) // found by the poll alone
	w.awaitServers("new-.cursor=run-new-.cursor new-.lmstudio=run-new-.lmstudio w=run-w")
}

// TestNoWatcher: where the system gives no watcher edits are found by looking, until
// there is one.
func TestNoWatcher(t *testing.T) {
	const limit = "/proc/sys/user/max_inotify_instances"
	if !limited(t, "echo 0 > "+limit) {
		return
	}
	w := newWorld(t)
	w.write(".cursor/mcp.json", mcp("a"))
	w.start()
	told := func(s *Snapshot) bool {
		return strings.Contains(strings.Join(w.messages(s), "\n"), "watching config files for changes: ")
	}
	w.await("a problem", told)
	w.write(".cursor/mcp.json", mcp("b"))
	w.awaitServers("b=run-b")
	if err := os.WriteFile(limit, []byte("10"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.await("the end of the problem", func(s *Snapshot) bool { return !told(s) })
	w.settle()
	w.write(".cursor/mcp.json", mcp("c"))
	w.awaitServers("c=run-c") // by an event: the next poll is half a minute away
}
