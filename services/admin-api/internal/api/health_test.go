package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func TestEndpointHealth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.b)
	path := "/admin/v1/webhook-endpoints/" + id.Format(id.Endpoint, endpoint)
	empty := b.ok(t, viewerToken, 200, http.MethodGet, path+"/health", nil)
	require.Empty(t, empty["hours"])
	b.exec(t, `INSERT INTO apipay.webhook_endpoint_health (endpoint_id, hour, tenant_id, livemode, succeeded, failed, latency_buckets, failures)
		VALUES ($1, date_trunc('hour', now()), $2, false, 90, 10, '{0,0,0,100,0,0,0,0,0,0,0}', '{"timeout": 7, "status": 3}'),
		    ($1, date_trunc('hour', now()) - interval '30 days', $2, false, 5, 0, '{5,0,0,0,0,0,0,0,0,0,0}', '{}')`, endpoint, b.b)
	hours := b.ok(t, viewerToken, 200, http.MethodGet, path+"/health", nil)["hours"].([]any)
	require.Len(t, hours, 1, "seven days")
	require.Equal(t, map[string]any{
		"hour": time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339), "succeeded": 90.0, "failed": 10.0, "success_rate": 0.9,
		"latency_ms": map[string]any{"p50": 75.0, "p95": 97.5, "p99": 99.5}, "failures": map[string]any{"timeout": 7.0, "status": 3.0},
	}, hours[0])
	wide := path + "/health?from=" + time.Now().UTC().Add(-31*24*time.Hour+time.Hour).Format(time.RFC3339)
	require.Len(t, b.ok(t, viewerToken, 200, http.MethodGet, wide, nil)["hours"], 2)
	health := b.ok(t, viewerToken, 200, http.MethodGet, path, nil)["health"].(map[string]any)
	require.EqualValues(t, 90, health["succeeded_24h"])
	require.EqualValues(t, 10, health["failed_24h"])

	b.problem(t, confinedToken, 404, "not_found", http.MethodGet, path+"/health", nil)
	b.problem(t, viewerToken, 400, "invalid_request", http.MethodGet, path+"/health?from=2020-01-01T00:00:00Z", nil)
	b.problem(t, viewerToken, 400, "invalid_request", http.MethodGet, path+"/health?from=x", nil)
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	require.Nil(t, quantile(make([]int64, 11), 0.5), "nothing is not 0 ms")
	for name, test := range map[string]struct {
		buckets []int64
		q, want float64
	}{
		"first bucket":       {[]int64{10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.5, 5},
		"across buckets":     {[]int64{50, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.95, 23.5},
		"above the last":     {[]int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, 0.5, 10000},
		"over an empty one":  {[]int64{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, 0.99, 9900},
		"end of a bucket":    {[]int64{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.5, 10},
		"few above the last": {[]int64{0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 1}, 0.5, 1757.6},
	} {
		got := quantile(test.buckets, test.q)
		require.NotNil(t, got, name)
		require.InDelta(t, test.want, *got, 0.1, name)
	}
}
