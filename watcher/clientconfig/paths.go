package clientconfig

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Env is what decides about paths.
type Env struct {
	GOOS   string
	Home   string
	Getenv func(string) string // nil: no variable is set
}

// Location is one file, or one pattern of files, in which a client keeps servers.
type Location struct {
	Client  string // slug
	Scope   Scope
	Root    string // the project it belongs to; empty in user scope
	Path    string
	Glob    bool // Path is a directory and a pattern for the names in it, such as *.json
	Managed bool

	Format   Format
	Pointer  string
	Settings bool
}

// At is the location of one file that the pattern of l matched.
func (l Location) At(path string) Location {
	l.Path, l.Glob = path, false
	if l.Format == "" {
		l.Format = formatOf(path)
	}
	return l
}

// Matches returns the paths, sorted, of what the pattern of l means among the entries
// of its directory. Of the path only the last part is a pattern: a directory of the
// user's may have brackets in its name.
func (l Location) Matches(entries []fs.DirEntry) []string {
	dir, pattern := filepath.Split(l.Path)
	var paths []string
	for _, e := range entries {
		if ok, err := filepath.Match(pattern, e.Name()); ok && err == nil {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// ExtraFile is the location of a file that the "files" setting names: Claude
// Code's shape, trusted like the user's own.
func ExtraFile(path string) Location {
	return Location{Client: "toolsd", Scope: User, Path: path, Format: formatOf(path), Pointer: "mcpServers"}
}

// UserFiles returns every place in user scope, in order of precedence.
func UserFiles(env Env) []Location {
	var all []Location
	for _, c := range clients {
		for _, f := range c.Files {
			if f.Scope != User {
				continue
			}
			if p := env.resolve(f.path(env.GOOS)); p != "" {
				all = append(all, c.location(f, p, ""))
			}
		}
	}
	return all
}

// ProjectFiles returns every place in project scope for the project at root, in
// order of precedence. It says nothing about parents of root.
func ProjectFiles(root string, env Env) []Location {
	var all []Location
	for _, c := range clients {
		for _, f := range c.Files {
			if f.Scope == Project {
				all = append(all, c.location(f, env.join(root, f.path(env.GOOS)), root))
			}
		}
	}
	return all
}

func (c Client) location(f File, path, root string) Location {
	l := Location{
		Client: c.Slug, Scope: f.Scope, Root: root, Path: path, Managed: f.Managed,
		Format: f.Format, Pointer: f.Pointer, Settings: f.Settings,
		Glob: strings.Contains(f.Linux, "*"),
	}
	if l.Format == "" {
		l.Format = formatOf(path)
	}
	if l.Pointer == "" {
		l.Pointer = c.Pointer
	}
	return l
}

func formatOf(path string) Format {
	switch strings.ToLower(path[strings.LastIndexByte(path, '.')+1:]) {
	case "toml":
		return TOML
	case "yaml", "yml":
		return YAML
	}
	return JSON
}

func (f File) path(goos string) string {
	p := ""
	switch goos {
	case "darwin":
		p = f.Darwin
	case "windows":
		p = f.Windows
	}
	if p == "" {
		p = f.Linux
	}
	if p == "-" {
		return ""
	}
	return p
}

// resolve replaces the base of a template. The result is empty when the
// environment does not say where the base is.
func (e Env) resolve(template string) string {
	if !strings.HasPrefix(template, "{") {
		return e.clean(template)
	}
	name, rest, _ := strings.Cut(template[1:], "}")
	base := e.base(name)
	if base == "" {
		return ""
	}
	return e.join(base, rest)
}

// base gives the directory that a template starts with. A variable that holds a
// relative path is as good as unset, as the XDG specification has it: what it
// would be relative to differs from process to process.
func (e Env) base(name string) string {
	win := e.GOOS == "windows"
	inHome := func(elem string) string {
		if e.Home == "" {
			return ""
		}
		return e.join(e.Home, elem)
	}
	from := func(variable, fallback string) string {
		if e.Getenv != nil {
			if v := e.Getenv(variable); e.abs(v) {
				return v
			}
		}
		return fallback
	}
	switch name {
	case "home":
		return e.Home
	case "xdg": // clients that follow XDG on every system
		return from("XDG_CONFIG_HOME", inHome(".config"))
	case "config": // the system's own place for applications
		switch {
		case win:
			return from("APPDATA", inHome("AppData/Roaming"))
		case e.GOOS == "darwin":
			return inHome("Library/Application Support")
		}
		return from("XDG_CONFIG_HOME", inHome(".config"))
	case "appdata":
		return from("APPDATA", inHome("AppData/Roaming"))
	case "localappdata":
		return from("LOCALAPPDATA", inHome("AppData/Local"))
	case "programdata":
		return from("ProgramData", `C:\ProgramData`)
	case "programfiles":
		return from("ProgramFiles", `C:\Program Files`)
	case "claude":
		return from("CLAUDE_CONFIG_DIR", e.Home)
	case "codex":
		return from("CODEX_HOME", inHome(".codex"))
	case "copilot":
		return from("COPILOT_HOME", inHome(".copilot"))
	case "toolsd":
		config := e.base("config")
		if config != "" {
			config = e.join(config, "toolsd")
		}
		return from("TOOLSD_DIR", config)
	}
	return ""
}

// join, clean and abs follow e.GOOS, not the system this runs on, so that the
// table can be tested for all three.
func (e Env) join(base, rest string) string {
	if rest == "" {
		return e.clean(base)
	}
	return e.clean(base + "/" + rest)
}

func (e Env) clean(p string) string {
	if e.GOOS == "windows" {
		return cleanWindows(p)
	}
	return path.Clean(p)
}

func (e Env) abs(p string) bool {
	if e.GOOS == "windows" {
		return isWindowsPath(p)
	}
	return strings.HasPrefix(p, "/")
}

// isWindowsPath reports whether p starts with a drive or a server.
func isWindowsPath(p string) bool {
	if strings.HasPrefix(p, `\\`) || strings.HasPrefix(p, "//") {
		return true
	}
	return hasDrive(p) && len(p) > 2 && (p[2] == '\\' || p[2] == '/')
}

func hasDrive(p string) bool {
	return len(p) > 1 && p[1] == ':' && (p[0]|0x20) >= 'a' && (p[0]|0x20) <= 'z'
}

// cleanWindows is filepath.Clean as on Windows, with the drive in upper case:
// clients write both c: and C: for the same directory.
func cleanWindows(p string) string {
	p = strings.ReplaceAll(p, `\`, "/")
	unc := strings.HasPrefix(p, "//")
	p = path.Clean(p)
	if hasDrive(p) {
		p = strings.ToUpper(p[:1]) + p[1:]
		if len(p) == 2 {
			p += "/"
		}
	}
	if unc {
		p = "/" + p
	}
	return strings.ReplaceAll(p, "/", `\`)
}

// cleanRoot is the root of a project as Claude Code's user file spells it. On
// Windows it writes slashes.
func cleanRoot(p string) (string, bool) {
	if isWindowsPath(p) && !strings.HasPrefix(p, "//") {
		return cleanWindows(p), true
	}
	if strings.HasPrefix(p, "/") {
		return path.Clean(p), true
	}
	return "", false
}
