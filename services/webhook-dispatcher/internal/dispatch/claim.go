package dispatch

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// probeEvery is how often an endpoint behind its breaker gets one delivery.
const probeEvery = 30 * time.Second

// claimed is a delivery that is ours until its lease ends.
type claimed struct {
	EventID     uuid.UUID
	EndpointID  uuid.UUID
	ID          uuid.UUID
	TenantID    uuid.UUID
	Livemode    bool
	EventType   string
	Trigger     string
	Priority    int
	Number      int
	WasReceived bool
	LeaseToken  uuid.UUID
	Body        []byte
	Traceparent *string
	DueAt       time.Time

	endpoint *gate
	// claimedAt is the database's time and at the process's, of nearly the same moment.
	claimedAt time.Time
	at        time.Time
}

// timeFor is the database's time, which signatures and attempts carry.
func (d *Dispatcher) timeFor(c *claimed) time.Time { return c.claimedAt.Add(d.clock().Sub(c.at)) }

// gate is an endpoint as it is at the claim.
type gate struct {
	ID        uuid.UUID
	TenantID  uuid.UUID
	Livemode  bool
	URL       string
	SecretIDs []uuid.UUID
	Secrets   [][]byte
}

// A claim is two statements in one round trip and one implicit transaction, which a client's pipeline up to one Sync is. The
// locks come first, for a snapshot after them: the lock per endpoint makes the cap exact, since between the count of live
// leases and the commit of new ones nobody else claims for it. What it could lock it leaves in a setting, for the statements
// that follow. Nothing after it waits for anybody: whoever holds a lock that it would need is passed by.
const lockEndpoints = planSettings + `,
	       set_config('apipay.locked_endpoints', coalesce((
	           SELECT array_agg(k.id)::text FROM unnest($1::uuid[], $2::bigint[]) AS k (id, key) WHERE pg_try_advisory_xact_lock(k.key)), '{}'), true)`

// planSettings keep the plans of the hot statements what they were written for, over partitions of any age: index scans
// driven by the rows asked for. Fresh partitions have no statistics, and a plan made then would stay. A process that stands
// still in the midst of a transaction loses it, and its locks with it.
const planSettings = `
	SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
	       set_config('idle_in_transaction_session_timeout', '5s', true)`

