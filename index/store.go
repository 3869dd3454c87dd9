package index

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/toolsd/toolsd/index/tool"
)

// format is the version of what is in the file. A file of another version is
// made anew, since all of it can be listed again.
//
//	1: bucket "meta": "format", and "sum", the exclusive or of all checksums, so
//	   that a lost listing shows; bucket "listings": SHA-256 of the key → checksum
//	   of that and of what follows, then the listing as JSON
const format = 1

var (
	bucketMeta     = []byte("meta")
	bucketListings = []byte("listings")
	keyFormat      = []byte("format")
	keySum         = []byte("sum")
)

const (
	// checkTimeout bounds the examination of the file: 100,000 tools (200 MB) take
	// about 3 s from a cold disk, and damage can make bbolt loop.
	checkTimeout = 10 * time.Second
	// lockTimeout bounds the wait for bbolt's own lock. Its holder can only be a
	// daemon that is about to end, since the owner of the index holds the state lock.
	lockTimeout = time.Second
	// closeTimeout bounds closing: a transaction that panicked may keep a lock of
	// bbolt's for ever.
	closeTimeout = time.Second
	// maxFile is the size beyond which the index is no longer kept on disk: five
	// times what 100,000 tools take, and what 32 bits can map.
	maxFile = 1 << 30 >> (64/strconv.IntSize*2 - 2)
	// mmapSize is the address space taken at once. A file that grows beyond it must
	// be mapped again, for which bbolt waits until no transaction reads.
	mmapSize = 256 << 20
)

// errDamaged marks errors after which the file must not be used any more.
var errDamaged = errors.New("the file is damaged")

// store is the file. Its methods return errDamaged, alone or wrapped, when the
// file is not what was written; after any other error it is as it was before.
type store struct {
	path    string
	maxFile int
	db      *bbolt.DB
	file    os.FileInfo // of the opened file, as it was after the last write
}

// openExisting opens a file that may be damaged. check is asked first, since a
// damaged file can crash or hang whoever reads it.
func openExisting(path string, maxFile int, check func(context.Context, string) error) (*store, []Listing, error) {
	if check == nil {
		check = func(_ context.Context, path string) error { return VerifyFile(path) }
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	checked := make(chan error, 1)
	go func() { checked <- check(ctx, path) }()
	select {
	case err := <-checked:
		if err != nil {
			return nil, nil, err
		}
	case <-ctx.Done(): // a check that ignores its context is left behind
		return nil, nil, errors.New("checking it took too long")
	}
	s := &store{path: path, maxFile: maxFile}
	if err := s.open(); err != nil {
		return nil, nil, err
	}
	kept, err := s.all()
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, kept, nil
}

// createStore makes a new file, which must not exist.
func createStore(path string, maxFile int) (*store, error) {
	s := &store{path: path, maxFile: maxFile}
	if err := s.open(); err != nil {
		return nil, err
	}
	err := s.update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucketIfNotExists(bucketListings); err != nil {
			return err
		}
		if err := meta.Put(keySum, make([]byte, sha256.Size)); err != nil {
			return err
		}
		return meta.Put(keyFormat, []byte(strconv.Itoa(format)))
	})
	if err != nil {
		s.close()
		_ = os.Remove(path) // half a file would only be found damaged later
		return nil, err
	}
	return s, nil
}

// putAside renames a file that cannot be used. One such file is kept for whoever
// wants to know what happened to it.
func putAside(path string) error {
	aside := path + ".damaged"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	return os.Rename(path, aside)
}

func (s *store) open() error {
	err := guarded(func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o600, options(false, s.maxFile))
		return err
	})
	if err == nil {
		s.file, err = os.Lstat(s.path)
	}
	return err
}

func options(readOnly bool, maxSize int) *bbolt.Options {
	o := &bbolt.Options{Timeout: lockTimeout, ReadOnly: readOnly, MaxSize: maxSize, NoStatistics: true, OpenFile: openRegular}
	if strconv.IntSize == 64 && runtime.GOOS != "windows" && !readOnly { // on Windows the file itself would get this size
		o.InitialMmapSize = mmapSize
	}
	return o
}

