package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
)

// delivery inserts one as the dispatcher would have, in a state.
func (b *testBundle) delivery(t testing.TB, tenant, endpointID uuid.UUID, at time.Time, status string) (text string, deliveryID uuid.UUID) {
	t.Helper()
	eventID := id.NewAt(at, 0)
	deliveryID = query[uuid.UUID](t, b, `SELECT (left($1::uuid::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid`, eventID)
	b.exec(t, `INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status,
			attempt_count, next_attempt_at, delivered_at, failed_at, failure_reason)
		VALUES ($1, $2, $3, $4, false, 'ping', $5, 2,
			CASE WHEN $5 IN ('PENDING', 'RETRYING') THEN now() - interval '1 second' END,
			CASE WHEN $5 = 'DELIVERED' THEN now() END, CASE WHEN $5 = 'FAILED' THEN now() END, CASE WHEN $5 = 'FAILED' THEN 'exhausted' END)`,
		eventID, endpointID, deliveryID, tenant, status)
	for number := 1; number <= 2; number++ {
		b.exec(t, `INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger,
				outcome, started_at, latency_ms, phases_ms, remote_ip, status_code, response_excerpt)
			VALUES ($1, $2, $3, $4, $5, false, $6::integer, 'scheduled', 'failed', now() - interval '1 minute' + $6::integer * interval '1 second', 12,
				'{"connect": 3, "tls": 4.5}', '203.0.113.9', 500, $7)`,
			eventID, deliveryID, id.NewAt(at, 0), endpointID, tenant, number, strings.Repeat("é", 2000))
	}
	return id.Format(id.Delivery, deliveryID), deliveryID
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := query[time.Time](t, b, `SELECT now()`)
	type fixture struct {
		merchant
		tenant, endpoint uuid.UUID
		path             string
	}
	prepare := func(t *testing.T) fixture {
		f := fixture{tenant: b.tenant(t)}
		f.merchant = merchant{b.url, b.key(t, f.tenant, false)}
		created := f.merchant.endpoint(t)
		f.path = created.header.Get("Location")
		f.endpoint, _ = id.Parse(id.Endpoint, created.str("id"))
		return f
	}

	t.Run("ListShowsAttempts", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		failed, _ := b.delivery(t, f.tenant, f.endpoint, now.Add(-time.Hour), "FAILED")
		waiting, _ := b.delivery(t, f.tenant, f.endpoint, now.Add(-time.Minute), "RETRYING")
		list := f.call(t, http.MethodGet, f.path+"/deliveries", nil)
		require.Equal(t, http.StatusOK, list.status, string(list.body))
		require.Len(t, list.data(), 2)
		newest, oldest := list.data()[0], list.data()[1]
		require.Equal(t, waiting, newest["id"])
		require.Equal(t, failed, oldest["id"])
		require.Equal(t, "FAILED", oldest["status"])
		require.Equal(t, "exhausted", oldest["failure_reason"])
		require.Nil(t, oldest["next_attempt_at"])
		require.Equal(t, "https://merchant.example/hook", oldest["endpoint_url"])
		require.InDelta(t, now.Unix(), oldest["failed_at"], 60)
		attempts := oldest["attempts"].([]any)
		require.Len(t, attempts, 2)
		require.EqualValues(t, 1, attempts[0].(body)["number"])
		require.Equal(t, body{"connect": 3.0, "tls": 4.5}, attempts[1].(body)["phases_ms"])
		require.Equal(t, strings.Repeat("é", 1024), attempts[1].(body)["response_excerpt"])
		require.Len(t, f.call(t, http.MethodGet, f.path+"/deliveries?status=FAILED", nil).data(), 1)
		refused(t, f.call(t, http.MethodGet, f.path+"/deliveries?status=failed", nil), http.StatusBadRequest, "invalid_request")

		// Its breaker open, the due one is held.
		require.Nil(t, newest["held"])
		b.exec(t, `INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode, breaker_opened_at) VALUES ($1, $2, false, now())`,
			f.endpoint, f.tenant)
		require.Nil(t, f.call(t, http.MethodGet, f.path+"/deliveries", nil).data()[0]["held"], "a breaker from before it was switched on")
		b.exec(t, `UPDATE apipay.webhook_endpoint_states s SET counted_from = e.enabled_at FROM apipay.webhook_endpoints e
			WHERE e.id = s.endpoint_id AND e.id = $1`, f.endpoint)
		list = f.call(t, http.MethodGet, f.path+"/deliveries", nil)
		require.Equal(t, "endpoint_unreachable", list.data()[0]["held"])
		require.Nil(t, list.data()[1]["held"])
	})

	t.Run("Pages", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		for range 25 {
			b.delivery(t, f.tenant, f.endpoint, now.Add(-time.Hour), "DELIVERED")
		}
		pages(t, f.merchant, f.path+"/deliveries", 25)
	})

	t.Run("RetryByState", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		retry := func(text string) answer { return f.call(t, http.MethodPost, f.path+"/deliveries/"+text+"/retry", nil) }
		for _, status := range []string{"FAILED", "RETRYING"} {
			text, deliveryID := b.delivery(t, f.tenant, f.endpoint, now, status)
			a := retry(text)
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			require.Equal(t, text, a.json["id"])
			require.Equal(t, "PENDING", a.json["status"])
			require.Nil(t, a.json["failed_at"])
			require.EqualValues(t, 2, a.json["attempt_count"], "numbers continue")
			require.Equal(t, "manual", query[string](t, b, `SELECT trigger FROM apipay.outbound_webhook_deliveries WHERE id = $1`, deliveryID))
			require.Equal(t, 1, query[int](t, b, `SELECT count(*)::int FROM apipay.audit_log WHERE target = $1 AND action = 'webhook_delivery.retry'`, text))
			refused(t, retry(text), http.StatusConflict, "delivery_pending")
		}
		delivered, _ := b.delivery(t, f.tenant, f.endpoint, now, "DELIVERED")
		refused(t, retry(delivered), http.StatusConflict, "delivery_delivered")
		flying, deliveryID := b.delivery(t, f.tenant, f.endpoint, now, "RETRYING")
		b.exec(t, `UPDATE apipay.outbound_webhook_deliveries SET lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute' WHERE id = $1`, deliveryID)
		refused(t, retry(flying), http.StatusConflict, "delivery_in_flight")
		for _, unknown := range []string{id.Format(id.Delivery, id.New()), "whd_x", "evt_01h455vb4pex5vsknk084sn02q"} {
			refused(t, retry(unknown), http.StatusNotFound, "not_found")
		}
		failed, _ := b.delivery(t, f.tenant, f.endpoint, now, "FAILED")
		other := f.endpoint
		elsewhere := f.merchant.endpoint(t).header.Get("Location")
		refused(t, f.call(t, http.MethodPost, elsewhere+"/deliveries/"+failed+"/retry", nil), http.StatusNotFound, "not_found")
		stranger := b.merchant(t)
		refused(t, stranger.call(t, http.MethodPost, f.path+"/deliveries/"+failed+"/retry", nil), http.StatusNotFound, "not_found")
		refused(t, f.call(t, http.MethodPost, f.path+"/deliveries/"+failed+"/retry", body{"force": true}), http.StatusBadRequest, "parameter_unknown")
		b.exec(t, `UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'x' WHERE id = $1`, other)
		refused(t, retry(failed), http.StatusConflict, "endpoint_disabled")
	})

	// B67
	t.Run("HistoryOutlivesTheEndpoint", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		failed, _ := b.delivery(t, f.tenant, f.endpoint, now, "FAILED")
		require.Equal(t, http.StatusNoContent, f.call(t, http.MethodDelete, f.path, nil).status)
		refused(t, f.call(t, http.MethodGet, f.path, nil), http.StatusNotFound, "not_found")
		list := f.call(t, http.MethodGet, f.path+"/deliveries", nil)
		require.Equal(t, http.StatusOK, list.status, string(list.body))
		require.Len(t, list.data(), 1)
		require.Equal(t, failed, list.data()[0]["id"])
		refused(t, f.call(t, http.MethodPost, f.path+"/deliveries/"+failed+"/retry", nil), http.StatusConflict, "endpoint_deleted")
		refused(t, f.call(t, http.MethodPost, f.path+"/deliveries/"+id.Format(id.Delivery, id.New())+"/retry", nil), http.StatusNotFound, "not_found")
		refused(t, b.merchant(t).call(t, http.MethodGet, f.path+"/deliveries", nil), http.StatusNotFound, "not_found")
	})

	t.Run("TwentyClicksMakeOneRetry", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		text, _ := b.delivery(t, f.tenant, f.endpoint, now, "FAILED")
		var wg sync.WaitGroup
		codes := make([]string, 20)
		for i := range codes {
			wg.Go(func() {
				a, err := f.try(t, http.MethodPost, f.path+"/deliveries/"+text+"/retry", nil)
				if err == nil && a.status == http.StatusAccepted {
					codes[i] = "accepted"
				} else {
					codes[i] = a.code()
				}
			})
		}
		wg.Wait()
		want := []string{"accepted"}
		for len(want) < 20 {
			want = append(want, "delivery_pending")
		}
		require.ElementsMatch(t, want, codes)
	})

	t.Run("Recover", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		since := now.Add(-time.Hour).Unix()
		a := f.call(t, http.MethodPost, f.path+"/recover", body{"since": since})
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "pending", a.json["status"])
		recoveryID, err := id.Parse(id.Recovery, a.str("id"))
		require.NoError(t, err)
		stored := query[[]byte](t, b, `SELECT filter FROM apipay.recoveries WHERE id = $1 AND tenant_id = $2 AND livemode = false`, recoveryID, f.tenant)
		filter, err := webhook.ParseRecoveryFilter(stored)
		require.NoError(t, err)
		require.Equal(t, id.Format(id.Endpoint, f.endpoint), filter.Endpoint)
		require.Equal(t, id.Format(id.Tenant, f.tenant), filter.Tenant)
		require.Equal(t, since, filter.From.Unix())
		require.True(t, json.Valid(stored))
		for in, code := range map[string]string{
			`{}`: "parameter_missing", `{"since":"x"}`: "invalid_request", `{"since":1.5}`: "invalid_request", `{"since":-1}`: "parameter_invalid",
			`{"since":99999999999999}`: "parameter_invalid", `{"since":4102444800}`: "parameter_invalid", `{"since":null}`: "invalid_request",
		} {
			refused := f.call(t, http.MethodPost, f.path+"/recover", in)
			require.Equal(t, code, refused.code(), in)
		}
		require.Equal(t, 1, query[int](t, b, `SELECT count(*)::int FROM apipay.recoveries WHERE tenant_id = $1`, f.tenant))
	})
}
