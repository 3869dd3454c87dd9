package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// shimName is what toolsd is called in a client's file.
const shimName = "toolsd"

// extras are keys of the shim's entry that have a meaning for toolsd alone, which
// clientconfig therefore does not write: the client must not hide the shim's tools
// behind a search of its own.
var extras = map[string]string{
	"claude-code": `"alwaysLoad": true`,
	"copilot-cli": `"deferTools": "never"`,
}

// putShim takes servers out of a client's file and puts toolsd there.
func putShim(loc clientconfig.Location, data []byte, remove []string, name string, shim clientconfig.Entry) ([]byte, error) {
	extra, ok := extras[loc.Client]
	if !ok {
		return clientconfig.ReplaceServers(loc, data, remove, map[string]clientconfig.Entry{name: shim})
	}
	// The place is found by a command that is nowhere else.
	marked := shim
	marked.Command = "toolsd"
	for bytes.Contains(data, []byte(marked.Command)) {
		marked.Command += "-shim"
	}
	out, err := clientconfig.ReplaceServers(loc, data, remove, map[string]clientconfig.Entry{name: marked})
	if err != nil {
		return nil, err
	}
	wrong := fmt.Errorf("changing the servers of %s: the entry of toolsd would not come out right; change the file by hand", loc.Path)
	head, tail, ok := bytes.Cut(out, []byte(`"command": "`+marked.Command+`",`))
	if !ok {
		return nil, wrong
	}
	args, _ := json.Marshal(shim.Args)
	space, rest, ok := bytes.Cut(tail, append([]byte(`"args": `), args...))
	if !ok || len(bytes.TrimSpace(space)) > 0 {
		return nil, wrong
	}
	var b bytes.Buffer
	b.Write(head)
	fmt.Fprintf(&b, `"command": %s,%s"args": %s,%s%s`, tool.Encode(shim.Command), space, args, space, extra)
	b.Write(rest)
	servers, _, err := clientconfig.Decode(loc, b.Bytes())
	if err != nil {
		return nil, wrong
	}
	i := find(servers, name)
	if i < 0 || servers[i].Command != shim.Command || !slices.Equal(servers[i].Args, shim.Args) {
		return nil, wrong
	}
	return b.Bytes(), nil
}

// find is the place of the server of that name that holds for everybody.
func find(servers []clientconfig.Server, name string) int {
	return slices.IndexFunc(servers, func(s clientconfig.Server) bool { return s.Name == name && s.Source.Root == "" })
}

// probe expands an entry on a machine that has every variable and every file, so
// that only what is written decides.
func (s *Session) probe(e clientconfig.Server, root string) clientconfig.Server {
	return clientconfig.Expand(e, clientconfig.Expansion{
		Getenv: func(name string) string {
			switch name {
			case "workspaceFolder", "workspaceRoot", "workspaceFolderBasename", "cwd", "userHome", "pathSeparator":
				return "" // words of the editors, which would win
			}
			return "https://" + name + ".invalid"
		},
		Home:     s.Env.Home,
		Root:     root,
		ReadFile: func(path string) ([]byte, error) { return []byte("of " + path), nil },
	})
}

// notServed are keys with a meaning that gets lost when toolsd runs the server.
// clientconfig names them in a problem of the entry.
var notServed = []struct{ key, reason string }{
	{"headersHelper", "its headersHelper is a program that toolsd does not run"},
	{"authProviderType", "its authProviderType is a login that only its client has"},
	{"sandboxEnabled", "its client runs it in a sandbox, which toolsd has not"},
}

