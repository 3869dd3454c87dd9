//go:build unix

package platform

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// journalFormat: 1 is the first.
const journalFormat = 1

// journal says what runs, for the sweep of the next daemon. It is rewritten
// whole at each change: some ten lines, and never half of one. It is not synced
// to the disk, since after a crash of the machine none of it runs.
type journal struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	data journalData
}

type journalData struct {
	Format   int            `json:"format"`
	Boot     string         `json:"boot,omitempty"`
	Keepers  []journalEntry `json:"keepers"`
	Children []journalEntry `json:"children"`
}

type journalEntry struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // a pid alone may be another process by now
	Group int    `json:"group"`
	Label string `json:"label,omitempty"`
}

func newJournal(path string, log *slog.Logger) *journal {
	return &journal{path: path, log: log, data: journalData{Format: journalFormat, Boot: bootID()}}
}

func (j *journal) change(f func(*journalData)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.data)
	if j.path == "" {
		return
	}
	data, err := json.Marshal(j.data)
	if err == nil {
		err = writeAtomic(j.path, append(data, '\n'), 0o600, false)
	}
	if err != nil {
		j.log.Warn("the journal of processes is not up to date", "error", err)
	}
}

func (j *journal) addKeeper(pid int) {
	p, _ := findProc(pid)
	j.change(func(d *journalData) {
		d.Keepers = append(d.Keepers, journalEntry{PID: pid, Start: p.start, Group: pid})
	})
}

func (j *journal) add(pid int, start uint64, label string) {
	j.change(func(d *journalData) {
		d.Children = append(d.Children, journalEntry{pid, start, pid, label})
	})
}

func (j *journal) remove(pid int) {
	j.change(func(d *journalData) {
		d.Children = slices.DeleteFunc(d.Children, func(e journalEntry) bool { return e.PID == pid })
	})
}

// removeKeeper takes out a keeper and, since nothing outlives it, all it held.
func (j *journal) removeKeeper(pid int) {
	j.change(func(d *journalData) {
		d.Keepers = slices.DeleteFunc(d.Keepers, func(e journalEntry) bool { return e.PID == pid })
		if len(d.Keepers) == 0 {
			d.Children = nil
		}
	})
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path != "" && len(j.data.Keepers) == 0 {
		os.Remove(j.path)
	}
}

// stateKey names a state directory in marks: a hash of path, device and inode,
// so that a daemon of the same user in a container with the same paths, whose
// processes this one sees, is another one.
type stateKey uint64

func (k stateKey) String() string { return fmt.Sprintf("%016x", uint64(k)) }

func stateKeyOf(journal string) stateKey {
	abs, err := filepath.Abs(journal)
	if err != nil {
		abs = journal
	}
	dir := filepath.Dir(abs)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	id := dir
	if info, err := os.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			id += fmt.Sprintf(" %d %d", st.Dev, st.Ino)
		}
	}
	sum := sha256.Sum256([]byte(id + " " + filepath.Base(abs)))
	return stateKey(binary.BigEndian.Uint64(sum[:8]))
}

// Sweep kills what an earlier daemon of this journal left when it was killed
// together with its keeper: the processes in the journal (by pid and start
// time), their groups, the sessions they are in, everything below, and every
// process of ours that carries one of the daemon's two marks, in its environment
// and in its limits (Linux).
//
// The caller holds the state lock and has started nothing yet. killed counts
// processes; the error says what could not be ended in 2 s.
func Sweep(journal string, log *slog.Logger) (killed int, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var data journalData
	switch raw, err := ReadState(journal); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("reading the journal of processes", "error", err)
	default:
		if err := json.Unmarshal(raw, &data); err != nil || data.Format != journalFormat || data.Boot != bootID() {
			data = journalData{} // another boot's, or damaged: the markers remain
		}
	}
	c := claim{key: stateKeyOf(journal), data: data}
	deadline := time.Now().Add(stopStep)
	dead := make(map[int]uint64)
	for empty := 0; ; {
		table, err := processTable()
		if err != nil {
			return len(dead), fmt.Errorf("looking for processes of an earlier daemon: %w", err)
		}
		victims := c.pick(table)
		// Its keeper, if it lives, is ending them too, and ends by itself.
		if time.Until(deadline) > stopStep/2 && slices.ContainsFunc(victims, c.isKeeper) && !allFunc(victims, c.isKeeper) {
			victims = slices.DeleteFunc(victims, c.isKeeper)
		}
		if len(victims) == 0 {
			// One pass can miss what forks meanwhile.
			if empty++; empty == 2 {
				break
			}
			continue
		}
		empty = 0
		for _, p := range victims {
			if err := signalProc(p, syscall.SIGKILL); err == nil && dead[p.pid] != p.start {
				dead[p.pid] = p.start
				log.Info("ended a process of an earlier daemon", "pid", p.pid)
			}
		}
		if time.Now().After(deadline) {
			return len(dead), fmt.Errorf("%d processes of an earlier daemon do not end, the first has pid %d", len(victims), victims[0].pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := os.Remove(journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("removing the journal of processes", "error", err)
	}
	return len(dead), nil
}

// claim tells which processes are a daemon's.
type claim struct {
	key  stateKey // 0: not by marks
	data journalData
}

func (c *claim) isKeeper(p proc) bool {
	return slices.ContainsFunc(c.data.Keepers, func(e journalEntry) bool { return e.PID == p.pid && e.Start == p.start })
}

func (c *claim) marked(pid int) bool {
	return c.key != 0 && (strings.HasPrefix(markerOf(pid), c.key.String()+":") || sameDaemon(tagOf(pid), makeTag(uint64(c.key), 0)))
}

// pick never takes this process nor one above it: a server may run a shell that
// started this very daemon.
func (c *claim) pick(table []proc) []proc {
	byPID := make(map[int]proc, len(table))
	for _, p := range table {
		byPID[p.pid] = p
	}
	spared := make(map[int]bool)
	for pid := os.Getpid(); pid > 0 && !spared[pid]; pid = byPID[pid].ppid {
		spared[pid] = true
	}
	// A group or session whose leader is another process by now is another one.
	// One whose leader is gone most likely is the one in the journal, for the
	// kernel does not give its number away; it is believed only where there are
	// no tags to know it by.
	owned := make(map[int]bool)
	for _, e := range slices.Concat(c.data.Keepers, c.data.Children) {
		if p, ok := byPID[e.PID]; ok && p.start == e.Start || !ok && !tagsWork() {
			owned[e.PID] = true
		}
	}
	uid := os.Geteuid()
	var roots []int
	for _, p := range table {
		if p.uid != uid || spared[p.pid] || p.zombie {
			continue
		}
		if owned[p.pid] || owned[p.pgid] || owned[p.sid] || c.marked(p.pid) {
			roots = append(roots, p.pid)
		}
	}
	var picked []proc
	for _, pid := range roots {
		picked = append(picked, byPID[pid])
	}
	for _, p := range descendants(table, roots...) {
		if !p.zombie && !spared[p.pid] {
			picked = append(picked, p)
		}
	}
	return picked
}

func allFunc(list []proc, f func(proc) bool) bool {
	return !slices.ContainsFunc(list, func(p proc) bool { return !f(p) })
}
