package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/webhook-dispatcher/internal/post"
)

const (
	recordBatch   = 500
	recordLinger  = 2 * time.Millisecond
	recordBackoff = 100 * time.Millisecond
)

// record writes back what a turn does not, many in one transaction, until the channel is closed: failures, what is given back,
// and what changes the state of an endpoint. A result stays in hand, and its slot taken, until it is written: while nothing can
// be, nothing more is sent. It gives up when ctx ends.
func (d *Dispatcher) record(ctx context.Context) {
	loop := d.health.Loop("record", time.Minute)
	told := newTeller(d.log, "record")
	idle := time.NewTicker(5 * time.Second)
	defer idle.Stop()
	for {
		var batch []attempt
		select {
		case <-idle.C:
			loop.Tick()
			continue
		case a, ok := <-d.others:
			if !ok {
				return
			}
			batch = d.collect(a)
		}
		backoff := recordBackoff
		for {
			loop.Tick()
			err := d.recordAll(ctx, batch)
			failed := told.tell(ctx, err)
			d.recordFails.Store(failed)
			if !failed {
				loop.Degraded("")
				break
			}
			loop.Degraded(err.Error())
			if !pause(ctx, backoff) {
				break
			}
			backoff = min(2*backoff, maxBackoff)
		}
		for _, a := range batch {
			d.work.release(a.claimed)
		}
	}
}

