package upstream

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A stream of events may end its lines with any of three marks, and begin with a
// byte order mark.
func TestEventReader(t *testing.T) {
	type row struct {
		name, in string
		want     []string // name:data
		lastID   string
		retry    time.Duration
	}
	for _, r := range []row{
		{name: "plain", in: "data: a\n\n", want: []string{"message:a"}},
		{name: "no space", in: "data:a\n\ndata:  b\n\n", want: []string{"message:a", "message: b"}},
		{name: "several lines", in: "data: a\ndata:\ndata: b\n\n", want: []string{"message:a\n\nb"}},
		{name: "CRLF", in: "event: x\r\ndata: a\r\ndata: b\r\n\r\n", want: []string{"x:a\nb"}},
		{name: "CR", in: "event: x\rdata: a\rdata: b\r\rdata: c\r\r", want: []string{"x:a\nb", "message:c"}},
		{name: "mixed", in: "data: a\r\n\ndata: b\r\r\ndata: c\n\r", want: []string{"message:a", "message:b", "message:c"}},
		{name: "a byte order mark", in: "\xef\xbb\xbfdata: a\n\n", want: []string{"message:a"}},
		{name: "without data", in: "event: x\nid: 7\nretry: 2000\n\ndata: a\n\n", want: []string{"message:a"}, lastID: "7", retry: 2 * time.Second},
		{name: "empty data", in: "id: 8\ndata:\n\n", want: []string{"message:"}, lastID: "8"},
		{name: "comments and unknown fields", in: ": hello\nfoo: bar\nfoo\ndata\ndata: a\n\n", want: []string{"message:\na"}},
		{name: "an id with a zero byte", in: "id: a\x00b\ndata: a\n\n", want: []string{"message:a"}},
		{name: "an odd retry", in: "retry: soon\nretry: -1\ndata: a\n\n", want: []string{"message:a"}},
		{name: "cut off", in: "data: a\n\ndata: b\n", want: []string{"message:a", "message:b"}},
		{name: "a rune in two pieces", in: "data: \u65e5\u672c\n\n", want: []string{"message:\u65e5\u672c"}},
	} {
		for how, in := range map[string]io.Reader{"whole": strings.NewReader(r.in), "byte by byte": iotest.OneByteReader(strings.NewReader(r.in))} {
			events := newEventReader(in)
			var got []string
			for {
				e, err := events.next()
				if err != nil {
					break
				}
				got = append(got, e.name+":"+string(e.data))
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", r.want) || events.lastID != r.lastID {
				t.Errorf("%s, %s: %q and id %q, want %q and %q", r.name, how, got, events.lastID, r.want, r.lastID)
			}
			if r.retry != 0 && events.retry != r.retry {
				t.Errorf("%s, %s: retry %v", r.name, how, events.retry)
			}
		}
	}
}

// An event of many short lines costs little more than its text.
func TestEventOfManyLines(t *testing.T) {
	const lines = 1 << 20
	events := newEventReader(strings.NewReader(strings.Repeat("data:x\n", lines) + "\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e, err := events.next()
	runtime.ReadMemStats(&after)
	if err != nil || len(e.data) != 2*lines-1 {
		t.Fatalf("%d bytes, %v", len(e.data), err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 40*lines {
		t.Errorf("%d bytes were allocated for %d", made, len(e.data))
	}
}
