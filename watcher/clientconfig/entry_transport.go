package clientconfig

import (
	"fmt"
	"strings"
)

// kindOfServer decides about the transport. What the entry has counts for more
// than what its type says.
func (e *entryReader) kindOfServer(n *node) *fault {
	s := e.s
	said, known := Transport(""), true
	if t := e.transport; t != nil {
		if t.kind != kString {
			return faultf(t, `"type" is %s, not text`, t.kind)
		}
		said, known = transportOf(t.text)
		if !known {
			return &fault{off: t.start, message: `"type" is none that is known`, hint: "the types are stdio, http and sse"}
		}
	}
	remote := s.URL != "" && (s.Command == "" || said != "" && said != Stdio)
	switch {
	case remote:
		s.Transport = said
		if said == Stdio {
			e.note(e.transport, `remove the "type"`, `"type" says stdio but the entry has a url; the url is used`)
			s.Transport = Auto
		}
		if said == "" {
			s.Transport = Auto
			switch {
			case e.urlKey == "httpUrl":
				s.Transport = HTTP
			case e.client.URL != "" && e.urlKey == "url":
				s.Transport = e.client.URL
			}
		}
		if said == websocket || websocketURL(s.URL) {
			s.Transport = Auto
			e.unsupported("it speaks WebSocket, which toolsd does not", "if the server has an http url too, use that")
		}
		s.Command, s.Args = "", nil
	case s.Command != "":
		if said != "" && said != Stdio {
			e.note(e.transport, `remove the "type"`, `"type" says that the server is remote but the entry has only a command; the command is used`)
		}
		s.Transport = Stdio
		s.URL = ""
	case e.zed || e.client.Slug == "zed" && n.get("settings") != nil:
		s.Transport = Stdio
		e.unsupported("run by the editor", fmt.Sprintf("it belongs to an extension of %s; give the entry a command to run it everywhere", e.client.Name))
	default:
		return &fault{off: n.start, message: "the entry has neither a command nor a url", hint: neither}
	}
	return nil
}

func (e *entryReader) unsupported(problem, hint string) {
	e.s.Problem, e.s.Hint, e.s.Unsupported = problem, hint, true
}

// websocket is no Transport of a Server: nothing here can speak it.
const websocket Transport = "ws"

// transportOf reads the name of a transport as any client writes it.
func transportOf(name string) (Transport, bool) {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name)) {
	case "":
		return "", true
	case "stdio", "local", "command":
		return Stdio, true
	case "http", "streamablehttp", "httpstream", "httpstreamable", "streamable":
		return HTTP, true
	case "sse", "httpsse":
		return SSE, true
	case "remote", "auto":
		return Auto, true
	case "ws", "wss", "websocket":
		return websocket, true
	}
	return "", false
}

func websocketURL(url string) bool {
	url = strings.ToLower(url)
	return strings.HasPrefix(url, "ws://") || strings.HasPrefix(url, "wss://")
}
