package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// receive takes a message, or a batch of them. It reports false for what is no
// JSON object.
func (p *peer) receive(msg []byte) bool {
	msg = bytes.TrimSpace(msg)
	if len(msg) > 0 && msg[0] == '[' {
		var batch []json.RawMessage
		if json.Unmarshal(msg, &batch) != nil || len(batch) == 0 {
			return false
		}
		good := true
		for _, m := range batch {
			good = p.receiveOne(m) && good
		}
		return good
	}
	return p.receiveOne(msg)
}

func (p *peer) receiveOne(msg []byte) bool {
	if len(msg) == 0 || msg[0] != '{' {
		return false
	}
	// A map, since encoding/json would match the names of a struct's fields
	// whatever their case.
	var fields map[string]json.RawMessage
	if json.Unmarshal(msg, &fields) != nil {
		return false
	}
	p.heard.Store(time.Now().UnixNano())
	if raw, ok := fields["method"]; ok {
		var method string
		if json.Unmarshal(raw, &method) != nil {
			return false
		}
		if id, ok := fields["id"]; ok && string(id) != "null" {
			p.answer(id, method)
		} else {
			p.notified(method, fields["params"])
		}
		return true
	}
	result, hasResult := fields["result"]
	rawErr := fields["error"]
	hasErr := len(rawErr) > 0 && string(rawErr) != "null"
	if !hasResult && !hasErr && fields["id"] == nil {
		return false // {"level":"info",…}: a log line
	}
	c := p.take(idKey(fields["id"]))
	if c == nil && hasErr && idKey(fields["id"]) == "" {
		c = p.only() // a server that could not read the request cannot name it
	}
	if c == nil {
		return true // the caller gave up before
	}
	switch {
	case hasErr:
		c.answered(answer{err: parseError(rawErr)})
	case hasResult:
		c.answered(answer{result: result})
	default:
		c.answered(answer{err: errors.New("the answer has neither a result nor an error")})
	}
	return true
}

// parseError reads a JSON-RPC error. What is not of that form becomes the text
// of an internal error.
func parseError(raw json.RawMessage) *RPCError {
	var fields map[string]json.RawMessage
	const internal = -32603
	if json.Unmarshal(raw, &fields) != nil {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		return &RPCError{Code: internal, Message: text}
	}
	e := &RPCError{Code: internal, Data: fields["data"]}
	if code, err := strconv.ParseInt(idKey(fields["code"]), 10, 64); err == nil {
		e.Code = code
	}
	if json.Unmarshal(fields["message"], &e.Message) != nil {
		e.Message = string(fields["message"])
	}
	return e
}

// answer replies to a request of the server's. No feature that would make it
// ask was offered to it, so all but ping is declined.
func (p *peer) answer(id json.RawMessage, method string) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	if json.Compact(&b, id) != nil {
		return
	}
	if method == "ping" {
		b.WriteString(`,"result":{}}`)
	} else {
		e, _ := json.Marshal(RPCError{Code: -32601, Message: "toolsd does not offer " + cut(method, 100)})
		b.WriteString(`,"error":`)
		b.Write(e)
		b.WriteByte('}')
		p.notes.add("asked "+cut(method, 40), "it asked for %s, which was declined", cut(method, 40))
	}
	p.out.offer(&outgoing{body: b.Bytes()})
}

func (p *peer) notified(method string, params json.RawMessage) {
	switch method {
	case "notifications/tools/list_changed":
		p.onChanged()
	case "notifications/progress":
		var token struct {
			Token json.RawMessage `json:"progressToken"`
		}
		if json.Unmarshal(params, &token) != nil {
			return
		}
		p.gotProgress(idKey(token.Token), params)
	}
}
