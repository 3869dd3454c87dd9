package clientconfig

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
)

// Dialect is how a client writes variables in its entries.
type Dialect string

const (
	Literal Dialect = "literal" // no variables: what looks like one is meant for the server
	Braces  Dialect = "braces"  // ${VAR}, ${VAR:-default}
	Editor  Dialect = "editor"  // ${env:VAR}, ${workspaceFolder}, ${userHome}, ${input:id}
	Dollar  Dialect = "dollar"  // $VAR, ${VAR}
	Curly   Dialect = "curly"   // {env:VAR}, {file:path}
	Shell   Dialect = "shell"   // a shell's; nothing is ever run
	Secrets Dialect = "secrets" // ${{ secrets.NAME }}
)

// expand replaces the variables in one text.
func (e *expander) expand(t string) string {
	if e.client.Dialect == Literal || !strings.ContainsAny(t, "${`\\") {
		return t
	}
	return e.expandIn(t, braces(t), 0, len(t), 0)
}

// maxNesting bounds defaults in defaults. Deeper ones stay as they are.
const maxNesting = 50

// expandIn replaces the variables in t[from:to]. closers holds the closing brace
// of every variable of t, found once, so that a long text of unclosed braces
// costs no more than another one.
func (e *expander) expandIn(t string, closers map[int]int, from, to, depth int) string {
	var out strings.Builder
	plain := from
	put := func(start, next int, value string) {
		out.WriteString(t[plain:start])
		out.WriteString(e.add(value))
		plain = next
	}
	for i := from; i < to; i++ {
		d := e.client.Dialect
		switch t[i] {
		case '\\':
			if d == Shell && i+1 < to {
				if c := t[i+1]; c == '$' || c == '`' || c == '\\' {
					put(i, i+2, string(c))
				}
				i++
			}
		case '`':
			if d == Shell {
				e.commandSubstitution()
			}
		case '{':
			end, ok := closers[i]
			if d != Curly || !ok || end >= to {
				continue
			}
			if value, ok := e.curly(t[i+1 : end]); ok {
				put(i, end+1, value)
				i = end
			}
		case '$':
			if d == Curly || i+1 >= to {
				continue
			}
			if t[i+1] == '{' {
				end, ok := closers[i]
				if !ok || end >= to {
					continue
				}
				if value, ok := e.braced(t, closers, i, end, depth); ok {
					put(i, end+1, value)
					i = end
				} else {
					i++ // the brace belongs to this $; what is inside is looked at
				}
				continue
			}
			if d == Shell && t[i+1] == '(' {
				e.commandSubstitution()
				continue
			}
			if d != Shell && d != Dollar {
				continue
			}
			end := i + 1
			for end < to && isVariableName(t[i+1:i+2]) && isWordByte(t[end]) && t[end] < 0x80 {
				end++
			}
			if end > i+1 {
				put(i, end, e.variable(t[i+1:end]))
				i = end - 1
			}
		}
	}
	out.WriteString(t[plain:to])
	return out.String()
}

func (e *expander) commandSubstitution() {
	e.fail(true, "needs the output of a command, $(…), which toolsd never runs",
		"export the value as a variable in the profile of your login shell and use that")
}

// curly is the value of {env:NAME} and {file:path}.
func (e *expander) curly(inner string) (string, bool) {
	if name, ok := strings.CutPrefix(inner, "env:"); ok {
		return e.variable(strings.TrimSpace(name)), true
	}
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		if e.added > maxAdded {
			return "", true // it has its problem
		}
		path = e.absolute(strings.TrimSpace(path), cmp.Or(e.beside, e.Root, e.Home))
		data, ok := e.read("a file that the entry takes a value from", path)
		if !ok {
			return "{" + inner + "}", true
		}
		value := strings.TrimSpace(strings.TrimPrefix(string(data), string(bom)))
		if value != "" {
			e.secrets[value] = true
		}
		return value, true
	}
	return "", false
}

