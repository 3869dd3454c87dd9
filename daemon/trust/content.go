package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// hashed remembers hashes of files for as long as their size and times stay.
var hashed struct {
	sync.Mutex
	files map[string]hashedFile
}

type hashedFile struct {
	info  fs.FileInfo
	ctime string
	sum   string
}

// maxRemembered bounds hashed: far more than the files of all servers of a person.
const maxRemembered = 4096

// contentHash is the hash of an open file, whose name is for remembering only. A
// file whose time is younger than a second is not remembered: a second write in
// the same tick of the clock would not show.
func contentHash(name string, f *os.File, info fs.FileInfo) (string, error) {
	// The change time cannot be set by a program, as the modification time can.
	ctime, _ := statField(info, "Ctim", "Ctimespec")
	hashed.Lock()
	old, ok := hashed.files[name]
	hashed.Unlock()
	if ok && old.ctime == ctime && old.info.Size() == info.Size() && old.info.ModTime().Equal(info.ModTime()) && os.SameFile(old.info, info) {
		return old.sum, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxHashed+1))
	if err != nil {
		return "", err
	}
	if n > maxHashed {
		return "", errors.New("it grew while it was read")
	}
	sum := hex.EncodeToString(h.Sum(nil))
	after, err := f.Stat()
	if err != nil {
		return "", err
	}
	settled := time.Since(info.ModTime()) > time.Second && after.ModTime().Equal(info.ModTime()) && after.Size() == info.Size()
	hashed.Lock()
	defer hashed.Unlock()
	if hashed.files == nil || len(hashed.files) >= maxRemembered {
		hashed.files = map[string]hashedFile{}
	}
	if settled {
		hashed.files[name] = hashedFile{info, ctime, sum}
	} else {
		delete(hashed.files, name)
	}
	return sum, nil
}
