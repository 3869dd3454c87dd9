//go:build unix

package platform

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func newTestKeeper(t *testing.T) *Keeper {
	t.Helper()
	k, err := NewKeeper(testKeeperOptions(filepath.Join(t.TempDir(), "journal")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return k
}

func startServer(t *testing.T, k *Keeper, role, roll string) *Process {
	t.Helper()
	p, err := k.Start(serverCommand(role, roll))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stdout.Close(); p.Stderr.Close() })
	return p
}

func TestServerTalksAndEndsWithItsStdin(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("os/signal.loop"))
	k, err := NewKeeper(testKeeperOptions(filepath.Join(t.TempDir(), "journal")))
	if err != nil {
		t.Fatal(err)
	}
	p := startServer(t, k, "echo", "")
	if _, err := io.WriteString(p.Stdin, "a line\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	if err != nil || line != "a line\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.Exit(); got.Code != 0 || got.Signal != "" {
		t.Errorf("exit state %+v", got)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(k.options.Journal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
	if _, err := k.Start(serverCommand("echo", "")); !errors.Is(err, ErrClosed) {
		t.Errorf("Start after Close: %v", err)
	}
}

// Paths, arguments and variables are bytes to the system, of no certain encoding.
func TestServersGetBytesAsTheyAre(t *testing.T) {
	k := newTestKeeper(t)
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skip(err) // a file system that takes UTF-8 only
	}
	tool := filepath.Join(dir, "s\xe9rveur")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nprintf '%s ' \"$PWD\" \"$1\" \"$V\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := k.Start(Command{Path: tool, Args: []string{tool, "\xff\xfe"}, Env: []string{"V=\x80 \u00e9"}, Dir: dir, Label: "bytes"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stderr.Close()
	defer p.Stdout.Close()
	got, err := io.ReadAll(p.Stdout)
	real, _ := filepath.EvalSymlinks(dir)
	if want := real + " \xff\xfe \x80 \u00e9 "; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestStopLadder(t *testing.T) {
	t.Parallel()
	k := newTestKeeper(t)
	shell := func(script string) *Process {
		p, err := k.Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Label: "sh"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Stdout.Close(); p.Stderr.Close() })
		if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || line != "up\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return p
	}
	stopped := func(p *Process) time.Duration {
		began := time.Now()
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // deaf to stdin, ends on SIGTERM
		p := shell("trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done")
		if d := stopped(p); d < stopStep || d > stopStep+time.Second {
			t.Errorf("SIGTERM step: stopped after %v", d)
		}
		if got := p.Exit(); got.Code != 5 {
			t.Errorf("SIGTERM step: %+v", got)
		}
	})
	wg.Go(func() { // deaf to both
		r := newRoll(t)
		p := startServer(t, k, "tree", r.dir)
		r.wait(3)
		if d := stopped(p); d < 2*stopStep || d > 2*stopStep+2*time.Second {
			t.Errorf("SIGKILL step: stopped after %v", d)
		}
		if got := p.Exit(); got.Signal != "SIGKILL" || got.Code != -1 || got.Text != "killed by SIGKILL" {
			t.Errorf("SIGKILL step: %+v", got)
		}
		if left := r.alive(); len(left) > 0 {
			t.Errorf("Stop returned while %v run", left)
		}
	})
	wg.Go(func() { // a ctx that ends skips the waits
		p := shell("trap '' TERM; echo up; while :; do sleep 0.05; done")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		_ = p.Stop(ctx)
		<-p.Done()
		if d := time.Since(began); d > 2*time.Second { // each wait of the ladder is that long
			t.Errorf("cancelled Stop took %v", d)
		}
	})
	wg.Wait()
}

// A server that ends by itself takes along what it started, wherever that went.
func TestServerThatEndsLeavesNothing(t *testing.T) {
	t.Parallel()
	k := newTestKeeper(t)
	r := newRoll(t)
	p := startServer(t, k, "leaver", r.dir)
	<-p.Done()
	if got := p.Exit(); got.Code != 7 {
		t.Errorf("exit state %+v", got)
	}
	// SIGTERM is ignored by what it left, so this takes one step of the ladder.
	<-p.cleared
	if left := r.alive(); len(left) > 0 {
		t.Errorf("%v still run", left)
	}
}

