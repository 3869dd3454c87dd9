// Package trust keeps what the user allowed: which project servers may run, which
// servers may not run any more, and which tool definitions were seen.
//
// An approval is the hash of what was approved (Fingerprint), so that any change
// of a definition, or of a script in the project that it runs, asks again. The
// state is one small file with a checksum. It fails closed: a file that cannot be
// read, or is not exactly what this package wrote, approves nothing. The copy
// beside it never grants anything; it only keeps revocations, and what to compare
// a server with, over the loss of the file.
//
// What is asked at every read of every verb (Decisions) takes no lock and does no
// I/O. Read gives it to a program that does not own the files. A Store is safe for
// concurrent use.
//
// The package also holds what a person is told before approving (Describe,
// Unusual, LintTool, Details.Changes), and the Redactor that keeps secrets out of
// texts that leave the program.
package trust
