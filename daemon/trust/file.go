package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/toolsd/toolsd/index/tool"
)

const (
	prevSuffix = ".prev"

	// 1: approvals, revocations, hashes of seen tools.
	format = 1

	// 500 servers of 200 tools each are 12 MB; more than this did not come from
	// here.
	maxFile = 32 << 20
)

// state is what the file holds: hashes, names and what a person was shown with
// secrets masked; never a value of env or a header.
type state struct {
	Writes   int64                      `json:"writes"` // grows with each write; the larger one is the newer
	Approved map[Subject]approval       `json:"approved"`
	Former   map[Subject]approval       `json:"former"` // not valid any more; kept to show what is different
	Revoked  map[Subject]time.Time      `json:"revoked"`
	Tools    map[Subject]map[string]def `json:"tools"`
	Rules    Rules                      `json:"rules"`
	Closed   bool                       `json:"closed"` // revocations were lost: what is not approved waits, user scope too
	Lost     string                     `json:"lost"`   // why approvals were lost, until the user approved something again
}

type approval struct {
	Fingerprint Fingerprint `json:"fingerprint"`
	Details     Details     `json:"details"`
	Given       time.Time   `json:"given"`
}

// def is a tool's definition as it was seen.
type def struct {
	Hash tool.Hash `json:"hash"`
}

func newState() *state { return new(state).clone() }

// clone copies the maps that changes replace entries of; the entries themselves
// are never changed.
func (s *state) clone() *state {
	c := *s
	c.Approved = cloneMap(s.Approved)
	c.Former = cloneMap(s.Former)
	c.Revoked = cloneMap(s.Revoked)
	c.Tools = cloneMap(s.Tools)
	return &c
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func (s *state) withoutApprovals() *state {
	c := s.clone()
	maps.Copy(c.Former, s.Approved)
	c.Approved = map[Subject]approval{}
	return c
}

// The file is one JSON object of fixed framing around the state, so that every
// single byte of it is either framing that must match or covered by the sum.
var frame = [3]string{fmt.Sprintf("{\"format\":%d,\"sum\":\"", format), "\",\"state\":", "}\n"}

func encodeState(s *state) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the approvals: %w", err)
	}
	sum := sha256.Sum256(body)
	var b bytes.Buffer
	b.WriteString(frame[0])
	b.WriteString(hex.EncodeToString(sum[:]))
	b.WriteString(frame[1])
	b.Write(body)
	b.WriteString(frame[2])
	if b.Len() > maxFile {
		return nil, fmt.Errorf("encoding the approvals: %d bytes are more than the limit of %d", b.Len(), maxFile)
	}
	return b.Bytes(), nil
}

func decodeState(data []byte) (*state, error) {
	rest, ok := bytes.CutPrefix(data, []byte(frame[0]))
	if !ok {
		var other struct{ Format int }
		if json.Unmarshal(data, &other) == nil && other.Format > format {
			return nil, fmt.Errorf("has format %d of a newer toolsd, this one knows %d", other.Format, format)
		}
		if len(data) == 0 {
			return nil, errors.New("is empty")
		}
		return nil, errors.New("is not a file of approvals")
	}
	const hexLen = 2 * sha256.Size
	if len(rest) < hexLen {
		return nil, errors.New("is truncated")
	}
	sum, rest := rest[:hexLen], rest[hexLen:]
	body, ok1 := bytes.CutPrefix(rest, []byte(frame[1]))
	body, ok2 := bytes.CutSuffix(body, []byte(frame[2]))
	if !ok1 || !ok2 {
		return nil, errors.New("is truncated or damaged")
	}
	if want := sha256.Sum256(body); hex.EncodeToString(want[:]) != string(sum) {
		return nil, errors.New("does not match its checksum")
	}
	s := new(state)
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("cannot be decoded: %w", err)
	}
	return s.clone(), nil
}

// errAbsent is returned (wrapped) by readState for a file that is not there.
var errAbsent = errors.New("is missing")

func isUnfit(err error) bool { return err != nil && !errors.Is(err, errAbsent) }

func readState(path string) (*state, error) {
	data, err := readPrivate(path)
	if err == nil {
		var s *state
		if s, err = decodeState(data); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s %w", path, err)
}

// readPrivate reads a regular file of ours that nobody else can read or write.
// The text of its errors follows the name of the file.
func readPrivate(path string) ([]byte, error) {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be examined: %w", err)
	}
	switch {
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, errors.New("is a link")
	case !before.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be examined: %w", err)
	}
	if !os.SameFile(before, info) {
		return nil, errors.New("was replaced while it was opened")
	}
	// The owner and mode are Unix's; on Windows the directory's access list
	// keeps others out.
	if runtime.GOOS != "windows" {
		if uid, ok := statField(info, "Uid"); ok && uid != fmt.Sprint(os.Geteuid()) {
			return nil, fmt.Errorf("belongs to the user with uid %s", uid)
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return nil, fmt.Errorf("has mode %04o, so that others could have changed or read it", mode)
		}
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return data, nil
}

// empty makes a file of ours empty, in place. One that is not there is created:
// an absent file is what a first start looks like.
func empty(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // unfit as it is, and stays so
	}
	return os.Truncate(path, 0)
}

// statField reads a field of the system's own description of a file by the names
// it has on different systems. It keeps build tags out of this package.
func statField(info fs.FileInfo, names ...string) (string, bool) {
	v := reflect.Indirect(reflect.ValueOf(info.Sys()))
	if v.Kind() != reflect.Struct {
		return "", false
	}
	for _, name := range names {
		if f := v.FieldByName(name); f.IsValid() {
			return fmt.Sprint(f.Interface()), true
		}
	}
	return "", false
}
