package shim_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// socketWorld is the same world behind a real socket: the rules hold over the
// wire too.
type socketWorld struct {
	*memoryWorld
	t      *testing.T
	socket string

	mu     sync.Mutex
	server *http.Server
	conns  map[net.Conn]bool
}

func (w *socketWorld) Virtual() bool { return false }

func newSocketWorld(t *testing.T) world {
	dir := t.TempDir()
	dirs, err := platform.FindDirs(func(name string) string {
		if name == "TOOLSD_DIR" {
			return dir
		}
		return ""
	})
	if err == nil {
		err = dirs.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &socketWorld{memoryWorld: newMemoryWorld(t).(*memoryWorld), t: t, socket: filepath.Join(filepath.Dir(dirs.Socket), "s")}
	w.serve()
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *socketWorld) serve() {
	listener, err := platform.Listen(w.socket)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = map[net.Conn]bool{}
	w.server = &http.Server{
		Handler: ipc.NewHandler(&memoryBackend{w.memoryWorld}, nil),
		ConnState: func(c net.Conn, state http.ConnState) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if state == http.StateNew {
				w.conns[c] = true
			}
		},
	}
	go w.server.Serve(listener)
}

// stop breaks every connection at once, as a process that is killed does.
func (w *socketWorld) stop() {
	w.mu.Lock()
	server, conns := w.server, w.conns
	w.server, w.conns = nil, nil
	w.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close()
	for c := range conns {
		_ = c.Close()
	}
}

func (w *socketWorld) Connect(ctx context.Context) (ipc.Backend, error) {
	c := ipc.NewClient(w.socket)
	if _, err := c.Handshake(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (w *socketWorld) Crash(stayDown bool) {
	w.stop()
	w.memoryWorld.Crash(stayDown)
	if !stayDown {
		w.serve()
	}
}

func TestRulesOverTheSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the directory of the socket is checked in another way there")
	}
	testRules(t, newSocketWorld)
}
