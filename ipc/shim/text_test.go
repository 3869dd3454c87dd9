package shim

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolsd/toolsd/ipc"
)

func TestInstructionsFit(t *testing.T) {
	for _, n := range []int{0, 1, 5, 12, 20, 44, 300} {
		for _, about := range []string{"", "short", strings.Repeat("what it is for, ", 40), strings.Repeat("ünïcödé ", 60)} {
			for _, mode := range []ipc.Mode{ipc.Search, ipc.Direct} {
				var servers []ipc.ServerBrief
				for i := range n {
					servers = append(servers, ipc.ServerBrief{Name: fmt.Sprintf("server-%03d", i), Tools: i, About: about})
				}
				text := instructions(servers, mode)
				if len(text) > 2048 || !utf8.ValidString(text) {
					t.Errorf("%d servers: %d bytes, valid %v", n, len(text), utf8.ValidString(text))
				}
				shown := strings.Count(text, "\n- server-")
				if shown < n && !strings.HasSuffix(text, fmt.Sprintf("\nand %d more", n-shown)) {
					t.Errorf("%d of %d servers and then %q", shown, n, text[max(0, len(text)-40):])
				}
				if shown == n && strings.Contains(text, "more") {
					t.Errorf("all of %d are there, and more", n)
				}
				if n > 0 && shown == 0 {
					t.Errorf("%d servers, none shown", n)
				}
				// With 12 servers all fit, if what is said of each is cut.
				if n <= 12 && shown != n {
					t.Errorf("%d of %d servers shown", shown, n)
				}
			}
		}
	}
}

func TestSentence(t *testing.T) {
	for in, want := range map[string]string{
		"the query is empty":       "The query is empty.",
		"`toolsd start` starts it": "`toolsd start` starts it.",
		"lab::echo is gone":        "lab::echo is gone.",
		"lab_echo is gone!":        "lab_echo is gone!",
		" is it? ":                 "Is it?",
		"":                         "",
		"ökonom":                   "ökonom.",
	} {
		if got := sentence(in); got != want {
			t.Errorf("sentence(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestProfiles(t *testing.T) {
	for client, want := range map[string]habit{
		"claude-code": relists, "Claude-Code": relists, "gemini-cli-mcp-client-toolsd-v1": relists, "codex-mcp-client": ignores,
		"Visual Studio Code - Insiders": relists, "Kiro": ignores, "kiro-cli": relists, "Roo Code": ignores, "cursor-vscode": unknown, "": unknown, "who": unknown,
	} {
		if got := profileOf(client).habit; got != want {
			t.Errorf("profileOf(%q) = %v, want %v", client, got, want)
		}
	}
	for _, p := range profiles {
		if p.settle == 0 {
			t.Errorf("%q does not settle: it may be seen to list again", p.prefix)
		}
	}
}
