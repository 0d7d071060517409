package apipay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Kind says at which stage a call failed.
type Kind string

// The kinds of errors.
const (
	// KindAPI is an answer that is not 2xx; a redirect is one, since none is followed.
	KindAPI Kind = "api"
	// KindConnection is a connection that could not be made, or broke before the answer was complete.
	KindConnection Kind = "connection"
	// KindTimeout is a call that reached its timeout or its context's deadline.
	KindTimeout Kind = "timeout"
	// KindCanceled is a call whose context was canceled.
	KindCanceled Kind = "canceled"
	// KindDecode is a 2xx answer, a page or an event that cannot be read.
	KindDecode Kind = "decode"
	// KindArgument is a call that was refused before anything was sent.
	KindArgument Kind = "argument"
)

// Code is a stable code of the API's catalogue. Branch on it, and expect codes that are not listed here.
type Code string

// The codes that the API answers, and those that the SDK adds for calls without a problem document.
const (
	CodeInvalidRequest         Code = "invalid_request"
	CodeParameterMissing       Code = "parameter_missing"
	CodeParameterUnknown       Code = "parameter_unknown"
	CodeIdempotencyKeyRequired Code = "idempotency_key_required"
	CodeIdempotencyKeyInvalid  Code = "idempotency_key_invalid"
	CodeCursorInvalid          Code = "cursor_invalid"
	CodeAuthenticationFailed   Code = "authentication_failed"
	CodeCardDeclined           Code = "card_declined"
	CodeInsufficientScope      Code = "insufficient_scope"
	CodeNotFound               Code = "not_found"
	CodeMethodNotAllowed       Code = "method_not_allowed"
	CodeInvalidState           Code = "invalid_state"
	CodeIdempotencyInProgress  Code = "idempotency_in_progress"
	CodeMerchantReferenceInUse Code = "merchant_reference_in_use"
	CodeDeliveryPending        Code = "delivery_pending"
	CodeDeliveryInFlight       Code = "delivery_in_flight"
	CodeDeliveryDelivered      Code = "delivery_delivered"
	CodeEndpointDisabled       Code = "endpoint_disabled"
	CodeEndpointDeleted        Code = "endpoint_deleted"
	CodePayloadTooLarge        Code = "payload_too_large"
	CodeUnsupportedMediaType   Code = "unsupported_media_type"
	CodeParameterInvalid       Code = "parameter_invalid"
	CodeAmountTooSmall         Code = "amount_too_small"
	CodeAmountTooLarge         Code = "amount_too_large"
	CodeCurrencyInvalid        Code = "currency_invalid"
	CodeRefundExceedsRemaining Code = "refund_exceeds_remaining"
	CodeIdempotencyKeyReused   Code = "idempotency_key_reused"
	CodeRateLimited            Code = "rate_limited"
	CodeInternalError          Code = "internal_error"
	CodeGatewayUnavailable     Code = "gateway_unavailable"
	CodeServiceUnavailable     Code = "service_unavailable"

	CodeUnknown         Code = "unknown" // an answer without a usable code
	CodeConnectionError Code = "connection_error"
	CodeTimeout         Code = "timeout"
	CodeCanceled        Code = "canceled"
	CodeInvalidResponse Code = "invalid_response"
	CodeInvalidArgument Code = "invalid_argument"
)

