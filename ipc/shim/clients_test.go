package shim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsd/toolsd/ipc/shim"
)

// asShim makes the test binary a shim over a world in memory: what a real
// client starts as its MCP server.
const asShim = "TOOLSD_TEST_SHIM"

func TestMain(m *testing.M) {
	if os.Getenv(asShim) == "" {
		os.Exit(m.Run())
	}
	w := newMemoryWorld(nil)
	w.Set("lab", `{"name":"echo","description":"Echo a message","inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}}`)
	w.Set("kicad", gerber, drill, create)
	err := shim.Run(context.Background(), shim.Options{
		In: os.Stdin, Out: os.Stdout, Connect: w.Connect, CWD: ".", Log: slog.New(slog.DiscardHandler), Version: "test",
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// model plays a language model that has one thing in mind: find the tool that
// echoes, and call it. It keeps the names of the tools that it was offered with
// each request, and the last tool result that it was given.
type model struct {
	mu      sync.Mutex
	offered [][]string
	steps   []string
	result  string
}

func (m *model) note(step string, offered []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.offered = append(m.steps, step), append(m.offered, offered)
}

const message = "a message for the echo"

// TestClaudeCode runs the real Claude Code against a model on loopback, in a
// temporary HOME, with a key that is none. It is skipped unless
// TOOLSD_TEST_CLAUDE names the binary:
//
//	npm install --ignore-scripts @anthropic-ai/claude-code-linux-x64
//	TOOLSD_TEST_CLAUDE=$PWD/node_modules/@anthropic-ai/claude-code-linux-x64/claude go test -run ClaudeCode ./ipc/shim
//
// The model searches, and then calls the tool by its own name in the same turn:
// after loading it, where the client defers it, and at once where it does not.
func TestClaudeCode(t *testing.T) {
	binary := os.Getenv("TOOLSD_TEST_CLAUDE")
	if binary == "" {
		t.Skip("TOOLSD_TEST_CLAUDE names no binary")
	}
	for name, env := range map[string]string{"deferring": "ENABLE_TOOL_SEARCH=true", "not deferring": "ENABLE_TOOL_SEARCH=false"} {
		t.Run(name, func(t *testing.T) {
			m := &model{}
			api := httptest.NewServer(http.HandlerFunc(m.anthropic))
			defer api.Close()
			home := t.TempDir()
			config := filepath.Join(home, "mcp.json")
			write(t, config, map[string]any{"mcpServers": map[string]any{"toolsd": self(t)}})
			run(t, home, binary, []string{"-p", "please", "--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__toolsd", "--model", "claude-sonnet-4-5"},
				"ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=none", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", env)
			m.check(t, "mcp__toolsd__lab_echo")
		})
	}
}

// TestCodex is the same with the real Codex, which never lists again and so
// calls through tool_call. TOOLSD_TEST_CODEX names the binary:
//
//	npm install --ignore-scripts codex@npm:@openai/codex@0.171.0-linux-x64
//	TOOLSD_TEST_CODEX=$PWD/node_modules/codex/vendor/x86_64-unknown-linux-musl/bin/codex go test -run Codex ./ipc/shim
func TestCodex(t *testing.T) {
	binary := os.Getenv("TOOLSD_TEST_CODEX")
	if binary == "" {
		t.Skip("TOOLSD_TEST_CODEX names no binary")
	}
	m := &model{}
	api := httptest.NewServer(http.HandlerFunc(m.openai))
	defer api.Close()
	home := t.TempDir()
	config := fmt.Sprintf(`model = "gpt-5.5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.fake]
name = "fake"
base_url = %q
wire_api = "responses"
env_key = "FAKE_KEY"
[mcp_servers.toolsd]
command = %q
env = { %s = "1" }
default_tools_approval_mode = "approve"
`, api.URL+"/v1", self(t)["command"], asShim)
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, home, binary, []string{"exec", "--skip-git-repo-check", "please"}, "CODEX_HOME="+home, "FAKE_KEY=none")
	m.check(t, "tool_call")
}

func self(t *testing.T) map[string]any {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"command": exe, "env": map[string]string{asShim: "1"}}
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, home, binary string, args []string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+home)
	cmd.Dir = home
	out, err := cmd.CombinedOutput()
	t.Logf("the client said (%v):\n%s", err, out)
}

func (m *model) check(t *testing.T, last string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.steps {
		t.Logf("request %d: %v → %s", i+1, m.offered[i], s)
	}
	called := len(m.steps) - 2
	if called < 0 || len(m.steps) > 12 || m.steps[called] != last || !strings.Contains(m.result, message) {
		t.Errorf("the model came to %q, and its last result is %.300s", m.steps, m.result)
	}
}

// next decides what the model does, of what it is offered.
func (m *model) next(loaded func(string) bool) (tool string, input map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	steps := strings.Join(m.steps, " ")
	echo := map[string]any{"message": message}
	const own = "mcp__toolsd__lab_echo"
	switch {
	case len(m.steps) > 12: // it goes round in circles
		return "", nil
	case !strings.Contains(steps, "tool_search"):
		return "tool_search", map[string]any{"query": "echo a message"}
	case strings.Contains(m.result, message):
		return "", nil
	case loaded(own):
		return own, echo
	case loaded("ToolSearch") && !strings.Contains(steps, "ToolSearch"):
		return "ToolSearch", map[string]any{"query": "select:" + own}
	}
	return "tool_call", map[string]any{"tool_id": "lab::echo", "arguments": echo}
}

func decodeBody(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func stream(w http.ResponseWriter, events ...map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		data, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], data)
	}
}

