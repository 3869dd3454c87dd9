package platform

import "golang.org/x/sys/unix"

// notDumpable makes root the owner of most of /proc/<pid>, so that other
// processes of the user read neither memory nor environment. stat, statm and
// cmdline stay readable, which is all that this package reads of another.
// An exec takes it back, so servers are not concerned.
func notDumpable() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