// braced is the value of the ${…} that t holds from start to end. ok is false for
// what is no variable of the dialect: it stays as it is.
func (e *expander) braced(t string, closers map[int]int, start, end, depth int) (value string, ok bool) {
	inner := t[start+2 : end]
	switch e.client.Dialect {
	case Secrets:
		return e.secret(inner)
	case Editor:
		return e.editor(inner)
	}
	n := 0
	for n < len(inner) && isWordByte(inner[n]) && inner[n] < 0x80 {
		n++
	}
	name := inner[:n]
	if !isVariableName(name) {
		return "", false
	}
	rest := inner[n:]
	if rest == "" {
		if v := e.lookup(name); v != "" {
			return v, true
		}
		if v, ok := e.editor(inner); ok {
			return v, true // an entry that was copied from an editor's file
		}
		e.miss(name)
		return "${" + name + "}", true
	}
	orElse := func(opLen int) string {
		if depth >= maxNesting {
			return rest[opLen:]
		}
		return e.expandIn(t, closers, start+2+n+opLen, end, depth+1)
	}
	switch {
	case strings.HasPrefix(rest, ":-"):
		if v := e.lookup(name); v != "" {
			return v, true
		}
		return orElse(2), true
	case e.client.Dialect == Shell && strings.HasPrefix(rest, "-"):
		if v := e.lookup(name); v != "" {
			return v, true
		}
		return orElse(1), true
	case e.client.Dialect == Shell && strings.HasPrefix(rest, ":+"):
		if e.lookup(name) == "" {
			return "", true
		}
		return orElse(2), true
	case e.client.Dialect == Shell && (strings.HasPrefix(rest, ":?") || strings.HasPrefix(rest, "?")):
		return e.variable(name), true
	}
	return e.editor(inner)
}

// editor is the value of the inside of ${…} as VS Code and its kin have it.
func (e *expander) editor(inner string) (string, bool) {
	key, arg, hasArg := strings.Cut(inner, ":")
	switch key {
	case "env", "input", "promptString", "pickString", "command", "config":
		if arg == "" {
			return "", false
		}
	}
	switch key {
	case "env":
		name, fallback, has := strings.Cut(arg, ":-")
		if has {
			if v := e.lookup(name); v != "" {
				return v, true
			}
			return fallback, true
		}
		return e.variable(name), true
	case "workspaceFolder", "workspaceRoot", "cwd":
		if e.Root == "" {
			e.fail(false, "needs a project: it uses ${"+key+"}", "move the entry into the project's own file")
			return "${" + inner + "}", true
		}
		if hasArg && arg != filepath.Base(e.Root) {
			e.fail(true, "needs a second workspace folder, which toolsd does not know", "write its path into the entry")
			return "${" + inner + "}", true
		}
		return e.Root, true
	case "workspaceFolderBasename":
		if e.Root != "" {
			return filepath.Base(e.Root), true
		}
		e.fail(false, "needs a project: it uses ${"+key+"}", "move the entry into the project's own file")
		return "${" + inner + "}", true
	case "userHome":
		if e.Home == "" {
			e.miss("HOME")
		}
		return e.Home, true
	case "pathSeparator", "/":
		return string(filepath.Separator), true
	case "input", "promptString", "pickString":
		e.fail(true, fmt.Sprintf("needs input %s, which only %s can ask for", quoted(arg), e.client.Name),
			"put the value into an environment variable and write ${env:NAME} in its place")
		return "${" + inner + "}", true
	case "command", "config":
		e.fail(true, fmt.Sprintf("needs ${%s:…}, which only %s can answer", key, e.client.Name),
			"put the value into an environment variable and write ${env:NAME} in its place")
		return "${" + inner + "}", true
	}
	return "", false
}

// secret is the value of ${{ secrets.NAME }}. Continue keeps them in .env files
// beside its own, or in its hub.
func (e *expander) secret(inner string) (string, bool) {
	if len(inner) < 2 || inner[0] != '{' || inner[len(inner)-1] != '}' {
		return "", false
	}
	kind, name, ok := strings.Cut(strings.TrimSpace(inner[1:len(inner)-1]), ".")
	if !ok || kind != "secrets" && kind != "inputs" {
		return "", false
	}
	if v := e.lookup(name); v != "" {
		return v, true
	}
	if e.ReadFile != nil {
		var files []string
		if e.Root != "" {
			files = append(files, filepath.Join(e.Root, ".env"), filepath.Join(e.Root, ".continue", ".env"))
		}
		if e.Home != "" {
			files = append(files, filepath.Join(e.Home, ".continue", ".env"))
		}
		for _, f := range files {
			if v := e.dotenvOf(f)[name]; v != "" {
				e.secrets[v] = true
				return v, true
			}
		}
	}
	e.miss(name)
	return "${" + inner + "}", true
}

// dotenvOf are the variables of a file, which is read once however many ask.
func (e *expander) dotenvOf(path string) map[string]string {
	vars, known := e.dotenvs[path]
	if known {
		return vars
	}
	if data, err := e.ReadFile(path); err == nil {
		vars = dotenv(string(data))
	}
	if e.dotenvs == nil {
		e.dotenvs = map[string]map[string]string{}
	}
	e.dotenvs[path] = vars
	return vars
}
