package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// serviceToken marks the daemon of the service manager, as a verb's token marks
// the one that the verb started: when another daemon holds the lock it ends with
// 0, so that no service manager starts it again and again.
const serviceToken = "service"

// carried are the variables that decide where the daemon keeps its things and
// where the clients keep theirs. A service manager knows none that a shell sets,
// and a daemon without them would be another one.
var carried = []string{
	"TOOLSD_DIR", "TOOLSD_SOCKET",
	"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
	"CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME",
}

// handovers is how often the service's daemon is tried when an agent's start
// takes the lock in between.
const handovers = 3

// serviceAnswer is what all of these verbs print with --json.
type serviceAnswer struct {
	Service serviceInfo `json:"service"`
	Changed bool        `json:"changed"`
}

type serviceInfo struct {
	platform.ServiceStatus
	DaemonPID int  `json:"daemon_pid"` // of the daemon that answers, whoever started it
	Serves    bool `json:"serves"`     // that daemon is the service's
}

// serviceScope is what the flags say.
type serviceScope struct {
	system bool
	user   string
}

func newServiceCommand(a *app) *cobra.Command {
	var scope serviceScope
	cmd := &cobra.Command{
		Use:   "service <verb>",
		Short: "Have the system start the daemon at login",
		Long: `Have the system's service manager start the daemon at login: systemd on Linux,
launchd on macOS, the task scheduler on Windows. It is not needed for anything,
since every verb and every agent starts a daemon when none runs; with it the
tools are warm before the first agent asks, and a daemon that crashed comes
back.`,
		Example: `  toolsd service install
  toolsd service status
  sudo toolsd service install --system --user "$USER"
  toolsd service uninstall`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "`toolsd service` needs a verb").WithHint("it is one of install, uninstall, start, stop, restart and status")
			}
			return usage(cmd, "there is no verb `toolsd service %s`", args[0]).WithHint("it is one of install, uninstall, start, stop, restart and status")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&scope.system, "system", false, "for the whole machine, started at boot")
	cmd.PersistentFlags().StringVar(&scope.user, "user", "", "with --system: the `name` of the user whose daemon it is")
	for _, v := range []struct {
		name, short string
		run         func(context.Context, *platform.Service, serviceScope) (bool, error)
		say         func(s *screen, answer serviceAnswer)
	}{
		{"install", "Start the daemon at every login, and now", a.installService, nil},
		{"uninstall", "Stop it and do not start it at login any more", a.uninstallService, sayUninstalled},
		{"start", "Start it, in place of a daemon that a verb or an agent started", a.startService, nil},
		{"stop", "Stop it until the next login", a.stopService, nil},
		{"restart", "Stop it and start it", a.restartService, nil},
		{"status", "Show whether it is installed, enabled and running", nil, nil},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: v.name, Short: v.short, Example: "  toolsd service " + v.name,
			Args: takes(0, 0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				ctx := cmd.Context()
				service, err := a.findService(cmd, scope)
				if err != nil {
					return serviceProblem(err)
				}
				answer := serviceAnswer{}
				if v.run != nil {
					if answer.Changed, err = v.run(ctx, service, scope); err != nil {
						return serviceProblem(err)
					}
				}
				if answer.Service, err = a.serviceInfo(ctx, service); err != nil && v.name != "uninstall" {
					return serviceProblem(err)
				}
				say := v.say
				if say == nil {
					say = sayService
				}
				a.print(answer, func(s *screen) { say(s, answer) })
				a.serviceHints(v.name, service, answer.Service)
				return nil
			},
		})
	}
	cmd.AddCommand(newServiceRunCommand(a))
	return cmd
}