func TestStopSparesOtherServers(t *testing.T) {
	t.Parallel()
	k := newTestKeeper(t)
	mine, other := newRoll(t), newRoll(t)
	p := startServer(t, k, "tree", mine.dir)
	startServer(t, k, "tree", other.dir)
	mine.wait(3)
	other.wait(3)
	p.Kill()
	<-p.cleared
	if left := mine.alive(); len(left) > 0 {
		t.Errorf("%v still run", left)
	}
	if n := len(other.alive()); n != 3 {
		t.Errorf("of another server's 3 processes %d run", n)
	}
}

func TestStderrDoesNotBlock(t *testing.T) {
	k := newTestKeeper(t)
	p := startServer(t, k, "noisy", "")
	got := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, p.Stderr)
		got <- n
	}()
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	if err != nil || line != "done\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := <-got; n != 4<<20 {
		t.Errorf("read %d bytes of stderr", n)
	}
	<-p.Done()
}

func TestStartErrors(t *testing.T) {
	k := newTestKeeper(t)
	dir := t.TempDir()
	write := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path, dir string
		is              error
		text            string
	}{
		{"no file", filepath.Join(dir, "none"), "", fs.ErrNotExist, "none"},
		{"no directory", "/bin/sh", filepath.Join(dir, "none"), fs.ErrNotExist, "none"},
		{"a file as directory", "/bin/sh", "/etc/passwd", syscall.ENOTDIR, "/etc/passwd"},
		{"not executable", write("plain", "x", 0o600), "", fs.ErrPermission, "plain"},
		{"no interpreter", write("script", "#!/none/such\n", 0o700), "", fs.ErrNotExist, "interpreter"},
		{"no format", write("text", "hello\n", 0o700), "", syscall.ENOEXEC, "#!/bin/sh"},
	} {
		_, err := k.Start(Command{Path: c.path, Args: []string{c.path}, Dir: c.dir, Label: "srv"})
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "starting srv") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A failed start costs nothing that is left open or running.
	startServer(t, k, "echo", "").Stop(t.Context())
}

func TestServersGetAnOrdinaryProcessState(t *testing.T) {
	// nohup, or a shell that put the daemon into the background.
	ignored := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE}
	signal.Ignore(ignored...)
	defer signal.Reset(ignored...)
	k := newTestKeeper(t)
	for role, want := range map[string]string{
		"print-umask": fmt.Sprintf("%#o\n", inheritedUmask()),
	} {
		p := startServer(t, k, role, "")
		got, err := io.ReadAll(p.Stdout)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", role, got, err, want)
		}
	}
	// Descriptors other than 0, 1 and 2 would keep pipes of other servers open.
	if runtime.GOOS == "linux" {
		output := func(argv ...string) string {
			p, err := k.Start(Command{Path: argv[0], Args: argv, Label: argv[0]})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(p.Stdout)
			return string(got)
		}
		if got := output("/bin/ls", "/proc/self/fd"); got != "0\n1\n2\n3\n" { // 3 is the directory that ls reads
			t.Errorf("descriptors of a server: %q", got)
		}
		// The keeper drops signals; a server must not ignore or block any.
		if got := output("/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"); got != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" {
			t.Errorf("signals of a server: %q", got)
		}
	}
}

