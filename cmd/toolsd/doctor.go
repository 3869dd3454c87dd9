package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// findingStatus says how much a finding matters.
type findingStatus string

// Only statusFail makes the verb fail: something of what was configured does not
// work. A warning is about what will, or what costs more than it needs to.
const (
	statusOK   findingStatus = "ok"
	statusInfo findingStatus = "info"
	statusWarn findingStatus = "warn"
	statusFail findingStatus = "fail"
)

// finding is what one check says about one thing.
type finding struct {
	Code    string        `json:"code"`
	Status  findingStatus `json:"status"`
	Subject string        `json:"subject"` // the file, server or process that it is about
	Message string        `json:"message"`
	Hint    string        `json:"hint"`
}

// diagnosis is the answer of the verb.
type diagnosis struct {
	Checks []finding `json:"checks"`
}

// checks are all of them, in the order in which one explains the next. Codes are
// only ever added. A check never starts a daemon; what it mends with --fix is
// something that the next start of the daemon would mend too, or that only costs
// time to make again.
var checks = []struct {
	code  string
	about string
	run   func(*patient) []finding
}{
	{"directories", "the directories and who may look into them", checkDirectories},
	{"disk-space", "room for the index and the logs", checkDiskSpace},
	{"lock", "who is the daemon", checkLock},
	{"socket", "where the daemon listens", checkSocket},
	{"daemon", "whether it answers", checkDaemon},
	{"version-skew", "whether it is of this version", checkVersion},
	{"leftover-processes", "processes that a killed daemon left", checkLeftovers},
	{"service", "the service that starts the daemon at login", checkService},
	{"state-files", "approvals and names of tools", checkStateFiles},
	{"index-file", "the index of all tools", checkIndexFile},
	{"inotify", "how many files may be watched", checkInotify},
	{"login-shell", "where servers get their PATH from", checkLoginShell},
	{"config-files", "faults in config files", checkConfigFiles},
	{"client-files", "what the clients' files hold", checkClientFiles},
	{"variables", "variables that config files use", checkVariables},
	{"commands", "programs that servers are", checkCommands},
	{"servers", "servers that are down", checkServers},
	{"trust", "servers that wait for an approval", checkTrust},
	{"duplicate-servers", "one server under two names", checkDuplicates},
	{"direct-servers", "servers that a client starts itself beside toolsd", checkDirect},
	{"tool-patterns", "what pinned and categories name without effect", checkPatterns},
	{"tool-schemas", "schemas that clients or models refuse", checkSchemas},
	{"tool-names", "names over the limit of clients", checkNames},
	{"tool-texts", "texts of tools that steer the agent or hide something", checkTexts},
}

// patient is what the checks look at, found out once.
type patient struct {
	*app
	ctx context.Context
	fix bool

	cwd     string
	home    string
	dirs    platform.Dirs
	dirsErr error

	client    *ipc.Client // nil: no daemon answers
	daemonErr error       // why not; errNoneRuns when there is none
	status    *ipc.Status

	decided *trust.Decisions // what the user took back, for when no daemon answers; nil with dirsErr

	shell     platform.Environ
	shellTook time.Duration
	snapshot  *watcher.Snapshot // never nil
	clients   []clientFile

	tools    []index.Entry // as far as they are known, and agents may see them
	held     []tool.ID     // those that wait for an approval, of which nothing else is told
	toolsErr error

	reported map[string]bool // servers of which one check said why they do not work
}

// configRead bounds the reading of all config files: a file system that hangs is
// told by what is missing then.
const configRead = 5 * time.Second

