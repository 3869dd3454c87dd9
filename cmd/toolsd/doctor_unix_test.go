//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDoctorHeldLock has the lock held by a process that listens nowhere.
func TestDoctorHeldLock(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "start")
	pid := w.pid(t)
	if err := os.Remove(filepath.Join(w.dir, "toolsd", "run", "toolsd.sock")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGTERM) }() // toolsd stop does not reach it
	if found := w.doctor(t); !finds(found, "lock", statusFail, "listens at no socket") {
		t.Errorf("%+v", found)
	}
}

// TestDoctorLeftovers kills a daemon and its keeper at once.
func TestDoctorLeftovers(t *testing.T) {
	w := testWorld(t)
	// It does not end with its stdin, as a good server would.
	w.config(t, `{"mcpServers": {"deaf": {"command": "sleep", "args": ["600"]}}}`)
	w.run(t, "start")
	var journal struct {
		Keepers, Children []struct {
			PID   int
			Label string
		}
	}
	child := 0
	for end := time.Now().Add(20 * time.Second); child == 0; {
		data, err := os.ReadFile(filepath.Join(w.dir, "toolsd", "state", "journal"))
		if err == nil {
			err = json.Unmarshal(data, &journal)
		}
		for _, c := range journal.Children {
			if c.Label == "deaf" { // and not the login shell
				child = c.PID
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%v: %s", err, data)
		}
	}
	// The keeper may not notice that the daemon dies, nor the daemon that the keeper does.
	daemon, keeper := w.pid(t), journal.Keepers[0].PID
	for _, s := range []struct {
		pid    int
		signal syscall.Signal
	}{{keeper, syscall.SIGSTOP}, {daemon, syscall.SIGKILL}, {keeper, syscall.SIGKILL}} {
		if err := syscall.Kill(s.pid, s.signal); err != nil {
			t.Fatal(err)
		}
	}
	if found := w.doctor(t); !finds(found, "leftover-processes", statusWarn, "1 process") {
		t.Errorf("%+v", found)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("it was ended unasked: %v", err)
	}
	if found := w.doctor(t, "--fix"); !finds(found, "leftover-processes", statusOK, "fixed: 1 process") {
		t.Errorf("%+v", found)
	}
	if found := w.doctor(t); !finds(found, "leftover-processes", statusOK, "none") {
		t.Errorf("%+v", found)
	}
}
