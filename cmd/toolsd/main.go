// Command toolsd keeps the MCP servers of all agents on this machine running
// once, and their tools searchable. Each verb is in the file of its name; app.go
// has what they share, connect.go how they reach the daemon.
package main

import (
	"fmt"
	"os"

	"github.com/toolsd/toolsd/daemon"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/platform"
)

func main() {
	// These two run as children of the daemon and come before all else, which
	// they do not need.
	if len(os.Args) == 2 && os.Args[1] == daemon.KeeperVerb {
		os.Exit(platform.KeeperMain())
	}
	if len(os.Args) == 3 && os.Args[1] == daemon.CheckVerb {
		os.Exit(verifyIndex(os.Args[2]))
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func verifyIndex(path string) int {
	if err := index.VerifyFile(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
