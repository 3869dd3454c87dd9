package daemon

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
	"github.com/toolsd/toolsd/watcher/settings"
)

// TestADiskThatDoesNotAnswer has the files of one project on it.
func TestADiskThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(key, root string) watcher.Server {
			return watcher.Server{Key: key, Server: clientconfig.Server{Source: clientconfig.Source{Root: root}}}
		}
		back := make(chan bool)
		var asked atomic.Int32
		f := fingerprints{late: map[string]bool{}, of: func(_, _ clientconfig.Server, root string) (trust.Fingerprint, trust.Details) {
			if root == "/hangs" {
				asked.Add(1)
				<-back
			}
			return trust.Fingerprint("of " + root), trust.Details{Root: root}
		}}
		get := func(key, root string, within time.Duration) (trust.Fingerprint, trust.Details) {
			t.Helper()
			begin := time.Now()
			fingerprint, details := f.get(in(key, root))
			if took := time.Since(begin); took > within {
				t.Errorf("%s took %v", root, took)
			}
			return fingerprint, details
		}
		if fingerprint, details := get("a", "/hangs", fingerprintWait); fingerprint != "" || details.Unfit == "" {
			t.Errorf("%q %+v", fingerprint, details)
		}
		// Nobody waits for it twice, and it is asked once.
		for range 3 {
			if fingerprint, _ := get("a", "/hangs", 0); fingerprint != "" {
				t.Errorf("%q", fingerprint)
			}
		}
		if fingerprint, _ := get("b", "/works", 0); fingerprint != "of /works" {
			t.Errorf("%q", fingerprint)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		close(back)
		synctest.Wait()
		if fingerprint, details := get("a", "/hangs", 0); fingerprint != "of /hangs" || details.Unfit != "" {
			t.Errorf("%q %+v", fingerprint, details)
		}
	})
}

// TestFilesOfAProjectAreReadAfterAnApproval: before that it waits whatever they are,
// and a stranger's files cost nothing.
func TestFilesOfAProjectAreReadAfterAnApproval(t *testing.T) {
	d := New(Options{})
	d.trust = trust.Open(filepath.Join(t.TempDir(), "trust.json"), d.log)
	read := 0
	d.fingerprints.of = func(clientconfig.Server, clientconfig.Server, string) (trust.Fingerprint, trust.Details) {
		read++
		return "as it is", trust.Details{}
	}
	judge := func() gate {
		server := watcher.Server{Key: "k", Server: clientconfig.Server{Source: clientconfig.Source{Scope: clientconfig.Project}}}
		return d.judge(server, settings.Default()).gate
	}
	if judge() != pending || read != 0 {
		t.Errorf("a server that was never approved is judged with %d looks", read)
	}
	approve := func(fingerprint trust.Fingerprint) {
		if err := d.trust.Approve([]trust.Approval{{Subject: "k", Fingerprint: fingerprint}}, false); err != nil {
			t.Fatal(err)
		}
	}
	if approve("as it was"); judge() != pending || read == 0 {
		t.Error("a server that changed since its approval does not wait")
	}
	if approve("as it is"); judge() != open {
		t.Error("an approved server waits")
	}
}
