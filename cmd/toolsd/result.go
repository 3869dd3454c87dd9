package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/ipc"
)

// callResult is a CallToolResult as far as it can be shown.
type callResult struct {
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
}

// piece is one item of content.
type piece struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     []byte `json:"data"`
	MIMEType string `json:"mimeType"`
	Name     string `json:"name"`
	URI      string `json:"uri"`
	Resource *struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     []byte  `json:"blob"`
	} `json:"resource"`
}

// show prints texts as they are, and saves or names the rest. Structured content
// is shown when there is no text, since servers repeat it there.
func (r callResult) show(a *app, output string) error {
	texts, saved := 0, 0
	for _, raw := range r.Content {
		var p piece
		if json.Unmarshal(raw, &p) != nil {
			a.out.text(string(raw))
			continue
		}
		switch {
		case p.Type == "text":
			texts++
			a.out.text(p.Text)
		case p.Type == "image" || p.Type == "audio":
			saved++
			if err := a.save(p.Type, p.MIMEType, p.Data, output, saved); err != nil {
				return err
			}
		case p.Type == "resource_link":
			a.out.text(strings.TrimSpace(p.Name + " " + p.URI))
		case p.Type == "resource" && p.Resource != nil && p.Resource.Text != nil:
			texts++
			a.out.text(*p.Resource.Text)
		case p.Type == "resource" && p.Resource != nil:
			saved++
			if err := a.save(p.Resource.URI, p.Resource.MIMEType, p.Resource.Blob, output, saved); err != nil {
				return err
			}
		default:
			a.out.text(string(raw)) // a kind that did not exist when this was written
		}
	}
	if texts == 0 && len(r.Structured) > 0 && string(r.Structured) != "null" {
		a.out.text(indented(r.Structured))
	}
	if output != "" && saved == 0 {
		a.say("the result holds no file, so %s was not written", output)
	}
	return nil
}

// save writes binary content to a file, or says that it is there. Several files
// of one result get numbers: out.png, out-2.png.
func (a *app) save(what, mime string, data []byte, output string, n int) error {
	if output == "" {
		a.out.line("[%s]", cleanLine(strings.TrimSpace(fmt.Sprintf("%s %s, %s", what, mime, size(int64(len(data)))))))
		a.hint("`-o FILE` saves it")
		return nil
	}
	path := output
	if n > 1 {
		ext := filepath.Ext(output)
		path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(output, ext), n, ext)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return ipc.Errorf(ipc.CodeInternal, "the tool ran, but its result was not saved: %v", err)
	}
	a.out.line("%s: %s, %s", cleanLine(path), cleanLine(mime), size(int64(len(data))))
	return nil
}

// meter shows on a terminal that a call is under way, and how far it is.
type meter struct {
	s     *screen
	id    string
	begin time.Time

	mu   sync.Mutex
	text string
	end  chan struct{} // nil once it stopped
	done sync.WaitGroup
}

// A call that is answered within meterAfter shows no meter: it would flicker.
const (
	meterAfter = 300 * time.Millisecond
	meterEvery = 100 * time.Millisecond
)

func startMeter(s *screen, id string) *meter {
	m := &meter{s: s, id: id, begin: time.Now(), end: make(chan struct{})}
	m.done.Go(func() { m.run(m.end) })
	return m
}

func (m *meter) run(end <-chan struct{}) {
	ticker := time.NewTicker(meterEvery)
	defer ticker.Stop()
	drawn := false
	for i := 0; ; i++ {
		select {
		case <-end:
			if drawn {
				fmt.Fprint(m.s.w, "\r\x1b[K")
			}
			return
		case <-ticker.C:
		}
		if time.Since(m.begin) < meterAfter {
			continue
		}
		drawn = true
		m.mu.Lock()
		text := m.text
		m.mu.Unlock()
		wheel := string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[i%10])
		line := fmt.Sprintf("%s %s %.0fs %s", wheel, m.id, time.Since(m.begin).Seconds(), text)
		fmt.Fprintf(m.s.w, "\r\x1b[K%s", cut(cleanLine(line), max(20, m.s.width-1)))
	}
}

// progress takes the params of a notifications/progress.
func (m *meter) progress(params json.RawMessage) {
	var p struct {
		Progress float64 `json:"progress"`
		Total    float64 `json:"total"`
		Message  string  `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	text := p.Message
	if p.Total > 0 {
		text = fmt.Sprintf("%.0f %% %s", 100*p.Progress/p.Total, p.Message)
	}
	m.mu.Lock()
	m.text = text
	m.mu.Unlock()
}

// stop clears the line. It may be called twice.
func (m *meter) stop() {
	m.mu.Lock()
	end := m.end
	m.end = nil
	m.mu.Unlock()
	if end != nil {
		close(end)
		m.done.Wait()
	}
}
