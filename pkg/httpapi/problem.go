package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultErrorsBaseURL is where the documentation of the codes lives unless
// [Options.ErrorsBaseURL] says otherwise.
const DefaultErrorsBaseURL = "https://api.apipay.io"

// MediaTypeProblem is the content type of every error answer (RFC 9457).
const MediaTypeProblem = "application/problem+json"

// Problem is an error answer: an RFC 9457 problem document and the headers
// that go with it. It implements error, so handlers return it.
//
// Make one with [New]; the With methods change the receiver and return it.
// Type, Instance and RequestID are completed when it is answered.
type Problem struct {
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Status      int          `json:"status"`
	Detail      string       `json:"detail,omitzero"`
	Instance    string       `json:"instance,omitzero"`
	Code        Code         `json:"code"`
	RequestID   string       `json:"request_id,omitzero"`
	Errors      []FieldError `json:"errors,omitempty"`
	DeclineCode string       `json:"decline_code,omitzero"`
	Retryable   bool         `json:"retryable"`

	// Extra holds extension members, such as payment_intent and intent_status.
	Extra map[string]any `json:",embed"`
	// Header is added to the answer.
	Header http.Header `json:"-"`

	cause error
}

// standardMembers are the names that the fields of [Problem] have in the document.
var standardMembers = func() map[string]bool {
	names := make(map[string]bool)
	t := reflect.TypeFor[Problem]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names[name] = true
		}
	}
	return names
}()

// FieldError names one place of the request that was refused. Exactly one of
// Pointer, Parameter and Header says where; an empty Pointer with neither of
// the others is the whole body (RFC 6901).
type FieldError struct {
	Pointer   string `json:"pointer"`
	Parameter string `json:"parameter,omitzero"`
	Header    string `json:"header,omitzero"`
	Code      Code   `json:"code"`
	Detail    string `json:"detail,omitzero"`
}

// MarshalJSONTo writes pointer only where the error is in the body: "" is a
// valid pointer, so omitting the empty one would lose "the whole body".
func (f FieldError) MarshalJSONTo(enc *jsontext.Encoder) error {
	out := struct {
		Pointer   *string `json:"pointer,omitzero"`
		Parameter string  `json:"parameter,omitzero"`
		Header    string  `json:"header,omitzero"`
		Code      Code    `json:"code"`
		Detail    string  `json:"detail,omitzero"`
	}{Parameter: f.Parameter, Header: f.Header, Code: f.Code, Detail: f.Detail}
	if f.Parameter == "" && f.Header == "" {
		out.Pointer = &f.Pointer
	}
	return json.MarshalEncode(enc, out)
}

// New makes the problem of a catalogue code. An unknown code is a programming
// error and panics.
func New(code Code, detail string) *Problem {
	e, ok := catalogByCode[code]
	if !ok {
		panic(fmt.Sprintf("httpapi: code %q is not in the catalogue", code))
	}
	p := &Problem{
		Type:      typeURL(DefaultErrorsBaseURL, code),
		Title:     e.Title,
		Status:    e.Status,
		Detail:    detail,
		Code:      code,
		Retryable: e.Retryable,
	}
	if e.RetryAfter > 0 {
		p = p.WithRetryAfter(time.Duration(e.RetryAfter) * time.Second)
	}
	if e.Status == http.StatusUnauthorized {
		// RFC 9110 §15.5.2: a 401 must carry a challenge.
		p = p.WithHeader("WWW-Authenticate", `Bearer realm="apipay"`)
	}
	return p
}

// Invalid makes a problem about one member of the body.
func Invalid(code Code, pointer, detail string) *Problem {
	return New(code, detail).WithErrors(FieldError{Pointer: pointer, Code: code, Detail: detail})
}

// InvalidFields makes one problem about several members of the body. The
// problem takes its code from the first one.
func InvalidFields(fields ...FieldError) *Problem {
	first := fields[0]
	detail := first.Detail
	if len(fields) > 1 {
		detail = fmt.Sprintf("%d members of the request are not acceptable.", len(fields))
	}
	return New(first.Code, detail).WithErrors(fields...)
}

// WithErrors adds refused places.
func (p *Problem) WithErrors(fields ...FieldError) *Problem {
	p.Errors = append(p.Errors, fields...)
	return p
}

// With sets an extension member. The names of the standard members are taken: one of those is left out, because a
// member that came twice would cost the whole answer. A test looks for callers that do.
func (p *Problem) With(name string, value any) *Problem {
	if standardMembers[name] {
		return p
	}
	if p.Extra == nil {
		p.Extra = make(map[string]any, 1)
	}
	p.Extra[name] = value
	return p
}

// WithHeader sets a header of the answer.
func (p *Problem) WithHeader(name, value string) *Problem {
	if p.Header == nil {
		p.Header = make(http.Header, 1)
	}
	p.Header.Set(name, value)
	return p
}

// WithRetryAfter sets Retry-After in whole seconds, rounded up, at least 1, and
// says that the unchanged request may succeed then.
func (p *Problem) WithRetryAfter(d time.Duration) *Problem {
	p.Retryable = true
	return p.WithHeader("Retry-After", strconv.Itoa(ceilSeconds(d)))
}

// WithDeclineCode sets the issuer's reason.
func (p *Problem) WithDeclineCode(code string) *Problem {
	p.DeclineCode = code
	return p
}

// WithCause keeps the error behind the problem for the log. It is never sent.
func (p *Problem) WithCause(err error) *Problem {
	p.cause = err
	return p
}

// RetryAfter is the value of the Retry-After header in seconds, or 0.
func (p *Problem) RetryAfter() int {
	n, _ := strconv.Atoi(p.Header.Get("Retry-After"))
	return n
}

// Error implements error.
func (p *Problem) Error() string {
	s := string(p.Code)
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.cause != nil {
		s += ": " + p.cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.cause }

// Complete returns a copy with the members that depend on the request. An
// empty argument leaves the member as it is.
func (p *Problem) Complete(errorsBaseURL, requestID, instance string) *Problem {
	q := *p
	q.Errors = append([]FieldError(nil), p.Errors...)
	q.Extra = maps.Clone(p.Extra)
	q.Header = p.Header.Clone()
	if errorsBaseURL != "" {
		q.Type = typeURL(errorsBaseURL, p.Code)
	}
	if requestID != "" {
		q.RequestID = requestID
	}
	if instance != "" {
		q.Instance = instance
	}
	return &q
}

// Encode returns the document's bytes, for answering or for storing. The same
// problem always gives the same bytes.
func (p *Problem) Encode() ([]byte, error) {
	// A detail may quote what a client sent; bad UTF-8 in it must not turn a
	// 4xx into a 500.
	b, err := json.Marshal(p, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("encoding problem %s: %w", p.Code, err)
	}
	return b, nil
}

func typeURL(base string, code Code) string {
	return strings.TrimRight(base, "/") + "/errors/" + string(code)
}

// ceilSeconds rounds up to whole seconds, at least 1: a client that comes back
// a fraction early is refused again.
func ceilSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
