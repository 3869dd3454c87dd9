package clientconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
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
	for _, m := range n.members {
		v := n.get(m.key) // the last of two
		if v.kind == kNull {
			continue // as good as absent, for every key of every client
		}
		if f := e.field(m.key, v); f != nil {
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
		e.note(v, "if the server refuses, log in by a header", "its headersHelper is a program that toolsd does not run")
	case "authProviderType":
		e.note(v, "if the server refuses, log in by a header", "its authProviderType is a login that only %s has", e.client.Name)
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
	for _, m := range v.members {
		val := v.get(m.key)
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

// forward reads names of variables: texts, or objects with a name.
func (e *entryReader) forward(key string, v *node) *fault {
	if v.kind != kList {
		return faultf(v, "%s is %s, not a list of names of variables", quoted(key), v.kind)
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

// maxTimeout is a day: what is above is a mistake of the unit.
const maxTimeout = 24 * time.Hour

// timeout reads a timeout. A bad one does not make the entry unusable: the
// default serves.
func (e *entryReader) timeout(key string, v *node, into *time.Duration) {
	unit := e.client.Unit
	switch {
	case strings.HasSuffix(key, "_sec"):
		unit = time.Second
	case strings.HasSuffix(key, "_ms"):
		unit = time.Millisecond
	}
	word := "milliseconds"
	if unit == time.Second {
		word = "seconds"
	}
	x, err := strconv.ParseFloat(v.text, 64)
	if v.kind != kNumber && v.kind != kString || err != nil || !(x >= 0) {
		e.note(v, "", "%s must be a number of %s; the default is used", quoted(key), word)
		return
	}
	ns := x * float64(unit)
	switch {
	case x == 0 || math.IsInf(x, 0):
		return // no limit, in the clients' words; the default is the nearest to it
	case ns > float64(maxTimeout):
		e.note(v, "", "%s is longer than a day; it counts in %s; a day is used", quoted(key), word)
		ns = float64(maxTimeout)
	case unit == time.Millisecond && x < 1000:
		e.note(v, "", "%s is less than a second; it counts in milliseconds", quoted(key))
	}
	*into = time.Duration(ns)
}

// own reads the block that is toolsd's. It decides how an entry runs, not
// whether: a bad value is a problem and the default serves.
func (e *entryReader) own(v *node) {
	if v.kind != kMap {
		e.note(v, "", `"toolsd" is %s, not an object`, v.kind)
		return
	}
	e.duplicates(v, e.s.Name)
	choice := func(key string, n *node, into *string, allowed ...string) {
		if n.kind == kString && slices.Contains(allowed, n.text) {
			*into = n.text
			return
		}
		e.note(n, "", "%s in the toolsd block must be one of %s; the default is used", quoted(key), strings.Join(allowed, ", "))
	}
	for _, m := range v.members {
		n := v.get(m.key)
		if n.kind == kNull {
			continue
		}
		switch m.key {
		case "share":
			choice(m.key, n, &e.s.Share, "shared", "project", "session")
		case "start":
			choice(m.key, n, &e.s.Start, "eager", "lazy")
		case "protocol":
			choice(m.key, n, &e.s.Protocol, "auto", "legacy", "modern")
		case "idle":
			d, err := time.ParseDuration(n.text)
			if n.kind != kString || err != nil || d <= 0 {
				e.note(n, "", `"idle" in the toolsd block must be a duration such as 30s, 10m or 2h; the default is used`)
				continue
			}
			e.s.Idle = d
		case "origin":
			if _, ok := ClientOf(n.text); n.kind != kString || !ok {
				e.note(n, "", `"origin" in the toolsd block must be the slug of a client, such as cursor; variables are read as in this file`)
				continue
			}
			e.s.Origin = n.text
		default:
			e.problem(m.at, e.s.Name, quoted(m.key)+" is not a key of the toolsd block", "the keys are share, start, idle, protocol and origin")
		}
	}
}

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

// kindOfServer decides about the transport. What the entry has counts for more
// than what its type says.
func (e *entryReader) kindOfServer(n *node) *fault {
	s := e.s
	said, known := Transport(""), true
	if t := e.transport; t != nil {
		if t.kind != kString {
			return faultf(t, `"type" is %s, not text`, t.kind)
		}
		said, known = transportOf(t.text)
		if !known {
			return &fault{off: t.start, message: `"type" is none that is known`, hint: "the types are stdio, http and sse"}
		}
	}
	remote := s.URL != "" && (s.Command == "" || said != "" && said != Stdio)
	switch {
	case remote:
		s.Transport = said
		if said == Stdio {
			e.note(e.transport, `remove the "type"`, `"type" says stdio but the entry has a url; the url is used`)
			s.Transport = Auto
		}
		if said == "" {
			s.Transport = Auto
			switch {
			case e.urlKey == "httpUrl":
				s.Transport = HTTP
			case e.client.URL != "" && e.urlKey == "url":
				s.Transport = e.client.URL
			}
		}
		if said == websocket || websocketURL(s.URL) {
			s.Transport = Auto
			e.unsupported("it speaks WebSocket, which toolsd does not", "if the server has an http url too, use that")
		}
		s.Command, s.Args = "", nil
	case s.Command != "":
		if said != "" && said != Stdio {
			e.note(e.transport, `remove the "type"`, `"type" says that the server is remote but the entry has only a command; the command is used`)
		}
		s.Transport = Stdio
		s.URL = ""
	case e.zed || e.client.Slug == "zed" && n.get("settings") != nil:
		s.Transport = Stdio
		e.unsupported("run by the editor", fmt.Sprintf("it belongs to an extension of %s; give the entry a command to run it everywhere", e.client.Name))
	default:
		return &fault{off: n.start, message: "the entry has neither a command nor a url", hint: neither}
	}
	return nil
}

func (e *entryReader) unsupported(problem, hint string) {
	e.s.Problem, e.s.Hint, e.s.Unsupported = problem, hint, true
}

// websocket is no Transport of a Server: nothing here can speak it.
const websocket Transport = "ws"

// transportOf reads the name of a transport as any client writes it.
func transportOf(name string) (Transport, bool) {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name)) {
	case "":
		return "", true
	case "stdio", "local", "command":
		return Stdio, true
	case "http", "streamablehttp", "httpstream", "httpstreamable", "streamable":
		return HTTP, true
	case "sse", "httpsse":
		return SSE, true
	case "remote", "auto":
		return Auto, true
	case "ws", "wss", "websocket":
		return websocket, true
	}
	return "", false
}

func websocketURL(url string) bool {
	url = strings.ToLower(url)
	return strings.HasPrefix(url, "ws://") || strings.HasPrefix(url, "wss://")
}
