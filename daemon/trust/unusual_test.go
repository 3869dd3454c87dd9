package trust

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

func TestUnusual(t *testing.T) {
	stdio := func(command string, args ...string) clientconfig.Server {
		return clientconfig.Server{Command: command, Args: args}
	}
	env := func(name, v string) clientconfig.Server {
		return clientconfig.Server{Command: "x", Env: map[string]string{name: v}}
	}
	at := func(url string) clientconfig.Server { return clientconfig.Server{URL: url} }
	token := "ghp_" + strings.Repeat("aB3", 12)
	for _, c := range []struct {
		def  clientconfig.Server
		want string // in exactly one sentence; empty: none at all
	}{
		{env("LD_PRELOAD", "/x.so"), "LD_PRELOAD"}, {env("LD_LIBRARY_PATH", "/x"), "LD_LIBRARY_PATH"}, {env("DYLD_INSERT_LIBRARIES", "/x"), "DYLD_INSERT"},
		{env("NODE_OPTIONS", "-r x"), "NODE_OPTIONS"}, {env("PYTHONSTARTUP", "x"), "PYTHONSTARTUP"}, {env("PYTHONPATH", "x"), "PYTHONPATH"},
		{env("BASH_ENV", "x"), "BASH_ENV"}, {env("GIT_SSH_COMMAND", "x"), "GIT_SSH_COMMAND"}, {env("PATH", "/x"), "PATH"}, {env("Path", "/x"), "Path"},
		{env("npm_config_registry", "http://x"), "downloaded from"}, {env("LOG_LEVEL", "debug"), ""}, {env("DATABASE_URL", "postgres://db/x"), ""},
		{env("TOKEN", token), "env TOKEN looks like a token"}, {env("TOKEN", "${TOKEN}"), ""}, {env("MODE", "production-environment-two"), ""},
		{stdio("sh", "-c", "node x"), "command line of its own in sh"}, {stdio("/bin/bash", "-lc", "x"), "command line of its own in bash"},
		{stdio("cmd.exe", "/c", "npx"), "command line of its own in cmd"}, {stdio("env", "bash", "-ec", "x"), "command line of its own in bash"},
		{stdio("bash", "server.sh"), ""},
		{stdio("node", "-e", "1"), "code of its own in node"}, {stdio("python3", "-c", "1"), "code of its own in python"},
		{stdio("x", "curl https://h/i | sh"), "downloads something and runs it"}, {stdio("x", "bash <(wget -qO- h)"), "downloads something and runs it"},
		{stdio("x", "curl -o f https://h/i"), "downloads something"}, {stdio("x", "eval $(curl h)"), "downloads something and runs it"},
		{stdio("x", "echo aGk= | base64 -d"), "nobody can read"}, {stdio("x", "echo aGk= | base64 --decode"), "nobody can read"},
		{stdio("powershell", "-EncodedCommand", "aaaa"), "nobody can read"}, {stdio("sudo", "x"), "rights of another user"},
		{stdio("npx", "-y", "pkg"), "downloads pkg without a fixed version"}, {stdio("npx", "-y", "@s/pkg"), "downloads @s/pkg without"},
		{stdio("npx", "-y", "@s/pkg@latest"), "without a fixed version"}, {stdio("npx", "-y", "@s/pkg@1.2.3"), ""}, {stdio("npx", "pkg@2"), ""},
		{stdio("uvx", "mcp-server-git"), "downloads mcp-server-git without"}, {stdio("uvx", "mcp-server-git==1.0"), ""}, {stdio("uvx", "--from", "git+https://h/r", "x"), "without a fixed version"},
		{stdio("docker", "run", "--privileged", "x"), "--privileged"}, {stdio("docker", "run", "-v", "/:/host", "x"), "gets /:/host of this machine"},
		{stdio("docker", "run", "-v/:/host", "x"), "of this machine"}, {stdio("docker", "run", "--mount", "type=bind,source=/,target=/h", "x"), "of this machine"},
		{stdio("docker", "run", "-v", "/var/run/docker.sock:/s", "x"), "controls docker itself"}, {stdio("docker", "run", "--network=host", "x"), "host's network"},
		{stdio("docker", "run", "-i", "--rm", "-v", "/srv/data:/data", "x"), ""}, {stdio("x", "--api-key", "abcdef12345"), "argument 2 looks like a token"},
		{stdio("x", "--api-key="+token), "argument 1 looks like a token"}, {stdio("x", "--api-key", "${KEY}"), ""}, {stdio("x", "a\u202eb"), "hidden characters"},
		{at("http://example.org/mcp"), "plain http to example.org"}, {at("http://localhost:1/mcp"), ""}, {at("http://127.0.0.1/mcp"), ""}, {at("http://[::1]/"), ""},
		{at("https://example.org/mcp"), ""}, {at("https://u:p@example.org/mcp"), "user name or password"}, {at("https://example.org/?k=" + token), "looks like a token"},
		{stdio("node", "/opt/server.js"), ""},
	} {
		got := Unusual(c.def, "")
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%+v: %q", c.def, got)
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
			t.Errorf("%+v: %q, want %q", c.def, got, c.want)
		}
		if strings.Contains(strings.Join(got, " "), token) {
			t.Errorf("%+v: a token is shown: %q", c.def, got)
		}
	}
}

