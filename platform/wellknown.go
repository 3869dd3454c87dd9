package platform

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// wellKnownDirs are the places that version managers and installers put
// commands in, those of them that exist, in the order in which their users
// would expect them in PATH. It is what is left when no login shell answers.
func wellKnownDirs(home string, get func(string) string) []string {
	under := func(variable string, fallback ...string) string {
		if v := get(variable); filepath.IsAbs(v) {
			return v
		}
		return filepath.Join(append([]string{home}, fallback...)...)
	}
	data := under("XDG_DATA_HOME", ".local", "share")
	dirs := []string{
		filepath.Join(home, ".local", "bin"),
		filepath.Join(home, "bin"),
		nvmBin(under("NVM_DIR", ".nvm")),
		nvmBin(under("XDG_CONFIG_HOME", ".config") + "/nvm"),
		filepath.Join(under("FNM_DIR", ".fnm"), "aliases", "default", "bin"),
		filepath.Join(data, "fnm", "aliases", "default", "bin"),
		filepath.Join(home, "Library", "Application Support", "fnm", "aliases", "default", "bin"),
		filepath.Join(under("VOLTA_HOME", ".volta"), "bin"),
		filepath.Join(under("ASDF_DATA_DIR", ".asdf"), "shims"),
		filepath.Join(under("MISE_DATA_DIR", ".local", "share", "mise"), "shims"),
		filepath.Join(under("N_PREFIX", "n"), "bin"),
		filepath.Join(under("BUN_INSTALL", ".bun"), "bin"),
		filepath.Join(under("DENO_INSTALL", ".deno"), "bin"),
		under("PNPM_HOME", ".local", "share", "pnpm"),
		filepath.Join(home, "Library", "pnpm"),
		filepath.Join(home, ".npm-global", "bin"),
		filepath.Join(under("PYENV_ROOT", ".pyenv"), "shims"),
		filepath.Join(under("RBENV_ROOT", ".rbenv"), "shims"),
		filepath.Join(under("CARGO_HOME", ".cargo"), "bin"),
		filepath.Join(under("GOPATH", "go"), "bin"),
		filepath.Join(home, ".dotnet", "tools"),
		filepath.Join(home, ".nix-profile", "bin"),
		"/nix/var/nix/profiles/default/bin",
		"/run/current-system/sw/bin",
		"/opt/homebrew/bin", "/opt/homebrew/sbin",
		"/home/linuxbrew/.linuxbrew/bin",
		"/opt/local/bin",
		"/usr/local/go/bin",
		"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
		"/snap/bin",
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return dir == "" || err != nil || !info.IsDir()
	})
}

// withWellKnown adds them to a PATH: the user's before the system's, which is
// where a version manager puts itself, so that its node wins over the one in
// /usr/bin; the others at the end.
func withWellKnown(path, home string, get func(string) string) string {
	list := filepath.SplitList(path)
	system := slices.IndexFunc(list, func(dir string) bool {
		return slices.Contains([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, dir)
	})
	if system < 0 {
		system = len(list)
	}
	first, last := slices.Clone(list[:system]), list[system:]
	for _, dir := range wellKnownDirs(home, get) {
		switch {
		case slices.Contains(list, dir):
		case strings.HasPrefix(dir, home+string(filepath.Separator)):
			first = append(first, dir)
		default:
			last = append(slices.Clone(last), dir)
		}
	}
	return strings.Join(slices.Concat(first, last), string(filepath.ListSeparator))
}

// nvmBin is the directory of nvm's default version, else of the newest one.
func nvmBin(root string) string {
	installed, err := filepath.Glob(filepath.Join(root, "versions", "node", "v*"))
	if err != nil || len(installed) == 0 {
		return ""
	}
	slices.SortFunc(installed, func(a, b string) int {
		return slices.Compare(versionOf(b), versionOf(a))
	})
	alias := "default"
	// An alias may name another ("lts/*" → "lts/jod" → "v22.1.0"); 5 is more
	// than nvm makes.
	for range 5 {
		data, err := os.ReadFile(filepath.Join(root, "alias", filepath.FromSlash(alias)))
		if err != nil {
			break
		}
		alias = strings.TrimSpace(string(data))
		if alias == "" || strings.Contains(alias, "..") {
			break
		}
	}
	if want := versionOf(alias); len(want) > 0 {
		for _, dir := range installed {
			if have := versionOf(filepath.Base(dir)); len(have) >= len(want) && slices.Equal(have[:len(want)], want) {
				return filepath.Join(dir, "bin")
			}
		}
	}
	return filepath.Join(installed[0], "bin")
}

// versionOf are the numbers of "v22.1.0" or of a path that ends so; nil when it
// is no version.
func versionOf(s string) []int {
	var numbers []int
	for part := range strings.SplitSeq(strings.TrimPrefix(filepath.Base(s), "v"), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// joinPath appends to a PATH what it does not have yet.
func joinPath(path string, more ...string) string {
	list := filepath.SplitList(path)
	for _, dir := range more {
		if dir != "" && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return strings.Join(list, string(filepath.ListSeparator))
}