func (d *Dispatcher) collect(first attempt) []attempt {
	batch := []attempt{first}
	timer := time.NewTimer(recordLinger)
	defer timer.Stop()
	for len(batch) < recordBatch {
		select {
		case a, ok := <-d.others:
			if !ok {
				return batch
			}
			batch = append(batch, a)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// recordAll records a batch; where the database refuses one of it, the halves, down to that one, which then goes without
// what the receiver sent.
func (d *Dispatcher) recordAll(ctx context.Context, batch []attempt) error {
	err := recordError(d.recordOnce(ctx, batch))
	if !errors.Is(err, errRecord) {
		return err
	}
	if len(batch) > 1 {
		half := len(batch) / 2
		return errors.Join(d.recordAll(ctx, batch[:half]), d.recordAll(ctx, batch[half:]))
	}
	a := batch[0]
	d.log.ErrorContext(ctx, "delivery.recording", "error", err.Error())
	a.result = post.Result{Class: a.result.Class, StatusCode: a.result.StatusCode, Ours: a.result.Ours}
	return d.recordOnce(ctx, []attempt{a})
}

// recordOnce writes one batch in one transaction: the deliveries, guarded by their tokens; the attempts; what follows for
// the endpoints; the roll-ups.
func (d *Dispatcher) recordOnce(ctx context.Context, batch []attempt) error {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	started := time.Now()
	var counted, back []attempt
	for _, a := range batch {
		if a.result.Ours {
			back = append(back, a)
		} else {
			counted = append(counted, a)
		}
	}
	following := make([]next, len(counted))
	for i, a := range counted {
		following[i] = next{status: "DELIVERED"}
		if !a.result.Succeeded() {
			following[i] = afterFailure(d.config.RetrySchedule, a.Number, a.result.RetryAfter, a.WasReceived)
		}
	}
	var stated []uuid.UUID
	err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		if _, err := tx.Exec(ctx, planSettings); err != nil {
			return fmt.Errorf("setting the planner: %w", err)
		}
		if err := giveBack(ctx, tx, back); err != nil {
			return err
		}
		if len(counted) == 0 {
			return nil
		}
		written, err := writeAttempts(ctx, tx, counted, following)
		if err != nil {
			return err
		}
		tallies := tallyUp(counted, written)
		if stated, err = d.account(ctx, tx, tallies); err != nil {
			return err
		}
		return addHealth(ctx, tx, tallies)
	})
	if err != nil {
		return fmt.Errorf("recording attempts: %w", err)
	}
	for _, endpointID := range stated {
		d.stated.Store(endpointID, struct{}{})
	}
	now := d.clock()
	for i, f := range following {
		if f.wait != nil {
			d.work.add(counted[i].EndpointID, counted[i].TenantID, retries, now.Add(*f.wait))
		}
	}
	for _, a := range back {
		d.work.add(a.EndpointID, a.TenantID, a.Priority, now.Add(hold))
	}
	d.metrics.recorded(ctx, time.Since(started))
	return nil
}

// The guard is the token: 0 rows say that the lease was lost, and the attempt is kept as superseded. Attempts that are
// there already are those of a commit whose answer was lost. Times are the database's, never earlier than the answer.
const writeAttemptsQuery = `
	WITH r AS MATERIALIZED (
	    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::boolean[], $8::integer[],
	                         $9::text[], $10::text[], $11::timestamptz[], $12::integer[], $13::jsonb[], $14::text[], $15::integer[],
	                         $16::text[], $17::text[], $18::text[], $19::bigint[], $20::text[])
	        AS r (event_id, endpoint_id, lease_token, delivery_id, id, tenant_id, livemode, number,
	              trigger, outcome, started_at, latency_ms, phases_ms, remote_ip, status_code,
	              error_class, response_excerpt, next_status, wait_ms, failure_reason)
	), done AS (
	    UPDATE apipay.outbound_webhook_deliveries d
	    SET status = r.next_status, attempt_count = r.number, priority = 1, trigger = 'scheduled',
	        next_attempt_at = now() + r.wait_ms * interval '1 millisecond',
	        lease_token = NULL, lease_until = NULL, lost_leases = 0,
	        delivered_at = CASE WHEN r.outcome = 'succeeded' THEN coalesce(d.delivered_at, now()) ELSE d.delivered_at END,
	        failed_at = CASE WHEN r.next_status = 'FAILED' THEN now() END,
	        failure_reason = r.failure_reason, updated_at = now()
	    FROM r
	    WHERE d.event_id = r.event_id AND d.endpoint_id = r.endpoint_id AND d.lease_token = r.lease_token
	    RETURNING r.id
	)
	INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger,
	    outcome, started_at, latency_ms, phases_ms, remote_ip, status_code, error_class, response_excerpt)
	SELECT r.event_id, r.delivery_id, r.id, r.endpoint_id, r.tenant_id, r.livemode, r.number, r.trigger,
	    CASE WHEN r.id IN (SELECT o.id FROM done o) THEN r.outcome ELSE 'superseded' END,
	    r.started_at, r.latency_ms, r.phases_ms, r.remote_ip, r.status_code, r.error_class, r.response_excerpt
	FROM r
	ON CONFLICT (event_id, delivery_id, id) DO NOTHING
	RETURNING id, outcome = 'superseded' AS superseded`

// writeAttempts answers which attempts were written now, and counted.
func writeAttempts(ctx context.Context, tx postgres.Tx, list []attempt, following []next) (map[uuid.UUID]bool, error) {
	n := len(list)
	eventIDs, endpointIDs, tokens := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	deliveryIDs, ids, tenantIDs := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	livemodes, numbers, triggers, outcomes := make([]bool, n), make([]int32, n), make([]string, n), make([]string, n)
	startedAts, latencies, phases := make([]time.Time, n), make([]*int32, n), make([]string, n)
	remoteIPs, statusCodes, classes, excerpts := make([]*string, n), make([]*int32, n), make([]*string, n), make([]*string, n)
	statuses, waits, reasons := make([]string, n), make([]*int64, n), make([]*string, n)
	for i, a := range list {
		eventIDs[i], endpointIDs[i], tokens[i] = a.EventID, a.EndpointID, a.LeaseToken
		deliveryIDs[i], ids[i], tenantIDs[i] = a.ID, a.id, a.TenantID
		livemodes[i], numbers[i], triggers[i] = a.Livemode, int32(a.Number), a.Trigger //nolint:gosec // small
		outcomes[i] = "failed"
		startedAts[i], phases[i] = a.startedAt, "{}"
		switch {
		case a.lost:
			outcomes[i] = "lost"
		case a.result.Succeeded():
			outcomes[i] = "succeeded"
		}
		if !a.lost {
			ms := int32(a.result.Phases.Total.Milliseconds()) //nolint:gosec // below the timeout
			latencies[i], phases[i] = &ms, phasesJSON(a.result.Phases)
		}
		remoteIPs[i], classes[i], excerpts[i] = optional(a.result.RemoteIP), optional(string(a.result.Class)), optional(a.result.Excerpt)
		if code := int32(a.result.StatusCode); code != 0 { //nolint:gosec // three digits
			statusCodes[i] = &code
		}
		f := following[i]
		statuses[i], reasons[i] = f.status, f.reason
		if f.wait != nil {
			// Rounded up: never earlier.
			ms := f.wait.Milliseconds() + 1
			waits[i] = &ms
		}
	}
	rows, err := tx.Query(ctx, writeAttemptsQuery, eventIDs, endpointIDs, tokens, deliveryIDs, ids, tenantIDs, livemodes, numbers,
		triggers, outcomes, startedAts, latencies, phases, remoteIPs, statusCodes, classes, excerpts, statuses, waits, reasons)
	if err != nil {
		return nil, err
	}
	written := make(map[uuid.UUID]bool, n)
	var attemptID uuid.UUID
	var superseded bool
	_, err = pgx.ForEachRow(rows, []any{&attemptID, &superseded}, func() error {
		written[attemptID] = !superseded
		return nil
	})
	return written, err
}

// Without a count: the receiver was not asked, or nobody knows what it would have answered.
const giveBackQuery = `
	UPDATE apipay.outbound_webhook_deliveries d
	SET lease_token = NULL, lease_until = NULL, updated_at = now()
	FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS r (event_id, endpoint_id, lease_token)
	WHERE d.event_id = r.event_id AND d.endpoint_id = r.endpoint_id AND d.lease_token = r.lease_token`

func giveBack(ctx context.Context, tx postgres.Tx, list []attempt) error {
	if len(list) == 0 {
		return nil
	}
	var eventIDs, endpointIDs, tokens []uuid.UUID
	for _, a := range list {
		eventIDs, endpointIDs, tokens = append(eventIDs, a.EventID), append(endpointIDs, a.EndpointID), append(tokens, a.LeaseToken)
	}
	if _, err := tx.Exec(ctx, giveBackQuery, eventIDs, endpointIDs, tokens); err != nil {
		return fmt.Errorf("giving deliveries back: %w", err)
	}
	return nil
}

func phasesJSON(p post.Phases) string {
	return fmt.Sprintf(`{"dns":%d,"connect":%d,"tls":%d,"first_byte":%d,"total":%d}`, p.DNS.Milliseconds(),
		p.Connect.Milliseconds(), p.TLS.Milliseconds(), p.FirstByte.Milliseconds(), p.Total.Milliseconds())
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
