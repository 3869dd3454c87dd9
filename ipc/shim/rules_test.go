package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
)

// The rules of the contract about what an agent sees, each as a test. They hold
// in any world: here in memory, and wherever testRules is given another one.

func TestRule01NeverASchemaNotSeen(t *testing.T)     { rule01(t, newMemoryWorld) }
func TestRule02ActivationIsReal(t *testing.T)        { rule02(t, newMemoryWorld) }
func TestRule03NamesInTextsAreCallable(t *testing.T) { rule03(t, newMemoryWorld) }
func TestRule04ListIsCacheFriendly(t *testing.T)     { rule04(t, newMemoryWorld) }
func TestRule05ChangedDefinition(t *testing.T)       { rule05(t, newMemoryWorld) }
func TestRule06ExposedNames(t *testing.T)            { rule06(t, newMemoryWorld) }
func TestRule07ExactNames(t *testing.T)              { rule07(t, newMemoryWorld) }
func TestRule08DoesNotDie(t *testing.T)              { rule08(t, newMemoryWorld) }
func TestRule09LegacyEra(t *testing.T)               { rule09(t, newMemoryWorld) }
func TestRule10PassesThrough(t *testing.T)           { rule10(t, newMemoryWorld) }
func TestRule11Instructions(t *testing.T)            { rule11(t, newMemoryWorld) }
func TestRule12ModeOnce(t *testing.T)                { rule12(t, newMemoryWorld) }
func TestRule13Permissions(t *testing.T)             { rule13(t, newMemoryWorld) }

// testRules runs them all in another world.
func testRules(t *testing.T, newWorld func(*testing.T) world) {
	for i, rule := range []func(*testing.T, func(*testing.T) world){
		rule01, rule02, rule03, rule04, rule05, rule06, rule07, rule08, rule09, rule10, rule11, rule12, rule13,
	} {
		t.Run(fmt.Sprintf("Rule%02d", i+1), func(t *testing.T) { rule(t, newWorld) })
	}
}

// in runs f in a world, and in a bubble where the world lets time be virtual.
func in(t *testing.T, name string, newWorld func(*testing.T) world, f func(*testing.T, world)) {
	t.Run(name, func(t *testing.T) {
		if w := newWorld(t); !w.Virtual() {
			t.Parallel() // such a world takes real seconds
			f(t, w)
			return
		}
		synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
	})
}

