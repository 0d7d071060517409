package httpapi

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCatalog(t *testing.T) {
	t.Parallel()
	seen := map[Code]bool{}
	previous := 0
	for e := range Catalog() {
		require.False(t, seen[e.Code], "%s is listed twice", e.Code)
		seen[e.Code] = true
		require.GreaterOrEqual(t, e.Status, previous, "%s: ordered by status", e.Code)
		previous = e.Status
		require.Regexp(t, `^[a-z_]+$`, e.Code)
		require.NotEmpty(t, e.Title)
		require.NotEmpty(t, e.Meaning)
		require.NotEmpty(t, http.StatusText(e.Status))
		require.Contains(t, []KeyAdvice{KeySame, KeyNew, KeyNone}, e.Key)
		if e.RetryAfter > 0 {
			require.True(t, e.Retryable, "%s: Retry-After without a reason to retry", e.Code)
		}
		p := New(e.Code, "d")
		require.Equal(t, e.Status, p.Status)
		require.Equal(t, e.Retryable, p.Retryable)
		require.Equal(t, e.RetryAfter, p.RetryAfter())
		require.Equal(t, "https://api.apipay.io/errors/"+string(e.Code), p.Type)
	}
	for status, codes := range map[int][]Code{
		400: {"invalid_request", "parameter_missing", "parameter_unknown", "idempotency_key_required", "idempotency_key_invalid", "cursor_invalid"},
		401: {"authentication_failed"}, 402: {"card_declined"}, 403: {"insufficient_scope", "forbidden"}, 404: {"not_found"}, 405: {"method_not_allowed"},
		409: {"invalid_state", "idempotency_in_progress", "merchant_reference_in_use", "delivery_pending", "delivery_in_flight", "delivery_delivered", "endpoint_disabled", "endpoint_deleted"},
		413: {"payload_too_large"}, 415: {"unsupported_media_type"},
		422: {"parameter_invalid", "amount_too_small", "amount_too_large", "currency_invalid", "refund_exceeds_remaining", "idempotency_key_reused"},
		429: {"rate_limited"}, 500: {"internal_error"}, 503: {"gateway_unavailable", "service_unavailable"},
	} {
		for _, code := range codes {
			e, ok := Lookup(code)
			require.True(t, ok, code)
			require.Equal(t, status, e.Status, code)
			delete(seen, code)
		}
	}
	require.Empty(t, seen, "codes that the contract does not have")
	_, ok := Lookup("nope")
	require.False(t, ok)
	require.Panics(t, func() { New("nope", "") })
}

func TestProblem_Encode(t *testing.T) {
	t.Parallel()
	p := New(CodeCardDeclined, "The card was declined.").
		WithDeclineCode("insufficient_funds").
		With("payment_intent", "pi_1").With("intent_status", "requires_payment_method")
	full := p.Complete("https://pay.example/", "req_1", "/v1/payment-intents/pi_1/confirm")
	b, err := full.Encode()
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"https://pay.example/errors/card_declined","title":"Card declined","status":402,
		"detail":"The card was declined.","instance":"/v1/payment-intents/pi_1/confirm","code":"card_declined","request_id":"req_1",
		"decline_code":"insufficient_funds","retryable":false,"payment_intent":"pi_1","intent_status":"requires_payment_method"}`, string(b))
	for range 20 {
		again, err := full.Encode()
		require.NoError(t, err)
		require.Equal(t, b, again, "stored and replayed answers need one form")
	}
	require.Empty(t, p.RequestID, "Complete leaves the original alone")

	b, err = Invalid(CodeInvalidRequest, "", "whole body").Encode()
	require.NoError(t, err)
	require.Contains(t, string(b), `"errors":[{"pointer":"","code":"invalid_request","detail":"whole body"}]`)

	b, err = New(CodeInvalidRequest, "a\xffb").Encode()
	require.NoError(t, err, "bad UTF-8 in a detail is no reason for a 500")
	require.NotContains(t, string(b), "\xff")

	plain, err := New(CodeInvalidRequest, "d").Encode()
	require.NoError(t, err)
	for _, name := range []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors", "decline_code", "retryable"} {
		b, err = New(CodeInvalidRequest, "d").With(name, 1).Encode()
		require.NoError(t, err)
		require.Equal(t, string(plain), string(b), "a standard member is not overwritten")
	}
}

// A standard member given to With is left out; so that nobody misses one, nobody gives one.
func TestProblem_WithIsNeverGivenAStandardMember(t *testing.T) {
	t.Parallel()
	calls := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, call := range regexp.MustCompile(`\.With\("([a-z_]+)"`).FindAllSubmatch(text, -1) {
			calls++
			require.False(t, standardMembers[string(call[1])], "%s: With(%q, ...)", path, call[1])
		}
		return nil
	}))
	require.NotZero(t, calls, "the look-up finds no call at all")
}

func TestProblem_HeadersAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	p := New(CodeGatewayUnavailable, "").WithRetryAfter(2001 * time.Millisecond).WithCause(cause)
	require.Equal(t, "3", p.Header.Get("Retry-After"))
	require.ErrorIs(t, p, cause)
	require.False(t, New(CodeInvalidState, "").Retryable)
	require.True(t, New(CodeInvalidState, "").WithRetryAfter(time.Second).Retryable, "who says when to come back says that it may help")
	require.Equal(t, "1", New(CodeServiceUnavailable, "").WithRetryAfter(0).Header.Get("Retry-After"))
	require.Equal(t, "1", New(CodeIdempotencyInProgress, "").Header.Get("Retry-After"))
	require.Contains(t, New(CodeAuthenticationFailed, "").Header.Get("WWW-Authenticate"), "Bearer")
	b, err := p.Encode()
	require.NoError(t, err)
	require.NotContains(t, string(b), "cause")
}

func TestInvalidFields(t *testing.T) {
	t.Parallel()
	p := InvalidFields(
		FieldError{Pointer: "/amount", Code: CodeAmountTooSmall, Detail: "Too small."},
		FieldError{Pointer: "/currency", Code: CodeCurrencyInvalid, Detail: "Unknown."})
	require.Equal(t, CodeAmountTooSmall, p.Code)
	require.Equal(t, 422, p.Status)
	require.Len(t, p.Errors, 2)
}

func TestList(t *testing.T) {
	t.Parallel()
	b, err := EncodeJSON(NewList[string](nil, ""))
	require.NoError(t, err)
	require.Equal(t, `{"object":"list","data":[],"has_more":false,"next_cursor":null}`, string(b))

	last := func(s string) string { return "after-" + s }
	b, err = EncodeJSON(Page([]string{"c", "b", "a"}, 2, last))
	require.NoError(t, err)
	require.Equal(t, `{"object":"list","data":["c","b"],"has_more":true,"next_cursor":"after-b"}`, string(b))
	page := Page([]string{"c", "b"}, 2, last)
	require.False(t, page.HasMore)
	require.Nil(t, page.NextCursor)
}
