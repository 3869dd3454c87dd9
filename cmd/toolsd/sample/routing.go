package sample

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
)

func (e *editor) netTools() []Tool {
	net := text("net", "Name of the net, for example GND")
	type named struct{ Net string }
	return []Tool{
		define("add_net", changes, "Add a net without pins.", []property{net}, func(_ context.Context, a named, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				if _, there := p.Nets[a.Net]; there || a.Net == "" {
					return nil, fmt.Errorf("a net needs a name that no other one has, not %q", a.Net)
				}
				p.Nets[a.Net] = []string{}
				return "added " + a.Net, nil
			})
		}),
		define("connect_pins", changes, "Connect pins of components to a net, which is added when it is new.", []property{
			net, texts("pins", "Pins, for example R1.2"),
		}, func(_ context.Context, a struct {
			Net  string
			Pins []string
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				for _, pin := range a.Pins {
					if _, err := p.pin(pin); err != nil {
						return nil, err
					}
					for other, pins := range p.Nets {
						if other != a.Net && slices.Contains(pins, pin) {
							return nil, fmt.Errorf("%s is connected to %s already", pin, other)
						}
					}
					if !slices.Contains(p.Nets[a.Net], pin) {
						p.Nets[a.Net] = append(p.Nets[a.Net], pin)
					}
				}
				return fmt.Sprintf("%s connects %d pins", a.Net, len(p.Nets[a.Net])), nil
			})
		}),
		define("list_nets", reads, "List all nets with their pins.", nil, func(context.Context, struct{}, Progress) (any, error) {
			return e.view(func(p *project) (any, error) { return map[string]any{"nets": p.Nets}, nil })
		}),
		define("delete_net", destroys, "Delete a net with its traces, vias and zones.", []property{net}, func(_ context.Context, a named, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				if _, there := p.Nets[a.Net]; !there {
					return nil, fmt.Errorf("there is no net %q", a.Net)
				}
				delete(p.Nets, a.Net)
				p.Traces = slices.DeleteFunc(p.Traces, func(t trace) bool { return t.Net == a.Net })
				p.Holes = slices.DeleteFunc(p.Holes, func(h hole) bool { return h.Net == a.Net })
				p.Zones = slices.DeleteFunc(p.Zones, func(z zone) bool { return z.Net == a.Net })
				return "deleted " + a.Net, nil
			})
		}),
	}
}

func (e *editor) routingTools() []Tool {
	net := text("net", "Name of the net")
	x, y := number("x", "Millimetres from the left"), number("y", "Millimetres from below")
	layer := text("layer", "Copper layer").or("F.Cu")
	return []Tool{
		define("route_trace", changes, "Draw a straight trace of a net between two points.", []property{
			net, number("from_x", "Start"), number("from_y", "Start"), number("to_x", "End"), number("to_y", "End"),
			number("width", "Width in millimetres").or(0.25), layer,
		}, func(_ context.Context, a struct {
			Net   string
			FromX float64 `json:"from_x"`
			FromY float64 `json:"from_y"`
			ToX   float64 `json:"to_x"`
			ToY   float64 `json:"to_y"`
			Width float64
			Layer string
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				return p.route(a.Net, point{a.FromX, a.FromY}, point{a.ToX, a.ToY}, a.Width, a.Layer)
			})
		}),
		define("autoroute", changes, "Route all nets of the board with straight traces, one net after the other.", []property{
			number("width", "Width of the traces in millimetres").or(0.25), layer,
		}, e.autoroute),
		define("delete_trace", destroys, "Delete one trace.", []property{integer("id", "Number of the trace")}, func(_ context.Context, a struct{ ID int }, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				before := len(p.Traces)
				p.Traces = slices.DeleteFunc(p.Traces, func(t trace) bool { return t.ID == a.ID })
				if len(p.Traces) == before {
					return nil, fmt.Errorf("there is no trace %d", a.ID)
				}
				return fmt.Sprintf("deleted trace %d", a.ID), nil
			})
		}),
		define("list_traces", reads, "List the traces of the board, or of one net.", []property{net.optional()}, func(_ context.Context, a struct{ Net string }, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				found := []trace{}
				for _, t := range p.Traces {
					if a.Net == "" || t.Net == a.Net {
						found = append(found, t)
					}
				}
				return map[string]any{"traces": found}, nil
			})
		}),
		define("add_via", changes, "Drill a via that connects the layers of a net.", []property{
			net, x, y, number("diameter", "Drill diameter in millimetres").or(0.3),
		}, func(_ context.Context, a struct {
			Net            string
			X, Y, Diameter float64
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				if _, there := p.Nets[a.Net]; !there {
					return nil, fmt.Errorf("there is no net %q", a.Net)
				}
				return p.drill(a.Net, point{a.X, a.Y}, or(a.Diameter, 0.3))
			})
		}),
		define("add_mounting_hole", changes, "Drill a hole for a screw.", []property{
			x, y, number("diameter", "Diameter in millimetres").or(3.2),
		}, func(_ context.Context, a struct{ X, Y, Diameter float64 }, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) { return p.drill("", point{a.X, a.Y}, or(a.Diameter, 3.2)) })
		}),
		define("add_copper_zone", changes, "Fill a layer with the copper of a net, for example a ground plane.", []property{net, layer}, func(_ context.Context, a zone, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				if a.Layer == "" {
					a.Layer = "F.Cu"
				}
				if _, there := p.Nets[a.Net]; !there {
					return nil, fmt.Errorf("there is no net %q", a.Net)
				}
				p.Zones = append(p.Zones, a)
				return fmt.Sprintf("%s fills %s", a.Net, a.Layer), p.layer(a.Layer)
			})
		}),
	}
}

