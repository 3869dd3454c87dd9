package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolsd/toolsd/cmd/toolsd/sample"
)

// The test binary is also toolsd itself, and a server with the tools that the
// samples have no use for.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"toolsd":    main,
		"oddserver": oddServer,
	})
}

// TestScripts runs testdata/script: each file is a terminal session.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			w := newWorld(env.WorkDir)
			env.Vars = append(env.Vars, w.env...)
			env.Values[worldKey{}] = w
			env.Defer(w.stop)
			return w.prepare()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"json":  checkJSON,
			"until": until,
		},
	})
}

// exits runs a program and checks its exit code: exits 4 toolsd search nonsense.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [argument]...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// checkJSON checks that stdout is one JSON document, and a value in it: json
// matches.0.tool_id board::export_gerber. len stands for a length.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) > 2 {
		ts.Fatalf("usage: json [path [value]]")
	}
	text := ts.ReadFile("stdout")
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		ts.Fatalf("stdout is not JSON: %v\n%s", err, text)
	}
	if d.More() || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("stdout is not one JSON document on one line:\n%s", text)
	}
	if len(args) == 0 {
		return
	}
	got, ok := at(v, args[0])
	if len(args) == 1 {
		if ok == neg {
			ts.Fatalf("there is (not) %s in %s", args[0], text)
		}
		return
	}
	if (ok && got == args[1]) == neg {
		ts.Fatalf("%s is %q, want %q (negated: %v) in %s", args[0], got, args[1], neg, text)
	}
}

func at(v any, path string) (string, bool) {
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[part]
			if !ok {
				return "", false
			}
			v = next
		case []any:
			if part == "len" {
				return strconv.Itoa(len(x)), true
			}
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(x) {
				return "", false
			}
			v = x[i]
		default:
			return "", false
		}
	}
	if s, ok := v.(string); ok {
		return s, true
	}
	return fmt.Sprint(v), true
}

// until repeats a verb until its stdout holds a text: until ready toolsd servers.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || args[1] != "toolsd" {
		ts.Fatalf("usage: [!] until TEXT toolsd [argument]...")
	}
	w := ts.Value(worldKey{}).(*world)
	end := time.Now().Add(patience)
	for tick := newTick(); ; <-tick {
		cmd := w.command(context.Background(), args[2:]...)
		cmd.Dir = ts.MkAbs(".")
		out, _ := cmd.Output() // what it prints decides
		if late := time.Now().After(end); late || strings.Contains(string(out), args[0]) != neg {
			_ = ts.Exec(args[1], args[2:]...) // for the log and the commands that follow
			if late {
				ts.Fatalf("never printed what it should")
			}
			return
		}
	}
}

// patience is how long a test waits for what must come; a busy machine takes its
// time.
const patience = 40 * time.Second

// newTick paces a loop that starts a process each time round.
func newTick() <-chan time.Time { return time.Tick(100 * time.Millisecond) }

// worldKey is where a script finds its world.
type worldKey struct{}

// world is a machine with a home of its own, on which a daemon may run.
type world struct {
	dir string
	env []string
}

// newWorld describes a world below dir. BIN and ODD are the programs that its
// config files may start.
func newWorld(dir string) *world {
	bin := func(name string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			panic(err) // TestMain put it into PATH
		}
		return path
	}
	return &world{dir, []string{
		"HOME=" + filepath.Join(dir, "home"), "TOOLSD_DIR=" + filepath.Join(dir, "toolsd"),
		"SHELL=/bin/sh", "BIN=" + bin("toolsd"), "ODD=" + bin("oddserver"), "NO_COLOR=1",
		"GORACE=atexit_sleep_ms=0", // else every program under the race detector takes a second to end
	}}
}

func (w *world) prepare() error {
	for _, dir := range []string{"home", "toolsd"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// command is toolsd in this world, in a directory below it.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "toolsd", args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), w.env...)
	return cmd
}

// stop ends the daemon, so that none outlives the test.
func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = w.command(ctx, "stop").Run()
}

