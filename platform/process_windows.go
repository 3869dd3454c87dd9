package platform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// Harden keeps crash dialogs and reports of this process away; memory of another
// process of the user cannot be closed off here.
func Harden() error {
	windows.SetErrorMode(windows.SEM_FAILCRITICALERRORS | windows.SEM_NOGPFAULTERRORBOX)
	return nil
}

// MemoryRSS is the working set of a process in bytes.
func MemoryRSS(pid int) (int64, bool) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, false
	}
	defer windows.CloseHandle(process)
	var counters struct { // PROCESS_MEMORY_COUNTERS of psapi.h
		cb, faults                                                   uint32
		peak, workingSet, a, b, c, d, pagefileUsage, peakPagefileUse uintptr
	}
	counters.cb = uint32(unsafe.Sizeof(counters))
	ok, _, _ := memoryInfo.Call(uintptr(process), uintptr(unsafe.Pointer(&counters)), uintptr(counters.cb))
	return int64(counters.workingSet), ok != 0
}

var memoryInfo = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// LoginEnviron is this process's environment, with what installers have put
// into PATH since it began: the registry has the PATH that a new terminal gets.
func LoginEnviron(ctx context.Context, base func() []string) (Environ, error) {
	if base == nil {
		base = os.Environ
	}
	if ctx.Err() != nil {
		return Environ{}, fmt.Errorf("reading the user's environment: %w", context.Cause(ctx))
	}
	e := Environ{Vars: toMap(base()), Origin: "this process and the registry"}
	path := e.Get("PATH")
	for _, place := range []struct {
		root registry.Key
		key  string
	}{
		{registry.LOCAL_MACHINE, `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`},
		{registry.CURRENT_USER, `Environment`},
	} {
		k, err := registry.OpenKey(place.root, place.key, registry.QUERY_VALUE)
		if err != nil {
			continue
		}
		value, _, err := k.GetStringValue("Path")
		k.Close()
		if err != nil {
			continue
		}
		if expanded, err := registry.ExpandString(value); err == nil {
			value = expanded
		}
		path = joinPath(path, filepath.SplitList(value)...)
	}
	for name := range e.Vars {
		if matchName("PATH", name) {
			delete(e.Vars, name)
		}
	}
	e.Vars["PATH"] = withWellKnown(path, e.Get("USERPROFILE"), e.Get)
	return e, nil
}

// StartDetached starts a process that lives on when this one and its console
// are gone, with both outputs appended to logfile.
func StartDetached(exe string, args, env []string, logfile string) (pid int, err error) {
	if logfile == "" {
		logfile = os.DevNull
	}
	out, err := os.OpenFile(logfile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("starting %s in the background: %w", exe, err)
	}
	defer out.Close()
	if env == nil {
		env = os.Environ()
	}
	cmd := &exec.Cmd{Path: exe, Args: append([]string{exe}, args...), Env: absolutePlaces(env), Stdout: out, Stderr: out,
		SysProcAttr: &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s in the background: %w", exe, causeOf(err))
	}
	pid = cmd.Process.Pid
	go func() { _ = cmd.Wait() }()
	return pid, nil
}
