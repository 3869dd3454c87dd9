package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolsd/toolsd/ipc"
)

// loops is how often what must leave nothing behind is done: a hundred times with
// TOOLSD_LONG=1.
func loops() int {
	if os.Getenv("TOOLSD_LONG") != "" {
		return 100
	}
	return 10
}

// process is what /proc tells of one.
type process struct {
	pid, parent int
	state       string
	line        string // its command line
}

// processes are those of this world, by its directory in their environment or
// command line, and all zombies.
func (w *world) processes(t *testing.T) (mine, zombies []process) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		p := process{pid: pid, state: fields[0]}
		p.parent, _ = strconv.Atoi(fields[1])
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		p.line = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		switch {
		case p.state == "Z":
			zombies = append(zombies, p)
		case bytes.Contains(environ, []byte(w.dir)) || strings.Contains(p.line, w.dir):
			mine = append(mine, p)
		}
	}
	return mine, zombies
}

// needProc skips where processes cannot be looked at.
func needProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked at in /proc")
	}
	if os.Geteuid() != 0 {
		t.Skip("the daemon lets no other process of its user look at it, only root's")
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatalf("killing process %d: %v", pid, err)
	}
}

// lives reports whether a process does, a zombie not counting.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// eventually waits until cond holds and returns how long that took.
func eventually(t *testing.T, what string, cond func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
	return time.Since(begin)
}

// TestNothingOutlivesAKill kills the daemon, its keeper, and both without
// warning, while a server has a descendant that left its session twice and forgot
// its environment.
func TestNothingOutlivesAKill(t *testing.T) {
	needProc(t)
	for _, test := range []struct {
		name           string
		daemon, keeper bool
		how            string // of the descendant
	}{
		{"daemon", true, false, ""},
		{"keeper", false, true, ""},
		{"both", true, true, ""},
		{"daemon, no environment", true, false, "env -i "},
		{"keeper, no environment", false, true, "env -i "},
		{"both, no environment", true, true, "env -i "},
	} {
		if test.how == "" && loops() < 100 {
			continue // the rows without an environment are the harder ones
		}
		t.Run(test.name, func(t *testing.T) {
			w := testWorld(t)
			far := filepath.Join(w.dir, "far")
			w.config(t, fmt.Sprintf(`{"mcpServers": {
				"board": {"command": "${BIN}", "args": ["sample-server", "board"]},
				"far": {"command": "/bin/sh", "args": ["-c", %q, "${BIN}"]}}}`,
				"setsid -f "+test.how+"setsid -f /bin/sh -c 'echo $$ >"+far+"; exec sleep 300'; exec \"$0\" sample-server notes"))
			w.run(t, "start")
			w.ready(t)
			descendant := 0
			eventually(t, "the descendant runs", func() bool {
				data, _ := os.ReadFile(far)
				descendant, _ = strconv.Atoi(strings.TrimSpace(string(data)))
				return descendant > 0 && lives(descendant)
			})
			t.Cleanup(func() {
				if lives(descendant) {
					kill(t, descendant)
				}
			})
			daemon, keeper := w.pid(t), 0
			before, _ := w.processes(t)
			for _, p := range before {
				if p.parent == daemon && strings.Contains(p.line, " keeper") {
					keeper = p.pid
				}
			}
			if keeper == 0 {
				t.Fatalf("no keeper in %+v", before)
			}
			if test.keeper {
				kill(t, keeper)
			}
			if test.daemon {
				kill(t, daemon)
			}
			if test.daemon && test.keeper {
				t.Logf("with both gone the descendant lives: %v", lives(descendant))
				w.run(t, "start")
			}
			old := func() (left []string) {
				for _, p := range before {
					if p.pid != daemon && lives(p.pid) {
						left = append(left, fmt.Sprint(p.pid, " ", p.line))
					}
				}
				if lives(descendant) {
					left = append(left, fmt.Sprint(descendant, " the descendant"))
				}
				return left
			}
			took := eventually(t, "all has ended", func() bool { return len(old()) == 0 })
			t.Logf("nothing is left after %v", took.Round(time.Millisecond))
			if took > 2*time.Second {
				t.Errorf("something was left for %v", took)
			}
			// Whatever was killed, the next verb is answered, and servers run again.
			w.run(t, "status")
			w.ready(t)
			if now := w.pid(t); !test.daemon && now != daemon {
				t.Errorf("the daemon ended with its keeper")
			}
		})
	}
}

