package clientconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Expansion is what variables are replaced with.
type Expansion struct {
	// Getenv looks up a variable; an empty value counts as not set.
	Getenv func(string) string
	Home   string
	Root   string // the workspace folder; empty: the root of the entry's source
	// ReadFile reads what {file:…} and envFile name, which may be any path that a
	// project's file chose: it must refuse what is not a small regular file.
	// nil refuses all.
	ReadFile func(path string) ([]byte, error)
}

// Expand replaces the variables in s, as the client (or s.Origin) writes them, and
// fills in what the environment adds: EnvFile and Forward go into Env, HeaderVars
// and BearerVar into Headers, a relative Dir becomes an absolute one. It fills
// Secrets. What cannot be replaced is told in Problem and Hint, and stays as it was.
// An entry is expanded once: values may look like variables themselves.
func Expand(s Server, x Expansion) Server {
	slug := s.Source.Client
	if s.Origin != "" {
		slug = s.Origin
	}
	client, ok := ClientOf(slug)
	if !ok {
		client, _ = ClientOf("toolsd")
	}
	if x.Root == "" {
		x.Root = s.Source.Root
	}
	if x.Getenv == nil {
		x.Getenv = func(string) string { return "" }
	}
	e := &expander{Expansion: x, client: client, secrets: map[string]bool{}}
	if s.Source.File != "" && s.Origin == "" {
		e.beside = filepath.Dir(s.Source.File) // of an adopted entry that place is lost
	}

	s.Command = e.inHome(e.expand(s.Command))
	s.Args = slices.Clone(s.Args)
	for i, a := range s.Args {
		s.Args[i] = e.expand(a)
	}
	s.Env = e.expandMap(s.Env)
	s.Headers = e.expandMap(s.Headers)
	s.URL = e.expand(s.URL)
	s.Dir = e.directory(e.expand(s.Dir))
	if s.EnvFile != "" {
		s.EnvFile = e.directory(e.expand(s.EnvFile))
		e.envFile(&s)
	}
	for _, name := range s.Forward {
		if _, ok := s.Env[name]; ok {
			continue
		}
		if v := x.Getenv(name); v != "" {
			s.Env = with(s.Env, name, v)
		} else if s.ForwardNeeded {
			e.miss(name)
		}
	}
	for _, header := range slices.Sorted(maps.Keys(s.HeaderVars)) {
		if v := e.variable(s.HeaderVars[header]); v != "" {
			s.Headers = with(s.Headers, header, v)
		}
	}
	if s.BearerVar != "" {
		if v := e.variable(s.BearerVar); v != "" {
			s.Headers = with(s.Headers, "Authorization", "Bearer "+v)
		}
	}
	s.HeaderVars, s.BearerVar = nil, ""
	e.judge(&s)
	s.Secrets = e.secretsOf(s)
	return s
}

func with(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// expander replaces the variables of one entry.
type expander struct {
	Expansion
	client      Client
	missing     []string // variables that are not set
	problem     string   // the first thing that is not supported
	hint        string
	unsupported bool
	secrets     map[string]bool
	beside      string                       // the directory of the entry's file, from which {file:…} starts
	added       int                          // bytes, by what was replaced
	dotenvs     map[string]map[string]string // of Continue's secrets, by file
}

// maxAdded bounds what variables and files add to one entry. A program takes 128
// KiB in one piece (Linux); an entry that came with a project could name a large
// file a thousand times over.
const maxAdded = 256 << 10

// add is value, if there is room for it.
func (e *expander) add(value string) string {
	if e.added += len(value); e.added <= maxAdded {
		return value
	}
	e.fail(false, fmt.Sprintf("its variables and files add more than %d KiB to it", maxAdded>>10), "name what is smaller")
	return ""
}

func (e *expander) expandMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) { // sorted: the first problem is the same one every time
		out[k] = e.expand(m[k])
	}
	return out
}

// maxMissing is how many variables a problem names; nobody sets more at a time.
const maxMissing = 20

func (e *expander) miss(name string) {
	if len(e.missing) < maxMissing {
		e.missing = appendNew(e.missing, name)
	}
}

