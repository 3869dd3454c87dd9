package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolsd/toolsd/daemon/session"
	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/daemon/upstream"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// worldOf is a world with one server, open, of that name.
func worldOf(key, name string) *world {
	return newWorld([]*server{{Server: watcher.Server{Server: clientconfig.Server{Name: name}, Key: key}}})
}

func parsed(t testing.TB, server, raw string) *tool.Tool {
	t.Helper()
	one, err := tool.Parse(server, json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func TestARenamedServerLeavesSnapshotsAlone(t *testing.T) {
	d := New(Options{})
	d.index = index.Open(index.Options{})
	if err := d.index.Replace(index.Listing{Key: "k", Server: "old", Tools: []*tool.Tool{parsed(t, "old", `{"name":"cut"}`)}}); err != nil {
		t.Fatal(err)
	}
	before := d.index.Snapshot()
	d.rename(worldOf("k", "new"))
	for _, s := range []struct {
		snapshot *index.Snapshot
		want     string
	}{{before, "old"}, {d.index.Snapshot(), "new"}} {
		if l, _ := s.snapshot.Listing("k"); l.Server != s.want || len(l.Tools) != 1 || l.Tools[0].Server != s.want {
			t.Errorf("%s lists %v, want %s", l.Server, l.Tools[0].ID, s.want)
		}
	}
}

// TestAListThatCrossesAReconcile is about a list that was on its way when its
// server was renamed: that round found no tools to rename.
func TestAListThatCrossesAReconcile(t *testing.T) {
	dir := t.TempDir()
	d := New(Options{Dirs: platform.Dirs{State: dir}})
	d.names, d.trust = tool.NewNames(nil), trust.Open(filepath.Join(dir, "trust.json"), d.log)
	d.settle = time.NewTimer(time.Hour)
	defer d.settle.Stop()
	crosses := func() {}
	d.index = index.Open(index.Options{Expose: func(id tool.ID) string {
		crosses()
		return d.names.Of(id)
	}})
	list := func() bool {
		d.world.Store(worldOf("k", "old"))
		d.onListing("k", upstream.Listing{Tools: []*tool.Tool{parsed(t, "old", `{"name":"cut"}`)}})
		select {
		case <-d.wake:
			return true
		default:
			return false
		}
	}
	if list() {
		t.Error("a list by itself makes another world")
	}
	crosses = func() { d.world.Store(worldOf("k", "new")) }
	if !list() {
		t.Error("the tools of a renamed server keep the old name")
	}
	crosses = func() { d.world.Store(newWorld(nil)) }
	if !list() {
		t.Error("the tools of a removed server stay in the index")
	}
}

func TestNamesAreKept(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	d := New(Options{Dirs: platform.Dirs{State: state}})
	d.names = tool.NewNames(nil)
	kept := func() map[string]string {
		names, err := readNames(filepath.Join(state, "names.json"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	// What could not be written is written later, though nothing is new then.
	d.names.Of(tool.ID{Server: "lab", Name: "first"})
	d.saveNames()
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	d.saveNames()
	if got := kept(); len(got) != 1 {
		t.Errorf("with a directory it has %v", got)
	}
	// Servers list at one time, and the last write has the names of all.
	for round := range 20 {
		var lists sync.WaitGroup
		for i := range 8 {
			lists.Go(func() {
				d.names.Of(tool.ID{Server: "lab", Name: fmt.Sprint(round, " ", i)})
				d.saveNames()
			})
		}
		lists.Wait()
		if got, want := len(kept()), d.names.Len(); got != want {
			t.Fatalf("the file has %d names of %d", got, want)
		}
	}
}

// TestActiveToolsOutliveAReadThatTakesItsTime has an agent hand over its tools to a
// daemon that has not read the config files yet.
func TestActiveToolsOutliveAReadThatTakesItsTime(t *testing.T) {
	project := filepath.Join(t.TempDir(), "p")
	d := New(Options{})
	d.index = index.Open(index.Options{})
	d.watcher = watcher.New(watcher.Options{Env: clientconfig.Env{Home: t.TempDir()}})
	cut := tool.ID{Server: "lab", Name: "cut"}
	s := &attached{Session: session.New(nil, []tool.ID{cut}, nil), d: d, mode: ipc.Search, request: ipc.AttachRequest{CWD: project}}
	read := func(of *watcher.Snapshot) bool {
		w := newWorld(nil)
		w.of, w.complete = of, of.Complete
		d.world.Store(w)
		if list := s.build(); len(list) != 0 {
			t.Errorf("listed before it is known: %v", list)
		}
		return slices.Contains(s.Active(), cut)
	}
	if !read(&watcher.Snapshot{}) {
		t.Error("what was active is lost before any file was read")
	}
	if !read(&watcher.Snapshot{Complete: true}) {
		t.Error("what was active is lost before the project was read")
	}
	parents := []string{}
	for dir := project; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		parents = append(parents, dir)
	}
	slices.Sort(parents)
	if read(&watcher.Snapshot{Complete: true, Projects: parents}) {
		t.Error("a tool whose server is gone stays active")
	}
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		noon := time.Date(begin.Year(), begin.Month(), begin.Day()+3, 12, 0, 0, 0, time.Local)
		time.Sleep(time.Until(noon))
		for at, want := range map[time.Time]string{
			noon.Add(-time.Minute): "11:59:00", noon.Add(time.Minute).UTC(): "12:01:00",
			noon.AddDate(0, 0, -1): noon.AddDate(0, 0, -1).Format("2006-01-02") + " 12:00:00",
		} {
			if got := clock(at); got != want {
				t.Errorf("%v is %s, want %s", at, got, want)
			}
		}
	})
}
