package app_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that is told to stop while a gateway's answer waits for Postgres writes it before it ends, with no request left.
func TestRun_WritesWhatWaitsForPostgresBeforeItEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughProxy(t, b.db.App)
	p := start(t, b, "APIPAY_DATABASE_URL="+dsn, "APIPAY_GATEWAY_TIMEOUT=2s")
	m := merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
	answered := make(chan answer, 1)
	go func() {
		a, _ := m.try(t, http.MethodPost, "/v1/payment-intents",
			body{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_timeout_then_succeeds", "confirm": true}, "Idempotency-Key", "k")
		answered <- a
	}()
	require.Eventually(t, func() bool { return query[int](t, b, `SELECT count(*) FROM apipay.sandbox_charges`) == 1 },
		10*time.Second, 5*time.Millisecond)
	way.cut(true)
	a := <-answered
	refused(t, a, http.StatusInternalServerError, "internal_error")
	require.NotEmpty(t, a.str("payment_intent"))
	const status = `SELECT status FROM apipay.payment_attempts`
	require.Equal(t, "started", query[string](t, b, status))

	p.stop()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", p.http)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 10*time.Second, 20*time.Millisecond, "the port stays open")
	way.cut(false)
	require.NoError(t, p.end())
	require.Equal(t, "unknown", query[string](t, b, status))
}