func newDoctorCommand(a *app) *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong, with or without a daemon",
		Long: `Look for what is wrong: directories, socket, daemon, service, config files,
servers and tools. It works without a daemon and starts none. Each finding names
the place and what to type. The exit code is 1 when something does not work.

--fix mends what is safe: modes of own directories and files, a stale socket, a
damaged index, leftover processes.

The checks, by the code that --json prints:
` + listOfChecks(),
		Example: `  toolsd doctor
  toolsd doctor --fix          mend what is safe to mend
  toolsd doctor --json | jq '.checks[] | select(.status == "fail")'`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &patient{app: a, ctx: cmd.Context(), fix: fix, reported: map[string]bool{}}
			if err := p.admit(); err != nil {
				return err
			}
			defer p.discharge()
			d := diagnosis{Checks: []finding{}}
			for _, c := range checks {
				for _, f := range c.run(p) {
					f.Code = c.code
					d.Checks = append(d.Checks, f)
				}
				if err := p.ctx.Err(); err != nil {
					return err
				}
			}
			a.print(d, func(s *screen) { showDiagnosis(s, d) })
			if d.count(statusFail) > 0 {
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what is safe to mend")
	return cmd
}

// listOfChecks is for the help.
func listOfChecks() string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "\n  %-20s%s", c.code, c.about)
	}
	return b.String()
}

// admit finds out what the checks share. Only what makes every check senseless is
// an error.
func (p *patient) admit() (err error) {
	if p.cwd, err = p.directory(); err != nil {
		return err
	}
	p.home, _ = os.UserHomeDir()
	if p.dirs, p.dirsErr = platform.FindDirs(p.getenv); p.dirsErr == nil {
		p.decided = trust.Read(filepath.Join(p.dirs.State, "trust.json"))
		p.client, _, p.daemonErr = p.running(p.ctx)
		if p.daemonErr != nil {
			p.client = nil
		} else if p.status, err = p.client.Status(p.ctx, ipc.StatusRequest{CWD: p.cwd}); err != nil {
			p.daemonErr = err
		}
	} else {
		p.daemonErr = p.dirsErr
	}
	begin := time.Now()
	p.shell, err = platform.LoginEnviron(p.ctx, os.Environ)
	if err != nil {
		return err
	}
	p.shellTook = time.Since(begin)
	p.readConfig()
	p.readTools()
	return p.ctx.Err()
}

func (p *patient) discharge() {
	if p.client != nil {
		p.client.Close()
	}
}

