package trust

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

var quiet = slog.New(slog.DiscardHandler)

const (
	server = Subject("project server")
	other  = Subject("another server")
	mine   = Subject("user server")
	fp1    = Fingerprint("1111")
	fp2    = Fingerprint("2222")
)

// tempDir is in memory where it can be: the tests write some ten thousand files,
// each with two syncs.
func tempDir(t testing.TB) string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm")
	}
	return t.TempDir()
}

func storePath(t testing.TB) string { return filepath.Join(tempDir(t), "trust.json") }

func (s *Store) approveOne(subject Subject, fp Fingerprint, d Details) error {
	return s.Approve([]Approval{{subject, fp, d}}, false)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestApprovalSurvivesARestart(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	if s.Problem() != "" || s.Approved(server, fp1) || s.Barred(server) {
		t.Fatal("a first start must approve and revoke nothing, without a problem")
	}
	must(t, s.approveOne(server, fp1, Details{Root: "/b", Command: "node"}))
	must(t, s.approveOne(other, fp2, Details{Root: "/a"}))
	for _, s := range []*Store{s, Open(path, quiet)} {
		if !s.Approved(server, fp1) || s.Approved(server, fp2) || s.Approved(server, "") || s.Approved(mine, fp1) {
			t.Error("only the approved fingerprint of the approved server is approved")
		}
		if got := s.Projects(); !slices.Equal(got, []string{"/a", "/b"}) {
			t.Errorf("projects: %q", got)
		}
		if last, ok := s.Last(server); !ok || last.Command != "node" {
			t.Errorf("last: %v %v", last, ok)
		}
	}
	if runtime.GOOS != "windows" {
		for _, p := range []string{path, path + prevSuffix} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", p, info.Mode(), err)
			}
		}
	}
}

func TestRevocationHoldsForEveryScope(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{Command: "node"}))
	must(t, s.Revoke(server))
	must(t, s.Revoke(mine)) // never approved: user scope
	for _, s := range []*Store{s, Open(path, quiet)} {
		if s.Approved(server, fp1) || !s.Barred(server) || !s.Barred(mine) || s.Barred(other) {
			t.Error("both servers must be barred, and no other")
		}
		if !s.Revoked(server) || !s.Revoked(mine) || s.Revoked(other) {
			t.Error("the user took both back, and no other")
		}
		if last, ok := s.Last(server); !ok || last.Command != "node" {
			t.Error("what was approved before must stay to compare with")
		}
	}
	must(t, s.approveOne(mine, fp2, Details{}))
	if s.Barred(mine) || Open(path, quiet).Barred(mine) {
		t.Error("a new approval ends the revocation")
	}
}

