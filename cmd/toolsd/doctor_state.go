package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/toolsd/toolsd/daemon"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
)

func checkDirectories(p *patient) []finding {
	if p.dirsErr != nil {
		return []finding{broken("", p.dirsErr, "set HOME, or TOOLSD_DIR to a directory of your own")}
	}
	places := p.dirs.Examine()
	wide := false
	for _, place := range places {
		wide = wide || place.Wide
	}
	var mended error
	if wide && p.fix {
		mended = p.dirs.Prepare()
		places = p.dirs.Examine()
	}
	var out []finding
	for _, place := range places {
		switch {
		case place.Err != nil:
			out = append(out, broken(place.Path, place.Err, "`toolsd settings` shows nothing without it; set TOOLSD_DIR to another place"))
		case place.Wide:
			f := warning(place.Path, "others may look into the %s directory: its mode is %04o", place.Role, place.Mode.Perm()).do("type `toolsd doctor --fix`, or: chmod 700 %s", place.Path)
			if mended != nil {
				f = broken(place.Path, mended, "chmod 700 "+place.Path)
			}
			out = append(out, f)
		case !place.Exists:
			out = append(out, good(place.Path, "the %s directory does not exist yet and is made when it is needed", place.Role))
		default:
			out = append(out, good(place.Path, "the %s directory, mode %04o", place.Role, place.Mode.Perm()))
		}
	}
	if wide && p.fix && mended == nil {
		out = append(out, good("", "fixed: the modes of the directories are 0700 now"))
	}
	return out
}

// Below the first, the index and the state cannot be kept for long; below the
// second, a few servers' downloads fill it.
const (
	noSpace     = 20 << 20
	littleSpace = 200 << 20
)

func checkDiskSpace(p *patient) []finding {
	if p.dirsErr != nil {
		return nil
	}
	var out []finding
	var last int64 = -1
	for _, dir := range []string{p.dirs.State, p.dirs.Cache} {
		free, err := platform.FreeSpace(dir)
		switch {
		case err != nil:
			out = append(out, note(dir, "%v", err))
		case free == last: // the same file system
		case free < noSpace:
			out = append(out, failure(dir, "only %s are free, too little for the state and the index", space(free)).do("make room on this disk; the index works from memory meanwhile"))
		case free < littleSpace:
			out = append(out, warning(dir, "only %s are free", space(free)).do("make room on this disk"))
		default:
			out = append(out, good(dir, "%s are free", space(free)))
		}
		last = free
	}
	return out
}

// space writes a number of bytes of a disk.
func space(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d GB", n>>30)
}

// noDaemon reports whether it is certain that none runs.
func (p *patient) noDaemon() bool { return errors.Is(p.daemonErr, errNoneRuns) }

func checkLock(p *patient) []finding {
	if p.dirsErr != nil {
		return nil
	}
	path := filepath.Join(p.dirs.State, lockName)
	pid, known := platform.LockHolder(path)
	holder := "a daemon"
	if known {
		holder = fmt.Sprintf("process %d", pid)
	}
	if p.status != nil {
		if known && pid != p.status.Daemon.PID {
			return []finding{warning(path, "it names process %d, but the daemon that answers is process %d", pid, p.status.Daemon.PID).do("two daemons with one socket: `toolsd stop`, then `toolsd start`")}
		}
		return []finding{good(path, "held by %s, the daemon", holder)}
	}
	free, err := lockIsFree(path)
	switch {
	case err != nil:
		return []finding{broken(path, err, "see what is there: ls -ld "+path)}
	case free:
		return []finding{good(path, "free: no daemon lives")}
	case p.noDaemon():
		return []finding{failure(path, "%s holds the lock and listens at no socket, so nothing can reach it", holder).do(
			"it may be starting or ending: try again. Else see what it is (`ps -p %d`), and end it: kill %d; another XDG_RUNTIME_DIR or TOOLSD_SOCKET than the daemon's is a cause too", pid, pid)}
	}
	return []finding{note(path, "held by %s", holder)}
}

func checkSocket(p *patient) []finding {
	if p.dirsErr != nil {
		return nil
	}
	path := p.dirs.Socket
	stat, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.noDaemon():
		return []finding{good(path, "not there, since no daemon runs")}
	case err == nil && stat.Mode()&fs.ModeSocket == 0:
		return []finding{failure(path, "this is in the place of the socket and is none").do("move it away: mv %s %s.old", path, path)}
	case err == nil && p.noDaemon():
		return p.staleSocket(path)
	case p.client != nil:
		return []finding{good(path, "the daemon listens")}
	}
	return nil // checkDaemon says more
}

