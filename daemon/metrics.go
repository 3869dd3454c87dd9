package daemon

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

// writeMetrics writes the Prometheus text format. It counts all servers, other
// callers' projects too, and names none.
func (d *Daemon) writeMetrics(out io.Writer) {
	gauge := func(name, help string, value any) {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %v\n", name, help, name, name, value)
	}
	w := d.world.Load()
	states := map[ipc.ServerState]int{
		ipc.StateReady: 0, ipc.StateStarting: 0, ipc.StateBackoff: 0, ipc.StateFailed: 0,
		ipc.StateLazy: 0, ipc.StatePending: 0, ipc.StateDisabled: 0,
	}
	all := view{world: w, mine: w.byKey, open: map[string]*server{}}
	for key, s := range w.byKey {
		if s.gate == open || s.gate == unusable {
			all.open[key] = s
		}
	}
	for _, s := range w.servers {
		states[d.serverInfo(all, s, nil).State]++
	}
	fmt.Fprint(out, "# HELP toolsd_servers Configured servers by state.\n# TYPE toolsd_servers gauge\n")
	for _, state := range []ipc.ServerState{ipc.StateReady, ipc.StateStarting, ipc.StateBackoff, ipc.StateFailed, ipc.StateLazy, ipc.StatePending, ipc.StateDisabled} {
		fmt.Fprintf(out, "toolsd_servers{state=%q} %d\n", state, states[state])
	}
	tools := 0
	for range d.index.Snapshot().All(all.visible) {
		tools++
	}
	gauge("toolsd_tools", "Tools that are searchable.", tools)
	gauge("toolsd_sessions", "Attached agents.", len(d.attachedSessions()))
	gauge("toolsd_uptime_seconds", "Seconds since the daemon started.", int64(time.Since(d.started).Seconds()))
	if memory, ok := platform.MemoryRSS(os.Getpid()); ok {
		gauge("toolsd_resident_bytes", "Resident memory of the daemon.", memory)
	}
	gauge("toolsd_goroutines", "Goroutines of the daemon.", runtime.NumGoroutine())
	fmt.Fprint(out, "# HELP toolsd_calls_total Calls of tools by how they ended.\n# TYPE toolsd_calls_total counter\n")
	for outcome, n := range d.calls.Counts() {
		fmt.Fprintf(out, "toolsd_calls_total{outcome=%q} %d\n", outcome, n)
	}
}
