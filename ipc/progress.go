package ipc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// streamType is asked for by a caller of /v1/call that wants progress: then the
// answer is one frame a line, any number with progress and last the outcome.
const streamType = "application/x-ndjson"

type callFrame struct {
	Progress json.RawMessage `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}

type progressWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	mu      *sync.Mutex
}

func (p progressWriter) frame(f callFrame) {
	_, _ = p.w.Write(Encode(f)) // a caller that left ends the request's context
	_ = p.control.Flush()
}

func (p progressWriter) write(params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame(callFrame{Progress: params})
}

func (p progressWriter) end(result json.RawMessage, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.frame(callFrame{Error: AsError(err)})
		return
	}
	p.frame(callFrame{Result: result})
}

// readCallFrames reads what a progressWriter wrote.
func readCallFrames(r io.Reader, progress func(json.RawMessage)) (json.RawMessage, error) {
	lines := bufio.NewReader(r)
	for {
		line, err := readLine(lines)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of the daemon: %w", err)
		}
		var f callFrame
		if err := json.Unmarshal(line, &f); err != nil {
			return nil, fmt.Errorf("reading the answer of the daemon: %w", err)
		}
		switch {
		case f.Error != nil:
			return nil, f.Error
		case f.Result != nil:
			return f.Result, nil
		case progress != nil:
			progress(f.Progress)
		}
	}
}
