package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// manifest is one run of Adopt. It is written once, last of its directory, and
// then only to note its release, so that a directory without one is a run that
// was cut off before it changed anything.
type manifest struct {
	Version  int          `json:"version"` // 1: the first
	Client   string       `json:"client"`
	Time     time.Time    `json:"time"`
	Released *time.Time   `json:"released,omitempty"`
	Files    []fileRecord `json:"files"`
	Config   configRecord `json:"config"`

	dir string
	raw map[string][]byte // what goes into dir, by name; of a run at hand
}

const manifestVersion = 1

// stored is a text in the directory of its manifest. Name is empty for a file
// that did not exist.
type stored struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// fileRecord is a client's file.
type fileRecord struct {
	Path     string              `json:"path"`
	Format   clientconfig.Format `json:"format"`
	Pointer  string              `json:"pointer"`
	Settings bool                `json:"settings"`
	Mode     fs.FileMode         `json:"mode"`
	Before   stored              `json:"before"`
	After    stored              `json:"after"`
	Moved    []string            `json:"moved"`
	Shim     string              `json:"shim"` // name of the entry that was put in; empty: there was one
}

func (r fileRecord) location(client string) clientconfig.Location {
	return clientconfig.Location{Client: client, Scope: clientconfig.User, Path: r.Path, Format: r.Format, Pointer: r.Pointer, Settings: r.Settings}
}

// configRecord is what was put into config.json.
type configRecord struct {
	Path    string      `json:"path"`
	Mode    fs.FileMode `json:"mode"`
	Before  stored      `json:"before"`
	After   stored      `json:"after"`
	Servers []put       `json:"servers"`
}

// put is a server of config.json that this run relies on.
type put struct {
	Name string `json:"name"` // in the client's file
	As   string `json:"as"`   // in config.json
	File string `json:"file"`
	// Put says that it came by an adoption, this one or one that still holds:
	// a server that the user had there before is not taken out.
	Put bool `json:"put"`
}

func (m *manifest) keep(name string, data []byte) stored {
	if data == nil {
		return stored{}
	}
	if m.raw == nil {
		m.raw = map[string][]byte{}
	}
	m.raw[name] = data
	sum := sha256.Sum256(data)
	return stored{name, hex.EncodeToString(sum[:])}
}

// text reads back what keep stored, and refuses what was damaged since.
func (m *manifest) text(s stored) ([]byte, error) {
	if s.Name == "" {
		return nil, nil
	}
	path := filepath.Join(m.dir, filepath.Base(s.Name))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, fmt.Errorf("the backup %s was changed or damaged since it was made", path)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// backups is the directory of one client's runs.
func (s *Session) backups(slug string) string { return filepath.Join(s.State, "adopt", slug) }

// stamp sorts as text as it does in time.
const stamp = "20060102T150405.000000000Z"

// reserve names the directory of a new run without making it.
func (s *Session) reserve(m *manifest) {
	name := m.Time.UTC().Format(stamp)
	for i := 1; ; i++ {
		m.dir = filepath.Join(s.backups(m.Client), name)
		if i > 1 {
			m.dir += fmt.Sprintf("-%d", i)
		}
		if _, err := os.Lstat(m.dir); err != nil {
			return
		}
	}
}

// save writes the backup; everything is on the disk when it returns.
func (m *manifest) save() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fmt.Errorf("making the backup: %w", err)
	}
	for dir, n := filepath.Dir(m.dir), 0; n < 3; dir, n = filepath.Dir(dir), n+1 {
		syncDir(dir)
	}
	for i, name := range sorted(m.raw) {
		if err := platform.WriteFileAtomic(filepath.Join(m.dir, name), m.raw[name], 0o600); err != nil {
			return fmt.Errorf("making the backup: %w", err)
		}
		if i == 0 {
			step("half a backup")
		}
	}
	step("backup without a manifest")
	return m.write()
}

func (m *manifest) write() error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = platform.WriteFileAtomic(filepath.Join(m.dir, "manifest.json"), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the manifest of the backup: %w", err)
	}
	return nil
}

// active returns the runs of a client that were not released, oldest first.
func (s *Session) active(slug string) ([]*manifest, error) {
	all, err := s.runs(slug)
	return slices.DeleteFunc(all, func(m *manifest) bool { return m.Released != nil || s.undone[m.dir] }), err
}

// runs returns all runs of a client, oldest first.
func (s *Session) runs(slug string) ([]*manifest, error) {
	dir := s.backups(slug)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("looking for backups: %w", err)
	}
	var all []*manifest
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), "manifest.json")
		text, err := os.ReadFile(path)
		if err != nil {
			if gone(err) {
				continue // cut off before it changed anything
			}
			return nil, fmt.Errorf("reading the manifest of a backup: %w", err)
		}
		m := &manifest{dir: filepath.Join(dir, e.Name())}
		switch err := json.Unmarshal(text, m); {
		case err != nil:
			return nil, fmt.Errorf("reading the manifest of a backup, %s: %w", path, err)
		case m.Version != manifestVersion:
			return nil, fmt.Errorf("the backup %s is of a newer toolsd (version %d of its manifest)", path, m.Version)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *manifest) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Clients are the clients that have backups, also of clients that are not
// installed any more. The one that was adopted last comes first: so each finds
// config.json as its own adoption left it.
func (s *Session) Clients() []string {
	var slugs []string
	last := map[string]time.Time{}
	for _, c := range clientconfig.Clients() {
		runs, err := s.active(c.Slug)
		if err != nil || len(runs) > 0 {
			slugs = append(slugs, c.Slug)
		}
		for _, m := range runs {
			last[c.Slug] = m.Time
		}
	}
	slices.SortStableFunc(slugs, func(a, b string) int { return last[b].Compare(last[a]) })
	return slugs
}
