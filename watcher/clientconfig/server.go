package clientconfig

import (
	"path"
	"regexp"
	"sync"
	"time"
)

// Scope says whose file defines a server, which decides about trust.
type Scope string

const (
	User    Scope = "user"    // the user's own file; trusted at once
	Project Scope = "project" // a file that came with a project; waits for approval
)

// Transport is how a server is reached.
type Transport string

const (
	Stdio Transport = "stdio"
	HTTP  Transport = "http" // Streamable HTTP
	SSE   Transport = "sse"  // the legacy HTTP+SSE
	Auto  Transport = "auto" // a url without a type: Streamable HTTP, then SSE
)

// Server is one entry of a client's file, in one spelling for all clients.
// Strings are as in the file until Expand replaced the variables.
type Server struct {
	Name      string
	Transport Transport

	Command string
	Args    []string
	Env     map[string]string
	EnvFile string
	Forward []string // names of variables to pass on from the environment (Codex env_vars, Goose env_keys)
	// ForwardNeeded says that the server is of no use while a name of Forward is
	// not set (Goose); else an unset one is just not passed on (Codex).
	ForwardNeeded bool
	Dir           string // cwd of the entry; empty: see DESIGN of the daemon

	URL     string
	Headers map[string]string
	// HeaderVars are headers whose values are those of the named variables, and
	// BearerVar is the variable that holds the token of the Authorization header
	// (both Codex). Expand moves them into Headers.
	HeaderVars map[string]string
	BearerVar  string

	Disabled     bool
	Include      []string      // tool filter: globs; empty means all
	Exclude      []string      // globs; wins over Include
	CallTimeout  time.Duration // 0: the daemon's default
	StartTimeout time.Duration

	// From the entry's "toolsd" block.
	Share    string        // shared, project, session; empty: default
	Start    string        // eager, lazy
	Idle     time.Duration // 0: default
	Protocol string        // auto, legacy, modern
	Origin   string        // slug of the client whose entry this was (adopt), its variable dialect holds

	Source Source
	// Problem says why this entry cannot be served ("needs VAR", "run by the
	// editor"), and Hint what to do. Both are empty for a good entry.
	Problem string
	Hint    string
	// Unsupported says that Problem cannot be cured by setting a variable: toolsd
	// has no way to serve this entry, only its client has.
	Unsupported bool
	// Secrets are the values that must never be shown: of env and headers,
	// of expanded variables, userinfo of URLs, also of those in args and env.
	Secrets []string `json:"-"`
}

// Passes reports whether the entry's tool filter lets a tool of that name through.
func (s *Server) Passes(name string) bool {
	return (len(s.Include) == 0 || matchesAny(s.Include, name)) && !matchesAny(s.Exclude, name)
}

func matchesAny(globs []string, name string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, name); ok || err != nil && g == name {
			return true
		}
	}
	return false
}

// Source is the place of an entry.
type Source struct {
	Client string `json:"client"` // slug
	Scope  Scope  `json:"scope"`
	File   string `json:"file"`
	Root   string `json:"root,omitempty"` // the project that sees it; empty: every caller
	Line   int    `json:"line,omitempty"` // 1-based; 0 when not known
	Col    int    `json:"column,omitempty"`
}

// Problem is something wrong in a file that a person should know.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Col     int    `json:"column,omitempty"`
	Server  string `json:"server,omitempty"`
	Root    string `json:"-"` // the project whose file it is; empty: every caller may see it
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// quotation is a text that a message took from a config file.
var quotation = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"`) })

// Withheld is the problem without the words of its file. What a repository's file
// says reaches nobody before it was approved; line and column still say where to
// look.
func (p Problem) Withheld() Problem {
	p.Message, p.Hint = quotation().ReplaceAllString(p.Message, `"…"`), quotation().ReplaceAllString(p.Hint, `"…"`)
	return p
}
