package clientconfig

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// bigUserFile is Claude Code's user file after a year: history of many projects,
// long texts with escapes, and a few servers at the end.
func bigUserFile(size int) []byte {
	var b bytes.Buffer
	b.WriteString("{\n  \"numStartups\": 214,\n  \"projects\": {\n")
	paste := strings.Repeat(`if (x < 3) {\n\treturn \"é\";\n}\n`, 40)
	for p := 0; b.Len() < size; p++ {
		fmt.Fprintf(&b, "    \"/home/mira/code/p%d\": {\n      \"allowedTools\": [],\n      \"history\": [\n", p)
		for h := range 100 {
			if h > 0 {
				b.WriteString(",\n")
			}
			fmt.Fprintf(&b, `        { "display": "fix test %d", "pastedContents": { "1": { "id": 1, "type": "text", "content": "%s" } } }`, h, paste)
		}
		fmt.Fprintf(&b, "\n      ],\n      \"mcpServers\": { \"db%d\": { \"command\": \"uvx\", \"args\": [\"pg\"] } },\n      \"disabledMcpjsonServers\": [\"x\"],\n      \"lastCost\": 1.42\n    },\n", p)
	}
	b.WriteString("    \"/last\": {}\n  },\n  \"mcpServers\": {\n    \"notes\": { \"command\": \"npx\", \"args\": [\"-y\", \"notes\"] }\n  }\n}\n")
	return b.Bytes()
}

func BenchmarkUserFile30MB(b *testing.B) {
	data := bigUserFile(30 << 20)
	loc := Location{Client: "claude-code", Scope: User, Path: ".claude.json", Settings: true}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		servers, problems, err := Decode(loc, data)
		if err != nil || len(problems) > 0 || len(servers) < 50 {
			b.Fatal(len(servers), problems, err)
		}
	}
}

// The same on one line, as Claude Code writes it at times.
func BenchmarkUserFile30MBOneLine(b *testing.B) {
	data := bytes.ReplaceAll(bigUserFile(30<<20), []byte("\n"), nil)
	loc := Location{Client: "claude-code", Scope: User, Path: ".claude.json", Settings: true}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, _, err := Decode(loc, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSmallFile(b *testing.B) {
	data := []byte(`{"mcpServers":{"a":{"command":"npx","args":["-y","p"],"env":{"K":"${V}"}},"b":{"url":"https://e.example"}}}`)
	loc := Location{Client: "cursor", Scope: User, Path: "mcp.json"}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(loc, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExpand(b *testing.B) {
	s := Server{Command: "npx", Args: []string{"-y", "${A:-${B:-c}}"}, Env: map[string]string{"K": "${TOKEN}"}, Source: Source{Client: "claude-code"}}
	x := testExpansion("/w/api")
	b.ReportAllocs()
	for b.Loop() {
		Expand(s, x)
	}
}
