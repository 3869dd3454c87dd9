package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
)

// The test binary is a fault server too, and a client that another user runs.
func init() {
	if len(os.Args) == 3 && os.Args[1] == "fault-server" {
		os.Exit(faultserver.Main(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == "dial-raw" {
		fmt.Println(dialRaw(os.Args[2]))
		os.Exit(0)
	}
}

// dirty holds characters of all classes that are hidden or that steer a terminal.
const dirty = "d\x01\x07\x1b[31mi\u009b1m\u0085r\u202e\u2066t\u200b\ufeff\u2060y\U000E0041\U000E007F"

func hiddenIn(s string) (found []string) {
	for i, r := range s {
		if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x80 && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
			r == 0x200b || r == 0xfeff || r == 0x2060 || r >= 0xe0000 && r <= 0xe007f {
			found = append(found, fmt.Sprintf("U+%04X in %q", r, s[max(0, i-40):min(len(s), i+40)]))
		}
	}
	return found
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type object = map[string]any

// TestHiddenCharactersOnATerminal has them in everything that a server or a
// config file says: no verb shows one on a terminal, and none is left in what
// completion offers. With --json a result keeps every byte.
func TestHiddenCharactersOnATerminal(t *testing.T) {
	w := testWorld(t)
	quoted := asJSON(t, dirty)
	words := filepath.Join(w.dir, "words.json")
	result := `{"content":[{"type":"text","text":` + quoted + `}]}`
	tools := []json.RawMessage{
		json.RawMessage(`{"name":"good","title":` + quoted + `,"description":` + quoted + `,"inputSchema":{"type":"object","properties":{` + quoted +
			`:{"type":"string","description":` + quoted + `,"enum":[` + quoted + `]}}}}`),
		json.RawMessage(`{"name":"bad_call","description":"x","inputSchema":{}}`),
		json.RawMessage(`{"name":` + asJSON(t, "named"+dirty) + `,"inputSchema":{}}`),
	}
	writeFile(t, words, asJSON(t, faultserver.Words{Instructions: dirty, Stderr: dirty + " on stderr\n", Error: dirty + " as an error", Tools: tools, Result: json.RawMessage(result)}))
	script := object{"command": w.value("BIN"), "args": []string{"fault-server", "script=" + words}}
	w.config(t, asJSON(t, object{
		"mcpServers": object{
			"evil": script, "sly" + dirty: object{"command": "/bin/sh", "args": []string{"-c", `cat "$0" >&2; exit 3`, words}}, "none": object{"command": "no-such-" + dirty},
			"odd" + dirty: object{"args": true},
		},
		"categories": object{"cat": object{"description": dirty, "tools": []string{"evil::*"}}, "cat" + dirty: object{"description": dirty, "tools": []string{"evil::*"}}},
		dirty:        1, "toolSearch": object{dirty: 2}, "pinned": []string{dirty, "evil::" + dirty},
	}))
	writeFile(t, filepath.Join(w.dir, ".mcp.json"), asJSON(t, object{"mcpServers": object{
		"theirs": object{"command": "./" + dirty, "args": []string{"-c", dirty}, "env": object{dirty: dirty}, "cwd": dirty},
		"far":    object{"url": "https://x.invalid/" + dirty, "headers": object{"X-" + dirty: dirty}},
	}}))
	w.run(t, "start")
	eventually(t, "the server listed its tools", func() bool { return strings.Contains(w.run(t, "tools", "--json"), "evil::good") })
	eventually(t, "the project is read", func() bool { return strings.Contains(w.run(t, "servers", "--json"), "theirs") })
	odd := "'" + dirty + "'"
	for _, line := range []string{
		"search good", "search " + odd, "search good --explain", "search nothing-like-it", "tools", "tools evil", "tools --compact", "tools --markdown", "tools " + odd,
		"categories", "category cat", "category " + odd, "category catd", "activate evil::good", "activate evil::" + odd, "call evil::good", "call evil::bad_call", "call evil::good " + odd + "=1",
		"call evil::" + odd, "servers", "status", "why evil", "why evil::good", "why sly", "why none", "why " + odd, "why theirs", "logs evil", "logs sly", "trust list", "trust theirs", "calls", "settings", "doctor",
		"restart " + odd, "distrust " + odd, "settings " + odd, odd, "search good --server " + odd, "search good --" + odd,
	} {
		shown := w.onTerminal(t, "NO_COLOR=1 TERM=dumb toolsd "+line+" </dev/null", "", "")
		if found := hiddenIn(shown); len(found) > 0 {
			t.Errorf("toolsd %s shows %s", line, strings.Join(found[:min(len(found), 4)], "; "))
		}
		if len(shown) == 0 {
			t.Errorf("toolsd %s shows nothing", line)
		}
	}
	for _, args := range [][]string{{"activate", ""}, {"call", ""}, {"call", "evil::good", ""}, {"call", "evil::good", "d[31mi1mrty="}, {"why", ""}, {"category", ""}, {"logs", ""}, {"trust", ""}, {"search", "--server", ""}} {
		out := w.run(t, append([]string{"__complete"}, args...)...)
		if found := hiddenIn(out); len(found) > 0 {
			t.Errorf("completing %q offers %s", args, strings.Join(found[:min(len(found), 4)], "; "))
		}
	}
	const flag = "carries hidden characters" // what was taken out is told of
	for _, args := range [][]string{{"why", "evil::good"}, {"trust", "list"}, {"trust", "evil"}} {
		if out := w.run(t, args...); !strings.Contains(out, flag) {
			t.Errorf("toolsd %s does not flag it: %s", strings.Join(args, " "), out)
		}
	}
	if found := w.doctor(t); !finds(found, "tool-texts", statusWarn, "evil::good "+flag) {
		t.Errorf("doctor does not flag it: %+v", found)
	}
	if got := w.run(t, "call", "evil::good", "--json"); got != result+"\n" {
		t.Errorf("--json printed %q, want %q", got, result+"\n")
	}
}

// TestNothingOfHiddenServers completes and lists calls while a project's server
// waits, and after the approval of one that was used was taken back.
func TestNothingOfHiddenServers(t *testing.T) {
	w := testWorld(t)
	w.config(t, boardConfig)
	words := filepath.Join(w.dir, "words.json")
	writeFile(t, words, asJSON(t, faultserver.Words{Instructions: "quillfeather", Stderr: "quillfeather\n", Tools: []json.RawMessage{
		json.RawMessage(`{"name":"quillfeather_one","description":"quillfeather","inputSchema":{"type":"object","properties":{"quillfeather":{"type":"string","enum":["quillfeather"]}}}}`),
		json.RawMessage(`{"name":"quillfeather_two","inputSchema":{}}`), json.RawMessage(`{"name":"quillfeather_three","inputSchema":{}}`),
	}}))
	writeFile(t, filepath.Join(w.dir, ".mcp.json"), asJSON(t, object{"mcpServers": object{"theirs": object{"command": w.value("BIN"), "args": []string{"fault-server", "script=" + words}}}}))
	w.run(t, "start")
	eventually(t, "it waits", func() bool { return strings.Contains(w.run(t, "servers", "--json"), `"pending"`) })
	all := func() string {
		var b strings.Builder
		for _, args := range [][]string{
			{"activate", ""}, {"activate", "theirs"}, {"activate", "theirs::"}, {"call", ""}, {"call", "theirs::q"}, {"call", "theirs::quillfeathe"}, {"call", "theirs::x", ""}, {"why", ""}, {"why", "theirs::"},
			{"category", ""}, {"category", "theirs/"}, {"tools", ""}, {"logs", ""}, {"restart", ""}, {"trust", ""}, {"search", "--server", ""}, {"search", "--category", ""},
		} {
			b.WriteString(w.run(t, append([]string{"__complete"}, args...)...))
		}
		b.WriteString(w.run(t, "calls", "--json") + w.run(t, "calls"))
		return b.String()
	}
	if out := all(); strings.Contains(out, "quillfeather") {
		t.Errorf("while it waits: %s", out)
	}
	if shown := w.onTerminal(t, "toolsd trust theirs --yes", "", ""); !strings.Contains(shown, "approved") {
		t.Fatalf("it was not approved: %s", shown)
	}
	w.ready(t)
	if out := all(); !strings.Contains(out, "theirs::quillfeather_one") {
		t.Errorf("approved, it is not offered: %s", out)
	}
	w.run(t, "call", "theirs::quillfeather_two")
	if out := w.run(t, "calls"); !strings.Contains(out, "theirs::quillfeather_two") {
		t.Errorf("the call is not in the log: %s", out)
	}
	if out := w.run(t, "calls", "--cwd", t.TempDir(), "--json"); strings.Contains(out, "theirs") {
		t.Errorf("elsewhere the log tells of the project's server: %s", out)
	}
	_ = w.command(t.Context(), "call", "quillfeather_four").Run() // exit 4: of no tool, so its name might be a hidden one's
	for _, rest := range [][]string{{}, {"--no-start"}} {
		out := w.run(t, append([]string{"calls"}, rest...)...)
		if strings.Contains(out, "quillfeather_four") || !strings.Contains(out, "theirs::") {
			t.Errorf("calls %v: %s", rest, out)
		}
	}
	w.run(t, "distrust", "theirs")
	if out := all(); strings.Contains(out, "quillfeather") {
		t.Errorf("after the approval was taken back: %s", out)
	}
	w.run(t, "stop")
	if out := w.run(t, "calls", "--no-start"); strings.Contains(out, "quillfeather") || !strings.Contains(out, "theirs::…") {
		t.Errorf("without a daemon: %s", out)
	}
	w.run(t, "start")
	eventually(t, "it waits", func() bool { return strings.Contains(w.run(t, "servers", "--json"), `"pending"`) })
	if out := all(); strings.Contains(out, "quillfeather") {
		t.Errorf("after a restart: %s", out)
	}
	// The user's own server of that name has another past.
	w.config(t, strings.Replace(boardConfig, `"board"`, `"theirs"`, 1))
	eventually(t, "the name is the user's", func() bool { return strings.Contains(w.run(t, "servers", "--json"), `"theirs-`) })
	if out := all(); strings.Contains(out, "quillfeather") {
		t.Errorf("after its name is another's: %s", out)
	}
}

// TestFilesArePrivateWhateverTheUmask starts a daemon with umask 0.
func TestFilesArePrivateWhateverTheUmask(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes there")
	}
	w := testWorld(t)
	if err := os.Remove(filepath.Join(w.dir, "toolsd")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.dir, ".mcp.json"), `{"mcpServers": {"theirs": {"command": "`+w.value("BIN")+`", "args": ["sample-server", "notes"]}}}`)
	cmd := w.command(t.Context())
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "umask 0; toolsd start && toolsd distrust theirs && toolsd search x --no-wait; toolsd stop && toolsd start && toolsd call board::x; true"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	seen := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "toolsd"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		seen++
		if info.Mode().Perm()&0o077 != 0 && !info.IsDir() {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if name := filepath.Base(path); info.IsDir() && (name == "run" || name == "state" || name == "cache") && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || seen < 8 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// TestRuntimeDirectoriesThatAreNotOurs has links, files and foreign owners in the
// place of the socket's directory: exit 3, and nobody is spoken to there.
func TestRuntimeDirectoriesThatAreNotOurs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("owners are changed as root on Linux")
	}
	for name, harm := range map[string]func(t *testing.T, run string) error{
		"link": func(t *testing.T, run string) error {
			elsewhere := filepath.Join(filepath.Dir(run), "elsewhere")
			return errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(elsewhere, run))
		},
		"file": func(t *testing.T, run string) error { return os.WriteFile(run, nil, 0o600) },
		"foreign": func(t *testing.T, run string) error {
			if os.Geteuid() != 0 {
				t.Skip("it takes root to give a directory away")
			}
			return errors.Join(os.Mkdir(run, 0o700), os.Chown(run, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWorld(t)
			w.config(t, boardConfig)
			run := filepath.Join(w.dir, "toolsd", "run")
			if err := harm(t, run); err != nil {
				t.Fatal(err)
			}
			heard := make(chan int, 1)
			if name != "file" { // somebody waits there for what we might say
				l, err := net.Listen("unix", filepath.Join(run, "toolsd.sock"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					conn, err := l.Accept()
					if err != nil {
						heard <- 0
						return
					}
					n, _ := conn.Read(make([]byte, 100))
					conn.Close()
					heard <- n
				}()
				t.Cleanup(func() {
					l.Close()
					if n := <-heard; n > 0 {
						t.Errorf("%d bytes were said to whoever listens there", n)
					}
				})
			}
			for _, verb := range []string{"status", "start", "serve", "search x"} {
				cmd := w.command(t.Context(), strings.Fields(verb)...)
				out, err := cmd.CombinedOutput()
				var ended *exec.ExitError
				if !errors.As(err, &ended) || ended.ExitCode() != exitNoDaemon || !bytes.Contains(out, []byte(run)) {
					t.Errorf("toolsd %s: %v, want exit %d and the path: %s", verb, err, exitNoDaemon, out)
				}
			}
		})
	}
}

// dialRaw says something at a socket and tells what came of it.
func dialRaw(path string) string {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return "dial: " + err.Error()
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.0\r\nHost: toolsd\r\n\r\n"); err != nil {
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return "unread"
		}
		return "write: " + err.Error()
	}
	answer, err := io.ReadAll(conn)
	switch {
	case len(answer) > 0:
		return "answered: " + string(answer)
	case errors.Is(err, syscall.ECONNRESET): // closed with what was written still in the queue
		return "unread"
	}
	return fmt.Sprintf("read and closed: %v", err)
}

// TestOtherUsersAreRefusedUnread has another user at the socket, which somebody
// opened to all: the connection is closed before a byte of it is read.
func TestOtherUsersAreRefusedUnread(t *testing.T) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root and setpriv to be another user")
	}
	w := testWorld(t)
	w.config(t, boardConfig)
	w.run(t, "start")
	program := filepath.Join(w.dir, "dial")
	data, err := os.ReadFile(w.value("BIN"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(w.dir, "toolsd", "run", "toolsd.sock")
	dial := func(as ...string) string {
		cmd := exec.CommandContext(t.Context(), setpriv, append(as, program, "dial-raw", socket)...)
		cmd.Dir, cmd.Env = "/", append(os.Environ(), w.env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	nobody := []string{"--reuid=65534", "--regid=65534", "--clear-groups"}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := dial(nobody...); !strings.Contains(got, "permission denied") {
		t.Errorf("another user reached the socket: %s", got)
	}
	for _, dir := range []string{filepath.Dir(filepath.Dir(socket)), filepath.Dir(socket)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got := dial(nobody...); got != "unread" {
			t.Fatalf("another user: %s", got)
		}
	}
	if got := dial("--reuid=0"); !strings.HasPrefix(got, "answered: ") {
		t.Errorf("the same user: %s", got)
	}
	w.run(t, "status")
}
