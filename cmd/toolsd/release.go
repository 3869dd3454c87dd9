package main

import (
	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/watcher/adopt"
)

func newReleaseCommand(a *app) *cobra.Command {
	v := &adoptVerb{app: a, name: "release", plan: (*adopt.Session).Release}
	cmd := &cobra.Command{
		Use:   "release <client> | --all",
		Short: "Give a client its own MCP servers back",
		Long: `Undo ` + "`toolsd adopt`" + `: the client's file gets its servers back and loses the
entry of toolsd, and config.json loses what adopt put there. It needs no daemon
and asks nothing; --dry-run shows what it would do.

A file that nobody edited since is restored byte for byte. In one that was
edited, the edits stay and the servers come back as they were written. These are
conflicts: they are shown, and nothing is lost.
  - a server of the same name was added since: it stays, and the old one comes
    back as name-released
  - a server was changed in config.json since: it stays there, too

The backups stay below adopt/ in toolsd's state directory.

With --json:
  {"clients":[{"client","files":[{"path","diff","moved":[…],"as":{…},
   "kept":[{"name","reason"}],"conflicts":[{"name","reason"}],"backup"}],
   "status","message"}]}
moved are the servers that left toolsd. status is released, would-release
(--dry-run), nothing or failed. When a client failed there is "error", too.

Exit: 0 also when the client is not adopted; 1 when a client failed; 2 for a
client that toolsd does not know.`,
		Example: `  toolsd release cursor --dry-run
  toolsd release --all`,
	}
	return v.complete(cmd)
}
