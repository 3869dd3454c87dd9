package clientconfig

import (
	"reflect"
	"slices"
	"time"
)

// field is a key of an entry with a string, a bool, an int64, a []string, a
// map[string]string or []field.
type field struct {
	key   string
	value any
}

// fields writes an entry as its client does.
func (e *editor) fields(s Entry) []field {
	if e.client.Slug == "toolsd" {
		return ownFields(s)
	}
	var f []field
	put := func(key string, value any) { f = append(f, field{key, value}) }
	texts := func(key string, m map[string]string) {
		if len(m) > 0 {
			put(key, m)
		}
	}
	remote := s.URL != ""
	args := s.Args
	if args == nil {
		args = []string{}
	}
	command := func() {
		put("command", s.Command)
		put("args", args)
		texts("env", s.Env)
	}
	url := func(key string) {
		put(key, s.URL)
		texts("headers", s.Headers)
	}
	http := "http"
	if s.Transport == SSE {
		http = "sse"
	}
	switch e.client.Slug {
	case "opencode", "kilo":
		if e.home != "mcp" { // Kilo's older file has the common shape
			break
		}
		if remote {
			put("type", "remote")
			url("url")
		} else {
			put("type", "local")
			put("command", append([]string{s.Command}, args...))
			texts("environment", s.Env)
		}
		put("enabled", !s.Disabled)
		return f
	case "goose":
		put("name", s.Name)
		switch {
		case remote && http == "sse":
			put("type", "sse")
			url("uri")
		case remote:
			put("type", "streamable_http")
			url("uri")
		default:
			put("type", "stdio")
			put("cmd", s.Command)
			put("args", args)
			texts("envs", s.Env)
		}
		put("enabled", !s.Disabled)
		put("timeout", int64(300)) // Goose's own default; it wants the key to be there
		return f
	case "continue":
		put("name", s.Name)
		if !remote {
			command()
			return f
		}
		put("type", map[string]string{"http": "streamable-http", "sse": "sse"}[http])
		put("url", s.URL)
		if len(s.Headers) > 0 {
			put("requestOptions", []field{{"headers", s.Headers}})
		}
		return f
	case "codex":
		if remote {
			put("url", s.URL)
			texts("http_headers", s.Headers)
		} else {
			command()
		}
		if s.Disabled {
			put("enabled", false)
		}
		return f
	case "windsurf", "antigravity":
		if remote {
			url("serverUrl")
		}
	case "gemini", "qwen":
		if remote && http == "http" {
			url("httpUrl")
		}
	case "claude-code", "vscode", "vscode-insiders", "crush", "factory", "copilot-jetbrains":
		put("type", "stdio")
		if remote {
			f[0].value = http
		}
	case "copilot-cli":
		put("type", "local")
		if remote {
			f[0].value = http
		}
	case "zed":
		if !remote {
			put("source", "custom")
		}
	case "cline":
		if remote {
			put("type", map[string]string{"http": "streamableHttp", "sse": "sse"}[http])
		}
	case "roo":
		if remote {
			put("type", map[string]string{"http": "streamable-http", "sse": "sse"}[http])
		}
	}
	switch {
	case !remote:
		command()
	case !slices.ContainsFunc(f, func(f field) bool { return f.value == s.URL }):
		url("url")
	}
	if e.client.Slug == "copilot-cli" {
		put("tools", []string{"*"})
	}
	if s.Disabled {
		put("disabled", true)
	}
	return f
}

// ownFields writes all of a Server for toolsd's own file.
func ownFields(s Entry) []field {
	var f []field
	put := func(key string, value any) {
		if v := reflect.ValueOf(value); v.IsZero() || v.Kind() != reflect.String && v.Kind() != reflect.Bool && v.Kind() != reflect.Int64 && v.Len() == 0 {
			return
		}
		f = append(f, field{key, value})
	}
	ms := func(key string, d time.Duration) { put(key, d.Milliseconds()) }
	if s.URL != "" {
		if s.Transport != Auto {
			put("type", string(s.Transport))
		}
		put("url", s.URL)
	} else if line, err := splitCommand(s.Command, len(s.Args) > 0); err != nil || line.command != s.Command || len(line.args) > 0 {
		put("command", append([]string{s.Command}, s.Args...)) // as text it would be split
	} else {
		put("command", s.Command)
		put("args", s.Args)
	}
	put("env", s.Env)
	put("envFile", s.EnvFile)
	forward := "env_vars"
	if s.ForwardNeeded {
		forward = "env_keys"
	}
	put(forward, s.Forward)
	put("cwd", s.Dir)
	put("headers", s.Headers)
	put("env_http_headers", s.HeaderVars)
	put("bearer_token_env_var", s.BearerVar)
	put("includeTools", s.Include)
	put("excludeTools", s.Exclude)
	ms("timeout", s.CallTimeout)
	ms("startup_timeout_ms", s.StartTimeout)
	put("disabled", s.Disabled)
	var own []field
	text := func(key, v string) {
		if v != "" {
			own = append(own, field{key, v})
		}
	}
	text("share", s.Share)
	text("start", s.Start)
	if s.Idle > 0 {
		text("idle", s.Idle.String())
	}
	text("protocol", s.Protocol)
	text("origin", s.Origin)
	put("toolsd", own)
	return f
}