// fail records the first problem; unsupported ones outrank those that the user
// can cure.
func (e *expander) fail(unsupported bool, problem, hint string) {
	if e.problem == "" || unsupported && !e.unsupported {
		e.problem, e.hint, e.unsupported = problem, hint, unsupported
	}
}

// places are variables whose values are parts of every path in every message:
// hiding those would hide the message and no secret.
var notSecret = []string{"HOME", "USERPROFILE", "PWD", "CLAUDE_PROJECT_DIR", "TMPDIR", "TEMP", "TMP", "USER", "SHELL", "LANG"}

// variable is the value of a variable; a missing one is recorded.
func (e *expander) variable(name string) string {
	v := e.lookup(name)
	if v == "" {
		e.miss(name)
	}
	return v
}

func (e *expander) lookup(name string) string {
	v := e.Getenv(name)
	if e.Root != "" && (name == "PWD" || name == "CLAUDE_PROJECT_DIR") {
		v = e.Root // where the client was started; the environment tells of another place
	}
	if v != "" && !slices.Contains(notSecret, name) {
		e.secrets[v] = true
	}
	return v
}

// judge sets the Problem of an entry that cannot be served as it now is.
func (e *expander) judge(s *Server) {
	if s.Problem != "" {
		return // Decode knew
	}
	if e.problem == "" && len(e.missing) > 0 {
		s.Problem = "needs " + strings.Join(e.missing, ", ")
		names := strings.Join(e.missing, " and ")
		s.Hint = fmt.Sprintf("set %s in the profile of your login shell, or write the value into the entry, then type `toolsd restart %s`", names, s.Name)
		return
	}
	if e.problem == "" && s.URL != "" {
		e.judgeURL(s.URL)
	}
	if e.problem == "" && s.URL == "" && strings.TrimSpace(s.Command) == "" {
		e.fail(false, "its command is empty once the variables are replaced", "check the variables in its command")
	}
	s.Problem, s.Hint, s.Unsupported = e.problem, e.hint, e.unsupported
}

func (e *expander) judgeURL(raw string) {
	scheme, _, ok := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	const hint = "if the server has an http or https url too, use that"
	switch {
	case ok && (scheme == "unix" || scheme == "pipe" || scheme == "npipe"):
		e.fail(true, "its url is a "+scheme+": one, which toolsd does not support", hint)
		return
	case websocketURL(raw):
		e.fail(true, "it speaks WebSocket, which toolsd does not", hint)
		return
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		e.fail(false, "its url is not a valid one", "check its spelling")
	case scheme != "http" && scheme != "https":
		e.fail(false, "its url does not start with http:// or https://", "write the whole url")
	case u.Host == "":
		e.fail(false, "its url names no host", "write the whole url")
	}
}

// secretsOf collects what must never be shown, in a fixed order.
func (e *expander) secretsOf(s Server) []string {
	add := func(v string) {
		if v != "" {
			e.secrets[v] = true
		}
	}
	for _, v := range s.Secrets {
		add(v)
	}
	for _, v := range s.Env {
		add(v)
	}
	for _, v := range s.Headers {
		add(v)
		if scheme, token, ok := strings.Cut(v, " "); ok && !strings.Contains(scheme, "=") {
			add(strings.TrimSpace(token)) // a server's error shows the token without Bearer
		}
	}
	// login adds the userinfo of the URLs in a text. The name beside a password is
	// that of a database, mostly, and a word of many texts.
	login := func(text string, names bool) {
		for _, rest := range strings.Split(text, "://")[1:] {
			authority := rest
			if i := strings.IndexAny(rest, "/ \t\n\"'"); i >= 0 {
				authority = rest[:i]
			}
			i := strings.LastIndexByte(authority, '@')
			if i < 0 {
				continue
			}
			add(authority[:i])
			name, password, both := strings.Cut(authority[:i], ":")
			parts := []string{password}
			if names || !both {
				parts = append(parts, name)
			}
			for _, part := range parts {
				add(part)
				if plain, err := url.PathUnescape(part); err == nil {
					add(plain)
				}
			}
		}
	}
	login(s.URL, true)
	for _, v := range s.Args {
		login(v, false)
	}
	for _, v := range s.Env {
		login(v, false)
	}
	if u, err := url.Parse(s.URL); err == nil {
		for key, values := range u.Query() {
			if !secretKey(key) {
				continue
			}
			for _, v := range values {
				add(v)
				add(url.QueryEscape(v))
			}
		}
	}
	return slices.Sorted(maps.Keys(e.secrets))
}

