//go:build darwin || freebsd

package platform

import "golang.org/x/sys/unix"

func peerUID(fd int) (uint32, error) {
	// 0 is SOL_LOCAL on both.
	cred, err := unix.GetsockoptXucred(fd, 0, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
