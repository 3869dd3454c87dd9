package platform

import (
	"os"

	"golang.org/x/sys/windows"
)

// IsTerminal reports whether f is a console, and makes it understand escape
// sequences, which older consoles do only when asked.
func IsTerminal(f *os.File) bool {
	var mode uint32
	handle := windows.Handle(f.Fd())
	if windows.GetConsoleMode(handle, &mode) != nil {
		return false
	}
	_ = windows.SetConsoleMode(handle, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return true
}

// TerminalWidth is the number of columns of the console f; 0 when it is not
// known.
func TerminalWidth(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}
