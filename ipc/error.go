package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Code names a kind of failure. Codes are only ever added.
type Code string

// The codes.
const (
	CodeUsage          Code = "usage"
	CodeBadArguments   Code = "bad_arguments" // they do not fit the input schema
	CodeEmptyQuery     Code = "empty_query"
	CodeNotFound       Code = "not_found"
	CodeAmbiguous      Code = "ambiguous"
	CodeNeedsTrust     Code = "needs_trust"
	CodeNotSeen        Code = "not_seen" // the session has not seen the present definition
	CodeToolError      Code = "tool_error"
	CodeServerDown     Code = "server_down"
	CodeTimeout        Code = "timeout"
	CodeCancelled      Code = "cancelled"
	CodeOutcomeUnknown Code = "outcome_unknown"
	CodeNoDaemon       Code = "no_daemon"
	CodeVersionSkew    Code = "version_skew"
	CodeLocked         Code = "locked"
	CodeTooLarge       Code = "too_large" // a request over the limit
	CodeInternal       Code = "internal"
)

// Error is a failure that a caller can act on: what failed and why in Message,
// what to type next in Hint.
type Error struct {
	Code    Code      `json:"code"`
	Message string    `json:"message"`
	Hint    string    `json:"hint"`
	RPC     *RPCError `json:"rpc,omitempty"` // with CodeToolError: the server's own error
	// Tool is the definition that belongs to the failure (CodeBadArguments, CodeNotSeen).
	Tool json.RawMessage `json:"tool,omitempty"`
	// Candidates are the ids that were meant, or may have been.
	Candidates []string `json:"candidates,omitempty"`
}

// RPCError is a JSON-RPC error as a server sent it.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint adds what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// AsError makes any error an *Error; one without a code is internal.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

// status is the HTTP status that goes with a code.
func (c Code) status() int {
	switch c {
	case CodeUsage, CodeBadArguments, CodeEmptyQuery:
		return http.StatusBadRequest
	case CodeNotFound:
		return http.StatusNotFound
	case CodeAmbiguous, CodeNotSeen:
		return http.StatusConflict
	case CodeNeedsTrust, CodeLocked:
		return http.StatusForbidden
	case CodeToolError:
		return http.StatusBadGateway
	case CodeServerDown, CodeNoDaemon:
		return http.StatusServiceUnavailable
	case CodeTimeout, CodeOutcomeUnknown:
		return http.StatusGatewayTimeout
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeVersionSkew:
		return http.StatusUpgradeRequired
	}
	return http.StatusInternalServerError
}
