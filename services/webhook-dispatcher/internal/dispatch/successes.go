package dispatch

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Successes of endpoints that are well change nothing of these, so one statement records them: deliveries, guarded by their
// tokens; attempts, and as superseded those whose lease was lost; the roll-ups; every ten seconds the time of the last success.
// Those of other endpoints, which may close a breaker or call off what was told, it leaves alone. It waits for nobody but
// those who add to the same roll-ups, in the same order.
const recordSuccesses = `
	WITH well AS MATERIALIZED (
	    SELECT s.endpoint_id, coalesce(s.last_success_at < now() - interval '10 seconds', true) AS stale
	    FROM unnest($1::uuid[]) AS b (id)
	    JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = b.id
	    JOIN apipay.webhook_endpoints e ON e.id = b.id
	    WHERE s.failing_since IS NULL AND s.consecutive_unreachable = 0 AND s.breaker_opened_at IS NULL AND s.warnings_told = 0
	      AND s.counted_from = e.enabled_at
	), r AS MATERIALIZED (
	    SELECT u.*
	    FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::uuid[], $8::boolean[], $9::integer[], $10::text[],
	                $11::timestamptz[], $12::integer[], $13::jsonb[], $14::text[], $15::integer[], $16::text[], $17::smallint[])
	        AS u (event_id, endpoint_id, lease_token, delivery_id, id, tenant_id, livemode, number, trigger,
	              started_at, latency_ms, phases_ms, remote_ip, status_code, response_excerpt, bucket)
	    WHERE (u.endpoint_id IN (SELECT w.endpoint_id FROM well w)) IS TRUE
	), done AS (
	    UPDATE apipay.outbound_webhook_deliveries d
	    SET status = 'DELIVERED', attempt_count = r.number, priority = 1, trigger = 'scheduled', next_attempt_at = NULL,
	        lease_token = NULL, lease_until = NULL, lost_leases = 0, delivered_at = coalesce(d.delivered_at, now()),
	        failed_at = NULL, failure_reason = NULL, updated_at = now()
	    FROM r
	    WHERE d.event_id = r.event_id AND d.endpoint_id = r.endpoint_id AND d.lease_token = r.lease_token
	    RETURNING r.id
	), written AS (
	    INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger,
	        outcome, started_at, latency_ms, phases_ms, remote_ip, status_code, response_excerpt)
	    SELECT r.event_id, r.delivery_id, r.id, r.endpoint_id, r.tenant_id, r.livemode, r.number, r.trigger,
	        CASE WHEN r.id IN (SELECT o.id FROM done o) THEN 'succeeded' ELSE 'superseded' END,
	        r.started_at, r.latency_ms, r.phases_ms, r.remote_ip, r.status_code, r.response_excerpt
	    FROM r
	    ON CONFLICT (event_id, delivery_id, id) DO NOTHING
	    RETURNING id, outcome
	), counted AS MATERIALIZED (
	    SELECT r.endpoint_id, r.tenant_id, r.livemode, count(*) AS n, ARRAY[
	        count(*) FILTER (WHERE r.bucket = 0), count(*) FILTER (WHERE r.bucket = 1), count(*) FILTER (WHERE r.bucket = 2),
	        count(*) FILTER (WHERE r.bucket = 3), count(*) FILTER (WHERE r.bucket = 4), count(*) FILTER (WHERE r.bucket = 5),
	        count(*) FILTER (WHERE r.bucket = 6), count(*) FILTER (WHERE r.bucket = 7), count(*) FILTER (WHERE r.bucket = 8),
	        count(*) FILTER (WHERE r.bucket = 9), count(*) FILTER (WHERE r.bucket = 10)] AS buckets
	    FROM r
	    WHERE (r.id IN (SELECT x.id FROM written x WHERE x.outcome = 'succeeded')) IS TRUE
	    GROUP BY r.endpoint_id, r.tenant_id, r.livemode
	    ORDER BY r.endpoint_id
	), added AS (
	    INSERT INTO apipay.webhook_endpoint_health AS h (endpoint_id, hour, tenant_id, livemode, succeeded, latency_buckets)
	    SELECT c.endpoint_id, date_trunc('hour', now()), c.tenant_id, c.livemode, c.n, c.buckets FROM counted c
	    ON CONFLICT (endpoint_id, hour) DO UPDATE
	    SET succeeded = h.succeeded + EXCLUDED.succeeded,
	        latency_buckets = ARRAY(SELECT o + n FROM unnest(h.latency_buckets, EXCLUDED.latency_buckets) WITH ORDINALITY AS b (o, n, i) ORDER BY i)
	), refreshed AS (
	    UPDATE apipay.webhook_endpoint_states s SET last_success_at = now()
	    WHERE s.endpoint_id IN (
	        SELECT x.endpoint_id FROM apipay.webhook_endpoint_states x
	        WHERE x.endpoint_id IN (SELECT w.endpoint_id FROM well w WHERE w.stale)
	        FOR UPDATE SKIP LOCKED)
	)
	SELECT r.id FROM r`

func queueSuccesses(batch *pgx.Batch, list []attempt) {
	n := len(list)
	var endpoints []uuid.UUID
	seen := make(map[uuid.UUID]bool, n)
	eventIDs, endpointIDs, tokens := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	deliveryIDs, ids, tenantIDs := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	livemodes, numbers, triggers := make([]bool, n), make([]int32, n), make([]string, n)
	startedAts, latencies, phases := make([]time.Time, n), make([]int32, n), make([]string, n)
	remoteIPs, statusCodes, excerpts, buckets := make([]*string, n), make([]int32, n), make([]*string, n), make([]int16, n)
	for i, a := range list {
		if !seen[a.EndpointID] {
			seen[a.EndpointID] = true
			endpoints = append(endpoints, a.EndpointID)
		}
		eventIDs[i], endpointIDs[i], tokens[i] = a.EventID, a.EndpointID, a.LeaseToken
		deliveryIDs[i], ids[i], tenantIDs[i] = a.ID, a.id, a.TenantID
		livemodes[i], numbers[i], triggers[i] = a.Livemode, int32(a.Number), a.Trigger //nolint:gosec // small
		startedAts[i], phases[i] = a.startedAt, phasesJSON(a.result.Phases)
		latencies[i] = int32(a.result.Phases.Total.Milliseconds()) //nolint:gosec // below the timeout
		remoteIPs[i], excerpts[i] = optional(a.result.RemoteIP), optional(a.result.Excerpt)
		statusCodes[i], buckets[i] = int32(a.result.StatusCode), int16(bucketOf(a.result.Phases.Total)) //nolint:gosec // small
	}
	batch.Queue(recordSuccesses, endpoints, eventIDs, endpointIDs, tokens, deliveryIDs, ids, tenantIDs, livemodes, numbers, triggers,
		startedAts, latencies, phases, remoteIPs, statusCodes, excerpts, buckets)
}

// readSuccesses answers those that were left alone.
func readSuccesses(results pgx.BatchResults, list []attempt) (left []attempt, err error) {
	rows, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("recording successes: %w", err)
	}
	recorded := make(map[uuid.UUID]bool, len(list))
	var attemptID uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&attemptID}, func() error {
		recorded[attemptID] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("recording successes: %w", err)
	}
	for _, a := range list {
		if !recorded[a.id] {
			left = append(left, a)
		}
	}
	return left, nil
}