// Each endpoint's room comes from the count of live leases. A breaker of before the last enabling says nothing. The row of an
// endpoint that is to be probed is locked, so that its probe is one. The walk of the due rows is one of
// outbound_webhook_deliveries_due per endpoint, merged over the partitions, and ends after the room; SKIP LOCKED passes by
// rows that somebody is changing: a manual retry, the sweep of a disabled endpoint. Endpoints and deliveries come in one
// answer, in rows of their own, so that nothing is joined for it.
const claimQuery = `
	WITH gates AS MATERIALIZED (
	    SELECT e.id, e.tenant_id, e.livemode, e.url, a.priority, a.want,
	           e.status = 'enabled' AND e.deleted_at IS NULL AS sendable,
	           s.breaker_opened_at IS NOT NULL AND s.counted_from = e.enabled_at AS broken,
	           coalesce(s.next_probe_at, now()) AS next_probe_at,
	           (SELECT count(*) FROM apipay.outbound_webhook_deliveries d
	            WHERE d.endpoint_id = e.id AND d.lease_until > now())::integer AS live
	    FROM unnest($1::uuid[], $2::smallint[], $3::integer[]) AS a (id, priority, want)
	    JOIN apipay.webhook_endpoints e ON e.id = a.id
	    LEFT JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = e.id
	    WHERE (a.id IN (SELECT unnest(current_setting('apipay.locked_endpoints')::uuid[]))) IS TRUE
	), probes AS MATERIALIZED (
	    SELECT s.endpoint_id
	    FROM gates g
	    JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = g.id
	    WHERE g.sendable AND g.broken AND g.next_probe_at <= now() AND g.live = 0
	    FOR UPDATE OF s SKIP LOCKED
	), rooms AS MATERIALIZED (
	    SELECT g.*, CASE WHEN NOT g.sendable THEN 0
	                     WHEN g.broken THEN CASE WHEN g.id IN (SELECT p.endpoint_id FROM probes p) THEN 1 ELSE 0 END
	                     ELSE greatest(0, least(g.want, $4::integer - g.live)) END AS room
	    FROM gates g
	), picked AS MATERIALIZED (
	    SELECT r.event_id, r.endpoint_id, a.broken
	    FROM rooms a
	    CROSS JOIN LATERAL (
	        SELECT d.event_id, d.endpoint_id
	        FROM apipay.outbound_webhook_deliveries d
	        WHERE d.status IN ('PENDING', 'RETRYING') AND d.lease_until IS NULL
	          AND d.priority = a.priority AND d.endpoint_id = a.id AND d.next_attempt_at <= now()
	        ORDER BY d.next_attempt_at
	        LIMIT a.room
	        FOR UPDATE SKIP LOCKED
	    ) r
	    WHERE a.room > 0
	), probed AS (
	    UPDATE apipay.webhook_endpoint_states s SET next_probe_at = now() + $6::interval
	    WHERE s.endpoint_id IN (SELECT p.endpoint_id FROM picked p WHERE p.broken)
	), taken AS (
	    UPDATE apipay.outbound_webhook_deliveries d
	    SET lease_token = gen_random_uuid(), lease_until = now() + $5::interval, updated_at = now()
	    FROM picked p
	    JOIN apipay.webhook_events w ON w.event_id = p.event_id
	    WHERE d.event_id = p.event_id AND d.endpoint_id = p.endpoint_id
	    RETURNING d.event_id, d.endpoint_id, d.id, d.tenant_id, d.livemode, d.event_type, d.trigger, d.priority::integer AS priority,
	        d.attempt_count + 1 AS number, d.delivered_at IS NOT NULL AS was_received, d.lease_token, w.body, w.traceparent,
	        d.next_attempt_at AS due_at
	)
	SELECT r.id AS endpoint_id, r.tenant_id, r.livemode, now() AS now, r.url, r.room,
	       CASE WHEN NOT r.sendable THEN $7::bigint
	            WHEN r.broken AND r.room = 0 THEN greatest($7::bigint, (extract(epoch FROM r.next_probe_at - now()) * 1000)::bigint)
	            ELSE 0 END AS held_ms,
	       ARRAY(SELECT w.id FROM apipay.webhook_endpoint_secrets w
	             WHERE w.endpoint_id = r.id AND (w.expires_at IS NULL OR w.expires_at > now())
	             ORDER BY w.expires_at IS NOT NULL, w.created_at DESC, w.id) AS secret_ids,
	       ARRAY(SELECT w.ciphertext FROM apipay.webhook_endpoint_secrets w
	             WHERE w.endpoint_id = r.id AND (w.expires_at IS NULL OR w.expires_at > now())
	             ORDER BY w.expires_at IS NOT NULL, w.created_at DESC, w.id) AS secrets,
	       NULL::uuid AS event_id, NULL::uuid AS id, NULL::text AS event_type, NULL::text AS trigger, NULL::integer AS priority,
	       NULL::integer AS number, NULL::boolean AS was_received, NULL::uuid AS lease_token, NULL::bytea AS body,
	       NULL::text AS traceparent, NULL::timestamptz AS due_at
	FROM rooms r
	UNION ALL
	SELECT t.endpoint_id, t.tenant_id, t.livemode, now(), NULL, NULL, NULL, NULL, NULL,
	       t.event_id, t.id, t.event_type, t.trigger, t.priority, t.number, t.was_received, t.lease_token, t.body, t.traceparent, t.due_at
	FROM taken t`

