// Package clientconfig knows where every MCP client keeps its servers and how it
// writes them. It turns the bytes of any such file into Servers of one spelling,
// and it never fails a file for one bad entry.
//
// Clients is the table of all clients; UserFiles and ProjectFiles give the places
// to look at; Decode reads the bytes found there; Expand replaces the variables.
// All of it is pure: nothing here opens a file, runs a program or asks the
// process's environment. What a file says decides only about that file.
//
// Three parsers (JSON with comments, TOML, YAML) make one kind of tree with the
// place of every value in it; roots.go finds the servers in the tree, whichever
// client's root they stand under, and entry.go reads one entry in any of the
// spellings that are in use. Texts of problems hold names of keys and kinds of
// values, never values: those may be secrets.
//
// Everything is safe for concurrent use.
package clientconfig
