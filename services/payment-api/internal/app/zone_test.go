package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
	_ "time/tzdata" // the zones must be there on every machine

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/services/payment-api/internal/app"
)

const envServeInZone = "APIPAY_TEST_SERVE_DSN"

// TestServeInZone is no test of its own: it is the process that TestTimes_IgnoreTheZoneOfTheServer starts, since the
// zone of a process is read once. It serves until its input ends.
func TestServeInZone(t *testing.T) {
	dsn := os.Getenv(envServeInZone)
	if dsn == "" {
		return
	}
	require.Equal(t, os.Getenv("TZ"), time.Local.String())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	environ := []string{"APIPAY_DATABASE_URL=" + dsn, "APIPAY_SECRETS_KEYSET=" + testKeyset,
		"APIPAY_HTTP_ADDR=127.0.0.1:0", "APIPAY_OPS_ADDR=127.0.0.1:0"}
	require.NoError(t, app.Run(ctx, environ, os.Stdout))
}

// serveInZone starts the service with the zone as that of its process and of its database sessions.
func serveInZone(t *testing.T, b *testBundle, zone string) (url string) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^TestServeInZone$")
	command.Env = append(os.Environ(), "TZ="+zone, envServeInZone+"="+withParam(t, b.db.App, "timezone", zone))
	input, err := command.StdinPipe()
	require.NoError(t, err)
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	started := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var entry struct{ Msg, HTTP string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "service.started" {
				started <- "http://" + entry.HTTP
			}
		}
	}()
	t.Cleanup(func() {
		_ = input.Close()
		<-drained
		require.NoError(t, command.Wait())
	})
	select {
	case url = <-started:
	case <-drained:
	}
	require.NotEmpty(t, url, "the service in %s did not start", zone)
	return url
}

// E4: times are Unix seconds, and what a filter finds does not depend on where the server believes it is; the times are
// those of a change of summer time, which one of the zones repeats.
func TestTimes_IgnoreTheZoneOfTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := b.tenant(t)
	key := b.key(t, tenant, false)
	made := merchant{b.url, key}
	now := query[time.Time](t, b, `SELECT now()`).Truncate(time.Hour)
	for i, at := range []int64{1761436799, 1761440399, 1761440400, 1761443999, 1761444000} { // 2025-10-26 around 01:00 UTC
		intent := made.call(t, http.MethodPost, "/v1/payment-intents", body{"amount": 1000 + i, "currency": "EUR"}, "Idempotency-Key", fmt.Sprint(i))
		require.Equal(t, http.StatusCreated, intent.status)
		intentID, err := id.Parse(id.PaymentIntent, intent.str("id"))
		require.NoError(t, err)
		b.exec(t, `UPDATE apipay.payment_intents SET created_at = to_timestamp($2) WHERE id = $1`, intentID, at)
	}
	b.exec(t, `DELETE FROM apipay.outbox_events`)
	for _, before := range []time.Duration{2 * time.Hour, time.Hour, time.Minute} {
		b.event(t, tenant, false, now.Add(-before), "ping")
	}
	found := map[string]int{
		"/v1/payment-intents?created[gte]=1761440400&created[lt]=1761444000":                                         2,
		"/v1/payment-intents?created[lt]=1761440400":                                                                 2,
		"/v1/payment-intents?created[gte]=1761436800":                                                                4,
		fmt.Sprintf("/v1/events?created[gte]=%d", now.Add(-time.Hour).Unix()):                                        2,
		fmt.Sprintf("/v1/events?created[gte]=%d&created[lt]=%d", now.Add(-2*time.Hour).Unix(), now.Unix()-2*60*60+1): 1,
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Kiritimati"} {
		m := merchant{serveInZone(t, b, zone), key}
		for path, want := range found {
			a := m.call(t, http.MethodGet, path, nil)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			require.Len(t, a.data(), want, "%s in %s", path, zone)
			require.Equal(t, string(made.call(t, http.MethodGet, path, nil).body), string(a.body), "%s in %s", path, zone)
		}
		for _, text := range []string{"2026-03-29T02:30", "2026-03-29T02:30:00Z", "1e9", "+1761440400", "1761440400.5", ""} {
			refused(t, m.call(t, http.MethodGet, "/v1/payment-intents?created%5Bgte%5D="+text, nil), http.StatusBadRequest, "invalid_request")
		}
	}
}
