//go:build unix

package platform

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Invariant 5 of the contract: who holds the lock is the daemon, and all clients
// reach that one.
func TestFiftyRacingStartsOverAStaleSocket(t *testing.T) {
	dir := shortDir(t)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s.sock")})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()

	const contestants = 50
	said := make(chan string, contestants)
	var stdins []io.Closer
	var cmds []*exec.Cmd
	for range contestants {
		cmd := exec.Command(must(os.Executable()), dir)
		cmd.Env = append(os.Environ(), roleEnv+"=contest")
		cmd.Stderr = os.Stderr
		stdin := must(cmd.StdinPipe())
		stdout := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, stdins = append(cmds, cmd), append(stdins, stdin)
		go func() {
			line, _ := bufio.NewReader(stdout).ReadString('\n')
			said <- strings.TrimSpace(line)
		}()
	}
	count := make(map[string]int)
	for range contestants {
		count[<-said]++
	}
	if count["daemon"] != 1 || count["locked"] != contestants-1 {
		t.Errorf("%v", count)
	}
	served := make(map[string]int)
	for range contestants {
		c, err := Dial(t.Context(), filepath.Join(dir, "s.sock"))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		c.Close()
		served[line]++
	}
	if len(served) != 1 || served[""] > 0 {
		t.Errorf("clients were served by %v", served)
	}
	if pid, ok := LockHolder(filepath.Join(dir, "lock")); !ok || served[fmtLine(pid)] != contestants {
		t.Errorf("the lock names %d", pid)
	}
	for i := range cmds {
		stdins[i].Close()
		cmds[i].Wait()
	}
	if _, err := os.Lstat(filepath.Join(dir, "s.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the daemon left its socket: %v", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := AcquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second time: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	l, err = AcquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if pid, ok := LockHolder(path); !ok || pid != os.Getpid() {
		t.Errorf("holder %d, %v", pid, ok)
	}
	if info, _ := os.Stat(path); info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	dir := filepath.Join(t.TempDir(), "lock")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireLock(dir); !isUnfit(err) {
		t.Errorf("a directory in the lock's place: %v", err)
	}
	if _, err := ReadState(dir); err == nil {
		t.Error("a directory was read")
	}
	// A lock on a file that is no longer at the path protects nothing.
	os.Remove(path)
	second, err := AcquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if _, err := AcquireLock(filepath.Join(t.TempDir(), "none", "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestSocketIsPrivateWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(shortDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestCloseLeavesANewerSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	older, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	older.Close()
	serve(t, newer)
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatalf("the newer daemon is not reached: %v", err)
	}
	c.Close()
	newer.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its own socket is left: %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	dir := shortDir(t)
	dial := func(path string) error {
		c, err := Dial(t.Context(), path)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(filepath.Join(dir, "none")); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("nothing there: %v", err)
	}
	if err := dial(filepath.Join(dir, "none", "s")); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("no directory: %v", err)
	}
	stale := filepath.Join(dir, "stale")
	l, _ := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := dial(stale); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("a stale socket: %v", err)
	}

	file := filepath.Join(dir, "file")
	os.WriteFile(file, []byte("x"), 0o600)
	if err := dial(file); !isUnfit(err) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Listen(file); !isUnfit(err) {
		t.Errorf("listening over a file: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "x" {
		t.Error("the file is gone")
	}
	// A link to a living socket of our own is a link all the same.
	live := filepath.Join(dir, "live")
	listener, err := Listen(live)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener)
	link := filepath.Join(dir, "link")
	os.Symlink(live, link)
	if err := dial(link); !isUnfit(err) {
		t.Errorf("a link: %v", err)
	}
	os.Symlink(dir, filepath.Join(dir, "d"))
	if err := dial(filepath.Join(dir, "d", "live")); !isUnfit(err) {
		t.Errorf("a linked directory: %v", err)
	}
	if _, err := Listen(filepath.Join(dir, "d", "live2")); !isUnfit(err) {
		t.Errorf("listening in a linked directory: %v", err)
	}
	long := "/" + strings.Repeat("x", 103)
	if err := dial(long); !isUnfit(err) {
		t.Errorf("a long path: %v", err)
	}
	if _, err := Listen(long); !isUnfit(err) {
		t.Errorf("listening on a long path: %v", err)
	}
	// A directory of ours that others can write is tightened before its content
	// is believed.
	os.Chmod(dir, 0o777)
	if err := dial(live); err != nil {
		t.Error(err)
	}
	if info, _ := os.Lstat(dir); info.Mode().Perm()&0o022 != 0 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestDialHonoursItsContext(t *testing.T) {
	dir := shortDir(t)
	l, err := Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, filepath.Join(dir, "s")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Linux refuses at once when the listener's queue is full.
func TestDialWaitsForRoomInTheQueue(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var held []net.Conn
	for {
		c, err := Dial(ctx, path)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the queue is full: %v", err)
			}
			break
		}
		if held = append(held, c); len(held) > 100 {
			t.Skip("this system queues without end")
		}
	}
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	go func() {
		if c, _, err := syscall.Accept(fd); err == nil {
			syscall.Close(c)
		}
	}()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Another user is cut off before a byte is read, and does not believe our
// socket, though the modes would let both through.
func TestOtherUsersAreRefused(t *testing.T) {
	needRoot(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("/tmp", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	os.Chmod(path, 0o666)
	exe := filepath.Join(dir, "exe") // where the other user can run it
	data, err := os.ReadFile(must(os.Executable()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, data, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, setpriv, "--reuid", "12345", "--regid", "12345", "--clear-groups", exe, path)
	cmd.Env = []string{roleEnv + "=stranger"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"raw: read 0 bytes", "dial: unfit"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in %q", want, out)
		}
	}
	// And the other way round: a socket of another user in a directory that is
	// root's alone.
	os.Chown(path, 12345, 12345)
	if _, err := Dial(t.Context(), path); !isUnfit(err) {
		t.Errorf("a socket of another user: %v", err)
	}
}

func TestListenerEndsItsAccept(t *testing.T) {
	l, err := Listen(filepath.Join(shortDir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
	l.Close()
	wg.Wait()
}
