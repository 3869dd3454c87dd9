package trust

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

var (
	download  = pattern(`(?i)\b(?:curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod|aria2c)\b`)
	intoShell = pattern(`(?i)(?:\||<\(|\$\(|` + "`" + `|&&|;|\beval\b|\biex\b|\bsource\b).*\b(?:(?:ba|z|da|k|fi)?sh|python[\d.]*|node|perl|ruby|php|iex|invoke-expression)\b|\b(?:(?:ba|z|da|k)?sh|eval|python[\d.]*|node|iex)\b.*(?:<\(|\$\(|` + "`" + `)`)
	decode    = pattern(`(?i)\bbase64\s+(?:-d|-D|--decode)|\bopenssl\s+(?:base64|enc)\s.*-d|frombase64string|\b(?:atob|b64decode)\(|buffer\.from\([^)]*base64|\bxxd\s+-r|-(?:enc|encodedcommand)\b`)
	netcat    = pattern(`(?i)/dev/tcp/|\b(?:nc|ncat|socat)\b\s+-?\w*\s*\S+`)
	version   = pattern(`@v?\d+(?:\.\d+)*[\w.+-]*$|==[\w.]+$|@[0-9a-f]{7,}$|#[0-9a-f]{7,}$`)
)

// writtenDown ends the sentences about secrets in the file itself.
const writtenDown = "that is written into the file"

// shells run the text behind their -c; the others an expression of their language.
var inline = map[string]map[string]string{
	"shell": {"-c": "", "/c": "", "-command": "", "/k": ""},
	"code":  {"-e": "", "--eval": "", "-p": "", "--print": "", "-c": "", "eval": "", "-r": ""},
}

func isShell(name string) bool {
	switch name {
	case "sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "csh", "tcsh", "cmd", "powershell", "pwsh", "busybox":
		return true
	}
	return false
}

