package calllog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readFile returns the entries of one file.
func readFile(path string) ([]Entry, error) {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the call log: %w", err)
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("reading the call log %s: %w", path, errLink)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // rotated at this moment; its entries are in the other file
	}
	if err != nil {
		return nil, fmt.Errorf("reading the call log: %w", err)
	}
	defer f.Close()
	var out []Entry
	// A file of ours is not larger, and a foreign one must not fill the memory.
	r := bufio.NewReader(io.LimitReader(f, 2*maxSize))
	for {
		line, err := r.ReadBytes('\n')
		var e Entry
		if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &e) == nil && !e.Time.IsZero() {
			out = append(out, e)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the call log %s: %w", path, err)
		}
	}
}