const (
	gerber = `{"name":"export_gerber","description":"Export gerber files","inputSchema":{"type":"object","properties":{"dir":{"type":"string"},"layers":{"type":"integer"}},"required":["dir"],"anyOf":[{"required":["dir"]}],"x-n":9007199254740993},"_meta":{"k":9007199254740993}}`
	drill  = `{"name":"export_drill","description":"Export drill files","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	create = `{"name":"create_project","description":"Create a project","inputSchema":{"type":"object"}}`
	waits  = `{"name":"wait_long","description":"Waits for ever","inputSchema":{"type":"object"}}`
	fails  = `{"name":"fail_always","description":"Fails","inputSchema":{"type":"object"}}`
	steps  = `{"name":"steps_two","description":"Shows progress","inputSchema":{"type":"object"}}`
)

const bareClient = "somebody" // of whom nothing is known

func rule01(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "tool_call shows first", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, "codex-mcp-client")
		r := a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"out"}}`)
		if !r.IsError || !strings.Contains(r.text(), `"x-n":9007199254740993`) {
			t.Errorf("want an error with the whole schema, got %s", r.text())
		}
		if calls := w.Calls(); len(calls) != 0 {
			t.Fatalf("the tool ran unseen: %q", calls)
		}
		if r = a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"out"}}`); r.IsError {
			t.Errorf("after its schema was shown it does not run: %s", r.text())
		}
		want(t, w.Calls(), `kicad::export_gerber {"dir":"out"}`)
	})
	in(t, "a direct call shows and activates first", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, bareClient, relisting)
		r := a.call("kicad_export_gerber", `{"dir":"out"}`)
		if !r.IsError || !strings.Contains(r.text(), `"required":["dir"]`) || len(w.Calls()) != 0 {
			t.Errorf("want the schema and no call, got %s and %q", r.text(), w.Calls())
		}
		if a.definition("kicad_export_gerber") == nil {
			t.Error("it was not activated")
		}
		if r = a.call("kicad_export_gerber", `{"dir":"out"}`); r.IsError {
			t.Errorf("the second call: %s", r.text())
		}
	})
	in(t, "arguments are checked first", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, "codex")
		a.search("gerber")
		r := a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"layers":"two"}}`)
		if !r.IsError || !strings.Contains(r.text(), "dir") || !strings.Contains(r.text(), "layers") || !strings.Contains(r.text(), `"inputSchema":`) {
			t.Errorf("want what is wrong and the schema, got %s", r.text())
		}
		if len(w.Calls()) != 0 {
			t.Errorf("it was sent: %q", w.Calls())
		}
	})
	in(t, "a list or an answer counts as seen", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, create)
		w.Pin("kicad::create_project")
		a := attach(t, w, bareClient)
		if r := a.call("kicad_create_project", `{}`); r.IsError {
			t.Errorf("a listed tool: %s", r.text())
		}
		a.search("gerber") // this client never lists again, so the schema is in the answer
		if r := a.call("tool_call", `{"name":"kicad_export_gerber","arguments":{"dir":"o"}}`); r.IsError {
			t.Errorf("a tool whose schema was in an answer: %s", r.text())
		}
	})
	in(t, "what was cancelled was not shown", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		a := attach(t, w, bareClient)
		// Both wait for a list that does not come, and would then hold the schema.
		for i, request := range []string{`{"name":"tool_search","arguments":{"query":"gerber"}}`, `{"name":"kicad_export_drill","arguments":{}}`} {
			id, _ := a.begin("tools/call", request)
			eventually(t, w, "the notification", func() bool { return a.notifications() == i+1 })
			a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		}
		for _, c := range []string{`{"tool_id":"kicad::export_gerber","arguments":{"dir":"o"}}`, `{"tool_id":"kicad::export_drill","arguments":{}}`} {
			if r := a.call("tool_call", c); !r.IsError || !strings.Contains(r.text(), `"inputSchema":`) {
				t.Errorf("it ran unseen: %s", r.text())
			}
			if r := a.call("tool_call", c); r.IsError {
				t.Errorf("it was shown now: %s", r.text())
			}
		}
	})
	in(t, "unknown tools", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, bareClient)
		for _, r := range []result{a.call("export_gerb", `{}`), a.call("tool_call", `{"tool_id":"kicad::export_gerb"}`)} {
			if !r.IsError || !strings.Contains(r.text(), "kicad::export_gerber") || !strings.Contains(r.text(), "tool_search") {
				t.Errorf("want what may have been meant and how to get at it, got %s", r.text())
			}
		}
	})
}

