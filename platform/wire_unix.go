//go:build unix

package platform

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// markerName is in the environment of every server process and of what it
// starts. Its value names the daemon's state directory and the server.
const markerName = "TOOLSD_KEEPER"

// message is what daemon and keeper tell each other. Both are one binary and
// one image of it, so there is no version.
type message struct {
	Op string // start, term, kill; started, failed, exited, cleared
	ID uint64 `json:",omitempty"` // of a start and its answer

	PID    int    `json:",omitempty"`
	Start  uint64 `json:",omitempty"`
	Status uint32 `json:",omitempty"` // syscall.WaitStatus
	Errno  int    `json:",omitempty"`

	Path   raw    `json:",omitempty"`
	Args   []raw  `json:",omitempty"`
	Env    []raw  `json:",omitempty"`
	Dir    raw    `json:",omitempty"`
	Marker string `json:",omitempty"`
	Tag    uint64 `json:",omitempty"`
	Umask  int    `json:",omitempty"`

	Session bool `json:",omitempty"`

	files []int // descriptors that came along
}

// raw is what the system takes as bytes. JSON has text only, and would put another
// character in the place of what is none.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(r)) }

func (r *raw) UnmarshalJSON(data []byte) error {
	var b []byte
	err := json.Unmarshal(data, &b)
	*r = raw(b)
	return err
}

func convert[To, From ~string](list []From) []To {
	out := make([]To, len(list))
	for i, s := range list {
		out[i] = To(s)
	}
	return out
}

// wire is one end of the socket pair. The four bytes of a length are sent alone,
// and descriptors ride on them: the reader asks for just those four, so that
// descriptors and bytes cannot come apart on any system.
type wire struct {
	conn *net.UnixConn
	mu   sync.Mutex // one writer at a time
}

func newWire(f *os.File) (*wire, error) {
	defer f.Close() // FileConn has its own copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("descriptor %s is no Unix socket", f.Name())
	}
	return &wire{conn: unixConn}, nil
}

func (w *wire) send(m message, files ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var header [4]byte
	binary.BigEndian.PutUint32(header[:], uint32(len(body)))
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, _, err := w.conn.WriteMsgUnix(header[:], rights, nil); err != nil {
		return err
	}
	_, err = w.conn.Write(body)
	return err
}

func (w *wire) receive() (message, error) {
	var header [4]byte
	rights := make([]byte, unix.CmsgSpace(3*4))
	n, rn, _, _, err := w.conn.ReadMsgUnix(header[:], rights)
	if err != nil {
		return message{}, err
	}
	if n == 0 {
		return message{}, io.EOF
	}
	if _, err := io.ReadFull(w.conn, header[n:]); err != nil {
		return message{}, err
	}
	var m message
	if rn > 0 {
		parsed, err := unix.ParseSocketControlMessage(rights[:rn])
		if err != nil {
			return message{}, err
		}
		for _, c := range parsed {
			if fds, err := unix.ParseUnixRights(&c); err == nil {
				m.files = append(m.files, fds...)
			}
		}
	}
	body := make([]byte, binary.BigEndian.Uint32(header[:]))
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return message{}, err
	}
	return m, json.Unmarshal(body, &m)
}

// socketPair's ends are not inherited unless passed on.
func socketPair() (a, b *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "daemon"), os.NewFile(uintptr(fds[1]), "keeper"), nil
}

// pipe's end for the child blocks, as programs expect; os.Pipe's would not. Ours
// is one with deadlines.
func pipe(oursWrites bool) (ours *os.File, theirs int, err error) {
	var fds [2]int
	syscall.ForkLock.RLock()
	if err = syscall.Pipe(fds[:]); err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, -1, os.NewSyscallError("pipe", err)
	}
	our, their := fds[0], fds[1]
	if oursWrites {
		our, their = their, our
	}
	if err := syscall.SetNonblock(our, true); err != nil {
		syscall.Close(our)
		syscall.Close(their)
		return nil, -1, os.NewSyscallError("setnonblock", err)
	}
	return os.NewFile(uintptr(our), "pipe"), their, nil
}

func markerIn(environ []byte) string {
	const name = "\x00" + markerName + "="
	if rest, ok := bytes.CutPrefix(environ, []byte(name[1:])); ok {
		value, _, _ := bytes.Cut(rest, []byte{0})
		return string(value)
	}
	if _, rest, ok := bytes.Cut(environ, []byte(name)); ok {
		value, _, _ := bytes.Cut(rest, []byte{0})
		return string(value)
	}
	return ""
}

func withMarker(env []string, marker string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, markerName+"=") {
			out = append(out, kv)
		}
	}
	if marker != "" {
		out = append(out, markerName+"="+marker)
	}
	return out
}
