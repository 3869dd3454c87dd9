package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its servers and agents, and what is wrong",
		Example: `  toolsd status
  toolsd status --cwd ~/project
  toolsd status --json | jq .problems`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(cmd.Context(), ipc.StatusRequest{CWD: dir})
			if err != nil {
				return err
			}
			a.print(status, func(s *screen) {
				d := status.Daemon
				s.line("%s %s, process %d, up %s, memory %s, %s", s.style(bold, "toolsd"), cleanLine(d.Version), d.PID, ago(d.Started), size(d.Memory), count(d.Sessions, "session", "sessions"))
				s.line("%s %s", s.style(dim, "socket"), cleanLine(home(d.Socket)))
				if d.Path != "" {
					s.line("%s %s", s.style(dim, "servers' environment from"), cleanLine(d.Path))
				}
				showSessions(s, status.Sessions)
				s.line("")
				showServers(s, status.Servers, status.Totals)
			})
			a.afterServers(cmd.Context(), client, dir, status)
			return nil
		},
	}
}

func newServersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "servers",
		Short: "List the servers with their state",
		Example: `  toolsd servers
  toolsd servers --json | jq -r '.servers[] | select(.state != "ready") | .name'`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(cmd.Context(), ipc.StatusRequest{CWD: dir})
			if err != nil {
				return err
			}
			list := ipc.ServerList{Servers: status.Servers, Totals: status.Totals, Problems: status.Problems}
			a.print(list, func(s *screen) {
				showServers(s, list.Servers, list.Totals)
			})
			a.afterServers(cmd.Context(), client, dir, status)
			return nil
		},
	}
}

var stateStyles = map[ipc.ServerState]string{
	ipc.StateReady: green, ipc.StateStarting: cyan, ipc.StateBackoff: yellow,
	ipc.StateFailed: red, ipc.StateLazy: dim, ipc.StatePending: yellow, ipc.StateDisabled: dim,
}

func showServers(s *screen, servers []ipc.ServerInfo, totals ipc.Totals) {
	var rows [][]cell
	for _, v := range servers {
		pid, tools, tokens := "-", "-", "-"
		if v.PID > 0 {
			pid = fmt.Sprint(v.PID)
		}
		if v.Tools > 0 || v.State == ipc.StateReady {
			tools, tokens = thousands(v.Tools), thousands(v.Tokens)
		}
		var files []string
		for _, f := range v.Sources {
			files = append(files, home(f))
		}
		rows = append(rows, []cell{
			{cutMost(s, v.Name), bold}, {string(v.State), stateStyles[v.State]}, plain(tools), plain(tokens),
			plain(pid), plain(ago(v.Since)), plain(size(v.Memory)), plain(cmp.Or(v.Scope, "-")), plain(cmp.Or(v.Transport, "-")), plain(strings.Join(files, ", ")),
		})
	}
	if len(rows) > 0 {
		s.table([]string{"server", "state", "tools>", "tokens>", "pid>", "since>", "memory>", "scope", "transport", "from<"}, rows,
			"transport", "memory>", "scope", "since>", "pid>")
		s.line("")
	}
	s.line("%s, %s, %s of definitions", count(totals.Servers, "server", "servers"), count(totals.Tools, "tool", "tools"), count(totals.Tokens, "token", "tokens"))
}

// cutMost keeps a name from taking the whole line of a terminal.
func cutMost(s *screen, name string) string {
	if name = cleanLine(name); s.width > 0 {
		return cutPath(name, max(12, s.width/3))
	}
	return name
}

// notFoundIn begins a list of directories, which is long and which why shows.
const notFoundIn = ": command not found in PATH ("

// briefly is a problem without such a list.
func briefly(problem string) string {
	at := strings.Index(problem, notFoundIn)
	if at < 0 {
		return problem
	}
	end := strings.Index(problem[at:], "): ")
	if end < 0 {
		return problem
	}
	return problem[:at+end+1]
}

// showServerProblems says what is wrong or odd with servers.
func showServerProblems(s *screen, servers []ipc.ServerInfo) {
	for _, v := range servers {
		if v.Problem == "" && len(v.Notes) == 0 {
			continue
		}
		s.line("")
		if v.Problem != "" {
			problem := fmt.Sprintf("%s: %s", v.Name, briefly(v.Problem))
			if v.Retry != nil && v.Retry.After(time.Now()) {
				problem += fmt.Sprintf(" (next try in %s)", time.Until(*v.Retry).Round(time.Second))
			}
			s.paragraph(0, stateStyles[v.State], problem)
		} else {
			s.paragraph(0, "", v.Name+":")
		}
		for _, n := range v.Notes {
			s.paragraph(4, dim, n)
		}
		if v.Hint != "" {
			s.paragraph(4, "", "→ "+v.Hint)
		}
	}
}

