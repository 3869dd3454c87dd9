package trust

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

const (
	// A compiled server in a project has 10 to 100 MB, and hashing 256 MB takes
	// some 0.3 s once. What is larger cannot be approved.
	maxHashed = 256 << 20
	// A command line that names more files than this is not one of a server.
	maxFiles = 256
	// As many links as Linux follows in one path.
	maxLinks = 40
)

// project reads the files of one project for one fingerprint.
type project struct {
	root  *os.Root
	roots []string // absolute spellings of the root, with slashes
	dir   string   // where the server runs, below the root; words are relative to it
	out   bool     // it runs outside of the root
	files map[string]File
	tried map[string]role // paths that were looked at; the definition names most of them often
	err   error           // the first file that could not be read
}

func projectFiles(written, expanded clientconfig.Server, root string) ([]File, error) {
	if root == "" {
		return nil, nil
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("opening the project: %w", err)
	}
	defer opened.Close()
	p := &project{root: opened, roots: []string{filepath.ToSlash(filepath.Clean(root))}, files: map[string]File{}, tried: map[string]role{}}
	if real, err := filepath.EvalSymlinks(root); err == nil && real != root {
		p.roots = append(p.roots, filepath.ToSlash(real))
	}
	if expanded.Dir != "" {
		rel, inside := p.below(expanded.Dir, "")
		p.dir, p.out = rel, !inside
	}
	p.collect(expanded)
	p.collect(written)
	if p.err == nil && len(p.files) > maxFiles {
		p.err = fmt.Errorf("the definition names more than %d files of the project", maxFiles)
	}
	if p.err != nil {
		return nil, p.err
	}
	out := make([]File, 0, len(p.files))
	for _, f := range p.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// collect adds the files that a definition names. Taking one too many costs a
// question; missing one would let a change run.
func (p *project) collect(s clientconfig.Server) {
	if strings.ContainsAny(s.Command, `/\`) {
		p.named(s.Command, code)
	}
	flag := ""
	for _, arg := range s.Args {
		name, _, joined := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-") && !joined:
			flag = arg
			p.named(arg, argument)
			continue
		case strings.HasPrefix(arg, "-"):
			flag = name
		}
		if isDataFlag(flag) {
			p.named(arg, data)
		} else {
			p.named(arg, argument)
		}
		flag = ""
	}
	p.launched(s)
	if s.EnvFile != "" {
		p.named(s.EnvFile, code)
	}
	for name, value := range s.Env {
		if strings.EqualFold(name, "PATH") && s.Command != "" && !strings.ContainsAny(s.Command, `/\`) {
			for _, dir := range filepath.SplitList(value) {
				p.named(path.Join(filepath.ToSlash(dir), s.Command), code)
			}
		} else if _, ok := loaderOf(name); ok {
			p.named(value, code)
		}
	}
	// opencode puts the content of a file in the place of {file:path}.
	for _, text := range slices.Concat(values(s.Env), values(s.Headers), []string{s.URL}) {
		if strings.Contains(text, "{file:") {
			p.named(text, code)
		}
	}
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// launched adds what the programs on the command line take from the project by
// themselves. A shell's -c text and wrappers such as env are looked through word
// by word.
func (p *project) launched(s clientconfig.Server) {
	var words []string
	for i, w := range append([]string{s.Command}, s.Args...) {
		if i > 0 && strings.ContainsAny(w, " \t\n;&|") {
			words = append(words, strings.FieldsFunc(w, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()<>\"'`", r) })...)
		} else {
			words = append(words, w)
		}
	}
	p.launchedWords(words, true)
}

func (p *project) launchedWords(words []string, follow bool) {
	for i, w := range words {
		l, ok := launchers[programName(w)]
		if !ok {
			continue
		}
		for _, f := range l.reads {
			p.at(f, code)
		}
		first := true
		for j, arg := range words[i+1:] {
			if l.modules && (arg == "-m" || arg == "--module") && i+j+2 < len(words) {
				p.module(words[i+j+2])
			}
			if strings.HasPrefix(arg, "-") {
				continue
			}
			if l.scripts && follow {
				p.packageScript(arg)
			}
			if l.fetches && first {
				p.localPackage(arg)
			}
			if l.script {
				for _, ext := range l.exts {
					p.at(arg+ext, code)
				}
				if first || !p.known(arg) {
					p.entry(arg, l.exts)
				}
			}
			first = false
		}
	}
}

