package calllog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestMain lets the test binary be the daemon that TestKill kills.
func TestMain(m *testing.M) {
	if path := os.Getenv("CALLLOG_TEST_WRITE_TO"); path != "" {
		l := Open(path)
		for i := 0; ; i++ {
			l.Append(entry(i))
			if i == 100 {
				fmt.Println("going")
			}
		}
	}
	os.Exit(m.Run())
}

func entry(i int) Entry {
	return Entry{Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Session: "s1", Client: "claude-code", Server: "kicad", Tool: fmt.Sprint("tool_", i), Arguments: Digest([]byte("{}")), BytesIn: i, BytesOut: 3, MS: 7, Outcome: OK}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string, n int) []Entry {
	t.Helper()
	entries, err := Read(path, n)
	must(t, err)
	return entries
}

func TestAppendAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	if got := read(t, path, 0); got == nil || len(got) != 0 {
		t.Errorf("a log that is not there: %v", got)
	}
	l := Open(path)
	for i := range 5 {
		l.Append(entry(i))
	}
	must(t, l.Close())
	l.Append(entry(9)) // dropped
	l = Open(path)
	l.Append(entry(5))
	defer l.Close()
	got := read(t, path, 2)
	if len(got) != 2 || got[0] != entry(4) || got[1] != entry(5) || len(read(t, path, 0)) != 6 || l.Problem() != "" {
		t.Errorf("%+v %q", got, l.Problem())
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for o, n := range l.Counts() {
		if want := map[Outcome]int64{OK: 1}[o]; n != want {
			t.Errorf("%s was counted %d times", o, n)
		}
	}
}

// TestNamesFromOutside: what a client or server calls itself makes no second
// line and no terminal sequence.
func TestNamesFromOutside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	l := Open(path)
	defer l.Close()
	e := entry(1)
	e.Client, e.Tool = "evil\n{\"time\":\"x\"}\x1b[2J\u202e", strings.Repeat("ä", 1000)
	l.Append(e)
	data, err := os.ReadFile(path)
	must(t, err)
	if bytes.Count(data, []byte{'\n'}) != 1 || bytes.ContainsAny(data, "\x1b\u202e") || len(data) > 1000 {
		t.Errorf("%q", data)
	}
	if len(read(t, path, 0)) != 1 {
		t.Error("not read back")
	}
}

func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	l := Open(path)
	l.Append(entry(1))
	must(t, l.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := range whole { // a second line that was cut anywhere
		must(t, os.WriteFile(path, append(bytes.Clone(whole), whole[:n]...), 0o600))
		if got := read(t, path, 0); len(got) != 1 && n != len(whole)-1 { // without the line break it is whole
			t.Fatalf("cut at %d: %d entries", n, len(got))
		}
		l := Open(path)
		l.Append(entry(2))
		must(t, l.Close())
		if got := read(t, path, 0); len(got) < 2 || got[0] != entry(1) || got[len(got)-1] != entry(2) {
			t.Fatalf("cut at %d and written on: %+v", n, got)
		}
	}
	must(t, os.WriteFile(path, append(whole, "\x00\x00\x00\nnull\n[]\n{}\n{\"time\":3}\n"...), 0o600))
	if got := read(t, path, 0); len(got) != 1 {
		t.Errorf("garbage was read as %+v", got)
	}
}

