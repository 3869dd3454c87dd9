package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// verbs are all commands. A verb is a function in a file of its own that makes
// the cobra command over the app.
var verbs = []struct {
	group string
	new   func(*app) *cobra.Command
}{
	{"use", newSearchCommand},
	{"use", newToolsCommand},
	{"use", newCategoriesCommand},
	{"use", newCategoryCommand},
	{"use", newActivateCommand},
	{"use", newCallCommand},
	{"look", newStatusCommand},
	{"look", newServersCommand},
	{"look", newWhyCommand},
	{"look", newLogsCommand},
	{"look", newCallsCommand},
	{"look", newDoctorCommand},
	{"change", newTrustCommand},
	{"change", newDistrustCommand},
	{"change", newRestartCommand},
	{"change", newSettingsCommand},
	{"change", newAdoptCommand},
	{"change", newReleaseCommand},
	{"run", newMCPCommand},
	{"run", newServeCommand},
	{"run", newStartCommand},
	{"run", newStopCommand},
	{"run", newServiceCommand},
	{"run", newDemoCommand},
	{"run", newVersionCommand},
	{"", newSampleServerCommand},
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "toolsd <verb>",
		Short: "One daemon for the MCP servers of all your agents",
		Long: `toolsd keeps the MCP servers of all agents on this machine running once, and
their tools searchable.

It reads the config files that your agents already have. A verb that needs the
daemon starts it.`,
		Example: `  toolsd search export gerber
  toolsd call kicad::export_gerber layers:='["F.Cu"]'
  toolsd status
  toolsd mcp                  what an agent mounts`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// cobra's own answer to an unknown verb is bypassed, to give it the code
		// and the form of every other mistake.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !a.json {
				return cmd.Help()
			}
			if len(args) == 0 {
				return usage(cmd, "no verb was given")
			}
			e := usage(cmd, "there is no verb %q", args[0])
			if near := nearestVerbs(cmd, args[0]); len(near) > 0 {
				e.WithHint("did you mean %s?", strings.Join(near, " or "))
			}
			return e
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetOut(&a.cobra) // before the completion commands are made, which keep it
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print one JSON document")
	flags.StringVar(&a.cwd, "cwd", "", "see what this `directory` sees (default: the present one)")
	flags.BoolVar(&a.noStart, "no-start", false, "do not start the daemon (as TOOLSD_NO_START=1)")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(verbsForCommands(root.UsageFunc()))
	root.AddGroup(
		&cobra.Group{ID: "use", Title: "Find and use tools:"},
		&cobra.Group{ID: "look", Title: "See what goes on:"},
		&cobra.Group{ID: "change", Title: "Change something:"},
		&cobra.Group{ID: "run", Title: "Run:"},
	)
	for _, v := range verbs {
		cmd := v.new(a)
		cmd.GroupID = v.group
		root.AddCommand(cmd)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.GroupID = "run"
			cmd.Short = "Print the completion script of a shell"
			cmd.Args = oneOf
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			cmd.GroupID = "run"
			cmd.Short = "Show the help of a verb"
			cmd.Args = aVerb
		}
		markRan(a, cmd)
	}
	return root
}

// oneOf is the check of a command that only has commands below it.
func oneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	e := usage(cmd, "there is no `%s %s`", cmd.CommandPath(), args[0])
	if near := tool.Nearest(args[0], names, 1); len(near) > 0 {
		return e.WithHint("did you mean `%s %s`?", cmd.CommandPath(), near[0])
	}
	return e.WithHint("it is one of %s", strings.Join(names, ", "))
}

// aVerb is the check of what help is asked for.
func aVerb(cmd *cobra.Command, args []string) error {
	at, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) == 0 {
		return nil
	}
	if at != nil && at != cmd.Root() && len(rest) > 0 {
		if at.HasSubCommands() {
			return oneOf(at, rest)
		}
		return usage(cmd, "there is nothing below `%s`", at.CommandPath()).WithHint("`toolsd help %s` shows its help", at.Name())
	}
	e := usage(cmd, "there is no verb %q to help with", args[0]).WithHint("`toolsd --help` lists the verbs")
	if near := tool.Nearest(args[0], verbNames(cmd.Root()), 1); len(near) > 0 {
		e.WithHint("did you mean `toolsd help %s`?", near[0])
	}
	return e
}

