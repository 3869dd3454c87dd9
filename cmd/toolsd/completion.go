package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// completeWithin is how long a completion may ask the daemon: who types waits.
const completeWithin = 200 * time.Millisecond

// ifRunning gives a completion the daemon that runs, if one does. A completion
// never starts one, and has nothing to say when something is wrong.
func (a *app) ifRunning(ask func(ctx context.Context, client *ipc.Client, dir string)) {
	dirs, err := platform.FindDirs(a.getenv)
	if err != nil {
		return
	}
	dir, err := a.directory()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	client := ipc.NewClient(dirs.Socket)
	defer client.Close()
	ask(ctx, client, dir)
}

// described is a candidate with the text that shells show beside it.
func described(word, text string) string {
	return cobra.CompletionWithDesc(cleanLine(word), cut(cleanLine(firstSentence(text)), 80))
}

// completeServers and completeCategories are for flags; first makes them the
// completion of a verb's only argument.
func (a *app) completeServers(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	a.ifRunning(func(ctx context.Context, client *ipc.Client, dir string) {
		status, err := client.Status(ctx, ipc.StatusRequest{CWD: dir})
		if err != nil {
			return
		}
		for _, s := range status.Servers {
			out = append(out, described(s.Name, string(s.State)+", "+count(s.Tools, "tool", "tools")))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeCategories(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	a.ifRunning(func(ctx context.Context, client *ipc.Client, dir string) {
		list, err := client.Categories(ctx, ipc.CategoriesRequest{CWD: dir})
		if err != nil {
			return
		}
		for _, c := range list.Categories {
			out = append(out, described(c.Name, c.Description))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// first completes the first argument only.
func first(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeTools completes any number of tool ids.
func (a *app) completeTools(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.toolIDs(args, typed), cobra.ShellCompDirectiveNoFileComp
}

// toolIDs are the ids that begin with typed.
func (a *app) toolIDs(besides []string, typed string) []string {
	var out []string
	a.ifRunning(func(ctx context.Context, client *ipc.Client, dir string) {
		r := ipc.ToolsRequest{CWD: dir}
		if server, _, ok := strings.Cut(typed, "::"); ok {
			r.Server = server
		}
		list, err := client.Tools(ctx, r)
		if err != nil {
			return
		}
		for _, t := range list.Tools {
			if strings.HasPrefix(t.ToolID, typed) && !slices.Contains(besides, t.ToolID) {
				out = append(out, described(t.ToolID, t.Description))
			}
		}
	})
	return out
}

func (a *app) completeSubjects(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	out, directive := a.completeServers(cmd, args, typed)
	if strings.Contains(typed, ":") {
		out = nil
	}
	return append(out, a.toolIDs(nil, typed)...), directive
}

// completeCall completes the id and then the names, types and values of its
// arguments.
func (a *app) completeCall(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.toolIDs(nil, typed), cobra.ShellCompDirectiveNoFileComp
	}
	if strings.HasPrefix(typed, "@") {
		return nil, cobra.ShellCompDirectiveDefault // a file
	}
	var out []string
	directive := cobra.ShellCompDirectiveNoFileComp
	a.ifRunning(func(ctx context.Context, client *ipc.Client, dir string) {
		known, err := client.Activate(ctx, ipc.ActivateRequest{ToolIDs: args[:1], CWD: dir})
		if err != nil || len(known.Tools) == 0 {
			return
		}
		out = completeArguments(arguments(known.Tools[0].Definition), args[1:], typed)
	})
	if !strings.Contains(typed, "=") {
		directive |= cobra.ShellCompDirectiveNoSpace // the value follows
	}
	return out, directive
}

func completeArguments(all []argument, given []string, typed string) []string {
	var out []string
	name, _, hasValue := strings.Cut(typed, "=")
	for _, arg := range all {
		sign := "="
		if !arg.Sole || arg.Type == "object" || arg.Type == "array" {
			sign = ":="
		}
		switch {
		case hasValue && strings.TrimSuffix(name, ":") == arg.Name:
			values := arg.Enum
			if len(values) == 0 && arg.Sole && arg.Type == "boolean" {
				values = []string{"true", "false"}
			}
			for _, v := range values {
				out = append(out, described(name+"="+v, arg.Description))
			}
		case !hasValue && !slices.ContainsFunc(given, func(g string) bool {
			key, _, _ := strings.Cut(g, "=")
			return strings.TrimSuffix(key, ":") == arg.Name
		}):
			out = append(out, described(arg.Name+sign, arg.form()+" "+arg.Description))
		}
	}
	return out
}
