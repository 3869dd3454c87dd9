package settings

import (
	"fmt"
	"slices"
	"strings"
)

// unknown is the message for a name that no table knows.
func unknown(name string, known []string) string {
	return fmt.Sprintf("unknown key %q%s", name, didYouMean(name, known))
}

// didYouMean is " (did you mean X?)" for the nearest of the known names, or
// nothing when none is near.
func didYouMean(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// nearest returns the known name that a typing mistake turned into name: it
// differs in at most a third of its letters, two at least, or is name in other
// case or without its group.
func nearest(name string, known []string) string {
	folded := strings.ToLower(name)
	best, bestDistance := "", 1+max(2, len(folded)/3)
	for _, k := range known {
		for _, form := range []string{k, k[strings.LastIndexByte(k, '.')+1:]} {
			if d := distance(folded, strings.ToLower(form)); d < bestDistance && d < len(form) {
				best, bestDistance = k, d
			}
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that make b of a.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 { // no known name is that long
		return len(a) + len(b)
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// topNames are the names that may stand at the top of a file.
func topNames() []string {
	var names []string
	for _, k := range keys {
		top, _, _ := strings.Cut(k.name, ".")
		if !slices.Contains(names, top) {
			names = append(names, top)
		}
	}
	return append(names, notSettings...)
}

// suggestions are what a mistyped name is compared with: the names at the top and
// every dotted key.
func suggestions() []string {
	names := []string{"mcpServers"}
	for _, n := range topNames() {
		if !slices.Contains(notSettings, n) {
			names = append(names, n)
		}
	}
	for _, k := range keys {
		if strings.Contains(k.name, ".") {
			names = append(names, k.name)
		}
	}
	return names
}
