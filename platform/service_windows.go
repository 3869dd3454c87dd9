package platform

import (
	"context"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"unicode/utf16"
)

// A service of Windows' own kind runs in a session without a desktop, as another
// user or with the user's password; a task that starts at logon is what a daemon
// of a developer is.
const (
	serviceManager = "task scheduler"
	taskName       = "toolsd"
)

// servicePath is a copy of the definition, to compare with: the scheduler keeps
// its own.
func servicePath(o ServiceOptions) (string, error) {
	if o.System {
		return "", &NoServicesError{"on Windows toolsd is a task of the user's logon, and there is none for the whole machine"}
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the directory of the task's definition: %w", err)
	}
	return filepath.Join(dir, "toolsd", "logon-task.xml"), nil
}

func (s *Service) available(context.Context) error { return nil }

func (s *Service) text() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("finding out whose logon starts the daemon: %w", err)
	}
	return logonTask(s.o, u.Username)
}

func (s *Service) verify(context.Context, string) error { return nil } // the scheduler takes it or not, as a whole

func (s *Service) register(ctx context.Context, text string) error {
	// The file says UTF-16, which is what schtasks reads whatever the code page.
	data := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(text)) {
		data = binary.LittleEndian.AppendUint16(data, unit)
	}
	temp, err := os.CreateTemp("", "toolsd-task-*.xml")
	if err != nil {
		return fmt.Errorf("writing the task: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing the task: %w", err)
	}
	if _, err := ask(ctx, "schtasks", "/Create", "/TN", taskName, "/XML", temp.Name(), "/F"); err != nil {
		return &ServiceError{fmt.Sprintf("the task scheduler does not take the task: %v", err), s.ask()}
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("keeping the task's definition: %w", err)
	}
	return WriteFileAtomic(s.path, []byte(text), 0o600)
}

func (s *Service) unregister(ctx context.Context) {
	_, _ = ask(ctx, "schtasks", "/End", "/TN", taskName)
	_, _ = ask(ctx, "schtasks", "/Delete", "/TN", taskName, "/F")
	_ = os.Remove(s.path)
}

func (s *Service) status(ctx context.Context) (ServiceStatus, error) {
	out := ServiceStatus{Manager: serviceManager, Unit: s.path}
	text, err := ask(ctx, "schtasks", "/Query", "/TN", taskName, "/FO", "CSV", "/NH")
	if err != nil {
		return out, nil // there is no such task
	}
	out.Installed, out.Enabled = true, true
	if fields, err := csv.NewReader(strings.NewReader(text)).Read(); err == nil && len(fields) >= 3 {
		out.State = fields[2] // in the language of the system
	}
	// Words for people differ by language; the definition does not.
	if definition, err := ask(ctx, "schtasks", "/Query", "/TN", taskName, "/XML"); err == nil {
		out.Enabled = !strings.Contains(taskSettings(definition), "<Enabled>false</Enabled>")
	}
	out.Running = out.State == "Running"
	return out, nil
}

func taskSettings(definition string) string {
	_, rest, _ := strings.Cut(definition, "<Settings>")
	settings, _, _ := strings.Cut(rest, "</Settings>")
	return settings
}

func (s *Service) control(ctx context.Context, verb string) (err error) {
	if verb != "start" {
		_, err = ask(ctx, "schtasks", "/End", "/TN", taskName)
	}
	if verb != "stop" {
		_, err = ask(ctx, "schtasks", "/Run", "/TN", taskName)
	}
	if err != nil {
		return &ServiceError{fmt.Sprintf("the task scheduler did not %s the task: %v", verb, err), s.ask()}
	}
	return nil
}

func (s *Service) ask() string { return "`schtasks /Query /V /FO LIST /TN toolsd` says more" }

// Lingers is not known here: a logon task runs while its user is logged in.
func (s *Service) Lingers() (lingers, known bool) { return false, false }
