package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// maxMessage bounds one message of a server. Legitimate results (screenshots,
// whole files) stay below a few MiB; one runaway answer must not cost the
// daemon more memory than all else together.
const maxMessage = 16 << 20

// readSize is the buffer per stdio server. Most messages fit; 44 servers cost
// under a megabyte.
const readSize = 16 << 10

// lineReader reads messages that end with a newline.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, readSize), maxMessage}
}

// next returns the next line without its end. A line over max is read past
// without being kept; over then says which answers it held. The last line needs
// no newline.
func (l *lineReader) next() (line []byte, over *idScan, err error) {
	var kept []byte
	read := false
	for {
		part, err := l.r.ReadSlice('\n')
		read = read || len(part) > 0
		switch {
		case over != nil:
			over.feed(part)
		case len(kept)+len(part) > l.max:
			over = new(idScan)
			over.feed(kept)
			over.feed(part)
			kept = nil
		default:
			kept = append(kept, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && (err != io.EOF || !read) {
			return nil, nil, err
		}
		return bytes.TrimRight(kept, "\r\n"), over, nil
	}
}

// idScan finds the top-level ids of a JSON-RPC message, or of a batch of them,
// that passes by in pieces and is never held as a whole.
type idScan struct {
	ids    []string // keys as idKey makes them
	method bool     // the last object was a request or a notification

	size              int64
	base              int // depth of a message's own keys: 1, in a batch 2
	depth             int
	inString, escaped bool
	wantKey           bool
	inKey, inID       bool
	key, id           []byte
}

func (s *idScan) feed(part []byte) {
	s.size += int64(len(part))
	for i := 0; i < len(part); i++ {
		if s.inString && !s.escaped && !s.inKey && !s.inID {
			// Nearly all of a large message is inside of strings.
			skip := bytes.IndexByte(part[i:], '"')
			if skip < 0 {
				skip = len(part) - i
			}
			if escape := bytes.IndexByte(part[i:i+skip], '\\'); escape >= 0 {
				skip = escape
			}
			if i += skip; i == len(part) {
				return
			}
		}
		s.step(part[i])
	}
}

// maxIDScan bounds what is kept of a key or an id; ours are far shorter.
const maxIDScan = 64

func (s *idScan) step(b byte) {
	if s.inString {
		if s.inKey && len(s.key) < maxIDScan {
			s.key = append(s.key, b)
		}
		if s.inID && len(s.id) < maxIDScan {
			s.id = append(s.id, b)
		}
		switch {
		case s.escaped:
			s.escaped = false
		case b == '\\':
			s.escaped = true
		case b == '"':
			s.inString, s.inKey = false, false
		}
		return
	}
	top := s.depth == s.base && s.base > 0
	switch b {
	case '"':
		s.inString = true
		if top && s.wantKey {
			s.inKey, s.key = true, s.key[:0]
		}
		if top && s.inID {
			s.id = append(s.id, b)
		}
	case '{', '[':
		s.depth++
		if s.base == 0 {
			s.base = 1
			if b == '[' {
				s.base = 2
			}
		}
		if s.depth == s.base && b == '{' {
			s.wantKey, s.method, s.id = true, false, s.id[:0]
		}
	case '}', ']':
		if top {
			if id := idKey(s.id); id != "" && !s.method {
				s.ids = append(s.ids, id)
			}
			s.inID, s.id = false, s.id[:0]
		}
		s.depth--
	case ':':
		if top && s.wantKey {
			s.wantKey = false
			s.inID = string(s.key) == `id"`
			s.method = s.method || string(s.key) == `method"`
		}
	case ',':
		if top {
			s.wantKey, s.inID = true, false
		}
	case ' ', '\t', '\r', '\n':
	default:
		if top && s.inID && len(s.id) < maxIDScan {
			s.id = append(s.id, b)
		}
	}
}

// idKey makes the ids 7, 7.0 and "7" the same: servers answer with any of them.
// It is empty for null and for what is no id.
func idKey(raw json.RawMessage) string {
	s := strings.TrimSpace(string(raw))
	if s == "" || s == "null" {
		return ""
	}
	if s[0] == '"' {
		var text string
		if json.Unmarshal([]byte(s), &text) != nil {
			return ""
		}
		return text
	}
	if strings.ContainsAny(s, ".eE") {
		if f, err := strconv.ParseFloat(s, 64); err == nil && f == float64(int64(f)) {
			return strconv.FormatInt(int64(f), 10)
		}
	}
	return s
}
