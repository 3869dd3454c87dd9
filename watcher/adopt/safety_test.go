package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

type server = clientconfig.Server

// TestMain is also the program that is killed: it adopts or releases in a home
// directory and ends at a step.
func TestMain(m *testing.M) {
	if home := os.Getenv("ADOPT_TEST_HOME"); home != "" {
		var at int
		fmt.Sscan(os.Getenv("ADOPT_TEST_STEP"), &at)
		n := 0
		step = func(string) {
			if n++; n == at {
				os.Exit(9) // no deferred call runs, as in a kill
			}
		}
		s := New(worldIn(home))
		plan := s.Adopt
		if os.Getenv("ADOPT_TEST_VERB") == "release" {
			plan = s.Release
		}
		p, err := plan("opencode")
		if err == nil {
			err = s.Apply(p)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Print("steps ", n)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killed runs a verb in a process of its own that ends at a step. done says that
// the verb came to its end before that, in so many steps.
func killed(t *testing.T, home, verb string, at int) (steps int, done bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ADOPT_TEST_HOME="+home, "ADOPT_TEST_VERB="+verb, fmt.Sprint("ADOPT_TEST_STEP=", at))
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case err == nil:
		if _, err := fmt.Sscanf(string(out), "steps %d", &steps); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return steps, true
	case errors.As(err, &ended) && ended.ExitCode() == 9:
		return 0, false
	}
	t.Fatalf("%s: %v\n%s", verb, err, out)
	return 0, false
}

const (
	fileA = ".config/opencode/opencode.json"
	fileB = ".config/opencode/opencode.jsonc"
	textA = "{\n  // A\n  \"mcp\": {\n    \"one\": { \"type\": \"local\", \"command\": [\"one\"], \"note\": \"x\" }, // first\n    \"two\": { \"type\": \"remote\", \"url\": \"https://two.example\" }\n  }\n}\n"
	textB = "{\n  \"mcp\": {\n    \"three\": { \"type\": \"local\", \"command\": [\"three\"] },\n  },\n}\n"
	textC = "{\n  // mine\n  \"pinned\": []\n}\n"
)

func killWorld(t *testing.T) *machine {
	m := newMachine(t)
	m.write(fileA, textA)
	m.write(fileB, textB)
	m.write(".config/toolsd/config.json", textC)
	return m
}

// nothingLost checks that every file is whole and every server in some place.
func (m *machine) nothingLost(when string) {
	m.t.Helper()
	have := map[string]bool{}
	for name := range m.configServers() {
		have[name] = true
	}
	for _, f := range []string{fileA, fileB} {
		for name := range m.servers("opencode", f) {
			have[name] = true
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		if !have[name] {
			m.t.Errorf("%s: %s is in no file", when, name)
		}
	}
}

func TestKilledAtEveryStep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths of the table are those of Linux")
	}
	clean := killWorld(t)
	clean.adopt("opencode")
	// ready is a world in which the verb has something to do, and what file A holds
	// when all is undone.
	ready := func(t *testing.T, verb string) (m *machine, wantA string) {
		m = killWorld(t)
		if verb != "adopt" {
			m.adopt("opencode")
		}
		if verb == "merge" {
			m.edit(fileA, "// A", "// B")
			return m, strings.Replace(textA, "// A", "// B", 1)
		}
		return m, textA
	}
	points := 0
	for _, verb := range []string{"adopt", "release", "merge"} {
		run := strings.Replace(verb, "merge", "release", 1)
		whole, _ := ready(t, verb)
		steps, done := killed(t, whole.home, run, 0)
		if !done || steps < 6 {
			t.Fatalf("%s has %d steps", verb, steps)
		}
		points += steps
		for at := 1; at <= steps; at++ {
			t.Run(fmt.Sprintf("%s at step %d", verb, at), func(t *testing.T) {
				t.Parallel()
				m, wantA := ready(t, verb)
				if _, done := killed(t, m.home, run, at); done {
					t.Fatal("it came to its end")
				}
				m.nothingLost("killed")
				copied := machineIn(t, t.TempDir())
				if err := os.CopyFS(copied.home, os.DirFS(m.home)); err != nil {
					t.Fatal(err)
				}
				relocate(t, copied.home, m.home)
				// Once more the other way round, then all the way back.
				if verb == "adopt" {
					m.adopt("opencode")
					equal(t, "adopted again: A", clean.text(fileA), m.text(fileA))
					equal(t, "adopted again: B", clean.text(fileB), m.text(fileB))
					if len(m.configServers()) != 3 {
						t.Errorf("adopted again: %s", m.config())
					}
				}
				for i, n := range []*machine{m, copied} {
					n.release("opencode")
					when := fmt.Sprintf("released (%d)", i)
					equal(t, when+": A", wantA, n.text(fileA))
					equal(t, when+": B", textB, n.text(fileB))
					equal(t, when+": config.json", textC, n.config())
				}
				leftovers(t, m.home)
			})
		}
	}
	if points < 20 {
		t.Errorf("only %d points", points)
	}
}

// relocate makes the manifests of a copied home speak of the copy.
func relocate(t *testing.T, home, old string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(home, "state/adopt/*/*/manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(strings.ReplaceAll(string(data), old, home)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// leftovers reports files that were staged and stayed.
func leftovers(t *testing.T, home string) {
	t.Helper()
	_ = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".toolsd-new") {
			t.Errorf("%s is left", path)
		}
		return nil
	})
}

