package platform

import (
	"fmt"

	"golang.org/x/sys/windows"
)

func canWrite(string) bool { return true } // an access list says so only when it is tried

func freeSpace(path string) (int64, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, fmt.Errorf("asking how much space is left at %s: %w", path, err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("asking how much space is left at %s: %w", path, err)
	}
	return int64(free), nil
}

// Leftovers are none: a job of Windows ends its processes with the daemon.
func Leftovers(string) ([]int, error) { return nil, nil }

// InotifyInstances does not apply here.
func InotifyInstances() (used int, ok bool) { return 0, false }
