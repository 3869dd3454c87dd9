package clientconfig

import (
	"fmt"
	"strings"
)

// entryReader reads one entry into s. It knows every spelling of every client:
// people copy entries from one client's file to another's.
type entryReader struct {
	*decoder
	s *Server

	command   *node
	args      []*node
	transport *node // the text of type, transport or transportType
	urlKey    string
	zed       bool // says that its editor runs it
}

// fault makes an entry unusable.
type fault = syntaxAt

func faultf(n *node, format string, args ...any) *fault {
	return &fault{off: n.start, message: fmt.Sprintf(format, args...)}
}

func (e *entryReader) note(n *node, hint, format string, args ...any) {
	e.problem(n.start, e.s.Name, fmt.Sprintf(format, args...), hint)
}

const neither = `give it a "command" (and "args") or a "url", or remove it`

// read fills e.s. On a fault the entry is not used.
func (e *entryReader) read(n *node) *fault {
	switch n.kind {
	case kMap:
	case kNull:
		return &fault{off: n.start, message: "the entry is null", hint: neither}
	default:
		return &fault{off: n.start, message: fmt.Sprintf("the entry is %s, not an object", n.kind), hint: neither}
	}
	if f := e.fields(n); f != nil {
		return f
	}
	if f := e.commandLine(); f != nil {
		return f
	}
	return e.kindOfServer(n)
}

// fields reads the keys of an entry, or of the transport object in it.
func (e *entryReader) fields(n *node) *fault {
	e.duplicates(n, e.s.Name)
	for m := range n.distinct {
		if m.val.kind == kNull {
			continue // as good as absent, for every key of every client
		}
		if f := e.field(m.key, m.val); f != nil {
			return f
		}
	}
	return nil
}

func (e *entryReader) field(key string, v *node) (f *fault) {
	s := e.s
	switch key {
	case "command", "cmd":
		e.command = v
	case "args":
		e.args = append(e.args, v)
	case "env", "envs", "environment":
		s.Env, f = e.texts(key, v, s.Env)
	case "env_vars", "env_keys":
		f = e.forward(key, v)
	case "envFile", "env_file":
		s.EnvFile, f = e.text(key, v)
	case "cwd", "working_directory", "workingDirectory":
		s.Dir, f = e.text(key, v)
	case "url", "serverUrl", "httpUrl", "uri":
		// httpUrl says more than url, which Gemini's entries may have beside it.
		if e.urlKey != "httpUrl" {
			s.URL, f = e.text(key, v)
			s.URL = strings.TrimSpace(s.URL)
			e.urlKey = key
		}
	case "type", "transportType":
		e.transport = v
	case "transport":
		if v.kind == kMap {
			return e.fields(v)
		}
		e.transport = v
	case "headers", "http_headers":
		s.Headers, f = e.texts(key, v, s.Headers)
	case "env_http_headers":
		s.HeaderVars, f = e.texts(key, v, s.HeaderVars)
	case "bearer_token_env_var":
		s.BearerVar, f = e.text(key, v)
	case "requestOptions":
		if h := v.get("headers"); h != nil && h.kind != kNull {
			s.Headers, f = e.texts("requestOptions.headers", h, s.Headers)
		}
	case "disabled", "enabled":
		on, ok := truth(v)
		if !ok {
			return faultf(v, "%s is %s, not true or false", quoted(key), v.kind)
		}
		s.Disabled = s.Disabled || on == (key == "disabled")
	case "disabledTools", "disabled_tools", "excludeTools":
		f = e.filter(key, v, false)
	case "includeTools", "enabled_tools", "available_tools":
		f = e.filter(key, v, true)
	case "tools":
		if v.kind == kList { // Codex and others keep approvals in a map of this name
			f = e.filter(key, v, true)
		}
	case "timeout", "tool_timeout_sec":
		e.timeout(key, v, &s.CallTimeout)
	case "startup_timeout_sec", "startup_timeout_ms", "connectionTimeout":
		e.timeout(key, v, &s.StartTimeout)
	case "source":
		e.zed = e.zed || v.text == "extension"
	case "toolsd":
		e.own(v)
	case "headersHelper":
		e.note(v, "if the server refuses, write a header with a token into the entry", "its headersHelper is a program that toolsd does not run")
	case "authProviderType":
		e.note(v, "if the server refuses, write a header with a token into the entry", "its authProviderType is a login that only %s has", e.client.Name)
	case "sandboxEnabled":
		if on, _ := truth(v); on {
			e.note(v, "", "sandboxEnabled is not known to toolsd: the server runs without a sandbox")
		}
	}
	return f
}

