package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/toolsd/toolsd/ipc"
)

// message is one JSON-RPC message of the agent. Its parts stay raw, so that an
// id of any size and kind comes back as it was sent.
type message struct {
	ID     json.RawMessage // nil: a notification
	Method string
	Params json.RawMessage
}

// rpcError is a JSON-RPC error, ours or a server's.
type rpcError = ipc.RPCError

// The codes of JSON-RPC 2.0.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// maxMessage bounds a line of the agent: the arguments of a call may hold a
// file, and the daemon takes a request of half this size.
const maxMessage = 64 << 20

var errTooLong = errors.New("the line is too long")

// readMessage reads the next line. A line of more than max bytes is read to its
// end and reported with errTooLong; the stream stays usable.
func readMessage(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > max {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (err != io.EOF || len(line) == 0 && !tooLong):
			return nil, err
		case tooLong:
			return nil, errTooLong
		}
		line = bytes.TrimSpace(line)
		if !utf8.Valid(line) {
			line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
		}
		return line, nil
	}
}

// parseMessage reads one JSON-RPC message. A nil message without an error is
// the answer to a request; this server sends none, so it is nobody's.
func parseMessage(raw []byte) (*message, *rpcError) {
	var version, id, method json.RawMessage
	m, answers := &message{}, false
	err := members(raw, func(name string, value json.RawMessage) {
		switch name {
		case "jsonrpc":
			version = value
		case "id":
			id = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result", "error":
			answers = true
		}
	})
	if err != nil {
		return nil, &rpcError{Code: codeInvalidRequest, Message: "a message must be a JSON object"}
	}
	if len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9') {
		m.ID = id
	}
	invalid := func(text string) (*message, *rpcError) {
		return m, &rpcError{Code: codeInvalidRequest, Message: text}
	}
	switch {
	case id != nil && m.ID == nil && method != nil:
		return invalid("the id of a request must be a string or a number")
	case method == nil && answers:
		return nil, nil
	case string(version) != `"2.0"`:
		return invalid(`a message must have "jsonrpc":"2.0"`)
	case len(method) <= 2 || method[0] != '"':
		return invalid("a request must have a method")
	}
	m.Method = unquote(method)
	return m, nil
}

// key makes ids comparable: a string may be written in several ways.
func key(id json.RawMessage) string {
	if id[0] == '"' {
		return "s" + unquote(id)
	}
	return "n" + string(id)
}

var null = json.RawMessage("null")

// answer is the response to a request.
func answer(id, result json.RawMessage, err *rpcError) []byte {
	if id == nil {
		id = null
	}
	part, content := `,"result":`, []byte(result)
	if err != nil {
		part, content = `,"error":`, encode(err)
	}
	b := make([]byte, 0, len(id)+len(content)+40) // the newline included
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, part...)
	b = append(b, content...)
	return append(b, '}')
}

// encode is the JSON of a value of ours, without a newline.
func encode(v any) json.RawMessage { return bytes.TrimSuffix(ipc.Encode(v), []byte("\n")) }

// compact keeps a result on one line. The daemon hands over what a server wrote
// on a line of its own, so there is nothing to do but in a test's backend.
func compact(raw json.RawMessage) json.RawMessage {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return null
	}
	return b.Bytes()
}
