//go:build unix

package platform

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// shellTimeout is what one attempt may take. nvm and a slow prompt need about
// 1 s; a shell that needs more than 5 waits for something that will not come.
const shellTimeout = 5 * time.Second

// resolving is set while the shell starts, so that an rc file can tell.
const resolving = "TOOLSD_RESOLVING_ENVIRONMENT"

// LoginEnviron is the environment that a terminal of the user would have: what
// the login shell exports after all its files, merged over base (this process's
// own when base is nil). A daemon that a service manager started has next to
// nothing, and without this `npx` is not found.
//
// The interactive login shell is asked first, since nvm and many others hook in
// there only; then the plain login shell; each has 5 s, after which its whole
// session is killed. Where the first does not answer, what bash's files had made of
// PATH until then counts too. When neither answers, well-known directories stand
// in, and Problem says why. The error is that of ctx, and then there is no Environ.
//
// It is for programs that live as long as the question; a daemon asks through
// its Keeper, so that a shell that hangs does not outlive it.
func LoginEnviron(ctx context.Context, base func() []string) (Environ, error) {
	return loginEnviron(ctx, base, startShell)
}

// LoginEnviron is the function of that name, with the shell below the keeper.
// What an rc file starts in a session of its own (ssh-agent) lives as long as
// the keeper.
func (k *Keeper) LoginEnviron(ctx context.Context, base func() []string) (Environ, error) {
	return loginEnviron(ctx, base, k.startShell)
}

func loginEnviron(ctx context.Context, base func() []string, start shellStarter) (Environ, error) {
	if base == nil {
		base = os.Environ
	}
	own := toMap(base())
	delete(own, markerName) // of the daemon that started us, if one did
	fillFromPasswd(own)
	shell := own["SHELL"]
	var causes []string
	partial := "" // PATH as far as the files came that a complete attempt reads
	for _, attempt := range shellAttempts(shell) {
		vars, err := askShell(ctx, start, shell, attempt.flags, own)
		if ctx.Err() != nil {
			return Environ{}, fmt.Errorf("asking the login shell for its environment: %w", context.Cause(ctx))
		}
		if err != nil {
			causes = append(causes, fmt.Sprintf("%s: %v", strings.Join(append([]string{shell}, attempt.flags...), " "), err))
			if attempt.complete {
				partial = askPartialPath(ctx, start, shell, own)
			}
			continue
		}
		merged := maps.Clone(own)
		maps.Copy(merged, vars)
		merged["PATH"] = joinPath(cmp.Or(partial, vars["PATH"]), slices.Concat(filepath.SplitList(vars["PATH"]), filepath.SplitList(own["PATH"]))...)
		origin := fmt.Sprintf("login shell (%s)", strings.Join(append([]string{filepath.Base(shell)}, attempt.flags...), " "))
		if !attempt.complete {
			// The interactive files were not read, and those are where version
			// managers live.
			merged["PATH"] = withWellKnown(merged["PATH"], merged["HOME"], func(n string) string { return merged[n] })
			origin += " and well-known directories"
		}
		return Environ{Vars: merged, Origin: origin, Problem: strings.Join(causes, "; ")}, nil
	}
	own["PATH"] = joinPath(cmp.Or(partial, own["PATH"]), filepath.SplitList(own["PATH"])...)
	own["PATH"] = withWellKnown(own["PATH"], own["HOME"], func(n string) string { return own[n] })
	return Environ{Vars: own, Origin: "well-known directories", Problem: strings.Join(causes, "; ")}, nil
}

type shellAttempt struct {
	flags    []string
	complete bool // reads all the files that a terminal reads
}

