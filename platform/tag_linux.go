package platform

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The tag is a second mark of a server's processes, for those that clear their
// environment or overwrite it: the soft limit on real-time CPU time, which fork,
// exec and setsid keep, which is readable for every process, and which at some
// thousands of years limits nothing. 46 bits name the state directory, 16 the
// server.
const (
	tagBit     = 1 << 62
	tagServers = 1 << 16
)

func makeTag(key uint64, number int) uint64 {
	return tagBit | (key &^ (tagServers - 1) & (tagBit - 1)) | uint64(number%tagServers)
}

// sameDaemon says that tag is of the daemon whose any other tag is.
func sameDaemon(tag, other uint64) bool {
	return tag&tagBit != 0 && tag&^(tagServers-1) == other&^(tagServers-1)
}

// putTag gives this process, and so the next that it forks, a tag. Where the
// hard limit is lower there is none.
func putTag(tag uint64) {
	if tagsWork() {
		_ = unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: tag, Max: unix.RLIM_INFINITY})
	}
}

// tagsWork says that putTag does: nothing else is then needed to find a process.
func tagsWork() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_RTTIME, &limit) == nil && limit.Max == unix.RLIM_INFINITY
}

// tagOf is 0 when the process has none.
func tagOf(pid int) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(data, []byte("Max realtime timeout"))
	if !ok {
		return 0
	}
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	tag, err := strconv.ParseUint(string(f[0]), 10, 64)
	if err != nil || tag&tagBit == 0 || tag == unix.RLIM_INFINITY {
		return 0
	}
	return tag
}

// sealDescriptors keeps descriptors that this process inherited by mistake from
// what it starts: an agent that waits for the end of a pipe would otherwise wait
// for the daemon.
func sealDescriptors(from int) {
	if unix.CloseRange(uint(from), 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	sealEach(from) // before Linux 5.11
}
