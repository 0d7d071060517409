package apipay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"apipay.io/hub/pkg/sdk/go/internal/retry"
)

const (
	maxErrorBody   = 1 << 20
	maxSuccessBody = 16 << 20
)

// call is one call of the API: what is sent, and where the answer goes.
type call struct {
	method string
	path   []string
	query  url.Values
	// body is marshaled; nil sends none.
	body any
	// into is unmarshaled; nil ignores the answer's body.
	into any
}

func refusal(reason string) *Error {
	return &Error{Kind: KindArgument, Code: CodeInvalidArgument, Cause: errors.New(reason)}
}

// do makes a call: one attempt, and for a GET the retries that the policy allows.
func (c *core) do(ctx context.Context, in call, options []RequestOption) error {
	o := requestOptions{timeout: c.timeout, header: http.Header{}}
	for _, option := range options {
		if err := option(&o); err != nil {
			return refusal(err.Error())
		}
	}
	address, err := c.address(in)
	if err != nil {
		return err
	}
	var body []byte
	if in.body != nil {
		if body, err = marshal(in.body); err != nil {
			return refusal("the parameters cannot be written as JSON")
		}
	}
	if in.method == http.MethodPost && o.key == "" {
		o.key = newKey()
	}
	if in.method != http.MethodPost {
		o.key = "" // only a POST has one
	}
	header := c.header(o, len(body) > 0)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return (&Error{IdempotencyKey: o.key, Attempts: n}).ended(ctx, ctx.Err())
		}
		a := c.attempt(ctx, in, address, body, header, o)
		if a.err == nil {
			a.response.Attempts = n + 1
			return c.decode(in, a, o)
		}
		a.err.IdempotencyKey, a.err.Attempts = o.key, n+1
		if in.method != http.MethodGet || !a.retryable || n >= c.maxRetries {
			return a.err
		}
		wait := c.wait(n, a.err)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return a.err
		}
		if err := c.sleep(ctx, wait); err != nil {
			return a.err.ended(ctx, err)
		}
	}
}

// wait is the time before retry n+1: Retry-After where the policy obeys it, else jitter.
func (c *core) wait(n int, err *Error) time.Duration {
	obeyed := (err.Status == http.StatusTooManyRequests && err.Code == CodeRateLimited) ||
		(err.Status == http.StatusServiceUnavailable && err.Code == CodeGatewayUnavailable)
	if obeyed && err.RetryAfter != nil {
		seconds := min(err.RetryAfter.Seconds, int64(retry.MaxWait/time.Second))
		return time.Duration(seconds) * time.Second
	}
	return retry.Backoff(n, c.random())
}

// attempted is the outcome of one attempt: err, or a 2xx answer.
type attempted struct {
	response  Response
	body      []byte
	tooLarge  bool
	err       *Error
	retryable bool
}

