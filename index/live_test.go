package index

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
)

func parse(t testing.TB, server, raw string) *tool.Tool {
	t.Helper()
	p, err := tool.Parse(server, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func listingOf(t testing.TB, key, server string, names ...string) Listing {
	t.Helper()
	l := Listing{Key: key, Server: server}
	for _, n := range names {
		l.Tools = append(l.Tools, parse(t, server, fmt.Sprintf(`{"name":%q,"description":"Does <%s> & more"}`, n, n)))
	}
	return l
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "index.db")
	x := Open(Options{Path: path})
	if x.Problem() != "" {
		t.Fatal(x.Problem())
	}
	for _, l := range []Listing{listingOf(t, "a", "one", "export_gerber", "import_net"), listingOf(t, "b", "two", "export_gerber")} {
		if err := x.Replace(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Retain(func(key string) bool { return key != "b" }); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	y := Open(Options{Path: path})
	defer y.Close()
	if got := y.Snapshot().Keys(); len(got) != 1 || got[0] != "a" {
		t.Fatalf("keys after reopening: %q", got)
	}
	r := y.Snapshot().Search(Query{Text: "gerber", Explain: true})
	if len(r.Matches) == 0 || r.Matches[0].Tool.ID.String() != "one::export_gerber" {
		t.Fatalf("search after reopening: %+v", r)
	}
	l, _ := y.Snapshot().Listing("a")
	if want := `{"name":"export_gerber","description":"Does <export_gerber> & more"}`; string(l.Tools[0].Raw) != want {
		t.Errorf("raw after reopening: %s", l.Tools[0].Raw)
	}
}
