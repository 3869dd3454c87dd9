package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher/settings"
)

const (
	// waitForServers is how long a search that found nothing waits for servers
	// that were never indexed. npx fetches a package in that time, mostly.
	waitForServers = 10 * time.Second
	// searchAgain is how often it looks meanwhile; a search takes 0.2 ms.
	searchAgain = 100 * time.Millisecond
	// waitForFiles is how long a first search in a project waits until its config
	// files were read, which takes some milliseconds unless its disk hangs;
	// readAgain is how often it looks.
	waitForFiles = time.Second
	readAgain    = 5 * time.Millisecond
)

func newSearchCommand(a *app) *cobra.Command {
	var r ipc.SearchRequest
	var noWait bool
	cmd := &cobra.Command{
		Use:   "search <words>...",
		Short: "Find tools by what they do",
		Long: `Find tools by what they do, best first. An id or an exact name is always found,
and several of them are all returned.`,
		Example: `  toolsd search export gerber
  toolsd search create issue --server github -n 10
  toolsd search kicad::export_gerber github::create_issue
  toolsd search gerber --json | jq -r '.matches[].tool_id'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Query = strings.Join(args, " ")
			if strings.TrimSpace(r.Query) == "" {
				return ipc.Errorf(ipc.CodeEmptyQuery, "the query is empty").WithHint("say what the tool should do: `toolsd search export gerber`")
			}
			if cmd.Flags().Changed("max") && r.Max < 1 {
				return usage(cmd, "-n %d: at least one match must be asked for", r.Max)
			}
			for name, value := range map[string]string{"server": r.Server, "category": r.Category} {
				if cmd.Flags().Changed(name) && value == "" {
					return usage(cmd, "--%s: its name is empty", name) // it would search everywhere
				}
			}
			threshold, err := settings.EnvironmentThreshold(a.getenv)
			if err != nil {
				return usage(cmd, "%v", err)
			}
			r.Threshold = threshold
			return a.search(cmd.Context(), r, noWait)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&r.Max, "max", "n", 0, "at most this `number` (default: toolSearch.maxResults)")
	flags.StringVar(&r.Server, "server", "", "only tools of this `server`")
	flags.StringVar(&r.Category, "category", "", "only tools of this `category`")
	flags.BoolVar(&r.Explain, "explain", false, "say why each one matched")
	flags.BoolVar(&noWait, "no-wait", false, "do not wait for a server's first start")
	_ = cmd.RegisterFlagCompletionFunc("server", a.completeServers)
	_ = cmd.RegisterFlagCompletionFunc("category", a.completeCategories)
	return cmd
}

func (a *app) search(ctx context.Context, r ipc.SearchRequest, noWait bool) error {
	client, dir, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r.CWD = dir
	result, err := client.Search(ctx, r)
	if e, ok := errors.AsType[*ipc.Error](err); ok && e.Code == ipc.CodeNotFound {
		// The server or category may be of a project whose config files nobody has
		// read yet. A search waits for no file, a look at the servers does.
		if _, statusErr := client.Status(ctx, ipc.StatusRequest{CWD: dir}); statusErr == nil {
			result, err = client.Search(ctx, r)
		}
	}
	for again := time.Now().Add(waitForFiles); err == nil && result.Unread != "" && time.Now().Before(again) && ctx.Err() == nil; {
		time.Sleep(readAgain)
		result, err = client.Search(ctx, r)
	}
	if err != nil {
		return err
	}
	if result.Count == 0 && len(result.Waiting) > 0 && !noWait {
		if result, err = a.searchUntilIndexed(ctx, client, r, result.Waiting); err != nil {
			return err
		}
	}
	a.print(result, func(s *screen) { showMatches(s, result, r.Explain) })
	if result.Count == 0 {
		a.nothingFound(ctx, client, dir, result)
		return exit(exitNotFound)
	}
	a.tellServers(result)
	a.hint("%s", nextAfterSearch(result))
	return nil
}

// tellServers says which of the servers that were named could not be searched.
func (a *app) tellServers(r *ipc.SearchResult) {
	for _, text := range r.Servers {
		if !a.json {
			a.say("%s", text)
		}
	}
}

// searchUntilIndexed repeats a search that found nothing, until it finds
// something or there is nothing left to wait for.
func (a *app) searchUntilIndexed(ctx context.Context, client *ipc.Client, r ipc.SearchRequest, waiting []string) (*ipc.SearchResult, error) {
	a.say("waiting for %s (up to %v; --no-wait forbids)", strings.Join(waiting, ", "), waitForServers)
	end := time.After(waitForServers)
	ticker := time.NewTicker(searchAgain)
	defer ticker.Stop()
	for {
		late := false
		select {
		case <-ticker.C:
		case <-end:
			late = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		result, err := client.Search(ctx, r)
		if err != nil || result.Count > 0 || len(result.Waiting) == 0 || late {
			return result, err
		}
	}
}

func showMatches(s *screen, r *ipc.SearchResult, explain bool) {
	for _, m := range r.Matches {
		s.line("%s  %s", s.style(bold+";"+cyan, cleanLine(m.ToolID)), s.style(dim, cleanLine(aboutMatch(m, explain))))
		description, _, _ := strings.Cut(strings.TrimSpace(m.Description), "\n\n")
		lines := wrap(cleanLine(description), s.columns()-4)
		if len(lines) > 3 { // enough to tell tools apart; activate shows all of it
			lines = append(lines[:2], cut(lines[2]+" "+lines[3], s.columns()-4))
		}
		for _, l := range lines {
			s.line("    %s", l)
		}
		for _, e := range m.Matched {
			s.line("    %s", s.style(dim, cleanLine(fmt.Sprintf("%.2f  %s", math.Abs(e.Score), why(e))))) // a rest of rounding is no minus
		}
	}
}

// why words what a part of a score is for.
func why(e index.Evidence) string {
	switch {
	case e.How == "name":
		return fmt.Sprintf("the query names this tool, %s", e.Term)
	case e.How == "coverage":
		return "for how much of the query and of the tool's name matched"
	case e.How == "clause":
		return "for being the best tool of a sentence, or near to it"
	case e.How == "server":
		return "for other tools of its server that fit too"
	case e.Word == "":
		return e.How
	case e.Field == "":
		return fmt.Sprintf("%s matched %q (%s)", e.Word, e.Term, e.How)
	}
	return fmt.Sprintf("%s matched %q in the %s (%s)", e.Word, e.Term, e.Field, e.How)
}

func aboutMatch(m ipc.Match, explain bool) string {
	parts := []string{m.Category, count(m.Tokens, "token", "tokens")}
	if m.State != ipc.ToolReady {
		parts = append(parts, string(m.State))
	}
	if explain {
		parts = append(parts, fmt.Sprintf("score %.2f", m.Score))
	}
	return strings.Join(parts, " · ")
}

func (a *app) nothingFound(ctx context.Context, client *ipc.Client, dir string, r *ipc.SearchResult) {
	if a.json {
		return
	}
	if status, err := client.Status(ctx, ipc.StatusRequest{CWD: dir}); err == nil && len(status.Servers) == 0 {
		a.say("there is nothing to search for %q in", r.Query)
		a.hint("%s; the exit code is %d as for every search without a match", a.noServers(), exitNotFound)
		return
	}
	a.say("nothing matches %q", r.Query)
	a.tellServers(r)
	switch {
	case len(r.DidYouMean) > 0:
		a.hint("did you mean %s?", strings.Join(r.DidYouMean, " or "))
	case len(r.Waiting) > 0:
		a.hint("not searched yet: %s; `toolsd status` shows how far they are", strings.Join(r.Waiting, ", "))
	case len(r.Servers) == 0:
		a.hint("`toolsd categories` shows what there is")
	}
}

func nextAfterSearch(r *ipc.SearchResult) string {
	best := r.Matches[0].ToolID
	next := fmt.Sprintf("`toolsd activate %s` shows its arguments, `toolsd call %s` runs it", best, best)
	for _, w := range r.Rewrites {
		if w.Why == "typo" && len(w.As) > 0 {
			next = fmt.Sprintf("%q was read as %q; ", w.Word, w.As[0]) + next
		}
	}
	return next
}
