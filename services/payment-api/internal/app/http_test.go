package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/httpapi"
)

// A12, A13
func TestHTTP_EveryAnswerIsAProblemWithItsRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.merchant(t)
	for name, c := range map[string]struct {
		method, path string
		status       int
		code         string
	}{
		"no route":             {http.MethodGet, "/nope", 404, "not_found"},
		"no route in v1":       {http.MethodGet, "/v1/nope", 404, "not_found"},
		"root":                 {http.MethodGet, "/", 404, "not_found"},
		"method":               {http.MethodPut, "/v1/webhook-endpoints", 405, "method_not_allowed"},
		"method of an object":  {http.MethodDelete, "/v1/events/evt_01h455vb4pex5vsknk084sn02q", 405, "method_not_allowed"},
		"id of another kind":   {http.MethodGet, "/v1/events/we_01h455vb4pex5vsknk084sn02q", 404, "not_found"},
		"id with capitals":     {http.MethodGet, "/v1/events/evt_01H455VB4PEX5VSKNK084SN02Q", 404, "not_found"},
		"id as a bare uuid":    {http.MethodGet, "/v1/events/0190163d-8694-739b-aea5-966c26f8ad91", 404, "not_found"},
		"id with an injection": {http.MethodGet, "/v1/events/x';%20RESET%20ROLE;%20--", 404, "not_found"},
		"id with NUL":          {http.MethodGet, "/v1/webhook-endpoints/we_%00", 404, "not_found"},
		"id beyond 128 bits":   {http.MethodGet, "/v1/webhook-endpoints/we_81h455vb4pex5vsknk084sn02q", 404, "not_found"},
		"long id":              {http.MethodGet, "/v1/webhook-endpoints/" + strings.Repeat("a", 10_000), 404, "not_found"},
		"dot dot":              {http.MethodGet, "/v1/events/../webhook-endpoints", 404, "not_found"},
		"unknown query":        {http.MethodGet, "/v1/webhook-endpoints/we_01h455vb4pex5vsknk084sn02q?expand=x", 400, "invalid_request"},
		"query with NUL":       {http.MethodGet, "/v1/events?type=%00", 400, "invalid_request"},
		"query half an escape": {http.MethodGet, "/v1/events?type=%zz", 400, "invalid_request"},
		"query twice":          {http.MethodGet, "/v1/events?limit=1&limit=2", 400, "invalid_request"},
		"slash at the end":     {http.MethodGet, "/v1/events/", 404, "not_found"},
		"no such error page":   {http.MethodGet, "/errors/nope", 404, "not_found"},
	} {
		a := m.call(t, c.method, c.path, nil)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		refused(t, a, c.status, c.code)
		require.Equal(t, "https://api.apipay.io/errors/"+c.code, a.json["type"], name)
		if c.status == http.StatusMethodNotAllowed {
			require.NotEmpty(t, a.header.Get("Allow"), name)
		}
	}
	for sent, taken := range map[string]bool{
		"abc_DEF-123": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, strings.Repeat("x", 5000): false,
		"a b": false, "a;b": false, "é": false,
	} {
		a := m.call(t, http.MethodGet, "/v1/events", nil, "X-Request-Id", sent)
		require.Equal(t, taken, a.header.Get("X-Request-Id") == sent)
		require.Regexp(t, `^[A-Za-z0-9_-]{1,128}$`, a.header.Get("X-Request-Id"))
	}
	require.NotContains(t, b.logs.String(), `"status":500`)
}

// Without a route there is nothing to authenticate for; with one the key comes first.
func TestHTTP_UnknownRoutesNeedNoKey(t *testing.T) {
	t.Parallel()
	stranger := merchant{url: setup(t).url}
	refused(t, stranger.call(t, http.MethodGet, "/v1/nope", nil), http.StatusNotFound, "not_found")
	refused(t, stranger.call(t, http.MethodPut, "/v1/events", nil), http.StatusUnauthorized, "authentication_failed")
	for _, path := range []string{"/v1/payment-intents", "/v1/payment-intents/x", "/v1/payment-intents/x/refunds", "/v1/refunds/x",
		"/v1/webhook-endpoints", "/v1/webhook-endpoints/x", "/v1/webhook-endpoints/x/deliveries", "/v1/events", "/v1/events/x"} {
		refused(t, stranger.call(t, http.MethodGet, path, nil), http.StatusUnauthorized, "authentication_failed")
		require.Equal(t, http.StatusUnauthorized, stranger.call(t, http.MethodHead, path, nil).status)
	}
}