// stays says why an entry stays in its client's file; empty when it moves.
func (s *Session) stays(loc clientconfig.Location, data []byte, content clientconfig.Content, e clientconfig.Server) string {
	client, _ := clientconfig.ClientOf(loc.Client)
	switch {
	case e.Source.Root != "":
		return "it holds for the project " + e.Source.Root + " alone"
	case e.Disabled:
		// Moved, it would run for every agent as soon as somebody enabled it
		// there, and the switch that the user knows would be gone.
		return "it is switched off; switch it on in " + client.Name + " and adopt again to move it"
	case e.Problem != "":
		return e.Problem
	}
	for _, r := range content.Rejected {
		if r.Of == clientconfig.User && r.Name == e.Name {
			return "it is switched off in the project " + r.Root + ", which only " + client.Name + " can do"
		}
	}
	for _, n := range notServed {
		if slices.ContainsFunc(content.Problems, func(p clientconfig.Problem) bool {
			return p.Server == e.Name && strings.Contains(p.Message, n.key)
		}) {
			return n.reason
		}
	}
	here := s.probe(e, "")
	if here.Unsupported {
		return here.Problem
	}
	// A path that is relative starts at HOME in user scope, before and after.
	e.Dir, e.EnvFile = onlyVariable(e.Dir), onlyVariable(e.EnvFile)
	one, two := s.probe(e, "/project/one"), s.probe(e, "")
	if one.Problem != two.Problem || !clientconfig.Equal(one, two) {
		return "it depends on the project it is used in, and a server of config.json is the same for all"
	}
	if _, err := absolute(e, loc); err != nil {
		return err.Error()
	}
	// Agents of Kiro allow tools by @server, and would allow none of toolsd's.
	if loc.Settings && loc.Client == "kiro" && (bytes.Contains(data, []byte(`"@`+e.Name+`"`)) || bytes.Contains(data, []byte(`"@`+e.Name+`/`))) {
		return "tools of this agent are named by it (@" + e.Name + ")"
	}
	return ""
}

func onlyVariable(path string) string {
	if strings.ContainsAny(path, "${") {
		return path
	}
	return ""
}

// absolute makes {file:…} start where the client's file was.
func absolute(e clientconfig.Server, loc clientconfig.Location) (clientconfig.Server, error) {
	client, _ := clientconfig.ClientOf(loc.Client)
	if client.Dialect != clientconfig.Curly {
		return e, nil
	}
	var failed error
	text := func(t string) string {
		const mark = "{file:"
		var out strings.Builder
		for {
			before, rest, ok := strings.Cut(t, mark)
			out.WriteString(before)
			if !ok {
				return out.String()
			}
			path := strings.TrimLeft(rest, " ")
			switch {
			case strings.HasPrefix(path, "{"):
				failed = errors.New("it takes a value from a file whose path is in a variable")
			case strings.HasPrefix(path, "~"), strings.HasPrefix(path, "/"), filepath.IsAbs(path), len(path) > 2 && path[1] == ':':
			default:
				end := strings.IndexByte(path, '}')
				if end < 0 {
					break
				}
				path = filepath.Join(filepath.Dir(loc.Path), strings.TrimSpace(path[:end])) + path[end:]
			}
			out.WriteString(mark)
			t = path
		}
	}
	values := func(m map[string]string) map[string]string {
		if m == nil {
			return nil
		}
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[k] = text(v)
		}
		return out
	}
	e.Command, e.URL, e.Dir, e.EnvFile = text(e.Command), text(e.URL), text(e.Dir), text(e.EnvFile)
	e.Args = slices.Clone(e.Args)
	for i := range e.Args {
		e.Args[i] = text(e.Args[i])
	}
	e.Env, e.Headers = values(e.Env), values(e.Headers)
	return e, failed
}

// sameServer reports whether two entries, maybe of different dialects, are one
// server with one filter, so that one of them is enough.
func (s *Session) sameServer(a, b clientconfig.Server) bool {
	set := func(list []string) []string {
		list = slices.Clone(list)
		slices.Sort(list)
		return slices.Compact(list)
	}
	x, y := s.probe(a, ""), s.probe(b, "")
	return x.Problem == y.Problem && x.Disabled == y.Disabled && clientconfig.Equal(x, y) &&
		slices.Equal(set(a.Include), set(b.Include)) && slices.Equal(set(a.Exclude), set(b.Exclude))
}

// identical reports whether two entries say the same, wherever they stand.
func identical(a, b clientconfig.Server) bool {
	bare := func(s clientconfig.Server) clientconfig.Server {
		s.Name, s.Source = "", clientconfig.Source{Root: s.Source.Root}
		// toolsd's own file counts in milliseconds.
		s.CallTimeout, s.StartTimeout = s.CallTimeout.Truncate(time.Millisecond), s.StartTimeout.Truncate(time.Millisecond)
		return s
	}
	return reflect.DeepEqual(bare(a), bare(b))
}

// secrets are the values that a diff must not show.
func (s *Session) secrets(servers []clientconfig.Server) []string {
	var all []string
	for _, e := range servers {
		x := clientconfig.Expand(e, clientconfig.Expansion{Home: s.Env.Home})
		all = append(all, x.Secrets...)
	}
	return all
}
