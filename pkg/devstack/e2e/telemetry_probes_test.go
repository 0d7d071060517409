package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestProbes: with Kafka away payment-api is ready and takes payments, relay and dispatcher live and say that they are
// degraded, and the lag rises; with Postgres away everything is unready, and nothing is to be killed; when both are back
// everything is ready, and delivered.
func TestProbes(t *testing.T) {
	h := start(t)
	rx := listen(t)
	shops := h.shops(t, rx, 1)
	h.devstack(t, "stop", "broker")
	for _, service := range []string{"outbox-relay", "webhook-dispatcher"} {
		h.probes(t, service, http.StatusOK, http.StatusOK, "degraded")
	}
	shops[0].must(t, http.StatusCreated, "POST", "/v1/payment-intents", uuid.NewString(),
		object{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_visa", "confirm": true})
	h.probes(t, "payment-api", http.StatusOK, http.StatusOK, "ok")
	first := h.gauge(t, "outbox-relay", "apipay_outbox_oldest_pending_seconds", 0.1)
	require.Greater(t, h.gauge(t, "outbox-relay", "apipay_outbox_oldest_pending_seconds", first+1), first)
	require.InDelta(t, 1, h.gauge(t, "outbox-relay", "apipay_outbox_blocked", 1), 0)
	require.Positive(t, h.gauge(t, "outbox-relay", "apipay_loop_degraded", 1))

	h.devstack(t, "stop", "postgres")
	for _, service := range serviceNames {
		h.probes(t, service, http.StatusOK, http.StatusServiceUnavailable, "")
	}
	status, answer, err := shops[0].do(t.Context(), "GET", "/v1/payment-intents", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "service_unavailable", answer.text("code"))

	h.devstack(t, "start", "postgres")
	h.devstack(t, "start", "broker")
	for _, service := range serviceNames {
		h.probes(t, service, http.StatusOK, http.StatusOK, "ok")
	}
	h.eventually(t, 30*time.Second, 0, unpublished)
	h.eventually(t, 30*time.Second, 0, undone)
	for _, p := range h.processes(t) {
		require.Empty(t, p.Exit, "%s was not restarted", p.Name)
	}
}

// probes waits until both probes of a service answer so.
func (h *hub) probes(t *testing.T, service string, live, ready int, says string) {
	t.Helper()
	var gotLive, gotReady int
	var text string
	require.Eventually(t, func() bool {
		gotLive, _ = h.probe(t, service, "/livez")
		gotReady, text = h.probe(t, service, "/readyz")
		return gotLive == live && gotReady == ready && (says == "" || contains(text, says))
	}, 30*time.Second, 100*time.Millisecond, "%s: /livez %d, /readyz %d %s", service, gotLive, gotReady, text)
}

// gauge waits until the largest value of a metric is at least so much.
func (h *hub) gauge(t *testing.T, service, name string, least float64) float64 {
	t.Helper()
	var most float64
	require.Eventually(t, func() bool {
		families, _ := h.scrape(t, service)
		most = 0
		for _, m := range families[name].GetMetric() {
			most = max(most, m.GetGauge().GetValue())
		}
		return most >= least
	}, 20*time.Second, 100*time.Millisecond, "%s of %s", name, service)
	return most
}
