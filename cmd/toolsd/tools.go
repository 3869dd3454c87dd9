package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

func newToolsCommand(a *app) *cobra.Command {
	var compact, markdown bool
	cmd := &cobra.Command{
		Use:   "tools [server]",
		Short: "List all tools with their weight in an agent's context",
		Example: `  toolsd tools
  toolsd tools github
  toolsd tools --compact | grep -i gerber
  toolsd tools --markdown > TOOLS.md`,
		Args:              takes(0, 1, "at most one server"),
		ValidArgsFunction: first(a.completeServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if compact && markdown {
				return usage(cmd, "--compact and --markdown are two forms of the list, and only one can be printed").WithHint("leave one of them out")
			}
			if len(args) == 1 && args[0] == "" {
				return usage(cmd, "the name of the server is empty") // it would ask for all
			}
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			r := ipc.ToolsRequest{CWD: dir}
			if len(args) == 1 {
				r.Server = args[0]
			}
			list, err := client.Tools(cmd.Context(), r)
			if err != nil {
				return err
			}
			a.print(list, func(s *screen) {
				switch {
				case compact:
					showCompact(s, list.Tools)
				case markdown:
					showMarkdown(s, list)
				default:
					showTools(s, list, r.Server == "")
				}
			})
			if len(list.Tools) == 0 {
				a.hintAtStarting(cmd.Context(), client, dir)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "one line per deferred tool, for grep and for agents")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "an inventory by category")
	return cmd
}

// hintAtStarting says why a list is empty.
func (a *app) hintAtStarting(ctx context.Context, client *ipc.Client, dir string) {
	status, err := client.Status(ctx, ipc.StatusRequest{CWD: dir})
	if err != nil {
		return // the list itself was printed
	}
	if starting := unlisted(status.Servers, []string{""}); len(starting) > 0 {
		a.hint("not listed yet: %s; `toolsd status` shows how far they are", strings.Join(starting, ", "))
		return
	}
	a.hint("`toolsd status` shows the servers and where they are defined")
}

func showTools(s *screen, list *ipc.ToolList, all bool) {
	byServer := map[string][]ipc.ToolEntry{}
	for _, t := range list.Tools {
		byServer[t.Server] = append(byServer[t.Server], t)
	}
	for _, server := range list.Servers {
		s.line("%s  %s", s.style(bold, cleanLine(server.Name)), s.style(dim, fmt.Sprintf("%s, %s", count(server.Tools, "tool", "tools"), count(server.Tokens, "token", "tokens"))))
		var rows [][]cell
		for _, t := range byServer[server.Name] {
			rows = append(rows, []cell{{"  " + t.Tool, cyan}, plain(thousands(t.Tokens)), reached(t, list.Context.Mode), plain(firstSentence(t.Description))})
		}
		if len(rows) > 0 {
			s.table([]string{"  tool", "tokens>", "reached", "description"}, rows)
		}
		s.line("")
	}
	s.line("%s: %s, %s", count(list.Totals.Servers, "server", "servers"), count(list.Totals.Tools, "tool", "tools"), count(list.Totals.Tokens, "token", "tokens"))
	if all {
		showWeight(s, list.Context)
	}
}

// reached says how an agent gets at a tool. In direct mode it is given those too
// that a search would have to find.
func reached(t ipc.ToolEntry, mode ipc.Mode) cell {
	style := dim
	if t.Reached != ipc.Deferred {
		style = green
	}
	text := string(t.Reached)
	if mode == ipc.Direct && t.Reached == ipc.Deferred {
		text = "listed"
	}
	if t.State != ipc.ToolReady {
		text += ", " + string(t.State)
	}
	return cell{text, style}
}

// showWeight says what a mounted agent pays, and how that was computed.
func showWeight(s *screen, w ipc.ContextWeight) {
	s.line("")
	s.line("in an agent's context:")
	rows := [][]cell{
		{plain("  all definitions"), plain(thousands(w.AllTools)), plain(share(w.AllTools, w.Window))},
		{plain("  toolsd's fixed tools"), plain(thousands(w.FixedTools)), plain(share(w.FixedTools, w.Window))},
	}
	if w.Pinned > 0 {
		rows = append(rows, []cell{plain("  pinned tools"), plain(thousands(w.Pinned)), plain(share(w.Pinned, w.Window))})
	}
	s.table([]string{"", "tokens>", fmt.Sprintf("of a window of %s", thousands(w.Window))}, rows)
	if w.Mode == ipc.Direct {
		s.paragraph(0, "", "Mode now: direct. The definitions are below the thresholds of toolSearch, so an agent that asks toolsd gets all of them listed beside the fixed tools.")
	} else {
		s.paragraph(0, "", "Mode now: search. An agent is given the fixed and pinned tools, and each tool that it searches for from then on.")
	}
	s.paragraph(0, dim, "A token is counted as 4 characters of the compact JSON of name, description and input schema; a model's own count differs by some percent.")
}

func share(n, window int) string {
	if window <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(window))
}

// firstSentence is what of a description fits into a table.
func firstSentence(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i > 0 {
		s = s[:i]
	}
	if i := strings.Index(s, ". "); i > 0 {
		s = s[:i+1]
	}
	return s
}

// maxCompact is the most bytes of a description on a line of --compact, the mark
// of the cut among them.
const maxCompact = 1024

func showCompact(s *screen, tools []ipc.ToolEntry) {
	for _, t := range tools {
		if t.Reached == ipc.Deferred {
			s.line("%s", compactLine(t.ToolInfo))
		}
	}
}

// compactLine is `server::tool: description` on one line.
func compactLine(t ipc.ToolInfo) string {
	return cleanLine(t.ToolID) + ": " + tool.Cut(strings.Join(strings.Fields(cleanLine(t.Description)), " "), maxCompact)
}

func showMarkdown(s *screen, list *ipc.ToolList) {
	byCategory := map[string][]ipc.ToolEntry{}
	var names []string
	for _, t := range list.Tools {
		if byCategory[t.Category] == nil {
			names = append(names, t.Category)
		}
		byCategory[t.Category] = append(byCategory[t.Category], t)
	}
	slices.Sort(names)
	s.line("# Tools")
	s.line("")
	s.line("%s of %s in %s.", count(list.Totals.Tools, "tool", "tools"), count(list.Totals.Servers, "server", "servers"), count(len(names), "category", "categories"))
	for _, name := range names {
		s.line("")
		s.line("## %s (%d)", cleanLine(name), len(byCategory[name]))
		s.line("")
		for _, t := range byCategory[name] {
			// A line of a list must stay one whatever a server wrote.
			line := "- `" + strings.ReplaceAll(cleanLine(t.ToolID), "`", "'") + "`"
			if d := strings.Join(strings.Fields(cleanLine(firstSentence(t.Description))), " "); d != "" {
				line += ": " + d
			}
			s.line("%s", line)
		}
	}
}