func rule02(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "a client that lists again", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		a := attach(t, w, "claude-code", relisting)
		before := time.Now()
		f := a.search("gerber")
		if took := time.Since(before); w.Virtual() && took != 100*time.Millisecond+time.Millisecond {
			t.Errorf("the answer came after %v, want 100ms after the re-list, which may be read a millisecond late", took)
		}
		if a.notifications() != 1 {
			t.Errorf("%d notifications for one search", a.notifications())
		}
		if got := a.definition("kicad_export_gerber"); !sameJSON(got, strings.Replace(gerber, "export_gerber", "kicad_export_gerber", 1)) {
			t.Errorf("it is listed as %s", got)
		}
		if f.Matches[0].InputSchema != nil || strings.Contains(f.Note, "tool_call") || !strings.Contains(f.Note, "kicad_export_gerber") {
			t.Errorf("the answer says more or less than is true: %+v", f)
		}
		if !strings.Contains(f.Note, "select:mcp__toolsd__kicad_export_gerber") {
			t.Errorf("Claude Code is not told how to load what it defers: %s", f.Note)
		}
		order(t, a, "list_changed", `"tools":[`, `"text":"{\"query\":`)
		before = time.Now()
		if a.search("gerber"); w.Virtual() && time.Since(before) != 0 || a.notifications() != 1 {
			t.Error("a search that activates nothing waits or notifies")
		}
	})
	in(t, "a client known not to", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, "codex-mcp-client")
		before := time.Now()
		f := a.search("gerber")
		if w.Virtual() && time.Since(before) != 0 {
			t.Errorf("it waits %v for nothing", time.Since(before))
		}
		if !sameJSON(f.Matches[0].InputSchema, inputSchema(t, gerber)) || !strings.Contains(f.Note, "tool_call") {
			t.Errorf("want the schema and tool_call, got %+v", f)
		}
		if strings.Contains(f.Note, "ToolSearch") {
			t.Errorf("it is told of a tool that it does not have: %s", f.Note)
		}
	})
	in(t, "a client that nothing is known of", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill, create)
		a := attach(t, w, bareClient)
		before := time.Now()
		f := a.search("gerber")
		if took := time.Since(before); w.Virtual() && took != time.Second {
			t.Errorf("it was observed for %v, want 1s", took)
		}
		if f.Matches[0].InputSchema == nil || !strings.Contains(f.Note, "tool_call") || a.notifications() != 1 {
			t.Errorf("no re-list followed: want a notification and the schema, got %+v", f)
		}
		before = time.Now()
		if f = a.search("drill"); w.Virtual() && time.Since(before) != 0 || f.Matches[0].InputSchema == nil {
			t.Errorf("once seen not to re-list it counts as such: %+v", f)
		}
		a.mu.Lock()
		a.relists = true
		a.mu.Unlock()
		// Where time is real the client may list before this answer is out.
		if f = a.search("project"); w.Virtual() && f.Matches[0].InputSchema == nil {
			t.Errorf("this answer was out before the client could list: %+v", f)
		}
		settleAll(w)
		w.Set("lab", steps)
		if f = a.search("progress"); f.Matches[0].InputSchema != nil || a.definition("lab_steps_two") == nil {
			t.Errorf("a client that has begun to re-list counts as one: %+v", f)
		}
	})
	in(t, "a definition for which a strict client drops its list", newWorld, func(t *testing.T, w world) {
		const odd = `{"name":"export_odd","description":"Export gerber oddly","inputSchema":{"anyOf":[{"required":["x-odd"]}]}}`
		w.Set("kicad", gerber, odd)
		for _, m := range []ipc.Mode{ipc.Search, ipc.Direct} {
			a := attach(t, w, "claude-code", relisting, mode(m))
			f := a.search("gerber")
			if a.definition("kicad_export_gerber") == nil || a.definition("kicad_export_odd") != nil {
				t.Errorf("%s: the list is %v", m, a.names())
			}
			for _, match := range f.Matches {
				if (match.InputSchema != nil) != (match.Name == "kicad_export_odd") {
					t.Errorf("%s: %s comes with the schema %s", m, match.Name, match.InputSchema)
				}
			}
			if f.Count != 2 || !strings.Contains(f.Note, "kicad::export_odd") || !strings.Contains(f.Note, "tool_call") {
				t.Errorf("%s: it is not said how it is reached: %+v", m, f)
			}
			if r := a.call("tool_call", `{"tool_id":"kicad::export_odd","arguments":{"x-odd":1}}`); r.IsError {
				t.Errorf("%s: it does not run: %s", m, r.text())
			}
			if m == ipc.Direct && a.notifications() != 0 {
				t.Errorf("%d notifications without a change", a.notifications())
			}
		}
		if a := attach(t, w, bareClient, mode(ipc.Direct)); a.definition("kicad_export_odd") == nil {
			t.Error("other clients do not get it")
		}
	})
	in(t, "a slow re-list", newWorld, func(t *testing.T, w world) {
		if !w.Virtual() {
			t.Skip("needs virtual time")
		}
		w.Set("kicad", gerber)
		a := attach(t, w, "gemini-cli-mcp-client-toolsd", relisting)
		a.delay = 700 * time.Millisecond
		before := time.Now()
		f := a.search("gerber")
		if took := time.Since(before); took != 800*time.Millisecond || f.Matches[0].InputSchema != nil {
			t.Errorf("after %v: %+v", took, f)
		}
	})
}

// settleAll lets a virtual world come to rest. A real one is given the time of
// a round trip through it, which is what a notification too many would take.
func settleAll(w world) {
	if w.Virtual() {
		synctest.Wait()
		return
	}
	for range 3 {
		if b, err := w.Connect(context.Background()); err == nil {
			_, _ = b.Categories(context.Background(), ipc.CategoriesRequest{})
		}
	}
}

// eventually waits until what the world does by itself has come true.
func eventually(t *testing.T, w world, what string, come func() bool) {
	t.Helper()
	settleAll(w)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	for !come() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("it never came: %s", what)
		}
	}
}

