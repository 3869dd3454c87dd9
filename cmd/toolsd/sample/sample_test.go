package sample

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"
)

// client is the other end of a server's pipes.
type client struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Scanner
	last int
}

func connect(t *testing.T, s *Server) *client {
	t.Helper()
	serverIn, clientOut := io.Pipe()
	clientIn, serverOut := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), serverIn, serverOut) }()
	t.Cleanup(func() {
		clientOut.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	out := bufio.NewScanner(clientIn)
	out.Buffer(nil, 1<<20)
	return &client{t: t, in: clientOut, out: out}
}

func (c *client) ask(method, params string) map[string]any {
	c.t.Helper()
	c.last++
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.last, method, params)
	return c.read()
}

func (c *client) read() map[string]any {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the server ended: %v", c.out.Err())
	}
	var m map[string]any
	if err := json.Unmarshal(c.out.Bytes(), &m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// call returns the text of a result, and whether it is an error.
func (c *client) call(tool, arguments string) (text string, isError bool) {
	c.t.Helper()
	m := c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	result, ok := m["result"].(map[string]any)
	if !ok {
		c.t.Fatalf("%s answered %v", tool, m)
	}
	for _, item := range result["content"].([]any) {
		s, _ := item.(map[string]any)["text"].(string)
		text += s
	}
	return text, result["isError"] == true
}

func TestProtocol(t *testing.T) {
	c := connect(t, Board())
	m := c.ask("initialize", `{"protocolVersion":"2025-03-26"}`)["result"].(map[string]any)
	if m["protocolVersion"] != "2025-03-26" {
		t.Errorf("initialize answers %v", m)
	}
	if m := c.ask("initialize", `{"protocolVersion":"1999-01-01"}`)["result"].(map[string]any); m["protocolVersion"] != "2025-11-25" {
		t.Errorf("an unknown version is answered with %v", m["protocolVersion"])
	}
	if m := c.ask("server/discover", `{}`)["error"].(map[string]any); m["code"] != float64(-32601) {
		t.Errorf("an unknown method is answered with %v", m)
	}
	if m := c.ask("tools/call", `{"name":"nothing"}`)["error"].(map[string]any); m["code"] != float64(-32602) {
		t.Errorf("an unknown tool is answered with %v", m)
	}
	fmt.Fprintln(c.in, "no JSON")
	if m := c.read()["error"].(map[string]any); m["code"] != float64(-32700) {
		t.Errorf("garbage is answered with %v", m)
	}
	if _, isError := c.call("create_project", `{"name":1}`); !isError {
		t.Error("arguments of a wrong type are no error")
	}
	tools := c.ask("tools/list", `{}`)["result"].(map[string]any)["tools"].([]any)
	if len(tools) < 40 {
		t.Errorf("%d tools", len(tools))
	}
	seen := map[any]bool{}
	for _, one := range tools {
		tool := one.(map[string]any)
		if seen[tool["name"]] || tool["description"] == "" || tool["inputSchema"].(map[string]any)["type"] != "object" {
			t.Errorf("tool %v", tool)
		}
		seen[tool["name"]] = true
	}
}

// TestBoard makes a board from nothing to the files for its manufacture.
func TestBoard(t *testing.T) {
	c := connect(t, Board())
	for _, step := range []struct {
		tool, arguments, want string
		fails                 bool
	}{
		{"list_components", `{}`, "no project is open", true},
		{"create_project", `{"name":"lamp","width_mm":30,"height_mm":20}`, "30 x 20 mm", false},
		{"create_project", `{"name":"lamp","width_mm":30,"height_mm":20}`, "no other one has", true},
		{"place_component", `{"reference":"R1","footprint":"R_0603","value":"330","x":5,"y":10}`, `"side":"top"`, false},
		{"place_component", `{"reference":"D1","footprint":"LED_0805","x":15,"y":10}`, "D1", false},
		{"place_component", `{"reference":"D2","footprint":"LED_9999","x":15,"y":10}`, "no footprint", true},
		{"place_component", `{"reference":"D2","footprint":"LED_0805","x":99,"y":10}`, "not on the board", true},
		{"list_components", `{}`, `"reference":"R1"`, false},
		{"duplicate_component", `{"reference":"R1","as":"R2"}`, "copy of R1", false},
		{"flip_component", `{"reference":"R2"}`, "bottom", false},
		{"undo_change", `{}`, "undone", false},
		{"get_component", `{"reference":"R2"}`, `"side":"top"`, false},
		{"set_component_value", `{"reference":"R2","value":"470"}`, "470", false},
		{"connect_pins", `{"net":"A","pins":["R1.2","D1.1"]}`, "2 pins", false},
		{"connect_pins", `{"net":"B","pins":["R1.2"]}`, "connected to A already", true},
		{"connect_pins", `{"net":"B","pins":["R1.9"]}`, "pins 1 to 2", true},
		{"check_unrouted", `{}`, `["A"]`, false},
		{"autoroute", `{}`, "routed 1 nets with 1 traces", false},
		{"check_unrouted", `{}`, `[]`, false},
		{"run_drc", `{}`, `"passed":true`, false},
		{"move_component", `{"reference":"R2","x":5.5,"y":10}`, "5.5", false},
		{"run_drc", `{}`, "R1 and R2 overlap", false},
		{"add_via", `{"net":"A","x":7,"y":7}`, `"diameter":0.3`, false},
		{"add_mounting_hole", `{"x":2,"y":2}`, `"diameter":3.2`, false},
		{"add_copper_zone", `{"net":"A","layer":"B.Cu"}`, "fills B.Cu", false},
		{"add_copper_zone", `{"net":"A","layer":"X.Cu"}`, "no layer", true},
		{"export_gerber", `{}`, "lamp-F_Cu.gbr", false},
		{"export_gerber", `{"layers":["In1.Cu"]}`, "no layer", true},
		{"export_bom", `{}`, "lamp-bom.csv", false},
		{"export_drill", `{}`, "lamp.drl", false},
		{"export_netlist", `{}`, "lamp.net", false},
		{"export_svg", `{}`, "lamp.svg", false},
		{"delete_component", `{"reference":"R1"}`, "deleted R1", false},
		{"list_nets", `{}`, `{"A":["D1.1"]}`, false},
		{"delete_net", `{"net":"A"}`, "deleted A", false},
		{"list_traces", `{}`, `"traces":[]`, false},
	} {
		text, isError := c.call(step.tool, step.arguments)
		if isError != step.fails || !strings.Contains(text, step.want) {
			t.Errorf("%s %s: %q (error: %v), want %q (error: %v)", step.tool, step.arguments, text, isError, step.want, step.fails)
		}
	}
}

// TestExportedFiles looks at the files, which stand in the structured content.
func TestExportedFiles(t *testing.T) {
	p := &project{Name: "p", Width: 10, Height: 5, Layers: []string{"F.Cu", "B.Cu"},
		Components: map[string]*component{"R1": {"R1", "1,5k", "R_0603", point{5, 2}, 90, "top"}},
		Traces:     []trace{{1, "A", "F.Cu", 0.25, point{1, 1}, point{2, 1}}}, Holes: []hole{{2, "A", 0.3, point{1, 1}}}}
	gerber := p.gerber("F.Cu")
	for _, want := range []string{"%FSLAX46Y46*%", "%ADD11C,0.250000*%", "X1000000Y1000000D02*\nX2000000Y1000000D01*", "X5000000Y1250000D03*", "M02*"} {
		if !strings.Contains(gerber, want) {
			t.Errorf("no %q in\n%s", want, gerber)
		}
	}
	if drill := p.excellon(); !strings.Contains(drill, "T1C0.300") || !strings.Contains(drill, "X1.000Y1.000") {
		t.Errorf("drill file\n%s", drill)
	}
	data, err := p.png(4)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil || img.Bounds().Dx() != 40 || img.Bounds().Dy() != 20 {
		t.Errorf("image %v, %v", img.Bounds(), err)
	}
	if _, err := p.png(1 << 20); err == nil {
		t.Error("an image of any size is made")
	}
}

// TestCancelAndProgress has a call report on itself and end when it is told to.
func TestCancelAndProgress(t *testing.T) {
	started := make(chan struct{})
	ended := make(chan struct{})
	c := connect(t, &Server{Name: "s", Tools: []Tool{{
		Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`),
		Run: func(ctx context.Context, _ json.RawMessage, progress Progress) (any, error) {
			progress(1, 2, "half")
			close(started)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		},
	}}})
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"wait","_meta":{"progressToken":7}}}`)
	if m := c.read(); m["method"] != "notifications/progress" || m["params"].(map[string]any)["progressToken"] != float64(7) {
		t.Errorf("progress is %v", m)
	}
	<-started
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
	<-ended
	if m := c.ask("ping", `{}`); m["id"] != float64(1) {
		t.Errorf("a cancelled call was answered: %v", m)
	}
}

func TestNotes(t *testing.T) {
	c := connect(t, Notes())
	for _, step := range []struct{ tool, arguments, want string }{
		{"add_note", `{"title":"Milk","text":"buy two","tags":["shop"]}`, `"id":1`},
		{"add_note", `{"title":"Bread","text":"rye"}`, `"tags":[]`},
		{"list_notes", `{"tag":"shop"}`, "Milk"},
		{"search_notes", `{"query":"RYE bread"}`, `"id":2`},
		{"delete_note", `{"id":1}`, "deleted note 1"},
		{"get_note", `{"id":1}`, "there is no note 1"},
		{"list_notes", `{}`, `"id":2`},
	} {
		if text, _ := c.call(step.tool, step.arguments); !strings.Contains(text, step.want) {
			t.Errorf("%s %s: %q, want %q", step.tool, step.arguments, text, step.want)
		}
	}
}
