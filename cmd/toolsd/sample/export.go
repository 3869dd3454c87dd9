package sample

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"slices"
	"strings"
)

// file is a file for manufacture. It is returned, not written: the editor lives
// in memory and touches no disk.
type file struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// exported is a result that names the files as text and holds them as structure.
func exported(files ...file) Result {
	var lines []string
	for _, f := range files {
		lines = append(lines, fmt.Sprintf("%s, %d bytes", f.Name, len(f.Content)))
	}
	return Result{
		Content:    []Content{{Type: "text", Text: strings.Join(lines, "\n")}},
		Structured: map[string]any{"files": files},
	}
}

func (e *editor) exportTools() []Tool {
	// export makes a tool that writes the open project in one format.
	export := func(name, description string, write func(*project) ([]file, error)) Tool {
		return define(name, reads, description, nil, func(context.Context, struct{}, Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				files, err := write(p)
				return exported(files...), err
			})
		})
	}
	return []Tool{
		define("export_gerber", reads, "Export Gerber files (RS-274X) for the manufacture of the board: one per copper layer and the outline.", []property{
			texts("layers", "Only these copper layers").or([]string{}),
		}, func(_ context.Context, a struct{ Layers []string }, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				layers := a.Layers
				if len(layers) == 0 {
					layers = p.Layers
				}
				var files []file
				for _, l := range layers {
					if err := p.layer(l); err != nil {
						return nil, err
					}
					files = append(files, file{p.Name + "-" + strings.ReplaceAll(l, ".", "_") + ".gbr", p.gerber(l)})
				}
				return exported(append(files, file{p.Name + "-Edge_Cuts.gbr", p.gerberOutline()})...), nil
			})
		}),
		export("export_drill", "Export an Excellon drill file with all vias and holes.", func(p *project) ([]file, error) {
			return []file{{p.Name + ".drl", p.excellon()}}, nil
		}),
		export("export_bom", "Export the bill of materials as CSV, equal parts on one line.", func(p *project) ([]file, error) {
			groups := map[string][]string{}
			for _, c := range p.sorted() {
				key := csv(c.Value) + "," + csv(c.Footprint)
				groups[key] = append(groups[key], c.Reference)
			}
			b := "quantity,value,footprint,references\n"
			for _, key := range slices.Sorted(maps.Keys(groups)) {
				b += fmt.Sprintf("%d,%s,%s\n", len(groups[key]), key, csv(strings.Join(groups[key], " ")))
			}
			return []file{{p.Name + "-bom.csv", b}}, nil
		}),
		export("export_pick_and_place", "Export the places of all components as CSV for an assembly machine.", func(p *project) ([]file, error) {
			b := "reference,value,footprint,x,y,rotation,side\n"
			for _, c := range p.sorted() {
				b += fmt.Sprintf("%s,%s,%s,%.3f,%.3f,%g,%s\n", csv(c.Reference), csv(c.Value), csv(c.Footprint), c.At.X, c.At.Y, c.Rotation, c.Side)
			}
			return []file{{p.Name + "-pos.csv", b}}, nil
		}),
		export("export_netlist", "Export the netlist: each net with its pins.", func(p *project) ([]file, error) {
			var b strings.Builder
			for _, net := range slices.Sorted(maps.Keys(p.Nets)) {
				fmt.Fprintf(&b, "%s: %s\n", net, strings.Join(p.Nets[net], " "))
			}
			return []file{{p.Name + ".net", b.String()}}, nil
		}),
		export("export_svg", "Export a drawing of the board as SVG.", func(p *project) ([]file, error) {
			return []file{{p.Name + ".svg", p.svg()}}, nil
		}),
		define("render_board", reads, "Render the board as a PNG image.", []property{
			integer("pixels_per_mm", "Resolution").min(1).or(4),
		}, func(_ context.Context, a struct {
			Scale int `json:"pixels_per_mm"`
		}, _ Progress) (any, error) {
			return e.view(func(p *project) (any, error) {
				data, err := p.png(max(1, int(or(float64(a.Scale), 4))))
				if err != nil {
					return nil, err
				}
				return Result{Content: []Content{{Type: "image", Data: data, MIMEType: "image/png"}}}, nil
			})
		}),
	}
}

