package adopt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

func TestMask(t *testing.T) {
	rows := []struct{ name, file, in, want string }{
		{"env and headers", "a.json", `{"e": {"env": {"A": "x1", "B": 0, "C": null, "D": {"E": ["x2"]}}, "headers": {"K": "x3"}, "command": "node"}}`,
			`{"e": {"env": {"A": "***", "B": "***", "C": null, "D": {"E": ["***"]}}, "headers": {"K": "***"}, "command": "node"}}`},
		{"a key with an escape", "a.json", `{"\u0065nv": {"A": "x1"}, "env2": {"A": "y"}}`, `{"\u0065nv": {"A": "***"}, "env2": {"A": "y"}}`},
		{"comments", "a.json", "{\n\"env\": { // TOKEN x1\n/* x2 */ \"A\": \"x3\" }, // fine\n// \"b\": {\"env\": {\"KEY\": \"x4\"}}\n\"c\": 1}",
			"{\n\"env\": { // ***\n/* *** */ \"A\": \"***\" }, // fine\n// \"b\": {\"env\": {\"KEY\": \"***\"}}\n\"c\": 1}"},
		{"urls", "a.json", `{"url": "https://u:x1@h.example/p?api_key=x2&q=1", "x": "mail@example.org"}`,
			`{"url": "https://***@h.example/p?api_key=***&q=1", "x": "mail@example.org"}`},
		{"arguments", "a.json", `{"args": ["--api-key", "x1", "-y", "--token=x2", "Authorization: Bearer x3x3", "Authorization:x4", "--keep"]}`,
			`{"args": ["--api-key", "***", "-y", "--token=***", "Authorization: ***", "Authorization:***", "--keep"]}`},
		{"keys of other settings", "a.json", `{"provider": {"apiKey": "x1", "model": "m"}, "bearer_token_env_var": "NAME"}`,
			`{"provider": {"apiKey": "***", "model": "m"}, "bearer_token_env_var": "NAME"}`},
		{"TOML", "a.toml", "[s.env]\nA = \"x1\" # c\nB = '''\nx2\n'''\n[s]\nenv = { A = \"}x3\", B = 'x4' } # end\nhttp_headers.K = \"x5\"\nargs = [\"-y\", \"--password\", \"x6\"]\nenv_vars = [\"N\"]\ncommand = \"c\"\n",
			"[s.env]\nA = ***\nB = ***\n***\n***\n[s]\nenv = { *** } # end\nhttp_headers.K = ***\nargs = [\"-y\", \"--password\", \"***\"]\nenv_vars = [\"N\"]\ncommand = \"c\"\n"},
		{"YAML", "a.yaml", "models:\n  - name: m\n    apiKey: x1\nmcp:\n  - name: n\n    env:\n      A: x2\n      B: |\n        x3\n      # x4\n    url: https://u:x5@h\n    headers: { A: \"x}6\",\n      B: x7 }\n    requestOptions: { headers: { A: \"${{ secrets.R }}\" } }\n    command: c\n",
			"models:\n  - name: m\n    apiKey: ***\nmcp:\n  - name: n\n    env:\n      A: ***\n      B: ***\n        ***\n      # ***\n    url: https://***@h\n    headers: { ***\n      ***\n    requestOptions: { headers: { *** } }\n    command: c\n"},
	}
	for _, r := range rows {
		format := map[string]clientconfig.Format{".json": clientconfig.JSON, ".toml": clientconfig.TOML, ".yaml": clientconfig.YAML}[filepath.Ext(r.file)]
		equal(t, r.name, r.want, maskText(mask([]byte(r.in), format)))
	}
}

