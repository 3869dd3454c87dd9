package platform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerSuffix is of the files that hold a container's id.
const containerSuffix = ".cid"

// clientSuffix is of the files beside those that say which client to ask.
const clientSuffix = ".client"

// KillableContainer makes `docker run` stoppable: the client that is started is
// only a remote control, and killing it leaves the container. When argv is a run
// of docker, podman or nerdctl, argv2 also writes the container's id to a file
// in dir, and cleanup, called once the client is gone, ends the container and
// removes the file. For other commands argv2 is argv and cleanup does nothing.
// env is what the client runs with; empty: this process's. What a daemon that was
// killed could not clean up is left for SweepContainers.
func KillableContainer(argv []string, dir string, env ...string) (argv2 []string, cleanup func(context.Context)) {
	none := func(context.Context) {}
	run, ok := containerRun(argv)
	if !ok {
		return argv, none
	}
	// An id file of the entry's own is read, not replaced: two are refused.
	file, theirs := givenCIDFile(argv[run+1:])
	argv2 = argv
	if !theirs {
		file = filepath.Join(dir, rand.Text()+containerSuffix) // the client refuses a file that exists
		argv2 = slices.Insert(slices.Clone(argv), run+1, "--cidfile", file)
	}
	// Options before "run", such as --context, choose the engine to talk to.
	client := slices.Clone(argv[:run])
	if n := len(client); client[n-1] == "container" {
		client = client[:n-1]
	}
	if theirs {
		return argv2, func(ctx context.Context) { killContainer(ctx, client, file, env) }
	}
	if data, err := json.Marshal(client); err == nil {
		// The server may be the first of all: then there is no such directory yet.
		_ = os.MkdirAll(dir, 0o700)
		_ = writeAtomic(file+clientSuffix, data, 0o600, false) // without it the sweep misses this one
	}
	return argv2, func(ctx context.Context) {
		killContainer(ctx, client, file, env)
		os.Remove(file)
		os.Remove(file + clientSuffix)
	}
}

// SweepContainers ends the containers whose id files an earlier daemon left in
// dir, and reports how many there were. The caller holds the state lock and has
// called KillableContainer for nothing yet.
func SweepContainers(ctx context.Context, dir string, env ...string) (found int) {
	clients, err := filepath.Glob(filepath.Join(dir, "*"+containerSuffix+clientSuffix))
	if err != nil {
		return 0
	}
	for _, path := range clients {
		file := strings.TrimSuffix(path, clientSuffix)
		var client []string
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &client) == nil && len(client) > 0 {
			if killContainer(ctx, client, file, env) {
				found++
			}
		}
		os.Remove(file)
		os.Remove(path)
	}
	return found
}

// killContainer reports whether there was an id to kill.
func killContainer(ctx context.Context, client []string, file string, env []string) bool {
	id := containerID(file)
	if id == "" {
		return false
	}
	// An engine that does not answer holds nobody up for longer.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, client[0], append(slices.Clone(client[1:]), "kill", id)...)
	cmd.WaitDelay = time.Second
	cmd.Env = env
	_ = cmd.Run() // an error says that it is gone, which is the usual case
	return true
}

// containerRun is the index of "run" in a command line of a container client.
func containerRun(argv []string) (int, bool) {
	if len(argv) < 2 {
		return 0, false
	}
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(strings.ReplaceAll(argv[0], `\`, "/"))), ".exe")
	if name != "docker" && name != "podman" && name != "nerdctl" {
		return 0, false
	}
	for i := 1; i < len(argv); i++ {
		switch arg := argv[i]; {
		case arg == "run":
			return i, true
		case arg == "container" && i+1 < len(argv) && argv[i+1] == "run":
			return i + 1, true
		case strings.HasPrefix(arg, "-"):
			// These take their value as the next word unless it is in this one.
			if slices.Contains([]string{"-c", "--context", "-H", "--host", "--config", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
				"--connection", "--url", "--identity", "--root", "--runroot", "--storage-driver", "--storage-opt", "-n", "--namespace", "-a", "--address"}, arg) {
				i++
			}
		default:
			return 0, false
		}
	}
	return 0, false
}

// givenCIDFile looks at the options of run. It stops at "--"; what comes after
// the image belongs to the container, where such a word is unheard of.
func givenCIDFile(options []string) (string, bool) {
	for i, arg := range options {
		if arg == "--" {
			break
		}
		if arg == "--cidfile" && i+1 < len(options) {
			return options[i+1], true
		}
		if file, ok := strings.CutPrefix(arg, "--cidfile="); ok {
			return file, true
		}
	}
	return "", false
}

// containerID is what the file holds, when it is an id and nothing else.
func containerID(file string) string {
	data, err := os.ReadFile(file)
	if err != nil || len(data) > 256 {
		return ""
	}
	id := strings.TrimSpace(string(data))
	if id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}
