package platform

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasSubreaper: an orphan comes to the nearest ancestor that asked for it, so a
// process cannot leave the keeper's tree by forking twice.
const hasSubreaper = true

func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// processTable is one pass over /proc. It is no snapshot: what forks meanwhile
// may be missed, so callers pass again until nothing is left.
func processTable() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	table := make([]proc, 0, len(names))
	buf := make([]byte, 1024)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProc(pid, buf); ok {
				table = append(table, p)
			}
		}
	}
	return table, nil
}

func findProc(pid int) (proc, bool) { return readProc(pid, make([]byte, 1024)) }

// readProc reads /proc/<pid>/stat, which is readable whatever PR_SET_DUMPABLE
// says. Its second field, the name, may hold spaces and brackets.
func readProc(pid int, buf []byte) (proc, bool) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return proc{}, false
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf)
	if err != nil || n <= 0 {
		return proc{}, false
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return proc{}, false
	}
	end := bytes.LastIndexByte(buf[:n], ')')
	if end < 0 {
		return proc{}, false
	}
	f := bytes.Fields(buf[end+1 : n])
	if len(f) < 20 {
		return proc{}, false
	}
	number := func(i int) int { v, _ := strconv.Atoi(string(f[i])); return v }
	start, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return proc{
		pid: pid, ppid: number(1), pgid: number(2), sid: number(3), uid: int(st.Uid),
		start: start, zombie: f[0][0] == 'Z' || f[0][0] == 'X',
	}, true
}

// markerOf is the value of the marker in the environment that the process was
// executed with; "" when it has none or does not let us look.
func markerOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	return markerIn(data)
}

// signalProc signals the process that p describes, and not one that took over
// its pid.
func signalProc(p proc, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		return syscall.Kill(p.pid, sig)
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, ok := findProc(p.pid); !ok || now.start != p.start {
		return syscall.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// bootID parts the pids and start times of one boot from those of another.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(data))
}

// MemoryRSS is the resident memory of a process in bytes.
func MemoryRSS(pid int) (int64, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, false
	}
	f := bytes.Fields(data)
	if len(f) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
