package dispatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
)

const (
	// claimPace lets asks gather under load: fewer and larger claims, for a few milliseconds of latency.
	claimPace    = 4 * time.Millisecond
	claimTimeout = 10 * time.Second
	// probeEvery is how often an endpoint behind its breaker gets one delivery.
	probeEvery = 30 * time.Second
)

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

// claimLoop claims while slots are free, and starts the sending of what it got.
func (d *Dispatcher) claimLoop(ctx, sendCtx context.Context) error {
	loop := d.health.Loop("claim", time.Minute)
	told := newTeller(d.log, "claim")
	for {
		loop.Tick()
		if d.client.Paused() != "" || d.recordFails.Load() {
			if !pause(ctx, 100*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		asks, wait := d.work.pick(d.clock())
		if len(asks) == 0 {
			timer := time.NewTimer(max(wait, time.Millisecond))
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-d.work.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		started := time.Now()
		err := d.claimAndSend(ctx, sendCtx, asks)
		if told.tell(ctx, err) {
			loop.Degraded(err.Error())
			if !pause(ctx, 250*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		loop.Degraded("")
		if rest := claimPace - time.Since(started); rest > 0 && !pause(ctx, rest) {
			return ctx.Err()
		}
	}
}

func (d *Dispatcher) claimAndSend(ctx, sendCtx context.Context, asks []*ask) error {
	started := time.Now()
	claimCtx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	list, verdicts, err := d.claim(claimCtx, asks)
	d.metrics.claimed(ctx, len(list), time.Since(started))
	now := d.clock()
	for _, a := range asks {
		v := verdicts[a.endpointID]
		if err != nil {
			v = verdict{busy: true}
		}
		d.work.settle(a, v, now)
	}
	if err != nil {
		return err
	}
	for _, c := range list {
		d.sending.Go(func() { d.send(sendCtx, c) })
	}
	return nil
}

// claim takes at most what the asks want, in one transaction. The lock per endpoint makes the cap exact: between the
// count of live leases, whose snapshot is taken after the lock, and the commit of new ones nobody else claims for it.
func (d *Dispatcher) claim(ctx context.Context, asks []*ask) ([]*claimed, map[uuid.UUID]verdict, error) {
	var list []*claimed
	var verdicts map[uuid.UUID]verdict
	err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		at := d.clock()
		list, verdicts = nil, make(map[uuid.UUID]verdict, len(asks))
		gates, err := lockGates(ctx, tx, asks)
		if err != nil {
			return err
		}
		for _, a := range asks {
			g, ok := gates[a.endpointID]
			verdicts[a.endpointID] = g.verdict(a, d.config.EndpointConcurrency, ok)
		}
		list, err = claimRows(ctx, tx, asks, verdicts, d.config.Lease)
		if err != nil {
			return err
		}
		var probes []uuid.UUID
		for _, c := range list {
			c.endpoint, c.claimedAt, c.at = gates[c.EndpointID], tx.Now, at
			v := verdicts[c.EndpointID]
			v.got++
			verdicts[c.EndpointID] = v
			if c.endpoint.Broken {
				probes = append(probes, c.EndpointID)
			}
		}
		return setProbes(ctx, tx, probes)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("claiming deliveries: %w", err)
	}
	return list, verdicts, nil
}

// gate is an endpoint as it is at the claim.
type gate struct {
	ID        uuid.UUID
	TenantID  uuid.UUID
	Livemode  bool
	URL       string
	Sendable  bool
	Broken    bool
	ProbeDue  bool
	Live      int
	SecretIDs []uuid.UUID
	Secrets   [][]byte
}

// verdict says how many an ask may have. A nil gate is an endpoint whose lock another dispatcher has.
func (g *gate) verdict(a *ask, endpointCap int, found bool) verdict {
	switch {
	case !found:
		return verdict{busy: true}
	case !g.Sendable, g.Broken && (!g.ProbeDue || g.Live > 0):
		return verdict{held: true}
	case g.Broken:
		return verdict{room: 1}
	}
	return verdict{room: max(0, min(a.want, endpointCap-g.Live))}
}

// planSettings keep the plans of the hot statements what they were written for, over partitions of any age: index scans
// driven by the rows asked for. Fresh partitions have no statistics, and a plan made then would stay.
const planSettings = `
	SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

const lockEndpoints = `
	SELECT k.id FROM unnest($1::uuid[], $2::bigint[]) AS k (id, key) WHERE pg_try_advisory_xact_lock(k.key)`

// A statement after the lock, for a snapshot after the lock. Live leases are counted but for those whose POST is over.
// Counters of before the last enabling say nothing, so neither does their breaker.
const readGates = `
	SELECT e.id, e.tenant_id, e.livemode, e.url,
	       e.status = 'enabled' AND e.deleted_at IS NULL AS sendable,
	       s.breaker_opened_at IS NOT NULL AND s.counted_from = e.enabled_at AS broken,
	       coalesce(s.next_probe_at <= now(), false) AS probe_due,
	       (SELECT count(*) FROM apipay.outbound_webhook_deliveries d
	        WHERE d.endpoint_id = e.id AND d.lease_until > now() AND NOT (d.lease_token = ANY ($2)))::integer AS live,
	       ARRAY(SELECT w.id FROM apipay.webhook_endpoint_secrets w
	             WHERE w.endpoint_id = e.id AND (w.expires_at IS NULL OR w.expires_at > now())
	             ORDER BY w.expires_at IS NOT NULL, w.created_at DESC, w.id) AS secret_ids,
	       ARRAY(SELECT w.ciphertext FROM apipay.webhook_endpoint_secrets w
	             WHERE w.endpoint_id = e.id AND (w.expires_at IS NULL OR w.expires_at > now())
	             ORDER BY w.expires_at IS NOT NULL, w.created_at DESC, w.id) AS secrets
	FROM unnest($1::uuid[]) AS a (id)
	JOIN apipay.webhook_endpoints e ON e.id = a.id
	LEFT JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = e.id`

// lockGates answers the endpoints whose lock was free. Both statements go in one round trip; a gate of an endpoint that
// is locked elsewhere is thrown away.
func lockGates(ctx context.Context, tx postgres.Tx, asks []*ask) (map[uuid.UUID]*gate, error) {
	ids, keys, ended := make([]uuid.UUID, len(asks)), make([]int64, len(asks)), []uuid.UUID{}
	for i, a := range asks {
		ids[i], keys[i] = a.endpointID, lockKey(a.endpointID)
		ended = append(ended, a.ended...)
	}
	batch := &pgx.Batch{}
	batch.Queue(planSettings)
	batch.Queue(lockEndpoints, ids, keys)
	batch.Queue(readGates, ids, ended)
	results := tx.SendBatch(ctx, batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("setting the planner: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("locking endpoints: %w", err)
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("locking endpoints: %w", err)
	}
	if rows, err = results.Query(); err != nil {
		return nil, fmt.Errorf("reading endpoints: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[gate])
	if err != nil {
		return nil, fmt.Errorf("reading endpoints: %w", err)
	}
	gates := make(map[uuid.UUID]*gate, len(list))
	for _, g := range list {
		if slices.Contains(locked, g.ID) {
			gates[g.ID] = g
		}
	}
	return gates, results.Close()
}

// lockKey is the random half of the id.
func lockKey(endpointID uuid.UUID) int64 {
	return int64(binary.BigEndian.Uint64(endpointID[8:])) //nolint:gosec // any 64 bits will do
}

// The inner query is one walk of outbound_webhook_deliveries_due per endpoint, merged over the partitions. SKIP LOCKED
// passes by rows that somebody is changing: a manual retry, the sweep of a disabled endpoint.
const claimQuery = `
	WITH picked AS MATERIALIZED (
	    SELECT r.event_id, r.endpoint_id
	    FROM unnest($1::uuid[], $2::smallint[], $3::integer[]) AS a (endpoint_id, priority, room)
	    CROSS JOIN LATERAL (
	        SELECT d.event_id, d.endpoint_id
	        FROM apipay.outbound_webhook_deliveries d
	        WHERE d.status IN ('PENDING', 'RETRYING') AND d.lease_until IS NULL
	          AND d.priority = a.priority AND d.endpoint_id = a.endpoint_id AND d.next_attempt_at <= now()
	        ORDER BY d.next_attempt_at
	        LIMIT a.room
	        FOR UPDATE SKIP LOCKED
	    ) r
	)
	UPDATE apipay.outbound_webhook_deliveries d
	SET lease_token = gen_random_uuid(), lease_until = now() + $4::interval, updated_at = now()
	FROM picked p
	JOIN apipay.webhook_events w ON w.event_id = p.event_id
	WHERE d.event_id = p.event_id AND d.endpoint_id = p.endpoint_id
	RETURNING d.event_id, d.endpoint_id, d.id, d.tenant_id, d.livemode, d.event_type, d.trigger, d.priority::integer AS priority,
	    d.attempt_count + 1 AS number, d.delivered_at IS NOT NULL AS was_received, d.lease_token, w.body, w.traceparent,
	    d.next_attempt_at AS due_at`

func claimRows(ctx context.Context, tx postgres.Tx, asks []*ask, verdicts map[uuid.UUID]verdict, lease time.Duration) ([]*claimed, error) {
	var ids []uuid.UUID
	var priorities []int16
	var rooms []int32
	for _, a := range asks {
		if room := verdicts[a.endpointID].room; room > 0 {
			ids = append(ids, a.endpointID)
			priorities = append(priorities, int16(a.priority)) //nolint:gosec // 0 or 1
			rooms = append(rooms, int32(room))                 //nolint:gosec // at most the cap
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, claimQuery, ids, priorities, rooms, lease)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[claimed])
}

const setProbesQuery = `
	UPDATE apipay.webhook_endpoint_states SET next_probe_at = now() + $2::interval WHERE endpoint_id = ANY ($1)`

func setProbes(ctx context.Context, tx postgres.Tx, endpointIDs []uuid.UUID) error {
	if len(endpointIDs) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, setProbesQuery, endpointIDs, probeEvery); err != nil {
		return fmt.Errorf("setting the next probe: %w", err)
	}
	return nil
}
