//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHungDaemon has the daemon's process stopped: its socket accepts and nothing
// answers. Every verb, `toolsd stop` too, says which process it is and what ends
// it, and names nothing that needs the daemon's answer.
func TestHungDaemon(t *testing.T) {
	w := testWorld(t)
	w.run(t, "start")
	pid := w.pid(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	for _, verb := range []string{"stop", "status"} {
		var errs bytes.Buffer
		cmd := w.command(t.Context(), verb)
		cmd.Stderr = &errs
		err := cmd.Run()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != exitNoDaemon {
			t.Errorf("%s: exit %v, want %d: %s", verb, err, exitNoDaemon, &errs)
		}
		text := strings.Join(strings.Fields(errs.String()), " ")
		if !strings.Contains(text, "does not answer") || !strings.Contains(text, fmt.Sprintf("`kill %d`", pid)) || strings.Contains(text, "toolsd stop") {
			t.Errorf("%s says: %s", verb, text)
		}
	}
	if found := w.doctor(t); !finds(found, "daemon", statusFail, "does not answer") {
		t.Errorf("%+v", found)
	}
}

// TestOddFilesHoldUpNothing has a fifo in the place of a file of the state
// directory. Whoever opens one waits for its other end, which never comes.
func TestOddFilesHoldUpNothing(t *testing.T) {
	for name, runs := range map[string]bool{
		"toolsd.socket": true, "names.json": true, "journal": true, "trust.json": true, "calls.log": true,
		lockName: false, startLockName: false, logName: false,
	} {
		t.Run(name, func(t *testing.T) {
			w := testWorld(t)
			state := filepath.Join(w.dir, "toolsd", "state")
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(filepath.Join(state, name), 0o600); err != nil {
				t.Fatal(err)
			}
			if runs {
				w.run(t, "stop")
				w.run(t, "status")
				w.run(t, "stop")
				return
			}
			var errs bytes.Buffer
			cmd := w.command(t.Context(), "status")
			cmd.Stderr = &errs
			err := cmd.Run()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != exitNoDaemon || !strings.Contains(errs.String(), name) || !strings.Contains(errs.String(), "hint: ") {
				t.Errorf("exit %v, want %d with a hint: %s", err, exitNoDaemon, &errs)
			}
		})
	}
}
