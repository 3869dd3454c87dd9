package daemon

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/toolsd/toolsd/platform"
)

// environ is the login shell's environment, captured once in the background. A
// shell's start-up files may take seconds; only the starting of servers waits
// for them.
type environ struct {
	value   atomic.Pointer[platform.Environ]
	ready   chan struct{} // closed when value is there
	applied atomic.Bool   // the config files were expanded with it
}

func (e *environ) origin() string {
	if v := e.value.Load(); v != nil {
		return v.Origin
	}
	return ""
}

func (d *Daemon) captureEnviron(ctx context.Context) {
	captured, err := d.loginEnviron(ctx)
	if err != nil || ctx.Err() != nil { // it fails only with ctx
		return
	}
	if captured.Problem != "" {
		d.log.Warn("capturing the login shell's environment", "cause", captured.Problem)
	}
	if n := platform.SweepContainers(ctx, d.serversDir(), captured.ForChild(nil)...); n > 0 {
		d.log.Warn("ended containers that an earlier daemon left", "count", n)
	}
	d.environ.value.Store(&captured)
	close(d.environ.ready)
	d.log.Info("environment for servers", "origin", captured.Origin)
}

func (d *Daemon) loginEnviron(ctx context.Context) (platform.Environ, error) {
	base := d.o.Environ
	if base == nil {
		base = os.Environ
	}
	return d.keeper.LoginEnviron(ctx, base) // a start-up file that hangs must not outlive the daemon
}

// refreshEnviron captures the environment again: a command that was not found
// may have been installed since. A shell that does not answer now, and did before,
// takes nothing away from the servers.
func (d *Daemon) refreshEnviron(ctx context.Context) (platform.Environ, error) {
	captured, err := d.loginEnviron(ctx)
	if err != nil {
		return captured, err
	}
	if old := d.environ.value.Load(); captured.Problem != "" && old != nil && old.Problem == "" {
		d.log.Warn("capturing the login shell's environment again; what it was stays", "cause", captured.Problem)
		return *old, nil
	}
	d.environ.value.Store(&captured)
	return captured, nil
}

// readEnvironAgain captures the environment again and expands the config files
// with it: a variable that an entry needs may have been set since.
func (d *Daemon) readEnvironAgain(ctx context.Context) error {
	if _, err := d.refreshEnviron(ctx); err != nil {
		return err
	}
	if err := d.watcher.Refresh(ctx); err != nil {
		return err
	}
	d.reconcileNow(ctx)
	return ctx.Err()
}

// waitEnviron is what a starting server uses.
func (d *Daemon) waitEnviron(ctx context.Context) (platform.Environ, error) {
	select {
	case <-d.environ.ready:
		return *d.environ.value.Load(), nil
	case <-ctx.Done():
		return platform.Environ{}, context.Cause(ctx)
	}
}

// lookupEnv is what the variables in config files are expanded with.
func (d *Daemon) lookupEnv(name string) (string, bool) {
	if v := d.environ.value.Load(); v != nil {
		s, ok := v.Vars[name]
		return s, ok
	}
	return os.LookupEnv(name)
}
