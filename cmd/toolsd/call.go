package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func newCallCommand(a *app) *cobra.Command {
	var c call
	var argsFlag string
	cmd := &cobra.Command{
		Use:   "call <id> [key=value | key:=json]... | --args JSON | @file | -",
		Short: "Call a tool and print its result",
		Long: `Call a tool and print its result.

key=value gives a text, or a number or a boolean where the tool's schema allows
nothing else; key:=json gives any JSON. --args, @file and - (standard input)
give the whole object. The arguments are checked against the schema before
anything is sent.`,
		Example: `  toolsd call kicad::export_gerber output_dir=out layers:='["F.Cu","B.Cu"]'
  toolsd call github::create_issue --args '{"title": "Broken"}'
  toolsd call github::create_issue @issue.json --timeout 30s
  jq -n '{title: "Broken"}' | toolsd call github::create_issue -`,
		Args:              takes(1, -1, "the id of a tool"),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && c.timeout <= 0 {
				return usage(cmd, "--timeout %v: it must be above 0", c.timeout)
			}
			if args[0] == "" {
				return usage(cmd, "the id of the tool is empty")
			}
			c.id, c.typed = args[0], args[1:]
			if cmd.Flags().Changed("args") {
				c.args = &argsFlag
			}
			return a.call(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&argsFlag, "args", "", "the arguments as one `JSON` object")
	flags.DurationVar(&c.timeout, "timeout", 0, "give up after this `time`, as 30s (default: the server's)")
	flags.StringVarP(&c.output, "output", "o", "", "write images, audio and other files to this `file`")
	return cmd
}

// call is one call as it was typed.
type call struct {
	id      string
	typed   []string
	args    *string // nil: --args was not given
	timeout time.Duration
	output  string
}

func (a *app) call(ctx context.Context, c call) error {
	client, dir, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	limit := firstStart
	if c.timeout > 0 {
		limit = c.timeout
	}
	request := ipc.CallRequest{ToolID: c.id, TimeoutMS: int(c.timeout.Milliseconds()), CWD: dir}
	if c.timeout > 0 && request.TimeoutMS == 0 {
		request.TimeoutMS = 1
	}
	var definition json.RawMessage
	request.Arguments, err = a.callArguments(c.typed, c.args, func() (json.RawMessage, error) {
		var known *ipc.Activation
		err := a.whenListed(ctx, client, dir, []string{c.id}, limit, func() (err error) {
			known, err = client.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{c.id}, CWD: dir})
			return err
		})
		if err != nil {
			return nil, err
		}
		request.ToolID, definition = known.Tools[0].ToolID, known.Tools[0].Definition
		return definition, nil
	})
	if err != nil {
		return err
	}
	if !a.json {
		if definition == nil && string(request.Arguments) != "{}" {
			// An error comes again from the call itself.
			if known, err := client.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{c.id}, CWD: dir}); err == nil && len(known.Tools) > 0 {
				definition = known.Tools[0].Definition
			}
		}
		for name, near := range misspelt(definition, request.Arguments) {
			a.say("toolsd: the tool has no argument %s; did you mean %s?", name, near)
		}
	}
	// Without progress the answer is the server's, byte for byte; so a caller that
	// reads JSON is not shown any.
	stopMeter := func() {}
	if a.err.terminal && !a.json {
		meter := startMeter(a.err, c.id)
		request.Progress, stopMeter = meter.progress, meter.stop
	}
	var raw json.RawMessage
	err = a.whenListed(ctx, client, dir, []string{c.id}, limit, func() (err error) {
		raw, err = client.Call(ctx, request)
		return err
	})
	stopMeter()
	if err != nil {
		return err
	}
	return a.showResult(raw, c.output)
}

func (a *app) showResult(raw json.RawMessage, output string) error {
	var result callResult
	if err := json.Unmarshal(raw, &result); err != nil {
		return ipc.Errorf(ipc.CodeInternal, "the result is not a CallToolResult: %v", err)
	}
	if a.json {
		a.out.bytes(append(raw, '\n'))
	} else if err := result.show(a, output); err != nil {
		return err
	}
	if result.IsError {
		if !a.json {
			a.err.line("%s the tool says that it failed", a.err.style(red, "toolsd:"))
		}
		return exit(exitToolError)
	}
	return nil
}
