package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/toolsd/toolsd"

// layers says for each package which others of this module it may import, and
// why that is all. A package that is not here fails the test: say where it
// belongs.
var layers = map[string]struct {
	may []string
	why string
}{
	"cmd/toolsd": {
		[]string{"cmd/toolsd/sample", "daemon", "daemon/calllog", "daemon/trust", "index", "index/tool", "ipc", "ipc/shim", "platform", "watcher", "watcher/adopt", "watcher/clientconfig", "watcher/settings"},
		"prints what a Backend answers; of index it runs the check of a file, of calllog the reading, of trust that and the redaction; adopt and doctor read config files themselves",
	},
	"cmd/toolsd/sample":           {nil, "servers of the demo know nothing of toolsd, like every other server"},
	"cmd/searcheval":              {[]string{"index", "index/tool"}, "measures the ranking and nothing else"},
	"daemon":                      {[]string{"daemon/calllog", "daemon/session", "daemon/trust", "daemon/upstream", "index", "index/tool", "ipc", "platform", "watcher", "watcher/clientconfig", "watcher/settings"}, "wires all of them; it knows no shim, since agents reach it through ipc"},
	"daemon/calllog":              {[]string{"index/tool", "platform"}, "a file of lines"},
	"daemon/session":              {[]string{"index/tool"}, "what an agent has seen is a set of ids and hashes; it knows no wire"},
	"daemon/trust":                {[]string{"index/tool", "platform", "watcher/clientconfig"}, "judges definitions as they were read, before anything runs"},
	"daemon/upstream":             {[]string{"index/tool", "platform", "watcher/clientconfig"}, "the one place that talks to servers; what is done with their tools is the daemon's"},
	"daemon/upstream/faultserver": {nil, "a server of the tests"},
	"ipc":                         {[]string{"index", "index/tool", "platform", "watcher/clientconfig"}, "its types hold what index and clientconfig already have a type for"},
	"ipc/shim":                    {[]string{"index/tool", "ipc"}, "stands on a Backend; it must work with a daemon of another version, so it knows none"},
	"index":                       {[]string{"index/tool"}, "searches tools, whoever lists them; it knows no MCP"},
	"index/tool":                  {nil, "the leaf that all others share"},
	"platform":                    {nil, "all that differs per system, for everyone"},
	"watcher":                     {[]string{"watcher/clientconfig", "watcher/settings"}, "files to snapshots; what follows from them is the daemon's"},
	"watcher/adopt":               {[]string{"index/tool", "platform", "watcher/clientconfig", "watcher/settings"}, "edits the files that the watcher reads, without a daemon"},
	"watcher/clientconfig":        {[]string{"index/tool"}, "bytes to servers, without a look at the disk"},
	"watcher/settings":            {[]string{"index/tool", "watcher/clientconfig"}, "bytes to settings; its mistakes are clientconfig.Problem"},
}

// doors says which packages may import a third party: one each, so that it can
// be replaced, and so that what it pulls in is pulled in on purpose.
var doors = []struct {
	party string // import path or its beginning
	may   []string
	why   string
}{
	{"github.com/mark3labs/mcp-go/client", []string{"daemon/upstream"}, "the handshake with servers"},
	{"github.com/mark3labs/mcp-go/server", []string{"ipc/shim"}, "the handshake with agents"},
	{"github.com/mark3labs/mcp-go/mcp", []string{"daemon/upstream", "ipc/shim"}, "the types of both"},
	{"github.com/fsnotify/fsnotify", []string{"watcher"}, "events are a hint, and only the watcher knows what to make of one"},
	{"go.etcd.io/bbolt", []string{"index"}, "the index is a cache; nobody else may come to rely on the file"},
	{"github.com/kljensen/snowball", []string{"index"}, "stems of words"},
	{"github.com/kardianos/service", []string{"platform"}, "services differ per system"},
	{"github.com/gofrs/flock", []string{"platform"}, "locks differ per system"},
	{"golang.org/x/sys", []string{"platform"}, "whatever needs it differs per system"},
	{"github.com/santhosh-tekuri/jsonschema/v6", []string{"index/tool"}, "a tool checks its own arguments"},
	{"golang.org/x/text", []string{"index/tool", "index"}, "messages of the schema check, and the folding of letters"},
	{"github.com/tailscale/hujson", []string{"watcher/clientconfig", "watcher/settings"}, "JSON with comments"},
	{"github.com/pelletier/go-toml/v2", []string{"watcher/clientconfig"}, "Codex"},
	{"go.yaml.in/yaml/v3", []string{"watcher/clientconfig"}, "Continue and Goose"},
	{"github.com/spf13/cobra", []string{"cmd/toolsd"}, "the command line"},
	{"github.com/spf13/pflag", []string{"cmd/toolsd"}, "the command line"},
	// Only these two start a process: platform for the servers, which upstream
	// asks it to, and for the daemon itself; daemon for the check of the index
	// file, which is this program again.
	{"os/exec", []string{"platform", "daemon", "daemon/upstream/faultserver"}, "nothing but upstream starts a server"},
	{"plugin", nil, "nothing is loaded at run time"},
}

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath     string
	Dir            string
	Imports        []string
	Deps           []string
	GoFiles        []string
	IgnoredGoFiles []string
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports,Deps,GoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = filepath.Join("..", "..")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &errs)
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// short is a package of this module without the module's path.
func short(path string) (string, bool) { return strings.CutPrefix(path, module+"/") }

