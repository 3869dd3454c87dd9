//go:build unix

package platform

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// roleEnv makes the test binary play a part in a test: a server in one of its
// moods, a daemon, the keeper.
const roleEnv = "PLATFORM_TEST_ROLE"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "test-keeper" {
		os.Exit(KeeperMain())
	}
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The race detector has each process sleep for a second at its end.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	os.Exit(m.Run())
}

var roles map[string]func() error

func init() {
	roles = map[string]func() error{
		// Ends when its stdin does, as a good server; copies it to stdout.
		"echo": func() error { _, err := io.Copy(os.Stdout, os.Stdin); return err },
		// Ends on nothing but SIGKILL.
		"stubborn": func() error { enlist(); signal.Ignore(syscall.SIGTERM); select {} },
		// As stubborn, and leaves a process that is in its third session, has
		// lost its parents, and has none of our environment.
		"tree": func() error {
			enlist()
			signal.Ignore(syscall.SIGTERM)
			if err := again("fork-setsid", nil); err != nil {
				return err
			}
			if err := again("fork-setsid", []string{"GORACE=" + os.Getenv("GORACE")}); err != nil {
				return err
			}
			fmt.Println("ready")
			select {}
		},
		// As tree, but all that it leaves carries its environment.
		"marked-tree": func() error {
			enlist()
			signal.Ignore(syscall.SIGTERM)
			if err := again("fork-setsid", nil); err != nil {
				return err
			}
			if err := again("fork-setsid", nil); err != nil {
				return err
			}
			select {}
		},
		// The same, but ends at once with a status of its own.
		"leaver": func() error {
			if err := again("fork-setsid", nil); err != nil {
				return err
			}
			os.Exit(7)
			return nil
		},
		"fork-setsid":  func() error { return again("fork-setsid2", os.Environ()) },
		"fork-setsid2": func() error { return again("leaf", os.Environ()) },
		"leaf":         func() error { enlist(); signal.Ignore(syscall.SIGTERM); select {} },
		// 4 MiB on stderr, then one line on stdout.
		"noisy": func() error {
			line := strings.Repeat("x", 1023) + "\n"
			for range 4096 {
				if _, err := os.Stderr.WriteString(line); err != nil {
					return err
				}
			}
			fmt.Println("done")
			return nil
		},
		"print-umask": func() error {
			m := syscall.Umask(0)
			fmt.Printf("%#o\n", m)
			return nil
		},
		"daemon":   daemonRole,
		"contest":  contestRole,
		"detached": detachedRole,
		"stranger": strangerRole,
		"hardened": hardenedRole,
	}
}

// enlist tells the test that this process exists.
func enlist() {
	p, _ := findProc(os.Getpid())
	dir := os.Getenv("PLATFORM_TEST_ROLL")
	if dir == "" && len(os.Args) > 1 { // no environment: the argument
		dir = os.Args[1]
	}
	_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), []byte(strconv.FormatUint(p.start, 10)), 0o600)
}

// again starts this binary in a new session and does not wait for it. With an
// environment of its own it passes on just the role.
func again(role string, env []string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if env == nil {
		env = os.Environ()
	}
	roll := os.Getenv("PLATFORM_TEST_ROLL")
	if roll == "" {
		roll = os.Args[1]
	}
	kept := []string{roleEnv + "=" + role}
	for _, kv := range env {
		if !strings.HasPrefix(kv, roleEnv+"=") {
			kept = append(kept, kv)
		}
	}
	cmd := exec.Command(exe, roll)
	cmd.Env = kept
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// daemonRole starts the servers named in its arguments through a Keeper, says
// which processes it has, and waits to be killed.
func daemonRole() error {
	journal := os.Getenv("PLATFORM_TEST_JOURNAL")
	if err := Harden(); err != nil {
		return err
	}
	k, err := NewKeeper(testKeeperOptions(journal))
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if home := os.Getenv("PLATFORM_TEST_LOGIN"); home != "" {
		go k.LoginEnviron(context.Background(), func() []string { return []string{"HOME=" + home, "SHELL=/bin/sh"} })
	}
	for _, role := range strings.Split(os.Getenv("PLATFORM_TEST_SERVERS"), ",") {
		p, err := k.Start(serverCommand(role, os.Getenv("PLATFORM_TEST_ROLL")))
		if err != nil {
			return err
		}
		go io.Copy(io.Discard, p.Stderr)
		if role == "tree" {
			if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
				return err
			}
		}
		go func() {
			<-p.Done()
			_ = out.Encode(map[string]any{"exited": p.PID, "text": p.Exit().Text})
		}()
	}
	if err := out.Encode(map[string]any{"keeper": k.PID()}); err != nil {
		return err
	}
	// A word on stdin starts another server: what a daemon does after its keeper
	// was killed.
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		p, err := k.Start(serverCommand(in.Text(), os.Getenv("PLATFORM_TEST_ROLL")))
		if err != nil {
			return err
		}
		if err := out.Encode(map[string]any{"keeper": k.PID(), "started": p.PID}); err != nil {
			return err
		}
	}
	return k.Close(context.Background())
}

