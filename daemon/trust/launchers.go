package trust

import (
	"path"
	"strings"
)

// launcher is a program that runs something out of the directory it is started
// in, beside what its command line names.
type launcher struct {
	reads   []string // files that tell it what to run or where to load it from
	exts    []string // what it appends to the name of a script
	script  bool     // its first plain word is a script, or a directory with an entry
	scripts bool     // it runs the scripts of a package.json
	modules bool     // -m names a Python module
	fetches bool     // its first plain word is an npm package; a local copy is preferred
}

var (
	nodeLike   = launcher{script: true, exts: []string{".js", ".mjs", ".cjs", ".ts", ".json", ".node"}}
	pythonLike = launcher{script: true, modules: true}
	plain      = launcher{script: true}
	npmFiles   = []string{".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml"}
	npmLike    = launcher{scripts: true, reads: npmFiles}
	npxLike    = launcher{fetches: true, reads: npmFiles}
	pyProject  = launcher{script: true, modules: true, reads: []string{"pyproject.toml", "uv.toml", "Pipfile", "setup.py", "setup.cfg"}}
	compose    = launcher{reads: []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Dockerfile", "compose.override.yaml", "docker-compose.override.yml"}}
)

// launchers by the name of the program. A program that is not here counts with
// the files that its command line names.
var launchers = map[string]launcher{
	"node": nodeLike, "nodejs": nodeLike, "tsx": nodeLike, "ts-node": nodeLike, "electron": nodeLike, "nodemon": nodeLike,
	"python": pythonLike, "pythonw": pythonLike, "pypy": pythonLike, "py": pythonLike,
	"ruby": plain, "perl": plain, "php": plain, "lua": plain, "rscript": plain, "pwsh": plain, "powershell": plain, "java": plain,
	"sh": plain, "bash": plain, "zsh": plain, "dash": plain, "ksh": plain, "fish": plain,
	"npm": npmLike, "pnpm": npmLike, "yarn": npmLike,
	"npx": npxLike, "bunx": npxLike, "pnpx": npxLike,
	"bun":  {script: true, scripts: true, exts: nodeLike.exts, reads: append([]string{"tsconfig.json"}, npmFiles...)},
	"deno": {script: true, exts: []string{".ts", ".js"}, reads: []string{"deno.json", "deno.jsonc"}},
	"uv":   pyProject, "poetry": pyProject, "pdm": pyProject, "hatch": pyProject, "rye": pyProject, "pipenv": pyProject,
	"fastmcp": pyProject, "mcp": pyProject,
	"make":           {reads: []string{"GNUmakefile", "makefile", "Makefile"}},
	"gmake":          {reads: []string{"GNUmakefile", "makefile", "Makefile"}},
	"just":           {reads: []string{"justfile", "Justfile", ".justfile"}},
	"task":           {reads: []string{"Taskfile.yml", "Taskfile.yaml"}},
	"mise":           {reads: []string{"mise.toml", ".mise.toml"}},
	"direnv":         {reads: []string{".envrc"}},
	"rake":           {reads: []string{"Rakefile"}},
	"bundle":         {reads: []string{"Gemfile"}},
	"composer":       {reads: []string{"composer.json"}},
	"cargo":          {reads: []string{"Cargo.toml", ".cargo/config.toml", ".cargo/config", "build.rs", "src/main.rs"}},
	"go":             {reads: []string{"go.mod", "go.work", "main.go"}, exts: []string{"/main.go"}, script: true},
	"mvn":            {reads: []string{"pom.xml"}},
	"gradle":         {reads: []string{"build.gradle", "build.gradle.kts", "settings.gradle"}},
	"nix":            {reads: []string{"flake.nix", "flake.lock"}},
	"docker":         compose,
	"podman":         compose,
	"docker-compose": compose,
}

// programName is how launchers knows a word of a command line.
func programName(word string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(word, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ext)
	}
	// python3, python3.12, node22
	if trimmed := strings.TrimRight(name, "0123456789."); trimmed != "" {
		if _, ok := launchers[trimmed]; ok {
			return trimmed
		}
	}
	return name
}

// loaders are variables that make a program run or load a file.
var loaders = map[string]string{
	"LD_PRELOAD":            "loads a library into every program it starts",
	"LD_LIBRARY_PATH":       "changes where libraries are loaded from",
	"LD_AUDIT":              "loads a library into every program it starts",
	"DYLD_INSERT_LIBRARIES": "loads a library into every program it starts",
	"NODE_OPTIONS":          "can make node run other code first",
	"NODE_PATH":             "changes where node loads modules from",
	"PYTHONSTARTUP":         "makes python run a file first",
	"PYTHONPATH":            "changes where python loads modules from",
	"PYTHONHOME":            "changes where python loads its library from",
	"BASH_ENV":              "makes bash run a file first",
	"ENV":                   "makes a shell run a file first",
	"ZDOTDIR":               "changes which files zsh runs first",
	"PERL5OPT":              "can make perl run other code first",
	"PERL5LIB":              "changes where perl loads modules from",
	"RUBYOPT":               "can make ruby run other code first",
	"RUBYLIB":               "changes where ruby loads code from",
	"JAVA_TOOL_OPTIONS":     "can make java load other code",
	"_JAVA_OPTIONS":         "can make java load other code",
	"CLASSPATH":             "changes where java loads code from",
	"GIT_SSH_COMMAND":       "makes git run another program",
	"GIT_SSH":               "makes git run another program",
	"GIT_ASKPASS":           "makes git run another program",
	"GIT_PROXY_COMMAND":     "makes git run another program",
	"GIT_EXTERNAL_DIFF":     "makes git run another program",
	"GIT_EXEC_PATH":         "changes which programs git runs",
	"GIT_CONFIG_GLOBAL":     "changes which configuration git reads",
	"EDITOR":                "names a program that others run",
	"PAGER":                 "names a program that others run",
	"SSH_ASKPASS":           "makes ssh run another program",
	"PATH":                  "changes which programs are found by their name",
	"NODE_EXTRA_CA_CERTS":   "makes node accept other certificates",
	"SSL_CERT_FILE":         "changes which certificates are accepted",
	"NPM_CONFIG_REGISTRY":   "changes where packages are downloaded from",
	"PIP_INDEX_URL":         "changes where packages are downloaded from",
	"UV_INDEX_URL":          "changes where packages are downloaded from",
	"UV_DEFAULT_INDEX":      "changes where packages are downloaded from",
	"HTTP_PROXY":            "sends its requests through another host",
	"HTTPS_PROXY":           "sends its requests through another host",
	"ALL_PROXY":             "sends its requests through another host",
}

// loaderOf finds a variable in loaders: names of Windows and of npm's settings
// have no fixed case, and the dynamic linkers have whole families.
func loaderOf(name string) (why string, ok bool) {
	upper := strings.ToUpper(name)
	if why, ok = loaders[upper]; ok {
		return why, true
	}
	switch {
	case strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"):
		return "changes how programs load libraries", true
	case strings.HasPrefix(upper, "GIT_CONFIG_"):
		return "changes git's configuration", true
	}
	return "", false
}