func rule03(t *testing.T, newWorld func(*testing.T) world) {
	for _, client := range []string{"claude-code", "codex-mcp-client", bareClient} {
		for _, m := range []ipc.Mode{ipc.Search, ipc.Direct} {
			for _, again := range []bool{true, false} {
				in(t, fmt.Sprintf("%s %s relists=%v", client, m, again), newWorld, func(t *testing.T, w world) {
					w.Set("kicad", gerber, drill, create)
					w.Set("lab", steps, fails, waits, `{"name":"odd.näme","description":"Odd","inputSchema":{}}`)
					w.Pin("kicad::create_project")
					options := []option{mode(m)}
					if again {
						options = append(options, relisting)
					}
					a := attach(t, w, client, options...)
					var texts []string
					say := func(r result) { texts = append(texts, r.text()) }
					var init struct{ Instructions string }
					if err := json.Unmarshal(a.init, &init); err != nil {
						t.Fatal(err)
					}
					texts = append(texts, init.Instructions)
					for _, d := range shim.FixedTools() {
						texts = append(texts, string(d))
					}
					for _, q := range []string{`{"query":"gerber"}`, `{"query":"export"}`, `{"query":"project"}`, `{"query":"odd"}`, `{"tool_id":"kicad::export_drill"}`, `{"query":"nothing like it"}`, `{"query":""}`, `{"tool_id":"kicad::export_gerb"}`, `{"tool_id":"nonsense"}`, `{}`, `{"query":3}`, `{"query":"a","tool_id":"b"}`, `{"query":"a","max_results":0}`} {
						say(a.call("tool_search", q))
					}
					for _, c := range []string{`{}`, `{"tool_id":"lab::fail_alway"}`, `{"tool_id":"zzz"}`, `{"tool_id":"lab::steps_two"}`, `{"name":"kicad_create_project"}`, `{"tool_id":"kicad::export_gerber","arguments":{"dir":1}}`, `{"tool_id":"kicad::export_drill","arguments":[]}`, `{"tool_id":"a","name":"b"}`, `{"tool_id":"lab::odd.näme"}`} {
						say(a.call("tool_call", c))
					}
					say(a.call("list_tool_categories", `{}`))
					for _, c := range []string{`{"category":"kicad"}`, `{"category":"lab"}`, `{"category":"labs"}`, `{}`} {
						say(a.call("get_category_tools", c))
					}
					say(a.call("lab_wait_lon", `{}`))
					say(a.call("lab_fail_alwayz", `{}`))
					callable(t, a, w, texts)
				})
			}
		}
	}
}

var (
	exposedLike = regexp.MustCompile(`\b(?:mcp__toolsd__)?(?:kicad|lab)_[A-Za-z0-9_]+`)
	idLike      = regexp.MustCompile(`\b(?:kicad|lab)::[\pL0-9_.]*[\pL0-9_]`)
	fixedLike   = regexp.MustCompile(`\b(?:tool|list|get)_[a-z_]+\b`)
)

