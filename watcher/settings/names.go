package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
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

func nearest(name string, known []string) string {
	for _, best := range tool.Nearest(name, known, 1) {
		return best
	}
	return ""
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