func shellAttempts(shell string) []shellAttempt {
	switch name := filepath.Base(shell); name {
	case "csh", "tcsh": // take -l only alone; .login and .cshrc are read by -i as well
		return []shellAttempt{{[]string{"-i"}, true}, {nil, false}}
	case "pwsh":
		return []shellAttempt{{[]string{"-Login"}, true}}
	case "xonsh", "elvish":
		return []shellAttempt{{[]string{"-i"}, true}, {nil, false}}
	}
	return []shellAttempt{{[]string{"-l", "-i"}, true}, {[]string{"-l"}, false}}
}

// askShell runs one simple command of the shell: /bin/sh with a script, so that
// only a word in quotes has to mean the same in every shell.
func askShell(ctx context.Context, start shellStarter, shell string, flags []string, env map[string]string) (map[string]string, error) {
	marker := rand.Text()
	// awk for systems whose env has no -0: a separator of our own instead.
	script := fmt.Sprintf(`printf %%s %[1]s-begin; { %[2]s -0 || awk "BEGIN{for (k in ENVIRON) printf \"%%s=%%s%[1]s-next\", k, ENVIRON[k]}"; } 2>/dev/null; printf %%s %[1]s-end`,
		marker, envCommand())
	flag := "-c"
	if filepath.Base(shell) == "pwsh" {
		flag = "-Command"
	}
	sh, err := start(Command{
		Path:  shell,
		Args:  append(append([]string{filepath.Base(shell)}, flags...), flag, rcFirst(shell, flags, env["HOME"])+"/bin/sh -c '"+script+"'"),
		Dir:   usableDir(env["HOME"]),
		Env:   append(fromMap(env), resolving+"=1", "DISABLE_AUTO_UPDATE=true", "ZSH_TMUX_AUTOSTART=false"),
		Label: "login shell",
	})
	if err != nil {
		return nil, err
	}
	defer sh.stdout.Close()
	exited := sh.exited
	found := make(chan []byte, 1)
	go func() { found <- readBetween(sh.stdout, marker+"-begin", marker+"-end") }()

	timer := time.NewTimer(shellTimeout)
	defer timer.Stop()
	var section []byte
	var waitErr error
	running := true
	// Something that an rc file put into the background may hold the pipe open
	// past the shell's end: 200 ms are enough for what the shell itself wrote.
	var drained <-chan time.Time
wait:
	for {
		select {
		case section = <-found:
			if section != nil || !running {
				break wait
			}
			found = nil // the end of the output without it: how it ends says why
		case waitErr = <-exited:
			running = false
			drained = time.After(200 * time.Millisecond)
			exited = nil
		case <-drained:
			break wait
		case <-timer.C:
			waitErr = fmt.Errorf("no answer in %v", shellTimeout)
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	// In every case: what the rc files started in this session is of no use.
	sh.end(section != nil, running)
	if section == nil {
		switch {
		case running:
			return nil, waitErr
		case waitErr != nil:
			return nil, fmt.Errorf("%w, before it printed its environment", waitErr)
		}
		return nil, errors.New("it printed no environment")
	}
	vars := parseEnv(section, marker+"-next")
	if _, ok := vars["PATH"]; !ok {
		return nil, errors.New("the environment it printed has no PATH")
	}
	// What belongs to the shell, or to our asking.
	for _, name := range []string{resolving, markerName, "_", "SHLVL", "PWD", "OLDPWD"} {
		delete(vars, name)
	}
	for _, name := range []string{"DISABLE_AUTO_UPDATE", "ZSH_TMUX_AUTOSTART"} {
		if _, ok := env[name]; !ok {
			delete(vars, name)
		}
	}
	return vars, nil
}

// partialTimeout is what askPartialPath may take: the files were given all their
// time before, and what comes ahead of the place where they hang is quick.
const partialTimeout = 2 * time.Second

// askPartialPath is PATH as bash's files left it before one of them hung or
// ended the shell; empty when that cannot be told. PATH is written down before
// each command that finds it changed, so these commands run slower than usual:
// it is asked for after a failure only.
func askPartialPath(ctx context.Context, start shellStarter, shell string, env map[string]string) string {
	if filepath.Base(shell) != "bash" {
		return ""
	}
	marker := rand.Text()
	script := `exec 9>&1; set -T; __path=$PATH
trap '[[ $PATH == "$__path" ]] || { __path=$PATH; builtin printf "%s%s\0" ` + marker + ` "$PATH" >&9; }' DEBUG
[ -r /etc/profile ] && . /etc/profile
for f in ~/.bash_profile ~/.bash_login ~/.profile; do [ -r "$f" ] && { . "$f"; break; }; done
` + rcFirst(shell, []string{"-i"}, env["HOME"]) + ":"
	sh, err := start(Command{
		Path:  shell,
		Args:  []string{"bash", "--noprofile", "--norc", "-i", "-c", script},
		Dir:   usableDir(env["HOME"]),
		Env:   append(fromMap(env), resolving+"=1"),
		Label: "login shell",
	})
	if err != nil {
		return ""
	}
	defer sh.stdout.Close()
	last := make(chan string, 1)
	go func() {
		// What an rc file writes between the marks is of no use, however much it is.
		in, path := bufio.NewReaderSize(sh.stdout, 1<<20), ""
		for {
			chunk, err := in.ReadSlice(0)
			if _, value, ok := bytes.Cut(chunk, []byte(marker)); ok && err == nil {
				path = string(value[:len(value)-1])
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				last <- path
				return
			}
		}
	}()
	timer := time.NewTimer(partialTimeout)
	defer timer.Stop()
	running := true
	select {
	case <-sh.exited:
		running = false
	case <-timer.C:
	case <-ctx.Done():
	}
	sh.end(false, running)
	select {
	case path := <-last: // the pipe ends with the shell's session
		return path
	case <-time.After(200 * time.Millisecond): // something outside of it holds the pipe
		return ""
	}
}

// rcFirst reads .bashrc where bash as a login shell would not: it leaves that to
// the user's profile, and where that does not do it (there is none, or a program
// wrote one of its own), a terminal still has what is in .bashrc.
func rcFirst(shell string, flags []string, home string) string {
	if filepath.Base(shell) != "bash" || !slices.Contains(flags, "-i") || profileReadsRC(home) {
		return ""
	}
	if info, err := os.Stat(filepath.Join(home, ".bashrc")); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return ". ~/.bashrc; "
}

// profileReadsRC reports whether the file that bash reads as a login shell names
// .bashrc, itself or in the .profile that it reads in turn.
func profileReadsRC(home string) bool {
	for _, name := range []string{".bash_profile", ".bash_login", ".profile"} {
		path := filepath.Join(home, name)
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if !info.Mode().IsRegular() || info.Size() > 1<<20 {
			return true // odd: what bash makes of it is all there is
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if bytes.Contains(text, []byte("bashrc")) {
			return true
		}
		if !bytes.Contains(text, []byte("/.profile")) {
			return false // the first one there is the only one that is read
		}
	}
	return false
}

// shellProcess is a shell in a session of its own, with stdin and stderr on
// /dev/null: there is no terminal that it could ask on.
type shellProcess struct {
	stdout io.ReadCloser
	exited <-chan error
	// end ends its session and returns when the shell is gone. A shell that
	// answered ends by itself. running: exited has not told yet.
	end func(answered, running bool)
}

type shellStarter func(Command) (*shellProcess, error)

// startShell starts it as a child of this process.
func startShell(c Command) (*shellProcess, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Dir: c.Dir, Env: c.Env, Stdout: w, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = startOwn(cmd)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait(); disown(cmd.Process.Pid) }()
	return &shellProcess{r, exited, func(_, running bool) {
		killSession(cmd.Process.Pid, running)
		if running {
			<-exited
		}
	}}, nil
}

// startShell starts it below the keeper.
func (k *Keeper) startShell(c Command) (*shellProcess, error) {
	c.session = true
	p, err := k.Start(c)
	if err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() {
		<-p.Done()
		var err error
		if e := p.Exit(); e.Code != 0 {
			err = errors.New(e.Text)
		}
		exited <- err
	}()
	return &shellProcess{p.Stdout, exited, func(answered, running bool) {
		if running && !(answered && p.wait(context.Background(), time.Second)) {
			p.Kill()
			<-p.cleared
		}
		// The keeper ends what is left of the session of one that ended.
	}}, nil
}

// readBetween reads to the end mark, or to the end. rc files print what they
// like before, after and, on a bad day, 4 MiB of it.
func readBetween(r io.Reader, begin, end string) []byte {
	const most = 8 << 20
	in := bufio.NewReaderSize(r, 64<<10)
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		all = append(all, buf[:n]...)
		if _, rest, ok := bytes.Cut(all, []byte(begin)); ok {
			if section, _, ok := bytes.Cut(rest, []byte(end)); ok {
				return section
			}
		}
		if len(all) > most { // keep what a mark could begin in
			all = append([]byte(nil), all[len(all)-len(begin):]...)
		}
		if err != nil {
			return nil
		}
	}
}

func parseEnv(section []byte, next string) map[string]string {
	separator := []byte{0}
	if !bytes.Contains(section, separator) {
		separator = []byte(next)
	}
	vars := make(map[string]string)
	for kv := range bytes.SplitSeq(section, separator) {
		// Exported bash functions are not for other programs.
		if name, value, ok := strings.Cut(string(kv), "="); ok && name != "" && !strings.HasPrefix(name, "BASH_FUNC_") {
			vars[name] = value
		}
	}
	return vars
}

// envCommand is a path: env as a word could be an alias, and after some rc
// files it is not in PATH.
func envCommand() string {
	for _, path := range []string{"/usr/bin/env", "/bin/env"} {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	return "env"
}

func usableDir(dir string) string {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return "/"
}

// fillFromPasswd adds what login would have set.
func fillFromPasswd(vars map[string]string) {
	e, _ := passwd()
	set := func(name, value string) {
		if vars[name] == "" && value != "" {
			vars[name] = value
		}
	}
	set("HOME", e.home)
	set("USER", e.name)
	set("LOGNAME", e.name)
	set("SHELL", e.shell)
	if !filepath.IsAbs(vars["SHELL"]) {
		vars["SHELL"] = "/bin/sh"
	}
	set("PATH", "/usr/local/bin:/usr/bin:/bin")
}

type passwdEntry struct{ name, home, shell string }

// passwd is this user's line of the user data base. /etc/passwd does not know
// the users of a directory service; getent does, and so does Directory Services
// on macOS.
func passwd() (passwdEntry, bool) {
	uid := userID()
	if data, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.Lines(string(data)) {
			if e, ok := parsePasswd(line, uid); ok {
				return e, true
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // a directory server may be away
	defer cancel()
	if out, err := exec.CommandContext(ctx, "getent", "passwd", uid).Output(); err == nil {
		if e, ok := parsePasswd(string(out), uid); ok {
			return e, true
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
		return passwdEntry{}, false
	}
	u, err := user.LookupId(uid)
	if err != nil {
		return passwdEntry{}, false
	}
	e := passwdEntry{name: u.Username, home: u.HomeDir}
	if out, err := exec.CommandContext(ctx, "/usr/bin/dscl", ".", "-read", "/Users/"+u.Username, "UserShell").Output(); err == nil {
		_, e.shell, _ = strings.Cut(strings.TrimSpace(string(out)), ": ")
	}
	return e, true
}

func parsePasswd(line, uid string) (passwdEntry, bool) {
	f := strings.Split(strings.TrimSpace(line), ":")
	if len(f) < 7 || f[2] != uid {
		return passwdEntry{}, false
	}
	if _, err := strconv.Atoi(f[2]); err != nil {
		return passwdEntry{}, false
	}
	return passwdEntry{f[0], f[5], f[6]}, true
}
