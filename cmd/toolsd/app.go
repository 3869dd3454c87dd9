package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// Exit codes, the same for every verb.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitNoDaemon   = 3
	exitNotFound   = 4
	exitNeedsTrust = 5
	exitToolError  = 6
)

// app is what the verbs share: streams, global flags, and the way to the daemon.
type app struct {
	in     *os.File
	out    *screen // what was asked for
	err    *screen // problems, hints, progress
	getenv func(string) string

	buffer  *bufio.Writer // under out
	cobra   bytes.Buffer  // what cobra itself prints: helps and completion scripts
	json    bool
	cwd     string
	noStart bool
	ran     bool // a verb began, so an error is no longer about how it was typed
}

// shortLived is the heap up to which a verb that answers and ends collects no
// garbage: collecting costs it a tenth of its time and gives nothing back.
const shortLived = 128 << 20

// longLived is for the verbs that stay: it takes collectLess back.
var longLived = func() {}

func collectLess() {
	limit, percent := debug.SetMemoryLimit(shortLived), debug.SetGCPercent(-1)
	longLived = func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// run is the program: one verb with its arguments, and the exit code.
func run(args []string, in, out, errs *os.File) int {
	collectLess()
	ctx, stop := signal.NotifyContext(context.Background(), wantedSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends the process at once

	buffered := bufio.NewWriterSize(out, 32<<10)
	a := &app{in: in, buffer: buffered, out: newScreen(buffered, out), err: newScreen(errs, errs), getenv: os.Getenv}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if a.cobra.Len() > 0 {
		if a.json && !strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // a shell asks for what follows --json
			a.out.bytes(ipc.Encode(textAnswer{a.cobra.String()}))
		} else {
			a.out.bytes(a.cobra.Bytes())
		}
	}
	if !a.json && !a.ran {
		a.json = asksForJSON(args) // cobra stops reading flags at the first mistake
	}
	code := a.report(ctx, err)
	if err := buffered.Flush(); err != nil && code == 0 {
		fmt.Fprintf(errs, "toolsd: writing the output: %v\n", err)
		return exitFailed
	}
	return code
}

// textAnswer is a help or a completion script with --json.
type textAnswer struct {
	Text string `json:"text"`
}

// wantedSignals ask a verb to end. One that is ignored, by nohup or for a job in
// the background of a script, stays so.
func wantedSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}

// exit ends a verb that has already printed what it has to say.
type exit int

func (exit) Error() string { return "" }

// report prints an error and returns the exit code that goes with it.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	e := a.explain(ctx, err)
	if a.json {
		a.out.bytes(ipc.Encode(ipc.ErrorDocument{Error: e}))
		return exitCode(e.Code)
	}
	_ = a.flush()
	head := a.err.style(red, "toolsd:") + " "
	if message := clean(briefly(e.Message)); strings.Contains(message, "\n") {
		a.err.line("%s%s", head, message) // its lines are its own
	} else {
		a.err.hanging(head, 8, "", message)
	}
	if e.Code == ipc.CodeBadArguments && e.Tool != nil {
		a.err.signature(e.Tool)
	}
	if e.RPC != nil && len(e.RPC.Data) > 0 {
		a.err.line("%s", clean(string(e.RPC.Data)))
	}
	a.hint("%s", e.Hint)
	return exitCode(e.Code)
}

// explain gives an error its code and hint.
func (a *app) explain(ctx context.Context, err error) *ipc.Error {
	if e, ok := errors.AsType[*ipc.Error](err); ok {
		return e
	}
	if unfit, ok := errors.AsType[*platform.UnfitError](err); ok {
		return ipc.Errorf(ipc.CodeNoDaemon, "%v", err).WithHint("%s", unfit.Hint())
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ipc.Errorf(ipc.CodeCancelled, "cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return ipc.Errorf(ipc.CodeTimeout, "%v", err)
	case !a.ran:
		return ipc.Errorf(ipc.CodeUsage, "%v", err).WithHint("`toolsd --help` lists the verbs")
	}
	return ipc.AsError(err)
}

func exitCode(c ipc.Code) int {
	switch c {
	case ipc.CodeUsage, ipc.CodeBadArguments, ipc.CodeEmptyQuery, ipc.CodeLocked, ipc.CodeTooLarge:
		return exitUsage
	case ipc.CodeNoDaemon, ipc.CodeVersionSkew:
		return exitNoDaemon
	case ipc.CodeNotFound, ipc.CodeAmbiguous:
		return exitNotFound
	case ipc.CodeNeedsTrust:
		return exitNeedsTrust
	case ipc.CodeToolError:
		return exitToolError
	}
	return exitFailed
}

// print writes v as JSON, or lets show write it for people.
func (a *app) print(v any, show func(*screen)) {
	if a.json {
		a.out.bytes(ipc.Encode(v))
		return
	}
	show(a.out)
}

// flush writes out what was printed so far. Its error comes again at the end.
func (a *app) flush() error { return a.buffer.Flush() }

// hint tells a person what to type next. It never goes to stdout.
func (a *app) hint(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" && !a.json {
		_ = a.flush() // on a terminal a hint stands below what it is about
		a.err.hanging(a.err.style(dim, "hint:")+" ", 6, "", text)
	}
}

// say tells a person what goes on meanwhile.
func (a *app) say(format string, args ...any) {
	_ = a.flush()
	a.err.hanging("", 0, "", fmt.Sprintf(format, args...))
}

// directory is the one whose view the verb has: --cwd, or where it runs.
func (a *app) directory() (string, error) {
	if a.cwd == "" {
		wd, err := os.Getwd()
		if err != nil {
			return "", fmt.Errorf("finding the working directory: %w", err)
		}
		return wd, nil
	}
	dir, err := filepath.Abs(a.cwd)
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", ipc.Errorf(ipc.CodeUsage, "--cwd %s: there is no such directory", a.cwd).WithHint("leave --cwd out to use the present directory")
	case err != nil:
		return "", ipc.Errorf(ipc.CodeUsage, "--cwd %s: %v", a.cwd, err)
	case !info.IsDir():
		return "", ipc.Errorf(ipc.CodeUsage, "--cwd %s: that is not a directory", a.cwd)
	}
	return dir, nil
}

// reach is what most verbs begin with: the directory and the daemon.
func (a *app) reach(ctx context.Context) (*ipc.Client, string, error) {
	dir, err := a.directory()
	if err != nil {
		return nil, "", err
	}
	client, err := a.connect(ctx)
	return client, dir, err
}

// asksForJSON finds --json where it was not parsed.
func asksForJSON(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == "--json" || arg == "--json=true" {
			return true
		}
	}
	return false
}

// takes is the check of a verb's arguments: their number, and what they are, for
// the message.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage(cmd, "`%s` needs %s", cmd.CommandPath(), what)
		case most >= 0 && len(args) > most && most == 0:
			return usage(cmd, "`%s` takes no arguments, but got %q", cmd.CommandPath(), args[0])
		case most >= 0 && len(args) > most:
			return usage(cmd, "`%s` takes %s, and there is one too many: %q", cmd.CommandPath(), what, args[most])
		}
		return nil
	}
}

// usage is an error in what was typed, with how the verb is typed as its hint.
func usage(cmd *cobra.Command, format string, args ...any) *ipc.Error {
	return ipc.Errorf(ipc.CodeUsage, format, args...).WithHint("it is typed `%s`", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
}
