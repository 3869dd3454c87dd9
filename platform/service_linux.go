package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kardianos/service"
)

const (
	serviceManager = "systemd"
	unitName       = "toolsd"
)

// servicePath is where kardianos/service puts a unit.
func servicePath(o ServiceOptions) (string, error) {
	if o.System {
		return "/etc/systemd/system/" + unitName + ".service", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the directory of systemd units: %w", err)
	}
	return filepath.Join(home, ".config", "systemd", "user", unitName+".service"), nil
}

// available reports a *NoServicesError where no systemd answers.
func (s *Service) available(ctx context.Context) error {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return &NoServicesError{"this system does not run systemd (there is no systemctl), and others have no services of a user"}
	}
	if s.o.System {
		if _, err := os.Stat("/run/systemd/system"); err != nil {
			return &NoServicesError{"this system was not started by systemd"}
		}
		return nil
	}
	runtime := s.o.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		return &NoServicesError{"XDG_RUNTIME_DIR is not set, so this is no login that systemd knows of (a container, su, sudo or cron)"}
	}
	if _, err := os.Stat(filepath.Join(runtime, "systemd", "private")); err != nil {
		if _, err := os.Stat(filepath.Join(runtime, "bus")); err != nil {
			return &NoServicesError{"systemd runs no user manager for this login (" + runtime + " has neither systemd/private nor bus)"}
		}
	}
	if _, err := s.systemctl(ctx, "show", "--property=Version"); err != nil {
		return &NoServicesError{fmt.Sprintf("the user manager of systemd does not answer: %v", err)}
	}
	return nil
}

func (s *Service) systemctl(ctx context.Context, args ...string) (string, error) {
	if !s.o.System {
		args = append([]string{"--user"}, args...)
	}
	return ask(ctx, "systemctl", append(args, "--no-pager")...)
}

// entry is the service as kardianos/service sees it. Its own search for the
// service manager is passed over: it asks whether systemd is process 1, which says
// nothing about a user manager in a container.
func (s *Service) entry(text string) (service.Service, error) {
	config := &service.Config{
		Name:       unitName,
		Executable: s.o.Executable,
		Option:     service.KeyValue{"UserService": !s.o.System, "SystemdScript": text},
	}
	for _, system := range service.AvailableSystems() {
		if system.String() == "linux-systemd" {
			return system.New(nil, config)
		}
	}
	return nil, errors.New("kardianos/service has no support for systemd")
}

func (s *Service) text() (string, error) {
	uid := ""
	if s.o.System {
		if os.Geteuid() != 0 {
			return "", &ServiceError{"a service of the whole machine can only be installed by root", "type it with sudo, or leave --system out"}
		}
		u, err := user.Lookup(s.o.User)
		if err != nil {
			return "", &ServiceError{fmt.Sprintf("the service cannot run as %s: %v", s.o.User, err), "type --user NAME with the name of a user of this machine"}
		}
		uid = u.Uid
	}
	return systemdUnit(s.o, uid)
}

// verify has systemd read the unit before anything is installed.
func (s *Service) verify(ctx context.Context, text string) error {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "toolsd-unit-")
	if err != nil {
		return nil // the manager reads it again anyway
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, unitName+".service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil
	}
	scope := "--user"
	if s.o.System {
		scope = "--system"
	}
	if _, err := ask(ctx, "systemd-analyze", scope, "--man=no", "verify", path); err != nil {
		return &ServiceError{fmt.Sprintf("systemd does not take the unit: %v", err), "put the program in a directory with a plainer name"}
	}
	return nil
}

// register puts the unit in place and enables it.
func (s *Service) register(ctx context.Context, text string) error {
	entry, err := s.entry(text)
	if err != nil {
		return err
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replacing the unit: %w", err)
	}
	if err := entry.Install(); err != nil {
		if _, statErr := os.Lstat(s.path); statErr != nil {
			return fmt.Errorf("writing the unit: %w", err)
		}
		// Asked by path, systemctl also takes a file that is outside of where the
		// manager looks (another XDG_CONFIG_HOME), and says why it does not.
		if _, err := s.systemctl(ctx, "enable", s.path); err != nil {
			return &ServiceError{fmt.Sprintf("systemd does not enable the service: %v", err), s.ask()}
		}
		if _, err := s.systemctl(ctx, "daemon-reload"); err != nil {
			return &ServiceError{fmt.Sprintf("systemd does not read its units again: %v", err), s.ask()}
		}
	}
	if !s.o.System {
		return nil
	}
	return os.Chmod(s.path, 0o644) // whatever the umask: it is nobody's secret, and others ask for its status
}

