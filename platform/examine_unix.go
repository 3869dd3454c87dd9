//go:build unix

package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func canWrite(path string) bool { return unix.Access(path, unix.W_OK) == nil }

func freeSpace(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("asking how much space is left at %s: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// Leftovers are the processes that Sweep would end: what an earlier daemon of this
// journal left. The caller knows that no daemon runs.
func Leftovers(journal string) ([]int, error) {
	var data journalData
	raw, err := ReadState(journal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the journal of processes: %w", err)
	}
	if err == nil && (json.Unmarshal(raw, &data) != nil || data.Format != journalFormat || data.Boot != bootID()) {
		data = journalData{}
	}
	table, err := processTable()
	if err != nil {
		return nil, fmt.Errorf("looking for processes of an earlier daemon: %w", err)
	}
	c := claim{key: stateKeyOf(journal), data: data}
	var pids []int
	for _, p := range c.pick(table) {
		pids = append(pids, p.pid)
	}
	return pids, nil
}

// InotifyInstances counts the watchers of this user that can be seen; ok is false
// where there is no such thing.
func InotifyInstances() (used int, ok bool) {
	links, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil || len(links) == 0 {
		return 0, false
	}
	for _, dir := range links {
		info, err := os.Stat(filepath.Dir(dir))
		if err != nil || !isOurs(info) {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if _, err := strconv.Atoi(e.Name()); err != nil {
				continue
			}
			if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && target == "anon_inode:inotify" {
				used++
			}
		}
	}
	return used, true
}
