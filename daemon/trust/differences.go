package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/toolsd/toolsd/index/tool"
)

// maxDifferences is how many are told; a definition that was written anew is read
// as a whole.
const maxDifferences = 40

// Differences says how a definition differs from an earlier one, a line for each
// place, which is named by the keys that lead there. _meta does not count.
func Differences(before, now json.RawMessage) []string {
	var out []string
	differ("", decoded(before), decoded(now), func(format string, args ...any) {
		out = append(out, tool.CleanLine(fmt.Sprintf(format, args...)))
	})
	if more := len(out) - maxDifferences; more > 0 {
		out = append(out[:maxDifferences], fmt.Sprintf("and %d more", more))
	}
	return out
}

func decoded(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	_ = d.Decode(&v) // it was valid when it was listed
	if m, ok := v.(map[string]any); ok {
		delete(m, "_meta")
	}
	return v
}

func differ(path string, before, now any, say func(string, ...any)) {
	b, wasMap := before.(map[string]any)
	n, isMap := now.(map[string]any)
	if !wasMap || !isMap {
		if was, is := brief(before), brief(now); string(tool.Encode(before)) != string(tool.Encode(now)) {
			if was == is { // they differ behind the cut
				is = "different further on"
			}
			say("%s was %s, is %s", path, was, is)
		}
		return
	}
	all := maps.Clone(b)
	maps.Copy(all, n)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		place := k
		if path != "" {
			place = path + "." + k
		}
		was, there := b[k]
		is, still := n[k]
		switch {
		case !there:
			say("%s is new: %s", place, brief(is))
		case !still:
			say("%s is gone, was %s", place, brief(was))
		default:
			differ(place, was, is, say)
		}
	}
}

func brief(v any) string { return cut(string(tool.Encode(v))) }
