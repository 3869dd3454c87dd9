package sample

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// point is a place on the board, in millimetres from its lower left corner.
type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

type component struct {
	Reference string  `json:"reference"`
	Value     string  `json:"value"`
	Footprint string  `json:"footprint"`
	At        point   `json:"at"`
	Rotation  float64 `json:"rotation"`
	Side      string  `json:"side"` // top or bottom
}

type trace struct {
	ID    int     `json:"id"`
	Net   string  `json:"net"`
	Layer string  `json:"layer"`
	Width float64 `json:"width"`
	From  point   `json:"from"`
	To    point   `json:"to"`
}

type hole struct {
	ID       int     `json:"id"`
	Net      string  `json:"net,omitempty"` // a via has one
	Diameter float64 `json:"diameter"`
	At       point   `json:"at"`
}

type zone struct {
	Net   string `json:"net"`
	Layer string `json:"layer"`
}

type label struct {
	Text string `json:"text"`
	At   point  `json:"at"`
}

// project is a board with all that is on it.
type project struct {
	Name       string                `json:"name"`
	Width      float64               `json:"width_mm"`
	Height     float64               `json:"height_mm"`
	Layers     []string              `json:"layers"`
	Components map[string]*component `json:"components"`
	Nets       map[string][]string   `json:"nets"` // pins, as R1.2
	Traces     []trace               `json:"traces"`
	Holes      []hole                `json:"holes"`
	Zones      []zone                `json:"zones"`
	Labels     []label               `json:"labels"`
	LastID     int                   `json:"last_id"`
}

// editor is the state of one board server.
type editor struct {
	mu       sync.Mutex
	projects map[string]*project
	open     *project
	undo     [][]byte // the open project before each change, oldest first
}

// maxUndo bounds what is kept; a person goes back a few steps.
const maxUndo = 50

// footprint is a shape of the library: its pads around its middle, and its body.
type footprint struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Pads        []point `json:"pads"`
	Width       float64 `json:"width"`
	Height      float64 `json:"height"`
}

// library holds all footprints. Two rows of pads stand for packages with legs.
var library = []footprint{
	{"R_0603", "Resistor, 1.6 x 0.8 mm", pads(2, 1, 1.5, 0), 2.4, 1},
	{"R_0805", "Resistor, 2.0 x 1.25 mm", pads(2, 1, 1.9, 0), 3, 1.5},
	{"C_0603", "Ceramic capacitor, 1.6 x 0.8 mm", pads(2, 1, 1.5, 0), 2.4, 1},
	{"C_1206", "Ceramic capacitor, 3.2 x 1.6 mm", pads(2, 1, 3, 0), 4.4, 2},
	{"LED_0805", "Light emitting diode, 2.0 x 1.25 mm", pads(2, 1, 1.9, 0), 3, 1.5},
	{"SOT-23", "Transistor with three legs", []point{{-0.95, -1}, {0.95, -1}, {0, 1}}, 3, 3},
	{"SOIC-8", "Integrated circuit with eight legs", pads(4, 2, 1.27, 5.4), 5, 7},
	{"DIP-8", "Integrated circuit with eight legs through the board", pads(4, 2, 2.54, 7.62), 10, 10},
	{"PinHeader_1x04", "Header of four pins", pads(4, 1, 2.54, 0), 10.6, 2.6},
	{"USB_C", "USB-C receptacle, power only", pads(6, 1, 1, 0), 9, 7.4},
	{"Crystal_HC49", "Quartz crystal", pads(2, 1, 4.9, 0), 11, 4.6},
}

// pads are n pads in each of some rows.
func pads(n, rows int, pitch, gap float64) []point {
	var out []point
	for r := range rows {
		y := (float64(r) - float64(rows-1)/2) * gap
		for i := range n {
			out = append(out, point{(float64(i) - float64(n-1)/2) * pitch, y})
		}
	}
	return out
}

