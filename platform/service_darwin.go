package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/kardianos/service"
)

const serviceManager = "launchd"

// servicePath is where kardianos/service puts a property list.
func servicePath(o ServiceOptions) (string, error) {
	if o.System {
		return "/Library/LaunchDaemons/" + launchdLabel + ".plist", nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("finding the directory of launch agents: %w", err)
	}
	return filepath.Join(u.HomeDir, "Library", "LaunchAgents", launchdLabel+".plist"), nil
}

func (s *Service) available(context.Context) error { return nil }

func (s *Service) entry(text string) (service.Service, error) {
	return service.New(nil, &service.Config{
		Name:       launchdLabel,
		Executable: s.o.Executable,
		Option:     service.KeyValue{"UserService": !s.o.System, "LaunchdConfig": text},
	})
}

func (s *Service) text() (string, error) {
	if s.o.System {
		if os.Geteuid() != 0 {
			return "", &ServiceError{"a service of the whole machine can only be installed by root", "type it with sudo, or leave --system out"}
		}
		if _, err := user.Lookup(s.o.User); err != nil {
			return "", &ServiceError{fmt.Sprintf("the service cannot run as %s: %v", s.o.User, err), "type --user NAME with the name of a user of this machine"}
		}
	}
	return launchdPlist(s.o)
}

func (s *Service) verify(context.Context, string) error { return nil } // register does, on the file itself

// register puts the property list in place. launchd reads it at the next login, or
// when the service is started.
func (s *Service) register(ctx context.Context, text string) error {
	entry, err := s.entry(text)
	if err != nil {
		return err
	}
	if err := os.Remove(s.path); err == nil {
		_ = entry.Stop() // the old one, so that the new one is read
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replacing the property list: %w", err)
	}
	if err := entry.Install(); err != nil {
		return fmt.Errorf("writing the property list: %w", err)
	}
	if _, err := ask(ctx, "plutil", "-lint", s.path); err != nil {
		return &ServiceError{fmt.Sprintf("launchd would not take the property list: %v", err), s.ask()}
	}
	return nil
}

func (s *Service) unregister(context.Context) {
	if entry, err := s.entry(""); err == nil {
		_ = entry.Uninstall()
	}
	_ = os.Remove(s.path)
}

// launchdPID is how `launchctl list` tells the process.
var launchdPID = regexp.MustCompile(`"PID" = ([0-9]+);`)

func (s *Service) status(ctx context.Context) (ServiceStatus, error) {
	_, statErr := os.Lstat(s.path)
	out := ServiceStatus{Manager: serviceManager, System: s.o.System, Unit: s.path, Installed: statErr == nil, Enabled: statErr == nil}
	text, err := ask(ctx, "launchctl", "list", launchdLabel)
	if err != nil {
		if out.Installed {
			out.State = "not loaded"
		}
		return out, nil
	}
	out.State = "loaded"
	if m := launchdPID.FindStringSubmatch(text); m != nil {
		out.PID, _ = strconv.Atoi(m[1])
		out.Running = out.PID > 0
	}
	return out, nil
}

func (s *Service) control(ctx context.Context, verb string) error {
	entry, err := s.entry("")
	if err != nil {
		return err
	}
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	switch verb {
	case "start":
		if status.State == "loaded" {
			// Loaded and ended: a second load does nothing.
			_, err = ask(ctx, "launchctl", "start", launchdLabel)
		} else {
			err = entry.Start()
		}
	case "stop":
		if status.State == "loaded" {
			err = entry.Stop()
		}
	case "restart":
		if status.State == "loaded" {
			err = entry.Restart()
		} else {
			err = entry.Start()
		}
	}
	if err != nil {
		return &ServiceError{fmt.Sprintf("launchd did not %s the service: %v", verb, err), s.ask()}
	}
	return nil
}

func (s *Service) ask() string {
	return "`launchctl print gui/" + userID() + "/" + launchdLabel + "` says more"
}

// Lingers is not known here: an agent of launchd runs while its user is logged in.
func (s *Service) Lingers() (lingers, known bool) { return false, false }