// TestInvariant2NoProjectServerRunsBeforeItsPresentFingerprintWasApproved is
// invariant 2 at the level of the store: whatever the user did and in whatever
// order, and over restarts and losses of either file, Approved says yes only for
// the fingerprint of the latest approval that was not revoked.
func TestInvariant2NoProjectServerRunsBeforeItsPresentFingerprintWasApproved(t *testing.T) {
	dir := tempDir(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run), "trust.json")
		must(t, os.Mkdir(filepath.Dir(path), 0o700))
		s := Open(path, quiet)
		allowed, revoked := map[Subject]Fingerprint{}, map[Subject]bool{}
		subjects, prints := []Subject{"a", "b", "c"}, []Fingerprint{"1", "2", "3"}
		var history [][]byte // contents that the file had
		lost := false        // approvals may be fewer than the model's, never more
		check := func(rt *rapid.T) {
			for _, subject := range subjects {
				for _, fp := range prints {
					if got, want := s.Approved(subject, fp), allowed[subject] == fp; got != want && (got || !lost) {
						rt.Fatalf("approved(%s, %s) = %v, want %v", subject, fp, got, want)
					}
				}
				if revoked[subject] && !s.Barred(subject) {
					rt.Fatalf("the revocation of %s is gone", subject)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": check,
			"approve": func(rt *rapid.T) {
				subject, fp := rapid.SampledFrom(subjects).Draw(rt, "subject"), rapid.SampledFrom(prints).Draw(rt, "fp")
				must(t, s.approveOne(subject, fp, Details{}))
				allowed[subject] = fp
				delete(revoked, subject)
			},
			"revoke": func(rt *rapid.T) {
				subject := rapid.SampledFrom(subjects).Draw(rt, "subject")
				must(t, s.Revoke(subject))
				delete(allowed, subject)
				revoked[subject] = true
			},
			"restart": func(rt *rapid.T) { s = Open(path, quiet) },
			"remember": func(rt *rapid.T) {
				if data, err := os.ReadFile(path); err == nil {
					history = append(history, data)
				}
			},
			"put an older file back": func(rt *rapid.T) {
				if len(history) == 0 {
					return
				}
				must(t, os.WriteFile(path, rapid.SampledFrom(history).Draw(rt, "which"), 0o600))
				s, lost = Open(path, quiet), true
			},
			"damage": func(rt *rapid.T) {
				p := path + rapid.SampledFrom([]string{"", prevSuffix}).Draw(rt, "which")
				data, err := os.ReadFile(p)
				if err != nil || len(data) == 0 {
					return
				}
				data[rapid.IntRange(0, len(data)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
				must(t, os.WriteFile(p, data, 0o600))
				s, lost = Open(path, quiet), true
			},
		})
	})
}

func TestEveryDamageApprovesNothing(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{Command: "x"}))
	must(t, s.Revoke(mine))
	whole, err := os.ReadFile(path)
	must(t, err)
	check := func(what string, data []byte) {
		t.Helper()
		must(t, os.WriteFile(path, data, 0o600))
		s := Open(path, quiet)
		if s.Approved(server, fp1) {
			t.Fatalf("%s: approved", what)
		}
		if s.Problem() == "" || s.Hint() == "" {
			t.Fatalf("%s: no problem is told", what)
		}
		if !s.Barred(mine) {
			t.Fatalf("%s: a revocation is lost", what)
		}
		if s.Barred(other) {
			t.Fatalf("%s: a server of the user waits although all revocations are known", what)
		}
		if last, ok := s.Last(server); !ok || last.Command != "x" {
			t.Fatalf("%s: nothing to compare with", what)
		}
	}
	for n := range whole {
		check(fmt.Sprintf("truncated to %d bytes", n), whole[:n])
	}
	for i := range whole {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[i] ^= 1 << bit
			check(fmt.Sprintf("bit %d of byte %d", bit, i), data)
		}
	}
	check("longer", append(bytes.Clone(whole), '\n'))
	check("a newer format", []byte(`{"format":2,"sum":""}`))
	if p := Open(path, quiet).Problem(); !strings.Contains(p, "newer toolsd") {
		t.Errorf("problem: %s", p)
	}
	must(t, os.Remove(path))
	if s := Open(path, quiet); s.Approved(server, fp1) || !s.Barred(mine) || s.Problem() == "" {
		t.Error("a removed file must be noticed by its copy")
	}
}

func TestBothFilesDamagedMakesEveryServerWait(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.WriteFile(path+prevSuffix, []byte("x"), 0o600))
	s = Open(path, quiet)
	if s.Approved(server, fp1) || !s.Barred(mine) || !s.Barred(server) {
		t.Error("everything must wait, user scope too")
	}
	if s.Revoked(mine) || s.Revoked(server) {
		t.Error("what waits because the file is lost was taken back by nobody")
	}
	must(t, s.approveOne(mine, fp2, Details{}))
	for _, s := range []*Store{s, Open(path, quiet)} {
		if s.Barred(mine) || !s.Approved(mine, fp2) {
			t.Error("what is approved then does not wait any more")
		}
		if !s.Barred(other) || s.Problem() == "" {
			t.Error("the rest waits on, also after a restart, and that is said")
		}
	}
	must(t, s.Approve([]Approval{{server, fp2, Details{}}}, false))
	if !s.Barred(other) || s.Problem() == "" {
		t.Error("an answer to some of them ends it")
	}
	must(t, s.Approve([]Approval{{server, fp1, Details{}}}, true))
	for _, s := range []*Store{s, Open(path, quiet)} {
		if s.Barred(other) || s.Problem() != "" || !s.Approved(server, fp1) {
			t.Error("the answer to all of them ends it")
		}
	}
	if _, err := os.Stat(path + ".unfit"); err != nil {
		t.Errorf("the damaged file was not kept: %v", err)
	}
}

