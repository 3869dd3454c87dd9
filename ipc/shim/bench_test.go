package shim_test

import (
	"fmt"
	"testing"

	"github.com/toolsd/toolsd/ipc"
)

// BenchmarkHandshake is initialize and the first tools/list, daemon attached
// over memory: what the shim itself adds to an agent's start.
func BenchmarkHandshake(b *testing.B) {
	w := newMemoryWorld(nil)
	w.Set("kicad", gerber, drill, create)
	for b.Loop() {
		a := start(b, w)
		a.initialize("claude-code")
		a.list()
		a.in.Close()
		<-a.ended
	}
}

// BenchmarkList is tools/list in direct mode with as many tools as 20 servers have.
func BenchmarkList(b *testing.B) {
	w := newMemoryWorld(nil)
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf(`{"name":"tool_%04d","description":"one of many tools","inputSchema":{"type":"object","properties":{"a":{"type":"string","description":"what it is about"}}}}`, i))
	}
	w.Set("lab", many...)
	a := attach(b, w, "claude-code", mode(ipc.Direct))
	for b.Loop() {
		a.request("tools/list", `{}`)
	}
}

// BenchmarkCall is a call through the shim to a daemon in memory: its difference
// to nothing is the shim's share of the added latency.
func BenchmarkCall(b *testing.B) {
	w := newMemoryWorld(nil)
	w.Set("kicad", drill)
	a := attach(b, w, "claude-code", mode(ipc.Direct))
	for b.Loop() {
		a.call("kicad_export_drill", `{"x":1}`)
	}
}
