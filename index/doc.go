// Package index finds tools. It keeps what every server listed, in memory as an
// immutable Snapshot and in one bbolt file as a cache of it, and ranks the tools
// for the words of a person or an agent.
//
// An Index has one owner who tells it what was listed (Replace, Retain,
// Configure) and any number of readers who ask its Snapshot. All methods are safe
// for concurrent use. A reader takes no lock and does no I/O: it loads one
// pointer. Writers wait for each other and for the disk, never for readers.
//
// The file may vanish, be damaged or be impossible to write at any time: the
// index then works from memory, Problem says so, and what was lost is only the
// time it takes the servers to list their tools again. Nothing that a server
// needs to run (environment, headers, arguments) is ever given to the index.
//
// Every answer is made for one View. Tools outside of it do not exist for that
// answer: not in its statistics, its vocabulary, its corrections or its
// categories. See Snapshot.corpusFor.
//
// How a text becomes words is in analyze.go, what a tool consists of in doc.go's
// neighbours document.go and schema.go, how a query is read in query.go, how it
// is scored in score.go; synonyms.txt is the table of synonyms.
package index
