package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

var errDomain = errors.New("domain")

// lockedBuffer collects log lines from many requests.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

type testBundle struct {
	addr  string
	logs  *lockedBuffer
	spans *tracetest.SpanRecorder
	stop  func() error
	slow  chan struct{} // closed when /slow may answer
	begun chan struct{} // closed when /slow has begun
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	b := &testBundle{
		logs: &lockedBuffer{}, spans: tracetest.NewSpanRecorder(),
		slow: make(chan struct{}), begun: make(chan struct{}),
	}
	e := NewEcho(Options{
		Logger:         slog.New(slog.NewJSONHandler(b.logs, nil)),
		ErrorsBaseURL:  "https://docs.example",
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans)),
		Map: func(err error) *Problem {
			if errors.Is(err, errDomain) {
				return New(CodeInvalidState, "No.").With("intent_status", "succeeded")
			}
			return nil
		},
	})
	e.GET("/v1/things/:id", func(c echo.Context) error {
		SetTenant(c, "tnt_1", true)
		return JSON(c, http.StatusOK, map[string]string{"id": c.Param("id"), "request_id": RequestID(c.Request().Context()),
			"trace": trace.SpanContextFromContext(c.Request().Context()).TraceID().String()})
	})
	e.POST("/v1/things", func(c echo.Context) error {
		var v createBody
		if _, err := Bind(c, &v); err != nil {
			return err
		}
		return JSON(c, http.StatusCreated, v.Amount)
	})
	e.POST("/v1/things/:id/confirm", func(c echo.Context) error {
		var v struct {
			PaymentMethod Optional[string] `json:"payment_method"`
		}
		raw, err := Bind(c, &v, AllowEmpty())
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, raw)
	})
	e.GET("/panic", func(echo.Context) error { panic("secret-in-panic") })
	e.GET("/panic-error", func(echo.Context) error { panic(New(CodeNotFound, "secret-in-panic")) })
	e.GET("/unknown", func(echo.Context) error { return errors.New("secret-in-error") })
	e.GET("/domain", func(echo.Context) error { return fmt.Errorf("wrapping: %w", errDomain) })
	e.GET("/deadline", func(echo.Context) error { return fmt.Errorf("acquiring: %w", context.DeadlineExceeded) })
	e.GET("/unencodable", func(c echo.Context) error { return JSON(c, http.StatusOK, make(chan int)) })
	e.GET("/unencodable-problem", func(echo.Context) error { return New(CodeNotFound, "").With("x", make(chan int)) })
	e.GET("/slow", func(c echo.Context) error {
		close(b.begun)
		select {
		case <-b.slow:
			return c.NoContent(http.StatusNoContent)
		case <-c.Request().Context().Done():
			return c.Request().Context().Err()
		}
	})

	ctx, cancel := context.WithCancel(t.Context())
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, e, 5*time.Second) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { require.NoError(t, b.stop()) })
	return b
}

// raw sends bytes over a connection of its own and reads one answer.
func (b *testBundle) raw(t *testing.T, request string) (*http.Response, string) {
	t.Helper()
	return b.send(t, request)()
}

// send sends bytes and returns the function that reads the answer.
func (b *testBundle) send(t *testing.T, request string) func() (*http.Response, string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	// The server may answer and close before a large request is written.
	go func() { _, _ = io.WriteString(conn, request) }()
	method, _, _ := strings.Cut(request, " ")
	return func() (*http.Response, string) {
		t.Helper()
		defer func() { _ = conn.Close() }()
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res, string(body)
	}
}

