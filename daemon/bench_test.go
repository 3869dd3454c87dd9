package daemon

import (
	"testing"

	"github.com/toolsd/toolsd/ipc"
)

// catalogDaemon runs a daemon over the whole catalog. Its figures are for the
// machine that they were taken on; what counts is how they compare.
func catalogDaemon(b *testing.B) *running {
	servers, _ := catalogServers(b)
	m := newMachine(b)
	m.config(servers)
	r := m.start()
	for name := range servers {
		r.untilState(name, ipc.StateReady)
	}
	return r
}

func BenchmarkSearch(b *testing.B) {
	r := catalogDaemon(b)
	for name, do := range map[string]func(ipc.SearchRequest) error{
		"daemon": func(q ipc.SearchRequest) error { _, err := r.Daemon.Search(b.Context(), q); return err },
		"socket": func(q ipc.SearchRequest) error { _, err := r.client.Search(b.Context(), q); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(ipc.SearchRequest{Query: "export gerber files", CWD: r.m.project}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStatus(b *testing.B) {
	r := catalogDaemon(b)
	for b.Loop() {
		if _, err := r.Status(b.Context(), ipc.StatusRequest{CWD: r.m.project}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAttach is what an agent's start costs the daemon.
func BenchmarkAttach(b *testing.B) {
	r := catalogDaemon(b)
	for b.Loop() {
		s, err := r.client.Attach(b.Context(), ipc.AttachRequest{Client: "test", CWD: r.m.project}, ipc.Events{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkCall is a call through the socket to a server that answers at once.
func BenchmarkCall(b *testing.B) {
	m := newMachine(b)
	m.config(object{"lab": fault("ok")})
	r := m.start()
	r.untilState("lab", ipc.StateReady)
	for b.Loop() {
		if _, err := r.client.Call(b.Context(), ipc.CallRequest{ToolID: "lab::echo"}); err != nil {
			b.Fatal(err)
		}
	}
}
