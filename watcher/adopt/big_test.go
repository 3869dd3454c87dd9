package adopt

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkLargeFile adopts and releases a Claude Code file of 24 MB, as people
// have who have used it for a year; it was edited in between.
func BenchmarkLargeFile(b *testing.B) {
	var projects strings.Builder
	for i := range 300 {
		fmt.Fprintf(&projects, "    \"/home/mira/p%d\": {\n      \"history\": [\n", i)
		for j := range 300 {
			fmt.Fprintf(&projects, "        {\n          \"display\": \"%s\",\n          \"n\": %d\n        },\n", strings.Repeat("Fix: it! ", 22), j)
		}
		projects.WriteString("        {}\n      ]\n    },\n")
	}
	text := "{\n  \"projects\": {\n" + projects.String() + "    \"/w\": {}\n  },\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\",\n      \"alwaysLoad\": true\n    }\n  }\n}\n"
	edited := "{\n  \"numStartups\": 9,\n  \"projects\": {\n" + strings.ReplaceAll(projects.String(), "\"n\": 7\n", "\"n\": 8\n") + "    \"/w\": {}\n  },"
	for b.Loop() {
		m := newMachine(b)
		m.write(".claude.json", text)
		m.adopt("claude-code")
		adopted := m.text(".claude.json")
		_, tail, _ := strings.Cut(adopted, "\n    \"/w\": {}\n  },")
		m.write(".claude.json", edited+tail)
		m.release("claude-code")
		if got := m.text(".claude.json"); !strings.HasSuffix(got, "\"alwaysLoad\": true\n    }\n  }\n}\n") || strings.Contains(got, "toolsd") {
			b.Fatal(got[len(got)-300:])
		}
	}
}
