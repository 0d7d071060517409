package api

import (
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

const deliveriesPath = "/admin/v1/webhook-deliveries"

func TestDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	delivery := b.delivery(t, b.a, endpoint, failed)
	b.attempt(t, delivery, 1, "failed", "<script>alert(1)</script>")
	b.attempt(t, delivery, 2, "failed", "")

	got := b.ok(t, viewerToken, http.StatusOK, http.MethodGet, deliveriesPath+"/"+delivery, nil)
	require.Equal(t, delivery, got["id"])
	require.Equal(t, tenantText(b.a), got["tenant_id"])
	require.Equal(t, id.Format(id.Endpoint, endpoint), got["endpoint_id"])
	require.Equal(t, "https://example.com/a%20b_c?x=1", got["endpoint_url"])
	require.Equal(t, "payment_intent.succeeded", got["event_type"])
	require.Equal(t, "FAILED", got["status"])
	require.Equal(t, "attempts_exhausted", got["failure_reason"])
	require.EqualValues(t, 6, got["attempt_count"])
	for _, absent := range []string{"next_attempt_at", "held", "delivered_at"} {
		value, present := got[absent]
		require.True(t, present, absent)
		require.Nil(t, value, absent)
	}
	attempts := got["attempts"].([]any)
	require.Len(t, attempts, 2)
	first := attempts[0].(map[string]any)
	require.EqualValues(t, 1, first["number"])
	require.Equal(t, "scheduled", first["trigger"])
	require.Equal(t, "failed", first["outcome"])
	require.EqualValues(t, 12, first["latency_ms"])
	require.Equal(t, map[string]any{"dns": 1.0, "connect": 2.0}, first["phases_ms"])
	require.Equal(t, "203.0.113.7", first["remote_ip"])
	require.EqualValues(t, 500, first["status_code"])
	require.Equal(t, "http_5xx", first["error_class"])
	require.Equal(t, "<script>alert(1)</script>", first["response_excerpt"])
	require.Regexp(t, `Z$`, first["started_at"])

	for _, unknown := range []string{"x", "whd_", id.Format(id.Delivery, id.New()), id.Format(id.Event, id.New()), "..%2Ftenants"} {
		b.problem(t, viewerToken, http.StatusNotFound, "not_found", http.MethodGet, deliveriesPath+"/"+unknown, nil)
	}
}

func TestDelivery_Held(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	due := b.delivery(t, b.a, endpoint, "")
	later := b.delivery(t, b.a, endpoint, retrying)
	flying := b.delivery(t, b.a, endpoint, inFlight)
	held := func(delivery string) any {
		return b.ok(t, viewerToken, http.StatusOK, http.MethodGet, deliveriesPath+"/"+delivery, nil)["held"]
	}
	require.Nil(t, held(due))
	b.exec(t, `INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode, breaker_opened_at)
		VALUES ($1, $2, false, now())`, endpoint, b.a)
	require.Nil(t, held(due), "the breaker is from before it was switched on")
	b.exec(t, `UPDATE apipay.webhook_endpoint_states SET counted_from = (SELECT enabled_at FROM apipay.webhook_endpoints WHERE id = $1)`, endpoint)
	require.Equal(t, "endpoint_unreachable", held(due))
	require.Nil(t, held(later), "it is not due")
	require.Nil(t, held(flying), "it is the probe")
}

// B80
func TestRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, test := range map[string]struct {
		set      string
		endpoint string
		force    bool
		code     string // empty: 202
	}{
		"failed":               {set: failed},
		"retrying":             {set: retrying},
		"delivered":            {set: delivered, code: "delivery_delivered"},
		"delivered with force": {set: delivered, force: true},
		"pending, due":         {code: "delivery_pending"},
		"pending, not due":     {set: `next_attempt_at = now() + interval '1 hour'`, code: "delivery_pending"},
		"pending with force":   {force: true, code: "delivery_pending"},
		"in flight":            {set: inFlight, code: "delivery_in_flight"},
		"in flight with force": {set: inFlight, force: true, code: "delivery_in_flight"},
		"disabled":             {set: failed, endpoint: `status = 'disabled', disabled_reason = 'merchant'`, code: "endpoint_disabled"},
		"disabled with force":  {set: delivered, endpoint: `status = 'disabled', disabled_reason = 'merchant'`, force: true, code: "endpoint_disabled"},
		"deleted":              {set: failed, endpoint: `deleted_at = now()`, code: "endpoint_deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := b.endpoint(t, b.a)
			if test.endpoint != "" {
				b.exec(t, `UPDATE apipay.webhook_endpoints SET `+test.endpoint+` WHERE id = $1`, endpoint)
			}
			delivery := b.delivery(t, b.a, endpoint, test.set)
			path := deliveriesPath + "/" + delivery
			before := b.ok(t, viewerToken, http.StatusOK, http.MethodGet, path, nil)
			var body any
			if test.force {
				body = map[string]any{"force": true}
			}
			if test.code != "" {
				b.problem(t, supportToken, http.StatusConflict, test.code, http.MethodPost, path+"/retry", body)
				require.Equal(t, before, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, path, nil), "nothing changed")
				return
			}
			got := b.ok(t, supportToken, http.StatusAccepted, http.MethodPost, path+"/retry", body)
			require.Equal(t, "PENDING", got["status"])
			require.Equal(t, before["attempt_count"], got["attempt_count"], "numbers continue")
			require.Equal(t, before["delivered_at"], got["delivered_at"])
			require.Equal(t, before["event_id"], got["event_id"])
			require.Nil(t, got["failed_at"])
			due, err := time.Parse(time.RFC3339Nano, got["next_attempt_at"].(string))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), due, time.Minute)
			var trigger string
			require.NoError(t, b.owner.QueryRow(t.Context(),
				`SELECT trigger FROM apipay.outbound_webhook_deliveries WHERE endpoint_id = $1`, endpoint).Scan(&trigger))
			require.Equal(t, "manual", trigger)
		})
	}
}