// callable checks rule 3 on texts: a name under which a tool would be called
// must be listed or be answered by the server it names, or tool_search or
// tool_call must stand in the same text.
func callable(t *testing.T, a *agent, _ world, texts []string) {
	t.Helper()
	listed := a.names()
	checked := 0
	for _, text := range texts {
		reached := strings.Contains(text, "tool_search") || strings.Contains(text, "tool_call")
		for _, name := range exposedLike.FindAllString(text, -1) {
			checked++
			name = strings.TrimPrefix(name, "mcp__toolsd__")
			if slices.Contains(listed, name) || reached {
				continue
			}
			if r := a.call(name, `{"dir":"o"}`); r.IsError && strings.Contains(r.text(), "no tool") {
				t.Errorf("%s is not callable and no way to it is named in:\n%s", name, text)
			}
		}
		for _, id := range idLike.FindAllString(text, -1) {
			checked++
			if !reached && !slices.Contains(listed, exposed(a, id)) {
				t.Errorf("%s stands without the fixed tool that reaches it in:\n%s", id, text)
			}
		}
		for _, name := range fixedLike.FindAllString(text, -1) {
			if name == "tool_id" || name == "tool_lists" {
				continue
			}
			if checked++; !slices.Contains(shim.FixedNames(), name) {
				t.Errorf("there is no %s, named in:\n%s", name, text)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names were found in %d texts: the check is blind", checked, len(texts))
	}
}

// exposed is the name of a tool, as a search tells it.
func exposed(a *agent, id string) string {
	var f found
	if json.Unmarshal([]byte(a.call("tool_search", fmt.Sprintf(`{"tool_id":%q}`, id)).text()), &f) != nil || f.Count != 1 {
		return ""
	}
	return f.Matches[0].Name
}

func rule04(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "order and bytes", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill, create)
		w.Set("lab", steps, fails)
		w.Pin("lab::steps_two", "kicad::create_project")
		a := attach(t, w, "claude-code", relisting)
		want(t, a.names(), append(shim.FixedNames(), "lab_steps_two", "kicad_create_project")...)
		before := a.raw()
		a.search("drill")
		a.search("gerber export drill")
		want(t, a.names(), append(shim.FixedNames(), "lab_steps_two", "kicad_create_project", "kicad_export_drill", "kicad_export_gerber")...)
		for i, raw := range before {
			if !bytes.Equal(raw, a.raw()[i]) {
				t.Errorf("the bytes of entry %d changed from %s to %s", i, raw, a.raw()[i])
			}
		}
		n := a.notifications()
		w.Set("kicad", gerber, drill, create) // an upstream that came back
		w.Set("other", waits)
		settleAll(w)
		if a.notifications() != n {
			t.Error("a notification without a change of bytes")
		}
		w.Set("kicad", gerber, create)
		eventually(t, w, "a notification about the tool that left", func() bool { return a.notifications() > n })
		a.list()
		want(t, a.names(), append(shim.FixedNames(), "lab_steps_two", "kicad_create_project", "kicad_export_gerber")...)
		if got := a.notifications() - n; got != 1 {
			t.Errorf("%d notifications for a tool that left", got)
		}
	})
	in(t, "the fixed tools", newWorld, func(t *testing.T, w world) {
		a := attach(t, w, bareClient)
		total := 0
		for i, d := range shim.FixedTools() {
			if !bytes.Equal(d, a.raw()[i]) {
				t.Errorf("listed as %s, not as %s", a.raw()[i], d)
			}
			total += tool.EstimateTokens(d)
			var parsed struct {
				Meta        map[string]any  `json:"_meta"`
				Annotations map[string]bool `json:"-"`
			}
			if err := json.Unmarshal(d, &parsed); err != nil || parsed.Meta["anthropic/alwaysLoad"] != true || parsed.Meta["anthropic/searchHint"] == nil {
				t.Errorf("%s: %v", d, err)
			}
		}
		if total >= 900 {
			t.Errorf("the fixed tools weigh %d tokens, want under 900", total)
		}
		t.Logf("fixed tools: %d tokens of JSON, %d of name, description and schema", total, shim.FixedTokens())
	})
}

func (a *agent) raw() []json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.tools)
}

func rule05(t *testing.T, newWorld func(*testing.T) world) {
	changed := strings.Replace(gerber, "Export gerber files", "Export gerber files, new", 1)
	in(t, "a client that does not re-list", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber)
		a := attach(t, w, "codex")
		a.search("gerber")
		w.Set("kicad", changed)
		r := a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"o"}}`)
		if !r.IsError || !strings.Contains(r.text(), "changed") || !strings.Contains(r.text(), "gerber files, new") || len(w.Calls()) != 0 {
			t.Errorf("want the new definition instead of a call, got %s, %q", r.text(), w.Calls())
		}
		if r = a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"o"}}`); r.IsError {
			t.Errorf("then: %s", r.text())
		}
	})
	in(t, "a client that does", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		a := attach(t, w, "claude-code", relisting)
		a.search("export")
		n := a.notifications()
		w.Set("kicad", changed, drill)
		eventually(t, w, "a notification about the change", func() bool { return a.notifications() > n })
		a.list()
		if a.notifications() != n+1 {
			t.Errorf("%d notifications for one change", a.notifications()-n)
		}
		want(t, a.names()[4:], "kicad_export_gerber", "kicad_export_drill")
		if r := a.call("kicad_export_gerber", `{"dir":"o"}`); r.IsError {
			t.Errorf("the re-list counts as seen, yet: %s", r.text())
		}
	})
}

