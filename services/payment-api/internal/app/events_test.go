package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// event inserts an event of a time, as pkg/outbox would have.
func (b *testBundle) event(t testing.TB, tenant uuid.UUID, livemode bool, at time.Time, eventType string) string {
	t.Helper()
	eventID := id.NewAt(at, 0)
	envelope, err := json.Marshal(map[string]any{
		"id": id.Format(id.Event, eventID), "type": eventType, "created": at.Unix(), "livemode": livemode, "api_version": "v1",
		"request": nil, "data": body{"object": body{"marker": tenant.String()}},
	})
	require.NoError(t, err)
	b.exec(t, `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, created_at)
		VALUES ($1, $2, $3, 'apipay.outbound-webhooks.v1', 0, $4, $5, $6)`, eventID, tenant, livemode, eventType, envelope, at)
	return id.Format(id.Event, eventID)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := query[time.Time](t, b, `SELECT now()`)

	t.Run("ThirtyDays", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		m := merchant{b.url, b.key(t, tenant, false)}
		within := b.event(t, tenant, false, now.Add(-30*24*time.Hour+time.Minute), "ping")
		beyond := b.event(t, tenant, false, now.Add(-30*24*time.Hour-time.Minute), "ping")
		require.Equal(t, http.StatusOK, m.call(t, http.MethodGet, "/v1/events/"+within, nil).status)
		old := m.call(t, http.MethodGet, "/v1/events/"+beyond, nil)
		refused(t, old, http.StatusNotFound, "not_found")
		list := m.call(t, http.MethodGet, "/v1/events", nil)
		require.Len(t, list.data(), 1)
		require.Equal(t, within, list.data()[0]["id"])
		require.Empty(t, m.call(t, http.MethodGet, fmt.Sprintf("/v1/events?created[lt]=%d", now.Add(-31*24*time.Hour).Unix()), nil).data())
	})

	t.Run("OtherTenantsModesAndTopicsAreUnknown", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		test, live := merchant{b.url, b.key(t, tenant, false)}, merchant{b.url, b.key(t, tenant, true)}
		other := b.merchant(t)
		event := b.event(t, tenant, false, now.Add(-time.Minute), "refund.created")
		fact := id.NewAt(now.Add(-time.Minute), 0)
		b.exec(t, `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
			VALUES ($1, $2, false, 'apipay.payment-events.v1', 0, 'payment_attempt.started', '{}')`, fact, tenant)
		require.Equal(t, http.StatusOK, test.call(t, http.MethodGet, "/v1/events/"+event, nil).status)
		random := id.Format(id.Event, id.NewAt(now, 0))
		unknown := test.call(t, http.MethodGet, "/v1/events/"+random, nil)
		for _, a := range []answer{
			live.call(t, http.MethodGet, "/v1/events/"+event, nil),
			other.call(t, http.MethodGet, "/v1/events/"+event, nil),
			test.call(t, http.MethodGet, "/v1/events/"+id.Format(id.Event, fact), nil),
			unknown,
		} {
			refused(t, a, http.StatusNotFound, "not_found")
			require.Equal(t, unknown.json["detail"], a.json["detail"])
		}
		require.Len(t, test.call(t, http.MethodGet, "/v1/events", nil).data(), 1)
		require.Empty(t, live.call(t, http.MethodGet, "/v1/events", nil).data())
		require.Empty(t, other.call(t, http.MethodGet, "/v1/events", nil).data())
	})

	t.Run("FiltersAndPages", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		m := merchant{b.url, b.key(t, tenant, false)}
		at := now.Add(-time.Hour).Truncate(time.Second)
		for range 25 {
			b.event(t, tenant, false, at, "ping")
		}
		pages(t, m, "/v1/events", 25)
		pages(t, m, "/v1/events?type=ping", 25)
		later := b.event(t, tenant, false, at.Add(10*time.Second), "refund.failed")
		require.Equal(t, later, m.call(t, http.MethodGet, "/v1/events?limit=1", nil).data()[0]["id"], "newest first")
		count := func(filter string) int {
			a := m.call(t, http.MethodGet, "/v1/events?limit=100&"+filter, nil)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			return len(a.data())
		}
		require.Equal(t, 1, count("type=refund.failed"))
		require.Equal(t, 0, count("type=refund.created"))
		require.Equal(t, 26, count(fmt.Sprintf("created[gte]=%d", at.Unix())))
		require.Equal(t, 1, count(fmt.Sprintf("created[gte]=%d", at.Unix()+1)))
		require.Equal(t, 0, count(fmt.Sprintf("created%%5Blt%%5D=%d", at.Unix())))
		require.Equal(t, 25, count(fmt.Sprintf("created[gte]=%d&created[lt]=%d", at.Unix(), at.Unix()+10)))
		for _, bad := range []string{"2026-03-29T02:30", "1.5", "-1", "1e9", "", "99999999999999999999", "now", "0x10"} {
			refused(t, m.call(t, http.MethodGet, "/v1/events?created[gte]="+bad, nil), http.StatusBadRequest, "invalid_request")
		}
		refused(t, m.call(t, http.MethodGet, "/v1/events?type=payment_attempt.started", nil), http.StatusBadRequest, "invalid_request")
		refused(t, m.call(t, http.MethodGet, "/v1/events?created[gt]=1", nil), http.StatusBadRequest, "invalid_request")
	})

	t.Run("CursorsBelongToTenantModeListAndFilters", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		m := merchant{b.url, b.key(t, tenant, false)}
		for range 3 {
			b.event(t, tenant, false, now.Add(-time.Hour), "ping")
		}
		next := m.call(t, http.MethodGet, "/v1/events?limit=1", nil).str("next_cursor")
		require.Equal(t, http.StatusOK, m.call(t, http.MethodGet, "/v1/events?cursor="+next, nil).status)
		onAnotherReplica := merchant{b.replica(t), m.key}
		require.Equal(t, http.StatusOK, onAnotherReplica.call(t, http.MethodGet, "/v1/events?cursor="+next, nil).status)
		for name, a := range map[string]answer{
			"tenant": b.merchant(t).call(t, http.MethodGet, "/v1/events?cursor="+next, nil),
			"mode":   merchant{b.url, b.key(t, tenant, true)}.call(t, http.MethodGet, "/v1/events?cursor="+next, nil),
			"filter": m.call(t, http.MethodGet, "/v1/events?type=ping&cursor="+next, nil),
			"list":   m.call(t, http.MethodGet, "/v1/webhook-endpoints?cursor="+next, nil),
		} {
			require.Equal(t, "cursor_invalid", a.code(), name)
			require.Equal(t, http.StatusBadRequest, a.status, name)
		}
		// E3: an event that is written meanwhile is on no later page.
		second := m.call(t, http.MethodGet, "/v1/events?limit=1&cursor="+next, nil)
		b.event(t, tenant, false, now.Add(-time.Minute), "ping")
		again := m.call(t, http.MethodGet, "/v1/events?limit=1&cursor="+next, nil)
		require.Equal(t, second.data(), again.data())
	})

	// E6
	t.Run("TellsTheCallThatCausedIt", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		a := m.call(t, http.MethodPost, "/v1/payment-intents", body{"amount": 1000, "currency": "EUR"}, "Idempotency-Key", "order-1")
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		list := m.call(t, http.MethodGet, "/v1/events?type=payment_intent.created", nil)
		require.Len(t, list.data(), 1)
		require.Equal(t, body{"id": a.header.Get("X-Request-Id"), "idempotency_key": "order-1"}, list.data()[0]["request"])
		require.Equal(t, a.json, list.data()[0]["data"].(body)["object"])
	})
}
