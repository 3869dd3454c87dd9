package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is the largest request body: a call's arguments may hold a file.
const maxBody = 32 << 20

// maxDrained and drainTimeout bound what is read past of a body over the limit. A
// caller that writes all of it before it reads finds the answer only then; one
// that never ends meets a closed connection. A local socket carries this much in a
// fraction of a second.
const (
	maxDrained   = 8 * maxBody
	drainTimeout = 5 * time.Second
)

// NewHandler serves b at the paths under /v1/, and what metrics writes at
// /metrics in the Prometheus text format.
func NewHandler(b Backend, metrics func(io.Writer)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ping", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, struct {
			Version  string   `json:"version"`
			Protocol Protocol `json:"protocol"`
		}{Version(), Supported})
	})
	get(mux, "/v1/status", b.Status, func(q *query) StatusRequest { return StatusRequest{CWD: q.text("cwd")} })
	get(mux, "/v1/servers", servers(b), func(q *query) StatusRequest { return StatusRequest{CWD: q.text("cwd")} })
	mux.HandleFunc("GET /v1/search", func(w http.ResponseWriter, r *http.Request) {
		q := newQuery(r.URL.RawQuery)
		request := SearchRequest{
			Query: q.text("q"), Max: q.number("n"), Server: q.text("server"), Category: q.text("category"),
			CWD: q.text("cwd"), Explain: q.flag("explain"), Threshold: q.score("threshold"),
		}
		if err := q.done(); err != nil {
			refuse(w, err)
			return
		}
		start := time.Now()
		result, err := b.Search(r.Context(), request)
		w.Header().Set("Server-Timing", fmt.Sprintf("search;dur=%.3f", float64(time.Since(start).Microseconds())/1000))
		reply(w, result, err)
	})
	get(mux, "/v1/tools", b.Tools, func(q *query) ToolsRequest {
		return ToolsRequest{Server: q.text("server"), Category: q.text("category"), CWD: q.text("cwd")}
	})
	get(mux, "/v1/categories", b.Categories, func(q *query) CategoriesRequest {
		return CategoriesRequest{Name: q.text("name"), CWD: q.text("cwd")}
	})
	get(mux, "/v1/why", b.Why, func(q *query) WhyRequest {
		return WhyRequest{Subject: q.text("subject"), CWD: q.text("cwd")}
	})
	get(mux, "/v1/trust", b.Trust, func(q *query) TrustRequest {
		return TrustRequest{Action: TrustShow, Name: q.text("name"), CWD: q.text("cwd")}
	})
	get(mux, "/v1/log", b.Log, func(q *query) ServerRequest {
		return ServerRequest{Name: q.text("name"), CWD: q.text("cwd"), Lines: q.number("lines")}
	})
	get(mux, "/v1/sessions", sessions(b), func(q *query) StatusRequest { return StatusRequest{CWD: q.text("cwd")} })
	post(mux, "/v1/activate", b.Activate)
	post(mux, "/v1/trust", b.Trust)
	post(mux, "/v1/restart", b.Restart)
	post(mux, "/v1/stop", func(ctx context.Context, _ struct{}) (*DaemonInfo, error) { return b.Stop(ctx) })
	mux.HandleFunc("POST /v1/call", func(w http.ResponseWriter, r *http.Request) { serveCall(b, w, r) })
	mux.HandleFunc("POST /v1/sessions", func(w http.ResponseWriter, r *http.Request) { serveSession(b, w, r) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		if metrics != nil {
			metrics(w)
		}
	})
	mux.Handle("GET /debug/vars", expvar.Handler())
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, Errorf(CodeNotFound, "there is no %s %s", r.Method, r.URL.Path).
			WithHint("the paths are status, search, tools, categories, why, trust, servers, sessions (GET) and activate, call, sessions, trust (POST), all under /v1/; and /metrics, /debug/vars, /debug/pprof/"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamp(w.Header())
		if theirs, ok := parseProtocol(r.Header.Get(protocolHeader)); ok && !theirs.Overlaps(Supported) {
			refuse(w, Errorf(CodeVersionSkew, "the daemon (%s) speaks protocol %s, the caller %s", Version(), Supported, theirs).
				WithHint("run `toolsd stop` and try again, so that both are of one version"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ServerList is the answer at /v1/servers and of `toolsd servers --json`.
type ServerList struct {
	Servers  []ServerInfo `json:"servers"`
	Totals   Totals       `json:"totals"`
	Problems []Problem    `json:"problems"`
}

func servers(b Backend) func(context.Context, StatusRequest) (*ServerList, error) {
	return func(ctx context.Context, r StatusRequest) (*ServerList, error) {
		s, err := b.Status(ctx, r)
		if err != nil {
			return nil, err
		}
		return &ServerList{s.Servers, s.Totals, s.Problems}, nil
	}
}

// SessionList is the answer to GET /v1/sessions.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
}

func sessions(b Backend) func(context.Context, StatusRequest) (*SessionList, error) {
	return func(ctx context.Context, r StatusRequest) (*SessionList, error) {
		s, err := b.Status(ctx, r)
		if err != nil {
			return nil, err
		}
		return &SessionList{s.Sessions}, nil
	}
}

func get[Q, A any](mux *http.ServeMux, path string, do func(context.Context, Q) (*A, error), parse func(*query) Q) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q := newQuery(r.URL.RawQuery)
		request := parse(q)
		if err := q.done(); err != nil {
			refuse(w, err)
			return
		}
		result, err := do(r.Context(), request)
		reply(w, result, err)
	})
}

func post[Q, A any](mux *http.ServeMux, path string, do func(context.Context, Q) (*A, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var request Q
		if err := readBody(w, r, &request); err != nil {
			refuse(w, err)
			return
		}
		result, err := do(r.Context(), request)
		reply(w, result, err)
	})
}