func (p *patient) staleSocket(path string) []finding {
	stale := note(path, "left by a daemon that was killed; the next one replaces it").do("`toolsd doctor --fix` removes it now")
	if !p.fix {
		return []finding{stale}
	}
	// Only who holds the lock may remove it: a daemon may be coming up.
	ran, err := p.underLock(func() error { return os.Remove(path) })
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return []finding{broken(path, fmt.Errorf("removing the stale socket: %w", err), "remove it: rm "+path)}
	case !ran:
		return []finding{note(path, "left by a daemon that was killed, and another one is taking its place")}
	}
	return []finding{good(path, "fixed: the stale socket is removed")}
}

func checkDaemon(p *patient) []finding {
	switch {
	case p.dirsErr != nil:
		return nil
	case p.status != nil:
		d := p.status.Daemon
		return []finding{good(p.dirs.Socket, "process %d answers, up %s, %s", d.PID, ago(d.Started), count(d.Sessions, "session", "sessions"))}
	case p.noDaemon():
		return []finding{note("", "no daemon runs; the next verb or agent starts one").do("`toolsd start` starts one now")}
	}
	return []finding{broken(p.dirs.Socket, p.daemonErr, "`toolsd stop`, then `toolsd start`")}
}

func checkVersion(p *patient) []finding {
	if p.status == nil {
		return nil
	}
	d := p.status.Daemon
	if d.Version == ipc.Version() {
		return []finding{good("", "daemon and program are both %s", d.Version)}
	}
	return []finding{warning("", "the daemon is %s, this program is %s", d.Version, ipc.Version()).do("`toolsd stop` ends it; the next verb starts one of this version. See which program is meant: `command -v toolsd`")}
}

func checkLeftovers(p *patient) []finding {
	if p.dirsErr != nil || !p.noDaemon() {
		return nil // what runs is the daemon's
	}
	journal := filepath.Join(p.dirs.State, "journal")
	var found []int
	var killed int
	ran, err := p.underLock(func() (err error) {
		found, err = platform.Leftovers(journal)
		if err != nil || len(found) == 0 || !p.fix {
			return err
		}
		killed, err = platform.Sweep(journal, slog.New(slog.DiscardHandler))
		return err
	})
	switch {
	case err != nil:
		return []finding{broken("", err, "see them: ps -u $(id -un) -o pid,ppid,args")}
	case !ran || len(found) == 0:
		return []finding{good("", "none")}
	case p.fix:
		return []finding{good("", "fixed: %s of a killed daemon ended", count(killed, "process", "processes"))}
	}
	return []finding{warning("", "%s of a daemon that was killed still run: %v", count(len(found), "process", "processes"), found).do("`toolsd doctor --fix` ends them; the next daemon does too")}
}

func checkService(p *patient) []finding {
	self, err := os.Executable()
	if err != nil || p.dirsErr != nil {
		return nil
	}
	service, err := platform.FindService(platform.ServiceOptions{Executable: self, Getenv: p.getenv})
	if err != nil {
		return []finding{note("", "%v", err)}
	}
	s, err := p.serviceInfo(p.ctx, service)
	if none, is := errors.AsType[*platform.NoServicesError](err); is {
		if s.Installed {
			return []finding{warning(s.Unit, "a service is installed, but %s", none.Cause).do("`toolsd service uninstall` takes it out")}
		}
		return []finding{note("", "%s; the daemon is started by verbs and agents", none.Cause)}
	}
	switch {
	case err != nil:
		return []finding{broken("", err, "`toolsd service status` says more")}
	case !s.Installed:
		return []finding{note("", "not installed; the daemon is started by verbs and agents").do("`toolsd service install` starts it at login")}
	case s.Program != "" && !isProgramFile(s.Program):
		return []finding{failure(s.Unit, "it starts %s, which is not there any more or cannot be run", s.Program).do("`toolsd service install` writes it anew")}
	case !s.Enabled:
		return []finding{warning(s.Unit, "installed, but it does not start at login").do("`toolsd service install` enables it")}
	case s.Serves:
		return []finding{good(s.Unit, "runs, process %d", s.PID)}
	case s.DaemonPID != 0:
		return []finding{note(s.Unit, "installed, but the daemon that runs was started by a verb or an agent").do("`toolsd service start` lets the service take over")}
	}
	return []finding{note(s.Unit, "installed, and does not run: %s", s.State).do("`toolsd service start` starts it")}
}

func isProgramFile(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.Mode().IsRegular() && (runtime.GOOS == "windows" || stat.Mode().Perm()&0o111 != 0)
}

