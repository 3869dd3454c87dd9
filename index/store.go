package index

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/toolsd/toolsd/index/tool"
)

// format is the version of what is in the file. A file of another version is
// made anew, since all of it can be listed again.
//
//	1: bucket "meta" with "format"; bucket "listings": SHA-256 of the key → SHA-256
//	   of what follows, then the listing as JSON
const format = 1

var (
	bucketMeta     = []byte("meta")
	bucketListings = []byte("listings")
	keyFormat      = []byte("format")
)

const (
	// checkTimeout bounds the examination of the file: 100,000 tools (200 MB) take
	// about 3 s from a cold disk, and damage can make bbolt loop.
	checkTimeout = 10 * time.Second
	// lockTimeout bounds the wait for bbolt's own lock. Its holder can only be a
	// daemon that is about to end, since the owner of the index holds the state lock.
	lockTimeout = time.Second
	// maxFile is the size beyond which the index is no longer kept on disk: five
	// times what 100,000 tools take.
	maxFile = 1 << 30
	// mmapSize is the address space taken at once. A file that grows beyond it must
	// be mapped again, for which bbolt waits until no transaction reads.
	mmapSize = 256 << 20
)

// store is the file.
type store struct {
	path string
	db   *bbolt.DB
	log  *slog.Logger
}

// record is one listing in the file.
type record struct {
	Key          string            `json:"key"`
	Server       string            `json:"server"`
	Instructions string            `json:"instructions,omitempty"`
	Listed       time.Time         `json:"listed"`
	Tools        []json.RawMessage `json:"tools"`
}

// openStore opens the file, or puts it aside and makes a new one. The error says
// why it could not; store is nil then.
func openStore(path string, check func(context.Context, string) error, log *slog.Logger) (*store, []Listing, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("the index works from memory only: making its directory: %w", err)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, nil, fmt.Errorf("the index works from memory only: looking at %s: %w", path, err)
	default:
		s, kept, err := openExisting(path, info, check, log)
		if err == nil {
			return s, kept, nil
		}
		log.Warn("the index file cannot be used and is made anew", "file", path, "reason", err)
		if err := putAside(path); err != nil {
			return nil, nil, fmt.Errorf("the index works from memory only: putting the damaged %s aside: %w", path, err)
		}
	}
	s := &store{path: path, log: log}
	if err := s.create(); err != nil {
		return nil, nil, fmt.Errorf("the index works from memory only: making %s: %w", path, err)
	}
	return s, nil, nil
}

func openExisting(path string, info os.FileInfo, check func(context.Context, string) error, log *slog.Logger) (*store, []Listing, error) {
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is not a regular file")
	}
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
	case <-ctx.Done():
		return nil, nil, errors.New("checking it took too long")
	}
	s := &store{path: path, log: log}
	if err := s.open(); err != nil {
		return nil, nil, err
	}
	kept, err := s.all()
	if err != nil {
		_ = s.close()
		return nil, nil, err
	}
	return s, kept, nil
}

// putAside renames a file that cannot be used. One such file is kept for whoever
// wants to know what happened to it.
func putAside(path string) error {
	aside := path + ".damaged"
	_ = os.RemoveAll(aside)
	return os.Rename(path, aside)
}

func options(readOnly bool) *bbolt.Options {
	o := &bbolt.Options{Timeout: lockTimeout, ReadOnly: readOnly, MaxSize: maxFile, NoStatistics: true}
	if strconv.IntSize == 32 {
		o.MaxSize = 256 << 20
	} else if runtime.GOOS != "windows" { // there the file itself would get this size
		o.InitialMmapSize = mmapSize
	}
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", name)
		}
		return os.OpenFile(name, flag, mode)
	}
	return o
}

// guarded runs f so that reading a damaged or shortened file is an error and not
// the end of the process.
func guarded(doing string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", doing, r)
		}
	}()
	return f()
}

func (s *store) open() error {
	return guarded("opening "+s.path, func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o600, options(false))
		return err
	})
}

func (s *store) create() error {
	if err := s.open(); err != nil {
		return err
	}
	return guarded("writing "+s.path, func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucketIfNotExists(bucketMeta)
			if err != nil {
				return err
			}
			if _, err := tx.CreateBucketIfNotExists(bucketListings); err != nil {
				return err
			}
			return meta.Put(keyFormat, []byte(strconv.Itoa(format)))
		})
	})
}

func (s *store) close() error {
	if s.db == nil {
		return nil
	}
	return guarded("closing "+s.path, s.db.Close)
}

