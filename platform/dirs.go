package platform

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// maxSocketPath is what every system takes: macOS has 104 bytes with the
// closing zero, Linux 108.
const maxSocketPath = 103

// Dirs are the places of one toolsd: one daemon per State directory.
type Dirs struct {
	Config string // config.json; may be a link or read-only
	State  string // lock, trust, names, logs; must not vanish
	Cache  string // index.db; may vanish at any time
	Run    string // holds the socket
	Socket string

	ConfigFile    string
	ManagedConfig string // a team's recommended values; usually absent

	// chosen says that the user named the socket (TOOLSD_SOCKET): its directory
	// may be one that other things live in, so it is not made private, only
	// checked.
	chosen bool
}

// UnfitError says that a place cannot be used because of what is there: a link,
// a file, another user's directory, a path that is too long. Callers exit 3.
type UnfitError struct {
	Path  string
	Cause string // "is a symbolic link"
	Do    string // what to do about it
}

func isUnfit(err error) bool {
	_, ok := errors.AsType[*UnfitError](err)
	return ok
}

func (e *UnfitError) Error() string { return e.Path + " " + e.Cause }

// Hint says what to do.
func (e *UnfitError) Hint() string { return e.Do }

// FindDirs computes the places from the environment; it makes nothing. An error
// is an *UnfitError when no usable path for the socket exists.
//
// The XDG rules are spelled out here instead of taken from a library, because
// those read the process's environment when they are loaded: a daemon with an
// empty environment and a test with another one would both be told wrong.
func FindDirs(getenv func(string) string) (Dirs, error) {
	home, err := homeDir(getenv)
	if err != nil && getenv("TOOLSD_DIR") == "" {
		return Dirs{}, fmt.Errorf("finding the directories of toolsd: %w", err)
	}
	tmp := getenv("TMPDIR")
	if runtime.GOOS == "windows" {
		tmp = os.TempDir()
	} else if !filepath.IsAbs(tmp) {
		tmp = "/tmp"
	}
	return findDirs(runtime.GOOS, getenv, home, tmp, userID())
}

func findDirs(goos string, getenv func(string) string, home, tmp, uid string) (Dirs, error) {
	// The XDG rules: a value that is not absolute is ignored.
	at := func(name string, fallback ...string) string {
		if v := getenv(name); filepath.IsAbs(v) {
			return filepath.Join(v, "toolsd")
		}
		return filepath.Join(append(append([]string{home}, fallback...), "toolsd")...)
	}
	var d Dirs
	switch goos {
	case "darwin":
		d.Config = filepath.Join(home, "Library", "Application Support", "toolsd")
		d.State = d.Config
		d.Cache = filepath.Join(home, "Library", "Caches", "toolsd")
		d.Run = filepath.Join(d.Cache, "run")
		d.ManagedConfig = "/Library/Application Support/toolsd/config.json"
	case "windows":
		d.Config = at("APPDATA", "AppData", "Roaming")
		d.State = at("LOCALAPPDATA", "AppData", "Local")
		d.Cache = filepath.Join(d.State, "cache")
		d.Run = filepath.Join(d.Cache, "run")
		d.ManagedConfig = `C:\ProgramData\toolsd\config.json`
		if v := getenv("ProgramData"); filepath.IsAbs(v) {
			d.ManagedConfig = filepath.Join(v, "toolsd", "config.json")
		}
	default:
		d.Config = at("XDG_CONFIG_HOME", ".config")
		d.State = at("XDG_STATE_HOME", ".local", "state")
		d.Cache = at("XDG_CACHE_HOME", ".cache")
		d.Run = filepath.Join(d.State, "run")
		// The specification says that the directory is the user's own. After su
		// or sudo it is the other user's: used, it would hold a directory that
		// this user's daemon must refuse.
		if v := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(v) && !ownedByAnother(v) {
			d.Run = filepath.Join(v, "toolsd")
		}
		d.ManagedConfig = "/etc/toolsd/config.json"
	}
	if dir := getenv("TOOLSD_DIR"); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("TOOLSD_DIR: %w", err)
		}
		d.Config, d.State = dir, filepath.Join(dir, "state")
		d.Cache, d.Run = filepath.Join(dir, "cache"), filepath.Join(dir, "run")
	}
	d.ConfigFile = filepath.Join(d.Config, "config.json")
	d.Socket = filepath.Join(d.Run, "toolsd.sock")
	if s := getenv("TOOLSD_SOCKET"); s != "" {
		s, err := filepath.Abs(s)
		if err != nil {
			return Dirs{}, fmt.Errorf("TOOLSD_SOCKET: %w", err)
		}
		d.Socket, d.Run, d.chosen = s, filepath.Dir(s), true
	}
	if len(d.Socket) > maxSocketPath {
		wanted := d.Socket
		sum := sha256.Sum256([]byte(wanted))
		d.Run = filepath.Join(tmp, "toolsd-"+uid+"-"+hex.EncodeToString(sum[:4]))
		d.Socket, d.chosen = filepath.Join(d.Run, "toolsd.sock"), false
		if len(d.Socket) > maxSocketPath {
			return Dirs{}, &UnfitError{d.Socket,
				fmt.Sprintf("is %d bytes long and stands in for %s, which is %d; a socket's path has at most %d", len(d.Socket), wanted, len(wanted), maxSocketPath),
				"set TOOLSD_SOCKET to a shorter path"}
		}
	}
	return d, nil
}

