package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

func isStdio(def clientconfig.Server) bool {
	return def.Transport == clientconfig.Stdio || def.Transport == "" && def.Command != ""
}

// dial connects to a server and does the handshake. Nothing is left of a failed
// attempt.
func (t *Set) dial(ctx context.Context, s *server, def Server, onChanged func()) (*link, error) {
	s.notes.reset()
	s.stderr.forget()
	if t.opts.MayStart != nil {
		if err := t.opts.MayStart(def.Key); err != nil {
			return nil, err
		}
	}
	if isStdio(def.Def) {
		return t.run(ctx, s, def, onChanged)
	}
	env, err := t.opts.Environ(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the environment: %w", err)
	}
	check := func() { wish(s.check) }
	var first error
	if def.Def.Transport != clientconfig.SSE {
		c := newHTTPConn(t.web.client(env), def.Def, s.notes, onChanged, check)
		l, err := t.greet(ctx, s, c, def)
		if err == nil || def.Def.Transport == clientconfig.HTTP || !isOldServer(err) {
			return l, err
		}
		first = err
	}
	c, err := openSSE(ctx, t.web.client(env), def.Def, s.notes, onChanged)
	if err != nil {
		if first != nil && knowsNoSuch(err) && !knowsNoSuch(first) {
			err = first // it is no older server, and has said what is wrong
		}
		return nil, err
	}
	old := def
	old.Def.Protocol = "legacy" // the transport is older than any other protocol
	return t.greet(ctx, s, c, old)
}

func (t *Set) greet(ctx context.Context, s *server, c conn, def Server) (*link, error) {
	l, err := handshake(ctx, c, def.Def.Protocol, t.opts.Version)
	if err == nil {
		return l, nil
	}
	// An ended connection says more than the request that ended with it.
	if cause := c.side().cause(); cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	c.close(stop)
	var exit *exitError
	if p, ok := c.(*stdioConn); ok && !errors.As(err, &exit) {
		if said := p.said(); said != "" {
			err = fmt.Errorf("%w; stderr: %s", err, said)
		}
	}
	return nil, err
}

// run starts a server process.
func (t *Set) run(ctx context.Context, s *server, def Server, onChanged func()) (*link, error) {
	cmd, err := t.command(ctx, def)
	if err != nil {
		return nil, err
	}
	// docker run and its like leave a container behind when they are killed.
	ids := t.opts.LogDir
	if ids == "" {
		ids = os.TempDir()
	}
	argv, cleanup := platform.KillableContainer(append([]string{cmd.Path}, cmd.Args[1:]...), ids, cmd.Env...)
	cmd.Args = append(cmd.Args[:1], argv[1:]...)
	p, err := t.spawn(cmd)
	if err != nil {
		cleanup(ctx)
		return nil, fmt.Errorf("starting %s: %w", def.Def.Command, err)
	}
	stop := p.stop
	p.stop = func(ctx context.Context) {
		stop(ctx)
		cleanup(ctx)
	}
	s.stderr.mark("started, pid %d", p.pid)
	s.publish(func(st *Status) { st.PID = p.pid })
	return t.greet(ctx, s, newStdioConn(p, s.stderr, s.notes, onChanged), def)
}

// command resolves what a definition runs.
func (t *Set) command(ctx context.Context, def Server) (platform.Command, error) {
	env, err := t.opts.Environ(ctx)
	if err != nil {
		return platform.Command{}, fmt.Errorf("reading the environment: %w", err)
	}
	path, err := lookPath(env, def)
	var missing *platform.NotFoundError
	if errors.As(err, &missing) {
		// It may have been installed since the environment was captured.
		if fresh, err2 := t.refresh(ctx); err2 == nil {
			env = fresh
			path, err = lookPath(env, def)
		}
	}
	if err != nil {
		return platform.Command{}, err
	}
	own := maps.Clone(def.Def.Env)
	for _, name := range def.Def.Forward {
		if value := env.Get(name); value != "" {
			if own == nil {
				own = map[string]string{}
			}
			if _, set := own[name]; !set {
				own[name] = value
			}
		}
	}
	return platform.Command{
		Path: path, Args: append([]string{def.Def.Command}, def.Def.Args...),
		Env: env.ForChild(own), Dir: def.Dir, Label: def.Name,
	}, nil
}

// refreshEvery bounds how often the environment is captured anew, which runs the
// user's login shell: after an update of node all of a user's servers may miss
// their command at once.
const refreshEvery = 30 * time.Second

// refresher shares one fresh environment between those who ask for it.
type refresher struct {
	mu  sync.Mutex
	at  time.Time
	env platform.Environ
	err error
}

func (t *Set) refresh(ctx context.Context) (platform.Environ, error) {
	r := &t.fresh
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) > refreshEvery {
		r.env, r.err = t.opts.Refresh(ctx)
		if ctx.Err() == nil {
			r.at = time.Now()
		}
	}
	return r.env, r.err
}

// lookPath looks where the server itself would: its entry may set PATH.
func lookPath(env platform.Environ, def Server) (string, error) {
	for name, value := range def.Def.Env {
		if name == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(name, "PATH") {
			vars := maps.Clone(env.Vars)
			if vars == nil {
				vars = map[string]string{}
			}
			vars["PATH"] = value
			env = platform.Environ{Vars: vars, Origin: "the entry's own env"}
		}
	}
	return env.LookPath(def.Def.Command, def.Dir)
}

// start is how a Set starts a process, unless a test does.
func (t *Set) start(cmd platform.Command) (*child, error) {
	if t.opts.Starter == nil {
		return nil, errors.New("this process starts no servers")
	}
	p, err := t.opts.Starter.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &child{
		pid: p.PID, stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr, done: p.Done(),
		exit: func() string { return p.Exit().Text },
		stop: func(ctx context.Context) {
			if err := p.Stop(ctx); err != nil {
				t.opts.Log.Error("a server process is left", "name", cmd.Label, "error", err)
			}
		},
	}, nil
}