func rule06(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "names", newWorld, func(t *testing.T, w world) {
		w.Set("a server", `{"name":"weird.näme/x","inputSchema":{"type":"object"}}`, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, strings.Repeat("long_", 30)), `{"name":"a__b","inputSchema":{"type":"object"}}`)
		w.Set("tool", `{"name":"search","inputSchema":{"type":"object"}}`)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		names := a.names()
		if len(names) != 8 {
			t.Fatalf("listed are %q", names)
		}
		valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,50}$`)
		for i, n := range names {
			if !valid.MatchString(n) || strings.Contains(n, "__") || slices.Index(names, n) != i {
				t.Errorf("%q is no exposed name", n)
			}
		}
	})
}

func rule07(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "exact names", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill, create)
		a := attach(t, w, "codex")
		r := a.call("tool_search", `{"query":"kicad::export_gerber, kicad::create_project","max_results":5}`)
		for _, id := range []string{"kicad::export_gerber", "kicad::create_project"} {
			if !strings.Contains(r.text(), id) {
				t.Errorf("%s is missing in %s", id, r.text())
			}
		}
		one := a.call("tool_search", `{"tool_id":"kicad_create_project"}`)
		var f found
		if err := json.Unmarshal([]byte(one.text()), &f); err != nil || f.Count != 1 || f.Matches[0].ToolID != "kicad::create_project" {
			t.Errorf("by tool_id: %s", one.text())
		}
	})
	in(t, "max_results", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill, create)
		a := attach(t, w, "codex")
		for n, fits := range map[string]bool{"1": true, "2.0": true, `"3"`: true, "9223372036854775807": true, "1e30": true, "0": false, "-1": false, "1.5": false, `"five"`: false, "[]": false} {
			r := a.call("tool_search", `{"query":"export","max_results":`+n+`}`)
			if r.IsError == fits {
				t.Errorf("%s: %s", n, r.text())
			}
		}
	})
}

func rule08(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "the daemon crashes", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill, waits)
		a := attach(t, w, "claude-code", relisting)
		a.search("gerber drill waits")
		names, n := a.names(), a.notifications()
		_, pending := a.begin("tools/call", `{"name":"kicad_wait_long","arguments":{}}`)
		eventually(t, w, "the call at the server", func() bool { return len(w.Calls()) > 0 })
		w.Crash(false)
		r := a.result(<-pending)
		if !r.IsError || !strings.Contains(r.text(), "not known") {
			t.Errorf("a call in flight is answered with %s", r.text())
		}
		if r := a.call("kicad_export_gerber", `{"dir":"o"}`); r.IsError {
			t.Errorf("the next call: %s", r.text())
		}
		settleAll(w)
		if got := a.list(); !slices.Equal(got, names) || a.notifications() != n {
			t.Errorf("the list became %q with %d notifications", got, a.notifications()-n)
		}
		if got := len(slices.DeleteFunc(w.Calls(), func(c string) bool { return !strings.HasPrefix(c, "kicad::wait_long") })); got != 1 {
			t.Errorf("the call in flight was executed %d times", got)
		}
	})
	in(t, "no daemon", newWorld, func(t *testing.T, w world) {
		w.Crash(true)
		a := start(t, w)
		before := time.Now()
		a.initialize("claude-code")
		want(t, a.list(), shim.FixedNames()...)
		if took := time.Since(before); w.Virtual() && took > time.Second {
			t.Errorf("the handshake took %v", took)
		}
		for _, name := range shim.FixedNames() {
			r := a.call(name, `{"query":"x","tool_id":"","category":"c","name":"y"}`)
			if !r.IsError || !strings.Contains(r.text(), "toolsd start") {
				t.Errorf("%s says %s", name, r.text())
			}
		}
	})
	in(t, "stdin closes", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", waits)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		a.begin("tools/call", `{"name":"kicad_wait_long","arguments":{}}`)
		eventually(t, w, "the call at the server", func() bool { return len(w.Calls()) > 0 })
		before := time.Now()
		a.in.Close()
		if err := <-a.ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(before); w.Virtual() && took > 100*time.Millisecond {
			t.Errorf("Run took %v to return", took)
		}
		eventually(t, w, "the cancellation of the call", func() bool { return slices.Contains(w.Calls(), "cancelled kicad::wait_long") })
	})
}

func rule09(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "versions", newWorld, func(t *testing.T, w world) {
		for asked, given := range map[string]string{
			`"2024-11-05"`: "2024-11-05", `"2025-03-26"`: "2025-03-26", `"2025-06-18"`: "2025-06-18", `"2025-11-25"`: "2025-11-25",
			`"2026-07-28"`: "2025-11-25", `"2031-01-01"`: "2025-11-25", `""`: "2025-11-25", `null`: "2025-11-25", "": "2025-11-25",
		} {
			a := start(t, w)
			if r := a.request("server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`); r.Error == nil || r.Error.Code != -32601 {
				t.Errorf("server/discover: %+v", r)
			}
			version := `"protocolVersion":` + asked + `,`
			if asked == "" {
				version = ""
			}
			r := a.request("initialize", `{`+version+`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
			var init struct {
				ProtocolVersion string
				Capabilities    struct{ Tools struct{ ListChanged bool } }
				ServerInfo      struct{ Name, Version string }
			}
			if err := json.Unmarshal(r.Result, &init); err != nil || init.ProtocolVersion != given || !init.Capabilities.Tools.ListChanged || init.ServerInfo.Name != "toolsd" || init.ServerInfo.Version != "1.2.3" {
				t.Errorf("initialize %s: %s", asked, r.Result)
			}
		}
	})
	in(t, "params of the wrong kind", newWorld, func(t *testing.T, w world) {
		for _, params := range []string{`{"protocolVersion":5}`, `{"protocolVersion":"2025-06-18","clientInfo":"x"}`, `[]`, `"x"`} {
			a := start(t, w)
			if r := a.request("initialize", params); r.Error == nil || r.Error.Code != -32602 || strings.Contains(r.Error.Message, "Go struct") {
				t.Errorf("%s: %+v %s", params, r.Error, r.Result)
			}
			if r := a.request("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`); r.Error != nil {
				t.Errorf("after %s: %+v", params, r.Error)
			}
		}
	})
}