// claimRow is an endpoint, or a delivery, which has an EventID.
type claimRow struct {
	EndpointID  uuid.UUID
	TenantID    uuid.UUID
	Livemode    bool
	Now         time.Time
	URL         *string
	Room        *int
	HeldMs      *int64
	SecretIDs   []uuid.UUID
	Secrets     [][]byte
	EventID     *uuid.UUID
	ID          *uuid.UUID
	EventType   *string
	Trigger     *string
	Priority    *int
	Number      *int
	WasReceived *bool
	LeaseToken  *uuid.UUID
	Body        []byte
	Traceparent *string
	DueAt       *time.Time
}

// queueLocks and queueClaim put the two statements of a claim into a batch, for what may come between them.
func queueLocks(batch *pgx.Batch, asks []*ask) {
	ids, keys := make([]uuid.UUID, len(asks)), make([]int64, len(asks))
	for i, a := range asks {
		ids[i], keys[i] = a.endpointID, lockKey(a.endpointID)
	}
	batch.Queue(lockEndpoints, ids, keys)
}

func (d *Dispatcher) queueClaim(batch *pgx.Batch, asks []*ask) {
	ids, priorities, wants := make([]uuid.UUID, len(asks)), make([]int16, len(asks)), make([]int32, len(asks))
	for i, a := range asks {
		ids[i], priorities[i], wants[i] = a.endpointID, int16(a.priority), int32(a.want) //nolint:gosec // 0 or 1; at most the cap
	}
	batch.Queue(claimQuery, ids, priorities, wants, d.config.EndpointConcurrency, d.config.Lease, probeEvery, hold.Milliseconds())
}

// readClaim answers what was claimed, and what is to be known about each ask. at is the process's time before the claim. An
// ask without a row is one of an endpoint whose lock another dispatcher has.
func readClaim(results pgx.BatchResults, asks []*ask, at time.Time) ([]*claimed, map[uuid.UUID]verdict, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, nil, fmt.Errorf("claiming deliveries: %w", err)
	}
	answer, err := pgx.CollectRows(rows, pgx.RowToStructByName[claimRow])
	if err != nil {
		return nil, nil, fmt.Errorf("claiming deliveries: %w", err)
	}
	verdicts := make(map[uuid.UUID]verdict, len(asks))
	for _, a := range asks {
		verdicts[a.endpointID] = verdict{busy: true}
	}
	gates := make(map[uuid.UUID]*gate, len(asks))
	var list []*claimed
	for _, r := range answer {
		if r.EventID == nil {
			held := min(time.Duration(*r.HeldMs)*time.Millisecond, longestHold)
			gates[r.EndpointID] = &gate{ID: r.EndpointID, TenantID: r.TenantID, Livemode: r.Livemode, URL: *r.URL, SecretIDs: r.SecretIDs, Secrets: r.Secrets}
			verdicts[r.EndpointID] = verdict{room: *r.Room, held: held}
			continue
		}
		list = append(list, &claimed{
			EventID: *r.EventID, EndpointID: r.EndpointID, ID: *r.ID, TenantID: r.TenantID, Livemode: r.Livemode, EventType: *r.EventType,
			Trigger: *r.Trigger, Priority: *r.Priority, Number: *r.Number, WasReceived: *r.WasReceived, LeaseToken: *r.LeaseToken,
			Body: r.Body, Traceparent: r.Traceparent, DueAt: *r.DueAt, claimedAt: r.Now, at: at,
		})
	}
	for _, c := range list {
		c.endpoint = gates[c.EndpointID]
		v := verdicts[c.EndpointID]
		v.got++
		verdicts[c.EndpointID] = v
	}
	return list, verdicts, nil
}

// lockKey is the random half of the id.
func lockKey(endpointID uuid.UUID) int64 {
	return int64(binary.BigEndian.Uint64(endpointID[8:])) //nolint:gosec // any 64 bits will do
}
