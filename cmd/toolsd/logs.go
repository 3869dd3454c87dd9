package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

// followEvery is how often a followed file is looked at. It is for reading along.
const followEvery = 250 * time.Millisecond

func newLogsCommand(a *app) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:   "logs <server>",
		Short: "Show what a server wrote to stderr",
		Example: `  toolsd logs github
  toolsd logs github -f`,
		Args:              takes(1, 1, "a server"),
		ValidArgsFunction: first(a.completeServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case lines < 1:
				return usage(cmd, "-n %d: at least one line must be asked for", lines)
			case follow && a.json:
				return usage(cmd, "--follow has no end, so it cannot be one JSON document")
			}
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			// What is written between the two is shown twice rather than never.
			log, err := client.Log(cmd.Context(), ipc.ServerRequest{Name: args[0], CWD: dir, Lines: lines})
			if err != nil {
				return err
			}
			begin := sizeOf(log.File)
			a.print(log, func(s *screen) {
				for _, l := range log.Lines {
					s.text(l)
				}
			})
			if follow {
				return a.follow(cmd.Context(), log.File, begin)
			}
			if len(log.Lines) == 0 {
				a.say("%s wrote nothing to stderr yet", log.Name)
			}
			if log.File != "" {
				a.hint("all of it is in %s", home(log.File))
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what it writes, until Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "the last `number` of lines")
	return cmd
}

// follow prints what is added to a file until ctx ends. A file that became
// shorter was rotated and is read from its beginning.
func (a *app) follow(ctx context.Context, path string, at int64) error {
	longLived()
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		n, err := a.copyFrom(path, at)
		if err != nil {
			return err
		}
		at = n
		if err := a.flush(); err != nil {
			return nil // nobody reads any more
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) copyFrom(path string, at int64) (int64, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return at, fmt.Errorf("following the log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < at {
		at = 0
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return at, fmt.Errorf("following the log: %w", err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return at, fmt.Errorf("following the log: %w", err)
	}
	whole := strings.LastIndexByte(string(data), '\n') + 1 // the rest of a line comes later
	if whole > 0 {
		a.out.text(string(data[:whole]))
	}
	return at + int64(whole), nil
}

func newRestartCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restart <server>",
		Short: "Connect to a server anew",
		Long: `Stop a server, start it anew, and wait until it is ready or has failed. The exit
code is 1 when it is not ready then.`,
		Example:           "  toolsd restart github",
		Args:              takes(1, 1, "a server"),
		ValidArgsFunction: first(a.completeServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			stopMeter := func() {}
			if a.err.terminal && !a.json {
				stopMeter = startMeter(a.err, "restarting "+args[0]).stop
			}
			info, err := client.Restart(cmd.Context(), ipc.ServerRequest{Name: args[0], CWD: dir})
			stopMeter()
			if err != nil {
				return err
			}
			a.print(info, func(s *screen) {
				s.line("%s: %s", cleanLine(info.Name), s.style(stateStyles[info.State], string(info.State)))
			})
			if a.json || restarted(info) == nil {
				return restarted(info)
			}
			_ = a.flush()
			hint := cmp.Or(info.Hint, fmt.Sprintf("`toolsd logs %s` shows what it wrote", info.Name))
			switch {
			case info.Problem != "":
				a.err.paragraph(4, "", briefly(info.Problem))
			case info.State == ipc.StateStarting:
				a.say("%s is still starting, and toolsd goes on with it", cleanLine(info.Name))
				hint = fmt.Sprintf("`toolsd servers` shows how it goes on, `toolsd logs %s` what it writes", info.Name)
			}
			a.hint("%s", hint)
			return restarted(info)
		},
	}
}

// restarted is the outcome of a restart: a failure, unless the server is ready. A
// lazy one of which each session has its own process has nothing to restart.
func restarted(info *ipc.ServerInfo) error {
	if info.State == ipc.StateReady || info.State == ipc.StateLazy {
		return nil
	}
	return exit(exitFailed)
}