func TestTheLossIsToldUntilThePersonApproves(t *testing.T) {
	path := storePath(t)
	must(t, Open(path, quiet).approveOne(server, fp1, Details{}))
	must(t, os.Truncate(path, 10))
	s := Open(path, quiet)
	s.NoteTools(mine, []*tool.Tool{sampleTool(t, "a", "does a")}) // the daemon's own write
	if s = Open(path, quiet); s.Problem() == "" {
		t.Error("a write that no person asked for ended the report")
	}
	must(t, s.approveOne(server, fp1, Details{}))
	if s.Problem() != "" || Open(path, quiet).Problem() != "" {
		t.Error("still told after the approval")
	}
}

func TestUnfitFilesAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links, owners and modes of Unix")
	}
	setups := map[string]func(t *testing.T, path string){
		"a link to the very same content": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink(path+".real", path))
		},
		"a dangling link": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Symlink(path+".nowhere", path))
		},
		"a directory": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		},
		"readable by all":   func(t *testing.T, path string) { must(t, os.Chmod(path, 0o644)) },
		"writable by group": func(t *testing.T, path string) { must(t, os.Chmod(path, 0o620)) },
		"of another user": func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(path, 65534, 65534))
		},
		"too large": func(t *testing.T, path string) { must(t, os.Truncate(path, maxFile+1)) },
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			path := storePath(t)
			must(t, Open(path, quiet).approveOne(server, fp1, Details{}))
			setup(t, path)
			s := Open(path, quiet)
			if s.Approved(server, fp1) || s.Problem() == "" {
				t.Fatalf("approved, or not told: %q", s.Problem())
			}
			must(t, s.approveOne(server, fp2, Details{}))
			info, err := os.Lstat(path)
			must(t, err)
			if !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 || !Open(path, quiet).Approved(server, fp2) {
				t.Errorf("the next approval did not put a fit file there: %v", info.Mode())
			}
			if real, err := os.ReadFile(path + ".real"); err == nil && bytes.Contains(real, []byte(fp2)) {
				t.Error("wrote through the link")
			}
		})
	}
}

// TestReadWritesNothing compares what Read and Open find, in a directory that stays
// as it is.
func TestReadWritesNothing(t *testing.T) {
	path := storePath(t)
	files := func() map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(filepath.Dir(path))
		must(t, err)
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
			must(t, err)
			out[e.Name()] = string(data)
		}
		return out
	}
	read := func() *Decisions {
		t.Helper()
		before := files()
		d := Read(path)
		if !maps.Equal(before, files()) {
			t.Error("reading wrote something")
		}
		return d
	}
	if d := read(); d.Approved(server, fp1) || d.Barred(mine) {
		t.Error("where there is no file, something is decided")
	}
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	must(t, s.Revoke(mine))
	must(t, s.SetRules(Rules{Ask: true}))
	if d := read(); !d.Approved(server, fp1) || !d.Revoked(mine) || d.Barred(other) || !d.Rules().Ask {
		t.Error("what was decided is not what is read")
	}
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	if d := read(); d.Approved(server, fp1) || !d.Barred(mine) || d.Barred(other) {
		t.Error("a damaged file approves, or a revocation is lost with it")
	}
	must(t, os.WriteFile(path+prevSuffix, nil, 0o600))
	if d := read(); !d.Barred(other) {
		t.Error("with both files lost, a server does not wait")
	}
}