// Unusual names what a person should look at twice before approving, a sentence
// each. It holds no value of env or headers.
func Unusual(s clientconfig.Server, root string) []string {
	var out []string
	say := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if why, ok := loaderOf(name); ok {
			say("it sets %s, which %s", tool.CleanLine(name), why)
		}
		if looksSecret(s.Env[name]) {
			say("the value of env %s looks like a token "+writtenDown, tool.CleanLine(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if looksSecret(s.Headers[name]) {
			say("the header %s looks like a token "+writtenDown, tool.CleanLine(name))
		}
	}
	if s.URL != "" {
		unusualURL(s.URL, say)
	}
	if s.Command != "" {
		unusualCommand(append([]string{s.Command}, s.Args...), say)
	}
	for _, text := range slices.Concat([]string{s.Command, s.URL, s.Dir, s.EnvFile}, s.Args) {
		if _, hidden := tool.Clean(text); hidden {
			say("its definition holds hidden characters")
		}
	}
	unusualFiles(s, root, say)
	return out
}

func unusualURL(raw string, say func(string, ...any)) {
	u, err := url.Parse(raw)
	if err != nil {
		return
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); u.Scheme == "http" && host != "localhost" && !strings.HasSuffix(host, ".localhost") && !(ip != nil && ip.IsLoopback()) {
		say("its URL is plain http to %s, so that others on the way can read and change what is sent", tool.CleanLine(host))
	}
	if u.User != nil && !strings.Contains(u.User.String(), "$") {
		say("its URL holds a user name or password " + writtenDown)
	}
	for _, values := range u.Query() {
		if slices.ContainsFunc(values, looksSecret) {
			say("its URL holds what looks like a token " + writtenDown)
		}
	}
}

func unusualCommand(words []string, say func(string, ...any)) {
	for i, w := range words {
		name := programName(w)
		rest := words[i+1:]
		switch {
		case i > 0 && strings.HasPrefix(w, "-"):
		case isShell(name):
			if slices.ContainsFunc(rest, func(a string) bool { return isInline("shell", a) }) {
				say("it runs a command line of its own in %s", name)
			}
		case name == "sudo", name == "doas", name == "pkexec", name == "su", name == "runas":
			say("it asks for the rights of another user with %s", name)
		case name == "npx", name == "bunx", name == "pnpx", name == "uvx", name == "dlx", name == "pipx":
			if spec := packageOf(rest, name); spec != "" && !version().MatchString(spec) {
				say("it downloads %s without a fixed version, so that what runs can change at any time", shown(spec))
			}
		case name == "docker", name == "podman", name == "nerdctl":
			unusualContainer(name, rest, say)
		case launchers[name].script && i == 0:
			if slices.ContainsFunc(rest[:min(len(rest), 3)], func(a string) bool { return isInline("code", a) }) {
				say("it runs code of its own in %s", name)
			}
		}
		if i > 0 && looksSecret(lastPart(w)) || i > 1 && secretFlag().MatchString(words[i-1]) && looksLiteral(w) {
			say("argument %d looks like a token "+writtenDown, i)
		}
	}
	line := strings.Join(words, " ")
	if strings.Contains(line, "sudo ") && !slices.Contains(words, "sudo") {
		say("it asks for the rights of another user with sudo")
	}
	if download().MatchString(line) {
		if intoShell().MatchString(line) {
			say("it downloads something and runs it")
		} else {
			say("it downloads something")
		}
	}
	if decode().MatchString(line) {
		say("it decodes something that is written so that nobody can read it")
	}
	if netcat().MatchString(line) {
		say("it opens a raw network connection")
	}
	if strings.Contains(line, "rm -rf ") || strings.Contains(line, "rm -fr ") {
		say("it deletes files")
	}
}

func isInline(kind, arg string) bool {
	arg = strings.ToLower(arg)
	if _, ok := inline[kind][arg]; ok {
		return true
	}
	// -lc, -ec: flags of a shell in one word
	return kind == "shell" && len(arg) < 6 && strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, "c")
}

// packageOf is the package that npx and its like download: the value of
// --package or --from, or the first plain word.
func packageOf(args []string, launcher string) string {
	for i, a := range args {
		for _, flag := range []string{"--package", "-p", "--from", "--spec"} {
			if rest, ok := strings.CutPrefix(a, flag+"="); ok {
				return rest
			}
			if a == flag && i+1 < len(args) {
				return args[i+1]
			}
		}
		if strings.HasPrefix(a, "-") || launcher == "pipx" && a == "run" {
			continue
		}
		if i > 0 && (args[i-1] == "--python" || args[i-1] == "--registry" || args[i-1] == "--index-url" || args[i-1] == "--with") {
			continue
		}
		if strings.HasPrefix(a, ".") || strings.HasPrefix(a, "/") {
			return "" // of the disk
		}
		return a
	}
	return ""
}

func unusualContainer(name string, args []string, say func(string, ...any)) {
	for i, a := range args {
		flag, v, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(args) {
			v = args[i+1]
		}
		if rest, ok := strings.CutPrefix(a, "-v"); ok && rest != "" && !joined {
			flag, v = "-v", rest
		}
		switch flag {
		case "--privileged":
			say("its container is --privileged and can do all that the host's root can")
		case "-v", "--volume", "--mount":
			source, _, _ := strings.Cut(v, ":")
			for _, part := range strings.Split(v, ",") {
				for _, key := range []string{"source=", "src="} {
					if s, ok := strings.CutPrefix(part, key); ok {
						source = s
					}
				}
			}
			whole := strings.Trim(source, "/") == "" && source != ""
			switch source = strings.TrimRight(source, "/"); {
			case whole, source == "/etc", source == "/root", source == "/home", source == "/proc", source == "/sys", source == "/var", source == "/dev":
				say("its container gets %s of this machine", shown(v))
			case source == "~", source == "$HOME", source == "${HOME}", source == "${userHome}", source == "${env:HOME}":
				say("its container gets your home directory")
			case strings.HasSuffix(source, "docker.sock"), strings.HasSuffix(source, "podman.sock"):
				say("its container controls %s itself, and with it this machine", name)
			case strings.Contains(source, "/.ssh"), strings.Contains(source, "/.aws"), strings.Contains(source, "/.gnupg"), strings.Contains(source, "/.kube"):
				say("its container gets your keys in %s", shown(source))
			}
		case "--network", "--net", "--pid", "--ipc", "--userns":
			if v == "host" {
				say("its container shares the host's %s", strings.TrimLeft(flag, "-"))
			}
		case "--cap-add", "--device", "--security-opt":
			say("its container gets more rights by %s", flag)
		}
	}
}

func unusualFiles(s clientconfig.Server, root string, say func(string, ...any)) {
	files, err := projectFiles(s, s, root)
	if err != nil {
		say("it cannot be checked: %v", err)
	}
	var own []string
	for _, f := range files {
		switch name := shown(f.Path); {
		case f.Link != "":
			say("%s is a link out of the project to %s", name, shown(f.Link))
		case strings.HasPrefix(f.Path, "node_modules/.bin/"):
			say("the project's own copy %s runs in the place of the published package", name)
		default:
			own = append(own, name)
		}
	}
	const most = 5
	if more := len(own) - most; more > 0 {
		own = append(own[:most], fmt.Sprintf("%d more", more))
	}
	if len(own) > 0 {
		say("what it does is decided by files of the project: %s", strings.Join(own, ", "))
	}
}

// looksSecret reports whether a value has the shape of a token, and is no variable.
func looksSecret(v string) bool {
	for _, scheme := range []string{"Bearer ", "bearer ", "Basic ", "token "} {
		v = strings.TrimPrefix(v, scheme)
	}
	if byShape().MatchString(v) {
		return true
	}
	if len(v) < 20 || strings.ContainsAny(v, " ${}/\\<>:,") {
		return false
	}
	// Letters and digits in turns, as random text has and words have not.
	turns, last := 0, 0
	for _, r := range v {
		kind := 0
		switch {
		case r >= '0' && r <= '9':
			kind = 1
		case r >= 'a' && r <= 'z':
			kind = 2
		case r >= 'A' && r <= 'Z':
			kind = 3
		}
		if last != 0 && kind != 0 && kind != last {
			turns++
		}
		last = kind
	}
	return turns >= len(v)/4
}

func looksLiteral(v string) bool {
	return len(v) >= minSecret && !strings.ContainsAny(v, "${}<> /") && !strings.HasPrefix(v, "-")
}

func lastPart(arg string) string {
	if _, v, ok := strings.Cut(arg, "="); ok {
		return v
	}
	return arg
}
