package shim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// shared is the folder of test data beside the module.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the test data is missing: %v", err)
		}
		t.Skipf("no test data: %v", err)
	}
	return path
}

// catalog is what 44 published servers list, by server.
func catalog(t *testing.T) map[string][]*tool.Tool {
	t.Helper()
	servers, err := readCatalog(shared(t, "catalog"))
	if err != nil || len(servers) < 40 {
		t.Fatalf("%d lists: %v", len(servers), err)
	}
	return servers
}

// readCatalog reads it once: parsing 1,583 tools is most of what these tests cost.
var readCatalog = func() func(string) (map[string][]*tool.Tool, error) {
	var once sync.Once
	out := map[string][]*tool.Tool{}
	var err error
	read := func(dir string) error {
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			return err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			var list []json.RawMessage
			if err := json.Unmarshal(data, &list); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			server := strings.TrimSuffix(filepath.Base(f), ".json")
			for _, raw := range list {
				one, err := tool.Parse(server, raw)
				if err != nil {
					return fmt.Errorf("%s: %w", f, err)
				}
				out[server] = append(out[server], one)
			}
		}
		return nil
	}
	return func(dir string) (map[string][]*tool.Tool, error) {
		once.Do(func() { err = read(dir) })
		return out, err
	}
}()

func fill(t *testing.T, w *memoryWorld) (servers map[string][]*tool.Tool, total int) {
	t.Helper()
	servers = catalog(t)
	for server, tools := range servers {
		w.set(server, tools)
		total += len(tools)
	}
	return servers, total
}

// Each definition of the catalog is listed with the same JSON value that its
// server sent, but for its name and the characters that are taken out.
func TestCatalogDefinitionsAreUnchanged(t *testing.T) {
	w := newMemoryWorld(t).(*memoryWorld)
	servers, total := fill(t, w)
	a := attach(t, w, "claude-code", mode(ipc.Direct))
	listed := map[string]json.RawMessage{}
	weight := 0
	for _, raw := range a.raw() {
		var d struct{ Name string }
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		listed[d.Name] = raw
		weight += tool.EstimateTokens(raw)
	}
	if len(listed) != total+len(shim.FixedNames()) {
		t.Errorf("%d tools are listed, want %d and the fixed ones", len(listed), total)
	}
	raw := rawCatalog(t)
	for server, tools := range servers {
		for i, one := range tools {
			exposed := w.names.Of(one.ID)
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(raw[server][i], &fields); err != nil {
				t.Fatal(err)
			}
			fields["name"], _ = json.Marshal(exposed)
			all, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			want, err := tool.Parse(server, all)
			if err != nil || !sameJSON(listed[exposed], string(want.Raw)) {
				t.Errorf("%s is listed as %.200s, not as %s (%v)", one.ID, listed[exposed], all, err)
			}
		}
	}
	search := attach(t, w, "claude-code", mode(ipc.Search), relisting)
	f := search.search("gerber")
	after := 0
	for _, raw := range search.raw() {
		after += tool.EstimateTokens(raw)
	}
	answer, _ := json.Marshal(f)
	t.Logf("%d tools directly: %d tokens; the fixed tools and one search with %d matches: %d, and %d for its answer", total, weight, f.Count, after, len(answer)/4)
	if after > weight/20 {
		t.Errorf("one search leaves %d of %d tokens", after, weight)
	}
}

// rawCatalog is the catalog as the servers sent it.
func rawCatalog(t *testing.T) map[string][]json.RawMessage {
	t.Helper()
	out := map[string][]json.RawMessage{}
	files, _ := filepath.Glob(filepath.Join(shared(t, "catalog"), "*.json"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		var list []json.RawMessage
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".json")] = list
	}
	return out
}

// Rule 3 over the real names: whatever the fixed tools say of real servers, each
// id in it can be reached, and each exposed name can be called.
func TestCatalogNamesInTexts(t *testing.T) {
	for _, m := range []ipc.Mode{ipc.Search, ipc.Direct} {
		for _, client := range []string{"claude-code", "codex-mcp-client"} {
			t.Run(fmt.Sprint(m, client), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMemoryWorld(t).(*memoryWorld)
					servers, _ := fill(t, w)
					options := []option{mode(m)}
					if client == "claude-code" {
						options = append(options, relisting)
					}
					a := attach(t, w, client, options...)
					checked := 0
					check := func(text string) {
						reached := strings.Contains(text, "tool_search") || strings.Contains(text, "tool_call")
						var f found
						if json.Unmarshal([]byte(text), &f) != nil || f.Matches == nil {
							if !reached && strings.Contains(text, "::") {
								t.Errorf("no way to what it names: %.300s", text)
							}
							return
						}
						now := "\n" + strings.Join(a.names(), "\n") + "\n"
						for _, match := range f.Matches {
							checked++
							if !strings.Contains(now, "\n"+match.Name+"\n") && !reached {
								t.Errorf("%s is neither listed nor is it said how to reach it: %s", match.Name, f.Note)
							}
							if match.InputSchema == nil && !strings.Contains(now, "\n"+match.Name+"\n") {
								t.Errorf("%s has no schema anywhere", match.Name)
							}
						}
					}
					for _, query := range []string{"file", "issue create", "gerber", "query", "delete", "email", "map", "list"} {
						check(a.call("tool_search", fmt.Sprintf(`{"query":%q,"max_results":20}`, query)).text())
					}
					for server := range servers {
						check(a.call("get_category_tools", fmt.Sprintf(`{"category":%q}`, server)).text())
					}
					check(a.call("list_tool_categories", `{}`).text())
					if checked < 100 {
						t.Errorf("only %d names were checked", checked)
					}
				})
			})
		}
	}
}

// The scenario of a person who uses KiCAD: what is pinned is always there, a
// search brings the rest, and the call reaches the server.
func TestKicadScenario(t *testing.T) {
	data, err := os.ReadFile(shared(t, filepath.Join("kicad", "config-part.json")))
	if err != nil {
		t.Fatal(err)
	}
	var part struct{ Pinned []string }
	if err := json.Unmarshal(data, &part); err != nil || len(part.Pinned) != 32 {
		t.Fatalf("%d pinned: %v", len(part.Pinned), err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newMemoryWorld(t).(*memoryWorld)
		w.set("kicad", catalog(t)["kicad"])
		w.Pin(part.Pinned...)
		a := attach(t, w, "claude-code", relisting)
		if n := len(a.names()); n != 36 {
			t.Fatalf("%d tools are listed, want 4 and 32", n)
		}
		a.search("gerber")
		if a.definition("kicad_export_gerber") == nil {
			t.Fatalf("export_gerber is not listed: %q", a.names())
		}
		var d struct {
			InputSchema struct {
				Required   []string
				Properties map[string]struct{ Type string }
			} `json:"inputSchema"`
		}
		if err := json.Unmarshal(a.definition("kicad_export_gerber"), &d); err != nil {
			t.Fatal(err)
		}
		arguments := map[string]any{}
		for _, name := range d.InputSchema.Required {
			arguments[name] = map[string]any{"string": "x", "number": 1, "integer": 1, "boolean": true, "array": []any{}, "object": map[string]any{}}[d.InputSchema.Properties[name].Type]
		}
		raw, _ := json.Marshal(arguments)
		if r := a.call("kicad_export_gerber", string(raw)); r.IsError {
			t.Errorf("the call: %s", r.text())
		}
		if calls := w.Calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], "kicad::export_gerber ") {
			t.Errorf("the server got %q", calls)
		}
	})
}
