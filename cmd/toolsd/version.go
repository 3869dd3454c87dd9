package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

// versionAnswer is the answer of `toolsd version`.
type versionAnswer struct {
	Version  string       `json:"version"`
	Protocol ipc.Protocol `json:"protocol"`
	Go       string       `json:"go"`
	Platform string       `json:"platform"`
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  toolsd version
  toolsd version --json | jq -r .version`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := versionAnswer{ipc.Version(), ipc.Supported, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			a.print(v, func(s *screen) {
				s.line("toolsd %s (socket protocol %s, %s, %s)", v.Version, v.Protocol, v.Go, v.Platform)
			})
			return nil
		},
	}
}
