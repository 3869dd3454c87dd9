package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

func newTrustCommand(a *app) *cobra.Command {
	var yes, all bool
	cmd := &cobra.Command{
		Use:   "trust [list | <server> | <server::tool>]",
		Short: "Show and approve what a project's servers would run",
		Long: `Show what servers of a project would run, and approve it. Until then they are
neither started nor dialled. An approval is for exactly what is shown; any
change of it asks again. Approving needs a terminal, so that no agent does it in
passing.`,
		Example: `  toolsd trust list
  toolsd trust kicad
  toolsd trust --all              for a first start with trust.userScope "ask"`,
		Args:              takes(0, 1, "one server, or list"),
		ValidArgsFunction: first(a.completeServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case all && len(args) > 0:
				return usage(cmd, "--all and %q exclude each other", args[0])
			case all:
				return a.approve(ctx, "", yes)
			case len(args) == 0 || args[0] == "list":
				return a.listTrust(ctx)
			case args[0] == "":
				return usage(cmd, "the name of the server is empty")
			}
			return a.approve(ctx, args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "approve without the question")
	cmd.Flags().BoolVar(&all, "all", false, "every server that waits, but for those that you refused")
	return cmd
}

func newDistrustCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "distrust <server>",
		Short:             "Take an approval back: the server stops",
		Example:           "  toolsd distrust kicad",
		Args:              takes(1, 1, "a server"),
		ValidArgsFunction: first(a.completeServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage(cmd, "the name of the server is empty")
			}
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.Trust(cmd.Context(), ipc.TrustRequest{Action: ipc.TrustRevoke, Name: args[0], CWD: dir})
			if err != nil {
				return err
			}
			a.print(list, func(s *screen) {
				for _, t := range list.Servers {
					s.line("%s: %s", cleanLine(t.Name), cleanLine(t.State))
				}
			})
			a.hint("`toolsd trust %s` approves it again", args[0])
			return nil
		},
	}
}

func (a *app) listTrust(ctx context.Context) error {
	client, dir, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := client.Trust(ctx, ipc.TrustRequest{Action: ipc.TrustShow, CWD: dir})
	if err != nil {
		return err
	}
	a.print(list, func(s *screen) {
		var rows [][]cell
		for _, t := range list.Servers {
			rows = append(rows, []cell{{t.Name, bold}, {t.State, trustStyle(t.State)}, plain(t.Scope), plain(home(t.Source))})
		}
		if len(rows) > 0 {
			s.table([]string{"server", "approval", "scope", "from<"}, rows)
		} else {
			s.line("no server is configured here")
		}
		for _, t := range list.Servers {
			switch {
			case waits(t) || len(t.Held) > 0:
				s.trustInfo(t)
			case len(t.Flagged) > 0:
				s.line("")
				s.line("%s  %s", s.style(bold, cleanLine(t.Name)), s.style(trustStyle(t.State), cleanLine(t.State)))
				s.flagged(t)
			}
		}
	})
	for _, t := range list.Servers {
		if waits(t) && t.State != "rejected" {
			a.hint("`toolsd trust %s` approves it", t.Name)
			break
		}
		if len(t.Held) > 0 {
			a.hint("`toolsd trust %s` lets agents see it", t.Held[0])
			break
		}
	}
	return nil
}

func trustStyle(state string) string {
	if state == "approved" || state == "auto" {
		return green
	}
	return yellow
}

// waits reports whether a server waits for an approval.
func waits(t ipc.TrustInfo) bool { return t.State != "approved" && t.State != "auto" }

// refused reports whether a person said no to a server already: only naming it
// says yes.
func refused(t ipc.TrustInfo) bool { return waits(t) && t.State != "pending" }

// terminalFor makes sure that a person decides. --yes skips the question, not
// the terminal.
func (a *app) terminalFor(command, dir string) error {
	if platform.IsTerminal(a.in) && a.err.terminal {
		return nil
	}
	return ipc.Errorf(ipc.CodeNeedsTrust, "approving needs a person at a terminal").
		WithHint("type `%s` in a terminal, in %s", command, dir)
}