func (c *core) attempt(ctx context.Context, in call, address string, body []byte, header http.Header, o requestOptions) attempted {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var p progress
	request, err := newRequest(p.trace(limited), in.method, address, body, header)
	if err != nil {
		return attempted{err: refusal("the request cannot be written")}
	}
	answer, err := c.transport.RoundTrip(request)
	if err != nil {
		failure := &Error{Kind: KindConnection, Code: CodeConnectionError, Cause: err}
		return attempted{err: failure.limited(ctx, limited, err), retryable: ctx.Err() == nil && p.nothingSent(err)}
	}
	defer answer.Body.Close()
	response := Response{
		Status: answer.StatusCode, RequestID: answer.Header.Get("X-Request-Id"), IdempotencyKey: o.key,
		Replayed: strings.EqualFold(answer.Header.Get("Idempotent-Replayed"), "true"),
	}
	success := answer.StatusCode >= 200 && answer.StatusCode <= 299
	limit := maxErrorBody
	if success {
		limit = maxSuccessBody
	}
	// One byte more than the limit tells a body of exactly that size from a longer one.
	raw, err := io.ReadAll(io.LimitReader(answer.Body, int64(limit)+1))
	if err != nil {
		failure := &Error{
			Kind: KindConnection, Code: CodeConnectionError, Cause: err,
			Status: response.Status, RequestID: response.RequestID,
		}
		return attempted{err: failure.limited(ctx, limited, err)}
	}
	tooLarge := len(raw) > limit
	if tooLarge {
		raw = raw[:limit]
	}
	if success {
		return attempted{response: response, body: raw, tooLarge: tooLarge}
	}
	failure := &Error{
		Kind: KindAPI, Code: CodeUnknown, Status: response.Status, RequestID: response.RequestID, Body: raw,
		Problem: parseProblem(raw), RetryAfterHeader: strings.Join(answer.Header.Values("Retry-After"), ", "),
	}
	if failure.Problem != nil && failure.Problem.Code != "" {
		failure.Code = Code(failure.Problem.Code)
	}
	if seconds, ok := retry.After(answer.Header.Values("Retry-After"), c.now()); ok {
		failure.RetryAfter = &RetryAfter{Seconds: seconds}
	}
	return attempted{err: failure, retryable: response.Status == http.StatusTooManyRequests || response.Status >= 500}
}

// limited turns a failure into a timeout or a cancellation if that was the reason.
func (e *Error) limited(ctx, attempt context.Context, err error) *Error {
	switch {
	case ctx.Err() != nil:
		return e.ended(ctx, err)
	case attempt.Err() != nil:
		e.Kind, e.Code, e.Cause = KindTimeout, CodeTimeout, err
	}
	return e
}

// ended is e for a call whose context is over; what is known of the last answer stays in it.
func (e *Error) ended(ctx context.Context, err error) *Error {
	e.Kind, e.Code = KindCanceled, CodeCanceled
	e.Cause = context.Cause(ctx)
	if e.Cause == nil {
		e.Cause = err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Kind, e.Code = KindTimeout, CodeTimeout
	}
	return e
}

func (c *core) decode(in call, a attempted, o requestOptions) error {
	if o.response != nil {
		*o.response = a.response
	}
	if in.into == nil {
		return nil
	}
	invalid := &Error{
		Kind: KindDecode, Code: CodeInvalidResponse, Status: a.response.Status, Body: a.body[:min(len(a.body), maxErrorBody)],
		RequestID: a.response.RequestID, IdempotencyKey: o.key, Attempts: a.response.Attempts,
	}
	if a.tooLarge {
		invalid.Cause = errors.New("the answer is larger than 16 MiB")
		return invalid
	}
	if json.Unmarshal(a.body, in.into) != nil {
		// encoding/json's errors quote the answer.
		invalid.Cause = errors.New("the answer's body is not the JSON that is due")
		return invalid
	}
	return nil
}

func (c *core) address(in call) (string, error) {
	var b strings.Builder
	b.WriteString(c.baseURL + "/v1")
	for i, part := range in.path {
		if i%2 == 1 && (part == "" || strings.Trim(part, idCharacters) != "") {
			return "", refusal("that is not an id")
		}
		b.WriteString("/" + part)
	}
	if len(in.query) > 0 {
		b.WriteString("?" + in.query.Encode())
	}
	return b.String(), nil
}

// idCharacters are those of every id; with any other one an id could change the path.
const idCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"

func (c *core) header(o requestOptions, hasBody bool) http.Header {
	h := o.header
	for name, value := range map[string]string{
		"Accept":     "application/json, application/problem+json",
		"User-Agent": "apipay-go/" + Version + " (" + runtime.Version() + ")",
	} {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
	h.Set("Authorization", c.authorization())
	if hasBody {
		h.Set("Content-Type", "application/json")
	}
	if o.key != "" {
		h.Set("Idempotency-Key", o.key)
	}
	return h
}

// marshal writes & < > as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