// known reports whether a word is one of the plain files found already.
func (p *project) known(word string) bool {
	for _, rel := range p.places(word) {
		if _, ok := p.files[rel]; ok {
			return true
		}
	}
	return false
}

// entry adds what an interpreter runs when it is given a directory.
func (p *project) entry(dir string, exts []string) {
	for _, name := range []string{"package.json", "__main__.py"} {
		p.at(dir+"/"+name, code)
	}
	for _, ext := range exts {
		p.at(dir+"/index"+ext, code)
	}
	var manifest struct {
		Main, Module string
	}
	if p.manifest(dir+"/package.json", &manifest) {
		for _, main := range []string{manifest.Main, manifest.Module} {
			if main != "" {
				p.at(dir+"/"+main, code)
				for _, ext := range exts {
					p.at(dir+"/"+main+ext, code)
					p.at(dir+"/"+main+"/index"+ext, code)
				}
			}
		}
	}
}

// module adds the files of a Python module.
func (p *project) module(name string) {
	parts := strings.Split(name, ".")
	for _, base := range []string{"", "src/"} {
		for i := range parts {
			at := base + strings.Join(parts[:i+1], "/")
			p.at(at+"/__init__.py", code)
		}
		at := base + strings.Join(parts, "/")
		p.at(at+".py", code)
		p.at(at+"/__main__.py", code)
	}
}

// packageScript adds package.json and the files that the named script of it runs.
func (p *project) packageScript(name string) {
	var manifest struct {
		Scripts map[string]string
	}
	p.at("package.json", code)
	if !p.manifest("package.json", &manifest) {
		return
	}
	for _, prefix := range []string{"pre", "", "post"} {
		if text := manifest.Scripts[prefix+name]; text != "" {
			p.named(text, code)
			p.launchedWords(strings.Fields(text), false)
		}
	}
}

// localPackage adds the copy of a package in the project, which npx runs instead
// of the published one.
func (p *project) localPackage(spec string) {
	name := spec
	if at := strings.LastIndex(name, "@"); at > 0 {
		name = name[:at]
	}
	p.at("node_modules/.bin/"+path.Base(name), code)
	p.at("node_modules/"+name+"/package.json", code)
	p.entry("node_modules/"+name, nodeLike.exts)
}

func (p *project) manifest(word string, into any) bool {
	for _, rel := range p.places(word) {
		if found, _, info := p.walk(rel); info != nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
			if raw, err := p.root.ReadFile(found); err == nil {
				return json.Unmarshal(bytes.TrimPrefix(raw, []byte("\uFEFF")), into) == nil
			}
		}
	}
	return false
}

// role says why a file is part of a definition.
type role int

// From the one that counts most to the one that counts least.
const (
	code     role = iota // it runs
	argument             // it is named; what is plainly a data base does not count
	data                 // the value of a flag like --db; counts only when it could run
)

// isDataFlag tells flags whose file the server itself writes: counting its content
// would take back the approval each time.
func isDataFlag(flag string) bool {
	flag = strings.ToLower(strings.TrimLeft(flag, "-"))
	for _, part := range strings.FieldsFunc(flag, func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
		switch part {
		case "db", "database", "sqlite", "log", "logfile", "logs", "output", "out", "memory", "cache", "state", "storage", "store", "history":
			return true
		}
	}
	return false
}

// codeExts are endings of files that some program would run.
var codeExts = []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".py", ".pyz", ".rb", ".pl", ".php", ".lua", ".sh", ".bash", ".zsh",
	".fish", ".ps1", ".bat", ".cmd", ".exe", ".dll", ".so", ".dylib", ".node", ".jar", ".wasm", ".r", ".go", ".rs"}

// counts decides whether the content of a file is part of the fingerprint.
func counts(r role, name string, info fs.FileInfo, head []byte) bool {
	if r == code {
		return true
	}
	if len(head) == 0 || bytes.HasPrefix(head, []byte("SQLite format 3\x00")) {
		return false // an empty file does nothing, and one that gets content counts from then on
	}
	return r == argument || info.Mode().Perm()&0o111 != 0 && runtime.GOOS != "windows" ||
		slices.Contains(codeExts, strings.ToLower(path.Ext(name))) || bytes.HasPrefix(head, []byte("#!"))
}

