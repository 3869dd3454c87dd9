//go:build unix

package platform

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFindDirs(t *testing.T) {
	run := t.TempDir()
	for _, c := range []struct {
		name, goos string
		env        map[string]string
		want       Dirs
	}{
		{"linux, nothing set", "linux", nil, Dirs{
			Config: "/home/u/.config/toolsd", State: "/home/u/.local/state/toolsd", Cache: "/home/u/.cache/toolsd",
			Run: "/home/u/.local/state/toolsd/run", Socket: "/home/u/.local/state/toolsd/run/toolsd.sock",
			ConfigFile: "/home/u/.config/toolsd/config.json", ManagedConfig: "/etc/toolsd/config.json"}},
		{"linux, XDG", "linux", map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/k", "XDG_RUNTIME_DIR": run}, Dirs{
			Config: "/c/toolsd", State: "/s/toolsd", Cache: "/k/toolsd", Run: run + "/toolsd", Socket: run + "/toolsd/toolsd.sock",
			ConfigFile: "/c/toolsd/config.json", ManagedConfig: "/etc/toolsd/config.json"}},
		{"linux, relative values are ignored", "linux", map[string]string{"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s", "XDG_CACHE_HOME": "~/k", "XDG_RUNTIME_DIR": "r"}, Dirs{
			Config: "/home/u/.config/toolsd", State: "/home/u/.local/state/toolsd", Cache: "/home/u/.cache/toolsd",
			Run: "/home/u/.local/state/toolsd/run", Socket: "/home/u/.local/state/toolsd/run/toolsd.sock",
			ConfigFile: "/home/u/.config/toolsd/config.json", ManagedConfig: "/etc/toolsd/config.json"}},
		{"macOS looks at no XDG variable", "darwin", map[string]string{"XDG_CONFIG_HOME": "/c"}, Dirs{
			Config: "/home/u/Library/Application Support/toolsd", State: "/home/u/Library/Application Support/toolsd", Cache: "/home/u/Library/Caches/toolsd",
			Run: "/home/u/Library/Caches/toolsd/run", Socket: "/home/u/Library/Caches/toolsd/run/toolsd.sock",
			ConfigFile: "/home/u/Library/Application Support/toolsd/config.json", ManagedConfig: "/Library/Application Support/toolsd/config.json"}},
		{"one directory", "linux", map[string]string{"TOOLSD_DIR": "/d", "XDG_RUNTIME_DIR": run}, Dirs{
			Config: "/d", State: "/d/state", Cache: "/d/cache", Run: "/d/run", Socket: "/d/run/toolsd.sock",
			ConfigFile: "/d/config.json", ManagedConfig: "/etc/toolsd/config.json"}},
		{"the socket alone", "darwin", map[string]string{"TOOLSD_DIR": "/d", "TOOLSD_SOCKET": "/x/y.sock"}, Dirs{
			Config: "/d", State: "/d/state", Cache: "/d/cache", Run: "/x", Socket: "/x/y.sock",
			ConfigFile: "/d/config.json", ManagedConfig: "/Library/Application Support/toolsd/config.json"}},
	} {
		got, err := findDirs(c.goos, func(n string) string { return c.env[n] }, "/home/u", "/tmp", "7")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Dirs{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestFindDirsWithoutHome(t *testing.T) {
	if userName() == "" {
		t.Skip("the user data base does not know this user")
	}
	d, err := FindDirs(func(string) string { return "" })
	if err != nil || !filepath.IsAbs(d.State) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestRuntimeDirOfAnotherUserIsIgnored(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	if err := os.Chown(run, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	d, err := findDirs("linux", func(n string) string { return map[string]string{"XDG_RUNTIME_DIR": run}[n] }, "/home/u", "/tmp", "7")
	if err != nil || d.Run != "/home/u/.local/state/toolsd/run" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestLongSocketPath(t *testing.T) {
	long := func(n int) string { return "/" + strings.Repeat("x", n-1-len("/run/toolsd.sock")) }
	find := func(dir, tmp string) (Dirs, error) {
		return findDirs("linux", func(n string) string { return map[string]string{"TOOLSD_DIR": dir}[n] }, "/home/u", tmp, "7")
	}
	d, err := find(long(103), "/tmp")
	if err != nil || len(d.Socket) != 103 || !strings.HasPrefix(d.Socket, "/xxx") {
		t.Errorf("103 bytes: %q, %v", d.Socket, err)
	}
	d, err = find(long(104), "/tmp")
	if err != nil || !strings.HasPrefix(d.Socket, "/tmp/toolsd-7-") || d.Run != filepath.Dir(d.Socket) {
		t.Errorf("104 bytes: %q, %v", d.Socket, err)
	}
	other, _ := find(long(105), "/tmp")
	if other.Socket == d.Socket {
		t.Error("two places share one fallback")
	}
	if again, _ := find(long(104), "/tmp"); again.Socket != d.Socket {
		t.Error("daemon and client would not meet")
	}
	_, err = find(long(104), "/"+strings.Repeat("t", 100))
	unfit, ok := errors.AsType[*UnfitError](err)
	if !ok || !strings.Contains(err.Error(), "103") || !strings.Contains(err.Error(), "/ttt") || unfit.Hint() == "" {
		t.Errorf("too long a temporary directory: %v", err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
}

func dirsUnder(t *testing.T, dir string) Dirs {
	t.Helper()
	d, err := FindDirs(func(n string) string { return map[string]string{"TOOLSD_DIR": dir}[n] })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPrepare(t *testing.T) {
	mode := func(path string) fs.FileMode {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	defer syscall.Umask(syscall.Umask(0))
	base := shortDir(t)
	d := dirsUnder(t, filepath.Join(base, "fresh"))
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{d.Config, d.State, d.Cache, d.Run} {
		if mode(dir) != 0o700 {
			t.Errorf("%s has mode %#o", dir, mode(dir))
		}
	}
	for _, m := range []fs.FileMode{0o777, 0o755, 0o1777, 0o500} {
		if err := os.Chmod(d.Run, m); err != nil {
			t.Fatal(err)
		}
		if err := d.Prepare(); err != nil || mode(d.Run) != 0o700 {
			t.Errorf("from %#o: mode %#o, %v", m, mode(d.Run), err)
		}
	}

	refused := func(what string, d Dirs, path string) {
		t.Helper()
		err := d.Prepare()
		unfit, ok := errors.AsType[*UnfitError](err)
		if !ok || unfit.Path != path || unfit.Cause == "" || unfit.Hint() == "" || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"run", "state"} {
		d := dirsUnder(t, filepath.Join(base, "link-"+name))
		os.MkdirAll(d.Config, 0o700)
		target := t.TempDir()
		os.Chmod(target, 0o755)
		os.Symlink(target, filepath.Join(d.Config, name))
		refused("a link at "+name, d, filepath.Join(d.Config, name))
		if mode(target) != 0o755 {
			t.Errorf("the target of the link at %s was touched", name)
		}

		d = dirsUnder(t, filepath.Join(base, "file-"+name))
		os.MkdirAll(d.Config, 0o700)
		os.WriteFile(filepath.Join(d.Config, name), nil, 0o600)
		refused("a file at "+name, d, filepath.Join(d.Config, name))

		if os.Geteuid() == 0 {
			d = dirsUnder(t, filepath.Join(base, "foreign-"+name))
			os.MkdirAll(filepath.Join(d.Config, name), 0o700)
			os.Chown(filepath.Join(d.Config, name), 12345, 12345)
			refused("a foreign "+name, d, filepath.Join(d.Config, name))
		}
	}
	// The directory of the config may be a link into dotfiles.
	d = Dirs{Config: filepath.Join(base, "dotlink"), State: filepath.Join(base, "s"), Cache: filepath.Join(base, "c"), Run: filepath.Join(base, "r")}
	os.Symlink(t.TempDir(), d.Config)
	if err := d.Prepare(); err != nil {
		t.Errorf("a linked config directory: %v", err)
	}
}

// A directory that the user named for the socket is not made private: it may be
// the home directory, or, as root, /tmp.
func TestPrepareWithAChosenSocket(t *testing.T) {
	base := shortDir(t)
	try := func(mode fs.FileMode) (fs.FileMode, error) {
		dir := filepath.Join(base, "chosen")
		os.Mkdir(dir, 0o700)
		os.Chmod(dir, mode)
		d, err := FindDirs(func(n string) string {
			return map[string]string{"TOOLSD_DIR": base, "TOOLSD_SOCKET": filepath.Join(dir, "s")}[n]
		})
		if err != nil {
			t.Fatal(err)
		}
		err = d.Prepare()
		info, _ := os.Lstat(dir)
		return info.Mode() & (fs.ModePerm | fs.ModeSticky), err
	}
	for before, after := range map[fs.FileMode]fs.FileMode{
		0o700: 0o700, 0o755: 0o755, 0o777: 0o755, 0o775: 0o755,
		0o777 | fs.ModeSticky: 0o777 | fs.ModeSticky,
	} {
		if got, err := try(before); err != nil || got != after {
			t.Errorf("%v became %v, want %v, %v", before, got, after, err)
		}
	}
}

func TestPrivateFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, text := range []string{"one\n", "two\n"} {
		f, err := OpenPrivate(log)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(text)
		f.Close()
		os.Chmod(log, 0o644) // the second open tightens it
	}
	f, err := OpenPrivate(log)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := f.Stat()
	f.Close()
	if data, _ := os.ReadFile(log); string(data) != "one\ntwo\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v", data, info.Mode())
	}

	victim := filepath.Join(dir, "victim")
	os.WriteFile(victim, []byte("precious"), 0o600)
	link := filepath.Join(dir, "link")
	os.Symlink(victim, link)
	if _, err := OpenPrivate(link); !isUnfit(err) {
		t.Errorf("a log that is a link: %v", err)
	}
	if _, err := AcquireLock(link); !isUnfit(err) {
		t.Errorf("a lock that is a link: %v", err)
	}
	syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)
	if f, err := OpenPrivate(filepath.Join(dir, "fifo")); err == nil {
		f.Close()
		t.Error("a fifo was opened as a log")
	}

	if err := WriteFileAtomic(link, []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	info, _ = os.Lstat(link)
	if data, _ := os.ReadFile(victim); string(data) != "precious" || info.Mode() != 0o640 {
		t.Errorf("victim %q, file %v", data, info.Mode())
	}
	if err := WriteFileAtomic(filepath.Join(dir, "none", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left", e.Name())
		}
	}
}
