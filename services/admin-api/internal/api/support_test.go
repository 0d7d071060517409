package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	path := "/admin/v1/webhook-endpoints/" + id.Format(id.Endpoint, endpoint)
	got := b.ok(t, viewerToken, 200, http.MethodGet, path, nil)
	require.Equal(t, "enabled", got["status"])
	require.Nil(t, got["health"].(map[string]any)["failing_since"])

	off := b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{"status": "disabled"})
	require.Equal(t, "disabled", off["status"])
	require.Equal(t, "support", off["disabled_reason"])
	require.Equal(t, got["version"], off["version"], "only an event moves the version")
	audits := len(b.audits(t))
	b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{"status": "disabled"})
	require.Len(t, b.audits(t), audits, "nothing changed, nothing to tell")
	var before, after time.Time
	read := func(into *time.Time) {
		require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT enabled_at FROM apipay.webhook_endpoints WHERE id = $1`, endpoint).Scan(into))
	}
	read(&before)
	on := b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{
		"status": "enabled", "url": "https://example.org/hook", "enabled_events": []string{"ping"}, "description": "x",
	})
	read(&after)
	require.True(t, after.After(before), "counters of failure count from here")
	require.Nil(t, on["disabled_reason"])
	require.Equal(t, "https://example.org/hook", on["url"])
	require.Equal(t, on, b.ok(t, viewerToken, 200, http.MethodGet, path, nil))
	require.Nil(t, b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{"description": nil})["description"])

	for _, body := range []string{
		`{"url":"http://example.com/"}`, `{"url":"https://127.0.0.1/"}`, `{"url":"https://[::ffff:10.0.0.1]/"}`, `{"url":""}`,
		`{"enabled_events":[]}`, `{"enabled_events":["no.such"]}`, `{"enabled_events":["*","ping"]}`, `{"enabled_events":["ping","ping"]}`,
		`{"status":"paused"}`,
	} {
		b.problem(t, adminToken, 422, "parameter_invalid", http.MethodPatch, path, body)
	}
	for _, body := range []string{`{"url":null}`, `{"status":1}`, `{"description":"a\u0000b"}`} {
		b.problem(t, adminToken, 400, "invalid_request", http.MethodPatch, path, body)
	}
	b.problem(t, confinedAdminToken, 404, "not_found", http.MethodPatch, "/admin/v1/webhook-endpoints/"+id.Format(id.Endpoint, b.endpoint(t, b.b)), map[string]any{"status": "disabled"})
	require.Len(t, items(t, b.ok(t, confinedToken, 200, http.MethodGet, "/admin/v1/webhook-endpoints", nil)), 1)

	b.exec(t, `UPDATE apipay.webhook_endpoints SET deleted_at = now() WHERE id = $1`, endpoint)
	b.problem(t, adminToken, 409, "endpoint_deleted", http.MethodPatch, path, map[string]any{"status": "disabled"})
	require.NotNil(t, b.ok(t, viewerToken, 200, http.MethodGet, path, nil)["deleted_at"])
	require.Len(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/webhook-endpoints", nil)), 1)
}

// Counters belong to an enabling: switched on again, an endpoint has no failures before the next one.
func TestEndpoints_HealthClearedByEnabling(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	path := "/admin/v1/webhook-endpoints/" + id.Format(id.Endpoint, endpoint)
	health := func(got map[string]any) map[string]any { return got["health"].(map[string]any) }
	require.Nil(t, health(b.ok(t, viewerToken, 200, http.MethodGet, path, nil))["failed_attempts"], "nothing was tried yet")
	b.exec(t, `INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode, failing_since, failed_attempts, last_failure_at,
		    last_success_at, breaker_opened_at, next_probe_at, counted_from)
		SELECT id, tenant_id, livemode, now(), 12, now(), now(), now(), now(), enabled_at FROM apipay.webhook_endpoints WHERE id = $1`, endpoint)
	counted := []string{"failing_since", "last_failure_at", "breaker_opened_at", "next_probe_at"}
	got := health(b.ok(t, viewerToken, 200, http.MethodGet, path, nil))
	require.EqualValues(t, 12, got["failed_attempts"])
	for _, name := range counted {
		require.NotNil(t, got[name], name)
	}
	off := health(b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{"status": "disabled"}))
	require.Equal(t, got, off, "switched off, it shows why")

	on := b.ok(t, adminToken, 200, http.MethodPatch, path, map[string]any{"status": "enabled"})
	for where, shown := range map[string]map[string]any{
		"PATCH": on, "GET": b.ok(t, viewerToken, 200, http.MethodGet, path, nil),
		"list": items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/webhook-endpoints", nil))[0],
	} {
		require.EqualValues(t, 0, health(shown)["failed_attempts"], where)
		for _, name := range counted {
			require.Nil(t, health(shown)[name], "%s: %s", where, name)
		}
		require.Equal(t, got["last_success_at"], health(shown)["last_success_at"], where)
	}
}

func TestEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	delivery := b.delivery(t, b.a, endpoint, failed)
	unsubscribed := b.endpoint(t, b.a)
	b.exec(t, `UPDATE apipay.webhook_endpoints SET enabled_events = '{refund.created}' WHERE id = $1`, unsubscribed)
	young := b.endpoint(t, b.a)
	b.exec(t, `UPDATE apipay.webhook_endpoints SET created_at = now() + interval '1 hour' WHERE id = $1`, young)
	read := func(event string) map[string]any {
		t.Helper()
		return b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/events/"+event, nil)
	}

	event := b.ok(t, viewerToken, 200, http.MethodGet, deliveriesPath+"/"+delivery, nil)["event_id"].(string)
	got := read(event)
	require.Nil(t, got["no_delivery_reason"])
	require.Equal(t, delivery, got["deliveries"].([]any)[0].(map[string]any)["id"])
	reasons := map[string]any{}
	for _, item := range got["endpoints"].([]any) {
		of := item.(map[string]any)
		reasons[of["id"].(string)] = of["reason"]
	}
	require.Equal(t, map[string]any{
		id.Format(id.Endpoint, endpoint): nil, id.Format(id.Endpoint, unsubscribed): "not_subscribed",
		id.Format(id.Endpoint, young): "created_after_event",
	}, reasons)

	for set, reason := range map[string]string{
		"":     "not_published",
		parked: "parked",
		parked + `, discarded_at = now(), discarded_by = 'x', discard_reason = 'y'`: "discarded",
		`published_at = now(), kafka_partition = 1, kafka_offset = 77`:              "published_not_received",
		`topic = 'apipay.payment-events.v1'`:                                        "not_a_webhook_event",
	} {
		require.Equal(t, reason, read(id.Format(id.Event, b.outboxEvent(t, b.a, set)))["no_delivery_reason"])
	}
	received := read(id.Format(id.Event, b.event(t, b.b, 0)))
	require.Equal(t, "no_endpoint_matched", received["no_delivery_reason"])
	require.EqualValues(t, 0, received["endpoints_matched"])
	b.problem(t, confinedToken, 404, "not_found", http.MethodGet, "/admin/v1/events/"+received["id"].(string), nil)
	b.problem(t, viewerToken, 404, "not_found", http.MethodGet, "/admin/v1/events/"+id.Format(id.Event, id.New()), nil)
}

func TestPayments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	intent, attempt := b.payment(t, b.a, "order 7%", "")
	b.payment(t, b.b, "order 7%", "")
	list := func(token, query string) []map[string]any {
		t.Helper()
		return items(t, b.ok(t, token, 200, http.MethodGet, "/admin/v1/payment-intents"+query, nil))
	}
	require.Len(t, list(viewerToken, "?reference=order%207%25"), 2)
	require.Len(t, list(confinedToken, "?reference=order%207%25"), 1)
	require.Len(t, list(viewerToken, "?tenant="+tenantText(b.b)), 1)
	require.Len(t, list(viewerToken, ""), 2)

	path := "/admin/v1/payment-intents/" + id.Format(id.PaymentIntent, intent)
	got := b.ok(t, viewerToken, 200, http.MethodGet, path, nil)
	require.EqualValues(t, 1000, got["amount"])
	require.Equal(t, map[string]any{"order": "7"}, got["metadata"])
	require.Equal(t, id.Format(id.PaymentAttempt, attempt), got["latest_attempt"])
	require.Len(t, got["attempts"], 1)
	require.Empty(t, got["refunds"])
	require.Nil(t, got["last_payment_error"])

	refund := id.New()
	b.exec(t, `UPDATE apipay.payment_intents SET status = 'succeeded', amount_refund_pending = 10 WHERE id = $1`, intent)
	b.exec(t, `INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status)
		VALUES ($1, $2, false, $3, 10, 'EUR', 'pending')`, refund, b.a, intent)
	of := b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/refunds/"+id.Format(id.Refund, refund), nil)
	require.Equal(t, id.Format(id.PaymentIntent, intent), of["payment_intent"])
	require.Len(t, b.ok(t, viewerToken, 200, http.MethodGet, path, nil)["refunds"], 1)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resolvePath := func(attempt uuid.UUID) string {
		return "/admin/v1/payment-attempts/" + id.Format(id.PaymentAttempt, attempt) + "/resolve"
	}
	body := map[string]any{"outcome": "not_executed", "reason": "the acquirer\nhas no such charge\u0007"}

	_, early := b.payment(t, b.a, "1", `lease_until = now() - interval '50 seconds'`)
	refused := b.problem(t, adminToken, 409, "invalid_state", http.MethodPost, resolvePath(early), body)
	require.Contains(t, refused.body, "resolvable_at")
	_, leased := b.payment(t, b.a, "2", `status = 'started', lease_until = now() + interval '50 seconds'`)
	b.problem(t, adminToken, 409, "invalid_state", http.MethodPost, resolvePath(leased), body)
	_, known := b.payment(t, b.a, "3", `status = 'declined', next_check_at = NULL, finished_at = now()`)
	b.problem(t, adminToken, 409, "invalid_state", http.MethodPost, resolvePath(known), body)
	_, theirs := b.payment(t, b.b, "4", "")
	b.problem(t, confinedAdminToken, 404, "not_found", http.MethodPost, resolvePath(theirs), body)

	_, due := b.payment(t, b.a, "5", `lease_until = now() - interval '61 seconds'`)
	for _, bad := range []map[string]any{{"outcome": "unknown", "reason": "x"}, {"outcome": "succeeded", "reason": " "}} {
		b.problem(t, adminToken, 422, "parameter_invalid", http.MethodPost, resolvePath(due), bad)
	}
	b.problem(t, adminToken, 400, "parameter_missing", http.MethodPost, resolvePath(due), map[string]any{"outcome": "succeeded"})
	got := b.ok(t, adminToken, 202, http.MethodPost, resolvePath(due), body)
	require.Equal(t, "unknown", got["status"], "the reconciler runs T2")
	require.Equal(t, "not_executed", got["resolution"])
	require.Equal(t, "ada", got["resolved_by"])
	require.Equal(t, "payment_attempt.resolve", b.lastAudit(t).Action)
	b.problem(t, adminToken, 409, "invalid_state", http.MethodPost, resolvePath(due), body)

	unknown := items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/payment-attempts?status=unknown", nil))
	require.Len(t, unknown, 3)
	require.NotContains(t, unknown[0], "idempotency_key")
	require.Len(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/payment-attempts?status=declined", nil)), 1)
	require.Len(t, items(t, b.ok(t, confinedToken, 200, http.MethodGet, "/admin/v1/payment-attempts?status=unknown", nil)), 2)
	require.Len(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/payment-attempts", nil)), 5)
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lag := func() map[string]any {
		t.Helper()
		for _, topic := range items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/outbox", nil)) {
			if topic["topic"] == "apipay.outbound-webhooks.v1" {
				return topic
			}
		}
		t.Fatal("the topic is missing")
		return nil
	}
	idle := lag()
	require.Nil(t, idle["oldest_pending_at"])
	require.EqualValues(t, 0, idle["oldest_pending_age_seconds"])
	require.EqualValues(t, 0, idle["parked"])
	b.outboxEvent(t, b.a, `created_at = now() - interval '90 seconds'`)
	stuck := b.outboxEvent(t, b.a, parked)
	b.outboxEvent(t, b.b, parked)
	behind := lag()
	require.InDelta(t, 90, behind["oldest_pending_age_seconds"], 30)
	require.EqualValues(t, 2, behind["parked"])

	list := b.do(t, viewerToken, http.MethodGet, "/admin/v1/outbox/parked", nil)
	require.Len(t, items(t, list.body), 2)
	require.NotContains(t, list.raw, "secret-payload")
	require.Len(t, items(t, b.ok(t, confinedToken, 200, http.MethodGet, "/admin/v1/outbox/parked", nil)), 1)

	path := "/admin/v1/outbox/parked/" + id.Format(id.Event, stuck)
	asked := b.ok(t, supportToken, 202, http.MethodPost, path+"/replay", nil)
	require.NotNil(t, asked["replay_requested_at"])
	require.Equal(t, "replay_requested", b.problem(t, supportToken, 409, "invalid_state", http.MethodPost, path+"/replay", nil).body["state"])
	require.Nil(t, asked["last_replay_at"])
	require.Len(t, b.audits(t), 1)
	b.problem(t, supportToken, 403, "forbidden", http.MethodPost, path+"/discard", map[string]any{"reason": "x"})
	b.problem(t, adminToken, 422, "parameter_invalid", http.MethodPost, path+"/discard", map[string]any{"reason": ""})
	gone := b.ok(t, adminToken, 200, http.MethodPost, path+"/discard", map[string]any{"reason": "too large for ever"})
	require.Equal(t, "too large for ever", gone["discard_reason"])
	require.Equal(t, "ada", gone["discarded_by"])
	require.Contains(t, b.lastAudit(t).Changes, "too large for ever")
	b.problem(t, supportToken, 409, "invalid_state", http.MethodPost, path+"/replay", nil)
	require.EqualValues(t, 1, lag()["parked"])

	pending := "/admin/v1/outbox/parked/" + id.Format(id.Event, b.outboxEvent(t, b.a, ""))
	b.problem(t, supportToken, 409, "invalid_state", http.MethodPost, pending+"/replay", nil)
	b.problem(t, supportToken, 404, "not_found", http.MethodPost, "/admin/v1/outbox/parked/"+id.Format(id.Event, id.New())+"/replay", nil)
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	nobodys, mine := b.quarantined(t, uuid.Nil), b.quarantined(t, b.a)
	list := b.do(t, viewerToken, http.MethodGet, "/admin/v1/quarantine", nil)
	require.Len(t, items(t, list.body), 2)
	require.NotContains(t, list.raw, "secret-payload")
	confined := items(t, b.ok(t, confinedToken, 200, http.MethodGet, "/admin/v1/quarantine", nil))
	require.Len(t, confined, 1)
	require.Equal(t, id.Format(id.Quarantined, mine), confined[0]["id"])

	path := "/admin/v1/quarantine/" + id.Format(id.Quarantined, nobodys) + "/replay"
	b.problem(t, confinedToken, 404, "not_found", http.MethodPost, path, nil)
	require.NotNil(t, b.ok(t, supportToken, 202, http.MethodPost, path, nil)["replay_requested_at"])
	audit := b.lastAudit(t)
	require.Equal(t, uuid.Nil, audit.Tenant)
	require.Equal(t, "quarantined_record.replay", audit.Action)
	audits := len(b.audits(t))
	require.Equal(t, "replay_requested", b.problem(t, supportToken, 409, "invalid_state", http.MethodPost, path, nil).body["state"])
	require.Len(t, b.audits(t), audits)
	// Refused again, it may be asked for again, and shows that it was tried.
	b.exec(t, `UPDATE apipay.quarantined_records SET replay_requested_at = NULL, last_replay_at = now(), reason = 'tenant_unknown' WHERE id = $1`, nobodys)
	again := b.ok(t, supportToken, 202, http.MethodPost, path, nil)
	require.NotNil(t, again["last_replay_at"])
	require.Equal(t, "tenant_unknown", again["reason"])
	b.exec(t, `UPDATE apipay.quarantined_records SET replayed_at = now()`)
	require.Equal(t, "replayed", b.problem(t, supportToken, 409, "invalid_state", http.MethodPost, path, nil).body["state"])
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.ok(t, adminToken, 201, http.MethodPost, keysPath(tenantText(b.a)), map[string]any{"livemode": false})
	}
	b.ok(t, adminToken, 201, http.MethodPost, keysPath(tenantText(b.b)), map[string]any{"livemode": false})
	b.problem(t, viewerToken, 403, "forbidden", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"})
	list := func(token, query string) []map[string]any {
		t.Helper()
		return items(t, b.ok(t, token, 200, http.MethodGet, "/admin/v1/audit-log"+query, nil))
	}
	all := list(viewerToken, "")
	require.Len(t, all, 5)
	require.Equal(t, "vera", all[0]["actor"], "newest first")
	require.Equal(t, "tnt_00000000000000000000000000", all[0]["tenant_id"])
	require.Equal(t, "127.0.0.1", all[0]["ip"])
	require.NotEmpty(t, all[0]["request_id"])
	require.Len(t, list(confinedViewerToken, ""), 3)
	require.Len(t, list(viewerToken, "?action=api_key.create"), 4)
	require.Len(t, list(viewerToken, "?actor=vera"), 1)
	require.Len(t, list(viewerToken, "?target="+all[1]["target"].(string)), 1)
	require.Empty(t, list(viewerToken, "?from="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	require.Empty(t, list(viewerToken, "?to="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	require.Len(t, list(viewerToken, "?limit=2"), 2)
}