// serveCall runs a tool. The answer is its result alone, or for a caller that asks
// for progress (streamType) frames, of which the last holds it.
func serveCall(b Backend, w http.ResponseWriter, r *http.Request) {
	var request CallRequest
	if err := readBody(w, r, &request); err != nil {
		refuse(w, err)
		return
	}
	if request.TimeoutMS < 0 {
		refuse(w, Errorf(CodeUsage, "timeout_ms is %d", request.TimeoutMS).WithHint("give a number of milliseconds above 0, or leave it out"))
		return
	}
	var progress progressWriter
	if r.Header.Get("Accept") == streamType {
		w.Header().Set("Content-Type", streamType)
		progress = progressWriter{w, http.NewResponseController(w), new(sync.Mutex)}
		request.Progress = progress.write
	}
	result, err := b.Call(r.Context(), request)
	if progress.w != nil {
		progress.end(result, err)
		return
	}
	reply(w, result, err)
}

// readBody decodes the one JSON document of a request.
func readBody(w http.ResponseWriter, r *http.Request, into any) *Error {
	data := []byte(nil)
	over := r.ContentLength > maxBody
	if !over {
		var err error
		if data, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1)); err != nil {
			return Errorf(CodeUsage, "reading the request body: %v", err).WithHint("send it whole, with its length in Content-Length or in chunks")
		}
		over = len(data) > maxBody
	}
	if over {
		drain(w, r)
		return Errorf(CodeTooLarge, "the request body is over %d MiB", maxBody>>20).WithHint("pass a path to the tool instead of the content, if it takes one")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	if err := DecodeStrict(data, into); err != nil {
		return Errorf(CodeUsage, "the request body: %v", err).WithHint("send one JSON object with the fields of this path")
	}
	return nil
}

// drain reads past the rest of a body that is too large. A caller that asked first
// (Expect: 100-continue) is told before it sends any.
func drain(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(drainTimeout)) // without it the bytes are the bound
	_, _ = io.CopyN(io.Discard, r.Body, maxDrained)
	_ = control.SetReadDeadline(time.Time{})
}

// DecodeStrict decodes exactly one JSON document, refusing unknown fields, and
// says where a mistake is.
func DecodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err := d.Token(); err != io.EOF {
			return fmt.Errorf("there is more after the JSON document, at %s", Place(data, d.InputOffset()))
		}
		return nil
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not valid JSON at %s: %v", Place(data, syntax.Offset), err)
	}
	if err == io.EOF {
		return errors.New("there is none")
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if kind.Field == "" {
			return fmt.Errorf("a JSON %s does not fit there", kind.Value)
		}
		return fmt.Errorf("%s at %s: a JSON %s does not fit there", strconv.Quote(kind.Field), Place(data, kind.Offset), kind.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("not valid JSON at %s: it ends too early", Place(data, int64(len(data))))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// Place writes a byte offset as line and column, both from 1.
func Place(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:]))) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}

func reply(w http.ResponseWriter, result any, err error) {
	if err != nil {
		refuse(w, AsError(err))
		return
	}
	answer(w, http.StatusOK, result)
}

// ErrorDocument is how a failure is written, on the socket and by --json.
type ErrorDocument struct {
	Error *Error `json:"error"`
}

func refuse(w http.ResponseWriter, err *Error) { answer(w, err.Code.status(), ErrorDocument{err}) }

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	var body []byte
	if raw, ok := v.(json.RawMessage); ok {
		body = append(slices.Clip(raw), '\n')
	} else {
		body = Encode(v)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that left needs no answer
}

// Encode is the JSON that leaves this package: one line, a newline at its end,
// and no escaping of <, > and &, which nobody here puts into HTML.
func Encode(v any) []byte {
	data, err := encode(v)
	if err != nil {
		data, _ = encode(ErrorDocument{unencodable(err)})
	}
	return data
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

func unencodable(err error) *Error { return Errorf(CodeInternal, "encoding an answer: %v", err) }

// query reads the parameters of a GET and remembers what was wrong with them.
type query struct {
	values url.Values
	known  []string
	err    *Error
}

// newQuery reads what stands behind the question mark. What cannot be read must
// not pass for a parameter that was left out.
func newQuery(raw string) *query {
	v, err := url.ParseQuery(raw)
	q := &query{values: v}
	if err != nil {
		q.err = Errorf(CodeUsage, "the parameters of the URL: %v", err).WithHint("write %%, ; and & of a value as %%25, %%3B and %%26")
	}
	return q
}

func (q *query) text(name string) string {
	q.known = append(q.known, name)
	return q.values.Get(name)
}

func (q *query) number(name string) int {
	text := q.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text) // the nearest int where there is no such one
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < 1 {
		q.err = Errorf(CodeUsage, "%s=%s is not a number above 0", name, text).WithHint("for example %s=5", name)
	}
	return n
}

// score is a number from 0, or nil where there is none.
func (q *query) score(name string) *float64 {
	text := q.text(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) {
		q.err = Errorf(CodeUsage, "%s=%s is not a number from 0", name, text).WithHint("for example %s=1.5", name)
	}
	return &v
}

func (q *query) flag(name string) bool {
	text := q.text(name)
	b, err := strconv.ParseBool(text)
	if text != "" && err != nil {
		q.err = Errorf(CodeUsage, "%s=%s is neither true nor false", name, text).WithHint("for example %s=true", name)
	}
	return b
}

func (q *query) done() *Error {
	for name := range q.values {
		if q.err == nil && !slices.Contains(q.known, name) {
			q.err = Errorf(CodeUsage, "there is no parameter %q here", name).WithHint("the parameters are %s", strings.Join(q.known, ", "))
		}
	}
	return q.err
}
