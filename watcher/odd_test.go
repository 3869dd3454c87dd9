package watcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fifo makes a named pipe where the system can.
func fifo(t *testing.T, path string) bool {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	return exec.Command("mkfifo", path).Run() == nil
}
