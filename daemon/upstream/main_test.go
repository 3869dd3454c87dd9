package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolsd/toolsd/daemon/upstream/faultserver"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// The test binary is also the parent of server processes and the fault server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "keeper":
			os.Exit(platform.KeeperMain())
		case "fault":
			os.Exit(faultserver.Main(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen. It only ends tests
// that fail.
const patience = 30 * time.Second

// fixture is a running Set.
type fixture struct {
	*Set
	t      *testing.T
	logDir string
	end    func() // stops the set and waits for it; called at the end of the test anyway

	mu       sync.Mutex
	changed  chan struct{}
	listings map[string]Listing
	lists    map[string]int
}

func start(t *testing.T, o Options, servers ...Server) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{t: t, logDir: filepath.Join(dir, "servers"), changed: make(chan struct{}), listings: map[string]Listing{}, lists: map[string]int{}}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := platform.NewKeeper(platform.KeeperOptions{Executable: exe, Args: []string{"keeper"}, Journal: filepath.Join(dir, "journal")})
	if err != nil {
		t.Fatal(err)
	}
	o.Starter, o.LogDir = keeper, f.logDir
	f.hook(&o)
	f.Set = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	f.end = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(2 * runTimeout):
			t.Error("Run did not return")
		}
		stop, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		keeper.Close(stop)
	})
	t.Cleanup(f.end)
	f.Reconcile(servers)
	return f
}

// hook lets f see what happens, before what the test wants to.
func (f *fixture) hook(o *Options) {
	onListing, onStatus := o.OnListing, o.OnStatus
	o.OnListing = func(key string, l Listing) []*tool.Tool {
		f.mu.Lock()
		f.listings[key] = l
		f.lists[key]++
		f.mu.Unlock()
		f.wakeUp()
		if onListing != nil {
			return onListing(key, l)
		}
		return nil
	}
	o.OnStatus = func() {
		f.wakeUp()
		if onStatus != nil {
			onStatus()
		}
	}
}

func (f *fixture) wakeUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits until cond holds. It is asked again after every change, and now
// and then for what no change tells.
func (f *fixture) until(what string, cond func() bool) {
	f.t.Helper()
	late := time.After(patience)
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-late:
			var rest []string
			for key, st := range f.All() {
				if st.State != Ready && len(rest) < 5 {
					rest = append(rest, fmt.Sprintf("%s: %+v", key, st))
				}
			}
			f.t.Fatalf("waited in vain: %s; not ready: %s", what, strings.Join(rest, "\n"))
		}
	}
}

func (f *fixture) untilState(key, state string) Status {
	f.t.Helper()
	f.until(key+" is "+state, func() bool { return f.Status(key).State == state })
	return f.Status(key)
}

func (f *fixture) listing(key string) Listing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listings[key]
}

// untilDown waits until the server failed once, whether it was parked since or not.
func (f *fixture) untilDown(key string) Status {
	f.t.Helper()
	f.until(key+" is down", func() bool {
		st := f.Status(key)
		return st.State == Backoff || st.State == Failed
	})
	return f.Status(key)
}

// call calls a tool and returns the raw result.
func (f *fixture) call(key, name, arguments string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	return f.Call(ctx, key, Call{Tool: name, Arguments: json.RawMessage(arguments)})
}

// text is the text of a result of the fault server's.
func text(t *testing.T, raw json.RawMessage, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Content) != 1 {
		t.Fatalf("result %s: %v", raw, err)
	}
	return r.Content[0].Text
}

func (f *fixture) stats(key string) faultserver.Stats {
	f.t.Helper()
	raw, err := f.call(key, "stats", "")
	var s faultserver.Stats
	if err := json.Unmarshal([]byte(text(f.t, raw, err)), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// fault is a stdio server in that mode, whose key and name are the mode's.
func fault(mode string) Server {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	name, _, _ := strings.Cut(mode, "=")
	return Server{Key: name, Name: name, Def: clientconfig.Server{
		Name: name, Transport: clientconfig.Stdio, Command: exe, Args: []string{"fault", mode},
	}}
}

// catalog is the folder of real tool lists beside the checkout.
func catalog(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "catalog"))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the catalog of real tool lists is missing: %v", err)
		}
		t.Skip("no catalog of real tool lists beside the checkout")
	}
	return dir
}

func has(list []string, part string) bool {
	for _, s := range list {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

func find(tools []*tool.Tool, name string) *tool.Tool {
	for _, t := range tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*p/100]
}

// Call is Begin and the wait for what it is done with.
func (t *Set) Call(ctx context.Context, key string, c Call) (json.RawMessage, error) {
	come := make(chan answer, 1)
	t.Begin(ctx, key, c, func(result json.RawMessage, err error) { come <- answer{result, err} })
	a := <-come
	return a.result, a.err
}