// TestShimsLeaveNothing has agents come and go: handshake, list, end.
func TestShimsLeaveNothing(t *testing.T) {
	needProc(t)
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "start")
	w.ready(t)
	daemon := w.pid(t)
	session := func() {
		cmd := w.command(t.Context(), "mcp")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for i, m := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"claude-code","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		} {
			if _, err := io.WriteString(in, m+"\n"); err != nil {
				t.Fatal(err)
			}
			line, err := lines.ReadString('\n')
			if want := fmt.Sprintf(`"id":%d`, i+1); err != nil || !strings.Contains(line, want) || !strings.Contains(line, `"result"`) {
				t.Fatalf("got %q %v, want the answer %s", line, err, want)
			}
		}
		in.Close()
		if _, err := io.Copy(io.Discard, lines); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the shim ended with %v", err)
		}
	}
	session() // the first one warms up
	settled := func() (processes, descriptors int) {
		eventually(t, "the daemon has no session", func() bool {
			var s ipc.Status
			return json.Unmarshal([]byte(w.run(t, "status", "--json")), &s) == nil && s.Daemon.Sessions == 0
		})
		mine, _ := w.processes(t)
		return len(mine), descriptorsOf(t, daemon)
	}
	processes, descriptors := settled()
	for range loops() {
		session()
	}
	nowProcesses, nowDescriptors := settled()
	t.Logf("%d agents: %d processes before, %d after; %d descriptors of the daemon before, %d after", loops(), processes, nowProcesses, descriptors, nowDescriptors)
	if nowProcesses != processes {
		mine, _ := w.processes(t)
		t.Errorf("%d processes became %d: %+v", processes, nowProcesses, mine)
	}
	if nowDescriptors > descriptors+2 { // the verbs that ask come and go
		t.Errorf("%d descriptors of the daemon became %d", descriptors, nowDescriptors)
	}
	w.noZombies(t)
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// noZombies fails for zombies of this world's processes, and of ours.
func (w *world) noZombies(t *testing.T) {
	t.Helper()
	mine, zombies := w.processes(t)
	ours := map[int]bool{os.Getpid(): true}
	for _, p := range mine {
		ours[p.pid] = true
	}
	for _, z := range zombies {
		if ours[z.parent] && lives(z.parent) {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", z.pid)); err == nil && bytes.Contains(stat, []byte(") Z ")) {
				t.Errorf("process %d of %d is a zombie", z.pid, z.parent)
			}
		}
	}
}

// TestRestartsLeaveNothing starts and ends daemons, every third by a kill.
func TestRestartsLeaveNothing(t *testing.T) {
	needProc(t)
	w := testWorld(t)
	w.config(t, boardConfig)
	first := 0
	for i := range loops() {
		w.run(t, "start")
		w.ready(t)
		mine, _ := w.processes(t)
		if i == 0 {
			first = len(mine)
		}
		if len(mine) != first {
			t.Fatalf("round %d: %d processes, %d in the first: %+v", i, len(mine), first, mine)
		}
		w.noZombies(t)
		if i%3 == 2 {
			kill(t, w.pid(t))
		} else {
			w.run(t, "stop")
		}
		eventually(t, "all have ended", func() bool {
			mine, _ := w.processes(t)
			return len(mine) == 0
		})
	}
	files, err := os.ReadDir(filepath.Join(w.dir, "toolsd", "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d daemons with %d processes each, all gone; %d files of state", loops(), first, len(files))
	if len(files) > 20 {
		t.Errorf("%d files were left in the state directory", len(files))
	}
}
