package platform

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasSubreaper: an orphan goes to launchd. Those are found by their group,
// their session or the marker in their environment.
const hasSubreaper = false

func becomeSubreaper() error { return nil }

const zombieState = 5 // SZOMB of sys/proc.h

func processTable() ([]proc, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	table := make([]proc, 0, len(list))
	for i := range list {
		table = append(table, fromKinfo(&list[i]))
	}
	return table, nil
}

func findProc(pid int) (proc, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return proc{}, false
	}
	return fromKinfo(info), true
}

func fromKinfo(k *unix.KinfoProc) proc {
	p := proc{
		pid: int(k.Proc.P_pid), ppid: int(k.Eproc.Ppid), pgid: int(k.Eproc.Pgid), uid: int(k.Eproc.Ucred.Uid),
		start:  uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec),
		zombie: k.Proc.P_stat == zombieState,
	}
	p.sid, _ = unix.Getsid(p.pid)
	return p
}

// markerOf reads the arguments and environment as the kernel keeps them. It
// hides those of binaries that the system protects.
func markerOf(pid int) string {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return ""
	}
	return markerIn(data)
}

// signalProc has no handle on a process here: between the look and the signal
// the pid could change hands, which takes the whole range of pids in that time.
func signalProc(p proc, sig syscall.Signal) error {
	if now, ok := findProc(p.pid); !ok || now.start != p.start {
		return syscall.ESRCH
	}
	return syscall.Kill(p.pid, sig)
}

func bootID() string { return "" } // start times are absolute

// MemoryRSS is the resident memory of a process in bytes.
func MemoryRSS(pid int) (int64, bool) {
	out, err := exec.Command("/bin/ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, false
	}
	kib, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	return kib << 10, err == nil
}
