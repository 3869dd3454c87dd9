package clientconfig

import (
	"path"
	"slices"
	"strings"
)

// commandLine is a command that was written as one text.
type commandLine struct {
	env     map[string]string // NAME=value before the command
	command string
	args    []string
}

// wordError says why a text cannot be split, as the end of a sentence.
type wordError struct{ message, hint string }

// splitCommand takes a text apart like a shell would, without running or
// expanding anything. A text that is plainly one path with spaces in it stays
// whole; hasArgs says that the entry gives arguments as well, which makes that
// more likely.
func splitCommand(text string, hasArgs bool) (commandLine, *wordError) {
	text = strings.TrimSpace(text)
	if !strings.ContainsAny(text, " \t\n\r\"'") || isOnePath(text, hasArgs) {
		return commandLine{command: text}, nil
	}
	if program, rest, ok := windowsProgram(text); ok {
		args, err := splitWords(rest, true)
		return commandLine{command: program, args: args}, err
	}
	words, err := splitWords(text, looksWindows(text))
	if err != nil {
		return commandLine{}, err
	}
	var line commandLine
	for len(words) > 0 {
		name, value, ok := strings.Cut(words[0], "=")
		if !ok || !isVariableName(name) {
			break
		}
		if line.env == nil {
			line.env = map[string]string{}
		}
		line.env[name] = value
		words = words[1:]
	}
	if len(words) > 0 {
		line.command, line.args = words[0], words[1:]
	}
	return line, nil
}

// isOnePath reports whether a text with spaces is the path of one program.
func isOnePath(text string, hasArgs bool) bool {
	if strings.ContainsAny(text, `"'`) || !startsLikePath(text) {
		return false
	}
	words := strings.Fields(text)
	for _, w := range words[1:] {
		if startsLikePath(w) || len(w) > 1 && w[0] == '-' || strings.Contains(w, "://") {
			return false // an option, or a second path
		}
	}
	if isWindowsPath(text) {
		end, ok := programEnd(text)
		return !ok && hasArgs || ok && end == len(text)
	}
	first := words[0]
	if complete(first) {
		return false // /usr/bin/node server.js, /usr/bin/env node
	}
	return hasArgs || strings.ContainsAny(words[len(words)-1], `/\`)
}

func startsLikePath(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~/") || strings.HasPrefix(s, "./") ||
		strings.HasPrefix(s, "../") || isWindowsPath(s)
}

// complete reports whether a path is a program as it stands, so that what follows
// are its arguments.
func complete(p string) bool {
	base := path.Base(p)
	if slices.Contains([]string{"bin", "sbin"}, path.Base(path.Dir(p))) || slices.Contains(launchers, base) {
		return true
	}
	return slices.Contains([]string{".sh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".exe"}, path.Ext(base))
}

// launchers are programs that run a server which their arguments name.
var launchers = []string{
	"bash", "bun", "bunx", "cmd", "deno", "docker", "env", "java", "node", "npm", "npx", "pipx", "pnpm",
	"podman", "python", "python3", "ruby", "sh", "uv", "uvx", "zsh",
}

var windowsPrograms = []string{".exe", ".cmd", ".bat", ".com"}

// programEnd is where the first word ends that has the extension of a program.
func programEnd(text string) (int, bool) {
	for i := range len(text) {
		for _, ext := range windowsPrograms {
			end := i + len(ext)
			if end <= len(text) && strings.EqualFold(text[i:end], ext) && (end == len(text) || text[end] == ' ') {
				return end, true
			}
		}
	}
	return 0, false
}

// windowsProgram parts C:\Program Files\nodejs\node.exe from what follows it, as
// Windows itself does for a command line without quotes.
func windowsProgram(text string) (program, rest string, ok bool) {
	if !isWindowsPath(text) || strings.HasPrefix(text, "//") {
		return "", "", false
	}
	end, ok := programEnd(text)
	if !ok || strings.ContainsAny(text[:end], `"'`) {
		return "", "", false
	}
	return text[:end], text[end:], true
}

// looksWindows reports whether backslashes in a command line are parts of paths.
func looksWindows(text string) bool {
	if strings.Contains(strings.ToLower(text), ".exe") {
		return true
	}
	for i := 0; i+2 < len(text); i++ {
		if hasDrive(text[i:]) && text[i+2] == '\\' && (i == 0 || strings.IndexByte(" \"'=", text[i-1]) >= 0) {
			return true
		}
	}
	return false
}

// splitWords splits like a shell: white space parts words, quotes and backslashes
// hold them together. Nothing is expanded; a variable such as ${A:-b c} stays in
// one word. windows leaves backslashes alone.
func splitWords(text string, windows bool) ([]string, *wordError) {
	var words []string
	var word strings.Builder
	open := false // a word has begun, maybe an empty one in quotes
	plain := true // nothing of the word was quoted
	closers := braces(text)
	flush := func() *wordError {
		if !open {
			return nil
		}
		w := word.String()
		if plain && slices.Contains(operators, w) {
			return &wordError{"needs a shell", `write "command": "sh" and "args": ["-c", "…"]`}
		}
		words = append(words, w)
		word.Reset()
		open, plain = false, true
		return nil
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if err := flush(); err != nil {
				return nil, err
			}
		case c == '\'' && !windows:
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return nil, &wordError{"has a quote that is not closed", ""}
			}
			word.WriteString(text[i+1 : i+1+end])
			i += end + 1
			open, plain = true, false
		case c == '"':
			end, ok := i+1, false
			for ; end < len(text); end++ {
				if text[end] == '"' {
					ok = true
					break
				}
				if text[end] == '\\' && end+1 < len(text) {
					next := text[end+1]
					if next == '"' || !windows && (next == '\\' || next == '$' || next == '`') {
						end++
					}
				}
				word.WriteByte(text[end])
			}
			if !ok {
				return nil, &wordError{"has a quote that is not closed", ""}
			}
			i = end
			open, plain = true, false
		case c == '\\' && !windows && i+1 < len(text):
			i++
			if text[i] != '\n' {
				word.WriteByte(text[i])
			}
			open, plain = true, false
		case c == '{' || c == '$' && i+1 < len(text) && text[i+1] == '{':
			end, ok := closers[i]
			if !ok {
				end = i
			}
			word.WriteString(text[i : end+1])
			i = end
			open = true
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return words, nil
}

var operators = []string{"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"}

// braces maps the start of every variable in s (the $ of ${, or the { of
// {env:) to its closing brace. Braces nest; one that is never closed is absent.
func braces(s string) map[int]int {
	var closers map[int]int
	var starts []int
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '$':
			if i+1 < len(s) && s[i+1] == '{' {
				starts = append(starts, i)
				i++
			}
		case '{':
			starts = append(starts, i)
		case '}':
			if n := len(starts); n > 0 {
				if closers == nil {
					closers = map[int]int{}
				}
				closers[starts[n-1]] = i
				starts = starts[:n-1]
			}
		}
	}
	return closers
}

func isVariableName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}
