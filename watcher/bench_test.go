package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// claudeFile is a ~/.claude.json of that many bytes: histories of projects, with
// the servers between them.
func claudeFile(size int) string {
	var b strings.Builder
	b.Grow(size + 1000)
	b.WriteString(`{"numStartups": 1, "mcpServers": {"a": {"command": "run-a"}}, "projects": {`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `"/home/u/p%d": {"history": [{"display": "%s", "n": %d}], "mcpServers": {}},`, i, strings.Repeat("word \\\"quoted\\\" ", 60), i)
	}
	b.WriteString(`"/end": {}}}`)
	return b.String()
}

// quiet is a loop without goroutines of its own, after its first scan.
func quiet(b *testing.B, w *world, projects ...string) *loop {
	b.Helper()
	o := Options{Env: clientconfig.Env{GOOS: "linux", Home: w.home}, ConfigFile: w.path("toolsd/config.json"),
		ManagedFile: w.path("managed/config.json"), Projects: projects}
	done := make(chan struct{})
	l := newLoop(New(o), done)
	b.Cleanup(func() { close(done); l.finish() })
	l.scan(retrace)
	return l
}

// BenchmarkRescan is a comparison that finds nothing new, with the user's files
// alone, one of them 30 MB, and with as many projects as there can be.
func BenchmarkRescan(b *testing.B) {
	for _, projects := range []int{0, 3, maxProjects} {
		for name, how := range map[string]depth{"events": compare, "poll": retrace} {
			b.Run(fmt.Sprintf("projects=%d/%s", projects, name), func(b *testing.B) {
				w := worldFor(b)
				w.write(".claude.json", claudeFile(30<<20))
				hourAgo := time.Now().Add(-time.Hour)
				if err := os.Chtimes(w.path(".claude.json"), hourAgo, hourAgo); err != nil {
					b.Fatal(err)
				}
				for _, loc := range clientconfig.UserFiles(clientconfig.Env{GOOS: "linux", Home: w.home})[:30] {
					if within(loc.Path, w.home) && !loc.Glob && filepath.Base(loc.Path) != ".claude.json" && strings.HasSuffix(loc.Path, ".json") {
						w.write(loc.Path, mcp(loc.Client))
					}
				}
				var roots []string
				for i := range projects {
					w.write(fmt.Sprintf("p%d/.mcp.json", i), mcp("x"))
					roots = append(roots, w.path(fmt.Sprintf("p%d", i)))
				}
				l := quiet(b, w, roots...)
				for b.Loop() {
					l.scan(how)
				}
				b.ReportMetric(float64(len(l.files)), "files")
			})
		}
	}
}

// BenchmarkBigFile is an edit of a 30 MB ~/.claude.json that means nothing.
func BenchmarkBigFile(b *testing.B) {
	w := worldFor(b)
	text := claudeFile(30 << 20)
	w.write(".claude.json", text)
	l := quiet(b, w)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		w.write(".claude.json", strings.Replace(text, `"numStartups": 1`, fmt.Sprintf(`"numStartups": %d`, i+2), 1))
		b.StartTimer()
		l.scan(compare)
	}
}

// BenchmarkForeignEvent is what one event in a busy home directory costs.
func BenchmarkForeignEvent(b *testing.B) {
	w := worldFor(b)
	l := quiet(b, w)
	l.linked = true
	l.watch(compare)
	path := w.path(".bash_history")
	for b.Loop() {
		if len(l.interest.of(path)) > 0 {
			b.Fatal("the event concerns a file")
		}
	}
}

// BenchmarkVisible is asked for every project server of every request.
func BenchmarkVisible(b *testing.B) {
	w := worldFor(b)
	cwd, root := w.path("p/q/r"), w.path("p")
	w.mkdir(cwd)
	for b.Loop() {
		visible(cwd, root, w.home)
	}
}
