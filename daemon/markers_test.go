package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// Words that occur nowhere but in one place of a server each, so that a text that
// holds one is known to come from there.
const (
	inName         = "quillfeather"
	inTitle        = "ivybridge"
	inDescription  = "brackenmoor"
	inParameter    = "gorsehollow"
	inParameterDoc = "larkspurdale"
	inEnum         = "hazelwick"
	inInstructions = "dunwhistle"
	inStderr       = "fennelgate"
	inCategory     = "mistlethwaite" // the first part of three tools' names
)

var markers = []string{inName, inTitle, inDescription, inParameter, inParameterDoc, inEnum, inInstructions, inStderr, inCategory}

// marked writes what a server says that has a marker in every field.
func (m *machine) marked(path string) {
	m.t.Helper()
	tools := []json.RawMessage{json.RawMessage(`{"name":"` + inName + `_gizmo","title":"The ` + inTitle + `","description":"Does ` + inDescription + ` things.","inputSchema":{"type":"object","properties":{"` +
		inParameter + `":{"type":"string","description":"how ` + inParameterDoc + `","enum":["` + inEnum + `"]}}}}`)}
	for _, what := range []string{"one", "two", "three"} {
		tools = append(tools, json.RawMessage(`{"name":"`+inCategory+`_`+what+`","description":"Part `+what+`.","inputSchema":{"type":"object"}}`))
	}
	m.write(path, faultserver.Words{
		Instructions: "Use it for " + inInstructions + ".", Stderr: inStderr + " is up\n", Tools: tools,
		Result: json.RawMessage(`{"content":[{"type":"text","text":"it ran"}]}`),
	})
}

// asked is one question and all that was answered.
type asked struct {
	what   string
	typed  string // by the caller, who may get it back
	answer string
}

// typed are spellings of the marked server, its tools, categories and words, as
// somebody types who guesses, or who remembers.
var typed = []string{
	"theirs", "theirs::", "theirs::x", "thiers", "theirs::" + inName + "_gizmo", "theirs." + inName + "_gizmo", "theirs/" + inName + "_gizmo",
	"theirs_" + inName + "_gizmo", inName + "_gizmo", strings.ToUpper(inName) + "_GIZMO", "theirs::quillfeathr_gizmo", "quilfeather_gizmo", "quillfeathr", "quillf", "quill feather",
	"gizmo", "gizmos", "braken moor", "brackenmor", "bracken", "brackenmoor things", "does things", "part one", "larkspurdal", "gorsehollw", "hazelwik", "ivybridg",
	"theirs/" + inCategory, inCategory, "mistlethwait", "mistle", "theirs/mistle", "dunwhistl", "fennelgat", "xx " + inCategory + "_one yy",
}