func TestRevokeThenRollback(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	old, err := os.ReadFile(path)
	must(t, err)
	must(t, s.Revoke(server))
	must(t, os.WriteFile(path, old, 0o600))
	s = Open(path, quiet)
	if s.Approved(server, fp1) || !s.Barred(server) || !strings.Contains(s.Problem(), "older") {
		t.Errorf("putting the older file back opened what was revoked: %q", s.Problem())
	}
	// The same for an approval that another one replaced.
	must(t, s.approveOne(server, fp1, Details{}))
	old, err = os.ReadFile(path)
	must(t, err)
	must(t, s.approveOne(server, fp2, Details{}))
	must(t, os.WriteFile(path, old, 0o600))
	if s = Open(path, quiet); s.Approved(server, fp1) {
		t.Error("putting the older file back opened what was replaced")
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("root and Windows can write there")
	}
	path := storePath(t)
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	must(t, os.Chmod(filepath.Dir(path), 0o500))
	t.Cleanup(func() { os.Chmod(filepath.Dir(path), 0o700) })
	checkUnwritable(t, s, path)
}

// TestUnwritable takes the directory away, which fails every write whoever runs
// the test.
func TestUnwritable(t *testing.T) {
	path := filepath.Join(tempDir(t), "state", "trust.json")
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	gone := filepath.Dir(path) + ".gone"
	must(t, os.Rename(filepath.Dir(path), gone))
	checkUnwritable(t, s, path)
	must(t, os.Rename(gone, filepath.Dir(path)))
	must(t, s.Sync())
	if s.Problem() != "" {
		t.Errorf("the problem stays after it was written: %s", s.Problem())
	}
	if s = Open(path, quiet); s.Approved(server, fp1) || !s.Barred(server) {
		t.Error("Sync did not write the revocation")
	}
}

func checkUnwritable(t *testing.T, s *Store, path string) {
	t.Helper()
	if err := s.approveOne(other, fp2, Details{}); err == nil || s.Approved(other, fp2) {
		t.Errorf("an approval that could not be written was given (%v)", err)
	}
	if err := s.ApproveTool(server, sampleTool(t, "x", "y")); err == nil {
		t.Error("an approval of a tool that could not be written was given")
	}
	err := s.Revoke(server)
	if err == nil || !strings.Contains(err.Error(), "only until the daemon ends") {
		t.Errorf("revoking without a disk says %v", err)
	}
	if s.Approved(server, fp1) || !s.Barred(server) {
		t.Error("the revocation must hold in memory at once")
	}
	if s.Problem() == "" || s.Hint() == "" {
		t.Error("nothing tells that the revocation is not on the disk")
	}
}

