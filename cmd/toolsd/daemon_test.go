package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolsd/toolsd/ipc"
)

// TestRacingStarts has 50 processes start the daemon at once, over the socket
// that a killed daemon left behind: one daemon lives, and every caller gets its
// answer.
func TestRacingStarts(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	w.staleSocket(t)
	callers := 50
	if testing.Short() {
		callers = 20 // under the race detector each is much slower
	}
	answers := make([]string, callers)
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			out, err := w.command(t.Context(), "status", "--json").Output()
			if err != nil {
				t.Errorf("caller %d: %v: %s", i, err, out)
				return
			}
			answers[i] = string(out)
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	daemons := map[int]int{}
	for _, a := range answers {
		var s ipc.Status
		if err := json.Unmarshal([]byte(a), &s); err != nil {
			t.Errorf("%v in %q", err, a)
			continue
		}
		daemons[s.Daemon.PID]++
	}
	if len(daemons) != 1 {
		t.Errorf("callers were answered by %d daemons: %v", len(daemons), daemons)
	}
}

// staleSocket leaves what a killed daemon leaves: a socket that refuses.
func (w *world) staleSocket(t *testing.T) {
	t.Helper()
	path := filepath.Join(w.dir, "toolsd", "run", "toolsd.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// TestKilledDaemonIsReplaced kills the daemon without warning: the next verb
// starts another one, which answers the same from the index.
func TestKilledDaemonIsReplaced(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "start")
	w.ready(t)
	before := w.run(t, "search", "export", "gerber", "--json")
	pid := w.pid(t)
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.run(t, "search", "gerber")
	if w.pid(t) == pid {
		t.Error("the killed daemon still answers")
	}
	w.ready(t)
	if after := w.run(t, "search", "export", "gerber", "--json"); after != before {
		t.Errorf("another answer after the restart:\n%s\n%s", before, after)
	}
}

func (w *world) pid(t *testing.T) int {
	t.Helper()
	var s ipc.Status
	if err := json.Unmarshal([]byte(w.run(t, "status", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Daemon.PID
}

// ready waits until every server is.
func (w *world) ready(t *testing.T) {
	t.Helper()
	tick := newTick()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick {
		var s ipc.Status
		if err := json.Unmarshal([]byte(w.run(t, "status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, server := range s.Servers {
			if server.State == ipc.StateReady {
				ready++
			}
		}
		if ready > 0 && ready == len(s.Servers) {
			return
		}
	}
	t.Fatal("the servers were never ready")
}

// TestSilentDaemonIsNotReplaced has something listen that never answers: that is
// exit 3 after the 2 s of a handshake, and its socket stays.
func TestSilentDaemonIsNotReplaced(t *testing.T) {
	w := testWorld(t)
	path := filepath.Join(w.dir, "toolsd", "run", "toolsd.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	out, err := w.command(t.Context(), "search", "gerber", "--json").Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitNoDaemon {
		t.Errorf("exit %v, want %d: %s", err, exitNoDaemon, out)
	}
	if took := time.Since(begin); took < 1500*time.Millisecond || took > 30*time.Second {
		t.Errorf("it took %v to give up", took)
	}
	var doc ipc.ErrorDocument
	if err := json.Unmarshal(out, &doc); err != nil || doc.Error.Code != ipc.CodeNoDaemon {
		t.Errorf("stdout is %s", out)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "toolsd", "state", lockName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a daemon was started: %v", err)
	}
}

// TestFailedStartSaysWhy has a daemon that cannot start: the verb ends at once,
// with what the daemon said.
func TestFailedStartSaysWhy(t *testing.T) {
	w := testWorld(t)
	lock := filepath.Join(w.dir, "toolsd", "state", lockName)
	if err := os.MkdirAll(lock, 0o700); err != nil { // a directory in its place
		t.Fatal(err)
	}
	begin := time.Now()
	var errs bytes.Buffer
	cmd := w.command(t.Context(), "status")
	cmd.Stderr = &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitNoDaemon {
		t.Errorf("exit %v, want %d: %s", err, exitNoDaemon, &errs)
	}
	if took := time.Since(begin); took > 3*startTimeout {
		t.Errorf("it took %v to say so", took)
	}
	if !strings.Contains(errs.String(), lockName) || !strings.Contains(errs.String(), logName) {
		t.Errorf("neither cause nor log are named: %s", &errs)
	}
}

// TestInterruptReachesTheServer has Ctrl-C end a call: the request is cancelled
// at the server, and the verb fails.
func TestInterruptReachesTheServer(t *testing.T) {
	w := testWorld(t)
	w.config(t, `{"mcpServers": {"odd": {"command": "${ODD}"}}}`)
	w.run(t, "search", "odd::wait")
	w.ready(t)
	file := filepath.Join(w.dir, "waits")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := w.command(ctx, "call", "odd::wait", "file="+file)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitForContent(ctx, t, file, "running")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitFailed || !strings.Contains(errs.String(), "cancelled") {
		t.Errorf("exit %v, want %d: %s", err, exitFailed, &errs)
	}
	waitForContent(ctx, t, file, "cancelled")
}

func waitForContent(ctx context.Context, t *testing.T, file, want string) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(file)
		if err == nil && string(data) == want {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s never held %q, but %q (%v)", file, want, data, err)
		}
	}
}

// TestFullOutputIsAFailure has a device that takes nothing as stdout.
func TestFullOutputIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	w := testWorld(t)
	cmd := w.command(t.Context(), "version")
	cmd.Stdout = full
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err == nil || !strings.Contains(errs.String(), "writing the output") {
		t.Errorf("%v: %s", err, &errs)
	}
}

// TestSocketAnswersWhatTheVerbPrints compares bytes.
func TestSocketAnswersWhatTheVerbPrints(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "search", "gerber")
	w.ready(t)
	for path, args := range map[string][]string{
		"/v1/search?q=gerber":                {"search", "gerber"},
		"/v1/search?q=place+part&explain=1":  {"search", "place", "part", "--explain"},
		"/v1/tools":                          {"tools"},
		"/v1/categories":                     {"categories"},
		"/v1/categories?name=board%2Fexport": {"category", "board/export"},
		"/v1/why?subject=board":              {"why", "board"},
		"/v1/trust":                          {"trust"},
	} {
		want := w.get(t, path+ampersand(path)+"cwd="+w.dir)
		if got := w.run(t, append(args, "--json")...); got != want {
			t.Errorf("%s:\nsocket %s\nverb   %s", path, want, got)
		}
	}
}

func ampersand(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

// get asks the socket as curl does.
func (w *world) get(t *testing.T, path string) string {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(w.dir, "toolsd", "run", "toolsd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: toolsd\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	if _, err := all.ReadFrom(conn); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(all.String(), "\r\n\r\n")
	return body
}