// readConfig reads all config files as the daemon does.
func (p *patient) readConfig() {
	env := clientconfig.Env{GOOS: runtime.GOOS, Home: p.home, Getenv: p.getenv}
	w := watcher.New(watcher.Options{
		Env: env, ConfigFile: p.dirs.ConfigFile, ManagedFile: p.dirs.ManagedConfig,
		Environ: func(name string) (string, bool) {
			v := p.shell.Get(name)
			return v, v != ""
		},
	})
	ctx, cancel := context.WithCancel(p.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // ends when it is cancelled, and never by itself
	read, stop := context.WithTimeout(ctx, configRead)
	_ = w.Wait(read, p.cwd) // in time or not: Complete tells
	stop()
	p.snapshot = w.Latest()
	cancel()
	running.Wait()
	again, stop := context.WithTimeout(p.ctx, configRead)
	defer stop()
	p.clients = readClientFiles(again, env, p.snapshot.Settings.Clients, watcher.ReadFile)
}

// visible are the servers that a caller in this directory sees.
func (p *patient) visible() []watcher.Server {
	return slices.DeleteFunc(slices.Clone(p.snapshot.Servers), func(s watcher.Server) bool {
		return s.Source.Root != "" && !watcher.Visible(p.cwd, s.Source.Root)
	})
}

// mine are those of them whose definition may be shown and that would run: of the
// user's own files, not switched off, and not waiting for approval.
func (p *patient) mine() []watcher.Server {
	waits := map[string]bool{}
	if p.status != nil {
		for _, s := range p.status.Servers {
			waits[s.Name] = s.State == ipc.StatePending
		}
	}
	return slices.DeleteFunc(p.visible(), func(s watcher.Server) bool {
		return s.Source.Scope != clientconfig.User || s.Disabled || s.Rejected || waits[s.Name] || p.unsure("") || p.barred(s)
	})
}

// unsure reports whether what a file of that project says, or without one of the
// user's own, may not be shown because approvals decide about it: only the daemon
// compares them with what there is now.
func (p *patient) unsure(root string) bool {
	asks := p.snapshot.Settings.Trust.UserScope == "ask" || p.snapshot.SettingsUnread && p.decided != nil && p.decided.Rules().Ask
	return p.status == nil && (root != "" || asks)
}

// barred reports whether a server of the user's own waits although nobody is asked
// about those. With a daemon its status says so.
func (p *patient) barred(s watcher.Server) bool {
	return p.status == nil && s.Source.Scope == clientconfig.User && p.decided != nil && p.decided.Barred(trust.Subject(s.Key))
}

// underLock runs f while no daemon can start. It says whether it did.
func (p *patient) underLock(f func() error) (ran bool, err error) {
	lock, err := platform.AcquireLock(filepath.Join(p.dirs.State, lockName))
	switch {
	case errors.Is(err, platform.ErrLocked):
		return false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, err
	case err == nil:
		defer lock.Release()
	}
	return true, f()
}

// Findings, made short.

func good(subject, format string, args ...any) finding {
	return finding{Status: statusOK, Subject: subject, Message: fmt.Sprintf(format, args...)}
}

func note(subject, format string, args ...any) finding {
	return finding{Status: statusInfo, Subject: subject, Message: fmt.Sprintf(format, args...)}
}

func warning(subject, format string, args ...any) finding {
	return finding{Status: statusWarn, Subject: subject, Message: fmt.Sprintf(format, args...)}
}

func failure(subject, format string, args ...any) finding {
	return finding{Status: statusFail, Subject: subject, Message: fmt.Sprintf(format, args...)}
}

// do adds what to type.
func (f finding) do(format string, args ...any) finding {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// broken is a fail about an error that may know what to do.
func broken(subject string, err error, hint string) finding {
	var hinted interface{ Hint() string }
	switch e := err.(type) {
	case *platform.UnfitError:
		hinted = e
	case *platform.ServiceError:
		hinted = e
	}
	f := failure(subject, "%v", err)
	if e, ok := errors.AsType[*ipc.Error](err); ok {
		f.Hint = e.Hint
	}
	if hinted != nil {
		f.Hint = hinted.Hint()
	}
	if f.Hint == "" {
		f.Hint = hint
	}
	return f
}

func (d diagnosis) count(status findingStatus) int {
	n := 0
	for _, f := range d.Checks {
		if f.Status == status {
			n++
		}
	}
	return n
}

var findingStyles = map[findingStatus]string{statusOK: green, statusInfo: dim, statusWarn: yellow, statusFail: red}

// showDiagnosis prints the good ones in a line each and the others with what to do.
func showDiagnosis(s *screen, d diagnosis) {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.code))
	}
	for _, f := range d.Checks {
		text := f.Message
		if f.Subject != "" {
			text = home(f.Subject) + ": " + text
		}
		head := s.style(findingStyles[f.Status], fmt.Sprintf("%-4s", f.Status)) + "  " + s.style(bold, fmt.Sprintf("%-*s", width, f.Code)) + "  "
		s.hanging(head, width+8, "", text)
		if f.Hint != "" && f.Status != statusOK {
			s.hanging(strings.Repeat(" ", width+8), width+10, "", "→ "+f.Hint)
		}
	}
	s.line("")
	fails, warnings := d.count(statusFail), d.count(statusWarn)
	switch {
	case fails > 0:
		s.line("%s, %s", s.style(red, count(fails, "thing does not work", "things do not work")), count(warnings, "warning", "warnings"))
	case warnings > 0:
		s.line("%s", s.style(yellow, "it works; "+count(warnings, "warning", "warnings")))
	default:
		s.line("%s", s.style(green, "all is well"))
	}
}