// testWorld is a world for a test that is no script.
func testWorld(t *testing.T) *world {
	t.Helper()
	// Short, because it holds a socket.
	dir, err := os.MkdirTemp("", "toolsd-test-")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(dir)
	t.Cleanup(func() {
		w.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := w.prepare(); err != nil {
		t.Fatal(err)
	}
	return w
}

// value is a variable of the world.
func (w *world) value(name string) string {
	for _, v := range w.env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// config writes config.json.
func (w *world) config(t *testing.T, text string) {
	t.Helper()
	writeFile(t, filepath.Join(w.dir, "toolsd", "config.json"), text)
}

// run runs toolsd and returns its stdout; a failure of it is the test's.
func (w *world) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := w.command(t.Context(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("toolsd %s: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

const boardConfig = `{"mcpServers": {"board": {"command": "${BIN}", "args": ["sample-server", "board"]}}}`

// oddServer is a server with tools for what the samples do not do.
func oddServer() {
	schema := func(properties string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
	}
	s := &sample.Server{Name: "odd", Tools: []sample.Tool{
		{
			Name: "echo", Description: "Gives back its arguments as it got them.",
			InputSchema: schema(`"text":{"type":"string"},"number":{"type":"number"},"whole":{"type":"integer"},"flag":{"type":"boolean"},
				"either":{"type":["integer","string"]},"one":{"type":["integer"]},"list":{"type":"array"},"ref":{"$ref":"#/$defs/count"},"anything":{}`),
			Run: func(_ context.Context, arguments json.RawMessage, _ sample.Progress) (any, error) {
				return string(arguments), nil
			},
		},
		{
			Name: "wait", Description: "Does not answer until it is cancelled, and writes then to a file.",
			InputSchema: schema(`"file":{"type":"string"}`),
			Run: func(ctx context.Context, arguments json.RawMessage, progress sample.Progress) (any, error) {
				var a struct{ File string }
				if err := json.Unmarshal(arguments, &a); err != nil {
					return nil, err
				}
				if err := os.WriteFile(a.File, []byte("running"), 0o600); err != nil {
					return nil, err
				}
				progress(1, 2, "half")
				<-ctx.Done()
				return nil, os.WriteFile(a.File, []byte("cancelled"), 0o600)
			},
		},
		{
			Name: "fail", Description: "Fails with a JSON-RPC error.", InputSchema: schema(``),
			Run: func(context.Context, json.RawMessage, sample.Progress) (any, error) {
				return nil, &sample.RPCError{Code: -32050, Message: "the lamp is broken", Data: map[string]any{"lamp": 9007199254740993}}
			},
		},
		{
			Name: "paint", Description: "Answers with \x1b[31mcolour\x1b[0m and several kinds of content.", InputSchema: schema(``),
			Run: func(context.Context, json.RawMessage, sample.Progress) (any, error) {
				return sample.Result{Content: []sample.Content{
					{Type: "text", Text: "red: \x1b[31mred"}, {Type: "image", Data: []byte("picture one\n"), MIMEType: "image/png"},
					{Type: "audio", Data: []byte("a sound"), MIMEType: "audio/wav"},
				}}, nil
			},
		},
		{
			Name: "structure", Description: "Answers with structured content alone.", InputSchema: schema(``),
			Run: func(context.Context, json.RawMessage, sample.Progress) (any, error) {
				return sample.Result{Content: []sample.Content{}, Structured: json.RawMessage(`{"big":9007199254740993}`)}, nil
			},
		},
		{
			Name: "long", Description: strings.Repeat("Ä", 1000) + "\nsecond line", InputSchema: schema(``),
			Run: func(context.Context, json.RawMessage, sample.Progress) (any, error) { return "", nil },
		},
	}}
	s.Tools[0].InputSchema = json.RawMessage(strings.TrimSuffix(string(s.Tools[0].InputSchema), "}") + `,"$defs":{"count":{"type":"integer"}}}`)
	fmt.Fprintln(os.Stderr, "odd is up")
	if err := s.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
