package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

var serviceNames = []string{"payment-api", "admin-api", "outbox-relay", "webhook-dispatcher"}

// scrape reads /metrics of a replica. The standard families of Go and of the process are left out.
func (h *hub) scrape(t *testing.T, service string) (families map[string]*dto.MetricFamily, size int) {
	t.Helper()
	body := h.page(t, service, "/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
	})
	return families, len(body)
}

// page is what the ops port of a service's first replica answers, whatever the status.
func (h *hub) page(t *testing.T, service, path string) string {
	t.Helper()
	_, body := h.probe(t, service, path)
	return body
}

func (h *hub) probe(t *testing.T, service, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(h.URLs.Ops[strings.ReplaceAll(service, "-", "_")][0] + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// documented is one line of docs/metrics.md.
type documented struct {
	name, otlp, kind, unit string
	labels, services       []string
}

func readMetricsPage(t *testing.T) []documented {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "docs/metrics.md"))
	require.NoError(t, err)
	var all []documented
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		list := func(cell string) []string {
			if cell == "" {
				return nil
			}
			parts := strings.Split(cell, ", ")
			slices.Sort(parts)
			return parts
		}
		require.NotEmpty(t, cells[6], "%s has no meaning", cells[0])
		all = append(all, documented{cells[0], cells[1], cells[2], cells[3], list(cells[4]), list(cells[5])})
	}
	require.NotEmpty(t, all)
	return all
}

// TestMetrics holds docs/metrics.md against what the programs export, on /metrics and by OTLP, after a load that touches
// every instrument: what is documented is exported, and what is exported is documented, with its type, unit and labels.
func TestMetrics(t *testing.T) {
	c := collect(t)
	h := start(t, append(c.environ(), "APIPAY_GATEWAY_TIMEOUT=1s", "APIPAY_IDEMPOTENCY_LEASE=3s", "APIPAY_GATEWAY_VISIBILITY_DELAY=1s",
		"APIPAY_WEBHOOK_RETRY_SCHEDULE=10m")...)
	h.touchEverything(t)
	page := readMetricsPage(t)
	type export struct{ kind, labels string }
	want, wantPushed := map[string]map[string]export{}, map[string]map[string]string{}
	for _, service := range serviceNames {
		want[service], wantPushed[service] = map[string]export{}, map[string]string{}
	}
	for _, d := range page {
		for _, service := range d.services {
			want[service][d.name] = export{d.kind, strings.Join(d.labels, ", ")}
			wantPushed[service][d.otlp] = d.unit
		}
	}
	for _, service := range serviceNames {
		got := map[string]export{}
		require.Eventually(t, func() bool {
			families, _ := h.scrape(t, service)
			clear(got)
			for name, family := range families {
				got[name] = export{strings.ToLower(family.GetType().String()), strings.Join(labelsOf(family), ", ")}
			}
			return len(got) >= len(want[service])
		}, 20*time.Second, 100*time.Millisecond, "%s exports %v", service, got)
		require.Equal(t, want[service], got, service)
		require.Eventually(t, func() bool { return len(c.names(service)) >= len(wantPushed[service]) }, 10*time.Second, 100*time.Millisecond,
			"%s pushed %v", service, c.names(service))
		pushed := map[string]string{}
		c.mu.Lock()
		for name, m := range c.metrics[service] {
			pushed[name] = m.Unit
		}
		c.mu.Unlock()
		require.Equal(t, wantPushed[service], pushed, service)
	}
}

// labelsOf are the names of a family's labels, but for those of its buckets.
func labelsOf(family *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range family.Metric {
		for _, label := range m.Label {
			names[label.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// touchEverything makes each instrument record something: payments with every outcome, a parked and a quarantined event, a
// failed and a successful attempt, a lost lease.
func (h *hub) touchEverything(t *testing.T) {
	t.Helper()
	rx := listen(t)
	rx.answer(http.StatusInternalServerError)
	staff := h.staff(t)
	merchant := h.merchant(t, staff, "Measured")
	merchant.must(t, http.StatusCreated, "POST", "/v1/webhook-endpoints", "", object{"url": rx.url + "/measured", "enabled_events": []string{"*"}})
	buy := func(want int, method string) {
		merchant.must(t, want, "POST", "/v1/payment-intents", uuid.NewString(),
			object{"amount": 100, "currency": "EUR", "payment_method": method, "confirm": true})
	}
	buy(http.StatusCreated, "pm_card_visa")
	buy(http.StatusAccepted, "pm_card_timeout_then_succeeds")
	// A lease that ended without a result.
	h.eventually(t, 20*time.Second, 1, `SELECT least(1, count(*))::int FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING'`)
	h.exec(t, `UPDATE apipay.outbound_webhook_deliveries SET lease_token = gen_random_uuid(), lease_until = now() - interval '1 second'
		WHERE id = (SELECT id FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING' LIMIT 1)`)
	// The broker refuses the one event for its size; nobody can read the other.
	tenant := h.text(t, `SELECT id::text FROM apipay.tenants WHERE name = 'Measured'`)
	for _, payload := range []string{"repeat('x', 3000000)", "'no JSON'"} {
		h.exec(t, fmt.Sprintf(`
			INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
			SELECT overlay(id::text PLACING lpad(to_hex((random() * 1e9)::bigint), 12, '0') FROM 25)::uuid, tenant_id, livemode, topic, lane, type, convert_to(%s, 'UTF8')
			FROM apipay.outbox_events WHERE tenant_id = $1 AND topic = 'apipay.outbound-webhooks.v1' LIMIT 1`, payload), tenant)
	}
	h.eventually(t, 20*time.Second, 1, `SELECT count(*)::int FROM apipay.outbox_events WHERE parked_at IS NOT NULL`)
	h.eventually(t, 20*time.Second, 1, `SELECT count(*)::int FROM apipay.quarantined_records`)
	h.eventually(t, 20*time.Second, 0, `SELECT count(*)::int FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`)
}

// exec runs one statement as the owner of the tables.
func (h *hub) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := h.owner.Exec(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}
