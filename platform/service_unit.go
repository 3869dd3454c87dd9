package platform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The texts that service managers read are made here whole, and handed on without
// a template: what kardianos/service writes by itself starts a user's unit at no
// login, waits two minutes after a crash, and leaves values of variables unquoted,
// so that one with a newline can add directives.

// systemdUnit is the unit of these options. uid is the number of o.User.
func systemdUnit(o ServiceOptions, uid string) (string, error) {
	command, err := systemdPath(o.Executable)
	if err != nil {
		return "", err
	}
	for _, arg := range o.Args {
		word, err := systemdWord(strings.ReplaceAll(arg, "$", "$$"))
		if err != nil {
			return "", fmt.Errorf("the argument %q: %w", arg, err)
		}
		command += " " + word
	}
	env, err := checkEnv(o.Env)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by `toolsd service install`, which writes it anew. Changes belong into")
	line("# a drop-in: `systemctl %sedit toolsd`.", map[bool]string{true: "", false: "--user "}[o.System])
	line("[Unit]")
	line("Description=toolsd, one daemon for the MCP servers of all agents")
	line("Documentation=https://github.com/toolsd/toolsd")
	if o.System {
		// The socket is where the user's verbs look for it.
		line("Wants=user-runtime-dir@%s.service network-online.target", uid)
		line("After=user-runtime-dir@%s.service network-online.target", uid)
	}
	// Six starts within a minute are a daemon that cannot live.
	line("StartLimitIntervalSec=60")
	line("StartLimitBurst=6")
	line("")
	line("[Service]")
	line("Type=exec")
	line("ExecStart=%s", command)
	for _, kv := range env {
		word, err := systemdQuote(kv)
		if err != nil {
			name, _, _ := strings.Cut(kv, "=")
			return "", fmt.Errorf("the variable %s: %w", name, err)
		}
		line("Environment=%s", word)
	}
	if o.System {
		name, err := checkUser(o.User)
		if err != nil {
			return "", err
		}
		line("User=%s", name)
		line("WorkingDirectory=~")
		if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "XDG_RUNTIME_DIR=") }) {
			line("Environment=XDG_RUNTIME_DIR=/run/user/%s", uid)
		}
	}
	line("Restart=on-failure")
	line("RestartSec=1")
	// 2 and 3 are mistakes that another start does not mend: a flag that this
	// version does not know, a directory that cannot be used. A daemon that finds
	// the lock taken ends with 0, which is no failure.
	line("RestartPreventExitStatus=2 3")
	// The daemon ends its servers itself, in at most 8 s; a signal to all of them
	// at once would take them away under a call. What is left then is killed.
	line("KillMode=mixed")
	line("TimeoutStopSec=12")
	// A server that takes all memory ends alone.
	line("OOMPolicy=continue")
	line("")
	line("[Install]")
	if o.System {
		line("WantedBy=multi-user.target")
	} else {
		line("WantedBy=default.target")
	}
	return b.String(), nil
}

// systemdQuote writes s as one word of a unit that has s as its value, whatever is
// in it. In a command line the caller doubles "$". Braces are written as numbers,
// since the text goes through kardianos/service, to which "{{" means something.
func systemdQuote(s string) (string, error) {
	if err := oneLine(s); err != nil {
		return "", err
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `{`, `\x7b`, `}`, `\x7d`).Replace(s) + `"`, nil
}

// systemdPath is systemdQuote for the program of a command line, which systemd
// looks at twice: it expands no "$" there, and refuses quotes and backslashes.
func systemdPath(path string) (string, error) {
	if i := strings.IndexAny(path, `'"\`); i >= 0 {
		return "", &ServiceError{fmt.Sprintf("systemd runs no program whose path holds the character %c: %s", path[i], path), "put the program in a directory with a plainer name"}
	}
	word, err := systemdWord(path)
	if err != nil {
		return "", fmt.Errorf("the path %q of the program: %w", path, err)
	}
	return word, nil
}

// systemdWord is systemdQuote where quotes are needed, for people who read units.
func systemdWord(s string) (string, error) {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._=+,:", r) || r == '-'
	}
	// What stands before a path can be a mark that systemd reads.
	if s != "" && (s[0] == '/' || s[0] >= 'a' && s[0] <= 'z' || s[0] == '-') && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s, nil
	}
	return systemdQuote(s)
}

// oneLine refuses what no service manager's file can hold in a value: the end of a
// line or of a string, and what is no text.
func oneLine(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("it is no valid UTF-8, which a service cannot be given")
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return fmt.Errorf("it holds the control character %U, which a service cannot be given", r)
		}
	}
	return nil
}

// checkEnv returns the variables sorted, so that the same ones give the same unit.
func checkEnv(env []string) ([]string, error) {
	env = slices.Sorted(slices.Values(env))
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || name[0] >= '0' && name[0] <= '9' {
			return nil, fmt.Errorf("%q is no name of a variable", name)
		}
		if err := oneLine(value); err != nil {
			return nil, &ServiceError{fmt.Sprintf("the variable %s cannot be kept for the service: %v", name, err), "set it to another value, or unset it"}
		}
	}
	return env, nil
}

// checkUser refuses what is no name of a user, so that it needs no quotes.
func checkUser(name string) (string, error) {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
	}
	if name == "" || name[0] == '-' || name[0] == '.' || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return "", &ServiceError{fmt.Sprintf("%q is no name of a user that a service can have", name), "type --user NAME with the name that `id -un` prints"}
	}
	return name, nil
}