// ask asks all that can be asked in a directory, over the socket and as agents do.
func (r *running) ask(cwd string, agents ...*agent) []asked {
	r.m.t.Helper()
	ctx := r.m.t.Context()
	var out []asked
	note := func(what, typed string, answer any, err error) {
		text := string(ipc.Encode(answer))
		if err != nil {
			text = string(ipc.Encode(ipc.AsError(err)))
		}
		out = append(out, asked{what, typed, text})
	}
	c := r.client
	for _, q := range typed {
		for _, request := range []ipc.SearchRequest{{Query: q, Max: 50, Explain: true}, {Query: "part", Server: q}, {Query: "gizmo", Category: q}} {
			request.CWD = cwd
			result, err := c.Search(ctx, request)
			note(fmt.Sprintf("search %+v", request), q, result, err)
		}
		tools, err := c.Tools(ctx, ipc.ToolsRequest{Server: q, CWD: cwd})
		note("tools of server", q, tools, err)
		tools, err = c.Tools(ctx, ipc.ToolsRequest{Category: q, CWD: cwd})
		note("tools of category", q, tools, err)
		categories, err := c.Categories(ctx, ipc.CategoriesRequest{Name: q, CWD: cwd})
		note("category", q, categories, err)
		activation, err := c.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{q}, CWD: cwd})
		note("activate", q, activation, err)
		result, err := c.Call(ctx, ipc.CallRequest{ToolID: q, CWD: cwd, Arguments: json.RawMessage(`{"x":1}`)})
		note("call", q, result, err)
		why, err := c.Why(ctx, ipc.WhyRequest{Subject: q, CWD: cwd})
		note("why", q, why, err)
		log, err := c.Log(ctx, ipc.ServerRequest{Name: q, CWD: cwd, Lines: 1000})
		note("log", q, log, err)
	}
	for _, path := range []string{"status", "servers", "sessions", "tools", "categories"} {
		out = append(out, asked{"GET /v1/" + path, "", r.get("/v1/" + path + "?cwd=" + url.QueryEscape(cwd))})
	}
	out = append(out, asked{"metrics", "", r.get("/metrics")}, asked{"vars", "", r.get("/debug/vars")})
	for _, a := range agents {
		say := func(what, q, name string, arguments object) {
			text, _, err := a.tool(ctx, name, arguments)
			if err != nil {
				r.m.t.Fatal(err)
			}
			out = append(out, asked{"agent: " + what, q, text})
		}
		for _, q := range typed {
			say("tool_search", q, "tool_search", object{"query": q, "max_results": 50})
			say("tool_search by id", q, "tool_search", object{"tool_id": q})
			say("tool_call", q, "tool_call", object{"tool_id": q, "arguments": object{}})
			say("tool_call by name", q, "tool_call", object{"name": q, "arguments": object{}})
			say("a direct call", q, q, object{})
			say("get_category_tools", q, "get_category_tools", object{"category": q})
		}
		say("list_tool_categories", "", "list_tool_categories", object{})
		if err := a.list(ctx); err != nil {
			r.m.t.Fatal(err)
		}
		a.mu.Lock()
		out = append(out, asked{"agent: tools/list", "", string(a.listed)}, asked{"agent: what it heard unasked", "", a.heard.String()})
		a.mu.Unlock()
	}
	return out
}

// get reads a path of the socket.
func (r *running) get(path string) string {
	r.m.t.Helper()
	h := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return platform.Dial(ctx, r.m.dirs.Socket)
	}}}
	response, err := h.Get("http://toolsd" + path)
	if err != nil {
		r.m.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return string(data)
}

// leaks returns what of the marked server an answer holds, besides what the
// caller typed.
func (a asked) leaks() (found []string) {
	answer := strings.ToLower(a.answer)
	mine := []string{strings.ToLower(a.typed)}
	for _, s := range strings.Fields(strings.ToLower(a.typed)) {
		// A spelling of an id is split at its server.
		_, name, _ := strings.Cut(strings.NewReplacer("::", "/", ".", "/").Replace(s), "/")
		mine = append(mine, s, name)
	}
	// Longest first, so that no part of what was typed is left over; what holds no
	// whole marker must stay, because it may be the beginning of one.
	slices.SortFunc(mine, func(a, b string) int { return len(b) - len(a) })
	for _, s := range mine {
		if slices.ContainsFunc(markers, func(m string) bool { return strings.Contains(s, m) }) {
			answer = strings.ReplaceAll(answer, s, "…")
		}
	}
	for _, m := range markers {
		if strings.Contains(answer, m) {
			found = append(found, m)
		}
	}
	return found
}

// hiding is one row of TestMarkersOfHiddenServers at work.
type hiding struct {
	*running
	m     *machine
	words string // the file of what the server says
	cwd   string // of who asks
}

func (h *hiding) entry(more ...object) object { return fault("script="+h.words, more...) }

func (h *hiding) project(servers object) {
	h.m.write(h.m.project+"/.mcp.json", object{"mcpServers": servers})
}

// user writes the user's own file; every agent is in search mode.
func (h *hiding) user(servers object, more ...object) {
	all := object{"lab": fault("ok")}
	for k, v := range servers {
		all[k] = v
	}
	h.m.config(all, append([]object{{"toolSearch": object{"minPct": 0, "minTokens": 0}}}, more...)...)
}

// restart ends the daemon, does something, and starts another one.
func (h *hiding) restart(between func()) {
	h.m.t.Helper()
	if err := h.stop(); err != nil {
		h.m.t.Fatal(err)
	}
	if between != nil {
		between()
	}
	h.running = h.m.start()
}