func csv(s string) string {
	if strings.ContainsAny(s, ",\"\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

// micro writes millimetres in the format 4.6 that the header declares.
func micro(mm float64) string { return fmt.Sprint(int(math.Round(mm * 1e6))) }

const gerberHead = "%FSLAX46Y46*%\n%MOMM*%\n"

// gerber is one copper layer in RS-274X (Ucamco's Gerber layer format): apertures,
// then traces as draws and pads as flashes.
func (p *project) gerber(layer string) string {
	var b strings.Builder
	b.WriteString("G04 " + p.Name + " " + layer + "*\n" + gerberHead)
	const pad = 10 // aperture numbers begin at 10
	b.WriteString("%ADD10R,1.000000X1.000000*%\n")
	apertures := map[float64]int{}
	for _, t := range p.Traces {
		if t.Layer == layer && apertures[t.Width] == 0 {
			apertures[t.Width] = pad + 1 + len(apertures)
			fmt.Fprintf(&b, "%%ADD%dC,%.6f*%%\n", apertures[t.Width], t.Width)
		}
	}
	for _, t := range p.Traces {
		if t.Layer == layer {
			fmt.Fprintf(&b, "D%d*\nX%sY%sD02*\nX%sY%sD01*\n", apertures[t.Width], micro(t.From.X), micro(t.From.Y), micro(t.To.X), micro(t.To.Y))
		}
	}
	side := map[string]string{"F.Cu": "top", "B.Cu": "bottom"}[layer]
	fmt.Fprintf(&b, "D%d*\n", pad)
	for _, c := range p.sorted() {
		if c.Side != side {
			continue
		}
		for _, at := range c.pads() {
			fmt.Fprintf(&b, "X%sY%sD03*\n", micro(at.X), micro(at.Y))
		}
	}
	for _, z := range p.Zones {
		if z.Layer == layer {
			b.WriteString("G36*\n" + p.edge() + "G37*\n")
		}
	}
	return b.String() + "M02*\n"
}

func (p *project) gerberOutline() string {
	return "G04 " + p.Name + " outline*\n" + gerberHead + "%ADD10C,0.100000*%\nD10*\n" + p.edge() + "M02*\n"
}

// edge draws the border of the board.
func (p *project) edge() string {
	var b strings.Builder
	for i, c := range []point{{0, 0}, {p.Width, 0}, {p.Width, p.Height}, {0, p.Height}, {0, 0}} {
		code := "D01"
		if i == 0 {
			code = "D02"
		}
		fmt.Fprintf(&b, "X%sY%s%s*\n", micro(c.X), micro(c.Y), code)
	}
	return b.String()
}

func (p *project) excellon() string {
	byDiameter := map[float64][]point{}
	for _, h := range p.Holes {
		byDiameter[h.Diameter] = append(byDiameter[h.Diameter], h.At)
	}
	diameters := slices.Sorted(maps.Keys(byDiameter))
	b := "M48\nMETRIC\n"
	for i, d := range diameters {
		b += fmt.Sprintf("T%dC%.3f\n", i+1, d)
	}
	b += "%\n"
	for i, d := range diameters {
		b += fmt.Sprintf("T%d\n", i+1)
		for _, at := range byDiameter[d] {
			b += fmt.Sprintf("X%.3fY%.3f\n", at.X, at.Y)
		}
	}
	return b + "M30\n"
}

func (p *project) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g">`+"\n", p.Width, p.Height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="darkgreen"/>`+"\n", p.Width, p.Height)
	for _, t := range p.Traces {
		fmt.Fprintf(&b, `<line x1="%g" y1="%g" x2="%g" y2="%g" stroke="orange" stroke-width="%g"/>`+"\n", t.From.X, p.Height-t.From.Y, t.To.X, p.Height-t.To.Y, t.Width)
	}
	for _, c := range p.sorted() {
		for _, at := range c.pads() {
			fmt.Fprintf(&b, `<circle cx="%.3f" cy="%.3f" r="0.5" fill="silver"/>`+"\n", at.X, p.Height-at.Y)
		}
	}
	return b.String() + "</svg>\n"
}

// maxPixels keeps a large board at a high resolution from filling the memory.
const maxPixels = 4 << 20

func (p *project) png(scale int) ([]byte, error) {
	width, height := int(p.Width*float64(scale)), int(p.Height*float64(scale))
	if width < 1 || height < 1 || width*height > maxPixels {
		return nil, fmt.Errorf("an image of %d x %d pixels is not between 1 and %d", width, height, maxPixels)
	}
	img := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{
		color.RGBA{0, 80, 40, 255}, color.RGBA{230, 150, 30, 255}, color.RGBA{210, 210, 210, 255},
	})
	dot := func(at point, size float64, index uint8) {
		half := max(0.5, size*float64(scale)/2)
		x, y := at.X*float64(scale), (p.Height-at.Y)*float64(scale)
		for i := int(x - half); i <= int(x+half); i++ {
			for j := int(y - half); j <= int(y+half); j++ {
				if image.Pt(i, j).In(img.Rect) {
					img.SetColorIndex(i, j, index)
				}
			}
		}
	}
	for _, t := range p.Traces {
		steps := 1 + int(math.Hypot(t.To.X-t.From.X, t.To.Y-t.From.Y)*float64(scale))
		for i := range steps + 1 {
			f := float64(i) / float64(steps)
			dot(point{t.From.X + f*(t.To.X-t.From.X), t.From.Y + f*(t.To.Y-t.From.Y)}, t.Width, 1)
		}
	}
	for _, c := range p.sorted() {
		for _, at := range c.pads() {
			dot(at, 1, 2)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("encoding the image: %w", err)
	}
	return b.Bytes(), nil
}
