package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Keeper starts all server processes, each in a job object of its own inside
// the daemon's. The kernel ends every process of a job when the last handle to
// it closes, and the daemon has the only one: however it dies, nothing outlives
// it, and no parent process or journal is needed.
//
// Not covered: what a server starts through another service (WMI, a scheduled
// task) is no descendant for the kernel either.
type Keeper struct {
	log *slog.Logger

	mu     sync.Mutex
	closed bool
	procs  map[int]*Process
}

type osCommand struct{}

type osProcess struct{ job windows.Handle }

// NewKeeper starts no process.
func NewKeeper(o KeeperOptions) (*Keeper, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{log: o.Log, procs: make(map[int]*Process)}, nil
}

// KeeperMain is for systems without job objects.
func KeeperMain() int { return 2 }

// Sweep has nothing to do: see Keeper.
func Sweep(string, *slog.Logger) (int, error) { return 0, nil }

// LoginEnviron is the function of that name: no shell is asked here.
func (k *Keeper) LoginEnviron(ctx context.Context, base func() []string) (Environ, error) {
	return LoginEnviron(ctx, base)
}

// PID is 0: there is no keeper process.
func (k *Keeper) PID() int { return 0 }

// Start starts a server in a job of its own.
func (k *Keeper) Start(c Command) (*Process, error) {
	fail := func(err error) (*Process, error) { return nil, fmt.Errorf("starting %s: %w", c.Label, causeOf(err)) }
	k.mu.Lock()
	closed := k.closed
	k.mu.Unlock()
	if closed {
		return fail(ErrClosed)
	}
	job, err := killingJob()
	if err != nil {
		return fail(err)
	}
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, SysProcAttr: &syscall.SysProcAttr{
		HideWindow: true,
		// Suspended, so that it starts nothing before it is in the job.
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED | windows.CREATE_NO_WINDOW,
	}}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		windows.CloseHandle(job)
		return fail(err)
	}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return fail(err)
	}
	if err := enter(job, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		windows.CloseHandle(job)
		return fail(err)
	}
	p := &Process{PID: cmd.Process.Pid, Stdin: stdin, Stdout: stdout, Stderr: stderr, keeper: k, label: c.Label,
		done: make(chan struct{}), cleared: make(chan struct{}), osProcess: osProcess{job}}
	k.mu.Lock()
	k.procs[p.PID] = p
	k.mu.Unlock()
	go p.watch(cmd)
	return p, nil
}

// watch waits for the process, not through cmd.Wait, which would close the
// pipes under their reader.
func (p *Process) watch(cmd *exec.Cmd) {
	state, err := cmd.Process.Wait()
	p.exit = ExitState{Code: -1, Text: "ended"}
	if err == nil {
		p.exit = ExitState{Code: state.ExitCode(), Text: "exit status " + strconv.Itoa(state.ExitCode())}
	}
	close(p.done)
	// What it started ends with it.
	_ = windows.TerminateJobObject(p.job, 1)
	windows.CloseHandle(p.job)
	p.keeper.mu.Lock()
	delete(p.keeper.procs, p.PID)
	p.keeper.mu.Unlock()
	close(p.cleared)
}

// terminate asks by CTRL_BREAK, which reaches the group; a process without a
// console does not get it, and is ended by the next step.
func (p *Process) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.PID))
}

// Kill ends the process and all that it started at once.
func (p *Process) Kill() {
	select {
	case <-p.done: // watch closes the job
	default:
		_ = windows.TerminateJobObject(p.job, 1)
	}
}

// Close stops all servers in parallel. A ctx that ends shortens the ladder.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	procs := slices.Collect(maps.Values(k.procs))
	k.mu.Unlock()
	results := make(chan error, len(procs))
	for _, p := range procs {
		go func() { results <- p.Stop(ctx) }()
	}
	var errs []error
	for range procs {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

func killingJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("making a job: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("making a job: %w", err)
	}
	return job, nil
}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

func enter(job windows.Handle, pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(pid))
	if err != nil {
		return fmt.Errorf("opening the new process: %w", err)
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return fmt.Errorf("putting the new process into its job: %w", err)
	}
	if status, _, _ := resumeProcess.Call(uintptr(process)); status != 0 {
		return fmt.Errorf("letting the new process run: status %#x", status)
	}
	return nil
}
