package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolsd/toolsd/ipc"
)

// npmVariable names the directory in which .ci/run has installed the reference
// servers from npm.
const npmVariable = "TOOLSD_TEST_NPM"

// TestRealServers has the reference servers of the protocol in the files of three
// clients, over stdio, and one of them over Streamable HTTP too.
func TestRealServers(t *testing.T) {
	npm := os.Getenv(npmVariable)
	if npm == "" {
		t.Skipf("%s names no directory with servers from npm; .ci/run makes one", npmVariable)
	}
	bin := func(name string) string { return filepath.Join(npm, "node_modules", ".bin", name) }
	w := testWorld(t)
	home := filepath.Join(w.dir, "home")
	files := filepath.Join(home, "files")
	for _, dir := range []string{files, filepath.Join(home, ".cursor"), filepath.Join(home, ".codex")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(files, "hello.txt"), "hello from a file\n")
	address := serveHTTP(t, bin("mcp-server-everything"))
	writeFile(t, filepath.Join(home, ".claude.json"), fmt.Sprintf(`{"numStartups": 3, "mcpServers": {
		"everything": {"type": "stdio", "command": %q, "args": ["stdio"], "env": {}},
		"web": {"type": "http", "url": "http://%s/mcp"}}}`, bin("mcp-server-everything"), address))
	writeFile(t, filepath.Join(home, ".cursor", "mcp.json"), fmt.Sprintf(`{"mcpServers": {"files": {"command": %q, "args": [%q]}}}`, bin("mcp-server-filesystem"), files))
	writeFile(t, filepath.Join(home, ".codex", "config.toml"), fmt.Sprintf("model = \"x\"\n\n[mcp_servers.memory]\ncommand = %q\n\n[mcp_servers.memory.env]\nMEMORY_FILE_PATH = %q\n",
		bin("mcp-server-memory"), filepath.Join(home, "memory.json")))

	w.run(t, "search", "gzip") // waits for at least one server
	w.ready(t)
	var status ipc.Status
	if err := json.Unmarshal([]byte(w.run(t, "status", "--json")), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Servers) != 4 || len(status.Problems) != 0 {
		t.Errorf("%d servers, problems %v", len(status.Servers), status.Problems)
	}
	source := map[string]string{"everything": ".claude.json", "web": ".claude.json", "files": "mcp.json", "memory": "config.toml"}
	for _, s := range status.Servers {
		if s.State != ipc.StateReady || s.Tools == 0 || len(s.Sources) != 1 || filepath.Base(s.Sources[0]) != source[s.Name] {
			t.Errorf("server %+v", s)
		}
	}

	for _, c := range []struct {
		query, id string
		call      []string
		expect    string
	}{
		{"read a text file", "files::read_text_file", []string{"path=" + filepath.Join(files, "hello.txt")}, "hello from a file"},
		{"create entities in the knowledge graph", "memory::create_entities", []string{`entities:=[{"name":"toolsd","entityType":"program","observations":["is small"]}]`}, "toolsd"},
		{"read the knowledge graph", "memory::read_graph", nil, "is small"},
		{"echo", "everything::echo", []string{"message=by pipe"}, "Echo: by pipe"},
		{"sum of two numbers", "everything::get-sum", []string{"a=2", "b=40"}, "42"},
		{"echo", "web::echo", []string{"message=by http"}, "Echo: by http"},
		{"sum of two numbers", "web::get-sum", []string{"a=2", "b=41"}, "43"},
	} {
		server, name, _ := strings.Cut(c.id, "::")
		if found := w.run(t, "search", c.query, "-n", "10", "--json"); !strings.Contains(found, `"`+c.id+`"`) {
			t.Errorf("search %q does not find %s: %s", c.query, c.id, found)
		}
		var activated ipc.Activation
		if err := json.Unmarshal([]byte(w.run(t, "activate", c.id, "--json")), &activated); err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Name        string         `json:"name"`
			InputSchema map[string]any `json:"inputSchema"`
		}
		if err := json.Unmarshal(activated.Tools[0].Definition, &definition); err != nil || definition.Name != name || definition.InputSchema["type"] != "object" {
			t.Errorf("the definition of %s is %s", c.id, activated.Tools[0].Definition)
		}
		if got := w.run(t, append([]string{"call", c.id}, c.call...)...); !strings.Contains(got, c.expect) {
			t.Errorf("call %s of %s: %q does not hold %q", name, server, got, c.expect)
		}
	}
}

// serveHTTP runs a server that listens on a port of its own.
func serveHTTP(t *testing.T, program string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close() // the server takes a number, not a listener
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	dialer := net.Dialer{Timeout: time.Second}
	for end := time.Now().Add(30 * time.Second); ; {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			return address
		}
		if time.Now().After(end) {
			t.Fatalf("%s never listened: %v", program, err)
		}
	}
}
