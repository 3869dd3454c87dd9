//go:build unix && !linux && !darwin

package platform

import (
	"bytes"
	"hash/fnv"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasSubreaper: an orphan goes to init. Those are found by their group or
// session; one that left both is not covered on these systems.
const hasSubreaper = false

func becomeSubreaper() error { return nil }

// processTable asks ps, which POSIX has describe what the kernels do not.
func processTable() ([]proc, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "uid=", "-o", "stat=", "-o", "lstart=").Output()
	if err != nil {
		return nil, err
	}
	var table []proc
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		var n [4]int
		for i := range n {
			n[i], _ = strconv.Atoi(f[i])
		}
		sum := fnv.New64a()
		sum.Write([]byte(strings.Join(f[5:], " ")))
		p := proc{pid: n[0], ppid: n[1], pgid: n[2], uid: n[3], zombie: strings.HasPrefix(f[4], "Z"), start: sum.Sum64()}
		p.sid, _ = unix.Getsid(p.pid)
		table = append(table, p)
	}
	return table, nil
}

func findProc(pid int) (proc, bool) {
	table, err := processTable()
	if err != nil {
		return proc{}, false
	}
	for _, p := range table {
		if p.pid == pid {
			return p, true
		}
	}
	return proc{}, false
}

// markerOf works where a Linux-like /proc is mounted.
func markerOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	return markerIn(data)
}

func signalProc(p proc, sig syscall.Signal) error { return syscall.Kill(p.pid, sig) }

func bootID() string { return "" }

// MemoryRSS is the resident memory of a process in bytes.
func MemoryRSS(pid int) (int64, bool) {
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, false
	}
	kib, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	return kib << 10, err == nil
}