func request(method, target, body string, headers ...string) string {
	s := method + " " + target + " HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n"
	if body != "" {
		s += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	for _, h := range headers {
		s += h + "\r\n"
	}
	return s + "\r\n" + body
}

const asJSON = "Content-Type: application/json"

func TestServer_EveryErrorIsAProblem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	big := `{"amount":1,"currency":"EUR","description":"` + strings.Repeat("x", 64<<10) + `"}`
	for name, tc := range map[string]struct {
		request string
		code    Code
	}{
		"unknown route":        {request("GET", "/nope", ""), CodeNotFound},
		"unknown route, POST":  {request("POST", "/v1/nope", "{}"), CodeNotFound},
		"bad escape in path":   {request("GET", "/v1/things/%00%ff/x", ""), CodeNotFound},
		"asterisk":             {request("GET", "*", ""), CodeNotFound},
		"405":                  {request("DELETE", "/v1/things", ""), CodeMethodNotAllowed},
		"405 odd method":       {request("BREW", "/v1/things", ""), CodeMethodNotAllowed},
		"413":                  {request("POST", "/v1/things", big, asJSON), CodePayloadTooLarge},
		"413 with empty body":  {request("POST", "/v1/things/x/confirm", big, asJSON), CodePayloadTooLarge},
		"413 chunked":          {"POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + asJSON + "\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big), CodePayloadTooLarge},
		"415 none":             {request("POST", "/v1/things", "{}"), CodeUnsupportedMediaType},
		"415 form":             {request("POST", "/v1/things", "a=b", "Content-Type: application/x-www-form-urlencoded"), CodeUnsupportedMediaType},
		"415 charset":          {request("POST", "/v1/things", "{}", "Content-Type: application/json; charset=latin1"), CodeUnsupportedMediaType},
		"415 parameter":        {request("POST", "/v1/things", "{}", "Content-Type: application/json; v=1"), CodeUnsupportedMediaType},
		"415 suffix":           {request("POST", "/v1/things", "{}", "Content-Type: application/merge-patch+json"), CodeUnsupportedMediaType},
		"415 twice":            {request("POST", "/v1/things", "{}", asJSON, asJSON), CodeUnsupportedMediaType},
		"415 gzip":             {request("POST", "/v1/things", "{}", asJSON, "Content-Encoding: gzip"), CodeUnsupportedMediaType},
		"415 without a body":   {request("POST", "/v1/things", "", "Content-Type: text/plain"), CodeUnsupportedMediaType},
		"415 confirm":          {request("POST", "/v1/things/x/confirm", "{}"), CodeUnsupportedMediaType},
		"empty body":           {request("POST", "/v1/things", "", asJSON), CodeInvalidRequest},
		"no body, no type":     {request("POST", "/v1/things", ""), CodeInvalidRequest},
		"bad JSON":             {request("POST", "/v1/things", "{", asJSON), CodeInvalidRequest},
		"bad chunk":            {"POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + asJSON + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CodeInvalidRequest},
		"panic":                {request("GET", "/panic", ""), CodeInternalError},
		"panic with a problem": {request("GET", "/panic-error", ""), CodeInternalError},
		"unknown error":        {request("GET", "/unknown", ""), CodeInternalError},
		"domain error":         {request("GET", "/domain", ""), CodeInvalidState},
		"deadline":             {request("GET", "/deadline", ""), CodeServiceUnavailable},
		"unencodable":          {request("GET", "/unencodable", ""), CodeInternalError},
		"unencodable problem":  {request("GET", "/unencodable-problem", ""), CodeInternalError},
		"not HTTP":             {"garbage\r\n\r\n", CodeInvalidRequest},
		"no Host":              {"GET / HTTP/1.1\r\n\r\n", CodeInvalidRequest},
		"control in a header":  {request("GET", "/v1/things/x", "", "X-Request-Id: a\x01b"), CodeInvalidRequest},
		"control in the key":   {request("POST", "/v1/things", "{}", "idempotency-key: a\x01b"), CodeIdempotencyKeyInvalid},
		"NUL in the key":       {request("POST", "/v1/things", "{}", "Idempotency-Key: a\x00b"), CodeIdempotencyKeyInvalid},
		"CR in a header":       {request("GET", "/v1/things/x", "", "X-Request-Id: a\rb"), CodeInvalidRequest},
		"huge header":          {request("GET", "/v1/things/x", "", "X-Big: "+strings.Repeat("x", 80<<10)), CodePayloadTooLarge},
		"unknown coding":       {request("POST", "/v1/things", "", "Transfer-Encoding: rot13"), CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, body := b.raw(t, tc.request)
			var p Problem
			require.NoError(t, json.Unmarshal([]byte(body), &p), body)
			require.Equal(t, tc.code, p.Code, body)
			require.Equal(t, p.Status, res.StatusCode)
			require.Equal(t, MediaTypeProblem, res.Header.Get("Content-Type"))
			require.Regexp(t, `^req_[0-9a-z]{26}$`, res.Header.Get(HeaderRequestID))
			require.Equal(t, res.Header.Get(HeaderRequestID), p.RequestID)
			require.NotEmpty(t, p.Title)
			require.True(t, strings.HasSuffix(p.Type, "/errors/"+string(p.Code)), p.Type)
			require.NotContains(t, body, "secret")
			require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		})
	}
}

func TestServer_MethodNotAllowedNamesMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, _ := b.raw(t, request("PUT", "/v1/things/x", ""))
	require.Equal(t, 405, res.StatusCode)
	require.Contains(t, res.Header.Get("Allow"), "GET")
	require.Contains(t, res.Header.Get("Allow"), "HEAD")
	require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
}

func TestServer_Head(t *testing.T) {
	t.Parallel()
	b := setup(t)
	get, body := b.raw(t, request("GET", "/v1/things/x", "", "X-Request-Id: same"))
	head, none := b.raw(t, request("HEAD", "/v1/things/x", "", "X-Request-Id: same", "traceparent: 00-"+traceOf(t, body)+"-00f067aa0ba902b7-01"))
	require.Equal(t, 200, head.StatusCode)
	require.Empty(t, none)
	require.Equal(t, get.Header.Get("Content-Length"), head.Header.Get("Content-Length"))
	head, none = b.raw(t, request("HEAD", "/nope", ""))
	require.Equal(t, 404, head.StatusCode)
	require.Empty(t, none)
	require.Equal(t, MediaTypeProblem, head.Header.Get("Content-Type"))
}

func traceOf(t *testing.T, body string) string {
	t.Helper()
	var v map[string]string
	require.NoError(t, json.Unmarshal([]byte(body), &v))
	return v["trace"]
}