// verbsForCommands rewords what cobra prints: here a command is a verb, and one
// line says how it is typed. A usage template of our own would bring in a package
// that makes the program a fifth larger.
func verbsForCommands(print func(*cobra.Command) error) func(*cobra.Command) error {
	words := strings.NewReplacer("[command] --help", "<verb> --help", "about a command", "about a verb")
	return func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var b bytes.Buffer
		cmd.SetOut(&b)
		err := print(cmd)
		cmd.SetOut(out)
		text := words.Replace(b.String())
		if cmd.Runnable() {
			text = strings.Replace(text, "\n  "+cmd.CommandPath()+" [command]\n", "\n", 1)
		}
		if _, writeErr := io.WriteString(out, text); err == nil {
			err = writeErr
		}
		return err
	}
}

// markRan notes when a verb begins: from then on an error is not about how it
// was typed.
func markRan(a *app, cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.ran = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		markRan(a, c)
	}
}

// flagError is what a flag that does not exist or fit is answered with.
func flagError(cmd *cobra.Command, err error) error {
	if unfit, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return unfitFlag(cmd, unfit.GetFlag(), unfit.GetValue())
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f := bare.GetFlag()
		placeholder, _ := pflag.UnquoteUsage(f)
		return usage(cmd, "%s needs a value", flagName(f)).WithHint("it is typed %s %s", flagName(f), placeholder)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usage(cmd, "%v", err)
	}
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		e := ipc.Errorf(ipc.CodeUsage, "there is no flag -%s", letters)
		switch {
		case letters[0] >= '0' && letters[0] <= '9':
			return e.WithHint("a value that begins with - stands behind --: `%s … -- -%s`", cmd.CommandPath(), letters)
		case !cmd.HasParent() && (name == "v" || name == "V"):
			return e.WithHint("`toolsd version` prints the version")
		}
		return e.WithHint("`%s --help` lists the flags", cmd.CommandPath())
	}
	name, _, _ = strings.Cut(name, "=")
	if !cmd.HasParent() && slices.Contains(verbNames(cmd), name) {
		return ipc.Errorf(ipc.CodeUsage, "there is no flag --%s", name).WithHint("it is a verb: `toolsd %s`", name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := tool.Nearest(name, names, 1); len(near) > 0 {
		return ipc.Errorf(ipc.CodeUsage, "there is no flag --%s", name).WithHint("did you mean --%s?", near[0])
	}
	return ipc.Errorf(ipc.CodeUsage, "there is no flag --%s", name).WithHint("`%s --help` lists the flags", cmd.CommandPath())
}

// unfitFlag says what a flag takes, in place of what the parser of its type says.
func unfitFlag(cmd *cobra.Command, f *pflag.Flag, value string) *ipc.Error {
	want, example := "", ""
	switch f.Value.Type() {
	case "int":
		want, example = "a whole number", flagName(f)+" 10"
	case "duration":
		want, example = "a time with its unit", flagName(f)+" 30s"
		if _, err := strconv.ParseUint(value, 10, 32); err == nil {
			example = flagName(f) + " " + value + "s"
		}
	case "bool":
		want, example = "true or false", "--"+f.Name
	default:
		return usage(cmd, "%s does not take %q", flagName(f), value)
	}
	return usage(cmd, "%s takes %s, not %q", flagName(f), want, value).WithHint("for example %s", example)
}

// flagName is a flag as it is typed most.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

func verbNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

func nearestVerbs(root *cobra.Command, typed string) []string {
	near := tool.Nearest(typed, verbNames(root), 2)
	for i := range near {
		near[i] = "`toolsd " + near[i] + "`"
	}
	return near
}
