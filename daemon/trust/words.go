package trust

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

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
	before, first := map[string]bool{}, map[[2]string]bool{}
	for i, w := range words {
		name := programName(w)
		l, ok := launchers[name]
		if !ok {
			continue
		}
		rest := words[i+1:]
		if arg := firstPlain(rest); arg != "" && !first[[2]string{name, arg}] {
			first[[2]string{name, arg}] = true
			switch {
			case l.fetches:
				p.localPackage(arg)
			case l.script:
				p.entry(arg, l.exts)
			}
		}
		if before[name] {
			continue // what follows here followed there
		}
		before[name] = true
		for _, f := range l.reads {
			p.at(f, code)
		}
		said := map[string]bool{}
		for j, arg := range rest {
			if p.err != nil {
				return
			}
			if l.modules && (arg == "-m" || arg == "--module") && j+1 < len(rest) {
				p.module(rest[j+1])
			}
			if strings.HasPrefix(arg, "-") || said[arg] {
				continue
			}
			said[arg] = true
			if l.scripts && follow {
				p.packageScript(arg)
			}
			if l.script {
				for _, ext := range l.exts {
					p.at(arg+ext, code)
				}
				if !p.known(arg) {
					p.entry(arg, l.exts)
				}
			}
		}
	}
}

// firstPlain is the first word that is no flag, or nothing.
func firstPlain(words []string) string {
	for _, w := range words {
		if !strings.HasPrefix(w, "-") {
			return w
		}
	}
	return ""
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
	if p.scripts == nil {
		var manifest struct {
			Scripts map[string]string
		}
		p.at("package.json", code)
		p.manifest("package.json", &manifest)
		p.scripts = cloneMap(manifest.Scripts)
	}
	for _, prefix := range []string{"pre", "", "post"} {
		if text := p.scripts[prefix+name]; text != "" {
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
		if !p.spend(lookWork) {
			return false
		}
		if found, _, info := p.walk(rel); info != nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
			if raw, err := p.root.ReadFile(found); err == nil {
				return json.Unmarshal(bytes.TrimPrefix(raw, []byte("\uFEFF")), into) == nil
			}
		}
	}
	return false
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
