package watcher

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// link is one name in one directory on the way to a file. When it is created,
// replaced or removed, the file's path may lead elsewhere. Dir holds no symbolic
// links; Name may be a pattern for the last link of a Glob.
type link struct{ dir, name string }

// maxLinks is how many symbolic links one path may take, as on Linux.
const maxLinks = 40

// chain returns the links of a file's path: the file itself, every symbolic link,
// the first name that does not exist, and every name below anchor. Above anchor,
// directories are not expected to be replaced; the poll covers them.
func chain(loc clientconfig.Location, anchor string) []link {
	var links []link
	dir, rest := split(loc.Path)
	for hops := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		last := len(rest) == 0
		if last && loc.Glob {
			return append(links, link{dir, name})
		}
		full := filepath.Join(dir, name)
		info, err := os.Lstat(full)
		isLink := err == nil && info.Mode()&os.ModeSymlink != 0
		if last || err != nil || isLink || within(dir, anchor) {
			links = append(links, link{dir, name})
		}
		if err != nil {
			return links
		}
		if !isLink {
			dir = full
			continue
		}
		target, err := os.Readlink(full)
		if hops++; err != nil || hops > maxLinks {
			return links
		}
		if !filepath.IsAbs(target) {
			// Not joined: what is before a .. may be a link itself.
			rest = append(names(target), rest...)
		} else {
			var first []string
			dir, first = split(target)
			rest = append(first, rest...)
		}
		if loc.Scope == clientconfig.Project && !within(lexical(dir, rest), loc.Root) {
			return links // it leads out of the project, where nothing is read
		}
	}
	return links
}

func lexical(dir string, rest []string) string {
	return filepath.Join(append([]string{dir}, rest...)...)
}

// split parts an absolute path into its volume and the names below it.
func split(path string) (volume string, rest []string) {
	path = filepath.Clean(path)
	volume = filepath.VolumeName(path)
	rest = names(path[len(volume):])
	return volume + string(filepath.Separator), rest
}

func names(path string) []string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
	return slices.DeleteFunc(parts, func(n string) bool { return n == "." })
}

// within reports whether path is dir or below it. Both are clean.
func within(path, dir string) bool {
	if dir == "" {
		return false
	}
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || os.IsPathSeparator(rest[0]) || os.IsPathSeparator(dir[len(dir)-1]))
}
