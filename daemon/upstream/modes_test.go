package upstream

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

// Every fault over stdio, all at once: each has the state and the words that
// it should, and costs no other server its tools.
func TestFaultsOverStdio(t *testing.T) {
	good := 12 // tools of the good server
	tests := []struct {
		mode   string
		state  string
		tools  int
		reason string // part of it
		note   string // part of one of them
	}{
		{mode: "ok", state: Ready, tools: good},
		{mode: "banner", state: Ready, tools: good, note: "no message was dropped"},
		{mode: "bom", state: Ready, tools: good, note: "byte order mark"},
		{mode: "blank", state: Ready, tools: good, note: "blank line"},
		{mode: "garbage", state: Ready, tools: good, note: "times)"},
		{mode: "hang-init", state: Backoff, reason: "not ready within 3s"},
		{mode: "hang-list", state: Backoff, reason: "listing its tools: it was not ready within 3s"},
		{mode: "exit", state: Backoff, reason: "Cannot find module 'left-pad'"},
		{mode: "exit-init", state: Backoff, reason: "exit status 1"},
		{mode: "deaf", state: Ready, tools: good},
		{mode: "batch", state: Ready, tools: good},
		{mode: "string-ids", state: Ready, tools: good},
		{mode: "odd-tools", state: Ready, tools: 8, note: `"badname" holds hidden`},
		{mode: "pages=40", state: Ready, tools: 40},
		{mode: "endless", state: Ready, tools: maxPages, note: "ends at page 1000"},
		{mode: "same-cursor", state: Ready, tools: 2, note: "repeats the cursor"},
		{mode: "duplicates", state: Ready, tools: 2, note: `"twice" is listed twice`},
		{mode: "bad-list", state: Backoff, reason: "no array of tools"},
		{mode: "list-error", state: Backoff, reason: "the database is locked"},
		{mode: "no-tools", state: Ready, tools: 0},
		{mode: "modern", state: Ready, tools: good},
		{mode: "ttl=1000", state: Ready, tools: good},
		{mode: "unheard", state: Ready, tools: good, note: "refused to be listened to"},
		{mode: "asks", state: Ready, tools: good, note: "asked for sampling/createMessage"},
		{mode: "stderr", state: Ready, tools: good},
		{mode: "null-id", state: Backoff, reason: "I cannot read that"},
		{mode: "old-version", state: Backoff, reason: `protocol version "1999-12-31"`},
		{mode: "orphans", state: Ready, tools: good},
		{mode: "leaves", state: Backoff, reason: "closed its output but runs on"},
	}
	var servers []Server
	for _, tt := range tests {
		s := fault(tt.mode)
		s.Def.StartTimeout = 20 * time.Second
		if strings.HasPrefix(tt.mode, "hang") {
			s.Def.StartTimeout = 3 * time.Second
		}
		servers = append(servers, s)
	}
	f := start(t, Options{}, servers...)
	for i, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			f.t = t
			key := servers[i].Key
			f.until(key+" is "+tt.state, func() bool {
				st := f.Status(key)
				return st.State == tt.state || tt.state == Backoff && st.Reason != "" && st.State == Failed
			})
			st := f.Status(key)
			if n := len(f.listing(key).Tools); n != tt.tools {
				t.Errorf("%d tools, want %d", n, tt.tools)
			}
			if !strings.Contains(st.Reason, tt.reason) {
				t.Errorf("reason %q, want it to hold %q", st.Reason, tt.reason)
			}
			if (tt.note != "" || tt.state == Ready && tt.mode != "no-tools" && tt.mode != "stderr") && !has(st.Notes, tt.note) != (tt.note == "") {
				t.Errorf("notes %q, want %q", st.Notes, tt.note)
			}
			if tt.state == Ready && st.PID == 0 {
				t.Error("no pid")
			}
			if tt.state != Ready && (st.Hint == "" || st.Retry.IsZero()) {
				t.Errorf("no hint or retry: %+v", st)
			}
		})
	}
	f.t = t
	st := f.stats("asks")
	for i, code := range st.Declined {
		want := -32601
		if i == 4 {
			want = 0 // the ping
		}
		if code != want {
			t.Errorf("answers to the server's requests: %v", st.Declined)
			break
		}
	}
	if len(st.Declined) != 6 {
		t.Errorf("%d answers to six requests", len(st.Declined))
	}
}

// A definition is in memory once: what the owner of the tools keeps takes the
// place of what was listed.
func TestToolsAreTheOwners(t *testing.T) {
	own := map[string]*tool.Tool{}
	var mu sync.Mutex
	f := start(t, Options{OnListing: func(_ string, l Listing) []*tool.Tool {
		mu.Lock()
		defer mu.Unlock()
		kept := make([]*tool.Tool, len(l.Tools))
		for i, listed := range l.Tools {
			kept[i] = listed.On(listed.Server)
			own[listed.Name] = kept[i]
		}
		return kept
	}}, fault("ok"))
	f.untilState("ok", Ready)
	mu.Lock()
	defer mu.Unlock()
	if got := f.find("ok", "").tool("echo"); got == nil || got != own["echo"] {
		t.Errorf("the server has %p, its owner %p", got, own["echo"])
	}
}