// anthropic is as much of the Messages API as Claude Code needs for a turn.
func (m *model) anthropic(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Tools []struct {
			Name  string `json:"name"`
			Defer bool   `json:"defer_loading"`
		} `json:"tools"`
		Messages []struct{ Content json.RawMessage } `json:"messages"`
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/messages") || strings.Contains(r.URL.Path, "count_tokens") || decodeBody(r, &request) != nil {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"input_tokens":1}`)
		return
	}
	var offered []string
	loaded := map[string]bool{}
	conversation, _ := json.Marshal(request.Messages)
	for _, tool := range request.Tools {
		if strings.HasPrefix(tool.Name, "mcp__") || tool.Name == "ToolSearch" {
			name := tool.Name
			// A deferred tool is there for the model once a ToolSearch has named it.
			loaded[name] = !tool.Defer || strings.Contains(string(conversation), `"tool_reference"`)
			if tool.Defer {
				name += " (deferred)"
			}
			offered = append(offered, name)
		}
	}
	block := map[string]any{"type": "text", "text": "done"}
	input := "{}"
	if loaded["mcp__toolsd__tool_search"] {
		var last string
		if n := len(request.Messages); n > 0 {
			last = string(request.Messages[n-1].Content)
		}
		if strings.Contains(last, "tool_result") {
			m.got(last)
		}
		tool, arguments := m.next(func(name string) bool { return loaded[name] })
		m.note(tool, offered)
		if tool != "" {
			if tool == "tool_search" || tool == "tool_call" {
				tool = "mcp__toolsd__" + tool
			}
			raw, _ := json.Marshal(arguments)
			input = string(raw)
			block = map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", time.Now().UnixNano()), "name": tool, "input": map[string]any{}}
		}
	}
	delta, reason := map[string]any{"type": "text_delta", "text": "done"}, "end_turn"
	if block["type"] == "tool_use" {
		delta, reason = map[string]any{"type": "input_json_delta", "partial_json": input}, "tool_use"
	} else {
		block["text"] = ""
	}
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	stream(w,
		map[string]any{"type": "message_start", "message": map[string]any{"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": []any{}, "stop_reason": nil, "usage": usage}},
		map[string]any{"type": "content_block_start", "index": 0, "content_block": block},
		map[string]any{"type": "content_block_delta", "index": 0, "delta": delta},
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason}, "usage": usage},
		map[string]any{"type": "message_stop"})
}

// got keeps a tool result.
func (m *model) got(result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result = result
}

// openai is as much of the Responses API as Codex needs for a turn. Codex hides
// all MCP tools behind a search of its own, which comes first.
func (m *model) openai(w http.ResponseWriter, r *http.Request) {
	type tool struct {
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	var request struct {
		Tools []tool `json:"tools"`
		Input []struct {
			Type   string          `json:"type"`
			Tools  []tool          `json:"tools"`
			Output json.RawMessage `json:"output"`
		} `json:"input"`
	}
	if r.Method != http.MethodPost || decodeBody(r, &request) != nil {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"data":[],"models":[]}`)
		return
	}
	spaces := map[string]string{} // of the tools that the model can call
	var offered []string
	take := func(tools []tool) {
		for _, t := range tools {
			for _, u := range t.Tools {
				if strings.Contains(t.Name, "toolsd") {
					spaces[u.Name] = t.Name
					offered = append(offered, t.Name+"/"+u.Name)
				}
			}
		}
	}
	take(request.Tools)
	for _, i := range request.Input {
		take(i.Tools)
		if i.Type == "function_call_output" {
			m.got(string(i.Output))
		}
	}
	id := fmt.Sprint(time.Now().UnixNano())
	item := map[string]any{"type": "message", "role": "assistant", "id": "m" + id, "content": []any{map[string]any{"type": "output_text", "text": "done"}}}
	if len(spaces) == 0 {
		m.note("its own search", offered)
		item = map[string]any{"type": "tool_search_call", "id": "t" + id, "call_id": "c" + id, "execution": "client", "status": "completed", "arguments": map[string]any{"query": "search for MCP tools and call one by its id", "limit": 8}}
	} else {
		name, arguments := m.next(func(name string) bool { return spaces[name] != "" })
		m.note(name, offered)
		if name != "" {
			raw, _ := json.Marshal(arguments)
			item = map[string]any{"type": "function_call", "id": "f" + id, "call_id": "c" + id, "namespace": spaces[name], "name": name, "arguments": string(raw)}
		}
	}
	stream(w,
		map[string]any{"type": "response.created", "response": map[string]any{"id": "r" + id}},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{"type": "response.completed", "response": map[string]any{"id": "r" + id, "usage": map[string]any{
			"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
		}}})
}
