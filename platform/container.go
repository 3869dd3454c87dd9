package platform

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerSuffix is of the files that hold a container's id.
const containerSuffix = ".cid"

// KillableContainer makes `docker run` stoppable: the client that is started is
// only a remote control, and killing it leaves the container. When argv is a run
// of docker, podman or nerdctl, argv2 also writes the container's id to a file
// in dir, and cleanup, called once the client is gone, ends the container and
// removes the file. For other commands argv2 is argv and cleanup does nothing.
// env is what the client runs with; empty: this process's.
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
	global := argv[1:run]
	if n := len(global); n > 0 && global[n-1] == "container" {
		global = global[:n-1]
	}
	return argv2, func(ctx context.Context) {
		id := containerID(file)
		if !theirs {
			defer os.Remove(file)
		}
		if id == "" {
			return
		}
		// An engine that does not answer holds nobody up for longer.
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, argv[0], append(slices.Clone(global), "kill", id)...)
		cmd.WaitDelay = time.Second
		cmd.Env = env
		_ = cmd.Run() // an error says that it is gone, which is the usual case
	}
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
