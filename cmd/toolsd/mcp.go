package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/ipc/shim"
	"github.com/toolsd/toolsd/watcher/settings"
)

func newMCPCommand(a *app) *cobra.Command {
	mode := string(ipc.Auto)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "The MCP server on stdio that an agent mounts",
		Long: `The MCP server on stdio that an agent mounts in place of all its servers. It
needs no configuration, starts the daemon when none runs, and outlives it.`,
		Example: `  claude mcp add toolsd -- toolsd mcp
  {"mcpServers": {"toolsd": {"command": "toolsd", "args": ["mcp"]}}}`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch ipc.Mode(mode) {
			case ipc.Auto, ipc.Direct, ipc.Search:
			default:
				return usage(cmd, "--mode %s: there are auto, direct and search", mode)
			}
			longLived()
			// stdout belongs to the protocol. Whatever is wrong goes to stderr, which
			// clients keep in a log.
			a.json = false
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			dir, err := a.directory()
			switch {
			case err != nil && a.cwd != "":
				return err
			case err != nil: // the directory is gone; the user's own servers are not
				log.Warn("no project is seen", "cause", err)
			}
			threshold, err := settings.EnvironmentThreshold(a.getenv)
			if err != nil {
				log.Warn("the threshold stays", "cause", err)
			}
			return shim.Run(cmd.Context(), shim.Options{
				In: os.Stdin, Out: os.Stdout, CWD: dir, Mode: ipc.Mode(mode), Threshold: threshold, Version: ipc.Version(),
				Connect: func(ctx context.Context) (ipc.Backend, error) { return a.connect(ctx) },
				Dial: func(ctx context.Context) (ipc.Backend, error) {
					client, _, err := a.running(ctx)
					return client, err
				},
				Log: log,
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", mode, "how tools come: auto, direct or search")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"auto", "direct", "search"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