func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CALLLOG_TEST_WRITE_TO="+path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	got := read(t, path, 0)
	if len(got) < 100 {
		t.Fatalf("%d entries are left of more than 100", len(got))
	}
	first := got[0].BytesIn // it may have rotated
	for i, e := range got {
		if e.BytesIn != first+i {
			t.Fatalf("entry %d is call %d: one in the middle is lost", i, e.BytesIn)
		}
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	must(t, os.WriteFile(path, append(bytes.Repeat([]byte{'x'}, maxSize-11), '\n'), 0o600))
	l := Open(path)
	defer l.Close()
	l.Append(entry(1))
	l.Append(entry(2))
	old, err := os.Stat(path + ".1")
	must(t, err)
	if old.Size() != maxSize-10 {
		t.Errorf("the older file has %d bytes", old.Size())
	}
	if got := read(t, path, 0); len(got) != 2 || l.Problem() != "" {
		t.Errorf("%+v %q", got, l.Problem())
	}
	// Whoever takes the file away gets it, and a new one begins within a second.
	must(t, os.Rename(path, path+".mine"))
	l.looked = time.Time{}
	l.Append(entry(3))
	if got := read(t, path, 1); len(got) != 1 || got[0] != entry(3) {
		t.Errorf("%+v", got)
	}
}

func TestConcurrentAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	one, two := Open(path), Open(path) // two daemons at a hand-over
	var wg sync.WaitGroup
	for g, l := range []*Log{one, two, one, two} {
		wg.Go(func() {
			for i := range 200 {
				l.Append(entry(1000*g + i))
				l.Problem()
				l.Counts()
			}
		})
	}
	wg.Wait()
	must(t, one.Close())
	must(t, two.Close())
	if got := read(t, path, 0); len(got) != 800 {
		t.Errorf("%d entries of 800", len(got))
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	dir := t.TempDir()
	path, target := filepath.Join(dir, "calls.log"), filepath.Join(dir, "target")
	must(t, os.WriteFile(target, []byte("mine\n"), 0o600))
	must(t, os.Symlink(target, path))
	l := Open(path)
	defer l.Close()
	l.Append(entry(1))
	if data, _ := os.ReadFile(target); string(data) != "mine\n" {
		t.Errorf("wrote through the link: %q", data)
	}
	if l.Problem() == "" {
		t.Error("the lost line is not told")
	}
	if _, err := Read(path, 0); err == nil {
		t.Error("read through the link")
	}
}

func TestFailureHoldsOnlyAsLongAsItsCause(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "calls.log")
	synctest.Test(t, func(t *testing.T) {
		l := Open(path)
		defer l.Close()
		l.Append(entry(1)) // there is no such directory
		if p := l.Problem(); !strings.Contains(p, "1 calls are not in it") {
			t.Errorf("problem: %q", p)
		}
		must(t, os.Mkdir(dir, 0o700))
		l.Append(entry(2)) // too soon to try again
		time.Sleep(pause)
		l.Append(entry(3))
		if got := read(t, path, 0); len(got) != 1 || got[0] != entry(3) || l.Problem() != "" {
			t.Errorf("%+v %q", got, l.Problem())
		}
	})
}

// TestFullDisk uses a real one.
func TestFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux to mount a small disk")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mounting a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	path := filepath.Join(dir, "calls.log")
	l := Open(path)
	defer l.Close()
	n := 0
	for ; l.Problem() == ""; n++ {
		l.Append(entry(n))
		if n > 10000 {
			t.Fatal("the disk does not fill")
		}
	}
	if got := read(t, path, 0); len(got) != n-1 {
		t.Errorf("%d entries of %d that fitted", len(got), n-1)
	}
	must(t, os.Truncate(path, 0))
	l.failed = time.Time{}
	l.Append(entry(1))
	if got := read(t, path, 0); len(got) != 1 || l.Problem() != "" {
		t.Errorf("%+v %q", got, l.Problem())
	}
}

func FuzzRead(f *testing.F) {
	line, _ := json.Marshal(entry(1))
	f.Add(line)
	f.Add([]byte("\n\x00{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "calls.log")
		must(t, os.WriteFile(path, data, 0o600))
		before := read(t, path, 0)
		l := Open(path)
		l.Append(entry(7))
		must(t, l.Close())
		after := read(t, path, 0)
		if len(after) != len(before)+1 || after[len(after)-1] != entry(7) {
			t.Errorf("%d entries, then %d", len(before), len(after))
		}
	})
}