func or(v, fallback float64) float64 {
	if v == 0 {
		return fallback
	}
	return v
}

func (p *project) route(net string, from, to point, width float64, layer string) (trace, error) {
	if layer == "" {
		layer = "F.Cu"
	}
	t := trace{p.id(), net, layer, or(width, 0.25), from, to}
	p.Traces = append(p.Traces, t)
	if _, there := p.Nets[net]; !there {
		return t, fmt.Errorf("there is no net %q", net)
	}
	if err := p.inside(from); err != nil {
		return t, err
	}
	if err := p.inside(to); err != nil {
		return t, err
	}
	return t, p.layer(layer)
}

func (p *project) drill(net string, at point, diameter float64) (hole, error) {
	h := hole{p.id(), net, diameter, at}
	p.Holes = append(p.Holes, h)
	return h, p.inside(at)
}

func (e *editor) autoroute(ctx context.Context, a struct {
	Width float64
	Layer string
}, progress Progress) (any, error) {
	return e.change(func(p *project) (any, error) {
		nets := slices.Sorted(maps.Keys(p.Nets))
		made := 0
		for i, net := range nets {
			progress(i, len(nets), "routing "+net)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.Traces = slices.DeleteFunc(p.Traces, func(t trace) bool { return t.Net == net })
			pins := p.Nets[net]
			for j := 1; j < len(pins); j++ {
				from, err := p.pin(pins[j-1])
				if err != nil {
					return nil, err
				}
				to, err := p.pin(pins[j])
				if err != nil {
					return nil, err
				}
				corner := point{to.X, from.Y}
				for _, leg := range [][2]point{{from, corner}, {corner, to}} {
					if leg[0] == leg[1] {
						continue
					}
					if _, err := p.route(net, leg[0], leg[1], a.Width, a.Layer); err != nil {
						return nil, err
					}
					made++
				}
			}
		}
		progress(len(nets), len(nets), "done")
		return fmt.Sprintf("routed %d nets with %d traces", len(nets), made), nil
	})
}

func (e *editor) checkTools() []Tool {
	return []Tool{
		define("run_drc", reads, "Check the design rules: what lies beside the board, overlaps, or is too thin.", []property{
			number("min_width", "Least width of a trace in millimetres").or(0.15),
		}, func(_ context.Context, a struct {
			MinWidth float64 `json:"min_width"`
		}, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				violations := p.violations(or(a.MinWidth, 0.15))
				return map[string]any{"violations": violations, "passed": len(violations) == 0}, nil
			})
		}),
		define("check_unrouted", reads, "List nets that have pins but too few traces.", nil, func(context.Context, struct{}, Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				unrouted := []string{}
				for _, net := range slices.Sorted(maps.Keys(p.Nets)) {
					traces := 0
					for _, t := range p.Traces {
						if t.Net == net {
							traces++
						}
					}
					if traces < len(p.Nets[net])-1 && !slices.ContainsFunc(p.Zones, func(z zone) bool { return z.Net == net }) {
						unrouted = append(unrouted, net)
					}
				}
				return map[string]any{"unrouted": unrouted}, nil
			})
		}),
		define("measure_distance", reads, "Measure the distance between two components.", []property{
			text("from", "Reference of the one"), text("to", "Reference of the other"),
		}, func(_ context.Context, a struct{ From, To string }, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				from, err := p.component(a.From)
				if err != nil {
					return nil, err
				}
				to, err := p.component(a.To)
				if err != nil {
					return nil, err
				}
				return map[string]any{"millimetres": math.Hypot(from.At.X-to.At.X, from.At.Y-to.At.Y)}, nil
			})
		}),
	}
}

func (p *project) violations(minWidth float64) []string {
	out := []string{}
	all := p.sorted()
	for i, c := range all {
		for n, at := range c.pads() {
			if p.inside(at) != nil {
				out = append(out, fmt.Sprintf("pad %s.%d lies beside the board", c.Reference, n+1))
			}
		}
		for _, other := range all[i+1:] {
			a, errA := shapeOf(c.Footprint)
			b, errB := shapeOf(other.Footprint)
			if errA != nil || errB != nil || c.Side != other.Side {
				continue
			}
			// The bodies as upright boxes: rotation is a refinement nobody asked for.
			if math.Abs(c.At.X-other.At.X) < (a.Width+b.Width)/2 && math.Abs(c.At.Y-other.At.Y) < (a.Height+b.Height)/2 {
				out = append(out, fmt.Sprintf("%s and %s overlap", c.Reference, other.Reference))
			}
		}
	}
	for _, t := range p.Traces {
		if t.Width < minWidth {
			out = append(out, fmt.Sprintf("trace %d of %s is %g mm wide, less than %g", t.ID, t.Net, t.Width, minWidth))
		}
	}
	return out
}
