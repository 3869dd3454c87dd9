package adopt

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// masked stands for a value that is not shown.
const masked = "***"

// hiding are the keys whose values are maps of secrets, in all clients' files.
var hiding = []string{"env", "envs", "environment", "headers", "http_headers"}

func hides(key string) bool { return slices.Contains(hiding, key) }

var (
	secretWord = `(?:token|secret|passw(?:or)?d|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization)`
	secretKey  = later(`(?i)` + secretWord)
	secretFlag = later(`(?i)^--?[\w-]*` + secretWord + `[\w-]*$`)
	// namesOf are keys that hold names of variables or headers, not values.
	namesOf = later(`(?i)(env_vars?|env_keys|env_http_headers)$`)
	// inText finds logins within a text: of a url, in its query, after a scheme,
	// and in NAME=value or NAME: value.
	inText = []struct {
		re func() *regexp.Regexp
		to string
	}{
		{later(`(://)[^/@\s"'<>]+@`), `${1}` + masked + `@`},
		{later(`(?i)([?&][\w.-]*(?:key|token|secret|auth|pass|sig|credential)[\w.-]*=)[^&#\s"']+`), `${1}` + masked},
		{later(`(?i)\b(bearer|basic)\s+[^\s"',}\]]{3,}`), `${1} ` + masked},
		{later(`(?i)(\b[\w-]*` + secretWord + `[\w-]*\s*=\s*)[^\s"',&*][^\s"',&]*`), `${1}` + masked},
		{later(`(?i)(\b(?:authorization|x-[\w-]*(?:key|token))\s*:\s*)[^\s"'*][^"'\n]*`), `${1}` + masked},
	}
)

// later compiles a pattern at its first use: every command links this package,
// and two use it.
func later(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func maskText(s string) string {
	for _, r := range inText {
		s = r.re().ReplaceAllString(s, r.to)
	}
	return s
}

// mask hides the values of env and headers, and of keys that look like those of a
// login, wherever they stand in a client's file: also in entries that are of no
// use and in those of other projects, since a diff shows lines around a change.
// Logins within a text are left to maskText, which is slow and is asked only
// about what is shown.
func mask(data []byte, format clientconfig.Format) string {
	if format == clientconfig.JSON {
		return maskJSON(string(data))
	}
	return maskLines(string(data), format == clientconfig.TOML)
}

// box is an object or a list that is open at some place of a JSON text.
type box struct {
	list bool
	key  string // the last one
	hide bool   // every value in it is hidden
	next bool   // the next value belongs to the flag before it
	wait bool   // for a key
}

// maskJSON reads any text as JSON as far as it is that; the file was parsed
// before, so this needs no errors.
func maskJSON(text string) string {
	var out strings.Builder
	stack := []box{{}}
	for i := 0; i < len(text); {
		top := &stack[len(stack)-1]
		c := text[i]
		end := tokenEnd(text, i, clientconfig.JSON)
		token := text[i:end]
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			out.WriteByte(c)
			i++
			continue
		case strings.HasPrefix(token, "//"), strings.HasPrefix(token, "/*"):
			if top.hide {
				token = token[:2] + " " + masked + map[byte]string{'/': "", '*': " */"}[token[1]]
			} else {
				token = maskComment(token)
			}
		case c == '{' || c == '[':
			hide := top.hide || !top.list && hides(top.key)
			stack = append(stack, box{list: c == '[', hide: hide, wait: c == '{'})
		case c == '}' || c == ']':
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
		case c == ',':
			top.wait = !top.list
		case c == ':':
			top.wait = false
		case top.wait:
			top.key = unquote(token)
		default:
			token = maskScalar(token, top)
		}
		out.WriteString(token)
		i = end
	}
	return out.String()
}

func maskScalar(token string, in *box) string {
	isText := strings.HasPrefix(token, `"`)
	value := unquote(token)
	byFlag := in.next
	in.next = in.list && secretFlag().MatchString(value)
	switch {
	case token == "null", token == `""`:
		return token
	case in.hide, byFlag, !in.list && isText && (secretKey().MatchString(in.key) && !namesOf().MatchString(in.key) || hides(in.key)):
		return `"` + masked + `"`
	}
	return token
}

// maskComment hides values in an entry that was commented out.
func maskComment(c string) string {
	return quotedPair().ReplaceAllString(c, `${1}"`+masked+`"`)
}

// quotedPair is a key that hides its value, or any pair of words in capitals, as
// names of variables are.
var quotedPair = later(`("(?:[A-Z][A-Z0-9_]*|[^"]*(?i:` + secretWord + `)[^"]*)"\s*:\s*)"(?:[^"\\]|\\.)*"`)

func unquote(token string) string {
	if n := len(token); n > 1 && token[0] == '"' && token[n-1] == '"' && strings.IndexByte(token, '\\') < 0 {
		return token[1 : n-1]
	}
	var s string
	if json.Unmarshal([]byte(token), &s) != nil {
		return token
	}
	return s
}

var (
	tomlTable = later(`^\s*\[+([^\]]*)\]`)
	pairLine  = later(`^(\s*(?:- +)*)("[^"]*"|'[^']*'|[\w.@/ -]+?)(\s*[:=](?:\s+|$)|=)(.*?)(\r?\n?)$`)
	flowStart = later(`["']?\b(env|envs|environment|headers|http_headers)["']?\s*[:=]\s*\{`)
)