// E1: twenty clicks at once.
func TestRetry_ManyClicks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := deliveriesPath + "/" + b.delivery(t, b.a, b.endpoint(t, b.a), failed) + "/retry"
	answers := make(chan answer, 20)
	var wg sync.WaitGroup
	for range cap(answers) {
		wg.Go(func() {
			got, err := b.try(t.Context(), supportToken, http.MethodPost, path, nil)
			if err != nil {
				got.raw = err.Error()
			}
			answers <- got
		})
	}
	wg.Wait()
	close(answers)
	accepted := 0
	for got := range answers {
		if got.status == http.StatusAccepted {
			accepted++
			continue
		}
		got.requireProblem(t, http.StatusConflict, "delivery_pending")
	}
	require.Equal(t, 1, accepted)
	audits := b.audits(t)
	require.Len(t, audits, 1)
	require.Equal(t, "webhook_delivery.retry", audits[0].Action)
	require.Equal(t, b.a, audits[0].Tenant)
	require.Contains(t, audits[0].Changes, `"prior_status": "FAILED"`)
}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointA, endpointB := b.endpoint(t, b.a), b.endpoint(t, b.b)
	all := map[string]string{}
	for _, set := range []string{"", retrying, inFlight, delivered, failed} {
		all[b.delivery(t, b.a, endpointA, set)] = set
		b.delivery(t, b.b, endpointB, set)
	}
	list := func(token, query string) []map[string]any {
		t.Helper()
		return items(t, b.ok(t, token, http.StatusOK, http.MethodGet, deliveriesPath+"?"+query, nil))
	}
	require.Len(t, list(viewerToken, ""), 10)
	require.Len(t, list(viewerToken, "tenant="+tenantText(b.a)), 5)
	require.Len(t, list(viewerToken, "endpoint="+id.Format(id.Endpoint, endpointB)), 5)
	for status, want := range map[string]int{"PENDING": 4, "RETRYING": 2, "DELIVERED": 2, "FAILED": 2} {
		got := list(viewerToken, "status="+status)
		require.Len(t, got, want, status)
		for _, item := range got {
			require.Equal(t, status, item["status"])
		}
		require.Len(t, list(confinedToken, "status="+status), want/2, status)
	}
	event := list(viewerToken, "limit=1")[0]["event_id"].(string)
	require.Len(t, list(viewerToken, "event="+event), 1)
	now := time.Now().UTC()
	rfc := func(at time.Time) string { return url.QueryEscape(at.Format(time.RFC3339Nano)) }
	require.Len(t, list(viewerToken, "from="+rfc(now.Add(-time.Hour))+"&to="+rfc(now.Add(time.Hour))), 10)
	require.Empty(t, list(viewerToken, "from="+rfc(now.Add(time.Hour))))
	require.Empty(t, list(viewerToken, "to="+rfc(now.Add(-time.Hour))))
	require.Len(t, list(viewerToken, "from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z"), 10)

	// B79: whatever a confined token asks, it is told of its tenant only.
	require.Len(t, list(confinedToken, ""), 5)
	require.Empty(t, list(confinedToken, "tenant="+tenantText(b.b)))
	require.Empty(t, list(confinedToken, "endpoint="+id.Format(id.Endpoint, endpointB)))
	for _, item := range list(confinedToken, "limit=100") {
		require.Contains(t, all, item["id"])
	}
}