func showSessions(s *screen, sessions []ipc.SessionInfo) {
	if len(sessions) == 0 {
		return
	}
	s.line("")
	var rows [][]cell
	for _, v := range sessions {
		rows = append(rows, []cell{
			plain(v.ID), plain(strings.TrimSpace(v.Client + " " + v.Version)), plain(string(v.Mode)), plain(thousands(v.Active)),
			plain(thousands(v.Tokens)), plain(ago(v.Since)), plain(home(v.CWD)),
		})
	}
	s.table([]string{"session", "agent", "mode", "active>", "tokens>", "since>", "directory<"}, rows, "mode", "tokens>", "since>")
}

// showProblems tells those of config files apart from those of what the daemon
// keeps, which are no file's to correct.
func showProblems(s *screen, problems []ipc.Problem) {
	for _, group := range []struct {
		title string
		has   func(ipc.Problem) bool
	}{
		{"problems:", func(p ipc.Problem) bool { return p.File == "" }},
		{"problems in config files:", func(p ipc.Problem) bool { return p.File != "" }},
	} {
		title := group.title
		for _, p := range problems {
			if !group.has(p) {
				continue
			}
			if title != "" {
				s.line("")
				s.line("%s", s.style(yellow, title))
				title = ""
			}
			showProblem(s, p)
		}
	}
}

func showProblem(s *screen, p ipc.Problem) {
	text := ""
	if p.File != "" {
		text = home(p.File)
		if p.Line > 0 {
			text += fmt.Sprintf(":%d", p.Line)
			if p.Col > 0 {
				text += fmt.Sprintf(":%d", p.Col)
			}
		}
		text += ": "
	}
	if p.Server != "" {
		text += p.Server + ": "
	}
	s.paragraph(2, "", text+p.Message)
	if p.Hint != "" {
		s.paragraph(6, "", "→ "+p.Hint)
	}
}

// afterServers says what is wrong, and what to type next, the most useful thing
// first.
func (a *app) afterServers(ctx context.Context, client *ipc.Client, dir string, status *ipc.Status) {
	if a.json {
		return
	}
	_ = a.flush() // on a terminal the problems stand below the table
	showServerProblems(a.err, status.Servers)
	showProblems(a.err, status.Problems)
	if len(status.Servers) == 0 {
		a.hint("%s", a.noServers())
		return
	}
	explain := ""
	for _, v := range status.Servers {
		switch {
		case v.Problem != "" && v.Hint != "" && briefly(v.Problem) == v.Problem: // all is told with the problem
		case v.State == ipc.StateBackoff || v.State == ipc.StateFailed && wasStarted(ctx, client, dir, v):
			a.hint("`toolsd logs %s` shows what it wrote, `toolsd restart %s` tries again", v.Name, v.Name)
			return
		case v.State == ipc.StateFailed && explain == "":
			explain = v.Name
		}
	}
	if explain != "" {
		a.hint("`toolsd why %s` shows more about it; `toolsd search <words>` finds tools of the others", explain)
		return
	}
	if status.Totals.Tools > 0 {
		a.hint("`toolsd search <words>` finds tools")
	}
}

// noServers says where the first server can go.
func (a *app) noServers() string {
	place := "toolsd's config.json"
	if dirs, err := platform.FindDirs(a.getenv); err == nil {
		place = home(dirs.ConfigFile)
	}
	return "no client has a server configured here; put one under mcpServers in " + place + ", or see what toolsd does with `toolsd demo`"
}

// wasStarted tells a server that ran and failed from an entry that could not even
// be started: that one has no log of its own, and a restart would not help.
func wasStarted(ctx context.Context, client *ipc.Client, dir string, v ipc.ServerInfo) bool {
	if strings.Contains(v.Problem, ": command not found") {
		return false
	}
	log, err := client.Log(ctx, ipc.ServerRequest{Name: v.Name, CWD: dir, Lines: 1})
	return err == nil && len(log.Lines) > 0
}
