package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, nil},
		{"one two three", 8, []string{"one two", "three"}},
		{"a word-that-is-too-long stays", 10, []string{"a", "word-that-is-too-long", "stays"}},
		{"type `toolsd trust x` now", 16, []string{"type", "`toolsd trust x`", "now"}},
		{"(`a b`), then `c d`.", 8, []string{"(`a b`),", "then", "`c d`."}},
		{"it's a ` alone in the text", 8, []string{"it's a `", "alone in", "the text"}},
		{"run `a command that is longer than that`", 12, []string{"run `a", "command that", "is longer", "than that`"}},
		{"in PATH: /usr/bin:/bin:/opt/some/bin:/x", 16, []string{"in PATH:", "/usr/bin:/bin:", "/opt/some/bin:/x"}},
		{"see https://example.com/a/very/long/path", 16, []string{"see", "https://example.com/a/very/long/path"}},
	} {
		if diff := cmp.Diff(test.want, wrap(test.text, test.width)); diff != "" {
			t.Errorf("%q in %d (-want +got):\n%s", test.text, test.width, diff)
		}
	}
}

// On a terminal a hint, an error and a remark keep to its width, with what follows
// the first line under it; in a pipe each is one line.
func TestRemarksFitATerminal(t *testing.T) {
	text := strings.Repeat("`toolsd activate board::export` shows it, ", 4)
	for _, width := range []int{0, 60, 80} {
		var b bytes.Buffer
		a := &app{buffer: bufio.NewWriter(io.Discard), err: &screen{w: &b, terminal: width > 0, width: width}}
		a.hint("%s", text)
		a.say("%s", text)
		a.report(t.Context(), errors.New(text))
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if width == 0 && len(lines) != 4 { // an error has a hint of its own
			t.Errorf("%d lines in a pipe:\n%s", len(lines), b.String())
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); width > 0 && n > width {
				t.Errorf("%d characters in %d: %s", n, width, l)
			}
			if strings.Count(l, "`")%2 == 1 {
				t.Errorf("a command is torn apart: %s", l)
			}
		}
		if width > 0 && !strings.HasPrefix(lines[1], "      ") {
			t.Errorf("the second line of a hint is not under its first:\n%s", b.String())
		}
	}
}

// The help of every verb fits a terminal of 80 columns.
func TestHelpFitsATerminal(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		var help bytes.Buffer
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > 80 {
				t.Errorf("%s --help: %d characters: %s", c.CommandPath(), n, l)
			}
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden && c.Name() != "completion" { // those are cobra's own
				check(sub)
			}
		}
	}
	check(newRoot(&app{getenv: func(string) string { return "" }}))
}

// What to type about a server stands with its problem, and is not said again as
// the hint at the end.
func TestNoHintIsSaidTwice(t *testing.T) {
	for _, test := range []struct {
		server ipc.ServerInfo
		want   string
	}{
		{ipc.ServerInfo{Name: "s", State: ipc.StatePending, Problem: "waits for approval", Hint: "`toolsd trust s` shows it"}, "`toolsd search <words>` finds tools"},
		{ipc.ServerInfo{Name: "s", State: ipc.StateBackoff, Problem: "exit status 3", Hint: "`toolsd logs s` shows it"}, "`toolsd search <words>` finds tools"},
		{ipc.ServerInfo{Name: "s", State: ipc.StateBackoff, Problem: "exit status 3"}, "`toolsd restart s` tries again"},
	} {
		var b bytes.Buffer
		a := &app{buffer: bufio.NewWriter(io.Discard), err: &screen{w: &b}}
		status := &ipc.Status{Servers: []ipc.ServerInfo{test.server}, Totals: ipc.Totals{Tools: 3}}
		a.afterServers(t.Context(), nil, "", status)
		if got := b.String(); !strings.Contains(got, "hint: ") || !strings.Contains(got, test.want) || test.server.Hint != "" && strings.Count(got, "toolsd") != 2 {
			t.Errorf("%+v:\n%s", test.server, got)
		}
	}
}
