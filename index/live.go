package index

import (
	"bytes"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

// Index is the live index: a Snapshot that is replaced as a whole when a server
// lists its tools, and the file that remembers it.
type Index struct {
	opts Options
	snap atomic.Pointer[Snapshot]

	// mu makes writers wait for each other, through the write to the file, which
	// readers never need.
	mu       sync.Mutex
	lex      *lexicon
	listings map[string]*listing
	config   Config
	conf     []configured
	syn      func() *synonyms
	store    *store          // nil while working from memory only
	unsaved  map[string]bool // keys whose listing is not in the file as it is in memory
	tried    time.Time       // when the file could last not be opened

	problem atomic.Pointer[string]
}

// Open returns the index kept in opts.Path. It never fails: a file that cannot
// be used is put aside and made anew, and when that cannot be done either, the
// index works from memory. Problem tells.
func Open(opts Options) *Index {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.maxFile == 0 {
		opts.maxFile = maxFile
	}
	x := &Index{opts: opts, lex: newLexicon(), listings: map[string]*listing{}, unsaved: map[string]bool{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.attach() {
		x.take(l)
	}
	x.publish()
	return x
}

// Snapshot returns the present state. It takes no lock.
func (x *Index) Snapshot() *Snapshot { return x.snap.Load() }

// Problem says in a sentence why the index is not kept on disk, or is empty.
func (x *Index) Problem() string {
	if p := x.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Replace makes l all that is known of the server of its key. When it returns,
// every new Snapshot shows l, also when there is an error: that is about the
// file alone.
func (x *Index) Replace(l Listing) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.Listed.IsZero() {
		l.Listed = time.Now()
	}
	same := x.take(l)
	x.publish()
	if same && len(x.unsaved) == 0 {
		return nil // the file holds these bytes
	}
	x.unsaved[l.Key] = true
	return x.flush()
}

// Retain forgets every listing whose key is not wanted.
func (x *Index) Retain(wanted func(key string) bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	gone := false
	for key := range x.listings {
		if !wanted(key) {
			gone = true
			x.unsaved[key] = true
			delete(x.listings, key)
		}
	}
	if !gone {
		return nil
	}
	x.publish()
	return x.flush()
}

// Configure sets what the user says about searching.
func (x *Index) Configure(c Config) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.config = c
	x.conf = nil
	for _, k := range c.Categories {
		x.conf = append(x.conf, configured{k, x.lex.analyzeGroup(k.Name + " " + k.Description)})
	}
	groups := c.Synonyms
	x.syn = sync.OnceValue(func() *synonyms { return withGroups(groups) })
	x.publish()
}

// Close writes nothing more. Snapshots stay usable.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.store == nil {
		return nil
	}
	x.store.close()
	x.store = nil
	x.opts.Path = ""
	return nil
}

// take puts a listing in the place of the one of its key and reports whether it
// says the same. Analysis of tools that did not change is kept.
func (x *Index) take(l Listing) (same bool) {
	old := x.listings[l.Key]
	n := &listing{Listing: l}
	known := map[string]*document{}
	if old != nil {
		for _, d := range old.docs {
			known[d.tool.Name] = d
		}
	}
	seen := make(map[string]bool, len(l.Tools))
	n.Tools = make([]*tool.Tool, 0, len(l.Tools))
	same = old != nil && old.Server == l.Server && old.Instructions == l.Instructions
	for _, t := range l.Tools {
		if t == nil || seen[t.Name] {
			continue // the first of a name is the tool; upstream reports the others
		}
		seen[t.Name] = true
		d := known[t.Name]
		exposed := t.Exposed
		if x.opts.Expose != nil {
			exposed = x.opts.Expose(tool.ID{Server: l.Server, Name: t.Name})
		}
		if d == nil || d.tool.Server != l.Server || d.tool.Exposed != exposed || d.tool.Hidden != t.Hidden || !bytes.Equal(d.tool.Raw, t.Raw) {
			own := t.On(l.Server)
			own.Exposed = exposed
			compactTool(own)
			d = x.lex.analyzeTool(l.Key, own)
			same = false
		}
		n.docs = append(n.docs, d)
		n.Tools = append(n.Tools, d.tool)
	}
	same = same && len(n.docs) == len(old.docs)
	if old != nil && old.Instructions == l.Instructions {
		n.instructions = old.instructions
	} else {
		n.instructions = x.lex.analyzeGroup(l.Instructions)
	}
	x.listings[l.Key] = n
	return same
}

// compactTool lets the parts of a tool share memory. A daemon keeps thousands of
// definitions, most of them schemas.
func compactTool(t *tool.Tool) {
	if cap(t.Raw) > len(t.Raw)+len(t.Raw)/8 {
		t.Raw = bytes.Clone(t.Raw)
	}
	if len(t.InputSchema) > 0 {
		if i := bytes.Index(t.Raw, t.InputSchema); i >= 0 {
			t.InputSchema = t.Raw[i : i+len(t.InputSchema) : i+len(t.InputSchema)]
		}
	}
}

// publish makes a snapshot of what there is.
func (x *Index) publish() {
	syn := x.syn
	if syn == nil {
		syn = builtin
	}
	x.snap.Store(newSnapshot(&defaultRanking, x.lex.dictionary(), maps.Clone(x.listings), syn, x.conf))
}