// TestFullDisk uses a real one of 64 KB.
func TestFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux to mount a small disk")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mounting a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	path := filepath.Join(dir, "trust.json")
	s := Open(path, quiet)
	must(t, s.approveOne(server, fp1, Details{}))
	must(t, s.approveOne(other, fp2, Details{}))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if err := s.approveOne(mine, fp1, Details{}); err == nil || s.Approved(mine, fp1) || Open(path, quiet).Approved(mine, fp1) {
		t.Errorf("an approval was given on a full disk: %v", err)
	}
	if again := Open(path, quiet); !again.Approved(server, fp1) || !again.Approved(other, fp2) || again.Problem() != "" {
		t.Errorf("a refused approval cost the others: %q", again.Problem())
	}
	if err := s.Revoke(server); err == nil || !strings.Contains(err.Error(), "the next start will approve nothing") {
		t.Errorf("revoking on a full disk says %v", err)
	}
	if s.Approved(server, fp1) || !s.Barred(server) || !s.Approved(other, fp2) || s.Problem() == "" {
		t.Error("in memory, exactly that server must be revoked, and the problem told")
	}
	if again := Open(path, quiet); again.Approved(server, fp1) || again.Approved(other, fp2) || !again.Barred(server) || again.Problem() == "" {
		t.Error("a start on the full disk must let nothing run")
	}
	must(t, os.Remove(filler))
	must(t, s.Sync())
	for _, s := range []*Store{s, Open(path, quiet)} {
		if s.Approved(server, fp1) || !s.Barred(server) || !s.Approved(other, fp2) || s.Problem() != "" {
			t.Errorf("with room again, the state is not whole: %q", s.Problem())
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	one := sampleTool(t, "a", "does a")
	var wg sync.WaitGroup
	for g := range 4 {
		subject := Subject(fmt.Sprint("server ", g))
		wg.Go(func() {
			for i := range 15 {
				fp := Fingerprint(fmt.Sprint(i))
				if err := s.approveOne(subject, fp, Details{Root: "/p"}); err != nil {
					t.Error(err)
				}
				if !s.Approved(subject, fp) {
					t.Error("not approved after the approval returned")
				}
				s.NoteTools(subject, []*tool.Tool{one})
				if i%3 == 0 {
					if err := s.Revoke(subject); err != nil {
						t.Error(err)
					}
					if s.Approved(subject, fp) {
						t.Error("approved after the revocation returned")
					}
				}
			}
		})
		wg.Go(func() {
			for range 300 {
				s.Approved(subject, "1")
				s.Barred(subject)
				s.Held(subject, one)
				s.Last(subject)
				s.Projects()
				s.Problem()
			}
		})
	}
	wg.Wait()
	again := Open(path, quiet)
	if a, b := s.now.Load(), again.now.Load(); a.Writes != b.Writes || !maps.EqualFunc(a.Approved, b.Approved, func(x, y approval) bool { return x.Fingerprint == y.Fingerprint }) {
		t.Error("the disk has another state than the memory")
	}
}

func TestTools(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	a, b, c := sampleTool(t, "a", "does a"), sampleTool(t, "b", "does b"), sampleTool(t, "c", "does c")
	if s.Held(server, a) {
		t.Error("a tool of a server that was never listed is held")
	}
	s.NoteTools(server, []*tool.Tool{a, b})
	if s.Changed(server, a) != Unchanged || s.Changed(server, b) != Unchanged {
		t.Error("the first list has changes")
	}
	altered, renamed := sampleTool(t, "a", "does more"), sampleTool(t, "b2", "does b")
	s = Open(path, quiet) // over a restart
	s.NoteTools(server, []*tool.Tool{altered, renamed, c})
	for one, want := range map[*tool.Tool]Change{altered: Altered, renamed: Added, c: Added} {
		if got := s.Changed(server, one); got != want {
			t.Errorf("%s is %q, want %q", one.Name, got, want)
		}
	}
	if s.Held(server, a) || !s.Held(server, altered) || !s.Held(server, renamed) || !s.Held(server, c) {
		t.Error("exactly what differs is held")
	}
	must(t, s.ApproveTool(server, altered))
	must(t, s.SawTool(server, c))
	s = Open(path, quiet)
	if s.Held(server, altered) || s.Held(server, c) || !s.Held(server, a) || !s.Held(server, renamed) {
		t.Error("the approved definition is not held any more, and the former one is now")
	}
	// A tool that leaves and comes back altered is no new tool.
	s.NoteTools(server, []*tool.Tool{renamed})
	worse := sampleTool(t, "c", "does worse")
	s.NoteTools(server, []*tool.Tool{worse})
	if got := s.Changed(server, worse); got != Altered {
		t.Errorf("a tool that left and came back is %q", got)
	}
	// Approving another program starts anew, approving the same one does not.
	must(t, s.approveOne(server, fp1, Details{}))
	s.NoteTools(server, []*tool.Tool{a})
	must(t, s.approveOne(server, fp1, Details{}))
	if !s.Held(server, altered) {
		t.Error("approving the same server again let a held tool through")
	}
	must(t, s.approveOne(server, fp2, Details{}))
	if s.Held(server, altered) {
		t.Error("the first list of another program is held")
	}
}

func sampleTool(t testing.TB, name, description string) *tool.Tool {
	t.Helper()
	parsed, err := tool.Parse("srv", fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description))
	must(t, err)
	return parsed
}

