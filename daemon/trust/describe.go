package trust

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Description is what a person must see before approving a server. Values of env
// and headers are never in it. All texts are cleaned for a terminal.
type Description struct {
	Binary  string   // resolved; empty for a URL, and when it was not found
	Missing string   // why it was not found
	Argv    []string // as in the file: complete, variables by their names
	URL     string   // userinfo and query values masked
	Env     []string // names, those passed on from the environment among them; sorted
	Headers []string // names, sorted
	CWD     string
	File    string
	EnvFile string
	Unusual []string // sentences
}

// Describe tells about an entry as it is in the file. The command line is shown in
// full: whatever were masked in it could be the part that matters. resolve finds a
// program the way that starting it would, without running anything; expanded is
// the same entry with its variables replaced, for that and for the directory.
func Describe(written, expanded clientconfig.Server, root string, resolve func(name string) (string, error)) Description {
	if written.Command == "" && written.URL == "" {
		written = expanded
	}
	if expanded.Command == "" && expanded.URL == "" {
		expanded = written
	}
	headers := slices.Concat(slices.Collect(maps.Keys(written.Headers)), slices.Collect(maps.Keys(written.HeaderVars)))
	if written.BearerVar != "" {
		headers = append(headers, "Authorization")
	}
	d := Description{
		URL:     shownURL(written.URL),
		Env:     cleanNames(slices.Concat(slices.Collect(maps.Keys(written.Env)), written.Forward)),
		Headers: cleanNames(headers),
		CWD:     tool.CleanLine(expanded.Dir),
		File:    tool.CleanLine(written.Source.File),
		EnvFile: tool.CleanLine(written.EnvFile),
		Unusual: unusualBoth(written, expanded, root),
	}
	switch {
	case d.CWD == "":
		d.CWD = tool.CleanLine(root)
	case !filepath.IsAbs(d.CWD) && root != "":
		d.CWD = filepath.Join(tool.CleanLine(root), d.CWD)
	}
	if written.Command == "" {
		return d
	}
	d.Argv = append(d.Argv, tool.CleanLine(written.Command))
	for _, a := range written.Args {
		d.Argv = append(d.Argv, visibly(a))
	}
	if binary, err := resolve(expanded.Command); err != nil {
		d.Missing = tool.CleanLine(err.Error())
	} else {
		d.Binary = tool.CleanLine(binary)
	}
	return d
}

func cleanNames(names []string) []string {
	for i, n := range names {
		names[i] = tool.CleanLine(n)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// visibly keeps the line breaks of a script in an argument apart from spaces.
func visibly(s string) string {
	s, _ = tool.Clean(s)
	return strings.NewReplacer("\r", `\r`, "\n", `\n`, "\t", `\t`, "\u2028", `\u2028`, "\u2029", `\u2029`).Replace(s)
}

func unusualBoth(written, expanded clientconfig.Server, root string) []string {
	out := Unusual(written, root)
	for _, text := range Unusual(expanded, root) {
		// Only a value in the file is one that is written into the file.
		if !slices.Contains(out, text) && !strings.HasSuffix(text, writtenDown) {
			out = append(out, text)
		}
	}
	return out
}
