//go:build unix && !linux

package platform

func printDumpable() {}
