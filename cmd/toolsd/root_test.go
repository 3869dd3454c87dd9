package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryVerbIsDocumented: a verb has a short text, an example that names it,
// and a check of its arguments.
func TestEveryVerbIsDocumented(t *testing.T) {
	a := &app{in: os.Stdin, getenv: os.Getenv}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			switch {
			case sub.Hidden, sub.Name() == "help", sub.Name() == "completion":
				continue // hidden, or cobra's own
			case sub.Short == "" || strings.HasSuffix(sub.Short, "."):
				t.Errorf("%s: the short text is %q", sub.CommandPath(), sub.Short)
			case sub.Runnable() && !strings.Contains(sub.Example, sub.CommandPath()):
				t.Errorf("%s has no example", sub.CommandPath())
			case sub.Runnable() && sub.Args == nil:
				t.Errorf("%s does not check its arguments", sub.CommandPath())
			}
			check(sub)
		}
	}
	check(newRoot(a))
}

// TestEveryVerbIsInAGroup keeps the help readable.
func TestEveryVerbIsInAGroup(t *testing.T) {
	for _, c := range newRoot(&app{in: os.Stdin, getenv: os.Getenv}).Commands() {
		if !c.Hidden && c.GroupID == "" {
			t.Errorf("%s is in no group", c.CommandPath())
		}
	}
}
