package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/toolsd/toolsd/ipc"
)

// TestManPages makes the manual pages, into TOOLSD_MAN_DIR when .ci/release says
// where. It is a test because the generator needs the commands, which are in this
// package, and must not be linked into the program: what it imports costs every
// start.
func TestManPages(t *testing.T) {
	dir := os.Getenv("TOOLSD_MAN_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRoot(&app{getenv: func(string) string { return "" }})
	root.DisableAutoGenTag = true // the day of the build is not the page's
	header := &doc.GenManHeader{Title: "TOOLSD", Section: "1", Source: "toolsd " + ipc.Version(), Manual: "toolsd"}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch == "" {
		t.Setenv("SOURCE_DATE_EPOCH", "0")
	}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		page := readFile(t, filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if !strings.Contains(page, ".SH SYNOPSIS") || c != root && !strings.Contains(page, "SEE ALSO") {
			t.Errorf("the page of %s is not one:\n%.500s", c.CommandPath(), page)
		}
		if c.Example != "" && !strings.Contains(page, "EXAMPLE") {
			t.Errorf("the page of %s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)
}