// Invariant 7 of the contract.
func TestNothingOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	if !hasSubreaper {
		t.Skip("orphans that left their session are found on Linux only")
	}
	t.Run("daemon killed", func(t *testing.T) {
		t.Parallel()
		r := newRoll(t)
		d := startFakeDaemon(t, r, "tree,stubborn,echo,tree")
		r.wait(7)
		d.cmd.Process.Kill()
		r.gone(2 * time.Second)
		within(t, 2*time.Second, "the keeper is gone", func() bool { p, ok := findProc(d.keeper); return !ok || p.zombie })
	})
	t.Run("daemon killed while the login shell hangs", func(t *testing.T) {
		t.Parallel()
		h := home(t, map[string]string{".profile": "trap '' TERM HUP; while :; do sleep 1; done"})
		d := startFakeDaemon(t, newRoll(t), "echo", "PLATFORM_TEST_LOGIN="+h)
		within(t, 10*time.Second, "the shell runs", func() bool { return len(processesIn(h)) > 0 })
		d.cmd.Process.Kill()
		within(t, 2*time.Second, "the shell is gone", func() bool { return len(processesIn(h)) == 0 })
	})
	t.Run("keeper killed", func(t *testing.T) {
		t.Parallel()
		r := newRoll(t)
		d := startFakeDaemon(t, r, "tree,stubborn,tree")
		r.wait(7)
		syscall.Kill(d.keeper, syscall.SIGKILL)
		r.gone(2 * time.Second)
		for range 3 {
			d.next(t, "exited")
		}
		within(t, 5*time.Second, "the daemon has no child, zombies included", func() bool { return childrenOf(d.cmd.Process.Pid) == 0 })
		// The daemon goes on with a new keeper.
		fmt.Fprintln(d.stdin, "tree")
		if keeper := int(d.next(t, "keeper")); keeper == d.keeper || keeper == 0 {
			t.Errorf("the new keeper's pid is %d, the old one's was %d", keeper, d.keeper)
		}
		r.wait(3)
		d.cmd.Process.Kill()
		r.gone(2 * time.Second)
	})
	t.Run("both killed", func(t *testing.T) {
		t.Parallel()
		r := newRoll(t)
		d := startFakeDaemon(t, r, "stubborn,marked-tree,tree")
		r.wait(7)
		// Stopped first, so that neither acts on the other's end.
		syscall.Kill(d.keeper, syscall.SIGSTOP)
		syscall.Kill(d.cmd.Process.Pid, syscall.SIGSTOP)
		syscall.Kill(d.keeper, syscall.SIGKILL)
		syscall.Kill(d.cmd.Process.Pid, syscall.SIGKILL)
		d.cmd.Wait()
		if n := len(r.alive()); n != 7 {
			t.Fatalf("%d processes are left before the sweep, not 7: the test shows nothing", n)
		}
		killed, err := Sweep(d.journal, nil)
		if err != nil || killed < 7 { // more: those between two forks
			t.Errorf("Sweep: %d, %v", killed, err)
		}
		r.gone(2 * time.Second)
		if _, err := os.Stat(d.journal); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
	})
	t.Run("both killed and the journal lost", func(t *testing.T) {
		t.Parallel()
		r := newRoll(t)
		d := startFakeDaemon(t, r, "marked-tree")
		r.wait(3)
		syscall.Kill(d.keeper, syscall.SIGSTOP)
		d.cmd.Process.Kill()
		syscall.Kill(d.keeper, syscall.SIGKILL)
		d.cmd.Wait()
		if err := os.WriteFile(d.journal, []byte(`{"format":1,"keep`), 0o600); err != nil {
			t.Fatal(err)
		}
		if killed, err := Sweep(d.journal, nil); err != nil || killed < 3 {
			t.Errorf("Sweep: %d, %v", killed, err)
		}
		r.gone(time.Second)
	})
}

func childrenOf(pid int) (n int) {
	table, _ := processTable()
	for _, p := range table {
		if p.ppid == pid {
			n++
		}
	}
	return n
}

// A pid in the journal that is another process by now is left alone.
func TestSweepNeverKillsByPidAlone(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startOwn(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait(); disown(cmd.Process.Pid) }()
	p, _ := findProc(cmd.Process.Pid)
	journal := filepath.Join(t.TempDir(), "journal")
	j := newJournal(journal, slog.New(slog.DiscardHandler))
	j.add(p.pid, p.start+1, "was here before")
	if killed, err := Sweep(journal, nil); killed != 0 || err != nil {
		t.Errorf("Sweep: %d, %v", killed, err)
	}
	if p, ok := findProc(cmd.Process.Pid); !ok || p.zombie {
		t.Error("it was killed")
	}
	j.add(p.pid, p.start, "this one")
	if killed, err := Sweep(journal, nil); killed != 1 || err != nil {
		t.Errorf("Sweep of a true entry: %d, %v", killed, err)
	}
}

