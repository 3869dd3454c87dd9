package watcher

import (
	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// Snapshot is everything that the config files say at one moment. It is complete
// and never changed after it was published.
type Snapshot struct {
	Servers  []Server // sorted by Root, then Name
	Problems []clientconfig.Problem
	Settings settings.Settings
	Projects []string // roots of the projects whose files are part of this snapshot
}

// Server is a server as the daemon knows it: expanded, with its final name and
// all the places that define it.
type Server struct {
	// Server is the expanded definition. Name is the final one: unique among the
	// servers that any one caller can see. Root (of the Source) is where it is visible.
	clientconfig.Server
	// Key identifies the definition's place for as long as the daemon lives and
	// beyond: equal in every snapshot in which this server is defined under this
	// name for this root, whatever else about it changes.
	Key string
	// Declared is the name in the file, before a clash was resolved.
	Declared string
	// Sources are all files that define it the same way; Source is the first.
	Sources []clientconfig.Source
}
