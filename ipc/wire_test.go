package ipc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolsd/toolsd/index/tool"
)

// patient is a session whose calls end when they are cancelled.
type patient struct{ Session }

func (patient) Begin(ctx context.Context, _ SessionCall, done func(*CallOutcome, error)) {
	context.AfterFunc(ctx, func() { done(nil, Errorf(CodeCancelled, "cancelled")) })
}

func (patient) Saw(context.Context, map[tool.ID]tool.Hash, bool) error { return nil }

// TestFramesOutOfPlace: what is wrong with a frame is said under its id, and the
// session goes on.
func TestFramesOutOfPlace(t *testing.T) {
	here, there := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveFrames(t.Context(), patient{}, bufio.NewReader(there), newOutbox(there))
	}()
	answers := bufio.NewScanner(here)
	say := func(line string) {
		t.Helper()
		if _, err := here.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(line string, id uint64, want string) {
		t.Helper()
		say(line)
		if !answers.Scan() {
			t.Fatalf("%s has no answer", line)
		}
		var f frame
		if err := json.Unmarshal(answers.Bytes(), &f); err != nil || f.ID != id || !strings.Contains(answers.Text(), want) {
			t.Errorf("%s is answered with %s, want %q", line, answers.Text(), want)
		}
	}
	ask("", 0, "a frame: there is none")
	ask("[]", 0, "a JSON array does not fit")
	ask(`{"id":1,"method":"boo"}`, 1, "there is no method")
	ask(`{"id":2,"method":"seen","params":7}`, 2, "the params of seen: a JSON number")
	ask(`{"id":3,"method":"seen","params":{"tools":{"a::b":"h"}}}`, 3, `"result":{}`)
	ask(`{"id":4,"method":"call"}`, 4, "the params of call: there is none")
	say(`{"method":"cancel","params":{"id":99}}`)
	say(`{"method":"cancel","params":"x"}`)
	// Two calls of one id: the second is refused, and the first can still be cancelled.
	say(`{"id":5,"method":"call","params":{"tool":"a::b"}}`)
	ask(`{"id":5,"method":"call","params":{"tool":"a::b"}}`, 5, "a request with the id 5 is running")
	ask(`{"method":"cancel","params":{"id":5}}`, 5, `"cancelled"`)
	say(`{"id":5,"method":"call","params":{"tool":"a::b"}}`)
	ask(`{"method":"cancel","params":{"id":5}}`, 5, `"cancelled"`)
	here.Close()
	<-ended
}

func TestParametersThatCannotBeRead(t *testing.T) {
	for _, query := range []string{"q=%zz", "q=a;b"} {
		w := httptest.NewRecorder()
		NewHandler(struct{ Backend }{}, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/search?"+query, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "the parameters of the URL") {
			t.Errorf("%s is answered with %d: %s", query, w.Code, w.Body)
		}
	}
}

// TestEachQuestionIsAnsweredOnce ends connections and contexts while calls are
// written and answered. A call that was not answered says whether the daemon can
// have got it.
func TestEachQuestionIsAnsweredOnce(t *testing.T) {
	const calls = 8
	for round := range 300 {
		here, there := net.Pipe()
		s := &remoteSession{conn: here, lines: bufio.NewReader(here), done: make(chan struct{}), waiting: map[uint64]*waiter{}, stop: func() bool { return true }}
		s.out.w = here
		go s.read()
		go func() { // answers some, then goes
			defer there.Close()
			lines := bufio.NewScanner(there)
			for range round % calls {
				if !lines.Scan() {
					return
				}
				var f frame
				if json.Unmarshal(lines.Bytes(), &f) != nil || f.Method != "call" {
					continue
				}
				if f.ID%3 != 0 {
					_, _ = there.Write(Encode(outFrame{ID: f.ID, Result: CallOutcome{Result: json.RawMessage("1")}}))
				}
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		var answered [calls]atomic.Int32
		var all sync.WaitGroup
		all.Add(calls)
		for i := range calls {
			go s.Begin(ctx, SessionCall{Tool: "lab::echo"}, func(o *CallOutcome, err error) {
				if answered[i].Add(1) > 1 {
					t.Error("a call was answered twice")
					return
				}
				defer all.Done()
				e, _ := errors.AsType[*Error](err)
				switch {
				case err == nil && string(o.Result) == "1", errors.Is(err, context.Canceled):
				case e != nil && (e.Code == CodeNoDaemon || e.Code == CodeOutcomeUnknown):
				default:
					t.Errorf("%v", err)
				}
			})
			if round%4 == 0 && i == calls/2 {
				go cancel()
			}
		}
		all.Wait()
		cancel()
		s.Close()
		s.mu.Lock()
		if len(s.waiting) != 0 {
			t.Errorf("%d wait on", len(s.waiting))
		}
		s.mu.Unlock()
	}
}