// named adds the files that a word names in whatever way: the word itself, or
// parts of it, as in --require=./x.js, file:./x, "a.js && b.js" or ${VAR:-./x}.
func (p *project) named(word string, r role) {
	if word == "" || len(word) > 1<<16 {
		return
	}
	p.at(word, r)
	parts := strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune(" \t\r\n\"'`=,;:|&()<>{}[]$", c) })
	if _, value, ok := strings.Cut(word, "="); ok {
		p.at(value, r)
	}
	for _, part := range parts {
		p.at(part, r)
		p.at(strings.TrimLeft(part, "-@!+"), r) // @file, of compilers and curl
		if len(part) > 2 && part[0] == '-' {    // -r./hook.js
			p.at(part[2:], r)
		}
		// What follows a variable whose value is not known here.
		if strings.Contains(word, "$") || strings.Contains(word, "{") {
			p.at(strings.TrimLeft(part, "/"), r)
		}
		if decoded, err := url.PathUnescape(part); err == nil && decoded != part {
			p.at(decoded, r)
		}
	}
}

// at adds the file that a path names, relative to where the server runs or to the
// root. Directories are no files.
func (p *project) at(word string, r role) {
	for _, rel := range p.places(word) {
		p.add(rel, r)
	}
}

// places are the paths below the root that a word may mean, not cleaned: x/../y
// is not y where x is a link.
func (p *project) places(word string) []string {
	if word == "" || len(word) > 4096 || strings.ContainsRune(word, 0) {
		return nil
	}
	if runtime.GOOS == "windows" {
		word = strings.ReplaceAll(word, `\`, "/")
	}
	// Linux has names for the present directory that look foreign.
	for _, alias := range []string{"/proc/self/cwd/", "/proc/thread-self/cwd/"} {
		if rest, ok := strings.CutPrefix(word, alias); ok {
			word = rest
		}
	}
	var out []string
	if rel, ok := p.below(word, p.dir); ok && !(p.out && !strings.HasPrefix(word, "/")) {
		out = append(out, rel)
	}
	if p.dir != "" || p.out {
		if rel, ok := p.below(word, ""); ok && !slices.Contains(out, rel) {
			out = append(out, rel)
		}
	}
	return out
}

// below makes a path relative to the root. Letters of different case count as the
// same: where they are not, a file that is not there costs nothing.
func (p *project) below(name, dir string) (string, bool) {
	name = filepath.ToSlash(name)
	if !strings.HasPrefix(name, "/") && filepath.VolumeName(name) == "" {
		if dir != "" {
			name = dir + "/" + name
		}
		return name, true
	}
	for _, root := range p.roots {
		if rest, ok := cutFold(path.Clean(name), root); ok {
			// The uncleaned rest keeps its dots when the root is spelled plainly.
			if raw, ok := cutFold(name, root); ok {
				rest = raw
			}
			return rest, true
		}
	}
	return "", false
}

func cutFold(name, root string) (string, bool) {
	if len(name) < len(root) || !strings.EqualFold(name[:len(root)], root) {
		return "", false
	}
	rest := name[len(root):]
	if rest == "" {
		return ".", true
	}
	if root != "/" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

// walk follows a path from the root component by component, as the system would,
// without leaving the root. Where the path leads out, outside is where to. info
// is nil for a path that leads out, or to nothing.
func (p *project) walk(rel string) (found, outside string, info fs.FileInfo) {
	var at []string
	todo := strings.Split(rel, "/")
	links := 0
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			if len(at) > 0 {
				at = at[:len(at)-1]
				continue
			}
			// Out of the root, and perhaps back in by its name.
			up := path.Join(path.Dir(p.roots[len(p.roots)-1]), path.Join(todo...))
			rest, ok := p.below(up, "")
			if links++; !ok || links > maxLinks {
				return "", up, nil
			}
			todo = strings.Split(rest, "/")
			continue
		}
		here := strings.Join(append(slices.Clone(at), c), "/")
		i, err := p.root.Lstat(here)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				p.note(here, err)
			}
			return "", "", nil
		}
		if i.Mode()&fs.ModeSymlink == 0 {
			at = append(at, c)
			info = i
			continue
		}
		target, err := p.root.Readlink(here)
		if err != nil {
			p.note(here, err)
			return "", "", nil
		}
		if links++; links > maxLinks {
			return "", "", nil // a circle: nothing can run it
		}
		target = filepath.ToSlash(target)
		if strings.HasPrefix(target, "/") || filepath.VolumeName(target) != "" {
			rest, ok := p.below(target, "")
			if !ok {
				return "", path.Join(append([]string{target}, todo...)...), nil
			}
			at, target = nil, rest
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if len(at) == 0 {
		return "", "", nil // the root itself
	}
	return strings.Join(at, "/"), "", info
}

// note keeps the first file that is there but cannot be read. A name that is too
// long, or goes through a file, is no file.
func (p *project) note(name string, err error) {
	if p.err == nil && errors.Is(err, fs.ErrPermission) {
		p.err = fmt.Errorf("reading %s of the project: %w", shown(name), err)
	}
}

func (p *project) add(rel string, r role) {
	if before, ok := p.tried[rel]; ok && before <= r {
		return
	}
	p.tried[rel] = r
	found, outside, info := p.walk(rel)
	if outside != "" {
		if name := path.Clean(rel); name != ".." && !strings.HasPrefix(name, "../") { // else the argument itself says it
			p.files[rel] = File{Path: rel, Link: outside}
		}
		return
	}
	if info == nil || !info.Mode().IsRegular() {
		return
	}
	if _, done := p.files[found]; done && r != code {
		return
	}
	if len(p.files) > maxFiles {
		return
	}
	f, err := p.root.Open(found)
	if err != nil {
		p.note(found, err)
		return
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || !os.SameFile(info, opened) {
		p.fail(found, cmp.Or(err, errors.New("it was replaced while it was read")))
		return
	}
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		p.fail(found, err)
		return
	}
	if !counts(r, found, opened, head[:n]) {
		return
	}
	if opened.Size() > maxHashed {
		p.fail(found, fmt.Errorf("it has %d MB, and more than %d MB are not hashed", opened.Size()>>20, maxHashed>>20))
		return
	}
	sum, err := contentHash(p.roots[len(p.roots)-1]+"/"+found, f, opened)
	if err != nil {
		p.fail(found, err)
		return
	}
	p.files[found] = File{Path: found, Hash: sum}
}

func (p *project) fail(name string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("reading %s of the project: %w", shown(name), err)
	}
}

// hashed remembers hashes of files for as long as their size and times stay.
var hashed struct {
	sync.Mutex
	files map[string]hashedFile
}

type hashedFile struct {
	info  fs.FileInfo
	ctime string
	sum   string
}

// maxRemembered bounds hashed: far more than the files of all servers of a person.
const maxRemembered = 4096

// contentHash is the hash of an open file, whose name is for remembering only. A
// file whose time is younger than a second is not remembered: a second write in
// the same tick of the clock would not show.
func contentHash(name string, f *os.File, info fs.FileInfo) (string, error) {
	// The change time cannot be set by a program, as the modification time can.
	ctime, _ := statField(info, "Ctim", "Ctimespec")
	hashed.Lock()
	old, ok := hashed.files[name]
	hashed.Unlock()
	if ok && old.ctime == ctime && old.info.Size() == info.Size() && old.info.ModTime().Equal(info.ModTime()) && os.SameFile(old.info, info) {
		return old.sum, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxHashed+1))
	if err != nil {
		return "", err
	}
	if n > maxHashed {
		return "", errors.New("it grew while it was read")
	}
	sum := hex.EncodeToString(h.Sum(nil))
	after, err := f.Stat()
	if err != nil {
		return "", err
	}
	settled := time.Since(info.ModTime()) > time.Second && after.ModTime().Equal(info.ModTime()) && after.Size() == info.Size()
	hashed.Lock()
	defer hashed.Unlock()
	if hashed.files == nil || len(hashed.files) >= maxRemembered {
		hashed.files = map[string]hashedFile{}
	}
	if settled {
		hashed.files[name] = hashedFile{info, ctime, sum}
	} else {
		delete(hashed.files, name)
	}
	return sum, nil
}