func shapeOf(name string) (footprint, error) {
	i := slices.IndexFunc(library, func(f footprint) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return footprint{}, fmt.Errorf("there is no footprint %q; list_footprints shows them", name)
	}
	return library[i], nil
}

// view runs f on the open project.
func (e *editor) view(f func(*project) (any, error)) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		return nil, fmt.Errorf("no project is open; create_project or open_project comes first")
	}
	result, err := f(e.open)
	switch result.(type) {
	case string, Result:
		return result, err
	}
	if err != nil {
		return nil, err
	}
	// Encoded here, since what it points to changes when the lock is gone.
	raw, err := json.Marshal(result)
	return json.RawMessage(raw), err
}

// change is view for what can be undone. A failed change leaves nothing behind.
func (e *editor) change(f func(*project) (any, error)) (any, error) {
	return e.view(func(p *project) (any, error) {
		before, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		result, err := f(p)
		if err != nil {
			*p = project{}
			if restoreErr := json.Unmarshal(before, p); restoreErr != nil {
				return nil, restoreErr
			}
			return nil, err
		}
		e.undo = append(e.undo, before)
		e.undo = e.undo[max(0, len(e.undo)-maxUndo):]
		return result, nil
	})
}

func (p *project) component(reference string) (*component, error) {
	if c := p.Components[reference]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("there is no component %q on the board", reference)
}

func (p *project) inside(at point) error {
	if at.X < 0 || at.Y < 0 || at.X > p.Width || at.Y > p.Height {
		return fmt.Errorf("(%g, %g) is not on the board of %g x %g mm", at.X, at.Y, p.Width, p.Height)
	}
	return nil
}

func (p *project) layer(name string) error {
	if !slices.Contains(p.Layers, name) {
		return fmt.Errorf("the board has no layer %q, only %s", name, strings.Join(p.Layers, ", "))
	}
	return nil
}

func (p *project) id() int {
	p.LastID++
	return p.LastID
}

// sorted are the components by reference.
func (p *project) sorted() []*component {
	out := []*component{}
	for _, reference := range slices.Sorted(maps.Keys(p.Components)) {
		out = append(out, p.Components[reference])
	}
	return out
}

// pin returns where a pin like R1.2 is.
func (p *project) pin(name string) (point, error) {
	reference, number, ok := strings.Cut(name, ".")
	c, err := p.component(reference)
	if !ok || err != nil {
		return point{}, fmt.Errorf("%q is no pin; pins are written R1.2, for components on the board", name)
	}
	places := c.pads()
	var n int
	if _, err := fmt.Sscanf(number, "%d", &n); err != nil || n < 1 || n > len(places) {
		return point{}, fmt.Errorf("%s has the pins 1 to %d", reference, len(places))
	}
	return places[n-1], nil
}

// pads are the places of a component's pads on the board.
func (c *component) pads() []point {
	shape, err := shapeOf(c.Footprint)
	if err != nil {
		return nil // placed components have a known footprint
	}
	sin, cos := math.Sincos(c.Rotation * math.Pi / 180)
	var out []point
	for _, o := range shape.Pads {
		if c.Side == "bottom" {
			o.X = -o.X
		}
		out = append(out, point{c.At.X + o.X*cos - o.Y*sin, c.At.Y + o.X*sin + o.Y*cos})
	}
	return out
}

// Board is the board editor, with no project at first.
func Board() *Server {
	e := &editor{projects: map[string]*project{}}
	return &Server{
		Name:         "board",
		Instructions: "An electronics board editor in memory: place components, connect and route them, check the rules, export for manufacture.",
		Tools: slices.Concat(
			e.projectTools(), e.componentTools(), e.libraryTools(), e.netTools(), e.routingTools(), e.checkTools(), e.exportTools(),
		),
	}
}

