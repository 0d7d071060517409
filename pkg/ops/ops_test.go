package ops_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func probe(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// The ops port says "draining" from the signal until the last actor is done, and no longer.
func TestServe(t *testing.T) {
	t.Parallel()
	listener, err := ops.Listen(t.Context(), "APIPAY_OPS_ADDR", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + listener.Addr().String()
	health := ops.NewHealth()
	down := errors.New("no database")
	var database error
	health.Ready("postgres", func(context.Context) error { return database })
	loop := health.Loop("publisher", time.Minute)
	ctx, signal := context.WithCancel(t.Context())
	drained := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- ops.Serve(ctx, listener, health, prometheus.NewRegistry(), func(ctx context.Context) error {
			<-ctx.Done()
			<-drained
			return nil
		})
	}()
	status, body := probe(t, base+"/readyz")
	require.Equal(t, http.StatusOK, status, body)
	loop.Degraded("the broker is away")
	status, body = probe(t, base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "degraded: publisher: the broker is away")
	database = down
	status, body = probe(t, base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "postgres: no database")
	status, _ = probe(t, base+"/livez")
	require.Equal(t, http.StatusOK, status, "a restart would not bring the database back")
	database = nil
	signal()
	require.Eventually(t, func() bool { status, body = probe(t, base+"/readyz"); return status == http.StatusServiceUnavailable }, 2*time.Second, time.Millisecond)
	require.Contains(t, body, "draining")
	select {
	case err := <-ended:
		t.Fatalf("ended before its actor: %v", err)
	default:
	}
	close(drained)
	require.NoError(t, <-ended)
	_, err = http.Get(base + "/readyz")
	require.Error(t, err)
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	listener, err := ops.Listen(t.Context(), "APIPAY_OPS_ADDR", "127.0.0.1:0")
	require.NoError(t, err)
	health := ops.NewHealth()
	loop := health.Loop("claim", 50*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ops.ServeOps(ctx, listener, health, prometheus.NewRegistry()) }()
	require.Eventually(t, func() bool {
		status, _ := probe(t, "http://"+listener.Addr().String()+"/livez")
		return status == http.StatusServiceUnavailable
	}, 5*time.Second, 10*time.Millisecond)
	loop.Tick()
	status, _ := probe(t, "http://"+listener.Addr().String()+"/livez")
	require.Equal(t, http.StatusOK, status)
	stop()
	require.NoError(t, <-ended)
}

func TestGroup(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	require.ErrorIs(t, ops.Group(t.Context(), wait, func(context.Context) error { return boom }), boom)
	require.NoError(t, ops.Group(t.Context(), wait, func(context.Context) error { return nil }), "one that ends stops the others")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, ops.Group(ctx, wait, wait))
}

func TestListenNamesTheSetting(t *testing.T) {
	t.Parallel()
	first, err := ops.Listen(t.Context(), "APIPAY_OPS_ADDR", "127.0.0.1:0")
	require.NoError(t, err)
	defer first.Close()
	_, err = ops.Listen(t.Context(), "APIPAY_OPS_ADDR", first.Addr().String())
	require.ErrorContains(t, err, "APIPAY_OPS_ADDR="+first.Addr().String())
	require.ErrorContains(t, err, "address already in use")
}