func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		name, ok := short(p.ImportPath)
		if !ok {
			t.Errorf("%s is not below %s", p.ImportPath, module)
			continue
		}
		layer, known := layers[name]
		if !known {
			t.Errorf("package %s is not in the table of layers", name)
			continue
		}
		for _, path := range importsOf(t, p) {
			if own, ok := short(path); ok {
				if !slices.Contains(layer.may, own) {
					t.Errorf("%s must not import %s: it %s", name, own, layer.why)
				}
				continue
			}
			checkDoor(t, name, path)
		}
	}
}

// importsOf are the imports of all non-test files, also of those for other
// systems than this one.
func importsOf(t *testing.T, p listed) []string {
	t.Helper()
	imports := slices.Clone(p.Imports)
	for _, name := range p.IgnoredGoFiles {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			imports = append(imports, strings.Trim(i.Path.Value, `"`))
		}
	}
	slices.Sort(imports)
	return slices.Compact(imports)
}

func checkDoor(t *testing.T, name, path string) {
	t.Helper()
	first, _, _ := strings.Cut(path, "/")
	for _, d := range doors {
		if path == d.party || strings.HasPrefix(path, d.party+"/") {
			if !slices.Contains(d.may, name) {
				t.Errorf("%s must not import %s (%s); its doors are %v", name, path, d.why, d.may)
			}
			return
		}
	}
	if strings.Contains(first, ".") {
		t.Errorf("%s imports %s, which is not in the table of third parties: say who may and why", name, path)
	}
}

// TestReach looks further than TestImports: what a package pulls in through
// others.
func TestReach(t *testing.T) {
	never := map[string][]string{
		"index":             {"github.com/mark3labs/mcp-go", "net/http"},
		"daemon/session":    {module + "/ipc", "net/http"},
		"ipc/shim":          {module + "/daemon", "github.com/mark3labs/mcp-go/client"},
		"watcher":           {"github.com/mark3labs/mcp-go", module + "/daemon", module + "/ipc"},
		"cmd/toolsd/sample": {"github.com"},
	}
	for _, p := range listPackages(t) {
		name, _ := short(p.ImportPath)
		for _, bad := range never[name] {
			for _, d := range p.Deps {
				if d == bad || strings.HasPrefix(d, bad+"/") {
					t.Errorf("%s must not reach %s", name, d)
				}
			}
		}
	}
}

// osSuffix finds the files that the go command builds for some systems only.
var osSuffix = regexp.MustCompile(`_(linux|darwin|windows|freebsd|openbsd|netbsd|unix|amd64|arm64)\.go$`)

// TestOnlyPlatformHasBuildTags keeps every other package the same program on
// every system.
func TestOnlyPlatformHasBuildTags(t *testing.T) {
	for _, p := range listPackages(t) {
		name, _ := short(p.ImportPath)
		if name == "platform" {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			tagged := osSuffix.MatchString(file)
			for _, group := range f.Comments {
				for _, c := range group.List {
					tagged = tagged || constraint.IsGoBuild(c.Text)
				}
			}
			if tagged {
				t.Errorf("%s/%s is built for some systems only; what differs per system belongs to platform", name, file)
			}
		}
	}
}

// TestOnlyUpstreamStartsServers is the sentence of the map that imports cannot say.
func TestOnlyUpstreamStartsServers(t *testing.T) {
	start := regexp.MustCompile(`\.(Starter|keeper)\.Start\(|NewKeeper\(`)
	for _, p := range listPackages(t) {
		name, _ := short(p.ImportPath)
		for _, file := range p.GoFiles {
			data := readFile(t, filepath.Join(p.Dir, file))
			for _, found := range start.FindAllString(data, -1) {
				making := strings.HasPrefix(found, "NewKeeper")
				switch {
				case name == "platform":
				case making && name == "daemon": // it makes the keeper and hands it on
				case !making && name == "daemon/upstream":
				default:
					t.Errorf("%s/%s has %s…: nothing but daemon/upstream starts a server", name, file, found)
				}
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
