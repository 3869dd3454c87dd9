package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// The test binary is also the keeper, the index check and the servers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case KeeperVerb:
			os.Exit(platform.KeeperMain())
		case CheckVerb:
			if err := index.VerifyFile(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "fault":
			os.Exit(faultserver.Main(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must happen. It only ends tests
// that fail.
const patience = 30 * time.Second

// manyProcesses marks tests of many processes, which take minutes under the race
// detector and show nothing there that the others do not.
func manyProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts many processes; leave -short out to run it")
	}
}

// machine is a user's machine: a home, a project in it, and toolsd's own
// directories.
type machine struct {
	t       testing.TB
	home    string
	project string
	dirs    platform.Dirs
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, home: filepath.Join(root, "home"), project: filepath.Join(root, "home", "proj")}
	if err := os.MkdirAll(m.project, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", m.home)
	t.Setenv("SHELL", "/bin/sh")
	m.dirs, err = platform.FindDirs(func(name string) string {
		return map[string]string{"TOOLSD_DIR": filepath.Join(root, "d"), "HOME": m.home}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	m.dirs.ManagedConfig = filepath.Join(root, "managed.json")
	if err := m.dirs.Prepare(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) write(path string, v any) {
	m.t.Helper()
	data, ok := v.(string)
	if !ok {
		raw, err := json.Marshal(v)
		if err != nil {
			m.t.Fatal(err)
		}
		data = string(raw)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

type object = map[string]any

// fault is the entry of a server in that mode of the fault server.
func fault(mode string, more ...object) object {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	entry := object{"command": exe, "args": []string{"fault", mode}}
	for _, o := range more {
		for k, v := range o {
			entry[k] = v
		}
	}
	return entry
}

// config writes toolsd's own config file.
func (m *machine) config(servers object, more ...object) {
	m.t.Helper()
	doc := object{"mcpServers": servers}
	for _, o := range more {
		for k, v := range o {
			doc[k] = v
		}
	}
	m.write(m.dirs.ConfigFile, doc)
}

// running is a daemon that runs, and a client at its socket.
type running struct {
	*Daemon
	m      *machine
	client *ipc.Client
	stop   func() error
}

func (m *machine) start() *running {
	m.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	d := New(Options{
		Dirs: m.dirs, Executable: exe, Getenv: os.Getenv, Environ: os.Environ,
		FixedNames: []string{"tool_search", "tool_call", "list_tool_categories", "get_category_tools"}, FixedTokens: 800,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	r := &running{Daemon: d, m: m, client: ipc.NewClient(m.dirs.Socket)}
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		r.client.Close()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			m.t.Error("the daemon did not end")
			return nil
		}
	}
	m.t.Cleanup(func() { r.stop() })
	r.until("the socket answers", func() bool {
		select {
		case err := <-ended:
			m.t.Fatalf("the daemon ended: %v", err)
		default:
		}
		_, err := r.client.Handshake(m.t.Context())
		return err == nil
	})
	return r
}

// until waits until cond holds.
func (r *running) until(what string, cond func() bool) {
	r.m.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			status, err := r.Status(context.Background(), ipc.StatusRequest{CWD: r.m.project})
			r.m.t.Fatalf("waited in vain until %s; status %s %v", what, ipc.Encode(status), err)
		}
	}
}

func (r *running) server(name string) ipc.ServerInfo {
	r.m.t.Helper()
	status, err := r.Status(r.m.t.Context(), ipc.StatusRequest{CWD: r.m.project})
	if err != nil {
		r.m.t.Fatal(err)
	}
	for _, s := range status.Servers {
		if s.Name == name {
			return s
		}
	}
	return ipc.ServerInfo{}
}

func (r *running) untilState(name string, state ipc.ServerState) ipc.ServerInfo {
	r.m.t.Helper()
	r.until(name+" is "+string(state), func() bool { return r.server(name).State == state })
	return r.server(name)
}

// ids searches and returns the ids found.
func (r *running) ids(query string) []string {
	r.m.t.Helper()
	result, err := r.Daemon.Search(r.m.t.Context(), ipc.SearchRequest{Query: query, Max: 50, CWD: r.m.project})
	if err != nil {
		r.m.t.Fatal(err)
	}
	out := []string{}
	for _, match := range result.Matches {
		out = append(out, match.ToolID)
	}
	return out
}

func (r *running) call(id, arguments string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(r.m.t.Context(), patience)
	defer cancel()
	return r.Daemon.Call(ctx, ipc.CallRequest{ToolID: id, Arguments: json.RawMessage(arguments), CWD: r.m.project})
}

func codeOf(err error) ipc.Code {
	if err == nil {
		return ""
	}
	return ipc.AsError(err).Code
}

// shared is a path in the folder of data beside the checkout.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("data that CI must have is missing: %v", err)
		}
		t.Skip("no shared data beside the checkout")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