// approve shows a person one server, or with an empty name all that wait and were
// not refused, and approves exactly what was shown, in one step.
func (a *app) approve(ctx context.Context, name string, yes bool) error {
	command := "toolsd trust " + name
	if name == "" {
		command = "toolsd trust --all"
	}
	client, dir, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := client.Trust(ctx, ipc.TrustRequest{Action: ipc.TrustShow, Name: name, CWD: dir})
	if err != nil {
		return err
	}
	if strings.Contains(name, "::") && len(list.Servers) == 1 {
		return a.approveTool(ctx, client, dir, name, list.Servers[0], yes)
	}
	open := slices.DeleteFunc(slices.Clone(list.Servers), func(t ipc.TrustInfo) bool { return !waits(t) || name == "" && refused(t) })
	if name == "" {
		a.tellRefused(list.Servers)
	}
	if len(open) == 0 {
		a.print(list, func(s *screen) { nothingWaits(s, list.Servers, name) })
		return nil
	}
	if err := a.terminalFor(command, dir); err != nil {
		return err
	}
	answers := bufio.NewReader(a.in)
	shown := map[string]string{}
	for _, t := range open {
		a.err.trustInfo(t)
		ok, err := a.agrees(ctx, answers, "Let it run? [y/N] ", yes)
		if err != nil {
			return err
		}
		if ok {
			shown[t.Name] = t.Fingerprint
		} else {
			a.say("%s stays %s", t.Name, t.State)
		}
	}
	if len(shown) == 0 {
		return ipc.Errorf(ipc.CodeNeedsTrust, "nothing was approved").WithHint("`%s` asks again", command)
	}
	r := ipc.TrustRequest{Action: ipc.TrustApprove, CWD: dir, Fingerprints: shown}
	if name != "" {
		r = ipc.TrustRequest{Action: ipc.TrustApprove, CWD: dir, Name: open[0].Name, Fingerprint: open[0].Fingerprint}
	}
	done, err := client.Trust(ctx, r)
	if err != nil {
		return err
	}
	a.print(done, func(s *screen) {
		for _, t := range done.Servers {
			s.line("%s: %s", cleanLine(t.Name), cleanLine(t.State))
		}
	})
	for _, t := range done.Servers {
		if t.State == "rejected" {
			a.hint("you rejected %s in the client whose file it is, and while that stands it does not run: `claude mcp reset-project-choices` makes Claude Code ask again", t.Name)
			return nil
		}
	}
	a.hint("`toolsd servers` shows how they start")
	return nil
}

// tellRefused shows what --all leaves alone.
func (a *app) tellRefused(servers []ipc.TrustInfo) {
	for _, t := range servers {
		switch {
		case a.json || !refused(t):
		case t.State == "rejected":
			a.say("%s stays rejected, as you have it in the client whose file it is", t.Name)
		default:
			a.say("%s stays %s: `toolsd trust %s` approves it", t.Name, t.State, t.Name)
		}
	}
}

// approveTool approves one tool that trust.tools holds back.
func (a *app) approveTool(ctx context.Context, client *ipc.Client, dir, id string, server ipc.TrustInfo, yes bool) error {
	if waits(server) {
		return ipc.Errorf(ipc.CodeNeedsTrust, "server %s has to be approved before its tools", server.Name).WithHint("`toolsd trust %s`", server.Name)
	}
	held := server.HeldTool
	if held == nil {
		if _, err := client.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{id}, CWD: dir}); err != nil {
			return err
		}
		a.print(ipc.TrustList{Servers: []ipc.TrustInfo{server}}, func(s *screen) { s.line("%s is not held", cleanLine(id)) })
		return nil
	}
	if err := a.terminalFor("toolsd trust "+id, dir); err != nil {
		return err
	}
	a.err.heldTool(held, server)
	ok, err := a.agrees(ctx, bufio.NewReader(a.in), fmt.Sprintf("Let agents see %s? [y/N] ", cleanLine(id)), yes)
	if err != nil {
		return err
	}
	if !ok {
		return ipc.Errorf(ipc.CodeNeedsTrust, "%s stays held", id)
	}
	done, err := client.Trust(ctx, ipc.TrustRequest{Action: ipc.TrustApprove, Name: held.ToolID, Fingerprint: string(held.Hash), CWD: dir})
	if err != nil {
		return err
	}
	a.print(done, func(s *screen) { s.line("%s: approved", cleanLine(id)) })
	return nil
}

