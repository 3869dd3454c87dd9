package shim_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/ipc"
)

// A client may send all of the handshake at once. Nothing may come before the
// answer to initialize, whose session brings a list that was not there before.
func TestNothingComesBeforeTheAnswerToInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowly(t, 100*time.Millisecond)
		w.Set("kicad", gerber, create)
		a := start(t, w, mode(ipc.Direct))
		a.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"eager","version":"1"}}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
			`{"jsonrpc":"2.0","id":"l","method":"tools/list"}`)
		time.Sleep(5 * time.Second) // of the bubble's clock
		synctest.Wait()
		lines := a.transcript()
		for i, line := range lines {
			if strings.Contains(line, `"method"`) {
				t.Errorf("line %d is %s", i+1, line)
			}
		}
		if len(lines) != 2 || !strings.Contains(lines[1], "kicad_") {
			t.Errorf("got %q", lines)
		}
	})
}