// openRegular opens the file itself, never what a link of that name points to.
func openRegular(name string, flag int, mode os.FileMode) (*os.File, error) {
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	named, err := os.Lstat(name)
	if err != nil || !os.SameFile(opened, named) {
		f.Close()
		return nil, fmt.Errorf("%s was replaced while it was opened", name)
	}
	if flag&(os.O_RDWR|os.O_WRONLY) != 0 && opened.Mode().Perm() != mode && runtime.GOOS != "windows" {
		if err := f.Chmod(mode); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// guarded runs f so that reading a damaged or shortened file is an error and not
// the end of the process.
func guarded(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return f()
}

// close never takes long.
func (s *store) close() {
	if s.db == nil {
		return
	}
	db, done := s.db, make(chan struct{})
	s.db = nil
	go func() {
		defer close(done)
		_ = guarded(db.Close)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout): // it is left behind with its lock, see closeTimeout
	}
}

// intact reports whether the file at the path is still the opened one and has
// not become shorter, which would make the mapped memory fault.
func (s *store) intact() error {
	now, err := os.Lstat(s.path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %v", errDamaged, err)
	case !os.SameFile(now, s.file):
		return fmt.Errorf("%w: it was replaced", errDamaged)
	case now.Size() < s.file.Size():
		return fmt.Errorf("%w: it was shortened", errDamaged)
	}
	return nil
}

func (s *store) update(f func(tx *bbolt.Tx) error) error {
	if err := s.intact(); err != nil {
		return err
	}
	if err := guarded(func() error { return s.db.Update(f) }); err != nil {
		return err
	}
	now, err := os.Lstat(s.path)
	if err != nil {
		return fmt.Errorf("%w: %v", errDamaged, err)
	}
	s.file = now
	return nil
}

// save makes the file hold what listings has for keys: what it lacks is dropped.
func (s *store) save(keys []string, listings map[string]*listing) error {
	return s.update(func(tx *bbolt.Tx) error {
		meta, bucket := tx.Bucket(bucketMeta), tx.Bucket(bucketListings)
		if meta == nil || bucket == nil {
			return errDamaged
		}
		sum := bytes.Clone(meta.Get(keySum))
		for _, key := range keys {
			k := recordKey(key)
			xor(sum, bucket.Get(k))
			l := listings[key]
			if l == nil {
				if err := bucket.Delete(k); err != nil {
					return err
				}
				continue
			}
			v, err := encodeListing(k, l.Listing)
			if err != nil {
				return err
			}
			xor(sum, v)
			if err := bucket.Put(k, v); err != nil {
				return err
			}
		}
		return meta.Put(keySum, sum)
	})
}

// xor changes sum by the checksum at the start of a value.
func xor(sum, value []byte) {
	for i := 0; i < len(sum) && i < len(value) && i < sha256.Size; i++ {
		sum[i] ^= value[i]
	}
}

// all returns every listing, copied out of the file.
func (s *store) all() (kept []Listing, err error) {
	err = guarded(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return eachValue(tx, func(v []byte) error {
				l, err := decodeListing(v)
				kept = append(kept, l)
				return err
			})
		})
	})
	return kept, err
}

// eachValue visits the listings after it made sure that they are of this format
// and have the bytes that were written.
func eachValue(tx *bbolt.Tx, visit func(v []byte) error) error {
	meta, listings := tx.Bucket(bucketMeta), tx.Bucket(bucketListings)
	if meta == nil || listings == nil {
		return errors.New("it is not an index file")
	}
	if v := meta.Get(keyFormat); string(v) != strconv.Itoa(format) {
		return fmt.Errorf("it has format %q, this program writes %d", v, format)
	}
	sum := bytes.Clone(meta.Get(keySum))
	if len(sum) != sha256.Size {
		return errors.New("its checksum is missing")
	}
	err := listings.ForEach(func(k, v []byte) error {
		if len(v) < sha256.Size || len(k) != sha256.Size {
			return errors.New("a listing in it is too short")
		}
		if !bytes.Equal(checksum(k, v[sha256.Size:]), v[:sha256.Size]) {
			return errors.New("a listing in it has a wrong checksum")
		}
		xor(sum, v)
		return visit(v[sha256.Size:])
	})
	if err != nil {
		return err
	}
	for _, b := range sum {
		if b != 0 {
			return errors.New("it does not hold the listings that were written")
		}
	}
	return nil
}

func recordKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func checksum(key, body []byte) []byte {
	sum := sha256.New()
	sum.Write(key)
	sum.Write(body)
	return sum.Sum(nil)
}

// record is one listing in the file.
type record struct {
	Key          string                     `json:"key"`
	Server       string                     `json:"server"`
	Instructions string                     `json:"instructions,omitempty"`
	Listed       time.Time                  `json:"listed"`
	Tools        []json.RawMessage          `json:"tools"`
	Was          map[string]json.RawMessage `json:"was,omitempty"`
	Hidden       []string                   `json:"hidden,omitempty"` // names of the tools that are so
}