// checkStateFiles reads what must not vanish, as it is on the disk.
func checkStateFiles(p *patient) []finding {
	if p.dirsErr != nil {
		return nil
	}
	var out []finding
	for _, f := range []struct {
		name string
		fit  func([]byte) error
		lost string
		hint string
	}{
		{"trust.json", fitApprovals, "nothing in it counts, so servers wait for an approval", "see what waits with `toolsd trust list`, and approve it with `toolsd trust <server>`"},
		{"trust.json.prev", fitApprovals, "it is written anew with the next approval", "remove it if it is in the way; approvals are in trust.json"},
		{"names.json", fitNames, "the names under which agents see tools are chosen anew", "stop the daemon and move it away; rules of agents for single tools may need a look"},
	} {
		path := filepath.Join(p.dirs.State, f.name)
		stat, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var data []byte
		if err == nil && !stat.Mode().IsRegular() {
			err = errors.New("it is no regular file")
		}
		if err == nil {
			data, err = os.ReadFile(path)
		}
		if err == nil {
			err = f.fit(data)
		}
		switch {
		case err != nil:
			out = append(out, failure(path, "%v; %s", causeOf(err), f.lost).do("%s", f.hint))
		case runtime.GOOS != "windows" && stat.Mode().Perm()&0o077 != 0:
			if p.fix {
				if err := os.Chmod(path, 0o600); err != nil {
					out = append(out, broken(path, err, "chmod 600 "+path))
				} else {
					out = append(out, good(path, "fixed: its mode is 0600 now"))
				}
				continue
			}
			out = append(out, warning(path, "others may read it: its mode is %04o", stat.Mode().Perm()).do("type `toolsd doctor --fix`, or: chmod 600 %s", path))
		default:
			out = append(out, good(path, "%s", size(stat.Size())))
		}
	}
	// What the daemon itself could not read or write has no place in a config file.
	if p.status != nil {
		for _, problem := range p.status.Problems {
			if problem.File == "" && !strings.HasPrefix(problem.Message, watchFault) {
				out = append(out, failure("", "%s", problem.Message).do("%s", problem.Hint))
			}
		}
	}
	if len(out) == 0 {
		out = append(out, good(p.dirs.State, "nothing is kept yet"))
	}
	return out
}

// causeOf is an error without the path that the subject names already.
func causeOf(err error) error {
	if e, is := errors.AsType[*fs.PathError](err); is {
		return fmt.Errorf("it cannot be read: %w", e.Err)
	}
	return err
}

// fitApprovals checks the frame and the sum of the file; what is in it is for the
// daemon alone.
func fitApprovals(data []byte) error {
	var file struct {
		Format int
		Sum    string
		State  json.RawMessage
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return errors.New("it is damaged: " + ipc.Place(data, offsetOf(err)) + " is no JSON")
	}
	if sum := sha256.Sum256(file.State); hex.EncodeToString(sum[:]) != file.Sum {
		return errors.New("it is not what toolsd wrote: its checksum does not fit")
	}
	return nil
}

func offsetOf(err error) int64 {
	if e, is := errors.AsType[*json.SyntaxError](err); is {
		return e.Offset
	}
	return 0
}

func fitNames(data []byte) error {
	var names map[string]string
	if err := json.Unmarshal(data, &names); err != nil {
		return errors.New("it is damaged: " + ipc.Place(data, offsetOf(err)) + " is not as it should be")
	}
	return nil
}

// indexCheck bounds the look at the index: 1,000 tools take a few milliseconds.
const indexCheck = 20 * time.Second

func checkIndexFile(p *patient) []finding {
	if p.dirsErr != nil {
		return nil
	}
	path := filepath.Join(p.dirs.Cache, indexName)
	stat, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{good(path, "not there; it is made when servers list their tools")}
	case err != nil:
		return []finding{broken(path, err, "see who owns it: ls -ld "+path)}
	case p.client != nil:
		return []finding{good(path, "%s, in use by the daemon", size(stat.Size()))} // which tells of problems by itself
	case !stat.Mode().IsRegular():
		return []finding{failure(path, "it is no regular file").do("move it away; it is only a cache")}
	}
	ctx, cancel := context.WithTimeout(p.ctx, indexCheck)
	defer cancel()
	if err = platform.RunAgain(ctx, daemon.CheckVerb, path); err == nil {
		return []finding{good(path, "%s, whole", size(stat.Size()))}
	}
	if !p.fix {
		return []finding{failure(path, "it is damaged: %v", err).do("`toolsd doctor --fix` puts it aside; nothing is lost but the time in which servers list their tools again")}
	}
	aside := path + ".damaged"
	ran, err := p.underLock(func() error { return os.Rename(path, aside) })
	switch {
	case err != nil:
		return []finding{broken(path, fmt.Errorf("putting the damaged index aside: %w", err), "remove it: rm "+path)}
	case !ran:
		return []finding{note(path, "it was damaged, and a daemon that just started is making it anew")}
	}
	return []finding{good(path, "fixed: the damaged index is now %s, and the next daemon makes a new one", aside)}
}

// indexName is the file of the index in the cache directory.
const indexName = "index.db"