func rule10(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "results, errors and _meta", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, fails, steps)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		r := a.request("tools/call", `{"name":"kicad_export_gerber","arguments":{"dir":"a<b","layers":9007199254740993},"_meta":{"trace":9007199254740995}}`)
		if text := string(r.Result); !strings.Contains(text, `"type":"hologram"`) || !strings.Contains(text, `"n":9007199254740993`) || !strings.Contains(text, `"trace":9007199254740995`) {
			t.Errorf("the result is %s", text)
		}
		want(t, w.Calls(), `kicad::export_gerber {"dir":"a<b","layers":9007199254740993}`)
		for _, r := range []reply{
			a.request("tools/call", `{"name":"kicad_fail_always","arguments":{}}`),
		} {
			if r.Error == nil || r.Error.Code != -32042 || r.Error.Message != "URL elicitation required" || !sameJSON(r.Error.Data, `{"n":9007199254740993,"list":[1.0]}`) {
				t.Errorf("the error is %+v", r.Error)
			}
		}
	})
	in(t, "errors through tool_call", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", fails)
		a := attach(t, w, "codex")
		a.search("fails")
		r := a.request("tools/call", `{"name":"tool_call","arguments":{"tool_id":"kicad::fail_always"}}`)
		if r.Error == nil || r.Error.Code != -32042 || !strings.Contains(string(r.Error.Data), "9007199254740993") {
			t.Errorf("the error is %+v, %s", r.Error, r.Result)
		}
	})
	in(t, "progress", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", steps)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		for _, token := range []string{`"a token"`, `9007199254740993`, `""`, `0`} {
			a.request("tools/call", `{"name":"kicad_steps_two","arguments":{},"_meta":{"progressToken":`+token+`,"k":1}}`)
			n := 0
			for _, line := range a.transcript() {
				if strings.Contains(line, "notifications/progress") && strings.Contains(line, `"progressToken":`+token) {
					n++
				}
				if strings.Contains(line, "upstream-7") {
					t.Errorf("the server's own token comes through: %s", line)
				}
			}
			if n != 2 {
				t.Errorf("%d progress notifications with %s", n, token)
			}
		}
		last := a.transcript()
		if !strings.Contains(strings.Join(last, "\n"), `"progress":9007199254740993`) || !strings.Contains(last[len(last)-1], `"_meta":{"k":1}`) {
			t.Error("progress or _meta was rounded or lost")
		}
	})
	in(t, "ids and cancellation", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", waits)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		for _, id := range []string{`"an id"`, `90071992547409931234567890`, `-1`, `""`} {
			to := make(chan reply, 1)
			a.mu.Lock()
			a.waiting[id] = to
			a.mu.Unlock()
			a.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
			if r := <-to; string(r.ID) != id || r.Error != nil {
				t.Errorf("a ping with id %s came back as %s, %v", id, r.ID, r.Error)
			}
		}
		for i, id := range []string{`"cänc el"`, `90071992547409931234567890`} {
			a.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"kicad_wait_long"}}`)
			eventually(t, w, "the call at the server", func() bool { return len(w.Calls()) > 2*i })
			a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strings.Replace(id, "ä", `\u00e4`, 1) + `,"reason":"r"}}`)
			eventually(t, w, "its cancellation", func() bool { return len(w.Calls()) > 2*i+1 })
		}
		a.request("ping", `{}`)
		for _, line := range a.transcript() {
			if strings.Contains(line, "cänc el") || strings.Contains(line, `"id":90071992547409931234567890,"error"`) {
				t.Errorf("a cancelled request was answered: %s", line)
			}
		}
		want(t, w.Calls(), "kicad::wait_long {}", "cancelled kicad::wait_long", "kicad::wait_long {}", "cancelled kicad::wait_long")
	})
}

func rule11(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "in initialize", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		w.Set("lab", steps)
		a, b := attach(t, w, "claude-code"), attach(t, w, bareClient)
		var init struct{ Instructions string }
		if err := json.Unmarshal(a.init, &init); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"tool_search", "\n- kicad (2 tools)", "\n- lab (1 tool)"} {
			if !strings.Contains(init.Instructions, part) {
				t.Errorf("%q is missing in %q", part, init.Instructions)
			}
		}
		if !bytes.Equal(a.init, b.init) {
			t.Errorf("not the same bytes: %s and %s", a.init, b.init)
		}
	})
}

func rule12(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "direct", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		want(t, a.names(), append(shim.FixedNames(), "kicad_export_gerber", "kicad_export_drill")...)
		w.Crash(false)
		// A call that meets the end of the connection may have been lost with it.
		eventually(t, w, "a call through the next daemon", func() bool { return !a.call("kicad_export_gerber", `{"dir":"o"}`).IsError })
		want(t, a.list(), append(shim.FixedNames(), "kicad_export_gerber", "kicad_export_drill")...)
	})
	in(t, "search when no daemon answers in time", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		w.Crash(true)
		a := attach(t, w, bareClient)
		want(t, a.names(), shim.FixedNames()...)
		w.Crash(false)
		if f := a.search("gerber"); f.Count != 1 {
			t.Errorf("once there is a daemon: %+v", f)
		}
		want(t, a.list(), append(shim.FixedNames(), "kicad_export_gerber")...)
	})
}

func rule13(t *testing.T, newWorld func(*testing.T) world) {
	in(t, "tool_call is for what cannot be called by name", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", gerber, drill)
		a := attach(t, w, "claude-code", relisting)
		a.search("gerber drill")
		r := a.call("tool_call", `{"tool_id":"kicad::export_gerber","arguments":{"dir":"o"}}`)
		if !r.IsError || !strings.Contains(r.text(), "kicad_export_gerber") || len(w.Calls()) != 0 {
			t.Errorf("want its name instead of a call, got %s, %q", r.text(), w.Calls())
		}
		if r = a.call("tool_call", `{"tool_id":"kicad::export_drill"}`); r.IsError {
			t.Errorf("a read-only tool runs anyway: %s", r.text())
		}
	})
	in(t, "annotations", newWorld, func(t *testing.T, w world) {
		w.Set("kicad", drill)
		a := attach(t, w, bareClient, mode(ipc.Direct))
		for _, name := range a.names() {
			var d struct {
				Annotations map[string]any `json:"annotations"`
			}
			if err := json.Unmarshal(a.definition(name), &d); err != nil {
				t.Fatal(err)
			}
			readOnly := name != "tool_call"
			if d.Annotations["readOnlyHint"] != readOnly {
				t.Errorf("%s: %v", name, d.Annotations)
			}
			if !readOnly && (d.Annotations["destructiveHint"] != true || d.Annotations["openWorldHint"] != true) {
				t.Errorf("%s: %v", name, d.Annotations)
			}
		}
	})
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// order checks that lines that hold these parts came in this order.
func order(t *testing.T, a *agent, parts ...string) {
	t.Helper()
	lines := a.transcript()
	at := 0
	for _, p := range parts {
		for ; at < len(lines) && !strings.Contains(lines[at], p); at++ {
		}
		if p == "list_changed" {
			at++
		}
	}
	if at >= len(lines) {
		t.Errorf("not in the order %q:\n%s", parts, strings.Join(lines, "\n"))
	}
}

// sameJSON compares values; numbers by their spelling.
func sameJSON(a []byte, b string) bool {
	decode := func(raw []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return raw
		}
		return v
	}
	return cmp.Equal(decode(a), decode([]byte(b)))
}

func inputSchema(t *testing.T, definition string) string {
	t.Helper()
	var d struct {
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if err := json.Unmarshal([]byte(definition), &d); err != nil {
		t.Fatal(err)
	}
	return string(d.InputSchema)
}
