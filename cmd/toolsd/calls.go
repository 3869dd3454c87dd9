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
and tools have names only where their server is there and does not wait for
approval: none without a daemon, which alone knows that.`,
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
			var servers []ipc.ServerInfo
			client, dir, err := a.reach(ctx)
			switch {
			case err == nil:
				defer client.Close()
				status, err := client.Status(ctx, ipc.StatusRequest{CWD: dir})
				if err != nil {
					return err
				}
				servers = status.Servers
			case dir != "" && ipc.AsError(err).Code == ipc.CodeNoDaemon:
				a.say("no daemon says which servers may be seen, so their tools are not named")
			default:
				return err
			}
			path := filepath.Join(dirs.State, "calls.log")
			calls, err := calllog.Read(path, 0)
			if err != nil {
				return err
			}
			calls = visibleCalls(calls, dir, servers)
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
// other servers were approved, and for callers of other projects. A line is there
// unless it is of another project. Its tool is named only if the server of that
// name and scope is there and does not wait: one that is gone may have gone before
// it was approved again, and what was typed when nobody knew the tool may be the
// name of a hidden one.
func visibleCalls(calls []calllog.Entry, dir string, servers []ipc.ServerInfo) []calllog.Entry {
	type server struct{ name, scope string }
	open := map[server]bool{}
	for _, s := range servers {
		open[server{s.Name, s.Scope}] = s.State != ipc.StatePending
	}
	out := []calllog.Entry{}
	for _, c := range calls {
		if c.Project != "" && !watcher.Visible(dir, c.Project) {
			continue
		}
		if !open[server{c.Server, c.Scope}] {
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
		name := "…"
		if c.Server != "" {
			name = c.Server + "::" + cmp.Or(c.Tool, "…")
		}
		rows = append(rows, []cell{
			plain(c.Time.Local().Format("2006-01-02 15:04:05")), plain(cmp.Or(c.Client, "-")), {name, cyan},
			plainf("%d ms", c.MS), plain(size(int64(c.BytesIn))), plain(size(int64(c.BytesOut))), {string(c.Outcome), style},
		})
	}
	s.table([]string{"time", "agent", "tool", "took>", "in>", "out>", "outcome"}, rows, "in>", "out>", "agent")
}
