package watcher

import (
	"reflect"
	"slices"

	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// Snapshot is everything that the config files say at one moment. It is complete
// and never changed after it was published.
type Snapshot struct {
	Servers  []Server // sorted by Root, then Name
	Problems []clientconfig.Problem
	Settings settings.Settings
	Values   []settings.Value // every setting with its origin
	// SettingsUnread says that config.json or the managed file is there, but could
	// not be read since the watcher runs: Settings lack what it says.
	SettingsUnread bool
	Projects       []string // roots of the projects whose files are part of this snapshot
	// Complete is false only for the snapshot that Latest returns before the files
	// were read for the first time: it says nothing about what is configured.
	Complete bool
}

// Server is a server as the daemon knows it: expanded, with its final name and
// all the places that define it.
type Server struct {
	// Server is the expanded definition. Name is the final one: unique among the
	// servers that any one caller can see. Root (of the Source) is where it is
	// visible, free of symbolic links. Dir is where it runs, absolute.
	clientconfig.Server
	// Key identifies the definition's place for as long as the daemon lives and
	// beyond: equal in every snapshot in which this server is defined under this
	// name for this root, whatever else about it changes.
	Key string
	// Declared is the name in the file, before a clash was resolved.
	Declared string
	// Written is the definition as the file has it, before its variables were
	// replaced: what an approval is about.
	Written clientconfig.Server
	// Sources are all files that define it the same way; Source is the first.
	Sources []clientconfig.Source
	// Rejected says that the user refused this server of a project in the client
	// whose file it is.
	Rejected bool
	// OffIn are projects in which the user switched this server of his own off.
	OffIn []string
}

// sameMeaning reports whether two snapshots differ in nothing but the places in
// the files. Places move with every line that a client adds above them.
func (s *Snapshot) sameMeaning(o *Snapshot) bool {
	return reflect.DeepEqual(s.withoutPlaces(), o.withoutPlaces())
}

func (s *Snapshot) withoutPlaces() Snapshot {
	c := *s
	c.Servers = slices.Clone(s.Servers)
	for i := range c.Servers {
		server := &c.Servers[i]
		server.Source.Line, server.Source.Col = 0, 0
		server.Written.Source.Line, server.Written.Source.Col = 0, 0
		server.Sources = slices.Clone(server.Sources)
		for j := range server.Sources {
			server.Sources[j].Line, server.Sources[j].Col = 0, 0
		}
	}
	c.Problems = slices.Clone(s.Problems)
	for i := range c.Problems {
		c.Problems[i].Line, c.Problems[i].Col = 0, 0
	}
	return c
}
