package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A link needs a privilege here, and the directories are private by their
// access lists.
const openNoFollow = 0

func ownerOf(fs.FileInfo) uint32 { return 0 }

func isOurs(fs.FileInfo) bool { return true }

func ownedByAnother(string) bool { return false }

func explainOpen(_ string, err error) error { return err }

func backlogFull(error) bool { return false } // the system waits

func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

func syncDir(string) error { return nil } // NTFS journals the rename

func privateSocket(_, _ string, _ syscall.RawConn) error { return nil }

// sioPeerPID is SIO_AF_UNIX_GETPEERPID of afunix.h.
const sioPeerPID = 0x58000100

// samePeer compares the users of the two processes. Windows tells the peer's
// pid only, so a process that took over that pid in between is not noticed.
func samePeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var pid, n uint32
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		sockErr = windows.WSAIoctl(windows.Handle(fd), sioPeerPID, nil, 0, (*byte)(unsafe.Pointer(&pid)), uint32(unsafe.Sizeof(pid)), &n, nil, 0)
	}); err != nil {
		return err
	}
	if sockErr != nil {
		return fmt.Errorf("asking for the peer's process: %w", sockErr)
	}
	peer, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return fmt.Errorf("opening the peer's process %d: %w", pid, err)
	}
	defer windows.CloseHandle(peer)
	theirs, err := userSID(peer)
	if err != nil {
		return err
	}
	ours, err := userSID(windows.CurrentProcess())
	if err != nil {
		return err
	}
	if !theirs.Equals(ours) {
		return fmt.Errorf("its user is %s, yours is %s", theirs, ours)
	}
	return nil
}

func userSID(process windows.Handle) (*windows.SID, error) {
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return nil, fmt.Errorf("asking for the user of a process: %w", err)
	}
	defer token.Close()
	u, err := token.GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("asking for the user of a process: %w", err)
	}
	return u.User.Sid.Copy()
}

func homeDir(getenv func(string) string) (string, error) {
	if h := getenv("USERPROFILE"); filepath.IsAbs(h) {
		return h, nil
	}
	if h, err := os.UserHomeDir(); err == nil {
		return h, nil
	}
	return "", errors.New("USERPROFILE is not set")
}

func canExecute(string) bool { return true } // the extension says so

func isNotDir(error) bool { return false }
