package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// serviceTimeout bounds one question to a service manager. Stopping the daemon
// may take it 8 s, and a manager of a machine that just booted is busy.
const serviceTimeout = 30 * time.Second

// ServiceOptions say what the system's service manager shall run.
type ServiceOptions struct {
	Executable string   // absolute; see StablePath
	Args       []string // behind it
	Env        []string // NAME=value: what decides where the daemon keeps its things
	Dir        string   // where the manager puts what is written before the daemon's own log is open
	System     bool     // for the whole machine instead of the user's login
	User       string   // whose daemon it is; with System only
	Getenv     func(string) string
}

// Service is the daemon's entry with the system's service manager: a user unit of
// systemd, an agent of launchd, a logon task of Windows. It is for one goroutine.
//
// Every method that changes something leaves a state from which each of them
// works again: a step that fails takes back what the ones before it left.
type Service struct {
	o    ServiceOptions
	path string // of the file that the manager reads
}

// ServiceStatus is what the service manager knows.
type ServiceStatus struct {
	Manager   string `json:"manager"` // systemd, launchd, task scheduler
	System    bool   `json:"system"`
	Installed bool   `json:"installed"`
	Enabled   bool   `json:"enabled"` // it will start by itself
	Running   bool   `json:"running"`
	PID       int    `json:"pid"`
	Unit      string `json:"unit"`              // the file
	Program   string `json:"program,omitempty"` // that it starts, where the manager tells
	State     string `json:"state,omitempty"`   // in the manager's own words
	Broken    bool   `json:"-"`                 // its last run ended with an error
}

// NoServicesError says that this machine, or this session, has no service manager
// to install anything with. Nothing is lost: every verb starts the daemon itself.
type NoServicesError struct{ Cause string }

func (e *NoServicesError) Error() string {
	return "there is no service manager to install toolsd with: " + e.Cause
}

// Hint says why that does not matter.
func (e *NoServicesError) Hint() string {
	return "none is needed: every verb and every agent starts the daemon when none runs; `toolsd start` starts it now"
}

// ServiceError says what a service manager did not do, and what to do about it.
type ServiceError struct {
	What string // what was attempted, and the cause
	Do   string
}

func (e *ServiceError) Error() string { return e.What }

// Hint says what to do.
func (e *ServiceError) Hint() string { return e.Do }

// FindService returns the service of these options, installed or not. It asks
// nobody yet.
func FindService(o ServiceOptions) (*Service, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	path, err := servicePath(o)
	if err != nil {
		return nil, err
	}
	return &Service{o: o, path: path}, nil
}

// Install makes the manager start the daemon from now on at every login (or boot);
// changed is false when it did already, with the same unit. It does not start it.
func (s *Service) Install(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if err := s.available(ctx); err != nil {
		return false, err
	}
	if err := checkExecutable(s.o.Executable, s.o.Getenv); err != nil {
		return false, err
	}
	text, err := s.text()
	if err != nil {
		return false, err
	}
	old, err := os.ReadFile(s.path)
	there := err == nil
	if there && string(old) == text {
		if status, err := s.status(ctx); err == nil && status.Enabled {
			return false, nil
		}
	}
	if err := s.verify(ctx, text); err != nil {
		return false, err
	}
	if err := s.register(ctx, text); err != nil {
		// What was there before is put back, or nothing is left.
		if s.unregister(ctx); there && s.register(ctx, string(old)) != nil {
			s.unregister(ctx)
		}
		return false, err
	}
	status, err := s.status(ctx)
	if err == nil && !status.Enabled {
		err = &ServiceError{fmt.Sprintf("%s took the service but will not start it by itself (it says %q)", status.Manager, status.State), s.ask()}
	}
	if err != nil {
		s.unregister(ctx)
		return false, err
	}
	return true, nil
}

// Uninstall stops the service and takes it out; changed is false when it was not
// there.
func (s *Service) Uninstall(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	_, statErr := os.Lstat(s.path)
	there := statErr == nil
	switch err := s.available(ctx); {
	case err != nil: // a file without a manager is of a machine that had one
		if _, none := errors.AsType[*NoServicesError](err); !none {
			return false, err
		}
	default:
		status, err := s.status(ctx)
		if err != nil {
			return false, err
		}
		if status.Installed && status.Unit != s.path && !sameFile(status.Unit, s.path) {
			return false, &ServiceError{fmt.Sprintf("the service comes from %s, which this command did not write", status.Unit),
				"stop it with `toolsd service stop`, or remove what installed it"}
		}
		if status.Installed {
			there = true
			if err := s.control(ctx, "stop"); err != nil && status.Running {
				return false, err
			}
		}
	}
	s.unregister(ctx) // when it is absent too: links to it may be left
	if _, err := os.Lstat(s.path); err == nil {
		return false, &ServiceError{"the service's file " + s.path + " cannot be removed", "remove it yourself: rm " + shellQuote(s.path)}
	}
	return there, nil
}

