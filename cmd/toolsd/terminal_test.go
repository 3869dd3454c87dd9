package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// onTerminal runs a command line of a shell on a terminal of its own, types input
// when a text appears, and returns all that was shown.
func (w *world) onTerminal(t *testing.T, line, when, input string) string {
	t.Helper()
	script, err := exec.LookPath("script")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no util-linux script here, which makes terminals")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := w.command(ctx)
	cmd.Path, cmd.Args = script, []string{"script", "-qec", "stty cols 80; " + line, "/dev/null"}
	cmd.Env = append(cmd.Env, "NO_COLOR=")
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
	var shown strings.Builder
	for buffer, typed := make([]byte, 4096), false; ; {
		n, err := out.Read(buffer)
		shown.Write(buffer[:n])
		if err != nil {
			break
		}
		if !typed && when != "" && strings.Contains(shown.String(), when) {
			typed = true
			if _, err := in.Write([]byte(input)); err != nil {
				t.Error(err)
			}
		}
	}
	in.Close()
	_ = cmd.Wait() // what was shown decides
	return shown.String()
}

// TestTrustAtATerminal approves a project's server as a person does: it is shown
// completely but for secrets, asked about, and runs after a yes only.
func TestTrustAtATerminal(t *testing.T) {
	w := testWorld(t)
	writeFile(t, filepath.Join(w.dir, ".mcp.json"), `{"mcpServers": {"helper": {
		"command": "`+w.value("BIN")+`", "args": ["sample-server", "notes"], "env": {"API_KEY": "hunter2hunter2"}}}}`)
	tick := newTick()
	for end := time.Now().Add(patience); !strings.Contains(w.run(t, "servers", "--json"), `"pending"`); <-tick {
		if time.Now().After(end) {
			t.Fatal("the project's server was never seen")
		}
	}

	shown := w.onTerminal(t, "toolsd trust helper; echo code $?", "[y/N]", "\n")
	for _, want := range []string{".mcp.json", w.value("BIN"), `"sample-server"`, `"notes"`, "API_KEY", "stays pending", "code 5"} {
		if !strings.Contains(shown, want) {
			t.Errorf("a terminal was not shown %q:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "hunter2") {
		t.Errorf("the value of a variable was shown:\n%s", shown)
	}

	shown = w.onTerminal(t, "toolsd trust helper; echo code $?", "[y/N]", "y\n")
	if !strings.Contains(shown, "helper: approved") || !strings.Contains(shown, "code 0") {
		t.Errorf("it was not approved:\n%s", shown)
	}
	w.ready(t)
	w.run(t, "call", "helper::add_note", "title=a", "text=b")
	if shown = w.onTerminal(t, "toolsd trust helper --yes", "", ""); !strings.Contains(shown, "already") {
		t.Errorf("it is not approved already:\n%s", shown)
	}
}

// TestScreenOfATerminal has colours, cut columns, and hints below what they are
// about.
func TestScreenOfATerminal(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "search", "gerber")
	w.ready(t)
	shown := w.onTerminal(t, "toolsd categories", "", "")
	if !strings.Contains(shown, "\x1b[36mboard/export\x1b[0m") {
		t.Errorf("there are no colours:\n%q", shown)
	}
	if strings.Index(shown, "hint:") < strings.Index(shown, "counted once") {
		t.Errorf("the hint is above what it is about:\n%s", shown)
	}
	plain := strings.NewReplacer("\x1b[36m", "", "\x1b[2m", "", "\x1b[1m", "", "\x1b[0m", "", "\r", "").Replace(shown)
	for line := range strings.Lines(plain) {
		if n := len([]rune(strings.TrimSpace(line))); n > 80 && !strings.HasPrefix(line, "hint") {
			t.Errorf("a line has %d characters: %s", n, line)
		}
	}
	if shown = w.onTerminal(t, "NO_COLOR=1 toolsd categories", "", ""); strings.Contains(shown, "\x1b[") {
		t.Errorf("NO_COLOR is not honoured:\n%q", shown)
	}
}