func nothingWaits(s *screen, servers []ipc.TrustInfo, name string) {
	if name == "" || len(servers) == 0 {
		s.line("no server waits for an approval")
		return
	}
	for _, t := range servers {
		s.line("%s: %s already", cleanLine(t.Name), cleanLine(t.State))
		for _, id := range t.Held {
			s.line("    held: %s", cleanLine(id))
		}
		s.flagged(t)
	}
}

// agrees asks a person, unless the answer was typed with the verb.
func (a *app) agrees(ctx context.Context, answers *bufio.Reader, question string, yes bool) (bool, error) {
	if yes {
		return true, nil
	}
	return a.ask(ctx, answers, question)
}

// ask reads one answer of a person. Ctrl-C is a no.
func (a *app) ask(ctx context.Context, answers *bufio.Reader, question string) (bool, error) {
	fmt.Fprint(a.err.w, question)
	type reply struct {
		line string
		err  error
	}
	read := make(chan reply, 1)
	go func() {
		line, err := answers.ReadString('\n')
		read <- reply{line, err}
	}()
	select {
	case r := <-read:
		answer := strings.ToLower(strings.TrimSpace(r.line))
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(a.err.w)
		return false, ctx.Err()
	}
}

// heldTool shows what agents would see of a tool, and how it differs from what they
// saw before.
func (s *screen) heldTool(t *ipc.HeldTool, server ipc.TrustInfo) {
	s.line("")
	s.line("%s  %s", s.style(bold, cleanLine(t.ToolID)), s.style(yellow, cleanLine(t.Change)))
	s.line("%s", clean(indented(t.Definition)))
	for _, c := range t.Changes {
		s.hanging("  "+s.style(dim, fmt.Sprintf("%-12s", "changed"))+" ", 15, yellow, c)
	}
	for _, f := range server.Flagged {
		if about, found := strings.CutPrefix(f, t.ToolID+" "); found {
			s.hanging("  "+s.style(dim, fmt.Sprintf("%-12s", "unusual"))+" ", 15, yellow, "its text "+about)
		}
	}
	s.line("")
}

// trustInfo shows everything that an approval covers.
func (s *screen) trustInfo(t ipc.TrustInfo) {
	s.line("")
	s.line("%s  %s", s.style(bold, cleanLine(t.Name)), s.style(trustStyle(t.State), cleanLine(t.State)))
	field := func(name, value string) {
		if value != "" {
			s.line("  %s %s", s.style(dim, fmt.Sprintf("%-12s", name)), value)
		}
	}
	field("defined in", cleanLine(t.Source))
	field("scope", cleanLine(t.Scope))
	field("runs", cleanLine(t.Binary))
	// One argument a line: a space or a line break in one must not look like two.
	for i, arg := range t.Argv {
		field(fmt.Sprintf("argument %d", i), fmt.Sprintf("%q", arg))
	}
	field("connects to", cleanLine(t.URL))
	field("environment", cleanLine(strings.Join(t.Env, ", ")))
	field("env file", cleanLine(t.EnvFile))
	field("headers", cleanLine(strings.Join(t.Headers, ", ")))
	field("in", cleanLine(t.CWD))
	for _, c := range t.Changes {
		field("changed", cleanLine(c))
	}
	for _, u := range t.Unusual {
		s.hanging("  "+s.style(dim, fmt.Sprintf("%-12s", "unusual"))+" ", 15, yellow, u)
	}
	for _, h := range t.Held {
		field("held tool", cleanLine(h))
	}
	s.flagged(t)
	field("fingerprint", cleanLine(t.Fingerprint))
}

// flagged warns of tools whose text has no place in a definition.
func (s *screen) flagged(t ipc.TrustInfo) {
	for _, f := range t.Flagged {
		s.hanging("  "+s.style(dim, fmt.Sprintf("%-12s", "unusual"))+" ", 15, yellow, f)
	}
}
