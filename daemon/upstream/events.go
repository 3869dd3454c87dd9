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
	lastID string
	retry  time.Duration // how long to wait before reopening the stream
}

const (
	// defaultRetry is the wait before a stream is reopened when the server names
	// none; minRetry and maxRetry bound the one it names.
	defaultRetry = time.Second
	minRetry     = 100 * time.Millisecond
	maxRetry     = time.Minute
)

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{lines: newLineReader(r), retry: defaultRetry}
}

// next returns the next event. One that the end of the stream cuts off is
// dropped, but for data that is complete in itself, which some servers send
// without the blank line.
func (r *eventReader) next() (event, error) {
	e := event{name: "message"}
	var data [][]byte
	size := 0
	id, hasID := "", false
	for {
		line, over, err := r.lines.next()
		if err != nil {
			if len(data) > 0 && e.over == nil {
				e.data = bytes.Join(data, []byte("\n"))
				return e, nil
			}
			return event{}, err
		}
		if over != nil {
			e.over, data = over, nil
			continue
		}
		if len(line) == 0 {
			if hasID {
				r.lastID = id
			}
			if len(data) == 0 && e.over == nil {
				e.name, hasID = "message", false
				continue
			}
			e.data = bytes.Join(data, []byte("\n"))
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
			data = append(data, value)
			if size += len(value) + 1; size > maxMessage {
				e.over = new(idScan)
				for _, d := range data {
					e.over.feed(d)
				}
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
