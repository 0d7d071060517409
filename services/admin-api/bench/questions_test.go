//go:build bench

package bench

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

const deliveries = "/admin/v1/webhook-deliveries"

var statuses = []string{"", "PENDING", "RETRYING", "DELIVERED", "FAILED"}

// questions are every list with every filter alone and together, first pages and deep ones, what matches everything and what
// matches nothing, and the other pages of the console.
func questions(t *testing.T, s *service) []question {
	t.Helper()
	all := deliveryQuestions()
	all = append(all, deepQuestions(t, s)...)
	all = append(all, objectQuestions(t, s)...)
	all = append(all, countQuestions()...)
	return append(all, otherLists(t, s)...)
}

// filter makes a query of names and values; empty ones are left out.
func filter(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	return values
}

func get(token, path string, values url.Values) question {
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	return question{token: token, method: http.MethodGet, path: path}
}

// spans are from and to: all time, the newest day, one day in the middle, and before all.
func spans() [][2]string {
	day := func(ago int) string { return time.Now().AddDate(0, 0, -ago).UTC().Format(time.RFC3339) }
	return [][2]string{{"", ""}, {day(1), ""}, {day(40), day(39)}, {"", day(100)}}
}

func deliveryQuestions() (all []question) {
	tenant := func(u uuid.UUID) string { return id.Format(id.Tenant, u) }
	endpoint := func(u uuid.UUID) string { return id.Format(id.Endpoint, u) }
	wheres := []url.Values{
		{}, filter("tenant", tenant(big)), filter("tenant", tenant(healthy)), filter("tenant", tenant(small)), filter("tenant", tenant(idle)),
		filter("endpoint", endpoint(allDelivered)), filter("endpoint", endpoint(allFailed)), filter("endpoint", endpoint(mixed)),
		filter("endpoint", endpoint(smallOne)), filter("endpoint", endpoint(silent)),
		filter("tenant", tenant(big), "endpoint", endpoint(mixed)), filter("tenant", tenant(idle), "endpoint", endpoint(mixed)),
	}
	for _, where := range wheres {
		for _, status := range statuses {
			for _, span := range spans() {
				values := filter("status", status, "from", span[0], "to", span[1], "limit", "50")
				for name := range where {
					values.Set(name, where.Get(name))
				}
				all = append(all, get(everybody, deliveries, values))
			}
		}
	}
	for _, token := range []string{onlyBig, onlySmall, onlyIdle} {
		for _, status := range statuses {
			all = append(all, get(token, deliveries, filter("status", status, "limit", "50")),
				get(token, deliveries, filter("status", status, "endpoint", endpoint(mixed), "limit", "50")))
		}
	}
	return append(all, get(everybody, deliveries, filter("limit", "100")), get(everybody, deliveries, filter("limit", "100", "status", "FAILED")))
}

// deepQuestions continue behind a delivery of the middle and behind one of the oldest week.
func deepQuestions(t *testing.T, s *service) (all []question) {
	t.Helper()
	for _, days := range []int{40, 78} {
		var delivery uuid.UUID
		var at time.Time
		require.NoError(t, super(t, s.db).QueryRow(t.Context(), `SELECT id, created_at FROM apipay.outbound_webhook_deliveries
			WHERE event_id < apipay.uuid7_floor(now() - make_interval(days => $1)) ORDER BY event_id DESC LIMIT 1`, days).Scan(&delivery, &at))
		for _, where := range []url.Values{{}, filter("tenant", id.Format(id.Tenant, big)), filter("endpoint", id.Format(id.Endpoint, mixed))} {
			for _, status := range statuses {
				values := filter("status", status, "tenant", where.Get("tenant"), "endpoint", where.Get("endpoint"))
				cursor := s.cursorAt("deliveries", values, at, delivery)
				values.Set("cursor", cursor)
				values.Set("limit", "50")
				all = append(all, get(everybody, deliveries, values))
			}
		}
	}
	return all
}

