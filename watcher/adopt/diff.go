package adopt

import (
	"fmt"
	"slices"
	"strings"
)

// hunk says that a[a0:a1] became b[b0:b1].
type hunk struct{ a0, a1, b0, b1 int }

// maxEdits bounds the work and memory of a comparison, which grow with the square
// of the number of edits: 8 MB here. What differs more is one hunk.
const maxEdits = 1000

// changes compares two texts that were cut into units (Myers, after taking off
// what is equal at both ends).
func changes(a, b []string) []hunk {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	x, y := a[start:len(a)-end], b[start:len(b)-end]
	if len(x) == 0 && len(y) == 0 {
		return nil
	}
	hunks := myers(x, y)
	for i := range hunks {
		h := &hunks[i]
		h.a0, h.a1, h.b0, h.b1 = h.a0+start, h.a1+start, h.b0+start, h.b1+start
	}
	return hunks
}

func myers(a, b []string) []hunk {
	whole := []hunk{{0, len(a), 0, len(b)}}
	if len(a) == 0 || len(b) == 0 {
		return whole
	}
	limit := min(len(a)+len(b), maxEdits)
	// v[k+limit+1] is how far into a the best path on diagonal k = x-y is.
	v := make([]int, 2*limit+3)
	var trace [][]int
	found := -1
search:
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(v[limit+1-d:limit+2+d]))
		for k := -d; k <= d; k += 2 {
			x := 0
			if k == -d || k != d && v[limit+k] < v[limit+k+2] {
				x = v[limit+k+2]
			} else {
				x = v[limit+k] + 1
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			v[limit+1+k] = x
			if x >= len(a) && x-k >= len(b) {
				found = d
				break search
			}
		}
	}
	if found < 0 {
		return whole
	}
	var hunks []hunk
	x, y := len(a), len(b)
	for d := found; d > 0; d-- {
		at := func(k int) int { return trace[d][k+d] } // before round d
		k := x - y
		up := k == -d || k != d && reach(at, k-1, d) < reach(at, k+1, d)
		px := 0
		if up {
			px = reach(at, k+1, d)
		} else {
			px = reach(at, k-1, d)
		}
		py := px - (k + 1)
		if !up {
			py = px - (k - 1)
		}
		h := hunk{px, px, py, py + 1} // put in
		if !up {
			h = hunk{px, px + 1, py, py} // taken out
		}
		if n := len(hunks); n > 0 && hunks[n-1].a0 == h.a1 && hunks[n-1].b0 == h.b1 {
			hunks[n-1].a0, hunks[n-1].b0 = h.a0, h.b0
		} else {
			hunks = append(hunks, h)
		}
		x, y = px, py
	}
	slices.Reverse(hunks)
	return hunks
}

// reach is the furthest x on a diagonal; those outside were not reached.
func reach(at func(int) int, k, d int) int {
	if k < -d || k > d {
		return 0
	}
	return at(k)
}

// lines cuts a text behind its line breaks.
func lines(text string) []string {
	cut := strings.SplitAfter(text, "\n")
	if n := len(cut); cut[n-1] == "" {
		cut = cut[:n-1]
	}
	return cut
}

// around is how many unchanged lines a diff shows on both sides.
const around = 3

// unified writes the difference of two texts as diff -u does.
func unified(path, before, after string) string {
	a, b := lines(before), lines(after)
	hunks := changes(a, b)
	if len(hunks) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", path, path)
	put := func(sign byte, line string) {
		out.WriteByte(sign)
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	for i := 0; i < len(hunks); {
		j := i + 1
		for j < len(hunks) && hunks[j].a0-hunks[j-1].a1 <= 2*around {
			j++
		}
		first, last := hunks[i], hunks[j-1]
		lead := min(around, first.a0)
		tail := min(around, len(a)-last.a1)
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(first.a0-lead, last.a1+tail), span(first.b0-lead, last.b1+tail))
		at := first.a0 - lead
		for _, h := range hunks[i:j] {
			for ; at < h.a0; at++ {
				put(' ', a[at])
			}
			for ; at < h.a1; at++ {
				put('-', a[at])
			}
			for n := h.b0; n < h.b1; n++ {
				put('+', b[n])
			}
		}
		for ; at < last.a1+tail; at++ {
			put(' ', a[at])
		}
		i = j
	}
	return out.String()
}

func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
