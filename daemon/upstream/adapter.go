package upstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// adapter lets mcp-go's client run its handshake, pings and subscriptions over
// our connection. Ids, cancellation and notifications are the peer's business. It
// has one request at a time: those of the handshake, then the subscription.
type adapter struct {
	conn  conn
	last  error           // of the last request
	hello json.RawMessage // the raw answer to initialize or server/discover
}

func (a *adapter) Start(context.Context) error                            { return nil }
func (a *adapter) Close() error                                           { return nil }
func (a *adapter) GetSessionId() string                                   { return "" }
func (a *adapter) SetNotificationHandler(func(n mcp.JSONRPCNotification)) {}

func (a *adapter) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	hello := r.Method == string(mcp.MethodInitialize) || r.Method == string(mcp.MethodServerDiscover)
	req := request{method: r.Method, header: r.Header, noCancel: hello}
	if r.Params != nil {
		params, err := json.Marshal(r.Params)
		if err != nil {
			return nil, err
		}
		req.params = func(int64) json.RawMessage { return params }
	}
	result, err := a.conn.side().request(ctx, req)
	if err == nil && r.Method == string(mcp.MethodServerDiscover) && !discovers(result) {
		err = &RPCError{Code: -32601, Message: "it names no protocol version"}
	}
	a.last = err
	if hello {
		a.hello = result
	}
	response := &transport.JSONRPCResponse{JSONRPC: mcp.JSONRPC_VERSION, ID: r.ID, Result: result}
	var refused *RPCError
	if errors.As(err, &refused) {
		response.Error = &mcp.JSONRPCErrorDetails{Code: int(refused.Code), Message: refused.Message}
		_ = json.Unmarshal(refused.Data, &response.Error.Data)
		return response, nil
	}
	if err != nil {
		return nil, err
	}
	if hello {
		response.Result = essentials(result)
	}
	return response, nil
}

// discovers reports whether a result is an answer to server/discover. A legacy
// server that says {} to whatever it does not know is a legacy server.
func discovers(result json.RawMessage) bool {
	var said struct {
		Versions []string `json:"supportedVersions"`
	}
	return json.Unmarshal(result, &said) == nil && len(said.Versions) > 0
}

// essentials is what the library needs of a handshake's answer. It decodes into
// strict types, so one odd capability would fail the whole handshake.
func essentials(result json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(result, &all) != nil {
		return result
	}
	kept := map[string]json.RawMessage{"capabilities": json.RawMessage("{}")}
	for _, key := range []string{"protocolVersion", "supportedVersions", "resultType"} {
		if v, ok := all[key]; ok {
			kept[key] = v
		}
	}
	raw, _ := json.Marshal(kept)
	return raw
}

func (a *adapter) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	if n.Method == string(mcp.MethodNotificationCancelled) {
		return nil // by the library's own ids; the peer has sent one already
	}
	params, err := json.Marshal(n.Params)
	if err != nil {
		return err
	}
	if string(params) == "{}" {
		params = nil
	}
	return a.conn.side().notify(ctx, n.Method, params)
}

// httpAdapter adds what makes the library send the headers of the modern
// protocol.
type httpAdapter struct{ *adapter }

func (h httpAdapter) SetProtocolVersion(v string) { h.conn.setVersion(v) }
