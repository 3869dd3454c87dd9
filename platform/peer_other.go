//go:build unix && !linux && !darwin && !freebsd

package platform

import "os"

// peerUID has no portable call here: the directory's owner and mode, and the
// socket's, are what keeps others out.
func peerUID(int) (uint32, error) { return uint32(os.Geteuid()), nil }