// objectQuestions find one delivery and one event of the middle.
func objectQuestions(t *testing.T, s *service) []question {
	t.Helper()
	var event, delivery uuid.UUID
	require.NoError(t, super(t, s.db).QueryRow(t.Context(), `SELECT event_id, id FROM apipay.outbound_webhook_deliveries
		WHERE event_id < apipay.uuid7_floor(now() - interval '40 days') AND tenant_id = $1 AND status = 'FAILED' ORDER BY event_id DESC LIMIT 1`, big).
		Scan(&event, &delivery))
	month := time.Now().AddDate(0, 0, -31).Add(time.Hour).UTC().Format(time.RFC3339)
	health := "/admin/v1/webhook-endpoints/" + id.Format(id.Endpoint, mixed)
	return []question{
		get(everybody, deliveries, filter("event", id.Format(id.Event, event))),
		get(everybody, deliveries, filter("event", id.Format(id.Event, event), "status", "DELIVERED")),
		get(onlySmall, deliveries, filter("event", id.Format(id.Event, event))),
		get(everybody, deliveries+"/"+id.Format(id.Delivery, delivery), nil),
		get(everybody, "/admin/v1/events/"+id.Format(id.Event, event), nil),
		get(everybody, health, nil), get(everybody, health+"/health", nil), get(everybody, health+"/health", filter("from", month)),
	}
}

// countQuestions are dry runs: one that would take too long is unknown, within the time that counts have.
func countQuestions() (all []question) {
	for _, members := range []map[string]any{
		{}, {"tenant": id.Format(id.Tenant, small)}, {"tenant": id.Format(id.Tenant, idle)}, {"tenant": id.Format(id.Tenant, big)},
		{"endpoint": id.Format(id.Endpoint, mixed)}, {"endpoint": id.Format(id.Endpoint, allDelivered)}, {"endpoint": id.Format(id.Endpoint, allFailed)},
		{"failure_reason": "expired"}, {"event_type": "refund.failed"}, {"status": "RETRYING"},
		{"status": "RETRYING", "tenant": id.Format(id.Tenant, idle)}, {"from": time.Now().AddDate(0, 0, -1).UTC().Format(time.RFC3339)},
	} {
		all = append(all, question{token: everybody, method: http.MethodPost, path: "/admin/v1/recoveries", body: map[string]any{"filter": members, "dry_run": true}})
	}
	return all
}

func otherLists(t *testing.T, s *service) (all []question) {
	t.Helper()
	tenant := func(u uuid.UUID) string { return id.Format(id.Tenant, u) }
	old := time.Now().AddDate(0, 0, -40).UTC().Format(time.RFC3339)
	for path, filters := range map[string][]url.Values{
		"/admin/v1/tenants": {{}},
		"/admin/v1/tenants/" + tenant(big) + "/api-keys": {{}},
		"/admin/v1/webhook-endpoints":                    {{}, filter("status", "enabled"), filter("status", "disabled")},
		"/admin/v1/recoveries":                           {{}, filter("status", "done"), filter("status", "running"), filter("status", "canceled")},
		"/admin/v1/payment-intents":                      {{}, filter("reference", "order-77"), filter("reference", "no such order")},
		"/admin/v1/payment-attempts":                     {{}, filter("status", "unknown")},
		"/admin/v1/outbox":                               {{}},
		"/admin/v1/outbox/parked": {
			{}, filter("topic", "apipay.outbound-webhooks.v1"), filter("topic", "apipay.audit.v1"),
		},
		"/admin/v1/quarantine": {{}, filter("reason", "not_json"), filter("reason", "expired")},
		"/admin/v1/audit-log": {
			{}, filter("actor", "actor 7"), filter("actor", "nobody"), filter("action", "webhook_delivery.retry"), filter("action", "tenant.create"),
			filter("target", "whd_77"), filter("target", "nothing"), filter("from", old), filter("to", old), filter("to", old, "actor", "nobody"),
		},
	} {
		for _, values := range filters {
			all = append(all, get(everybody, path, values))
			if strings.HasSuffix(path, "/tenants") || strings.HasSuffix(path, "/api-keys") || strings.HasSuffix(path, "/outbox") {
				continue
			}
			for _, token := range []string{onlyBig, onlySmall, onlyIdle} {
				all = append(all, get(token, path, values))
			}
			for _, u := range []uuid.UUID{big, small, idle} {
				narrowed := filter("tenant", tenant(u))
				for name := range values {
					narrowed.Set(name, values.Get(name))
				}
				all = append(all, get(everybody, path, narrowed))
			}
		}
	}
	return all
}