// newServiceRunCommand is the daemon as a task of Windows starts it, which can set
// no variables.
func newServiceRunCommand(a *app) *cobra.Command {
	var env []string
	cmd := &cobra.Command{
		Use: "run", Hidden: true, Short: "Run the daemon for a service manager that sets no variables",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, kv := range env {
				name, value, _ := strings.Cut(kv, "=")
				if err := os.Setenv(name, value); err != nil {
					return fmt.Errorf("setting %s: %w", name, err)
				}
			}
			return a.serve(cmd.Context(), serviceToken)
		},
	}
	cmd.Flags().StringArrayVar(&env, "env", nil, "`NAME=value` to set")
	return cmd
}

// findService is the service that the flags mean.
func (a *app) findService(cmd *cobra.Command, scope serviceScope) (*platform.Service, error) {
	if scope.user != "" && !scope.system {
		return nil, usage(cmd, "--user goes with --system; without it the service is your own")
	}
	if scope.system && scope.user == "" && cmd.Name() == "install" {
		if scope.user = a.getenv("SUDO_USER"); scope.user == "" || scope.user == "root" {
			return nil, usage(cmd, "a service of the whole machine needs the name of the user whose servers it runs").WithHint("type `sudo toolsd service install --system --user NAME`")
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	dirs, err := platform.FindDirs(a.getenv)
	if err != nil {
		return nil, err
	}
	o := platform.ServiceOptions{
		Executable: platform.StablePath(self, a.getenv), Args: []string{"serve", detachedFlag + "=" + serviceToken},
		System: scope.system, User: scope.user, Getenv: a.getenv,
	}
	names := carried
	if scope.system {
		names = carried[:2] // the others are those of the user who types this, not of the one whose daemon it is
	} else {
		o.Dir = dirs.State
	}
	for _, name := range names {
		value := a.getenv(name)
		if value == "" {
			continue
		}
		if !filepath.IsAbs(value) {
			if !strings.HasPrefix(name, "TOOLSD_") {
				continue // as good as unset, for toolsd as for everybody
			}
			if value, err = filepath.Abs(value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		o.Env = append(o.Env, name+"="+value)
	}
	return platform.FindService(o)
}

// serviceProblem gives an error of a service manager its code and hint.
func serviceProblem(err error) error {
	var hint interface{ Hint() string }
	if none, ok := errors.AsType[*platform.NoServicesError](err); ok {
		hint = none
	} else if e, ok := errors.AsType[*platform.ServiceError](err); ok {
		hint = e
	} else {
		return err
	}
	return ipc.Errorf(ipc.CodeInternal, "%v", err).WithHint("%s", hint.Hint())
}

// errNotInstalled is what start, stop and restart say.
func errNotInstalled() error {
	return ipc.Errorf(ipc.CodeNotFound, "the service is not installed").WithHint("`toolsd service install` installs and starts it; `toolsd start` starts a daemon without it")
}

func (a *app) installService(ctx context.Context, service *platform.Service, scope serviceScope) (bool, error) {
	before, err := service.Status(ctx)
	if err != nil {
		return false, err
	}
	if !scope.system {
		dirs, err := platform.FindDirs(a.getenv)
		if err != nil {
			return false, err
		}
		if err := dirs.Prepare(); err != nil {
			return false, err
		}
	}
	changed, err := service.Install(ctx)
	if err != nil {
		return false, err
	}
	started, err := a.takeOver(ctx, service, scope, changed)
	if err != nil && changed && !before.Installed {
		// One that cannot run now cannot at the next login either.
		undo := "; the service was taken out again"
		if _, undoErr := service.Uninstall(context.WithoutCancel(ctx)); undoErr != nil {
			undo = fmt.Sprintf("; and it could not be taken out again: %v", undoErr)
		}
		if e, ok := errors.AsType[*ipc.Error](serviceProblem(err)); ok {
			return false, ipc.Errorf(e.Code, "%s%s", e.Message, undo).WithHint("%s", e.Hint)
		}
	}
	return changed || started, err
}

func (a *app) uninstallService(ctx context.Context, service *platform.Service, _ serviceScope) (bool, error) {
	return service.Uninstall(ctx)
}

func (a *app) startService(ctx context.Context, service *platform.Service, scope serviceScope) (bool, error) {
	if err := mustBeInstalled(ctx, service); err != nil {
		return false, err
	}
	return a.takeOver(ctx, service, scope, false)
}

func (a *app) restartService(ctx context.Context, service *platform.Service, scope serviceScope) (bool, error) {
	if err := mustBeInstalled(ctx, service); err != nil {
		return false, err
	}
	return a.takeOver(ctx, service, scope, true)
}

func (a *app) stopService(ctx context.Context, service *platform.Service, _ serviceScope) (bool, error) {
	if err := mustBeInstalled(ctx, service); err != nil {
		return false, err
	}
	before, err := service.Status(ctx)
	if err != nil {
		return false, err
	}
	return before.Running, service.Stop(ctx)
}

func mustBeInstalled(ctx context.Context, service *platform.Service) error {
	status, err := service.Status(ctx)
	if err == nil && !status.Installed {
		err = errNotInstalled()
	}
	return err
}

// takeOver makes the daemon that runs the service's. One that a verb or an agent
// started is asked to end first, since the lock lets one live; an agent may start
// another one at that moment, which is why there is more than one try.
func (a *app) takeOver(ctx context.Context, service *platform.Service, scope serviceScope, anew bool) (started bool, err error) {
	if foreign(scope) {
		return a.startForeign(ctx, service, anew)
	}
	dirs, err := platform.FindDirs(a.getenv)
	if err != nil {
		return false, err
	}
	begin := sizeOf(filepath.Join(dirs.State, logName))
	for range handovers {
		info, err := a.serviceInfo(ctx, service)
		switch {
		case err != nil:
			return started, err
		case info.Serves && !anew:
			return started, nil
		case info.Serves:
			err = service.Restart(ctx)
		default:
			if info.DaemonPID != 0 {
				if err := a.endDaemon(ctx); err != nil {
					return started, err
				}
			}
			err = service.Start(ctx)
		}
		if err != nil {
			return started, err
		}
		started, anew = true, false
		if err := a.waitForAnswer(ctx, service, begin); err != nil {
			return started, err
		}
	}
	info, err := a.serviceInfo(ctx, service)
	if err == nil && !info.Serves {
		err = &platform.ServiceError{What: fmt.Sprintf("the service's daemon does not run: another one answers (process %d), and took the lock %d times", info.DaemonPID, handovers),
			Do: "end the agents that start it, then type `toolsd service start`"}
	}
	return started, err
}

// foreign reports whether the service is of a user whose socket this process may
// not use.
func foreign(scope serviceScope) bool {
	return scope.system && runtime.GOOS != "windows" && os.Geteuid() == 0 && scope.user != "root"
}

// steady is how long another user's service must run to be believed: a program
// that cannot start ends within milliseconds.
const steady = time.Second

func (a *app) startForeign(ctx context.Context, service *platform.Service, anew bool) (bool, error) {
	status, err := service.Status(ctx)
	if err != nil || status.Running && !anew {
		return false, err
	}
	if status.Running {
		err = service.Restart(ctx)
	} else {
		err = service.Start(ctx)
	}
	if err != nil {
		return false, err
	}
	select {
	case <-time.After(steady):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	status, err = service.Status(ctx)
	if err == nil && !status.Running {
		err = &platform.ServiceError{What: "the service was started and ended at once (" + status.State + ")",
			Do: "a daemon of that user may run already: have the user type `toolsd stop`, then type `toolsd service start --system`"}
	}
	return err == nil, err
}

// endDaemon asks the daemon that runs to end and waits for it.
func (a *app) endDaemon(ctx context.Context) error {
	client, dirs, err := a.running(ctx)
	if errors.Is(err, errNoneRuns) {
		return waitUntilFree(ctx, filepath.Join(dirs.State, lockName))
	}
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Stop(ctx); err != nil {
		return err
	}
	return waitUntilFree(ctx, filepath.Join(dirs.State, lockName))
}

// waitForAnswer returns when a daemon answers the handshake, or when the manager
// says that its own ended with an error. begin is where its log ended before it was
// started.
func (a *app) waitForAnswer(ctx context.Context, service *platform.Service, begin int64) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	end := time.After(startTimeout)
	what := fmt.Sprintf("the service was started, but no daemon answered within %v", startTimeout)
	for i := 1; ; i++ {
		client, dirs, err := a.running(ctx)
		if err == nil {
			client.Close()
			return nil
		}
		var gaveUp bool
		if i%50 == 0 { // asking the manager costs as much as fifty looks at the socket
			status, err := service.Status(ctx)
			gaveUp = err == nil && status.Broken
			if gaveUp {
				what = "the service's daemon ended while it started (" + status.State + ")"
			}
		}
		if !gaveUp {
			select {
			case <-ticker.C:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-end:
			}
		}
		e := startFailed(what, filepath.Join(dirs.State, logName), begin)
		return ipc.Errorf(ipc.CodeInternal, "%s", e.Message).WithHint("%s", e.Hint)
	}
}

// serviceInfo is what the manager says, and whether the daemon that answers is the
// one it means.
func (a *app) serviceInfo(ctx context.Context, service *platform.Service) (serviceInfo, error) {
	status, err := service.Status(ctx)
	info := serviceInfo{ServiceStatus: status}
	if err != nil {
		return info, err
	}
	client, _, err := a.running(ctx)
	if err != nil {
		return info, nil // that none answers is told by the daemon's own verbs
	}
	defer client.Close()
	s, err := client.Status(ctx, ipc.StatusRequest{})
	if err != nil {
		return info, nil
	}
	info.DaemonPID = s.Daemon.PID
	info.Serves = status.Running && (status.PID == info.DaemonPID || status.PID == 0) // a task has no number
	return info, nil
}

func sayService(s *screen, answer serviceAnswer) {
	i := answer.Service
	yes := func(b bool) cell {
		if b {
			return cell{"yes", green}
		}
		return cell{"no", yellow}
	}
	rows := [][]cell{
		{plain("installed"), yes(i.Installed)},
		{plain("enabled"), yes(i.Enabled)},
		{plain("running"), yes(i.Running)},
	}
	if i.State != "" {
		rows = append(rows, []cell{plain("state"), plain(i.State)})
	}
	if i.PID != 0 {
		rows = append(rows, []cell{plain("process"), plain(fmt.Sprint(i.PID))})
	}
	switch {
	case i.Serves:
		rows = append(rows, []cell{plain("daemon"), plain("the service's")})
	case i.DaemonPID != 0:
		rows = append(rows, []cell{plain("daemon"), {fmt.Sprintf("process %d, started by a verb or an agent", i.DaemonPID), yellow}})
	}
	if i.Installed {
		rows = append(rows, []cell{plain("unit"), plain(home(i.Unit))})
	}
	s.table([]string{i.Manager, ""}, rows)
}

func sayUninstalled(s *screen, answer serviceAnswer) {
	if answer.Changed {
		s.line("uninstalled: %s", cleanLine(home(answer.Service.Unit)))
	} else {
		s.line("the service is not installed")
	}
}

// serviceHints says what to type next.
func (a *app) serviceHints(verb string, service *platform.Service, i serviceInfo) {
	switch {
	case verb == "uninstall":
		a.hint("every verb and every agent still starts the daemon when none runs")
	case !i.Installed:
		a.hint("`toolsd service install` installs it; without it every verb starts the daemon when none runs")
	case verb == "stop" && i.DaemonPID != 0:
		a.hint("a daemon that was started by a verb or an agent runs; `toolsd stop` ends it")
	case verb == "stop":
		a.hint("an agent that is still attached starts a daemon again with its next call")
	case !i.Serves && verb == "status":
		a.hint("`toolsd service start` makes the service's daemon the one that runs")
	case i.Serves:
		if lingers, known := service.Lingers(); known && !lingers {
			a.hint("it runs while you are logged in; to keep it running without, type `loginctl enable-linger`")
		}
	}
}
