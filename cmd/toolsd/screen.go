package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
)

// screen is an output stream: a terminal with a width and colours, or a pipe or
// file with neither. What is from a server or a config file is cleaned on the
// way, by everything here that takes text, so that no one else can paint on the
// user's terminal.
type screen struct {
	w        io.Writer
	terminal bool
	width    int // of the terminal; 0: unlimited
	colour   bool
}

func newScreen(w io.Writer, f *os.File) *screen {
	s := &screen{w: w, terminal: platform.IsTerminal(f)}
	if s.terminal {
		s.width = platform.TerminalWidth(f)
		s.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return s
}

// Styles of a terminal.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// style wraps text, which must be clean, in a style.
func (s *screen) style(style, text string) string {
	if !s.colour || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func clean(s string) string     { c, _ := tool.Clean(s); return c }
func cleanLine(s string) string { return tool.CleanLine(s) }

// line writes one line. Its arguments are clean or styled.
func (s *screen) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// bytes writes something as it is.
func (s *screen) bytes(b []byte) { _, _ = s.w.Write(b) }

// text writes what a server said: as it is into a pipe, clean to a terminal.
func (s *screen) text(text string) {
	if s.terminal {
		text = clean(text)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, _ = io.WriteString(s.w, text)
}

// paragraph writes text, wrapped and indented.
func (s *screen) paragraph(indent int, style, text string) {
	for _, l := range wrap(cleanLine(text), max(20, s.columns()-indent)) {
		s.line("%s%s", strings.Repeat(" ", indent), s.style(style, l))
	}
}

// columns is the width that text is laid out for.
func (s *screen) columns() int {
	if s.width == 0 {
		return 100 // a pipe has no width, but paragraphs are for reading
	}
	return s.width
}

// hanging writes text behind a head. On a terminal it is wrapped, with what follows
// the first line indented; a pipe gets one line, to be searched.
func (s *screen) hanging(head string, indent int, style, text string) {
	lines := []string{cleanLine(text)}
	if s.width > 0 {
		lines = wrap(lines[0], max(30, s.width-indent))
	}
	for i, l := range lines {
		if i > 0 {
			head = strings.Repeat(" ", indent)
		}
		s.line("%s%s", head, s.style(style, l))
	}
}

// wrap cuts text into lines of a width. What stands between backquotes is to be
// copied and stays on one line; so does any other word, but for a list of paths.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range words(text, width) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// words are the pieces of a text between which a line may end.
func words(text string, width int) []string {
	var out, quoted []string
	paired := strings.Count(text, "`")%2 == 0 // else they quote nothing
	for f := range strings.FieldsSeq(text) {
		odd := paired && strings.Count(f, "`")%2 == 1
		if len(quoted) == 0 && !odd {
			out = append(out, pathsIn(f, width)...)
			continue
		}
		closes := odd && len(quoted) > 0
		if quoted = append(quoted, f); !closes {
			continue
		}
		if whole := strings.Join(quoted, " "); utf8.RuneCountInString(whole) <= width {
			quoted = []string{whole}
		}
		out, quoted = append(out, quoted...), nil
	}
	return out
}

// pathsIn cuts a word that is a list of paths and too long for a line into pieces
// of which no two fit on one.
func pathsIn(word string, width int) []string {
	if utf8.RuneCountInString(word) <= width || !strings.Contains(word, ":/") || strings.Contains(word, "://") {
		return []string{word}
	}
	out := []string{""}
	for path := range strings.SplitAfterSeq(word, ":") {
		if last := len(out) - 1; out[last] == "" || utf8.RuneCountInString(out[last]+path) <= width {
			out[last] += path
		} else {
			out = append(out, path)
		}
	}
	return out
}

// cut shortens text to a number of characters, the mark of the cut among them.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	r := []rune(text)
	return strings.TrimRight(string(r[:width-1]), " ") + "…"
}

// cutPath is cut for a path, or several with commas between. What tells files of
// different clients apart stands at both ends of a path, and most at its end.
func cutPath(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	first, more := text, ""
	if paths := strings.Split(text, ", "); len(paths) > 1 && width > 16 {
		first, more = paths[0], fmt.Sprintf(" +%d", len(paths)-1)
	}
	r, room := []rune(first), width-utf8.RuneCountInString(more)
	if len(r) <= room {
		return first + more
	}
	head := (room - 1) / 3
	return string(r[:head]) + "…" + string(r[len(r)-(room-1-head):]) + more
}

// cell is a text of a table with its style.
type cell struct{ text, style string }

func plain(text string) cell              { return cell{text, ""} }
func plainf(format string, a ...any) cell { return cell{fmt.Sprintf(format, a...), ""} }

// table writes rows with aligned columns. Columns whose header ends with ">" are
// aligned to the right. The last column is cut at the edge of a terminal: at its
// end, or in its middle when its header ends with "<", as suits paths. Columns
// that are dispensable, named from the least needed on, are left out of a terminal
// on which a row would take two lines.
func (s *screen) table(header []string, rows [][]cell, dispensable ...string) {
	for _, name := range dispensable {
		i := slices.Index(header, name)
		if s.width == 0 || i < 0 || leftForLast(s.width, header, rows) >= roomForLast {
			continue
		}
		header = slices.Delete(slices.Clone(header), i, i+1)
		fewer := make([][]cell, len(rows))
		for j, row := range rows {
			fewer[j] = slices.Delete(slices.Clone(row), i, i+1)
		}
		rows = fewer
	}
	right := make([]bool, len(header))
	widths := make([]int, len(header))
	top := make([]cell, len(header))
	shorten := cut
	for i, h := range header {
		h, right[i] = strings.CutSuffix(h, ">")
		if path, ok := strings.CutSuffix(h, "<"); ok {
			h, shorten = path, cutPath
		}
		top[i] = cell{h, dim}
	}
	rows = append([][]cell{top}, rows...)
	for _, row := range rows {
		for i := range row {
			row[i].text = cleanLine(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		used := 0
		for i, c := range row {
			text := c.text
			last := i == len(row)-1
			if last && s.width > 0 {
				text = shorten(text, max(12, s.width-used))
			}
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text)))
			switch {
			case right[i]:
				b.WriteString(pad + s.style(c.style, text))
			case last:
				b.WriteString(s.style(c.style, text))
			default:
				b.WriteString(s.style(c.style, text) + pad)
			}
			if !last {
				b.WriteString("  ")
			}
			used += widths[i] + 2
		}
		s.line("%s", strings.TrimRight(b.String(), " "))
	}
}

// roomForLast is what the last column of a table is left at least, as long as
// other columns can go: a path cut to it still shows its file and its client.
const roomForLast = 24

// leftForLast is the width that the other columns leave for the last.
func leftForLast(width int, header []string, rows [][]cell) int {
	for i := range len(header) - 1 {
		widest := utf8.RuneCountInString(strings.TrimRight(header[i], "<>"))
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(cleanLine(row[i].text)))
		}
		width -= widest + 2
	}
	return width
}

// count writes a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

// thousands writes a number with commas, so that 291000 is not read as 29100.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n <= 0:
		return "-"
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// ago writes how long something has been so.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := time.Since(t); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// home writes a path with ~ for the home directory.
func home(path string) string {
	h, err := os.UserHomeDir()
	if err == nil && len(h) > 1 {
		if rest, ok := strings.CutPrefix(path, h+string(os.PathSeparator)); ok {
			return "~" + string(os.PathSeparator) + rest
		}
	}
	return path
}
