package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its servers, the agents attached and what is wrong",
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
				showProblems(s, status.Problems)
			})
			a.afterServers(status.Servers)
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
				showProblems(s, list.Problems)
			})
			a.afterServers(list.Servers)
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
			{v.Name, bold}, {string(v.State), stateStyles[v.State]}, plain(ago(v.Since)), plain(tools), plain(tokens),
			plain(pid), plain(size(v.Memory)), plain(cmp.Or(v.Scope, "-")), plain(cmp.Or(v.Transport, "-")), plain(strings.Join(files, ", ")),
		})
	}
	if len(rows) > 0 {
		s.table([]string{"server", "state", "since>", "tools>", "tokens>", "pid>", "memory>", "scope", "transport", "from<"}, rows)
	}
	for _, v := range servers {
		if v.Problem == "" && len(v.Notes) == 0 {
			continue
		}
		s.line("")
		if v.Problem != "" {
			problem := fmt.Sprintf("%s: %s", v.Name, v.Problem)
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
	s.line("")
	s.line("%s, %s, %s of definitions", count(totals.Servers, "server", "servers"), count(totals.Tools, "tool", "tools"), count(totals.Tokens, "token", "tokens"))
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
	s.table([]string{"session", "agent", "mode", "active>", "tokens>", "since>", "directory<"}, rows)
}

func showProblems(s *screen, problems []ipc.Problem) {
	if len(problems) == 0 {
		return
	}
	s.line("")
	s.line("%s", s.style(yellow, "problems in config files:"))
	for _, p := range problems {
		place := home(p.File)
		if p.Line > 0 {
			place += fmt.Sprintf(":%d", p.Line)
			if p.Col > 0 {
				place += fmt.Sprintf(":%d", p.Col)
			}
		}
		text := place + ": "
		if p.Server != "" {
			text += p.Server + ": "
		}
		s.paragraph(2, "", text+p.Message)
		if p.Hint != "" {
			s.paragraph(6, dim, "→ "+p.Hint)
		}
	}
}

// afterServers says what to type next, the most useful thing first.
func (a *app) afterServers(servers []ipc.ServerInfo) {
	if len(servers) == 0 {
		a.hint("no client has a server configured here; `toolsd demo` shows what toolsd does, and mcpServers in its config.json takes servers")
		return
	}
	for _, v := range servers {
		switch v.State {
		case ipc.StatePending:
			a.hint("%s waits for your approval: `toolsd trust %s` shows what it would run", v.Name, v.Name)
			return
		case ipc.StateFailed, ipc.StateBackoff:
			a.hint("`toolsd logs %s` shows what it wrote, `toolsd restart %s` tries again", v.Name, v.Name)
			return
		}
	}
	a.hint("`toolsd search <words>` finds tools")
}
