package clientconfig

import (
	"fmt"
	"strings"
)

// commandLine makes Command and Args of what the entry has: a text, a list, or an
// object of path, args and env.
func (e *entryReader) commandLine() *fault {
	var args []string
	for _, n := range e.args {
		more, f := e.arguments("args", n)
		if f != nil {
			return f
		}
		args = append(args, more...)
	}
	c := e.command
	if c == nil {
		e.s.Args = args
		return nil
	}
	switch c.kind {
	case kList:
		words, f := e.arguments("command", c)
		if f != nil {
			return f
		}
		if len(words) > 0 {
			e.s.Command, words = words[0], words[1:]
		}
		e.s.Args = append(words, args...)
		return nil
	case kMap:
		e.duplicates(c, e.s.Name)
		e.command, e.args = firstOf(c.get("path"), c.get("command")), nil
		if n := firstOf(c.get("env")); n != nil {
			env, f := e.texts("env", n, nil)
			if f != nil {
				return f
			}
			for k, v := range env {
				if e.s.Env == nil {
					e.s.Env = map[string]string{}
				}
				if _, ok := e.s.Env[k]; !ok {
					e.s.Env[k] = v
				}
			}
		}
		if n := firstOf(c.get("args")); n != nil {
			more, f := e.arguments("args", n)
			if f != nil {
				return f
			}
			args = append(more, args...)
		}
		if e.command != nil && e.command.kind == kMap {
			return faultf(e.command, `the path in "command" is an object, not text`)
		}
		inner := e.command
		if inner == nil {
			return nil
		}
		if inner.kind != kString {
			return faultf(inner, `the path in "command" is %s, not text`, inner.kind)
		}
		e.s.Command, e.s.Args = strings.TrimSpace(inner.text), args
		return nil
	case kString:
		return e.splitCommand(c, args)
	}
	return faultf(c, `"command" is %s, not text`, c.kind)
}

func (e *entryReader) splitCommand(c *node, args []string) *fault {
	if strings.ContainsRune(c.text, 0) {
		return faultf(c, `"command" holds a zero byte`)
	}
	if lostBackslash(c.text) {
		return lostBackslashAt(c, "command")
	}
	line, err := splitCommand(c.text, len(args) > 0)
	if err != nil {
		return &fault{off: c.start, message: `"command" ` + err.message, hint: err.hint}
	}
	e.s.Command = line.command
	e.s.Args = append(line.args, args...)
	for k, v := range line.env {
		if e.s.Env == nil {
			e.s.Env = map[string]string{}
		}
		e.s.Env[k] = v
	}
	return nil
}

// arguments reads a list of arguments, which may be numbers or booleans, or one
// text that is split like a shell would.
func (e *entryReader) arguments(key string, n *node) ([]string, *fault) {
	switch n.kind {
	case kString:
		words, err := splitWords(n.text, false)
		if err != nil {
			return nil, &fault{off: n.start, message: quoted(key) + " " + err.message, hint: err.hint}
		}
		return words, nil
	case kList:
	default:
		return nil, &fault{off: n.start, message: fmt.Sprintf("%s is %s, not a list of texts", quoted(key), n.kind),
			hint: fmt.Sprintf(`write %s: ["first", "second"]`, quoted(key))}
	}
	var words []string
	for i, item := range n.items {
		t, ok := item.scalar()
		if !ok {
			return nil, faultf(item, "element %d of %s is %s, not text", i+1, quoted(key), item.kind)
		}
		if strings.ContainsRune(t, 0) {
			return nil, faultf(item, "element %d of %s holds a zero byte", i+1, quoted(key))
		}
		words = append(words, t)
	}
	return words, nil
}
