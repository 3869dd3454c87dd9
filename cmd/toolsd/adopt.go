package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/adopt"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// adoptions is the answer of `toolsd adopt` and `toolsd release`. Error stands
// beside what was done when a client failed.
type adoptions struct {
	Clients []adopt.Client `json:"clients"`
	Error   *ipc.Error     `json:"error,omitempty"`
}

func newAdoptCommand(a *app) *cobra.Command {
	v := &adoptVerb{app: a, name: "adopt", plan: (*adopt.Session).Adopt}
	cmd := &cobra.Command{
		Use:   "adopt <client> | --all",
		Short: "Move a client's MCP servers into toolsd",
		Long: `Move the servers of a client's own config files into toolsd's config.json and
put the one entry for toolsd mcp in their place, in that client's spelling. It
needs no daemon and asks nothing; --dry-run shows what it would do. Comments,
order and everything else in the files stay. A backup is made first;
` + "`toolsd release`" + ` undoes it.

These stay in the client's file, and are named with the reason: servers that
are switched off there; servers that only the client can run ("${input:…}", a
unix:// url, one that its editor brings); servers that depend on the open
project ("${workspaceFolder}"); Claude Code's servers of single projects;
managed files. Project files are not touched.

A server keeps its name. When config.json has another server of that name, it
becomes name-<client>; when it has the same server, that one serves both.

With --json:
  {"clients":[{"client","files":[{"path","diff","moved":[…],"as":{…},
   "kept":[{"name","reason"}],"conflicts":[…],"backup"}],"status","message"}]}
status is adopted, would-adopt (--dry-run), nothing or failed; the last file is
config.json when it changes. When a client failed there is "error", too. Values
of env and headers are *** in every diff.

Exit: 0 also when there was nothing to do; 1 when a client failed, of which
nothing was changed then; 2 for a client that toolsd does not know; 4 for one
that has no config file here.`,
		Example: `  toolsd adopt cursor --dry-run
  toolsd adopt claude-code
  toolsd adopt --all --json | jq -r '.clients[] | .client + ": " + .status'`,
	}
	return v.complete(cmd)
}

// adoptVerb is what adopt and release have in common.
type adoptVerb struct {
	*app
	name   string
	plan   func(*adopt.Session, string) (*adopt.Plan, error)
	all    bool
	dryRun bool
}

func (v *adoptVerb) complete(cmd *cobra.Command) *cobra.Command {
	cmd.Args = takes(0, 1, "one client, or --all")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return clientSlugs(), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = v.run
	cmd.Flags().BoolVar(&v.all, "all", false, "every client")
	cmd.Flags().BoolVar(&v.dryRun, "dry-run", false, "show what would change, and change nothing")
	return cmd
}

// clientSlugs are the clients that can be adopted.
func clientSlugs() []string {
	var slugs []string
	for _, c := range clientconfig.Clients() {
		if c.Slug != "toolsd" {
			slugs = append(slugs, c.Slug)
		}
	}
	return slugs
}

func (v *adoptVerb) run(cmd *cobra.Command, args []string) error {
	switch {
	case v.all && len(args) > 0:
		return usage(cmd, "--all and %q exclude each other", args[0])
	case !v.all && len(args) == 0:
		return usage(cmd, "`%s` needs a client, or --all", cmd.CommandPath())
	}
	if !v.all && !slices.Contains(clientSlugs(), args[0]) {
		e := ipc.Errorf(ipc.CodeUsage, "there is no client %q", args[0])
		if near := tool.Nearest(args[0], clientSlugs(), 2); len(near) > 0 {
			return e.WithHint("did you mean %s?", strings.Join(near, " or "))
		}
		return e.WithHint("the clients are %s", strings.Join(clientSlugs(), ", "))
	}
	session, err := v.session()
	if err != nil {
		return err
	}
	slugs := args
	if v.all {
		slugs = clientSlugs()
		if v.name == "release" {
			slugs = session.Clients()
		}
	}
	doc := adoptions{Clients: []adopt.Client{}}
	var failed []string
	for _, slug := range slugs {
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		c, err := v.one(session, slug)
		if missing, ok := errors.AsType[*adopt.MissingError](err); ok {
			if v.all {
				continue
			}
			return ipc.Errorf(ipc.CodeNotFound, "%v", missing).WithHint("start %s once, or write the file, then try again", missing.Client)
		}
		if err != nil {
			failed = append(failed, slug)
			doc.Error = adoptError(err)
		}
		doc.Clients = append(doc.Clients, c)
	}
	if len(failed) > 0 && v.all {
		doc.Error = ipc.Errorf(ipc.CodeInternal, "%d of %d clients failed: %s", len(failed), len(doc.Clients), strings.Join(failed, ", ")).
			WithHint("nothing of these was changed; the message of each says why")
	}
	if len(doc.Clients) == 0 && v.name == "adopt" {
		return ipc.Errorf(ipc.CodeNotFound, "none of the %d clients that toolsd knows has a config file here", len(slugs)).
			WithHint("`toolsd adopt <client>` says where it looks for one")
	}
	if v.json {
		v.out.bytes(ipc.Encode(doc))
		if doc.Error != nil {
			return exit(exitCode(doc.Error.Code))
		}
		return nil
	}
	if len(doc.Clients) == 0 {
		v.out.line("nothing to release: no client is adopted")
	}
	if doc.Error != nil {
		return doc.Error
	}
	v.afterwards(doc.Clients)
	return nil
}

