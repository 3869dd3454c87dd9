package clientconfig

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Equal reports whether two expanded entries define the same server, so that one
// process or connection serves both.
//
// What reaches the server counts: command, arguments, environment, directory,
// url, headers and transport (one that is not given is equal to any). How this
// program treats it does not: name, source, timeouts, tool filters, Disabled and
// the toolsd block may differ between two files, and a second copy of a server
// for the sake of a timeout would cost memory and show every tool twice. The
// caller unites the filters with Restrict.
func Equal(a, b Server) bool {
	if (a.URL == "") != (b.URL == "") {
		return false
	}
	if a.URL != "" {
		return a.URL == b.URL && (a.Transport == b.Transport || a.Transport == Auto || b.Transport == Auto) &&
			maps.Equal(canonical(a.Headers), canonical(b.Headers)) &&
			maps.Equal(canonical(a.HeaderVars), canonical(b.HeaderVars)) && a.BearerVar == b.BearerVar
	}
	return a.Command == b.Command && slices.Equal(a.Args, b.Args) && maps.Equal(a.Env, b.Env) &&
		a.Dir == b.Dir && a.EnvFile == b.EnvFile && sameSet(a.Forward, b.Forward)
}

// canonical folds the names of headers, whose case means nothing.
func canonical(h map[string]string) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[strings.ToLower(k)] = v
	}
	return out
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// Restrict adds the tool filter of another entry for the same server: a tool that
// either file hides is hidden.
func (s *Server) Restrict(other Server) {
	exclude := slices.Clone(s.Exclude)
	for _, e := range other.Exclude {
		exclude = appendNew(exclude, e)
	}
	s.Exclude = exclude
	switch {
	case len(other.Include) == 0:
	case len(s.Include) == 0:
		s.Include = slices.Clone(other.Include)
	default:
		var both []string
		for _, p := range s.Include {
			if covered(p, other.Include) {
				both = appendNew(both, p)
			}
		}
		for _, p := range other.Include {
			if covered(p, s.Include) {
				both = appendNew(both, p)
			}
		}
		s.Include = both
		if len(both) == 0 {
			s.Exclude = appendNew(s.Exclude, "*")
		}
	}
}

// covered reports whether one of the globs matches the name or the whole glob p.
func covered(p string, globs []string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, p)
		return g == p || err == nil && ok
	})
}

// IsSelf reports whether an entry is toolsd's own shim, toolsd mcp, under
// whatever path and behind whatever runs it on this machine: serving it would
// make the daemon call itself.
func IsSelf(s Server) bool {
	return runsShim(append([]string{s.Command}, s.Args...), 0)
}

// wrappers run the command that follows their own options. Those that run it
// elsewhere (ssh, docker, wsl) are not among them: that is another toolsd.
var wrappers = []string{
	"env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "sudo", "doas", "exec", "command", "caffeinate",
	"npx", "npm", "pnpm", "yarn", "bun", "bunx", "uv", "uvx", "pipx", "go", "cmd", "powershell", "pwsh",
}

// verbs of those wrappers that stand before the command.
var wrapperVerbs = []string{"exec", "dlx", "x", "run", "tool", "--"}

// valued are options of those wrappers whose value is the next word.
var valued = []string{"-u", "-c", "-p", "-n", "-o", "-g", "-k", "-s", "--package", "--from", "--with", "--user", "--chdir", "--signal", "-executionpolicy"}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "fish"}

// runsShim looks through wrappers; depth bounds shells in shells.
func runsShim(words []string, depth int) bool {
	if len(words) == 0 || depth > 4 {
		return false
	}
	first := programName(words[0])
	switch {
	case first == "toolsd":
		// The verb is the first word that is no flag; a flag's value that is not
		// joined to it cannot be mcp.
		return slices.Contains(words[1:], "mcp")
	case slices.Contains(shells, first):
		for i, w := range words[1:] {
			if strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.HasSuffix(w, "c") && i+2 < len(words) {
				return runsShim(lastCommand(words[i+2]), depth+1)
			}
		}
		return false
	case !slices.Contains(wrappers, first):
		return false
	}
	// What stands before the command: options, some with a value, variables, a
	// duration or a priority.
	value := false
	for i, w := range words[1:] {
		name := programName(w)
		known := name == "toolsd" || slices.Contains(shells, name) || slices.Contains(wrappers, name)
		isOption := strings.HasPrefix(w, "-") || first == "cmd" && strings.HasPrefix(w, "/")
		switch {
		case known && runsShim(words[i+1:], depth+1),
			strings.Contains(w, " ") && runsShim(lastCommand(w), depth+1): // powershell -Command "toolsd mcp"
			return true
		case !isOption && !value && !known && !strings.Contains(w, "=") && !slices.Contains(wrapperVerbs, w) && !startsWithDigit(w):
			return false // the command is another one
		}
		value = isOption && slices.Contains(valued, strings.ToLower(w))
	}
	return false
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// lastCommand is the words of the last command of a script, which is the one
// that speaks for it: cd /x && exec toolsd mcp.
func lastCommand(script string) []string {
	script = strings.TrimRight(script, "; \t\n")
	if i := strings.LastIndexAny(script, ";&|\n"); i >= 0 {
		script = script[i+1:]
	}
	words, err := splitWords(script, looksWindows(script))
	if err != nil {
		return nil
	}
	for len(words) > 0 && isAssignment(words[0]) {
		words = words[1:]
	}
	return words
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && isVariableName(name)
}

// programName is the file name of a command without the extensions of Windows
// and, as packages are named, without a version.
func programName(command string) string {
	base := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	if name, _, ok := strings.Cut(base, "@"); ok && name != "" {
		base = name
	}
	for _, ext := range windowsPrograms {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}
