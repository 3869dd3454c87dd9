package platform

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

func notRegular(path string) *UnfitError {
	return &UnfitError{path, "is not a regular file", "move it away"}
}

// OpenPrivate opens a log file for appending, 0600, and never through a link.
func OpenPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return nil, explainOpen(path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = notRegular(path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		err = f.Chmod(0o600)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxState is more than any file of the state directory that is read whole.
const maxState = 64 << 20

// ReadState reads a small file of the state directory. What is there in its place
// must not hold up a daemon or a verb: a fifo would for ever.
func ReadState(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNoFollow, 0)
	if err != nil {
		return nil, explainOpen(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, notRegular(path)
	case info.Size() > maxState:
		return nil, &UnfitError{path, fmt.Sprintf("is larger than %d MiB", maxState>>20), "move it away"}
	}
	return io.ReadAll(f)
}

// WriteFileAtomic puts data at path so that a reader, or a crash at any moment,
// sees the old content or the new one. A link at path is replaced, not followed.
func WriteFileAtomic(path string, data []byte, mode fs.FileMode) (err error) {
	return writeAtomic(path, data, mode, true)
}

// writeAtomic may leave out the wait for the disk: for files that are of no use
// after the machine went down.
func writeAtomic(path string, data []byte, mode fs.FileMode, durable bool) (err error) {
	dir := filepath.Dir(path)
	// CreateTemp opens with O_EXCL, so a planted link is not followed.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if runtime.GOOS != "windows" {
		if err = f.Chmod(mode.Perm()); err != nil {
			return err
		}
	}
	if durable {
		if err = f.Sync(); err != nil {
			return err
		}
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if durable {
		return syncDir(dir)
	}
	return nil
}