func (h *hiding) revoke() {
	h.m.t.Helper()
	if _, err := h.client.Trust(h.m.t.Context(), ipc.TrustRequest{Action: ipc.TrustRevoke, Name: "theirs", CWD: h.m.project}); err != nil {
		h.m.t.Fatal(err)
	}
}

func (h *hiding) edit() { h.project(object{"theirs": h.entry(object{"env": object{"N": "2"}})}) }

func (h *hiding) untilPending() { h.m.t.Helper(); h.untilState("theirs", ipc.StatePending) }

func (h *hiding) untilGone() {
	h.m.t.Helper()
	h.until("it is gone", func() bool { return h.server("theirs").Name == "" })
}

// ways are all that takes a server out of sight. hide runs when the server is
// ready, its tools are indexed, and agents have used them.
var ways = []struct {
	name    string
	user    bool // the server stands in the user's own file
	fresh   bool // it is never approved
	visible bool // nothing is hidden: this checks the test itself
	held    bool // only its tools are, by trust.tools: their names show where a person decides
	long    bool // only when there is time: it is much like another row
	log     bool // the user allows the server, so its log can be read
	hide    func(*hiding)
}{
	{name: "visible", visible: true},
	{name: "visible in user scope", long: true, user: true, visible: true},
	{name: "never approved", fresh: true, hide: (*hiding).untilPending},
	{name: "never approved, restart", long: true, fresh: true, hide: func(h *hiding) { h.untilPending(); h.restart(nil); h.untilPending() }},
	{name: "edited", hide: func(h *hiding) { h.edit(); h.untilPending() }},
	{name: "edited, restart", hide: func(h *hiding) { h.edit(); h.untilPending(); h.restart(nil); h.untilPending() }},
	{name: "edited while no daemon runs", long: true, hide: func(h *hiding) { h.restart(h.edit); h.untilPending() }},
	{name: "revoked", hide: (*hiding).revoke},
	{name: "revoked, restart", hide: func(h *hiding) { h.revoke(); h.restart(nil); h.untilPending() }},
	{name: "revoked in user scope", long: true, user: true, hide: (*hiding).revoke},
	{name: "revoked, reindexed", long: true, hide: func(h *hiding) {
		h.revoke()
		h.restart(func() {
			if err := os.Remove(filepath.Join(h.m.dirs.Cache, "index.db")); err != nil {
				h.m.t.Fatal(err)
			}
		})
		h.untilPending()
	}},
	{name: "approvals lost", hide: func(h *hiding) {
		h.restart(func() { h.m.write(filepath.Join(h.m.dirs.State, "trust.json"), "nonsense") })
		h.untilPending()
	}},
	{name: "asked for in user scope", long: true, user: true, hide: func(h *hiding) {
		h.user(object{"theirs": h.entry()}, object{"trust": object{"userScope": "ask"}})
		h.untilPending()
		h.approve("lab", h.m.project)
	}},
	{name: "of another project", hide: func(h *hiding) {
		h.cwd = filepath.Join(h.m.home, "elsewhere")
		h.m.write(h.cwd+"/.mcp.json", object{"mcpServers": object{"mine": fault("ok", object{"env": object{"N": "3"}})}})
	}},
	{name: "of another project, restart", long: true, hide: func(h *hiding) { h.cwd = h.m.home; h.restart(nil) }},
	{name: "another project has one of that name", hide: func(h *hiding) {
		h.cwd = filepath.Join(h.m.home, "elsewhere")
		h.m.write(h.cwd+"/.mcp.json", object{"mcpServers": object{"theirs": fault("ok", object{"env": object{"N": "3"}})}})
		h.until("it is read", func() bool {
			l, err := h.client.Trust(h.m.t.Context(), ipc.TrustRequest{Name: "theirs", CWD: h.cwd})
			return err == nil && len(l.Servers) == 1
		})
		h.approve("theirs", h.cwd)
		h.until("it answers", func() bool {
			_, err := h.client.Call(h.m.t.Context(), ipc.CallRequest{ToolID: "theirs::echo", CWD: h.cwd})
			return err == nil
		})
	}},
	{name: "disabled", user: true, log: true, hide: func(h *hiding) {
		h.user(object{"theirs": h.entry(object{"disabled": true})})
		h.untilState("theirs", ipc.StateDisabled)
	}},
	{name: "disabled in the project", long: true, log: true, hide: func(h *hiding) {
		h.project(object{"theirs": h.entry(object{"disabled": true})})
		h.until("it is not ready", func() bool { return h.server("theirs").State != ipc.StateReady })
	}},
	{name: "removed", hide: func(h *hiding) { h.project(object{}); h.untilGone() }},
	{name: "removed in user scope", long: true, user: true, hide: func(h *hiding) { h.user(nil); h.untilGone() }},
	{name: "removed while no daemon runs", hide: func(h *hiding) { h.restart(func() { h.project(object{}) }); h.untilGone() }},
	{name: "filtered", user: true, log: true, hide: func(h *hiding) {
		h.user(object{"theirs": h.entry(object{"excludeTools": []string{"*"}})})
		h.until("the filter holds", func() bool { s := h.server("theirs"); return s.State == ipc.StateReady && s.Tools == 0 })
	}},
	{name: "held", user: true, held: true, hide: func(h *hiding) {
		// The server is approved, what it says now was not there then.
		h.m.marked(h.words)
		if err := rewrite(func(d []byte) []byte {
			return []byte(strings.NewReplacer(inInstructions, "plain", inStderr, "plain").Replace(string(d)))
		})(h.words); err != nil {
			h.m.t.Fatal(err)
		}
		if _, err := h.client.Restart(h.m.t.Context(), ipc.ServerRequest{Name: "theirs"}); err != nil {
			h.m.t.Fatal(err)
		}
		h.until("its tools are held", func() bool {
			l, err := h.client.Trust(h.m.t.Context(), ipc.TrustRequest{Name: "theirs"})
			return err == nil && len(l.Servers) == 1 && len(l.Servers[0].Held) == 4
		})
	}},
}