// one plans, shows and applies what concerns one client.
func (v *adoptVerb) one(session *adopt.Session, slug string) (adopt.Client, error) {
	failed := func(err error) (adopt.Client, error) {
		c := adopt.Client{Client: slug, Files: []adopt.File{}, Status: adopt.Failed, Message: err.Error()}
		if !v.json && v.all {
			v.out.line("%s %s", v.out.style(red, slug+":"), clean(c.Message))
		}
		return c, err
	}
	plan, err := v.plan(session, slug)
	if _, ok := errors.AsType[*adopt.MissingError](err); ok {
		return adopt.Client{}, err
	}
	if err != nil {
		return failed(err)
	}
	if !v.json { // before anything changes
		v.showPlan(plan)
		if err := v.flush(); err != nil {
			return failed(err)
		}
	}
	if err := session.Apply(plan); err != nil {
		return failed(err)
	}
	if !v.json {
		for _, f := range plan.Files {
			if f.Backup != "" && !v.dryRun && v.name == "adopt" {
				v.out.line("  %s", v.out.style(dim, "backup: "+home(f.Backup)))
			}
		}
		v.out.line("%s", v.out.style(green, cleanLine(plan.Message))) // it begins with the client's name
	}
	return plan.Client, nil
}

func adoptError(err error) *ipc.Error {
	e := ipc.Errorf(ipc.CodeInternal, "%v", err)
	if _, ok := errors.AsType[*clientconfig.SyntaxError](err); ok {
		return e.WithHint("nothing was changed; mend the file first")
	}
	if e2, ok := errors.AsType[*adopt.ReadOnlyError](err); ok {
		return e.WithHint("nothing was changed; if you want it changed: chmod u+w %s", e2.Path)
	}
	if _, ok := errors.AsType[*adopt.ChangedError](err); ok {
		return e.WithHint("close the program that writes it, and try again")
	}
	return e
}

func (v *adoptVerb) showPlan(p *adopt.Plan) {
	s := v.out
	for _, f := range p.Files {
		for line := range strings.Lines(f.Diff) {
			line = clean(strings.TrimRight(line, "\r\n"))
			style := ""
			switch {
			case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
				style = bold
			case strings.HasPrefix(line, "@@"):
				style = cyan
			case strings.HasPrefix(line, "-"):
				style = red
			case strings.HasPrefix(line, "+"):
				style = green
			}
			s.line("%s", s.style(style, line))
		}
	}
	for _, f := range p.Files {
		for _, name := range f.Moved {
			if as := f.As[name]; as != "" {
				s.line("  %s becomes %s in config.json, which has another %s", cleanLine(name), cleanLine(as), cleanLine(name))
			}
		}
		for _, k := range f.Kept {
			s.line("  %s stays in %s: %s", s.style(bold, cleanLine(k.Name)), home(f.Path), cleanLine(k.Reason))
		}
		for _, k := range f.Conflicts {
			s.line("  %s %s in %s: %s", s.style(yellow, "conflict:"), cleanLine(k.Name), home(f.Path), cleanLine(k.Reason))
		}
	}
}

func (v *adoptVerb) afterwards(clients []adopt.Client) {
	changed := slices.ContainsFunc(clients, func(c adopt.Client) bool { return c.Status == adopt.Adopted || c.Status == adopt.Released })
	switch {
	case v.dryRun:
		v.hint("nothing was changed; without --dry-run it is done")
	case changed && v.name == "adopt":
		v.hint("restart the client to use it; `toolsd release` undoes it, `toolsd status` shows the servers")
	case changed:
		v.hint("restart the client to use its servers")
	}
}

// session is the machine that adopt and release work on.
func (v *adoptVerb) session() (*adopt.Session, error) {
	dirs, err := platform.FindDirs(v.getenv)
	if err != nil {
		return nil, err
	}
	homeDir, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("finding the files of the clients: %w", err)
	}
	shim, err := v.shim()
	if err != nil {
		return nil, err
	}
	return adopt.New(adopt.World{
		Env:    clientconfig.Env{GOOS: runtime.GOOS, Home: homeDir, Getenv: v.getenv},
		Config: dirs.ConfigFile, Managed: dirs.ManagedConfig, State: dirs.State,
		Shim: shim, DryRun: v.dryRun,
	}), nil
}

// terminal are clients that are started in a terminal, and so have its PATH. What
// a desktop starts has a PATH of its own.
var terminal = []string{"claude-code", "copilot-cli", "amazon-q", "codex", "gemini", "qwen", "opencode", "goose", "amp", "crush", "factory"}

// shim is how clients start toolsd mcp.
func (v *adoptVerb) shim() (func(slug string) clientconfig.Entry, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	command := self
	found, err := platform.ProcessEnviron().LookPath("toolsd", "")
	inPath := err == nil && sameFile(found, self)
	if inPath {
		command = found // often a link that stays when a new version is installed
	}
	entry := clientconfig.Entry{Transport: clientconfig.Stdio, Command: command, Args: []string{"mcp"}}
	if !clientconfig.IsSelf(entry) {
		return nil, ipc.Errorf(ipc.CodeInternal, "this program is called %s, and toolsd knows an entry of its own by the name toolsd", filepath.Base(self)).
			WithHint("rename it to toolsd, and run it as that")
	}
	if dir := v.getenv("TOOLSD_DIR"); dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("TOOLSD_DIR: %w", err)
		}
		entry.Env = map[string]string{"TOOLSD_DIR": dir}
	}
	return func(slug string) clientconfig.Entry {
		e := entry
		if inPath && slices.Contains(terminal, slug) {
			e.Command = "toolsd"
		}
		return e
	}, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
