package main

import (
	"bufio"
	"context"
	"fmt"
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
neither started nor dialled. An approval is for exactly what is shown; any change
of it asks again. Approving needs a terminal, so that no agent does it in passing.`,
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
	cmd.Flags().BoolVar(&all, "all", false, "every server that waits")
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
			if waits(t) {
				s.trustInfo(t)
			}
		}
	})
	for _, t := range list.Servers {
		if waits(t) {
			a.hint("`toolsd trust %s` shows what it would run", t.Name)
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

func waits(t ipc.TrustInfo) bool {
	return t.State != "approved" && t.State != "auto" || len(t.Held) > 0
}

// approve shows a person one server, or all that wait, and approves what was
// shown. The terminal is asked for first: without one nothing is decided.
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
	var open []ipc.TrustInfo
	for _, t := range list.Servers {
		if waits(t) {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		a.print(list, func(s *screen) {
			for _, t := range list.Servers {
				s.line("%s: %s already", cleanLine(t.Name), cleanLine(t.State))
			}
			if len(list.Servers) == 0 {
				s.line("no server waits for an approval")
			}
		})
		return nil
	}
	if !platform.IsTerminal(a.in) || !a.err.terminal {
		return ipc.Errorf(ipc.CodeNeedsTrust, "approving needs a person at a terminal").
			WithHint("type `%s` in a terminal, in %s", command, dir)
	}
	answers := bufio.NewReader(a.in)
	done := ipc.TrustList{Servers: []ipc.TrustInfo{}}
	all := map[string]string{} // with --all: what is approved, in one step
	for _, t := range open {
		a.err.trustInfo(t)
		if !yes {
			ok, err := a.ask(ctx, answers, "Let it run? [y/N] ")
			if err != nil {
				return err
			}
			if !ok {
				a.say("%s stays %s", t.Name, t.State)
				continue
			}
		}
		if name == "" {
			all[t.Name] = t.Fingerprint
			continue
		}
		subject := t.Name
		if strings.Contains(name, "::") {
			subject = name
		}
		result, err := client.Trust(ctx, ipc.TrustRequest{Action: ipc.TrustApprove, Name: subject, Fingerprint: t.Fingerprint, CWD: dir})
		if err != nil {
			return err
		}
		done.Servers = append(done.Servers, result.Servers...)
		if !a.json {
			a.out.line("%s: approved", cleanLine(subject))
		}
	}
	if len(all) > 0 {
		result, err := client.Trust(ctx, ipc.TrustRequest{Action: ipc.TrustApprove, Fingerprints: all, CWD: dir})
		if err != nil {
			return err
		}
		done.Servers = append(done.Servers, result.Servers...)
		if !a.json {
			for _, t := range result.Servers {
				a.out.line("%s: approved", cleanLine(t.Name))
			}
		}
	}
	if a.json {
		a.print(done, nil)
	}
	if len(done.Servers) == 0 {
		return ipc.Errorf(ipc.CodeNeedsTrust, "nothing was approved").WithHint("`%s` asks again", command)
	}
	return nil
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
	field("headers", cleanLine(strings.Join(t.Headers, ", ")))
	field("in", cleanLine(t.CWD))
	for _, c := range t.Changes {
		field("changed", cleanLine(c))
	}
	for _, u := range t.Unusual {
		field("unusual", s.style(yellow, cleanLine(u)))
	}
	for _, h := range t.Held {
		field("held tool", cleanLine(h))
	}
	field("fingerprint", cleanLine(t.Fingerprint))
}