// TestMarkersOfHiddenServers has a server with a marker in every text of its own
// go through all that takes it out of sight. From then on no answer of any verb,
// to anybody, holds one of them.
func TestMarkersOfHiddenServers(t *testing.T) {
	manyProcesses(t)
	for _, way := range ways {
		if way.long && !long() {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			m := newMachine(t)
			h := &hiding{m: m, words: filepath.Join(m.home, "words.json"), cwd: m.project}
			m.marked(h.words)
			switch {
			case way.held:
				m.write(h.words, faultserver.Words{Instructions: "Plain.", Tools: []json.RawMessage{json.RawMessage(`{"name":"gizmo","inputSchema":{}}`)}})
				h.user(object{"theirs": h.entry()}, object{"trust": object{"tools": "hold"}})
			case way.user:
				h.user(object{"theirs": h.entry()})
			default:
				h.user(nil)
				h.project(object{"theirs": h.entry()})
			}
			h.running = m.start()
			h.untilState("lab", ipc.StateReady)
			var agents []*agent
			begin := func(cwd string) {
				for _, client := range []string{"claude-code", "codex-mcp-client"} { // one that lists again, one that does not
					a, err := h.agent(t.Context(), client, cwd)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(a.leave)
					agents = append(agents, a)
				}
			}
			if !way.fresh {
				if !way.user {
					h.untilPending()
					h.approve("theirs", m.project)
				}
				h.untilState("theirs", ipc.StateReady)
				begin(m.project)
				for _, a := range agents {
					if text, _, err := a.tool(t.Context(), "tool_search", object{"query": "gizmo"}); err != nil || strings.Contains(text, inName) == way.held {
						t.Fatalf("the agent did not find it: %s %v", text, err)
					}
				}
			}
			if way.hide != nil {
				way.hide(h)
			}
			h.untilState("lab", ipc.StateReady)
			if h.cwd != m.project {
				agents = nil // those see what is theirs
			}
			for _, a := range agents {
				h.until("the agent's list follows", func() bool {
					if err := a.list(t.Context()); err != nil {
						t.Fatal(err)
					}
					a.mu.Lock()
					defer a.mu.Unlock()
					return way.visible || !strings.Contains(strings.Join(a.tools, " "), inName)
				})
				a.mu.Lock()
				a.heard.Reset()
				a.mu.Unlock()
			}
			known := len(agents)
			begin(h.cwd)
			answers := h.ask(h.cwd, agents...)
			for _, a := range agents[known:] {
				answers = append(answers, asked{"agent: initialize", "", string(a.hello)})
			}
			l, err := h.client.Trust(t.Context(), ipc.TrustRequest{CWD: h.cwd})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, asked{"trust", "", string(ipc.Encode(l))})
			leaks, seen := 0, map[string]bool{}
			for _, a := range answers {
				found := a.leaks()
				for _, f := range found {
					seen[f] = true
				}
				if way.held && (a.what == "trust" || a.what == "why") {
					found = slices.DeleteFunc(found, func(f string) bool { return f == inName || f == inCategory })
				}
				if way.log && a.what == "log" {
					found = slices.DeleteFunc(found, func(f string) bool { return f == inStderr })
				}
				if len(found) == 0 || way.visible {
					continue
				}
				if leaks++; leaks < 5 {
					t.Errorf("%s %q tells %v: %.600s", a.what, a.typed, found, a.answer)
				}
			}
			if leaks >= 5 {
				t.Errorf("and %d more", leaks-4)
			}
			if way.visible && len(seen) != len(markers) {
				t.Errorf("of a visible server only %v show: the test proves nothing about the others", seen)
			}
		})
	}
}