// E1
func TestHTTP_RateLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, "APIPAY_RATE_LIMIT_RPS=1", "APIPAY_RATE_LIMIT_BURST=5")
	tenant := b.tenant(t)
	test, live := merchant{b.url, b.key(t, tenant, false)}, merchant{b.url, b.key(t, tenant, true)}
	other := b.merchant(t)
	limited := 0
	for range 7 {
		a := test.call(t, http.MethodGet, "/v1/events", nil)
		require.NotEmpty(t, a.header.Get("RateLimit-Policy"))
		if a.status == http.StatusOK {
			continue
		}
		limited++
		refused(t, a, http.StatusTooManyRequests, "rate_limited")
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 1)
		require.Equal(t, fmt.Sprintf(`"default";r=0;t=%d`, seconds), a.header.Get("RateLimit"))
	}
	require.NotZero(t, limited)
	// The limit comes before the body is read, and the key stays free.
	for test.call(t, http.MethodPost, endpointsPath, "{broken", "Idempotency-Key", "k").status != http.StatusTooManyRequests {
	}
	require.Zero(t, query[int](t, b, `SELECT count(*)::int FROM apipay.idempotency_keys`))
	require.Equal(t, http.StatusOK, live.call(t, http.MethodGet, "/v1/events", nil).status, "the other mode has its own bucket")
	require.Equal(t, http.StatusOK, other.call(t, http.MethodGet, "/v1/events", nil).status)
}

func TestHTTP_Reference(t *testing.T) {
	t.Parallel()
	stranger := merchant{url: setup(t).url}
	document := stranger.call(t, http.MethodGet, "/openapi.json", nil)
	require.Equal(t, http.StatusOK, document.status)
	require.Equal(t, "ApiPay Hub", document.json["info"].(map[string]any)["title"])
	codes := document.json["components"].(map[string]any)["schemas"].(map[string]any)["ErrorCode"].(map[string]any)["enum"].([]any)
	for entry := range httpapi.Catalog() {
		// The document enumerates what this API answers; a page has every code, of the admin API too.
		require.Equal(t, entry.Code != httpapi.CodeForbidden, slices.Contains(codes, any(string(entry.Code))), entry.Code)
		page := stranger.call(t, http.MethodGet, "/errors/"+string(entry.Code), nil)
		require.Equal(t, http.StatusOK, page.status, entry.Code)
		require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
		require.Contains(t, string(page.body), entry.Title)
		require.Contains(t, string(page.body), "Idempotency-Key")
	}
	docs := stranger.call(t, http.MethodGet, "/docs", nil)
	require.Equal(t, http.StatusOK, docs.status)
	policy := docs.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "http", "no outside host")
	for _, asset := range []string{"/docs/redoc-2.5.4-local.js", "/docs/init.js", "/docs/style.css", "/errors"} {
		a := stranger.call(t, http.MethodGet, asset, nil)
		require.Equal(t, http.StatusOK, a.status, asset)
		require.NotEmpty(t, a.body)
		if strings.HasSuffix(asset, "js") {
			require.Contains(t, string(docs.body), `src="`+asset+`"`)
		}
	}
}

// Answers that net/http gives before any handler runs are problems too.
func TestHTTP_BrokenRequests(t *testing.T) {
	t.Parallel()
	p := start(t, setup(t))
	for name, c := range map[string]struct {
		text   string
		status int
	}{
		"not HTTP":                {"hello\r\n\r\n", 400},
		"control character":       {"GET /v1/events HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\x01b\r\n\r\n", 400},
		"CR LF in the id":         {"GET /nope HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\r\n evil: b\r\nConnection: close\r\n\r\n", 404},
		"two lengths":             {"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		"no host":                 {"GET /v1/events HTTP/1.1\r\n\r\n", 400},
		"headers beyond 64 KiB":   {"GET /v1/events HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 80<<10) + "\r\n\r\n", 413},
		"absolute form elsewhere": {"GET http://evil.example/nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
	} {
		conn, err := net.Dial("tcp", p.http)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(conn, c.text)
		require.NoError(t, err, name)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		content, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		_ = conn.Close()
		require.Equal(t, c.status, response.StatusCode, "%s: %s", name, content)
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"), name)
		require.Regexp(t, `^[A-Za-z0-9_-]{1,128}$`, response.Header.Get("X-Request-Id"), name)
		require.Empty(t, response.Header.Get("evil"), name)
	}
}
