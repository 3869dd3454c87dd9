package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Environ is a captured environment and where it came from.
type Environ struct {
	Vars   map[string]string
	Origin string // "login shell (bash -l -i)", "well-known directories", …
	// Problem says why a better origin was not to be had; usually empty.
	Problem string
}

// ProcessEnviron is the environment of this process, as it is.
func ProcessEnviron() Environ { return Environ{Vars: toMap(os.Environ()), Origin: "this process"} }

// Get is one variable; on Windows names are equal whatever their case.
func (e Environ) Get(name string) string {
	v, _ := e.lookup(name)
	return v
}

func (e Environ) lookup(name string) (string, bool) {
	v, ok := e.Vars[name]
	if ok || runtime.GOOS != "windows" {
		return v, ok
	}
	for k, v := range e.Vars {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return "", false
}

// NotFoundError says that a command does not exist where it was looked for.
type NotFoundError struct {
	Name   string
	Looked []string // directories of PATH, or the one path
	Origin string   // of the PATH
	Cause  string   // when something is there that cannot be run
	Do     string
}

func (e *NotFoundError) Error() string {
	if e.Cause != "" {
		return e.Name + ": " + e.Cause
	}
	if len(e.Looked) == 0 {
		return fmt.Sprintf("%s: command not found; PATH (%s) is empty", e.Name, e.Origin)
	}
	return fmt.Sprintf("%s: command not found in PATH (%s): %s", e.Name, e.Origin, strings.Join(e.Looked, string(filepath.ListSeparator)))
}

// Hint says what to do.
func (e *NotFoundError) Hint() string { return e.Do }

// LookPath resolves a command in this environment's PATH (os/exec would look in
// our own). A name with a separator is taken relative to dir. Relative elements
// of PATH are skipped: in a checkout they would run what the repository brought.
// The error is a *NotFoundError.
func (e Environ) LookPath(name, dir string) (string, error) {
	if name == "" {
		return "", &NotFoundError{Name: `""`, Cause: "the command is empty", Do: `give the entry a "command"`}
	}
	if strings.ContainsRune(name, '/') || runtime.GOOS == "windows" && strings.ContainsAny(name, `\:`) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		found, cause := e.runnable(path)
		if cause == "" {
			return found, nil
		}
		do := "correct the path of the command"
		if strings.HasPrefix(name, "~") {
			do = "write the home directory out: a ~ is not expanded in a command"
		} else if strings.HasSuffix(cause, "not executable") {
			do = "make it executable: chmod +x " + shellQuote(path)
		}
		return "", &NotFoundError{Name: name, Looked: []string{path}, Origin: e.Origin, Cause: path + " " + cause, Do: do}
	}
	var looked []string
	var present string
	for _, element := range filepath.SplitList(e.Get("PATH")) {
		if !filepath.IsAbs(element) {
			continue
		}
		path := filepath.Join(element, name)
		found, cause := e.runnable(path)
		if cause == "" {
			return found, nil
		}
		if cause != missing && present == "" {
			present = path + " " + cause
		}
		if !slices.Contains(looked, element) {
			looked = append(looked, element)
		}
	}
	do := "write the full path of the command into the entry"
	if program, ok := installs[strings.TrimSuffix(name, ".exe")]; ok {
		do = "install " + program + ", or " + do
	} else if runtime.GOOS != "windows" {
		do += fmt.Sprintf(" (`command -v %s` in a terminal shows it)", shellQuote(name))
	}
	return "", &NotFoundError{Name: name, Looked: looked, Origin: e.Origin, Cause: present, Do: do}
}

// installs names what brings the commands that entries use most.
var installs = map[string]string{
	"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "pnpm": "pnpm", "bunx": "Bun", "bun": "Bun", "deno": "Deno",
	"uvx": "uv", "uv": "uv", "pipx": "pipx", "python": "Python", "python3": "Python", "docker": "Docker", "podman": "Podman",
	"go": "Go", "cargo": "Rust", "java": "Java", "dotnet": ".NET", "ruby": "Ruby",
}

const missing = "does not exist"

