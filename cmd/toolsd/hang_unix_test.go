//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
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
