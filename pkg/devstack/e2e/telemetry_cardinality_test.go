package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// fewLabels are all that a label may be called; what they may hold is chosen by the services.
var (
	stranger  = regexp.MustCompile(`(?i)(tnt|we|evt|whd|pi|re|key|req|pat)_[0-9a-z]{26}|[0-9a-f]{8}-[0-9a-f]{4}-|https?://|noise|127\.0\.0\.1`)
	forbidden = regexp.MustCompile(`(?i)tenant|endpoint|url|uri|host|user.?agent|event_id|delivery`)
)

// TestCardinality: 20,000 paths and 500 methods that strangers made up, with as many hosts and user agents;
// CARDINALITY_TENANTS (1,000) tenants with an endpoint and an event each, a tenth of them by the APIs, with a delivery: the
// number of series grows by a small constant, no label tells of any of them, and /metrics stays below 1 MB, on all four
// services.
func TestCardinality(t *testing.T) {
	tenants := 1000
	if text := os.Getenv("CARDINALITY_TENANTS"); text != "" {
		var err error
		tenants, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	h := start(t, "APIPAY_WEBHOOK_RETRY_SCHEDULE=10m")
	h.touchEverything(t)
	// One request of each kind and class first: what may come to be, is.
	for _, api := range []string{h.URLs.PaymentAPI, h.URLs.AdminAPI} {
		noise(t, api, 300, 30)
	}
	before := map[string]int{}
	for _, service := range serviceNames {
		families, _ := h.scrape(t, service)
		before[service] = seriesOf(families)
	}

	for _, api := range []string{h.URLs.PaymentAPI, h.URLs.AdminAPI} {
		noise(t, api, 10_000, 250)
	}
	for _, service := range serviceNames {
		noise(t, h.URLs.Ops[strings.ReplaceAll(service, "-", "_")][0], 200, 20)
	}
	h.crowd(t, tenants)
	h.customers(t, tenants/10)

	for _, service := range serviceNames {
		families, size := h.scrape(t, service)
		after := seriesOf(families)
		t.Logf("%s: %d series before, %d after, %d bytes", service, before[service], after, size)
		require.LessOrEqual(t, after, before[service]+120, service)
		require.Less(t, size, 1<<20, service)
		for name, family := range families {
			for _, m := range family.Metric {
				for _, label := range m.Label {
					require.NotRegexp(t, forbidden, label.GetName(), name)
					require.NotRegexp(t, stranger, label.GetValue(), name)
				}
			}
		}
	}
}

// seriesOf counts as Prometheus does.
func seriesOf(families map[string]*dto.MetricFamily) int {
	n := 0
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Histogram != nil {
				n += len(m.Histogram.Bucket) + 2
				continue
			}
			n++
		}
	}
	return n
}

// crowd makes n tenants with an endpoint and an event each, by rows as the services write them, and waits until all are
// delivered. The events lie in the outbox, so that relay and dispatcher carry them as any others.
func (h *hub) crowd(t *testing.T, n int) {
	t.Helper()
	rx := listen(t)
	const statement = `
		WITH t AS (
		    INSERT INTO apipay.tenants (id, name) SELECT gen_random_uuid(), 'crowd ' || i FROM generate_series(1, $1) i RETURNING id
		), e AS (
		    INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		    SELECT gen_random_uuid(), id, false, $2 || id, '{*}', now() - interval '1 hour' FROM t RETURNING id, tenant_id
		), s AS (
		    INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id)
		    SELECT gen_random_uuid(), tenant_id, false, id, '\x00', 1 FROM e
		)
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
		SELECT overlay(o.id::text PLACING substr(e.tenant_id::text, 25) FROM 25)::uuid, e.tenant_id, false, o.topic, (e.n % 64)::smallint, o.type, o.payload
		FROM (SELECT tenant_id, row_number() OVER () AS n FROM e) e,
		     (SELECT * FROM apipay.outbox_events WHERE topic = 'apipay.outbound-webhooks.v1' AND parked_at IS NULL AND payload <> 'no JSON' LIMIT 1) o`
	_, err := h.owner.Exec(t.Context(), statement, n, rx.url+"/crowd/")
	require.NoError(t, err)
	h.eventually(t, 30*time.Second, 0, unpublished+` AND parked_at IS NULL`)
	// Each event is of its own tenant; what it says is another's, so the dispatchers put it aside or deliver it, but
	// look at each of them.
	h.eventually(t, 30*time.Second, 1, fmt.Sprintf(`SELECT (count(*) >= %d)::int FROM (
		SELECT event_id::text FROM apipay.webhook_events UNION ALL SELECT id::text FROM apipay.quarantined_records) x`, n))
}