// TestProblemsOfARepositoryQuoteNothing has mistakes in a repository's config file
// that hold text of its own: they are told with their place, not their words.
func TestProblemsOfARepositoryQuoteNothing(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	m.config(object{"lab": fault("ok"), "mine": object{"command": "x", "env": object{inEnum: []string{}}}, "j": fault("ok", object{"env": object{"N": "1"}})})
	file := m.project + "/.mcp.json"
	m.write(file, object{"mcpServers": object{
		"a": object{"command": true, inName: 1},
		"b": object{"command": "x", "type": inName, "timeout": inName, "env": object{inParameter: []string{inParameter}}},
		"c": object{"command": "${" + inName + "}", "args": []any{inName, 1, nil}},
		"d": object{"url": inName + "://x y", "headers": object{inName + " x": "${" + inName + "}"}},
		"e": object{"url": "http://x.invalid", "command": "y", "toolsd": object{inDescription: 1, "share": inName, "start": inName, "protocol": inName, "idle": inName}},
		"f": inName,
		"g": object{"command": inName + "\x00", "cwd": inName, "envFile": inName},
		"h": object{"url": "unix://" + inName},
		"j": fault("ok", object{"toolsd": object{inName: 1}}), // of the name of a server that runs
		"i": object{"command": "${input:" + inName + "}", "args": []string{"${nosuch:" + inName + "}"}},
	}, inName: 1})
	m.write(m.project+"/.vscode/mcp.json", `{"servers": {"v": {"command": "`+inName+`", "bad": `+inName+`}}}`)
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	r.until("the project is read", func() bool { return r.server("d").Name != "" })
	cwd := "?cwd=" + url.QueryEscape(m.project)
	answers := []asked{{"status", "", r.get("/v1/status" + cwd)}, {"servers", "", r.get("/v1/servers" + cwd)}}
	for _, name := range strings.Split("a b c d e f g h i v", " ") {
		for _, path := range []string{"why" + cwd + "&subject=", "log" + cwd + "&name=", "tools" + cwd + "&server="} {
			answers = append(answers, asked{path + name, "", r.get("/v1/" + path + name)})
		}
		_, err := r.call(name+"::x", "{}")
		answers = append(answers, asked{"call " + name, "", string(ipc.Encode(ipc.AsError(err)))})
	}
	for _, a := range answers {
		found := slices.DeleteFunc(a.leaks(), func(f string) bool { return f == inEnum })
		if len(found) > 0 {
			t.Errorf("%s tells %v: %.4000s", a.what, found, a.answer)
		}
	}
	for _, elsewhere := range []string{"", m.home} {
		if said := r.get("/v1/status?cwd=" + url.QueryEscape(elsewhere)); strings.Contains(said, m.project) {
			t.Errorf("from %q the project is seen: %s", elsewhere, said)
		}
	}
	var s ipc.Status
	if err := json.Unmarshal([]byte(answers[0].answer), &s); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Problems, func(p ipc.Problem) bool { return p.File == file && p.Line > 0 }) {
		t.Errorf("the mistakes are not told: %s", ipc.Encode(s.Problems))
	}
	if !strings.Contains(answers[0].answer, inEnum) {
		t.Errorf("those in the user's own file are told with their words: %s", ipc.Encode(s.Problems))
	}
}

