// Package platform is all that differs per operating system: where files are,
// the lock and the socket of the daemon, processes that do not outlive it, the
// environment of the user's login shell, and how a process shields its memory.
// It is the only package with build tags.
//
// What holds on every system:
//
//   - Only the holder of the state lock (AcquireLock) calls Listen and Sweep.
//   - A Keeper starts all server processes; none of them, nor what they start,
//     outlives the daemon by more than 2 s. What that rests on, and what it does
//     not cover, is told in keeper_unix.go and keeper_windows.go.
//   - Files that hold state are 0600 and never opened through a link.
//
// All of it is safe for concurrent use, but for FindDirs and Harden, which a
// process calls once, first.
package platform
