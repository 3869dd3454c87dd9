package upstream

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

// event is one server-sent event. over is set, and data is not, for one that was
// too large to keep.
type event struct {
	name string
	data []byte
	over *idScan
}

// eventReader reads a text/event-stream.
type eventReader struct {
	lines  *lineReader
	begun  bool
	lastID string
	retry  time.Duration // how long to wait before reopening the stream
}

// lineEnds makes all line ends of such a stream "\n": it may end its lines with
// "\r" alone.
type lineEnds struct {
	r  io.Reader
	cr bool // the last byte was one: a "\n" after it belongs to it
}

func (l *lineEnds) Read(p []byte) (int, error) {
	for {
		n, err := l.r.Read(p)
		out := p[:0]
		for rest := p[:n]; len(rest) > 0; {
			if l.cr && rest[0] == '\n' {
				rest = rest[1:]
			}
			i := bytes.IndexByte(rest, '\r')
			if l.cr = i >= 0; !l.cr {
				out = append(out, rest...)
				break
			}
			out = append(append(out, rest[:i]...), '\n')
			rest = rest[i+1:]
		}
		if len(out) > 0 || err != nil || len(p) == 0 {
			return len(out), err
		}
	}
}

const (
	// defaultRetry is the wait before a stream is reopened when the server names
	// none; minRetry and maxRetry bound the one it names.
	defaultRetry = time.Second
	minRetry     = 100 * time.Millisecond
	maxRetry     = time.Minute
)

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{lines: newLineReader(&lineEnds{r: r}), retry: defaultRetry}
}

// next returns the next event. One that the end of the stream cuts off is
// dropped, but for data that is complete in itself, which some servers send
// without the blank line.
func (r *eventReader) next() (event, error) {
	e := event{name: "message"}
	var data []byte
	hasData := false
	id, hasID := "", false
	for {
		line, over, err := r.lines.next()
		if err != nil {
			if hasData && e.over == nil {
				e.data = data
				return e, nil
			}
			return event{}, err
		}
		if over != nil {
			e.over, data = over, nil
			continue
		}
		if !r.begun {
			r.begun = true
			line = bytes.TrimPrefix(line, bom)
		}
		if len(line) == 0 {
			if hasID {
				r.lastID = id
			}
			if !hasData && e.over == nil {
				e.name, hasID = "message", false
				continue
			}
			e.data = data
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "data":
			if e.over != nil {
				e.over.feed(value)
				continue
			}
			if hasData {
				value = append(append(data, '\n'), value...)
			}
			data, hasData = value, true
			if len(data) > maxMessage {
				e.over = new(idScan)
				e.over.feed(data)
				data = nil
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id, hasID = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				r.retry = min(max(time.Duration(ms)*time.Millisecond, minRetry), maxRetry)
			}
		}
	}
}
