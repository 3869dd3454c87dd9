//go:build unix

package platform

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// StartDetached starts a process that lives on when this one, its terminal and
// its session are gone: in a session of its own, in /, with stdin from /dev/null
// and both outputs appended to logfile (/dev/null when empty). env is complete;
// nil is this process's.
func StartDetached(exe string, args, env []string, logfile string) (pid int, err error) {
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if logfile != "" && err == nil {
		out.Close()
		out, err = OpenPrivate(logfile)
	}
	if err != nil {
		return 0, fmt.Errorf("starting %s in the background: %w", exe, err)
	}
	defer out.Close()
	if env == nil {
		env = os.Environ()
	}
	cmd := &exec.Cmd{
		Path: exe,
		Args: append([]string{exe}, args...),
		// When a server runs this, the new process is not one of its keeper's.
		Env:         absolutePlaces(withMarker(env, "")),
		Dir:         "/", // keeps no file system busy
		Stdout:      out,
		Stderr:      out,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	sealDescriptors(3)
	if err := startOwn(cmd); err != nil {
		return 0, fmt.Errorf("starting %s in the background: %w", exe, causeOf(err))
	}
	pid = cmd.Process.Pid
	// Should it end before this process does, it must not stay as a zombie.
	go func() { _ = cmd.Wait(); disown(pid) }()
	return pid, nil
}
