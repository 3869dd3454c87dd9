// Package ipc is what everyone outside the daemon talks to: the Backend
// interface, its types as they stand on the wire, the HTTP handler that serves
// a Backend on the Unix socket, and the Client that is a Backend again at the
// other end. The daemon and the Client pass the same test suite, so a caller
// never needs to know which one it holds.
//
// A field of a type here reaches the user's screen, the --json output and the
// socket under the same name; there is no second set of types. All of it is
// safe for concurrent use.
package ipc