// PrepareCache makes the cache directory and says what is wrong with it. The cache
// can be done without, so this need not end anything.
func (d Dirs) PrepareCache() error { return makePrivate(d.Cache) }

// Prepare makes the directories, private to the user whatever the umask is; about
// the cache see PrepareCache. A state or run directory of ours with too wide a mode is tightened; one
// that another user owns, a link, or a file in its place is an *UnfitError.
func (d Dirs) Prepare() error {
	// The directory of config.json is the user's to arrange: often a link into
	// a collection of dotfiles, sometimes read-only. toolsd runs without it.
	_ = os.MkdirAll(d.Config, 0o700)
	_ = d.PrepareCache()
	if err := makePrivate(d.State); err != nil {
		return err
	}
	if !d.chosen {
		return makePrivate(d.Run)
	}
	if err := os.MkdirAll(d.Run, 0o700); err != nil {
		return unusable(d.Run, err)
	}
	return checkSocketDir(d.Run)
}

// makePrivate makes dir and what is missing above it, and leaves dir at 0700.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	info, err := ownDir(dir)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return unusable(dir, err)
		}
	}
	return nil
}

// checkSocketDir refuses a directory in which another user could put a socket
// in place of ours. One that was named by the user may be shared: /tmp is good
// enough, because nobody removes another's file there, and the peer's user is
// checked on both sides. A directory of ours that others can write is tightened.
func checkSocketDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // %LOCALAPPDATA% is private by its access list
	}
	shared := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	if shared && (isOurs(info) || ownerOf(info) == 0) {
		return nil
	}
	if info.IsDir() && ownerOf(info) == 0 && info.Mode().Perm()&0o022 == 0 {
		return nil
	}
	if info, err = ownDir(dir); err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		if err := os.Chmod(dir, mode&^0o022); err != nil {
			return unusable(dir, err)
		}
	}
	return nil
}

func ownDir(dir string) (fs.FileInfo, error) {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, unusable(dir, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, &UnfitError{dir, "is a symbolic link, and must be a directory of your own", "remove the link: rm " + shellQuote(dir)}
	case !info.IsDir():
		return nil, &UnfitError{dir, "is not a directory", "move it away"}
	case !isOurs(info):
		return nil, &UnfitError{dir, fmt.Sprintf("belongs to another user (uid %d, yours is %s)", ownerOf(info), userID()),
			"remove it, or set TOOLSD_DIR or TOOLSD_SOCKET to another place"}
	}
	return info, nil
}

func unusable(path string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		if pathErr.Path != path {
			return &UnfitError{path, fmt.Sprintf("cannot be used: %s: %v", pathErr.Path, pathErr.Err), "see who owns it: ls -ld " + shellQuote(pathErr.Path)}
		}
		err = pathErr.Err
	}
	return &UnfitError{path, fmt.Sprintf("cannot be used: %v", err), "see who owns it: ls -ld " + shellQuote(path)}
}

// absolutePlaces is an environment for a process that starts elsewhere: what FindDirs
// takes relative to the working directory means the same there.
func absolutePlaces(env []string) []string {
	for i, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if (name == "TOOLSD_DIR" || name == "TOOLSD_SOCKET") && value != "" {
			if abs, err := filepath.Abs(value); err == nil {
				env[i] = name + "=" + abs
			}
		}
	}
	return env
}

func userID() string { return strconv.Itoa(os.Geteuid()) }