// at does something at a step of the present process.
func at(t *testing.T, name string, do func()) {
	t.Helper()
	old := step
	step = func(s string) {
		if s == name {
			step = old
			do()
		}
	}
	t.Cleanup(func() { step = old })
}

func TestAFileThatChangesInBetweenIsLeft(t *testing.T) {
	const other = `{"mcp": {"x": {"type": "local", "command": ["x"]}}}`
	for _, moment := range []string{"plan", "staged", "backup", "written"} {
		m := killWorld(t)
		p, err := m.s.Adopt("opencode")
		if err != nil {
			t.Fatal(err)
		}
		change := func() { m.write(fileA, other) }
		if moment == "plan" {
			change()
		} else {
			at(t, moment, change)
		}
		err = m.s.Apply(p)
		if _, ok := errors.AsType[*ChangedError](err); !ok || p.Status != Failed {
			t.Errorf("%s: %v, %s", moment, err, p.Status)
		}
		equal(t, moment+": A", other, m.text(fileA))
		equal(t, moment+": B", textB, m.text(fileB))
		equal(t, moment+": config.json", textC, m.config())
		leftovers(t, m.home)
		// And nothing is thought to be adopted.
		if r := m.release("opencode"); moment != "plan" && m.text(fileA) != other {
			t.Errorf("%s: %+v", moment, r.Client)
		}
		m.adopt("opencode")
		if len(m.configServers()) != 2 {
			t.Errorf("%s: %s", moment, m.config())
		}
	}
}

// A client that writes the file right behind us is found out, and the servers
// stay where they can be found.
func TestAClientThatRewritesTheFileRightAfter(t *testing.T) {
	m := killWorld(t)
	p, err := m.s.Adopt("opencode")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	old := step
	defer func() { step = old }()
	step = func(s string) {
		if s == "written, not checked" {
			if n++; n == 2 { // the first is config.json
				m.write(fileA, strings.Replace(m.text(fileA), "// A", "// by the client", 1))
			}
		}
	}
	if err := m.s.Apply(p); err == nil || !strings.Contains(err.Error(), "right after") {
		t.Fatal(err)
	}
	step = old
	m.nothingLost("rewritten")
	m.release("opencode")
	equal(t, "A", strings.Replace(textA, "// A", "// by the client", 1), m.text(fileA))
	equal(t, "config.json", textC, m.config())
}

func TestLinksAndModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	m := newMachine(t)
	m.write("dotfiles/cursor.json", cursorFile)
	if err := os.Chmod(m.path("dotfiles/cursor.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	m.write("dotfiles/toolsd.json", textC)
	for link, target := range map[string]string{".cursor/mcp.json": "dotfiles/cursor.json", ".config/toolsd/config.json": "dotfiles/toolsd.json"} {
		if err := os.MkdirAll(filepath.Dir(m.path(link)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(m.path(target), m.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		for _, link := range []string{".cursor/mcp.json", ".config/toolsd/config.json"} {
			if info, err := os.Lstat(m.path(link)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("%s: %s is no link any more", when, link)
			}
		}
		if info, err := os.Stat(m.path("dotfiles/cursor.json")); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v", when, info.Mode())
		}
	}
	m.adopt("cursor")
	check("adopted")
	if !strings.Contains(m.text("dotfiles/cursor.json"), "toolsd") || !strings.Contains(m.text("dotfiles/toolsd.json"), "notes") {
		t.Error("the targets were not written")
	}
	m.release("cursor")
	check("released")
	equal(t, "the target", cursorFile, m.text("dotfiles/cursor.json"))
	equal(t, "the target", textC, m.text("dotfiles/toolsd.json"))

	if err := os.Remove(m.path("dotfiles/cursor.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.s.Adopt("cursor"); err == nil || !strings.Contains(err.Error(), "link to a file that does not exist") {
		t.Errorf("%v", err)
	}
}

func TestOwnerIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	m := newMachine(t)
	m.write(".cursor/mcp.json", cursorFile)
	if err := os.Chown(m.path(".cursor/mcp.json"), 1234, 2345); err != nil {
		t.Fatal(err)
	}
	m.adopt("cursor")
	info, err := os.Stat(m.path(".cursor/mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	if uid, gid, ok := owner(info); !ok || uid != 1234 || gid != 2345 || info.Mode().Perm() != 0o644 {
		t.Errorf("%d:%d %v", uid, gid, info.Mode())
	}
}

func TestReadOnlyFilesAreRefused(t *testing.T) {
	m := killWorld(t)
	if err := os.Chmod(m.path(fileB), 0o444); err != nil {
		t.Fatal(err)
	}
	before := tree(t, m.path(".config"))
	p, err := m.s.Adopt("opencode")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*ReadOnlyError](m.s.Apply(p)); !ok {
		t.Errorf("%+v", p.Client)
	}
	equal(t, "the files", before, tree(t, m.path(".config")))
}

func TestTwoAtOnce(t *testing.T) {
	m := killWorld(t)
	p, err := m.s.Adopt("opencode")
	if err != nil {
		t.Fatal(err)
	}
	at(t, "backup", func() {
		q, err := New(m.s.World).Adopt("opencode")
		if err != nil {
			t.Error(err)
			return
		}
		if err := New(m.s.World).Apply(q); err == nil || !strings.Contains(err.Error(), "another adopt or release") {
			t.Errorf("%v", err)
		}
	})
	if err := m.s.Apply(p); err != nil {
		t.Error(err)
	}
}
