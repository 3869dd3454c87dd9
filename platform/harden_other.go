//go:build unix && !linux

package platform

// notDumpable has nothing to do: macOS asks for a privilege to read another
// process, and the BSDs have no call for it without one.
func notDumpable() error { return nil }