// dirty holds characters of all classes that are hidden or that steer a terminal:
// C0, ESC, C1, bidi controls and isolates, zero width, tags.
const dirty = "d\x01\x07\x1b[31mi\u009b1m\u0085r\u202e\u2066t\u200b\ufeff\u2060y\U000E0041\U000E007F"

// hiddenIn returns the characters of those classes that a text holds. They are
// spelled out here, so that no mistake of the code that cleans is shared.
func hiddenIn(s string) (found []string) {
	for i, r := range s {
		if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x80 && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
			r == 0x200b || r == 0xfeff || r == 0x2060 || r >= 0xe0000 && r <= 0xe007f {
			found = append(found, fmt.Sprintf("U+%04X in %q", r, s[max(0, i-40):min(len(s), i+40)]))
		}
	}
	return found
}

// hiddenInJSON looks into every key and string of a document.
func hiddenInJSON(t testing.TB, doc []byte) (found []string) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			found = append(found, hiddenIn(v)...)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				found = append(found, hiddenIn(k)...)
				walk(e)
			}
		}
	}
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%v in %.300s", err, doc)
	}
	walk(v)
	return found
}

// TestHiddenCharactersInMetadata has them in everything that a server, a config
// file or an agent can put into words. None is in an answer, but results keep
// every byte.
func TestHiddenCharactersInMetadata(t *testing.T) {
	manyProcesses(t)
	m := newMachine(t)
	quoted := strings.TrimSpace(string(ipc.Encode(dirty)))
	words := filepath.Join(m.home, "words.json")
	result := `{"content":[{"type":"text","text":` + quoted + `}],"structuredContent":{` + quoted + `:1.50}}`
	m.write(words, faultserver.Words{
		Instructions: dirty, Stderr: dirty + " on stderr\n", Error: dirty + " as an error",
		Tools: []json.RawMessage{
			json.RawMessage(`{"name":"good","title":` + quoted + `,"description":` + quoted + `,"annotations":{"title":` + quoted + `},"inputSchema":{"type":"object","properties":{` + quoted +
				`:{"type":"string","description":` + quoted + `,"enum":[` + quoted + `]}}}}`),
			json.RawMessage(`{"name":"bad_call","inputSchema":{}}`),
			json.RawMessage(`{"name":` + string(ipc.Encode("named"+dirty)) + `,"inputSchema":{}}`),
		},
		Result: json.RawMessage(result),
	})
	m.config(object{
		"evil":         fault("script=" + words),
		"sly" + dirty:  fault("ok", object{"env": object{"N": "1"}}),
		"shout":        object{"command": "/bin/sh", "args": []string{"-c", `cat "$0" >&2; exit 3`, words}},
		"none":         object{"command": "no-such-" + dirty},
		"far":          object{"url": "http://127.0.0.1:9/" + dirty},
		"odd" + dirty:  object{"args": true},
		"needs" + "it": object{"command": "x", "args": []string{"${MISSING" + dirty + "}", "${" + dirty + "}"}},
	}, object{
		"categories": object{"cat": object{"description": dirty, "tools": []string{"evil::*"}}, "cat" + dirty: object{"description": dirty, "tools": []string{"evil::*"}}},
		dirty:        1, "toolSearch": object{"minPct": 0, "minTokens": 0, dirty: 2}, "trust": object{"tools": dirty},
	})
	m.write(filepath.Join(m.home, ".cursor", "mcp.json"), `{"mcpServers": {`+quoted+`: {"args": true, `+quoted+`: 1}, "c": {"command": {}}}, `+quoted+`: [], "x": `+dirty+`}`)
	m.write(m.project+"/.mcp.json", object{"mcpServers": object{
		"theirs":         object{"command": "./" + dirty, "args": []string{"-c", dirty}, "env": object{dirty: dirty}, "cwd": dirty},
		"theirs" + dirty: object{"url": "https://x.invalid/" + dirty, "headers": object{"X-" + dirty: dirty}},
		"theirs too":     object{"type": dirty, "command": true},
	}})
	r := m.start()
	r.untilState("evil", ipc.StateReady)
	r.until("the others failed", func() bool {
		return r.server("shout").Problem != "" && r.server("none").Problem != "" && r.server("far").Problem != ""
	})
	a, err := r.agent(t.Context(), "client "+dirty, m.project)
	if err != nil {
		t.Fatal(err)
	}
	defer a.leave()
	check := func(what string, doc []byte) {
		t.Helper()
		if found := hiddenInJSON(t, doc); len(found) > 0 {
			t.Errorf("%s: %s", what, strings.Join(found[:min(len(found), 4)], "; "))
		}
	}
	cwd := "?cwd=" + url.QueryEscape(m.project)
	status := r.get("/v1/status" + cwd)
	if !strings.Contains(status, "client dity") && !strings.Contains(status, "client d[31mi1mrty") {
		t.Errorf("the session is not in %s", status)
	}
	var names []string
	s, err := r.Status(t.Context(), ipc.StatusRequest{CWD: m.project})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range s.Servers {
		names = append(names, server.Name)
	}
	names = append(names, "evil::good", "evil::bad_call", "evil::named"+dirty, "sly"+dirty, dirty, "evil::"+dirty, dirty+"::x")
	for _, path := range []string{"status", "servers", "sessions", "tools", "categories", "trust"} {
		check(path, []byte(r.get("/v1/"+path+cwd)))
	}
	for _, n := range names {
		q := url.QueryEscape(n)
		for _, path := range []string{"why" + cwd + "&subject=", "log" + cwd + "&name=", "trust" + cwd + "&name=", "categories" + cwd + "&name=", "tools" + cwd + "&server=", "tools" + cwd + "&category="} {
			check(path+n, []byte(r.get("/v1/"+path+q)))
		}
		activated, err := r.client.Activate(t.Context(), ipc.ActivateRequest{ToolIDs: []string{n}, CWD: m.project})
		if check("activate "+n, ipc.Encode(activated)); err != nil {
			check("activate "+n, ipc.Encode(ipc.AsError(err)))
		}
		if n != "evil::bad_call" {
			if _, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: n, Arguments: json.RawMessage(`{` + quoted + `:1}`), CWD: m.project}); err != nil {
				check("call "+n, ipc.Encode(ipc.AsError(err)))
			}
		}
	}
	for _, q := range []string{"good", "bad call", "evil good dirty", "named", "cat", "mrt"} {
		found, err := r.client.Search(t.Context(), ipc.SearchRequest{Query: q, Max: 50, Explain: true, CWD: m.project})
		if err != nil {
			t.Fatal(err)
		}
		check("search "+q, ipc.Encode(found))
		text, _, err := a.tool(t.Context(), "tool_search", object{"query": q})
		if err != nil {
			t.Fatal(err)
		}
		check("tool_search "+q, []byte(text))
	}
	if err := a.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("initialize", a.hello)
	check("tools/list", a.listed)
	for _, name := range []string{"list_tool_categories", "get_category_tools"} {
		text, _, err := a.tool(t.Context(), name, object{"category": "cat"})
		if err != nil {
			t.Fatal(err)
		}
		check(name, ipc.Encode(text))
	}

	// Results are the server's, to the byte.
	raw, err := r.client.Call(t.Context(), ipc.CallRequest{ToolID: "evil::good"})
	if err != nil || string(raw) != result {
		t.Errorf("over the socket: %s %v, want %s", raw, err, result)
	}
	for range 2 { // the first only shows the definition
		got, err := a.ask(t.Context(), "tools/call", object{"name": "evil_good", "arguments": object{}})
		if err != nil {
			t.Fatal(err)
		}
		raw = got.Result
	}
	if string(raw) != result {
		t.Errorf("through the shim: %s, want %s", raw, result)
	}
	message := ""
	for range 2 {
		got, err := a.ask(t.Context(), "tools/call", object{"name": "evil_bad_call", "arguments": object{}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Error != nil {
			message = got.Error.Message
		}
	}
	if message != dirty+" as an error" {
		t.Errorf("the error of the server came through as %q", message)
	}
}