// sameFile reports whether a is b or a link to it: a manager that looks elsewhere is
// given a link.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// Status asks the manager. Without one it tells about the file alone, and the
// error is a *NoServicesError.
func (s *Service) Status(ctx context.Context) (ServiceStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if err := s.available(ctx); err != nil {
		_, statErr := os.Lstat(s.path)
		return ServiceStatus{Manager: serviceManager, System: s.o.System, Installed: statErr == nil, Unit: s.path}, err
	}
	return s.status(ctx)
}

// Start, Stop and Restart return when the manager has done it.
func (s *Service) Start(ctx context.Context) error { return s.act(ctx, "start") }

// Stop ends the daemon if it is the service's.
func (s *Service) Stop(ctx context.Context) error { return s.act(ctx, "stop") }

// Restart is Stop and Start.
func (s *Service) Restart(ctx context.Context) error { return s.act(ctx, "restart") }

func (s *Service) act(ctx context.Context, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if err := s.available(ctx); err != nil {
		return err
	}
	return s.control(ctx, verb)
}

// StablePath is the path under which a service finds this program after an
// upgrade too: package managers put a link into PATH and change where it leads.
func StablePath(exe string, getenv func(string) string) string {
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		path := filepath.Join(dir, filepath.Base(exe))
		if !filepath.IsAbs(dir) || checkExecutable(path, getenv) != nil {
			continue
		}
		there, err := os.Stat(path)
		self, selfErr := os.Stat(exe)
		if err == nil && selfErr == nil && os.SameFile(there, self) {
			return path
		}
		break // another program of that name comes first
	}
	return exe
}

// checkExecutable refuses what a service manager could not run at the next login.
func checkExecutable(path string, getenv func(string) string) error {
	refuse := func(cause string) error {
		return &ServiceError{fmt.Sprintf("a service cannot run %s: it %s", path, cause),
			"put the program in a place of its own, for example ~/.local/bin/toolsd or /usr/local/bin/toolsd, and type the command with that one"}
	}
	info, err := os.Stat(path)
	switch {
	case !filepath.IsAbs(path):
		return refuse("is not an absolute path")
	case errors.Is(err, fs.ErrNotExist):
		return refuse("is not there any more")
	case err != nil:
		return refuse(fmt.Sprintf("cannot be looked at: %v", err))
	case !info.Mode().IsRegular():
		return refuse("is not a regular file")
	case !canExecute(path):
		return refuse("cannot be executed there (its mode, or a file system mounted noexec)")
	}
	// What go run makes is gone when it ends; what is in a temporary directory,
	// when the machine starts again.
	if slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(part string) bool { return strings.HasPrefix(part, "go-build") }) {
		return refuse("was made by `go run` or `go test` and does not stay")
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return refuse(fmt.Sprintf("cannot be looked at: %v", err))
	}
	for _, dir := range passingDirs(getenv) {
		for _, p := range []string{path, real} {
			if rest, err := filepath.Rel(dir, p); err == nil && filepath.IsLocal(rest) {
				return refuse("is in " + dir + ", where files do not stay")
			}
		}
	}
	return nil
}

// passingDirs are those that somebody empties.
func passingDirs(getenv func(string) string) []string {
	dirs := []string{os.TempDir(), getenv("GOTMPDIR"), getenv("GOCACHE"), getenv("XDG_RUNTIME_DIR")}
	switch runtime.GOOS {
	case "windows":
	case "darwin":
		dirs = append(dirs, "/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/private/var/folders", "/Volumes")
	default:
		dirs = append(dirs, "/tmp", "/var/tmp", "/dev/shm", "/run", "/proc")
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// ask runs a program of the system and returns what it printed. The error holds
// what it said, on one line.
func ask(ctx context.Context, name string, args ...string) (string, error) {
	out, err := listen(ctx, name, args...)
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return out, err
}

// listen is ask with an error that does not repeat the command.
func listen(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	if said := strings.Join(strings.Fields(errs.String()+" "+out.String()), " "); said != "" {
		// 500 bytes are a few sentences; a program that crashed says pages.
		return out.String(), fmt.Errorf("%.500s", said)
	}
	return out.String(), err
}
