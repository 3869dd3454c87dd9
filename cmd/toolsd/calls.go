package main

import (
	"cmp"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/daemon/calllog"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
)

// callList is the answer of `toolsd calls`.
type callList struct {
	Calls []calllog.Entry `json:"calls"`
}

func newCallsCommand(a *app) *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "Show the latest calls of tools: who, which, how long, how large",
		Example: `  toolsd calls -n 20
  toolsd calls --json | jq '.calls[] | select(.outcome != "ok")'`,
		Long: `Show the latest calls of tools: who, which, how long, how large. Arguments and
results are not kept anywhere. Calls of other projects' servers are left out,
and a tool of a server that waits for approval has no name.`,
		Args:              takes(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if most < 1 {
				return usage(cmd, "-n %d: at least one call must be asked for", most)
			}
			dirs, err := platform.FindDirs(a.getenv)
			if err != nil {
				return err
			}
			client, dir, err := a.reach(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(ctx, ipc.StatusRequest{CWD: dir})
			if err != nil {
				return err
			}
			path := filepath.Join(dirs.State, "calls.log")
			calls, err := calllog.Read(path, 0)
			if err != nil {
				return err
			}
			calls = visibleCalls(calls, dir, status.Servers)
			calls = calls[max(0, len(calls)-most):]
			a.print(callList{calls}, func(s *screen) { showCalls(s, calls) })
			if len(calls) > 0 {
				a.hint("all of them are in %s", home(path))
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&most, "lines", "n", 50, "the last `number` of calls")
	return cmd
}

// visibleCalls asks the gate for each call, as it is now: the log was written when
// other servers were approved, and for callers of other projects.
func visibleCalls(calls []calllog.Entry, dir string, servers []ipc.ServerInfo) []calllog.Entry {
	pending := map[string]bool{}
	for _, s := range servers {
		pending[s.Name] = s.State == ipc.StatePending
	}
	out := []calllog.Entry{}
	for _, c := range calls {
		if c.Project != "" && !watcher.Visible(dir, c.Project) {
			continue
		}
		// What a project no longer brings may have gone before it was approved again.
		if waits, there := pending[c.Server]; waits || c.Project != "" && !there {
			c.Tool = ""
		}
		out = append(out, c)
	}
	return out
}

func showCalls(s *screen, calls []calllog.Entry) {
	if len(calls) == 0 {
		s.line("no tool was called yet")
		return
	}
	var rows [][]cell
	for _, c := range calls {
		style := green
		if c.Outcome != calllog.OK {
			style = yellow
		}
		name := c.Tool
		if c.Server != "" { // of a tool that nobody knows it is what was typed
			name = c.Server + "::" + cmp.Or(c.Tool, "…")
		}
		rows = append(rows, []cell{
			plain(c.Time.Local().Format("2006-01-02 15:04:05")), plain(cmp.Or(c.Client, "-")), {name, cyan},
			plainf("%d ms", c.MS), plain(size(int64(c.BytesIn))), plain(size(int64(c.BytesOut))), {string(c.Outcome), style},
		})
	}
	s.table([]string{"time", "agent", "tool", "took>", "in>", "out>", "outcome"}, rows, "in>", "out>", "agent")
}
