package daemon

import (
	"sync"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// fingerprintWait is how long a world waits for one fingerprint. The files of a
// project are hashed within milliseconds, and 256 MB from a slow disk within this.
const fingerprintWait = 3 * time.Second

// fingerprints asks for fingerprints, each on a goroutine of its own: the disk of a
// project may not answer, and the servers of all others do not wait for it. Such a
// question is left behind, and ends when the disk answers.
type fingerprints struct {
	of func(written, expanded clientconfig.Server, root string) (trust.Fingerprint, trust.Details)

	mu   sync.Mutex
	late map[string]bool // by key: servers of which a question was left behind
}

// get returns the fingerprint of a server. One that does not come in time is empty,
// which is never approved, and as long as it has not come there is no other.
func (f *fingerprints) get(s watcher.Server) (trust.Fingerprint, trust.Details) {
	if s.Source.Root == "" { // no file counts
		return f.of(s.Written, s.Server, "")
	}
	type answer struct {
		fingerprint trust.Fingerprint
		details     trust.Details
	}
	unanswered := answer{"", trust.Details{Root: s.Source.Root, File: s.Source.File, Unfit: "the files of its project cannot be read at the moment: the disk does not answer"}}
	f.mu.Lock()
	late := f.late[s.Key]
	f.mu.Unlock()
	if late {
		return unanswered.fingerprint, unanswered.details
	}
	answered := make(chan answer, 1)
	go func() {
		fingerprint, details := f.of(s.Written, s.Server, s.Source.Root)
		f.mu.Lock()
		defer f.mu.Unlock()
		answered <- answer{fingerprint, details}
		delete(f.late, s.Key)
	}()
	timer := time.NewTimer(fingerprintWait)
	defer timer.Stop()
	select {
	case a := <-answered:
		return a.fingerprint, a.details
	case <-timer.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case a := <-answered:
		return a.fingerprint, a.details
	default:
		f.late[s.Key] = true
		return unanswered.fingerprint, unanswered.details
	}
}
