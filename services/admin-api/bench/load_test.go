//go:build bench

package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
)

const (
	weeks   = 12
	tenants = 200
	// bigEndpoints and smallEndpoints are how many endpoints the tenant with 60 % of everything has, and each other one.
	bigEndpoints, smallEndpoints = 50, 5
	chunk                        = 200_000
)

// Roles that some rows play: what is asked for and not there costs the most.
var (
	big     = numbered(1)    // 60 % of all deliveries, none of them RETRYING
	healthy = numbered(2)    // all DELIVERED
	small   = numbered(3)    // a share of its own of 0.2 %
	idle    = numbered(9999) // no delivery at all

	allDelivered = endpointOf(0)
	allFailed    = endpointOf(1)
	mixed        = endpointOf(2)
	smallOne     = endpointOf(bigEndpoints + 2*smallEndpoints)
	silent       = numbered(2_000_001) // no delivery at all
)

// numbered makes ids that SQL makes too: see lpad in the statements below.
func numbered(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
}

func endpointOf(n int) uuid.UUID { return numbered(1_000_000 + n) }

// load fills a database as several weeks of work leave it: rows deliveries with their events and attempts, and a tenth as many of
// everything else that is listed. Foreign keys and indexes are made whole at the end, which takes a third of the time.
func load(t *testing.T, db *testdb.DB, rows int) {
	t.Helper()
	pool := super(t, db)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	for _, table := range []string{"webhook_events", "outbound_webhook_deliveries", "outbound_webhook_attempts", "outbox_events"} {
		for week := -weeks; week < -1; week++ {
			exec(fmt.Sprintf(`DO $do$
				DECLARE at timestamptz := (date_trunc('week', now() AT TIME ZONE 'UTC') + make_interval(weeks => %d)) AT TIME ZONE 'UTC';
				    part text := '%s_w' || to_char(at AT TIME ZONE 'UTC', 'YYYYMMDD');
				BEGIN
				    EXECUTE format('CREATE TABLE apipay.%%I PARTITION OF apipay.%s FOR VALUES FROM (%%L) TO (%%L)', part,
				        apipay.uuid7_floor(at), apipay.uuid7_floor(at + interval '7 days'));
				END $do$`, week, table, table))
		}
	}
	indexes := dropIndexes(t, pool)
	exec(`INSERT INTO apipay.tenants (id, name) SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'tenant ' || n
		FROM generate_series(1, $1::int) n UNION ALL SELECT $2, 'idle'`, tenants, idle)
	exec(`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		SELECT ('00000000-0000-7000-8000-' || lpad((1000000 + n)::text, 12, '0'))::uuid,
		       ('00000000-0000-7000-8000-' || lpad((CASE WHEN n < $1 THEN 1 ELSE 2 + (n - $1) / $2 END)::text, 12, '0'))::uuid,
		       false, 'https://receiver-' || n || '.example/hooks', '{*}', now() - interval '1 year' + n * interval '1 second'
		FROM generate_series(0, $1::int + $2::int * ($3::int - 1) - 1) n`, bigEndpoints, smallEndpoints, tenants)
	exec(`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		SELECT ('00000000-0000-7000-8000-' || lpad((2000000 + n)::text, 12, '0'))::uuid, $2, false, 'https://silent.example/' || n, '{*}',
		       now() - n * interval '1 second'
		FROM generate_series(1, $1::int) n`, max(rows/100, 1), small)

	started := time.Now()
	var wait sync.WaitGroup
	work := make(chan int)
	for range 2 {
		wait.Go(func() {
			for from := range work {
				if err := loadChunk(t.Context(), pool, from, min(from+chunk, rows), rows); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for from := 0; from < rows; from += chunk {
		work <- from
	}
	close(work)
	wait.Wait()
	loadRest(t, exec, rows/10)
	for _, index := range indexes {
		exec(index)
	}
	exec(`VACUUM (ANALYZE)`)
	exec(`CHECKPOINT`)
	t.Logf("%d deliveries loaded in %s", rows, time.Since(started).Round(time.Second))
}

func super(t *testing.T, db *testdb.DB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.Super)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["session_replication_role"] = "replica"
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	config.ConnConfig.RuntimeParams["maintenance_work_mem"] = "512MB"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// dropIndexes drops what can be made later, and returns the statements that make it.
func dropIndexes(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	const query = `
		SELECT c.oid::regclass::text AS name, pg_get_indexdef(c.oid) AS definition
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = ANY ($1::regclass[]) AND NOT i.indisprimary AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid)`
	rows, err := pool.Query(t.Context(), query, []string{
		"apipay.webhook_events", "apipay.outbound_webhook_deliveries", "apipay.outbound_webhook_attempts", "apipay.outbox_events",
		"apipay.payment_intents", "apipay.payment_attempts", "apipay.audit_log",
	})
	require.NoError(t, err)
	type index struct{ Name, Definition string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[index])
	require.NoError(t, err)
	var definitions []string
	for _, i := range found {
		_, err := pool.Exec(t.Context(), "DROP INDEX "+i.Name)
		require.NoError(t, err)
		// The definition of a partitioned index says ONLY, as pg_dump wants it.
		definitions = append(definitions, strings.Replace(i.Definition, " ON ONLY ", " ON ", 1))
	}
	return definitions
}

// loadChunk inserts rows [from, to) of all: evenly over the weeks, tenants and endpoints by a hash, 3 % FAILED, 1 % RETRYING and 1 %
// PENDING, with one attempt, or six where it failed.
func loadChunk(ctx context.Context, pool *pgxpool.Pool, from, to, all int) error {
	const insert = `
		WITH n AS MATERIALIZED (
		    SELECT n, now() - ($3::bigint - n) * ($4::float8 / $3::bigint) * interval '1 second' AS at,
		           (hashint8(n) & 2147483647) % 1000 AS h, (hashint8(n * 7 + 1) & 2147483647) AS g, (hashint8(n * 13 + 2) & 2147483647) % 1000 AS s
		    FROM generate_series($1::bigint, $2::bigint - 1) n
		), k AS MATERIALIZED (
		    SELECT *, CASE WHEN h < 600 THEN 1 ELSE 2 + (h * 2 + g % 2 - 1200) % ($5::int - 1) END AS tenant,
		           apipay.uuid7_beside(apipay.uuid7_floor(at)) AS event_id
		    FROM n
		), d AS MATERIALIZED (
		    SELECT *, CASE WHEN tenant = 1 THEN g % $6::int ELSE $6::int + (tenant - 2) * $7::int + g % $7::int END AS endpoint FROM k
		), x AS MATERIALIZED (
		    SELECT n, at, event_id, ('00000000-0000-7000-8000-' || lpad(tenant::text, 12, '0'))::uuid AS tenant_id,
		           ('00000000-0000-7000-8000-' || lpad((1000000 + endpoint)::text, 12, '0'))::uuid AS endpoint_id,
		           apipay.uuid7_beside(event_id) AS id,
		           CASE WHEN endpoint = 1 THEN 'FAILED' WHEN endpoint = 0 OR tenant = 2 THEN 'DELIVERED' WHEN s < 30 THEN 'FAILED'
		                WHEN s < 40 AND tenant <> 1 THEN 'RETRYING' WHEN s >= 40 AND s < 50 THEN 'PENDING' ELSE 'DELIVERED' END AS status
		    FROM d
		), e AS (
		    INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset,
		        endpoints_matched, event_created_at, received_at)
		    SELECT event_id, tenant_id, false, 'payment_intent.succeeded', convert_to(repeat('x', 200), 'UTF8'), 'apipay.outbound-webhooks.v1',
		        n % 16, n / 16, 1, at, at FROM x
		), a AS (
		    INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger, outcome,
		        started_at, latency_ms, phases_ms, remote_ip, status_code, error_class, response_excerpt)
		    SELECT event_id, id, apipay.uuid7_beside(event_id), endpoint_id, tenant_id, false, number, 'scheduled',
		        CASE status WHEN 'DELIVERED' THEN 'succeeded' ELSE 'failed' END, at + number * interval '1 minute', 40 + n % 100,
		        '{"dns": 1, "connect": 9, "tls": 12, "wait": 20}', '203.0.113.7', CASE status WHEN 'DELIVERED' THEN 200 ELSE 500 END,
		        CASE status WHEN 'DELIVERED' THEN NULL ELSE 'status' END, 'ok'
		    FROM x CROSS JOIN LATERAL generate_series(1, CASE status WHEN 'FAILED' THEN 6 WHEN 'RETRYING' THEN 2 WHEN 'PENDING' THEN 0 ELSE 1 END) number
		)
		INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status, attempt_count, priority,
		    next_attempt_at, due_since, delivered_at, failed_at, failure_reason, created_at, updated_at)
		SELECT event_id, endpoint_id, id, tenant_id, false, 'payment_intent.succeeded', status,
		    CASE status WHEN 'FAILED' THEN 6 WHEN 'RETRYING' THEN 2 WHEN 'PENDING' THEN 0 ELSE 1 END, (status = 'RETRYING')::int,
		    CASE WHEN status IN ('PENDING', 'RETRYING') THEN now() + interval '1 day' END, at,
		    CASE status WHEN 'DELIVERED' THEN at END, CASE status WHEN 'FAILED' THEN at + interval '15 hours' END,
		    CASE status WHEN 'FAILED' THEN 'attempts_exhausted' END, at, at
		FROM x`
	_, err := pool.Exec(ctx, insert, from, to, all, (weeks*7-5)*24*3600, tenants, bigEndpoints, smallEndpoints)
	if err != nil {
		return fmt.Errorf("loading deliveries from %d: %w", from, err)
	}
	return nil
}

// loadRest fills what else is listed. Nothing of it is the idle tenant's.
func loadRest(t *testing.T, exec func(string, ...any), rows int) {
	t.Helper()
	const tenant = `('00000000-0000-7000-8000-' || lpad((CASE WHEN n % 10 < 6 THEN 1 ELSE 2 + n % 199 END)::text, 12, '0'))::uuid`
	const at = `now() - n * (75 * 86400.0 / $1::int) * interval '1 second'`
	exec(`INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, created_at, published_at, parked_at, parked_reason)
		SELECT apipay.uuid7_beside(apipay.uuid7_floor(`+at+`)), `+tenant+`, false, 'apipay.outbound-webhooks.v1', n % 64, 'payment_intent.succeeded',
		       convert_to(repeat('x', 200), 'UTF8'), `+at+`, CASE WHEN n % 50 > 1 THEN now() END, CASE WHEN n % 50 = 1 THEN `+at+` END,
		       CASE WHEN n % 50 = 1 THEN 'MESSAGE_TOO_LARGE' END
		FROM generate_series(1, $1::int) n`, rows)
	exec(`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, latest_attempt, merchant_reference,
		    created_at)
		SELECT apipay.uuid7_beside(apipay.uuid7_floor(`+at+`)), `+tenant+`, false, 1000, 'EUR', 'succeeded', 'pm_card_visa', gen_random_uuid(),
		       'order-' || n, `+at+`
		FROM generate_series(1, $1::int) n`, rows)
	exec(`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency, payment_method,
		    gateway, prior_status, prior_payment_method, lease_until, next_check_at, created_at, finished_at)
		SELECT latest_attempt, tenant_id, false, id, 'charge', 1, CASE WHEN u THEN 'unknown' ELSE 'succeeded' END, 1000, 'EUR', 'pm_card_visa', 'sandbox',
		       'requires_confirmation', 'pm_card_visa', created_at, CASE WHEN u THEN now() + interval '1 day' END, created_at, CASE WHEN NOT u THEN created_at END
		FROM (SELECT *, merchant_reference LIKE '%000' AS u FROM apipay.payment_intents) i`)
	exec(`INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target, request_id, ip, created_at)
		SELECT apipay.uuid7_beside(apipay.uuid7_floor(`+at+`)), `+tenant+`, false, 'actor ' || n % 100, 'support', 'webhook_delivery.retry',
		       'whd_' || n, 'req_' || n, '203.0.113.9', `+at+`
		FROM generate_series(1, $1::int) n`, rows)
	exec(`INSERT INTO apipay.quarantined_records (id, tenant_id, kafka_topic, kafka_partition, kafka_offset, value, reason, created_at)
		SELECT apipay.uuid7_beside(apipay.uuid7_floor(`+at+`)), CASE WHEN n % 10 > 0 THEN `+tenant+` END, 'apipay.outbound-webhooks.v1', 0, n,
		       '{}', 'not_json', `+at+`
		FROM generate_series(1, $1::int) n`, rows/10)
	exec(`INSERT INTO apipay.recoveries (id, tenant_id, filter, status, matched, queued, requested_by, created_at, finished_at)
		SELECT apipay.uuid7_beside(apipay.uuid7_floor(`+at+`)), `+tenant+`, '{"status": "FAILED"}', 'done', n, n, 'sam', `+at+`, now()
		FROM generate_series(1, $1::int) n`, rows/10)
	exec(`INSERT INTO apipay.webhook_endpoint_health (endpoint_id, hour, tenant_id, livemode, succeeded, failed, latency_buckets, failures)
		SELECT e.id, date_trunc('hour', now()) - n * interval '1 hour', e.tenant_id, false, 90 + n % 10, n % 7, '{1,2,30,40,20,4,3,2,1,0,0}',
		       jsonb_build_object('status', n % 7)
		FROM apipay.webhook_endpoints e CROSS JOIN generate_series(0, 24 * 31) n WHERE e.tenant_id = $1`, big)
}