func TestServer_Accepts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exact := `{"amount":1,"currency":"EUR","description":"`
	exact += strings.Repeat("x", 64<<10-len(exact)-2) + `"}`
	for name, tc := range map[string]struct {
		request string
		status  int
		body    string
	}{
		"64 KiB":                    {request("POST", "/v1/things", exact, asJSON), 201, "1"},
		"charset":                   {request("POST", "/v1/things", `{"amount":7,"currency":"EUR"}`, `Content-Type: Application/JSON; charset="UTF-8"`), 201, "7"},
		"absent body":               {request("POST", "/v1/things/x/confirm", ""), 200, "{}"},
		"absent body with a type":   {request("POST", "/v1/things/x/confirm", "", asJSON), 200, "{}"},
		"absent body of a form":     {request("POST", "/v1/things/x/confirm", "", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 0"), 200, "{}"},
		"body where it is optional": {request("POST", "/v1/things/x/confirm", `{"payment_method":"pm"}`, asJSON), 200, `{"payment_method":"pm"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, body := b.raw(t, tc.request)
			require.Equal(t, tc.status, res.StatusCode, body)
			require.Equal(t, tc.body, body)
			require.Equal(t, "application/json", res.Header.Get("Content-Type"))
			require.NotEmpty(t, res.Header.Get(HeaderRequestID))
		})
	}
}

func TestServer_RequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tc := range map[string]struct {
		headers []string
		want    string // "" means that the server makes one
	}{
		"none":     {nil, ""},
		"accepted": {[]string{"X-Request-Id: abc_DEF-123"}, "abc_DEF-123"},
		"128":      {[]string{"X-Request-Id: " + strings.Repeat("a", 128)}, strings.Repeat("a", 128)},
		"129":      {[]string{"X-Request-Id: " + strings.Repeat("a", 129)}, ""},
		"5 kB":     {[]string{"X-Request-Id: " + strings.Repeat("a", 5000)}, ""},
		"space":    {[]string{"X-Request-Id: a b"}, ""},
		"empty":    {[]string{"X-Request-Id:"}, ""},
		"dot":      {[]string{"X-Request-Id: a.b"}, ""},
		"UTF-8":    {[]string{"X-Request-Id: é"}, ""},
		"escaped":  {[]string{"X-Request-Id: a%0d%0aSet-Cookie:x"}, ""},
		"folded":   {[]string{"X-Request-Id: a", "\tb"}, ""},
		"twice":    {[]string{"X-Request-Id: a", "X-Request-Id: b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, body := b.raw(t, request("GET", "/v1/things/x", "", tc.headers...))
			got := res.Header.Values(HeaderRequestID)
			require.Len(t, got, 1)
			if tc.want == "" {
				require.Regexp(t, `^req_[0-9a-z]{26}$`, got[0])
			} else {
				require.Equal(t, tc.want, got[0])
			}
			require.Contains(t, body, got[0], "the context has the same id")
			require.Empty(t, res.Header.Get("Set-Cookie"))
		})
	}
}

func TestServer_Instance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, body := b.raw(t, request("GET", "/nope/%3Cb%3E?token=secret", ""))
	require.Contains(t, body, `"instance":"/nope/%3Cb%3E"`)
	_, body = b.raw(t, request("GET", "/"+strings.Repeat("n", 5000), ""))
	require.Less(t, len(body), 1000)
	_, body = b.raw(t, request("GET", "/domain", ""))
	require.Contains(t, body, `"type":"https://docs.example/errors/invalid_state"`)
	require.Contains(t, body, `"intent_status":"succeeded"`)
}

func TestServer_LogsOneLinePerRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	requests := []string{
		request("GET", "/v1/things/x?token=secret-query", "", "Authorization: Bearer secret-key"),
		request("GET", "/panic", ""),
		request("GET", "/unknown", ""),
		request("BREW", "/secret-path", ""),
	}
	for _, r := range requests {
		b.raw(t, r)
	}
	require.NoError(t, b.stop(), "after the drain every line is written")
	lines := b.logs.lines()
	require.Len(t, lines, len(requests))
	var rows []map[string]any
	for _, line := range lines {
		row := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		require.Equal(t, "http.request", row["msg"])
		require.NotEmpty(t, row["request_id"])
		require.Contains(t, row, "duration_ms")
		rows = append(rows, row)
	}
	require.Equal(t, "/v1/things/:id", rows[0]["route"])
	require.Equal(t, "tnt_1", rows[0]["tenant"])
	require.Equal(t, "INFO", rows[0]["level"])
	require.EqualValues(t, 200, rows[0]["status"])
	require.NotContains(t, lines[0], "secret")
	require.Equal(t, "panic: secret-in-panic", rows[1]["error"])
	require.Contains(t, rows[1]["stack"], "server_test.go")
	require.EqualValues(t, 500, rows[1]["status"])
	require.Equal(t, "secret-in-error", rows[2]["error"])
	require.Equal(t, "ERROR", rows[2]["level"])
	require.Equal(t, "_OTHER", rows[3]["method"])
	require.Equal(t, "unmatched", rows[3]["route"])
	require.NotContains(t, lines[3], "secret")
}

func TestServer_ContinuesTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	_, body := b.raw(t, request("GET", "/v1/things/x?q=secret", "", "traceparent: 00-"+parent+"-00f067aa0ba902b7-01"))
	require.Equal(t, parent, traceOf(t, body))
	b.raw(t, request("GET", "/panic", "", "traceparent: 00-"+parent+"-00f067aa0ba902b7-01"))
	_, body = b.raw(t, request("GET", "/v1/things/x", "", "traceparent: nonsense"))
	require.NotEqual(t, parent, traceOf(t, body))
	require.NoError(t, b.stop())
	spans := b.spans.Ended()
	require.Len(t, spans, 3)
	require.Equal(t, "GET /v1/things/:id", spans[0].Name())
	require.Equal(t, "00f067aa0ba902b7", spans[0].Parent().SpanID().String())
	require.Equal(t, "Error", spans[1].Status().Code.String())
	for _, s := range spans {
		require.NotContains(t, fmt.Sprint(s.Attributes(), s.Events(), s.Status()), "secret")
	}
}

func TestServer_Drains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	receive := b.send(t, request("GET", "/slow", ""))
	<-b.begun
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	// For a while it still answers, and each answer asks its client to go elsewhere for the next one.
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + b.addr + "/nowhere")
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.Close
	}, UnreadyFirst/2, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 5*time.Second, 5*time.Millisecond, "it stops accepting")
	require.Empty(t, stopped, "it waits for the request in flight")
	close(b.slow)
	require.NoError(t, <-stopped)
	res, _ := receive()
	require.Equal(t, http.StatusNoContent, res.StatusCode)
}