// unregister leaves nothing of the service, as far as that is possible, but for a
// daemon that runs.
func (s *Service) unregister(ctx context.Context) {
	// Asked where there is no directory of units, kardianos/service makes one.
	if _, err := os.Stat(filepath.Dir(s.path)); err == nil {
		if entry, err := s.entry(""); err == nil {
			_ = entry.Uninstall()
		}
	}
	// What that did not do, without a manager too.
	_ = os.Remove(s.path)
	for _, target := range []string{"default.target.wants", "multi-user.target.wants"} {
		_ = os.Remove(filepath.Join(filepath.Dir(s.path), target, unitName+".service"))
	}
	_, _ = s.systemctl(ctx, "daemon-reload")
	_, _ = s.systemctl(ctx, "reset-failed", unitName+".service")
}

func (s *Service) status(ctx context.Context) (ServiceStatus, error) {
	out := ServiceStatus{Manager: serviceManager, System: s.o.System, Unit: s.path}
	text, err := s.systemctl(ctx, "show", unitName+".service", "--property=LoadState,UnitFileState,ActiveState,SubState,Result,MainPID,FragmentPath,ExecStart")
	if err != nil {
		return out, &ServiceError{fmt.Sprintf("asking systemd about the service: %v", err), s.ask()}
	}
	p := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[name] = value
	}
	_, statErr := os.Lstat(s.path)
	out.Installed = statErr == nil || p["LoadState"] == "loaded"
	out.Enabled = p["UnitFileState"] == "enabled"
	switch p["ActiveState"] {
	case "active", "activating", "reloading":
		out.Running = true
		out.PID, _ = strconv.Atoi(p["MainPID"])
	}
	out.Broken = p["ActiveState"] == "failed" || p["SubState"] == "auto-restart"
	if p["FragmentPath"] != "" {
		out.Unit = p["FragmentPath"]
	}
	if _, rest, ok := strings.Cut(p["ExecStart"], "path="); ok {
		out.Program, _, _ = strings.Cut(rest, " ; argv")
	}
	if out.Installed {
		out.State = p["ActiveState"] + " (" + p["SubState"] + ")"
		if r := p["Result"]; r != "" && r != "success" {
			out.State += ", " + r
		}
		if p["LoadState"] != "loaded" {
			out.State = p["LoadState"]
		}
	}
	return out, nil
}

func (s *Service) control(ctx context.Context, verb string) error {
	entry, err := s.entry("")
	if err != nil {
		return err
	}
	switch verb {
	case "start":
		// A unit that failed too often is not started again before that is forgotten.
		_, _ = s.systemctl(ctx, "reset-failed", unitName+".service")
		err = entry.Start()
	case "stop":
		err = entry.Stop()
	case "restart":
		_, _ = s.systemctl(ctx, "reset-failed", unitName+".service")
		err = entry.Restart()
	}
	if err == nil {
		return nil
	}
	said := err.Error()
	if status, err := s.status(ctx); err == nil && status.State != "" {
		said = "its state is " + status.State
	}
	return &ServiceError{fmt.Sprintf("systemd did not %s the service: %s", verb, said), s.ask()}
}

// ask says how to ask the manager itself.
func (s *Service) ask() string {
	if s.o.System {
		return "`systemctl status toolsd` and `journalctl -u toolsd` say more"
	}
	return "`systemctl --user status toolsd` and `journalctl --user -u toolsd` say more"
}

// Lingers reports whether services of this user run without a login; known is
// false where nobody can tell.
func (s *Service) Lingers() (lingers, known bool) {
	if s.o.System {
		return false, false
	}
	u, err := user.LookupId(userID())
	if err != nil {
		return false, false
	}
	if _, err := exec.LookPath("loginctl"); err != nil {
		return false, false
	}
	_, err = os.Stat(filepath.Join("/var/lib/systemd/linger", u.Username))
	return err == nil, err == nil || errors.Is(err, os.ErrNotExist)
}