// TestTheFileHoldsNoSecret plants values everywhere in a definition and looks for
// them in what is kept.
func TestTheFileHoldsNoSecret(t *testing.T) {
	path := storePath(t)
	s := Open(path, quiet)
	const planted = "Zq7PlantedSecret91"
	def := clientconfig.Server{
		Command: "npx", Args: []string{"-y", "pkg@1", "--api-key", planted, "--token=" + planted, "https://u:" + planted + "@h/?k=" + planted},
		URL: "https://u:" + planted + "@host/mcp?key=" + planted + "#" + planted, Env: map[string]string{"TOKEN": planted},
		Headers: map[string]string{"Authorization": "Bearer " + planted}, Source: clientconfig.Source{File: "/p/.mcp.json"},
	}
	fp, d := FingerprintOf(def, def, "")
	must(t, s.approveOne(server, fp, d))
	for _, p := range []string{path, path + prevSuffix} {
		if data, err := os.ReadFile(p); err != nil || bytes.Contains(data, []byte(planted)) {
			t.Errorf("%s holds the secret (%v): %s", p, err, data)
		}
	}
	other := def
	other.Env = map[string]string{"TOKEN": planted + "x"}
	other.Args = append([]string{"--token=" + planted + "y"}, def.Args...)
	_, now := FingerprintOf(other, other, "")
	if text := strings.Join(d.Changes(now), "\n"); text == "" || strings.Contains(text, planted) {
		t.Errorf("the difference: %s", text)
	}
}

func FuzzOpen(f *testing.F) {
	st := newState()
	st.Approved[server] = approval{Fingerprint: fp1}
	good, err := encodeState(st)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, good)
	f.Add([]byte{}, good)
	f.Add([]byte(`{"format":1,"sum":"`), []byte(`{"format":9}`))
	f.Fuzz(func(t *testing.T, file, copied []byte) {
		path := storePath(t)
		must(t, os.WriteFile(path, file, 0o600))
		must(t, os.WriteFile(path+prevSuffix, copied, 0o600))
		s := Open(path, quiet)
		if s.Approved(server, fp1) && !bytes.Equal(file, good) {
			t.Errorf("approved by a file of %q", file)
		}
		if _, err := decodeState(file); err != nil && s.Problem() == "" {
			t.Errorf("no problem with %q", file)
		}
		must(t, s.approveOne(other, fp2, Details{}))
		if !Open(path, quiet).Approved(other, fp2) {
			t.Error("an approval over any content is not kept")
		}
	})
}

// TestStateRoundTrip: what is written is what is read.
func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := newState()
		st.Writes = rapid.Int64().Draw(rt, "writes")
		for _, k := range rapid.SliceOf(rapid.String()).Draw(rt, "subjects") {
			k = strings.ToValidUTF8(k, "")
			st.Approved[Subject(k)] = approval{Fingerprint: Fingerprint(k), Details: Details{File: k, Env: map[string]string{k: "1"}}}
		}
		data, err := encodeState(st)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := decodeState(data)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := encodeState(got)
		if err != nil || !bytes.Equal(data, again) {
			rt.Fatalf("%v\n%s\n%s", err, data, again)
		}
	})
}

func TestApproveRefusesWhatHasNoFingerprint(t *testing.T) {
	s := Open(storePath(t), quiet)
	err := s.approveOne(server, "", Details{Unfit: "reading x of the project: permission denied"})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || s.Approved(server, "") {
		t.Errorf("got %v", err)
	}
	if err := s.Approve([]Approval{{other, fp1, Details{}}, {server, "", Details{}}}, false); err == nil || s.Approved(other, fp1) {
		t.Error("all or none")
	}
	if errors.Is(err, errAbsent) {
		t.Error("the sentinel is for files")
	}
}
