package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

func (e *editor) componentTools() []Tool {
	reference := text("reference", "Reference of the component, for example R1")
	type named struct{ Reference string }
	// edit changes one component that is on the board.
	edit := func(reference string, f func(p *project, c *component) (string, error)) (any, error) {
		return e.change(func(p *project) (any, error) {
			c, err := p.component(reference)
			if err != nil {
				return nil, err
			}
			return f(p, c)
		})
	}
	return []Tool{
		define("place_component", changes, "Place a component on the board.", []property{
			reference, text("footprint", "Footprint from the library, for example R_0603"), text("value", "Value, for example 10k").or(""),
			number("x", "Millimetres from the left"), number("y", "Millimetres from below"),
			number("rotation", "Degrees, against the clock").or(0), choice("side", "Side of the board", "top", "bottom").or("top"),
		}, func(_ context.Context, a struct {
			Reference, Footprint, Value, Side string
			X, Y, Rotation                    float64
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				shape, err := shapeOf(a.Footprint)
				if err != nil {
					return nil, err
				}
				if a.Reference == "" || strings.ContainsAny(a.Reference, ". ") || p.Components[a.Reference] != nil {
					return nil, fmt.Errorf("a component needs a reference of its own without dots and spaces, not %q", a.Reference)
				}
				if a.Side == "" {
					a.Side = "top"
				}
				c := &component{a.Reference, a.Value, shape.Name, point{a.X, a.Y}, a.Rotation, a.Side}
				p.Components[c.Reference] = c
				return c, p.inside(c.At)
			})
		}),
		define("move_component", changes, "Move a component to another place.", []property{
			reference, number("x", "Millimetres from the left"), number("y", "Millimetres from below"),
		}, func(_ context.Context, a struct {
			Reference string
			X, Y      float64
		}, _ Progress) (any, error) {
			return edit(a.Reference, func(p *project, c *component) (string, error) {
				c.At = point{a.X, a.Y}
				return fmt.Sprintf("%s is at (%g, %g) now", c.Reference, a.X, a.Y), p.inside(c.At)
			})
		}),
		define("rotate_component", changes, "Rotate a component by some degrees.", []property{
			reference, number("degrees", "Degrees, against the clock"),
		}, func(_ context.Context, a struct {
			Reference string
			Degrees   float64
		}, _ Progress) (any, error) {
			return edit(a.Reference, func(_ *project, c *component) (string, error) {
				c.Rotation += a.Degrees
				return fmt.Sprintf("%s is at %g degrees now", c.Reference, c.Rotation), nil
			})
		}),
		define("flip_component", changes, "Move a component to the other side of the board.", []property{reference}, func(_ context.Context, a named, _ Progress) (any, error) {
			return edit(a.Reference, func(_ *project, c *component) (string, error) {
				if c.Side == "top" {
					c.Side = "bottom"
				} else {
					c.Side = "top"
				}
				return c.Reference + " is on the " + c.Side + " now", nil
			})
		}),
		define("set_component_value", changes, "Change the value of a component.", []property{
			reference, text("value", "New value, for example 4k7"),
		}, func(_ context.Context, a struct{ Reference, Value string }, _ Progress) (any, error) {
			return edit(a.Reference, func(_ *project, c *component) (string, error) {
				c.Value = a.Value
				return c.Reference + " is " + a.Value + " now", nil
			})
		}),
		define("duplicate_component", changes, "Place a copy of a component beside it.", []property{
			reference, text("as", "Reference of the copy"),
		}, func(_ context.Context, a struct{ Reference, As string }, _ Progress) (any, error) {
			return edit(a.Reference, func(p *project, c *component) (string, error) {
				if a.As == "" || p.Components[a.As] != nil {
					return "", fmt.Errorf("the copy needs a reference of its own, not %q", a.As)
				}
				shape, err := shapeOf(c.Footprint)
				if err != nil {
					return "", err
				}
				other := *c
				other.Reference = a.As
				other.At.X += shape.Width + 0.5 // clear of the first one
				p.Components[a.As] = &other
				return a.As + " is a copy of " + c.Reference, p.inside(other.At)
			})
		}),
		define("align_components", changes, "Put several components on one line.", []property{
			texts("references", "References of the components; the first one stays"), choice("axis", "Which coordinate becomes the same", "x", "y"),
		}, func(_ context.Context, a struct {
			References []string
			Axis       string
		}, _ Progress) (any, error) {
			return e.change(func(p *project) (any, error) {
				if len(a.References) < 2 {
					return nil, fmt.Errorf("aligning takes two components or more")
				}
				first, err := p.component(a.References[0])
				if err != nil {
					return nil, err
				}
				for _, r := range a.References[1:] {
					c, err := p.component(r)
					if err != nil {
						return nil, err
					}
					if a.Axis == "x" {
						c.At.X = first.At.X
					} else {
						c.At.Y = first.At.Y
					}
				}
				return fmt.Sprintf("aligned %d components", len(a.References)), nil
			})
		}),
		define("get_component", reads, "Show one component and where its pads are.", []property{reference}, func(_ context.Context, a named, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				c, err := p.component(a.Reference)
				if err != nil {
					return nil, err
				}
				return map[string]any{"component": c, "pads": c.pads()}, nil
			})
		}),
		define("list_components", reads, "List the components on the board.", []property{
			choice("side", "Only this side", "top", "bottom").optional(),
		}, func(_ context.Context, a struct{ Side string }, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				all := slices.DeleteFunc(p.sorted(), func(c *component) bool { return a.Side != "" && c.Side != a.Side })
				return map[string]any{"components": all}, nil
			})
		}),
		define("delete_component", destroys, "Take a component off the board, and its pins out of all nets.", []property{reference}, func(_ context.Context, a named, _ Progress) (any, error) {
			return edit(a.Reference, func(p *project, c *component) (string, error) {
				delete(p.Components, c.Reference)
				for net, pins := range p.Nets {
					p.Nets[net] = slices.DeleteFunc(pins, func(pin string) bool { return strings.HasPrefix(pin, c.Reference+".") })
				}
				return "deleted " + c.Reference, nil
			})
		}),
	}
}

func (e *editor) libraryTools() []Tool {
	return []Tool{
		define("list_footprints", reads, "List all footprints of the library.", nil, func(context.Context, struct{}, Progress) (any, error) {
			return map[string]any{"footprints": library}, nil
		}),
		define("search_footprints", reads, "Find footprints by words of their name or description.", []property{
			text("query", "Words, for example capacitor 0603"),
		}, func(_ context.Context, a struct{ Query string }, _ Progress) (any, error) {
			found := []footprint{}
			for _, f := range library {
				in := strings.ToLower(f.Name + " " + f.Description)
				if !slices.ContainsFunc(strings.Fields(strings.ToLower(a.Query)), func(w string) bool { return !strings.Contains(in, w) }) {
					found = append(found, f)
				}
			}
			return map[string]any{"footprints": found}, nil
		}),
		define("get_footprint", reads, "Show one footprint: its pads and its size.", []property{
			text("name", "Name of the footprint"),
		}, func(_ context.Context, a struct{ Name string }, _ Progress) (any, error) {
			f, err := shapeOf(a.Name)
			if err != nil {
				return nil, err
			}
			return f, nil
		}),
	}
}