func encodeListing(key []byte, l Listing) ([]byte, error) {
	r := record{Key: l.Key, Server: l.Server, Instructions: l.Instructions, Listed: l.Listed.UTC(), Tools: make([]json.RawMessage, len(l.Tools)), Was: l.Was}
	for i, t := range l.Tools {
		r.Tools[i] = t.Raw
		if t.Hidden {
			r.Hidden = append(r.Hidden, t.Name)
		}
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // definitions keep their bytes
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encoding the tools of %s: %w", l.Server, err)
	}
	return append(checksum(key, body.Bytes()), body.Bytes()...), nil
}

func decodeListing(v []byte) (Listing, error) {
	var r record
	if err := json.Unmarshal(v, &r); err != nil {
		return Listing{}, fmt.Errorf("a listing in it: %w", err)
	}
	l := Listing{Key: r.Key, Server: r.Server, Instructions: r.Instructions, Listed: r.Listed, Tools: make([]*tool.Tool, len(r.Tools)), Was: r.Was}
	for i, raw := range r.Tools {
		t, err := tool.Parse(r.Server, raw)
		if err != nil {
			return Listing{}, fmt.Errorf("a listing in it: %w", err)
		}
		t.Hidden = slices.Contains(r.Hidden, t.Name)
		l.Tools[i] = t
	}
	return l, nil
}

// VerifyFile reads all of an index file and says what is wrong with it. It may
// crash or hang on a damaged one, so it is run in a process of its own.
func VerifyFile(path string) error {
	err := guarded(func() error {
		db, err := bbolt.Open(path, 0o600, options(true, 0))
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			var first error
			for err := range tx.Check() { // to its end: it has a goroutine of its own
				first = errors.Join(first, err)
			}
			if first != nil {
				return first
			}
			return eachValue(tx, func([]byte) error { return nil })
		})
	})
	if err != nil {
		return fmt.Errorf("checking the index file %s: %w", path, err)
	}
	return nil
}

// attach opens the file of the index, or puts it aside and makes a new one. It
// returns the listings of the file. Without a file the index works from memory.
func (x *Index) attach() []Listing {
	path := x.opts.Path
	if path == "" {
		return nil
	}
	kept, err := x.openFile(path)
	x.note(err)
	return kept
}

func (x *Index) openFile(path string) ([]Listing, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		s, kept, err := openExisting(path, x.opts.maxFile, x.opts.Check)
		if err == nil {
			x.store = s
			return kept, nil
		}
		x.opts.Log.Warn("the index file cannot be used and is made anew", slog.String("file", path), slog.Any("reason", err))
		if err := putAside(path); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	s, err := createStore(path, x.opts.maxFile)
	if err != nil {
		return nil, err
	}
	x.store = s
	return nil, nil
}

// retryAfter is how long a file that cannot be opened is left alone: each try
// may wait for lockTimeout, and a start lists dozens of servers in a row.
const retryAfter = 30 * time.Second

// flush writes what is not yet in the file. An error leaves that to the next
// flush. A damaged file is put aside and made anew from memory.
func (x *Index) flush() error {
	if x.opts.Path == "" {
		return nil
	}
	if x.store == nil {
		if time.Since(x.tried) < retryAfter {
			return nil // Problem tells
		}
		return x.remake()
	}
	err := x.store.save(slices.Collect(maps.Keys(x.unsaved)), x.listings)
	if errors.Is(err, errDamaged) {
		x.opts.Log.Warn("the index file cannot be used any more and is made anew", slog.String("file", x.opts.Path), slog.Any("reason", err))
		x.store.close()
		x.store = nil
		return x.remake()
	}
	if err == nil {
		clear(x.unsaved)
	}
	return x.note(err)
}

// remake makes a new file of everything in memory.
func (x *Index) remake() error {
	path := x.opts.Path
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		if _, statErr := os.Lstat(path); statErr == nil {
			err = putAside(path)
		}
	}
	if err == nil {
		x.store, err = createStore(path, x.opts.maxFile)
	}
	for key := range x.listings {
		x.unsaved[key] = true
	}
	if err == nil {
		keys := slices.Collect(maps.Keys(x.unsaved))
		if err = x.store.save(keys, x.listings); err == nil {
			clear(x.unsaved)
		} else if errors.Is(err, errDamaged) {
			x.store.close()
			x.store = nil
		}
	}
	return x.note(err)
}

// note remembers why the index is not kept on disk.
func (x *Index) note(err error) error {
	if err == nil {
		x.problem.Store(nil)
		return nil
	}
	if x.store == nil {
		x.tried = time.Now()
	}
	err = fmt.Errorf("the index works from memory, since %s cannot be written: %w", x.opts.Path, err)
	s := err.Error()
	x.problem.Store(&s)
	return err
}
