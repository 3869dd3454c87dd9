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
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// doctor runs the verb and returns what it found, having checked the form of it.
func (w *world) doctor(t *testing.T, args ...string) []finding {
	t.Helper()
	cmd := w.command(t.Context(), append([]string{"doctor", "--json"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	var doc map[string][]map[string]string // no value is of another kind
	if err := json.Unmarshal(out, &doc); err != nil || len(doc) != 1 {
		t.Fatalf("%v in %s %s", err, out, &errs)
	}
	known := map[string]bool{}
	for _, c := range checks {
		known[c.code] = true
	}
	var found []finding
	fails := false
	for _, f := range doc["checks"] {
		for _, key := range []string{"code", "status", "subject", "message", "hint"} {
			if _, there := f[key]; !there || len(f) != 5 {
				t.Errorf("a check has not the five fields: %v", f)
			}
		}
		switch {
		case !known[f["code"]]:
			t.Errorf("there is no check %q", f["code"])
		case f["message"] == "":
			t.Errorf("a check says nothing: %v", f)
		case f["hint"] == "" && (f["status"] == "fail" || f["status"] == "warn"):
			t.Errorf("a check does not say what to type: %v", f)
		}
		fails = fails || f["status"] == "fail"
		found = append(found, finding{f["code"], findingStatus(f["status"]), f["subject"], f["message"], f["hint"]})
	}
	if fails != (ended != nil && ended.ExitCode() == exitFailed) {
		t.Errorf("the exit code is %v, and some check failed: %v", err, fails)
	}
	return found
}

// finds reports whether one of the findings is of this code and status and says
// something.
func finds(list []finding, code string, status findingStatus, text string) bool {
	return slices.ContainsFunc(list, func(f finding) bool {
		return f.Code == code && f.Status == status && strings.Contains(f.Subject+": "+f.Message, text)
	})
}

func TestDoctorCodesAreStable(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	var codes []string
	for _, c := range checks {
		if !kebab.MatchString(c.code) || slices.Contains(codes, c.code) || c.about == "" || c.run == nil {
			t.Errorf("the check %q", c.code)
		}
		codes = append(codes, c.code)
	}
	// What scripts look for; codes are only ever added.
	for _, code := range []string{
		"directories", "disk-space", "lock", "socket", "daemon", "version-skew", "leftover-processes", "service", "state-files", "index-file", "inotify",
		"login-shell", "config-files", "client-files", "variables", "commands", "servers", "trust", "duplicate-servers", "direct-servers", "tool-schemas", "tool-names",
		"tool-texts",
	} {
		if !slices.Contains(codes, code) {
			t.Errorf("the code %s is gone", code)
		}
	}
}

func TestDoctorStaleSocket(t *testing.T) {
	w := testWorld(t)
	w.staleSocket(t)
	path := filepath.Join(w.dir, "toolsd", "run", "toolsd.sock")
	if found := w.doctor(t); !finds(found, "socket", statusInfo, "left by a daemon that was killed") {
		t.Errorf("%+v", found)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("it was removed unasked: %v", err)
	}
	if found := w.doctor(t, "--fix"); !finds(found, "socket", statusOK, "fixed") {
		t.Errorf("%+v", found)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestDoctorSilentDaemon has something listen that never answers.
func TestDoctorSilentDaemon(t *testing.T) {
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
	if found := w.doctor(t, "--fix"); !finds(found, "daemon", statusFail, "toolsd.sock") {
		t.Errorf("%+v", found)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of a daemon that lives was removed: %v", err)
	}
}

// TestDoctorFailingServer has a server that ends at once.
func TestDoctorFailingServer(t *testing.T) {
	w := testWorld(t)
	w.config(t, `{"mcpServers": {"dies": {"command": "sh", "args": ["-c", "echo broken pipe dream >&2; exit 7"]}}}`)
	w.run(t, "start")
	for end := time.Now().Add(20 * time.Second); ; {
		found := w.doctor(t)
		if finds(found, "servers", statusFail, "dies: ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", found)
		}
	}
}

func TestSchemaFaults(t *testing.T) {
	for _, c := range []struct {
		definition string
		status     findingStatus
		want       string // empty: nothing is wrong
	}{
		{`{"name":"a","inputSchema":{"type":"object"}}`, "", ""},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string"}}}}`, "", ""},
		{`{"name":"a"}`, statusFail, "no input schema"},
		{`{"name":"a","inputSchema":null}`, statusFail, "no input schema"},
		{`{"name":"a","inputSchema":true}`, statusFail, "is no object"},
		{`{"name":"a","inputSchema":{}}`, statusFail, "says nothing"},
		{`{"name":"a","inputSchema":{"type":"array"}}`, statusFail, `says "array"`},
		{`{"name":"a","inputSchema":{"type":["object","null"]}}`, statusFail, `["object","null"]`},
		{`{"name":"a","inputSchema":{"type":"object","properties":[]}}`, statusFail, `"properties"`},
		{`{"name":"a","inputSchema":{"type":"object","anyOf":[{"type":"object"}]}}`, statusWarn, "anyOf"},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"strin"}}}}`, statusWarn, "cannot be used to check"},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"a b":{}}}}`, statusWarn, `"a b"`},
		{`{"name":"a","description":"` + strings.Repeat("ä", 1025) + `","inputSchema":{"type":"object"}}`, statusInfo, "1,025 characters"},
		{`{"name":"a","description":"` + strings.Repeat("x", 1024) + `","inputSchema":{"type":"object"}}`, "", ""},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","description":"` + strings.Repeat("long ", 5000) + `"}}}}`, statusWarn, "weighs"},
	} {
		parsed, err := tool.Parse("s", json.RawMessage(c.definition))
		if err != nil {
			t.Fatal(err)
		}
		found := schemaFaults(parsed)
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%.90s: %+v", c.definition, found)
		case c.want != "" && !slices.ContainsFunc(found, func(f finding) bool { return f.Status == c.status && strings.Contains(f.Message, c.want) }):
			t.Errorf("%.90s: %+v, want %s %q", c.definition, found, c.status, c.want)
		}
	}
}

// TestClientFileThatHangs: one file on a file system that does not answer keeps
// nothing of the others from being told.
func TestClientFileThatHangs(t *testing.T) {
	home := t.TempDir()
	env := clientconfig.Env{GOOS: "linux", Home: home}
	for _, name := range []string{".cursor/mcp.json", ".lmstudio/mcp.json"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), configRead)
		defer cancel()
		release := make(chan struct{})
		defer close(release)
		files := readClientFiles(ctx, env, nil, func(path string) ([]byte, error) {
			if strings.Contains(path, ".cursor") {
				<-release
			}
			return os.ReadFile(path)
		})
		told := map[string]string{}
		for _, f := range files {
			told[f.loc.Client] = fmt.Sprint(len(f.content.Servers), " ", f.err)
		}
		if len(told) != 2 || told["cursor"] != "0 reading it takes too long" || told["lm-studio"] != "1 <nil>" {
			t.Errorf("%v", told)
		}
	})
}