func TestListDeliveries_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoints := []uuid.UUID{b.endpoint(t, b.a), b.endpoint(t, b.a), b.endpoint(t, b.b)}
	// One event at one instant for three endpoints, seven times: time alone orders nothing.
	at := time.Now()
	want := map[string]bool{}
	for range 7 {
		event := id.NewAt(at, 0)
		for _, endpoint := range endpoints {
			var delivery uuid.UUID
			require.NoError(t, b.owner.QueryRow(t.Context(), `
				INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status, failed_at,
				    failure_reason, created_at)
				SELECT $1, e.id, apipay.uuid7_beside($1), e.tenant_id, e.livemode, 'ping', 'FAILED', now(), 'expired', '2026-01-01T00:00:00.123456Z'
				FROM apipay.webhook_endpoints e WHERE e.id = $2 RETURNING id`, event, endpoint).Scan(&delivery))
			want[id.Format(id.Delivery, delivery)] = true
		}
	}
	for _, filter := range []string{"", "status=FAILED&"} {
		seen := map[string]bool{}
		cursor := ""
		for pages := 1; ; pages++ {
			page := b.ok(t, viewerToken, http.StatusOK, http.MethodGet, deliveriesPath+"?"+filter+"limit=4"+cursor, nil)
			for _, item := range items(t, page) {
				require.False(t, seen[item["id"].(string)], "shown twice")
				seen[item["id"].(string)] = true
				require.Equal(t, "2026-01-01T00:00:00.123456Z", item["created_at"], "microseconds are kept")
			}
			if page["has_more"] == false {
				require.Nil(t, page["next_cursor"])
				require.Equal(t, 6, pages)
				break
			}
			cursor = "&cursor=" + page["next_cursor"].(string)
		}
		require.Equal(t, want, seen)
		// The cursor belongs to this list, these filters and this reader.
		b.problem(t, viewerToken, 400, "cursor_invalid", http.MethodGet, deliveriesPath+"?tenant="+tenantText(b.a)+cursor, nil)
		b.problem(t, confinedToken, 400, "cursor_invalid", http.MethodGet, deliveriesPath+"?"+filter+cursor[1:], nil)
		b.problem(t, viewerToken, 400, "cursor_invalid", http.MethodGet, "/admin/v1/tenants?"+cursor[1:], nil)
	}
}

// B79
func TestRetry_OtherTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs := b.delivery(t, b.b, b.endpoint(t, b.b), failed)
	path := deliveriesPath + "/" + theirs
	unknown := deliveriesPath + "/" + id.Format(id.Delivery, id.New())

	b.problem(t, confinedToken, http.StatusNotFound, "not_found", http.MethodGet, path, nil)
	refused := b.problem(t, confinedToken, http.StatusNotFound, "not_found", http.MethodPost, path+"/retry", nil)
	missing := b.problem(t, confinedToken, http.StatusNotFound, "not_found", http.MethodPost, unknown+"/retry", nil)
	require.Equal(t, missing.body["detail"], refused.body["detail"])
	b.problem(t, confinedToken, http.StatusNotFound, "not_found", http.MethodPost, "/admin/v1/tenants/"+tenantText(b.a)+"/deliveries/"+theirs, nil)
	b.problem(t, viewerToken, http.StatusForbidden, "forbidden", http.MethodPost, path+"/retry", nil)
	b.problem(t, "apk_test_0000000000000000000000000000000000000000000000000", http.StatusUnauthorized, "authentication_failed", http.MethodPost, path+"/retry", nil)

	var status string
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT status FROM apipay.outbound_webhook_deliveries`).Scan(&status))
	require.Equal(t, "FAILED", status)
	// The three authenticated attempts are told, with who and what, as the platform's business.
	audits := b.audits(t)
	require.Len(t, audits, 3)
	for i, actor := range []string{"conny", "conny", "vera"} {
		require.Equal(t, actor, audits[i].Actor)
		require.Equal(t, uuid.Nil, audits[i].Tenant)
		require.Equal(t, "webhook_delivery.retry", audits[i].Action)
		require.Contains(t, audits[i].Target, deliveriesPath)
	}
	require.Contains(t, audits[0].Target, theirs)
	require.JSONEq(t, `{"refused":"not_found"}`, audits[0].Changes)
	require.JSONEq(t, `{"refused":"forbidden"}`, audits[2].Changes)
	require.Contains(t, b.log.String(), "write.refused")
}

func TestRetry_RefusesBadBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := deliveriesPath + "/" + b.delivery(t, b.a, b.endpoint(t, b.a), failed) + "/retry"
	for body, code := range map[string]string{
		`{"force":null}`:              "invalid_request",
		`{"force":"true"}`:            "invalid_request",
		`{"force":1}`:                 "invalid_request",
		`{"Force":true}`:              "parameter_unknown",
		`{"force":true,"force":true}`: "invalid_request",
		`{"force":true`:               "invalid_request",
		`[]`:                          "invalid_request",
	} {
		b.problem(t, supportToken, http.StatusBadRequest, code, http.MethodPost, path, body)
	}
	b.problem(t, supportToken, http.StatusBadRequest, "invalid_request", http.MethodPost, path+"?force=true", nil)
	require.Empty(t, b.audits(t))
}
