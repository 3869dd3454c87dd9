package main

import (
	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func newWhyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "why <tool or server>",
		Short: "Explain why a tool or server is not there, not active or down",
		Example: `  toolsd why kicad::export_gerber
  toolsd why kicad`,
		Args:              takes(1, 1, "a tool or a server"),
		ValidArgsFunction: first(a.completeSubjects),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage(cmd, "the name is empty")
			}
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			why, err := client.Why(cmd.Context(), ipc.WhyRequest{Subject: args[0], CWD: dir})
			if err != nil {
				return err
			}
			a.print(why, func(s *screen) {
				s.line("%s  %s", s.style(bold, cleanLine(why.Subject)), s.style(stateStyles[ipc.ServerState(why.State)], cleanLine(why.State)))
				for _, r := range why.Reasons {
					s.paragraph(4, "", r)
				}
			})
			a.hint("%s", why.Hint)
			if !why.Found {
				return exit(exitNotFound)
			}
			return nil
		},
	}
}