func (e *entryReader) text(key string, v *node) (string, *fault) {
	if t, ok := v.scalar(); ok && v.kind != kBool {
		if strings.ContainsRune(t, 0) {
			return "", faultf(v, "%s holds a zero byte", quoted(key))
		}
		if lostBackslash(t) {
			return "", lostBackslashAt(v, key)
		}
		return t, nil
	}
	return "", faultf(v, "%s is %s, not text", quoted(key), v.kind)
}

// lostBackslash reports whether t is a path of Windows whose backslashes were read
// as escapes: "C:\tools\new" holds a tab and a line break.
func lostBackslash(t string) bool { return hasDrive(t) && strings.ContainsAny(t, "\t\n\r\b\f") }

func lostBackslashAt(v *node, key string) *fault {
	f := faultf(v, "%s holds a control character in a path", quoted(key))
	f.hint = `write \\ for one backslash, as in C:\\tools`
	return f
}

// texts reads a map of names and texts, such as env and headers. Values may be
// numbers or booleans; null means that the name is not set.
func (e *entryReader) texts(key string, v *node, into map[string]string) (map[string]string, *fault) {
	if v.kind != kMap {
		return nil, faultf(v, "%s is %s, not an object of names and values", quoted(key), v.kind)
	}
	e.duplicates(v, e.s.Name)
	for m := range v.distinct {
		val := m.val
		if val.kind == kNull {
			continue
		}
		t, ok := val.scalar()
		switch {
		case !ok:
			return nil, faultf(val, "the value of %s in %s is %s, not text", quoted(m.key), quoted(key), val.kind)
		case m.key == "" || strings.ContainsAny(m.key, "=\x00") && isEnv(key):
			return nil, &fault{off: m.at, message: fmt.Sprintf("%s holds a name that no variable can have", quoted(key))}
		case strings.ContainsRune(t, 0):
			return nil, faultf(val, "the value of %s in %s holds a zero byte", quoted(m.key), quoted(key))
		}
		if into == nil {
			into = map[string]string{}
		}
		into[m.key] = t
	}
	return into, nil
}

func isEnv(key string) bool { return strings.HasPrefix(key, "env") && key != "env_http_headers" }

// maxNames is how many tools or variables one list may name. A server has some
// hundreds of tools at most, and lists are compared with each other.
const maxNames = 2000

func tooMany(key string, v *node) *fault {
	return faultf(v, "%s holds more than %d names", quoted(key), maxNames)
}

// forward reads names of variables: texts, or objects with a name.
func (e *entryReader) forward(key string, v *node) *fault {
	if v.kind != kList {
		return faultf(v, "%s is %s, not a list of names of variables", quoted(key), v.kind)
	}
	if len(v.items) > maxNames {
		return tooMany(key, v)
	}
	for _, item := range v.items {
		name := item
		if item.kind == kMap {
			name = item.get("name")
		}
		if name == nil || name.kind != kString || name.text == "" || strings.ContainsAny(name.text, "=\x00") {
			return faultf(item, "%s holds something that is no name of a variable", quoted(key))
		}
		e.s.Forward = appendNew(e.s.Forward, name.text)
	}
	e.s.ForwardNeeded = e.s.ForwardNeeded || key == "env_keys"
	return nil
}

func truth(v *node) (on, ok bool) {
	if v.kind == kBool || v.kind == kString {
		switch strings.ToLower(v.text) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	return false, false
}

// filter reads a list of tools. An allow list without a name in it allows
// nothing, except for Goose, which writes an empty available_tools for all.
func (e *entryReader) filter(key string, v *node, include bool) *fault {
	if v.kind != kList {
		return faultf(v, "%s is %s, not a list of names of tools", quoted(key), v.kind)
	}
	if len(v.items) > maxNames {
		return tooMany(key, v)
	}
	var names []string
	for _, item := range v.items {
		if item.kind != kString {
			return faultf(item, "%s holds %s in the place of a name", quoted(key), item.kind)
		}
		// Gemini allows a name with arguments, such as run(ls).
		name, _, _ := strings.Cut(item.text, "(")
		if include && name == "*" {
			return nil
		}
		names = appendNew(names, name)
	}
	switch {
	case !include:
		for _, n := range names {
			e.s.Exclude = appendNew(e.s.Exclude, n)
		}
	case len(names) > 0:
		for _, n := range names {
			e.s.Include = appendNew(e.s.Include, n)
		}
	case key != "available_tools":
		e.s.Exclude = appendNew(e.s.Exclude, "*")
	}
	return nil
}