// secretKey reports whether a parameter of a url carries a login.
func secretKey(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc([]string{"key", "token", "secret", "auth", "pass", "sig", "credential"}, func(part string) bool {
		return strings.Contains(key, part)
	})
}

// inHome replaces a leading ~/, which no program but a shell understands.
func (e *expander) inHome(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && e.Home != "" {
		return filepath.Join(e.Home, rest)
	}
	return p
}

// directory makes p absolute: below the project, else below HOME.
func (e *expander) directory(p string) string {
	if e.Root == "" {
		return e.absolute(p, e.Home)
	}
	return e.absolute(p, e.Root)
}

func (e *expander) absolute(p, base string) string {
	if p == "" {
		return ""
	}
	if p == "~" && e.Home != "" {
		return e.Home
	}
	p = e.inHome(p)
	if filepath.IsAbs(p) || isWindowsPath(p) || base == "" {
		return p
	}
	return filepath.Join(base, p)
}

// read reads a file that the entry names. The problem never holds the path: it
// may have been made of a secret.
func (e *expander) read(what, path string) ([]byte, bool) {
	if e.ReadFile == nil {
		e.fail(false, what+" cannot be read here", "")
		return nil, false
	}
	data, err := e.ReadFile(path)
	if err == nil {
		return data, true
	}
	why := "it cannot be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		why = "it may not be read"
	}
	e.fail(false, fmt.Sprintf("needs %s: %s", what, why), "create the file or correct its path in the entry")
	return nil, false
}

// envFile merges the variables of EnvFile into Env; what the entry says itself
// wins.
func (e *expander) envFile(s *Server) {
	if len(e.missing) > 0 || e.unsupported {
		return // the path is not complete
	}
	data, ok := e.read("its envFile", s.EnvFile)
	if !ok || e.add(string(data)) == "" {
		return
	}
	for name, value := range dotenv(string(data)) {
		if _, ok := s.Env[name]; !ok {
			s.Env = with(s.Env, name, value)
		}
	}
}

// dotenv reads NAME=value lines: export in front, quotes and # comments as most
// readers of such files take them. Lines it does not understand are skipped.
func dotenv(text string) map[string]string {
	vars := map[string]string{}
	text = strings.TrimPrefix(text, string(bom))
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		name, value, ok := strings.Cut(line, "=")
		behind := text[min(len(name)+1, len(text)):]
		text = rest
		name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "export "))
		if !ok || !isVariableName(strings.ReplaceAll(name, ".", "_")) {
			continue
		}
		if body, after, ok := quotedValue(behind); ok {
			vars[name] = body
			_, text, _ = strings.Cut(after, "\n")
			continue
		}
		value = strings.TrimSpace(value)
		if i := strings.Index(value, " #"); i >= 0 {
			value = strings.TrimSpace(value[:i])
		}
		vars[name] = value
	}
	return vars
}

// quotedValue is the value that text begins with, and what follows it, when that
// is one in quotes. It may go on for several lines.
func quotedValue(text string) (value, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	if text == "" || strings.IndexByte("\"'`", text[0]) < 0 {
		return "", "", false
	}
	quote, end := text[0], 1
	for end < len(text) && text[end] != quote {
		if text[end] == '\\' && quote == '"' {
			end++ // a quote behind it is a part of the value
		}
		end++
	}
	if end >= len(text) {
		// A mark that nothing closes is one, and takes no other line with it. A
		// path of Windows may end with a backslash.
		line, _, _ := strings.Cut(text, "\n")
		if end = strings.LastIndexByte(line, quote); end < 1 {
			return "", "", false
		}
	}
	value = strings.ReplaceAll(text[1:end], "\r\n", "\n")
	if quote == '"' {
		value = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t").Replace(value)
	}
	return value, text[end+1:], true
}
