// Package daemon is the one process per machine behind every toolsd command. It
// wires the packages below together and implements ipc.Backend; this page is the
// architecture, and cmd/toolsd/deps_test.go holds its import table.
//
// # The map
//
//	cmd/toolsd               one file per verb; prints what a Backend answers   [cobra]
//	  cmd/toolsd/sample      the MCP servers of the demo and of script tests
//	cmd/searcheval           runs the index package over query files
//	daemon                   Daemon.Run, reconcile, the gate visible, sessions, calls
//	  daemon/upstream        live connections to servers, backoff, raw JSON    [mcp-go/client]
//	  daemon/session         what each agent has seen and activated (memory only)
//	  daemon/trust           approved fingerprints, redaction (small file, fails closed)
//	  daemon/calllog         one line per call: sizes and outcomes, never contents
//	ipc                      types, Backend, HTTP handler, Client, session frames
//	  ipc/shim               the stdio MCP server over a Backend               [mcp-go/server]
//	index                    analyzer, BM25F, immutable Snapshot, bbolt file   [bbolt]
//	  index/tool             leaf: ID, Tool, Hash, exposed names, schemas, cleaning
//	watcher                  config files to complete Snapshots                [fsnotify]
//	  watcher/clientconfig   formats of all clients: bytes to servers, no I/O
//	  watcher/settings       toolsd's own settings and their origins
//	  watcher/adopt          moves a client's servers into config.json and back
//	platform                 all that differs per OS                           [kardianos/service]
//
// Absent on purpose: index knows no MCP, session knows no ipc, shim knows no
// daemon, nothing but platform has build tags, and nothing but upstream starts a
// server.
//
// # One noun, one type
//
// A tool is tool.Tool everywhere; its ground truth is the raw JSON that its
// server sent. The API is ipc.Backend, implemented by Daemon and by ipc.Client.
// The ipc types are at once the socket's JSON, the --json output and what the
// verbs print.
//
// # How data flows
//
// Config change: an event (only a hint) makes the watcher read all files again
// and publish a complete Snapshot; the one reconcile goroutine asks trust which
// servers may run, publishes a new world (world.go), tells upstream the complete
// set of wanted servers and the index which keys to keep, and wakes the
// sessions.
//
// Listing: upstream lists a server's tools; the index replaces them (one bbolt
// transaction, one pointer swap); sessions whose list changed are told.
//
// Search: loads two pointers, the world and the index snapshot, and asks no one
// else. It takes no lock and does no I/O.
//
// Call: resolved among what the caller sees; refused unless this session has
// seen the definition that the tool has now; validated; sent; bytes back. Where
// nothing has to be waited for, who reads the agent's request does all of that,
// and who reads the server's answer passes it on: neither ever waits for the
// other end, and no goroutine is woken in between.
//
// Start: state lock; what an earlier daemon left is ended; the login shell's
// environment is asked for; index opened (damaged: renamed aside and rebuilt);
// config files read; socket bound: search answers from the index. When the
// environment is there the config files are expanded with it, and the servers
// connect in parallel.
//
// End: sessions are told bye, so that no agent starts another daemon without
// need; servers are stopped side by side; the lock is released last.
//
// # Who owns what
//
// Daemon.Run owns every goroutine but those of sessions, which end with their
// connections, and questions to a disk that does not answer. The world and the
// index snapshot are immutable values behind atomic pointers. mu guards the tables
// of sessions and of the processes beside the shared ones; no callback and no I/O
// happens under it. Each session has a turn mutex that orders the lists it is sent;
// only that session waits for it.
//
// # Invariants
//
// Each has a test of that name.
//
//  1. Deleting index.db, or damaging it in any way, loses nothing but time.
//  2. No project server runs before its present fingerprint was approved.
//  3. A tool runs only if the caller has seen the definition it has now.
//  4. Search never waits on an upstream, a file or a lock held across I/O.
//  5. Only the holder of the state lock unlinks or binds the socket.
//  6. Definitions and results reach the agent with the same JSON value they left
//     the server with, except that hidden characters (tool.Clean) are taken out
//     of definitions, never out of results; a tool whose name needs that is
//     dropped and reported.
//  7. No child or grandchild outlives the daemon by 2 s, however it dies; where
//     the keeper that watches over them is killed with it, by 2 s after the next
//     start.
//  8. One failing server, file or agent delays no other.
//  9. Values of env, headers and arguments never enter logs, the index, status
//     or errors.
//  10. Every tool that a server lists is indexed, exactly once.
package daemon
