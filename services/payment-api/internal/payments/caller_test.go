package payments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	raw    string
}

func (a answer) body() map[string]any {
	a.t.Helper()
	var m map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(a.raw), &m), a.raw)
	return m
}

func (a answer) str(member string) string {
	a.t.Helper()
	text, _ := a.body()[member].(string)
	return text
}

func (a answer) num(member string) int64 {
	a.t.Helper()
	n, ok := a.body()[member].(float64)
	require.True(a.t, ok, a.raw)
	return int64(n)
}

func (a answer) id() string { return a.str("id") }

// is checks the status and, for a problem, the code.
func (a answer) is(status int, code ...string) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.raw)
	require.NotEmpty(a.t, a.header.Get("X-Request-Id"))
	if status >= 400 {
		require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
		require.EqualValues(a.t, status, a.body()["status"])
	} else {
		require.Equal(a.t, "application/json", a.header.Get("Content-Type"))
	}
	for _, c := range code {
		require.Equal(a.t, c, a.body()["code"], a.raw)
	}
	return a
}

// caller is a merchant: a tenant and a mode, at one replica.
type caller struct {
	b      *testBundle
	server *httptest.Server
	tenant uuid.UUID
	header http.Header
}

func (b *testBundle) as(tenant uuid.UUID) caller {
	return caller{b: b, server: b.server, tenant: tenant, header: http.Header{}}
}

// me is tenant A in test mode.
func (b *testBundle) me() caller { return b.as(b.a) }

func (c caller) with(name, value string) caller {
	c.header = c.header.Clone()
	c.header.Add(name, value)
	return c
}

func (c caller) at(server *httptest.Server) caller {
	c.server = server
	return c
}

func (c caller) live() caller { return c.with("X-Test-Livemode", "true") }

func (c caller) do(ctx context.Context, method, path string, body []byte) (answer, error) {
	return c.doAt(ctx, c.server.URL, method, path, body)
}

func (c caller) doAt(ctx context.Context, url, method, path string, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	// On a connection of its own: net/http sends a request with an Idempotency-Key again when a kept one breaks.
	request.Close = true
	request.Header.Set("X-Test-Tenant", c.tenant.String())
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, values := range c.header {
		request.Header[name] = values
	}
	response, err := c.server.Client().Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return answer{t: c.b.t, status: response.StatusCode, header: response.Header, raw: string(raw)}, err
}

func (c caller) send(method, path, body string) answer {
	c.b.t.Helper()
	a, err := c.do(c.b.t.Context(), method, path, []byte(body))
	require.NoError(c.b.t, err)
	return a
}

func (c caller) get(path string) answer { c.b.t.Helper(); return c.send(http.MethodGet, path, "") }

// post sends with a fresh key.
func (c caller) post(path, body string) answer {
	c.b.t.Helper()
	return c.key(uuid.NewString()).send(http.MethodPost, path, body)
}

func (c caller) key(key string) caller {
	c.header = c.header.Clone()
	c.header.Set("Idempotency-Key", key)
	return c
}

// keyed sends with the key given.
func (c caller) keyed(key, path, body string) answer {
	c.b.t.Helper()
	return c.key(key).send(http.MethodPost, path, body)
}

const intents = "/v1/payment-intents"

// created makes an intent of 1000 EUR that waits for its confirmation.
func (c caller) created(paymentMethod string) string {
	c.b.t.Helper()
	return c.post(intents, `{"amount":1000,"currency":"EUR","payment_method":"`+paymentMethod+`"}`).is(201).id()
}

// paid makes an intent that is succeeded.
func (c caller) paid(amount, paymentMethod string) string {
	c.b.t.Helper()
	a := c.post(intents, `{"amount":`+amount+`,"currency":"EUR","payment_method":"`+paymentMethod+`","confirm":true}`).is(201)
	require.Equal(c.b.t, "succeeded", a.str("status"))
	return a.id()
}

func (c caller) intent(intentID string) answer {
	c.b.t.Helper()
	return c.get(intents + "/" + intentID).is(200)
}

// neutral is an answer without what names its request.
func neutral(a answer, objectID string) map[string]any {
	body := a.body()
	delete(body, "request_id")
	body["instance"] = strings.ReplaceAll(a.str("instance"), objectID, "ID")
	return body
}