// No value of env or headers is in any diff of any sample, in no spelling.
func TestNoSecretInAnyDiff(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(files) != len(samples) {
		t.Fatalf("%d expectations for %d samples, %v", len(files), len(samples), err)
	}
	for _, sample := range samples {
		golden, err := os.ReadFile(filepath.Join("testdata/golden", sample.file+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(t)
		m.write(sample.path, sampleText(t, sample.file))
		loc := clientconfig.Location{Client: sample.slug, Scope: clientconfig.User, Path: m.path(sample.path)}
		list, err := servers(loc, []byte(sampleText(t, sample.file)))
		if err != nil {
			continue
		}
		for _, secret := range m.s.secrets(list) {
			if len(secret) >= shortest && strings.Contains(string(golden), secret) {
				t.Errorf("%s shows %q", sample.file, secret)
			}
		}
	}
}

// What changes says turns one text into the other, and says no more than it must
// at the ends.
func TestChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		a, b := rapid.SliceOfN(word, 0, 12).Draw(t, "a"), rapid.SliceOfN(word, 0, 12).Draw(t, "b")
		var out []string
		at, edits := 0, 0
		for _, h := range changes(a, b) {
			if h.a0 < at || h.a1 < h.a0 || h.b1 < h.b0 || h.a0 == h.a1 && h.b0 == h.b1 {
				t.Fatalf("%v", changes(a, b))
			}
			out = append(out, a[at:h.a0]...)
			if len(out) != h.b0 {
				t.Fatalf("%v: the places do not agree", changes(a, b))
			}
			out = append(out, b[h.b0:h.b1]...)
			at = h.a1
			edits += h.a1 - h.a0 + h.b1 - h.b0
		}
		out = append(out, a[at:]...)
		if !slices.Equal(out, b) {
			t.Fatalf("%q, not %q", out, b)
		}
		if best := len(a) + len(b) - 2*common(a, b); edits != best {
			t.Fatalf("%d edits, where %d would do", edits, best)
		}
	})
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if n[i+1][j+1] = max(n[i][j+1], n[i+1][j]); a[i] == b[j] {
				n[i+1][j+1] = n[i][j] + 1
			}
		}
	}
	return n[len(a)][len(b)]
}

func TestVeryDifferentTexts(t *testing.T) {
	a, b := make([]string, 3*maxEdits), make([]string, 3*maxEdits)
	for i := range a {
		a[i], b[i] = "a", "b"
	}
	if h := changes(a, b); len(h) != 1 || h[0] != (hunk{0, len(a), 0, len(b)}) {
		t.Error(h)
	}
}

func TestUnified(t *testing.T) {
	before := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15"
	after := "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n"
	equal(t, "the diff", `--- f
+++ f
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
@@ -12,4 +12,5 @@
 12
 13
 14
-15
\ No newline at end of file
+15
+16
`, unified("f", before, after))
	equal(t, "a new file", "--- f\n+++ f\n@@ -0,0 +1 @@\n+x\n", unified("f", "", "x\n"))
	equal(t, "nothing", "", unified("f", before, before))
}

// FuzzThereAndBack adopts and releases whatever a client's file may hold, and
// edits it in between.
func FuzzThereAndBack(f *testing.F) {
	for i, s := range samples {
		f.Add([]byte(sampleText(f, s.file)), uint8(i), uint16(i*37))
	}
	f.Fuzz(func(t *testing.T, data []byte, which uint8, cut uint16) {
		sample := samples[int(which)%len(samples)]
		m := newMachine(t)
		m.write(sample.path, string(data))
		p, err := m.s.Adopt(sample.slug)
		if err != nil {
			return
		}
		if err := m.s.Apply(p); err != nil {
			t.Fatal(err)
		}
		if p.Status == Nothing {
			return
		}
		adopted := m.text(sample.path)
		// A line is doubled: what comes of it is an edit like another one.
		all := lines(adopted)
		if n := len(all); n > 0 {
			at := int(cut) % n
			m.write(sample.path, strings.Join(slices.Insert(slices.Clone(all), at, all[at]), ""))
			if p, err := m.s.Release(sample.slug); err == nil {
				for _, w := range p.writes {
					if w.was.path != m.path(sample.path) {
						continue
					}
					list, err := servers(clientconfig.Location{Client: sample.slug, Scope: clientconfig.User, Path: w.was.path}, w.after)
					if err != nil {
						t.Fatalf("a broken file: %v\n%s", err, w.after)
					}
					for _, r := range p.undone[0].Files {
						for _, name := range r.Moved {
							if find(list, name) < 0 {
								t.Fatalf("%q is lost:\n%s", name, w.after)
							}
						}
					}
				}
			}
			m.write(sample.path, adopted)
		}
		m.release(sample.slug)
		if got := m.text(sample.path); got != string(data) {
			t.Fatalf("%q came back as %q", data, got)
		}
		m.none(".config/toolsd/config.json")
	})
}