func (e *editor) projectTools() []Tool {
	name := []property{text("name", "Name of the project")}
	return []Tool{
		define("create_project", changes, "Create an empty board and open it.", []property{
			text("name", "Name of the project"), number("width_mm", "Width of the board in millimetres").min(1),
			number("height_mm", "Height of the board in millimetres").min(1), choice("layers", "Number of copper layers", "2", "4").or("2"),
		}, e.createProject),
		define("open_project", changes, "Open a project that was created before.", name, func(_ context.Context, a struct{ Name string }, _ Progress) (any, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			p := e.projects[a.Name]
			if p == nil {
				return nil, fmt.Errorf("there is no project %q", a.Name)
			}
			e.open, e.undo = p, nil
			return "opened " + a.Name, nil
		}),
		define("list_projects", reads, "List all projects.", nil, func(context.Context, struct{}, Progress) (any, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return map[string]any{"projects": append([]string{}, slices.Sorted(maps.Keys(e.projects))...)}, nil
		}),
		define("get_project_info", reads, "Summarize the open project: size, layers, and how much is on it.", nil, func(context.Context, struct{}, Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				return map[string]any{"name": p.Name, "width_mm": p.Width, "height_mm": p.Height, "layers": p.Layers,
					"components": len(p.Components), "nets": len(p.Nets), "traces": len(p.Traces), "holes": len(p.Holes)}, nil
			})
		}),
		define("delete_project", destroys, "Delete a project for good.", name, func(_ context.Context, a struct{ Name string }, _ Progress) (any, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			p := e.projects[a.Name]
			if p == nil {
				return nil, fmt.Errorf("there is no project %q", a.Name)
			}
			delete(e.projects, a.Name)
			if e.open == p {
				e.open, e.undo = nil, nil
			}
			return "deleted " + a.Name, nil
		}),
		define("undo_change", changes, "Take back the last change of the open project.", nil, func(context.Context, struct{}, Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				if len(e.undo) == 0 {
					return nil, fmt.Errorf("there is nothing to undo")
				}
				last := e.undo[len(e.undo)-1]
				e.undo = e.undo[:len(e.undo)-1]
				*p = project{}
				return "undone", json.Unmarshal(last, p)
			})
		}),
		define("set_board_size", changes, "Change the size of the board.", []property{
			number("width_mm", "Width in millimetres").min(1), number("height_mm", "Height in millimetres").min(1),
		}, func(_ context.Context, a struct {
			Width  float64 `json:"width_mm"`
			Height float64 `json:"height_mm"`
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				p.Width, p.Height = a.Width, a.Height
				return fmt.Sprintf("the board is %g x %g mm now", a.Width, a.Height), nil
			})
		}),
		define("add_board_text", changes, "Print a text on the silkscreen of the board.", []property{
			text("text", "What to print"), number("x", "Millimetres from the left"), number("y", "Millimetres from below"),
		}, func(_ context.Context, a struct {
			Text string
			X, Y float64
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				at := point{a.X, a.Y}
				p.Labels = append(p.Labels, label{a.Text, at})
				return fmt.Sprintf("printed %q", a.Text), p.inside(at)
			})
		}),
	}
}

func (e *editor) createProject(_ context.Context, a struct {
	Name   string
	Width  float64 `json:"width_mm"`
	Height float64 `json:"height_mm"`
	Layers string
}, _ Progress) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Name == "" || e.projects[a.Name] != nil {
		return nil, fmt.Errorf("a project needs a name that no other one has, not %q", a.Name)
	}
	layers := []string{"F.Cu", "B.Cu"}
	if a.Layers == "4" {
		layers = []string{"F.Cu", "In1.Cu", "In2.Cu", "B.Cu"}
	}
	p := &project{Name: a.Name, Width: a.Width, Height: a.Height, Layers: layers, Components: map[string]*component{}, Nets: map[string][]string{}}
	e.projects[a.Name], e.open, e.undo = p, p, nil
	return fmt.Sprintf("created %s: %g x %g mm, %d layers", p.Name, p.Width, p.Height, len(layers)), nil
}