// Error is what every call of the SDK fails with (ApiPayError in the other SDKs). Reach it with errors.As.
//
// Its printed forms, JSON included, tell what happened and never what the server or you wrote: no detail, no body, no
// credentials. Problem and Body have those.
type Error struct {
	Kind Kind
	Code Code
	// Status is the answer's HTTP status; 0 without one. A call that was canceled while it waited for a retry has the
	// status and the problem of the answer before the wait.
	Status int
	// Problem is the answer's problem document; nil if its body is no JSON object.
	Problem *Problem
	// Body is the answer's raw body, its first MiB at most.
	Body []byte
	// RequestID names the call in ApiPay's logs: the answer's X-Request-Id.
	RequestID string
	// IdempotencyKey is the key the POST was, or would have been, sent with. Store it; call again with it, see
	// WithIdempotencyKey. Calling again with another key may charge twice.
	IdempotencyKey string
	// RetryAfter is what the answer's Retry-After asks for; nil if there is none or it is unusable.
	RetryAfter *RetryAfter
	// RetryAfterHeader is the header's own text.
	RetryAfterHeader string
	// Attempts counts the attempts that were begun.
	Attempts int
	// Cause is the underlying error; errors.Is(err, context.Canceled) looks through it.
	Cause error
}

// RetryAfter is a usable Retry-After.
type RetryAfter struct {
	// Seconds from when the answer came, rounded up, 0 for a past date; at most 2147483647.
	Seconds int64
}

// Error tells kind, code, status and the ids to ask for.
func (e *Error) Error() string { return e.summary() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

func (e Error) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apipay: %s error: %s", e.Kind, e.Code)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d)", e.Status)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, ", request %s", e.RequestID)
	}
	if e.IdempotencyKey != "" {
		fmt.Fprintf(&b, ", idempotency key %s", e.IdempotencyKey)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, ", after %d attempts", e.Attempts)
	}
	if e.Kind == KindArgument && e.Cause != nil {
		fmt.Fprintf(&b, ": %s", e.Cause) // written by the SDK
	}
	return b.String()
}

// Format writes the summary for every verb, so that no field is printed by %+v or %#v.
func (e Error) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.summary()) }

// LogValue is a group of what the summary tells.
func (e Error) LogValue() slog.Value {
	return slog.GroupValue(slog.String("kind", string(e.Kind)), slog.String("code", string(e.Code)),
		slog.Int("status", e.Status), slog.String("request_id", e.RequestID),
		slog.String("idempotency_key", e.IdempotencyKey), slog.Int("attempts", e.Attempts))
}

// MarshalJSON gives what the summary tells.
func (e Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind           Kind   `json:"kind"`
		Code           Code   `json:"code"`
		Status         int    `json:"status,omitempty"`
		RequestID      string `json:"request_id,omitempty"`
		IdempotencyKey string `json:"idempotency_key,omitempty"`
		Attempts       int    `json:"attempts"`
	}{e.Kind, e.Code, e.Status, e.RequestID, e.IdempotencyKey, e.Attempts})
}

// HasCode says whether err is an *Error with this code.
func HasCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type, Title, Detail, Instance string
	// Status is the body's; Error.Status is the HTTP status.
	Status        int
	Code          string
	RequestID     string
	DeclineCode   string
	PaymentIntent string
	Retryable     bool
	Errors        []FieldError
	// Members are all members as they came, those above and unknown ones.
	Members map[string]json.RawMessage
}

// FieldError names one refused place of a request.
type FieldError struct {
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Header    string `json:"header,omitempty"`
	Code      string `json:"code"`
	Detail    string `json:"detail,omitempty"`
}

// MarshalJSON gives all members.
func (p Problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Members) }

// parseProblem reads what it can: a member of the wrong type leaves its field empty and stays in Members.
func parseProblem(body []byte) *Problem {
	var p Problem
	if json.Unmarshal(body, &p.Members) != nil || p.Members == nil {
		return nil
	}
	for name, field := range map[string]any{
		"type": &p.Type, "title": &p.Title, "detail": &p.Detail, "instance": &p.Instance, "status": &p.Status,
		"code": &p.Code, "request_id": &p.RequestID, "decline_code": &p.DeclineCode, "payment_intent": &p.PaymentIntent,
		"retryable": &p.Retryable, "errors": &p.Errors,
	} {
		if raw, ok := p.Members[name]; ok {
			_ = json.Unmarshal(raw, field)
		}
	}
	return &p
}