// The servers of another daemon carry another marker.
func TestSweepLeavesOtherDaemonsAlone(t *testing.T) {
	k := newTestKeeper(t)
	r := newRoll(t)
	startServer(t, k, "tree", r.dir)
	r.wait(3)
	if killed, err := Sweep(filepath.Join(t.TempDir(), "journal"), nil); killed != 0 || err != nil {
		t.Errorf("Sweep: %d, %v", killed, err)
	}
	if n := len(r.alive()); n != 3 {
		t.Errorf("%d of 3 run", n)
	}
}

// Signals of a terminal, or of a service manager that signals the whole group,
// do not end the keeper while the daemon lives.
func TestKeeperOutlastsSignals(t *testing.T) {
	k := newTestKeeper(t)
	p := startServer(t, k, "echo", "")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := syscall.Kill(k.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(p.Stdin, "still here")
	if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || line != "still here\n" {
		t.Errorf("%q, %v", line, err)
	}
	q := startServer(t, k, "echo", "")
	q.Stop(t.Context())
}

func TestStartRightAfterTheKeeperWasKilled(t *testing.T) {
	t.Parallel()
	k := newTestKeeper(t)
	for range 10 {
		startServer(t, k, "stubborn", t.TempDir())
		syscall.Kill(k.PID(), syscall.SIGKILL)
		p := startServer(t, k, "echo", "")
		fmt.Fprintln(p.Stdin, "here")
		if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || line != "here\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

func TestCloseOfAKeeperThatHangs(t *testing.T) {
	t.Parallel()
	k, err := NewKeeper(testKeeperOptions(filepath.Join(t.TempDir(), "journal")))
	if err != nil {
		t.Fatal(err)
	}
	r := newRoll(t)
	startServer(t, k, "tree", r.dir)
	r.wait(3)
	syscall.Kill(k.PID(), syscall.SIGSTOP)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := k.Close(ctx); err != nil {
		t.Error(err)
	}
	if left := r.alive(); len(left) > 0 {
		t.Errorf("%v still run", left)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
}

// 100 servers come and go: no zombie, no descriptor, no process stays.
func TestKeeperLeaksNothing(t *testing.T) {
	k := newTestKeeper(t)
	startServer(t, k, "echo", "").Stop(t.Context())
	keeper := k.PID()
	before := descriptors(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				p, err := k.Start(serverCommand("echo", ""))
				if err != nil {
					t.Error(err)
					return
				}
				p.Stop(t.Context())
				p.Stdout.Close()
				p.Stderr.Close()
			}
		})
	}
	wg.Wait()
	if n := childrenOf(keeper); n != 0 {
		t.Errorf("the keeper has %d children, zombies included", n)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if rss, ok := MemoryRSS(keeper); ok {
		t.Logf("the keeper has %.1f MiB resident", float64(rss)/(1<<20))
	}
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

func TestKeeperRefusesToRunAlone(t *testing.T) {
	cmd := exec.Command(must(os.Executable()), "test-keeper")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(stderr.String(), "daemon only") {
		t.Errorf("%v, %q", err, &stderr)
	}
}

func BenchmarkStart(b *testing.B) {
	k, err := NewKeeper(testKeeperOptions(filepath.Join(b.TempDir(), "journal")))
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close(b.Context())
	for b.Loop() {
		p, err := k.Start(Command{Path: "/bin/true", Args: []string{"true"}, Label: "true"})
		if err != nil {
			b.Fatal(err)
		}
		<-p.Done()
		closePipes(p.Stdin.(*os.File), p.Stdout.(*os.File), p.Stderr.(*os.File))
	}
}