// runnable is the file that path names as a command, or why it is none.
func (e Environ) runnable(path string) (found, cause string) {
	candidates := []string{path}
	if runtime.GOOS == "windows" && filepath.Ext(path) == "" {
		candidates = nil
		extensions := e.Get("PATHEXT")
		if extensions == "" {
			extensions = ".COM;.EXE;.BAT;.CMD"
		}
		for ext := range strings.SplitSeq(extensions, ";") {
			candidates = append(candidates, path+strings.ToLower(ext))
		}
	}
	cause = missing
	for _, c := range candidates {
		info, err := os.Stat(c)
		switch {
		case err != nil:
			if !errors.Is(err, fs.ErrNotExist) && !isNotDir(err) {
				cause = fmt.Sprintf("cannot be looked at: %v", causeOf(err))
			}
		case info.IsDir():
			cause = "is a directory"
		case !canExecute(c):
			cause = "is not executable"
		default:
			return c, ""
		}
	}
	return "", cause
}

// passedOn are the variables that a server gets from the user's environment:
// what programs need to find their files, the network and the screen. Tokens
// are not among them; an entry that needs one names it in its own env.
var passedOn = []string{
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP", "TERM", "COLORTERM",
	"XDG_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NIX_SSL_CERT_FILE",
	"NVM_*", "FNM_*", "VOLTA_HOME", "VOLTA_FEATURE_PNPM", "ASDF_*", "MISE_*", "N_PREFIX", "BUN_INSTALL", "DENO_DIR", "DENO_INSTALL", "PNPM_HOME",
	"NPM_CONFIG_PREFIX", "NPM_CONFIG_CACHE", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_USERCONFIG",
	"npm_config_prefix", "npm_config_cache", "npm_config_registry", "npm_config_userconfig", "COREPACK_HOME",
	"UV_CACHE_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_PYTHON_INSTALL_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_PYTHON",
	"PIP_INDEX_URL", "PIPX_HOME", "PIPX_BIN_DIR", "PYENV_ROOT", "CONDA_PREFIX", "RBENV_ROOT", "SDKMAN_DIR", "JAVA_HOME", "DOTNET_ROOT",
	"GOPATH", "GOBIN", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR", "HOMEBREW_REPOSITORY", "NIX_PATH", "NIX_PROFILES",
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST",
}

var passedOnWindows = []string{
	"PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "ALLUSERSPROFILE", "PUBLIC",
	"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432",
	"USERPROFILE", "USERNAME", "USERDOMAIN", "HOMEDRIVE", "HOMEPATH", "COMPUTERNAME", "OS", "NUMBER_OF_PROCESSORS",
	"PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_LEVEL", "PROCESSOR_REVISION", "PSMODULEPATH",
}

// ForChild is the environment of a server: the variables of passedOn, and the
// entry's own, which win. It is sorted, so equal inputs give equal output.
func (e Environ) ForChild(extra map[string]string) []string {
	allowed := passedOn
	if runtime.GOOS == "windows" {
		allowed = slices.Concat(passedOn, passedOnWindows)
	}
	child := make(map[string]string, len(extra)+32)
	for name, value := range e.Vars {
		if slices.ContainsFunc(allowed, func(pattern string) bool { return matchName(pattern, name) }) {
			child[name] = value
		}
	}
	for name, value := range extra {
		if runtime.GOOS == "windows" {
			maps.DeleteFunc(child, func(k, _ string) bool { return strings.EqualFold(k, name) })
		}
		// What no environment can hold would end in an error of exec that names
		// nothing, or in another variable.
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			continue
		}
		child[name] = value
	}
	return fromMap(child)
}

func matchName(pattern, name string) bool {
	if runtime.GOOS == "windows" {
		pattern, name = strings.ToUpper(pattern), strings.ToUpper(name)
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func toMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		// From the second byte: Windows has variables like "=C:".
		if i := strings.IndexByte(kv, '='); i > 0 {
			m[kv[:i]] = kv[i+1:]
		}
	}
	return m
}

func fromMap(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+"="+m[name])
	}
	return list
}

func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,:@%=", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// causeOf is an error without the path, for messages that name it already.
func causeOf(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