// customers makes n tenants with a key, an endpoint and a ping by the APIs, and waits until all pings are delivered.
func (h *hub) customers(t *testing.T, n int) {
	t.Helper()
	rx := listen(t)
	staff := h.staff(t)
	work := errgroup.Group{}
	work.SetLimit(8)
	made := func(status int, answer object, err error) (object, error) {
		if err == nil && status >= http.StatusMultipleChoices {
			err = fmt.Errorf("answered %d %v", status, answer)
		}
		return answer, err
	}
	for i := range n {
		work.Go(func() error {
			ctx := t.Context()
			tenant, err := made(staff.do(ctx, "POST", "/admin/v1/tenants", "", object{"name": fmt.Sprintf("customer %d", i)}))
			if err != nil {
				return err
			}
			key, err := made(staff.do(ctx, "POST", "/admin/v1/tenants/"+tenant.text("id")+"/api-keys", "", object{"livemode": i%2 == 0}))
			if err != nil {
				return err
			}
			merchant := newClient(key.text("secret"), []string{h.URLs.PaymentAPI})
			defer merchant.close()
			endpoint, err := made(merchant.do(ctx, "POST", "/v1/webhook-endpoints", "", object{"url": fmt.Sprintf("%s/customer/%d", rx.url, i), "enabled_events": []string{"*"}}))
			if err != nil {
				return err
			}
			_, err = made(merchant.do(ctx, "POST", "/v1/webhook-endpoints/"+endpoint.text("id")+"/ping", "", nil))
			return err
		})
	}
	require.NoError(t, work.Wait())
	h.eventually(t, 30*time.Second, n, `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE event_type = 'ping' AND status = 'DELIVERED'`)
}

// noise sends requests whose paths, methods, hosts and user agents are random, over a few connections.
func noise(t *testing.T, base string, paths, methods int) {
	t.Helper()
	address := strings.TrimPrefix(base, "http://")
	const connections = 8
	var all sync.WaitGroup
	errs := make(chan error, connections)
	for c := range connections {
		all.Go(func() {
			for i := c; i < paths; {
				// A server may close a connection; then another goes on.
				next, err := noisyConnection(t.Context(), address, i, connections, paths, methods)
				if err != nil || next == i {
					errs <- fmt.Errorf("request %d of %s: %w", i, base, err)
					return
				}
				i = next
			}
		})
	}
	all.Wait()
	close(errs)
	require.NoError(t, <-errs)
}

func noisyConnection(ctx context.Context, address string, i, step, paths, methods int) (next int, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return i, err
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for ; i < paths; i += step {
		method := []string{"GET", "POST", "DELETE", "PATCH"}[i%4]
		if i < methods {
			method = fmt.Sprintf("NOISE%d", i)
		}
		prefix := []string{"/", "/v1/", "/v1/payment-intents/", "/admin/v1/webhook-deliveries/", "/v1/events/evt_"}[i%5]
		_, err := fmt.Fprintf(conn, "%s %snoise%d/%x HTTP/1.1\r\nHost: noise%d.example\r\nUser-Agent: noise/%d\r\nContent-Length: 0\r\n\r\n",
			method, prefix, i, rand.Uint64(), i, i)
		if err != nil {
			return i, nil // the caller dials anew
		}
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			return i, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode >= http.StatusInternalServerError && response.StatusCode != http.StatusNotImplemented {
			return i, fmt.Errorf("answered %s", response.Status)
		}
		if response.Close {
			return i + step, nil
		}
	}
	return i, nil
}