func testKeeperOptions(journal string) KeeperOptions {
	return KeeperOptions{Args: []string{"test-keeper"}, Journal: journal, Instance: "test", Log: slog.New(slog.DiscardHandler)}
}

func serverCommand(role, roll string) Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Command{Path: exe, Args: []string{exe, roll}, Label: role, Dir: "/",
		Env: []string{roleEnv + "=" + role, "PLATFORM_TEST_ROLL=" + roll, "GORACE=" + os.Getenv("GORACE")}}
}

// contestRole is one of many that want to be the daemon: it locks and listens,
// or reports who won.
func contestRole() error {
	dir := os.Args[1]
	lock, err := AcquireLock(filepath.Join(dir, "lock"))
	if errors.Is(err, ErrLocked) {
		fmt.Println("locked")
		return nil
	} else if err != nil {
		return err
	}
	defer lock.Release()
	l, err := Listen(filepath.Join(dir, "s.sock"))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, os.Getpid())
			c.Close()
		}
	}()
	fmt.Println("daemon")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return l.Close()
}

// strangerRole is another user who tries the socket: by hand, and with Dial.
func strangerRole() error {
	conn, err := net.Dial("unix", os.Args[1])
	if err != nil {
		return err
	}
	_, _ = io.WriteString(conn, "let me in\n")
	got, _ := io.ReadAll(conn)
	fmt.Printf("raw: read %d bytes\n", len(got))
	if _, err := Dial(context.Background(), os.Args[1]); isUnfit(err) {
		fmt.Println("dial: unfit")
	} else {
		fmt.Println("dial:", err)
	}
	return nil
}

func hardenedRole() error {
	syscall.Umask(0o022)
	if err := Harden(); err != nil {
		return err
	}
	umask := syscall.Umask(0o077)
	var core syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &core); err != nil {
		return err
	}
	fmt.Printf("umask %#o\ncore %d\nserver umask %#o\n", umask, core.Cur, inheritedUmask())
	printDumpable()
	return nil
}

func fmtLine(pid int) string { return strconv.Itoa(pid) + "\n" }

func detachedRole() error {
	sid := ownSession()
	fmt.Printf("pid %d sid %d ppid %d dir %s\n", os.Getpid(), sid, os.Getppid(), must(os.Getwd()))
	fmt.Printf("marker %q place %s\n", os.Getenv(markerName), os.Getenv("TOOLSD_DIR"))
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// within polls until f is true: the condition is another process's, so there is
// no channel to wait on.
func within(t *testing.T, d time.Duration, what string, f func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// roll is the directory in which the processes of a test enlist.
type roll struct {
	t   *testing.T
	dir string
}

func newRoll(t *testing.T) roll {
	r := roll{t, t.TempDir()}
	t.Cleanup(func() {
		for _, p := range r.alive() {
			syscall.Kill(p, syscall.SIGKILL)
		}
	})
	return r
}

func (r roll) alive() (pids []int) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, _ := strconv.Atoi(e.Name())
		data, _ := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if p, ok := findProc(pid); ok && !p.zombie && strconv.FormatUint(p.start, 10) == string(data) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r roll) wait(n int) {
	r.t.Helper()
	within(r.t, 20*time.Second, fmt.Sprintf("%d processes of the server run", n), func() bool { return len(r.alive()) == n })
}

func (r roll) gone(d time.Duration) {
	r.t.Helper()
	began := time.Now()
	within(r.t, d, "all processes of the server are gone", func() bool { return len(r.alive()) == 0 })
	r.t.Logf("all gone after %v", time.Since(began).Round(time.Millisecond))
}

// fakeDaemon is a running daemonRole.
type fakeDaemon struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	lines   *bufio.Scanner
	journal string
	keeper  int
}

func startFakeDaemon(t *testing.T, r roll, servers string, env ...string) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{journal: filepath.Join(t.TempDir(), "journal")}
	d.cmd = exec.Command(must(os.Executable()))
	d.cmd.Env = append(os.Environ(), roleEnv+"=daemon", "PLATFORM_TEST_SERVERS="+servers, "PLATFORM_TEST_ROLL="+r.dir, "PLATFORM_TEST_JOURNAL="+d.journal)
	d.cmd.Env = append(d.cmd.Env, env...)
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d.stdin = must(d.cmd.StdinPipe())
	d.lines = bufio.NewScanner(must(d.cmd.StdoutPipe()))
	if err := startOwn(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		disown(d.cmd.Process.Pid)
	})
	d.keeper = int(d.next(t, "keeper"))
	return d
}

// next is the next number of that name that the daemon tells.
func (d *fakeDaemon) next(t *testing.T, name string) float64 {
	t.Helper()
	for d.lines.Scan() {
		var m map[string]any
		if err := json.Unmarshal(d.lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if v, ok := m[name].(float64); ok {
			return v
		}
	}
	t.Fatalf("the daemon ended without telling %q: %v", name, d.lines.Err())
	return 0
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, l net.Listener) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello\n")
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
}