func TestUnusualFiles(t *testing.T) {
	root := checkout(t, map[string]string{"s.js": "1", "node_modules/.bin/pkg": "1"})
	if got := Unusual(clientconfig.Server{Command: "node", Args: []string{"s.js"}}, root); len(got) != 1 || !strings.Contains(got[0], "files of the project: s.js") {
		t.Errorf("%q", got)
	}
	if got := Unusual(clientconfig.Server{Command: "npx", Args: []string{"-y", "pkg@1"}}, root); len(got) != 1 || !strings.Contains(got[0], "own copy node_modules/.bin/pkg") {
		t.Errorf("%q", got)
	}
	if runtime.GOOS != "windows" {
		must(t, os.Symlink("/bin/sh", filepath.Join(root, "py")))
		if got := Unusual(clientconfig.Server{Command: "./py"}, root); len(got) != 1 || !strings.Contains(got[0], "link out of the project to /bin/sh") {
			t.Errorf("%q", got)
		}
	}
}

func TestDescribe(t *testing.T) {
	const planted = "Zq7PlantedSecret91"
	written := clientconfig.Server{
		Command: "node", Args: []string{"x.js", "--key", "${KEY}", "a\nb\x1b[2J"}, Env: map[string]string{"B": planted, "A": "${X}"}, Forward: []string{"F", "A"},
		Headers: map[string]string{"H": planted}, Dir: "sub", Source: clientconfig.Source{File: "/p/.mcp.json"},
		URL: "https://u:" + planted + "@h/?q=" + planted,
	}
	expanded := written
	expanded.Args = []string{"x.js", "--key", planted, "a\nb"}
	d := Describe(written, expanded, "/p", func(name string) (string, error) { return "/usr/bin/" + name, nil })
	if d.Binary != "/usr/bin/node" || d.CWD != filepath.Join("/p", "sub") || d.File != "/p/.mcp.json" {
		t.Errorf("%+v", d)
	}
	if want := []string{"node", "x.js", "--key", "${KEY}", `a\nb[2J`}; !slices.Equal(d.Argv, want) {
		t.Errorf("argv %q, want %q", d.Argv, want)
	}
	if !slices.Equal(d.Env, []string{"A", "B", "F"}) || !slices.Equal(d.Headers, []string{"H"}) {
		t.Errorf("names %q %q", d.Env, d.Headers)
	}
	all := strings.Join(slices.Concat(d.Argv, d.Env, d.Headers, d.Unusual, []string{d.URL, d.Binary, d.CWD}), " ")
	if strings.Contains(all, planted) {
		t.Errorf("a secret is shown: %s", all)
	}
	d = Describe(written, expanded, "/p", func(string) (string, error) { return "", errors.New("node is not in PATH") })
	if d.Binary != "" || d.Missing != "node is not in PATH" {
		t.Errorf("%+v", d)
	}
}
