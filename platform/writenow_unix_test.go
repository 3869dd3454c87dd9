//go:build unix

package platform

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWriteNow fills a pipe and a socket that nobody reads: what is said to be
// written arrives, and nothing waits.
func TestWriteNow(t *testing.T) {
	if WriteNow(&bytes.Buffer{}, []byte("x")) != 0 {
		t.Error("it wrote to something that it cannot know")
	}
	ours, theirs, err := pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	reader := os.NewFile(uintptr(theirs), "pipe")
	defer ours.Close()
	if n := WriteNow(ours, bytes.Repeat([]byte("x"), 1<<20)); n != 0 {
		t.Errorf("%d bytes were written to a pipe that may take them in pieces", n)
	}
	fill(t, ours, reader, 300, true)

	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fill(t, near, far, 100_000, false)
	far.Close()
	if n := WriteNow(near, []byte("x")); n != 0 {
		t.Error("it wrote to who is gone")
	}
}

// fill writes messages until one finds no room, and reads what was written.
func fill(t *testing.T, w io.Writer, r io.ReadCloser, size int, whole bool) {
	t.Helper()
	written := 0
	for {
		n := WriteNow(w, bytes.Repeat([]byte("x"), size))
		if written += n; n < size {
			if whole && n != 0 {
				t.Errorf("%d of %d bytes were written", n, size)
			}
			break
		}
		if written > 64<<20 {
			t.Fatal("it never says that there is no room")
		}
	}
	if written == 0 {
		t.Fatal("nothing was written")
	}
	read := make(chan int, 1)
	go func() {
		n, _ := io.ReadFull(r, make([]byte, written))
		read <- n
	}()
	select {
	case n := <-read:
		if n != written {
			t.Errorf("%d bytes arrived of %d", n, written)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("less than %d bytes arrived", written)
	}
	if WriteNow(w, []byte("x")) != 1 {
		t.Error("there is room again, and nothing was written")
	}
}
