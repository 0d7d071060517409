package api

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// To whoever is confined to one tenant the objects of another do not exist: on every route that names one, an id of the other
// tenant's and an id of nobody's get the same answer, and what was tried is told.
func TestConfined_EveryRoute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	foreign := b.foreign(t)
	before := b.fingerprint(t)
	writes := 0
	for _, r := range routes {
		if !strings.Contains(r.path, ":") {
			continue
		}
		path := r.path
		for name, value := range foreign {
			path = strings.ReplaceAll(path, name, value)
		}
		require.NotContains(t, path, ":", "the test has no object for %s", r.path)
		theirs := b.do(t, confinedAdminToken, r.method, path, bodyOf(r))
		theirs.requireProblem(t, http.StatusNotFound, "not_found")
		nobodys := b.do(t, confinedAdminToken, r.method, expand(r.path), bodyOf(r))
		for _, member := range []string{"status", "code", "title", "detail", "type"} {
			require.Equal(t, nobodys.body[member], theirs.body[member], "%s %s tells that it exists", r.method, r.path)
		}
		if r.action != "" {
			writes += 2
			require.JSONEq(t, `{"refused":"not_found"}`, b.lastAudit(t).Changes)
			require.Equal(t, "cora", b.lastAudit(t).Actor)
		}
	}
	require.Len(t, b.audits(t), writes, "one entry for each write that was refused, none for reads")
	require.Equal(t, before, b.fingerprint(t), "nothing was changed")
}

// foreign is an object of tenant B's for each parameter of a route.
func (b *testBundle) foreign(t *testing.T) map[string]string {
	t.Helper()
	endpoint := b.endpoint(t, b.b)
	intent, attempt := b.payment(t, b.b, "theirs", "")
	key := b.ok(t, adminToken, http.StatusCreated, "POST", "/admin/v1/tenants/"+tenantText(b.b)+"/api-keys", map[string]any{"livemode": false})
	recovery := b.ok(t, adminToken, http.StatusCreated, "POST", "/admin/v1/recoveries", map[string]any{"filter": map[string]any{"tenant": tenantText(b.b)}})
	refund := id.New()
	b.exec(t, `UPDATE apipay.payment_attempts SET status = 'succeeded', next_check_at = NULL, finished_at = now() WHERE id = $1`, attempt)
	b.exec(t, `UPDATE apipay.payment_intents SET status = 'succeeded' WHERE id = $1`, intent)
	b.exec(t, `INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status) VALUES ($1, $2, false, $3, 1, 'EUR', 'succeeded')`,
		refund, b.b, intent)
	delivery := b.delivery(t, b.b, endpoint, failed)
	event := b.outboxEvent(t, b.b, parked)
	record := b.quarantined(t, b.b)
	// What made these is not what is looked at.
	b.exec(t, `DELETE FROM apipay.audit_log`)
	b.exec(t, `DELETE FROM apipay.outbox_events WHERE topic = 'apipay.audit.v1'`)
	return map[string]string{
		":tenant": tenantText(b.b), ":key": key["id"].(string), ":endpoint": id.Format(id.Endpoint, endpoint), ":delivery": delivery,
		":event": id.Format(id.Event, event), ":recovery": recovery["id"].(string), ":intent": id.Format(id.PaymentIntent, intent),
		":refund": id.Format(id.Refund, refund), ":attempt": id.Format(id.PaymentAttempt, attempt), ":record": id.Format(id.Quarantined, record),
	}
}

// fingerprint is everything of tenant B's.
func (b *testBundle) fingerprint(t *testing.T) string {
	t.Helper()
	var text string
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT concat_ws('|',
		(SELECT string_agg(k::text, ',' ORDER BY k.id) FROM apipay.api_keys k), (SELECT string_agg(e::text, ',' ORDER BY e.id) FROM apipay.webhook_endpoints e),
		(SELECT string_agg(d::text, ',' ORDER BY d.id) FROM apipay.outbound_webhook_deliveries d), (SELECT string_agg(r::text, ',' ORDER BY r.id) FROM apipay.recoveries r),
		(SELECT string_agg(p::text, ',' ORDER BY p.id) FROM apipay.payment_attempts p), (SELECT string_agg(q::text, ',' ORDER BY q.id) FROM apipay.quarantined_records q),
		(SELECT string_agg(o::text, ',' ORDER BY o.id) FROM apipay.outbox_events o WHERE o.topic <> 'apipay.audit.v1'))`).Scan(&text))
	return text
}

// Of twenty who do the same thing, or the opposite, at the same moment one has done it, and the audit log has one entry.
func TestWrites_AtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, attempt := b.payment(t, b.a, "order", "")
	resolve := "/admin/v1/payment-attempts/" + id.Format(id.PaymentAttempt, attempt) + "/resolve"
	event := "/admin/v1/outbox/parked/" + id.Format(id.Event, b.outboxEvent(t, b.a, parked))
	given := "/admin/v1/outbox/parked/" + id.Format(id.Event, b.outboxEvent(t, b.a, parked))
	record := "/admin/v1/quarantine/" + id.Format(id.Quarantined, b.quarantined(t, b.a))
	delivery := b.delivery(t, b.a, b.endpoint(t, b.a), failed)
	outcomes := []string{"succeeded", "declined", "not_executed"}
	for name, c := range map[string]struct {
		path string
		done int
		body func(int) any
	}{
		"payment_attempt.resolve": {resolve, http.StatusAccepted, func(i int) any {
			return map[string]any{"outcome": outcomes[i%3], "reason": "the bank said so"}
		}},
		"outbox_event.replay":       {event + "/replay", http.StatusAccepted, func(int) any { return nil }},
		"outbox_event.discard":      {given + "/discard", http.StatusOK, func(int) any { return map[string]any{"reason": "too large"} }},
		"quarantined_record.replay": {record + "/replay", http.StatusAccepted, func(int) any { return nil }},
		"webhook_delivery.retry": {"/admin/v1/webhook-deliveries/" + delivery + "/retry", http.StatusAccepted, func(i int) any {
			return map[string]any{"force": i%2 == 0}
		}},
	} {
		var wait sync.WaitGroup
		answers := make([]answer, 20)
		errs := make([]error, len(answers))
		for i := range answers {
			wait.Go(func() { answers[i], errs[i] = b.try(t.Context(), adminToken, "POST", c.path, c.body(i)) })
		}
		wait.Wait()
		done := 0
		for i, got := range answers {
			require.NoError(t, errs[i])
			if got.status == c.done {
				done++
				continue
			}
			require.Equal(t, http.StatusConflict, got.status, "%s: %s", name, got.raw)
		}
		require.Equal(t, 1, done, "%s", name)
		entries := 0
		for _, entry := range b.audits(t) {
			if entry.Action == name {
				entries++
			}
		}
		require.Equal(t, 1, entries, "%s", name)
	}
}