// all returns every listing, copied out of the file.
func (s *store) all() (kept []Listing, err error) {
	var values [][]byte
	err = guarded("reading "+s.path, func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return eachValue(tx, func(v []byte) error {
				values = append(values, bytes.Clone(v))
				return nil
			})
		})
	})
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		l, err := decodeListing(v)
		if err != nil {
			return nil, err
		}
		kept = append(kept, l)
	}
	return kept, nil
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
	return listings.ForEach(func(k, v []byte) error {
		if len(v) < sha256.Size || len(k) != sha256.Size {
			return errors.New("a listing in it is too short")
		}
		sum := sha256.New()
		sum.Write(k)
		sum.Write(v[sha256.Size:])
		if !bytes.Equal(sum.Sum(nil), v[:sha256.Size]) {
			return errors.New("a listing in it has a wrong checksum")
		}
		return visit(v[sha256.Size:])
	})
}

func decodeListing(v []byte) (Listing, error) {
	var r record
	if err := json.Unmarshal(v, &r); err != nil {
		return Listing{}, fmt.Errorf("a listing in it: %w", err)
	}
	l := Listing{Key: r.Key, Server: r.Server, Instructions: r.Instructions, Listed: r.Listed}
	for _, raw := range r.Tools {
		t, err := tool.Parse(r.Server, raw)
		if err != nil {
			return Listing{}, fmt.Errorf("a listing in it: %w", err)
		}
		l.Tools = append(l.Tools, t)
	}
	return l, nil
}

func (s *store) put(l Listing) error {
	r := record{Key: l.Key, Server: l.Server, Instructions: l.Instructions, Listed: l.Listed.UTC(), Tools: []json.RawMessage{}}
	for _, t := range l.Tools {
		r.Tools = append(r.Tools, t.Raw)
	}
	var encoded bytes.Buffer
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false) // definitions keep their bytes
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("encoding the tools of %s: %w", l.Server, err)
	}
	body := bytes.TrimSpace(encoded.Bytes())
	k := recordKey(l.Key)
	sum := sha256.New()
	sum.Write(k)
	sum.Write(body)
	v := append(sum.Sum(nil), body...)
	return guarded("writing "+s.path, func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketListings)
			if b == nil {
				return errors.New("the bucket of listings is gone")
			}
			return b.Put(k, v)
		})
	})
}

func (s *store) drop(keys []string) error {
	return guarded("writing "+s.path, func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketListings)
			if b == nil {
				return errors.New("the bucket of listings is gone")
			}
			for _, key := range keys {
				if err := b.Delete(recordKey(key)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func recordKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// VerifyFile reads all of an index file and says what is wrong with it. It may
// crash or hang on a damaged one, so it is run in a process of its own.
func VerifyFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("checking the index: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("checking the index: %s is not a regular file", path)
	}
	return guarded("checking "+path, func() error {
		db, err := bbolt.Open(path, 0o600, options(true))
		if err != nil {
			return fmt.Errorf("checking %s: %w", path, err)
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			var problems []error
			for err := range tx.Check() {
				if len(problems) < 3 {
					problems = append(problems, err)
				}
			}
			if len(problems) > 0 {
				return fmt.Errorf("checking %s: %w", path, errors.Join(problems...))
			}
			return eachValue(tx, func(v []byte) error {
				_, err := decodeListing(v)
				return err
			})
		})
	})
}

// write runs f on the file. After an error the file is put aside and made anew
// from memory, once; when that fails too, the index goes on from memory.
func (x *Index) write(f func(*store) error) error {
	if x.opts.Path == "" {
		return nil
	}
	if x.store != nil {
		err := f(x.store)
		if err == nil {
			return nil
		}
		x.opts.Log.Warn("writing the index file failed, it is made anew", "file", x.opts.Path, "reason", err)
		_ = x.store.close()
		x.store = nil
	}
	err := x.rebuild()
	x.setProblem(err)
	return err
}

// rebuild makes a new file of all listings.
func (x *Index) rebuild() error {
	if _, err := os.Lstat(x.opts.Path); err == nil {
		if err := putAside(x.opts.Path); err != nil {
			return fmt.Errorf("the index works from memory only: putting %s aside: %w", x.opts.Path, err)
		}
	}
	s, _, err := openStore(x.opts.Path, nil, x.opts.Log)
	if err != nil {
		return err
	}
	for _, l := range x.listings {
		if err := s.put(l.Listing); err != nil {
			_ = s.close()
			return fmt.Errorf("the index works from memory only: %w", err)
		}
	}
	x.store = s
	return nil
}
