package clientconfig

import (
	"bytes"
	"strings"
	"unicode"
)

// DropEmptyRoot takes the key of loc's servers out of a JSON file when it holds an
// empty object, without so much as a comment in it. Every other byte stays. bare
// says that the file is an empty object then, without a comment.
func DropEmptyRoot(loc Location, data []byte) (out []byte, bare bool, err error) {
	file, err := parseJSON(data, everything)
	if err != nil {
		return nil, false, err
	}
	e := &editor{loc: loc, data: data}
	b := e.box(file)
	found := 0
	for i, m := range file.members {
		if m.key != loc.Pointer {
			continue
		}
		found++ // given twice, it is somebody's riddle
		if n := m.val; n.kind != kMap || len(n.members) > 0 || !blank(data[n.start+1:n.end-1]) {
			return data, false, nil
		}
		b.elems[i].gone = true
	}
	if found != 1 {
		return data, false, nil
	}
	e.change(b, nil)
	if out, err = e.apply(); err != nil {
		return nil, false, err
	}
	if _, err := parseJSON(out, everything); err != nil {
		return nil, false, err
	}
	left := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, string(bytes.TrimPrefix(out, bom)))
	return out, left == "{}", nil
}

// HasKey reports whether a JSON file has that key at its root.
func HasKey(data []byte, key string) bool {
	if blank(bytes.TrimPrefix(data, bom)) {
		return false
	}
	file, err := parseJSON(data, everything)
	return err == nil && file.get(key) != nil
}
