package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client is a merchant, or a member of staff, with one bearer token. It retries a request with the same
// key until it gets a final answer, as a careful merchant does.
type client struct {
	token string
	urls  []string
	next  *atomic.Int64
	http  *http.Client
	// through chooses the replica of each call instead of taking them in turn.
	through *balancer
}

func newClient(token string, urls []string) *client {
	return &client{token: token, urls: urls, next: &atomic.Int64{}, http: &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
}

type object map[string]any

func (o object) text(name string) string {
	text, _ := o[name].(string)
	return text
}

// do sends one request once.
func (c *client) do(ctx context.Context, method, path, key string, body any) (int, object, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		// Hidden from net/http, which would otherwise send it a second time on a dead connection.
		content = struct{ io.Reader }{bytes.NewReader(encoded)}
	}
	base := c.urls[int(c.next.Add(1))%len(c.urls)]
	if c.through != nil {
		if base = c.through.pick(); base == "" {
			return 0, nil, fmt.Errorf("%s %s: no replica is ready", method, path)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, base+path, content)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	answer := object{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &answer); err != nil {
			return response.StatusCode, nil, fmt.Errorf("%s %s: %d %q: %w", method, path, response.StatusCode, raw, err)
		}
	}
	return response.StatusCode, answer, nil
}

// insist repeats a request with the same key until the answer is final: neither lost, nor "in progress",
// nor "unavailable".
func (c *client) insist(ctx context.Context, method, path, key string, body any) (int, object, error) {
	for {
		status, answer, err := c.do(ctx, method, path, key, body)
		inProgress := status == http.StatusConflict && answer.text("code") == "idempotency_in_progress"
		if err == nil && status != http.StatusServiceUnavailable && status != http.StatusInternalServerError && !inProgress && status != http.StatusAccepted {
			return status, answer, nil
		}
		select {
		case <-ctx.Done():
			return status, answer, fmt.Errorf("%s %s: last answer %d %v: %w", method, path, status, answer, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// must is do with one accepted status.
func (c *client) must(t *testing.T, want int, method, path, key string, body any) object {
	t.Helper()
	status, answer, err := c.do(t.Context(), method, path, key, body)
	require.NoError(t, err)
	require.Equal(t, want, status, "%s %s: %v", method, path, answer)
	return answer
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (h *hub) staff(t *testing.T) *client {
	t.Helper()
	c := newClient(h.Demo.AdminToken, []string{h.URLs.AdminAPI})
	t.Cleanup(c.close)
	return c
}

// merchant is a new tenant with a key of test mode.
func (h *hub) merchant(t *testing.T, staff *client, name string) *client {
	t.Helper()
	tenant := staff.must(t, http.StatusCreated, "POST", "/admin/v1/tenants", "", object{"name": name})
	key := staff.must(t, http.StatusCreated, "POST", "/admin/v1/tenants/"+tenant.text("id")+"/api-keys", "", object{"livemode": false})
	c := newClient(key.text("secret"), h.URLs.Replicas["payment_api"])
	t.Cleanup(c.close)
	return c
}