// maskLines does the same for TOML and YAML, by lines.
func maskLines(text string, toml bool) string {
	var out strings.Builder
	hiding := false // in a table or a block of secrets
	indent := -1    // of the key of that block
	open := ""      // what ends the text over several lines that is being hidden
	depth := 0      // of braces over several lines that are being hidden
	for _, line := range lines(text) {
		eol := line[len(strings.TrimRight(line, "\r\n")):]
		body := strings.TrimRight(line, "\r\n")
		bare := strings.TrimSpace(body)
		in := len(body) - len(strings.TrimLeft(body, " \t"))
		switch {
		case open != "":
			if strings.Contains(body, open) {
				open = ""
			}
			out.WriteString(masked + eol)
			continue
		case depth > 0:
			depth += braces(body)
			out.WriteString(body[:in] + masked + eol)
			continue
		case bare == "":
			out.WriteString(line)
			continue
		}
		if !toml && indent >= 0 && in <= indent && !strings.HasPrefix(bare, "#") {
			hiding, indent = false, -1
		}
		if toml {
			if m := tomlTable().FindStringSubmatch(body); m != nil {
				parts := strings.Split(m[1], ".")
				hiding = hides(strings.Trim(parts[len(parts)-1], ` "'`))
				out.WriteString(line)
				continue
			}
		}
		m := pairLine().FindStringSubmatch(body)
		switch {
		case strings.HasPrefix(bare, "#"):
			if hiding {
				out.WriteString(body[:in] + "# " + masked + eol)
			} else {
				out.WriteString(plainPair().ReplaceAllString(body, `${1}`+masked) + eol)
			}
		case hiding && m == nil:
			out.WriteString(body[:in] + masked + eol)
		case m == nil:
			flow, left := maskFlow(body)
			depth = left
			out.WriteString(maskArgs(flow) + eol)
		default:
			path := strings.Split(m[2], ".")
			key := strings.Trim(path[len(path)-1], `"' `)
			value := m[4]
			within := hiding || toml && slices.ContainsFunc(path[:len(path)-1], func(p string) bool { return hides(strings.Trim(p, `"' `)) })
			secret := within || secretKey().MatchString(key) && !namesOf().MatchString(key)
			switch {
			case !toml && !within && (value == "" || strings.HasPrefix(value, "#") || value[0] == '&' || value[0] == '|' || value[0] == '>') && (hides(key) || secret):
				hiding, indent = true, in+strings.Count(m[1], "-")
				out.WriteString(line)
			case secret && value != "":
				for _, mark := range []string{`"""`, `'''`} {
					if rest, ok := strings.CutPrefix(value, mark); ok && toml && !strings.Contains(rest, mark) {
						open = mark
					}
				}
				out.WriteString(m[1] + m[2] + m[3] + masked + eol)
			default:
				flow, left := maskFlow(body)
				depth = left
				out.WriteString(maskArgs(flow) + eol)
			}
		}
	}
	return out.String()
}

// plainPair is a variable and its value in a comment.
var plainPair = later(`(\b[A-Z][A-Z0-9_]*\s*[:=]\s*).+`)

// maskFlow hides what stands in braces behind env or headers on one line; depth is
// how many braces stay open.
func maskFlow(line string) (_ string, depth int) {
	for from := 0; ; {
		at := flowStart().FindStringIndex(line[from:])
		if at == nil {
			return line, 0
		}
		start := from + at[1]
		depth := 1
		i := start
		for quote := byte(0); i < len(line) && depth > 0; i++ {
			switch c := line[i]; {
			case quote != 0:
				if c == '\\' && quote == '"' {
					i++
				} else if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'':
				quote = c
			case c == '{':
				depth++
			case c == '}':
				depth--
			}
		}
		i = min(i, len(line))
		if depth > 0 {
			return line[:start] + " " + masked, depth
		}
		inner := strings.TrimSpace(line[start : i-1])
		if inner == "" {
			from = i
			continue
		}
		rest := line[i:]
		line = line[:start] + " " + masked + " }"
		from = len(line)
		line += rest
	}
}

// flagPair is a flag for a login and its value in a list on one line.
var flagPair = later(`(?i)(["']--?[\w-]*` + secretWord + `[\w-]*["']\s*,\s*)("(?:[^"\\]|\\.)*"|'[^']*')`)

func maskArgs(line string) string { return flagPair().ReplaceAllString(line, `${1}"`+masked+`"`) }

func braces(line string) int { return strings.Count(line, "{") - strings.Count(line, "}") }

// shortest is the length of a value that is hidden wherever it stands: a shorter
// one is a word like any other.
const shortest = 6

// hide takes values out of a text, however a string is written.
func hide(text string, secrets []string) string {
	secrets = slices.Clone(secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, v := range secrets {
		if len(v) < shortest {
			continue
		}
		text = strings.ReplaceAll(text, v, masked)
		for part := range strings.SplitSeq(v, "\n") { // a text over several lines
			if len(part) >= shortest && part != v {
				text = strings.ReplaceAll(text, part, masked)
			}
		}
		if b, err := json.Marshal(v); err == nil {
			text = strings.ReplaceAll(text, string(b[1:len(b)-1]), masked)
		}
	}
	return text
}
