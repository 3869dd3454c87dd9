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
// whatever path: serving it would make the daemon call itself.
func IsSelf(s Server) bool {
	words := append([]string{s.Command}, s.Args...)
	// env and cmd /c are what people put in front of a command.
	switch programName(words[0]) {
	case "env":
		words = words[1:]
		for len(words) > 0 && (strings.Contains(words[0], "=") || strings.HasPrefix(words[0], "-")) {
			words = words[1:]
		}
	case "cmd":
		words = words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "/") {
			words = words[1:]
		}
	}
	if len(words) == 0 || programName(words[0]) != "toolsd" {
		return false
	}
	// The verb is the first word that is no flag; a flag's value that is not
	// joined to it cannot be mcp.
	return slices.Contains(words[1:], "mcp")
}

// programName is the file name of a command without the extensions of Windows.
func programName(command string) string {
	base := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	for _, ext := range windowsPrograms {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}
