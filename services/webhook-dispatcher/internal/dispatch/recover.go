package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
)

const (
	recoverInterval = time.Second
	recoverBatch    = 2000
)

// SKIP LOCKED: dispatchers work through different recoveries side by side.
const lockRecovery = `
	SELECT id, livemode, filter, matched, cancel_requested_at IS NOT NULL AS canceled,
	       coalesce(cursor_event, '00000000-0000-0000-0000-000000000000') AS cursor_event,
	       coalesce(cursor_endpoint, '00000000-0000-0000-0000-000000000000') AS cursor_endpoint
	FROM apipay.recoveries
	WHERE finished_at IS NULL
	ORDER BY created_at
	LIMIT 1
	FOR UPDATE SKIP LOCKED`

type recovery struct {
	ID             uuid.UUID
	Livemode       *bool
	Filter         []byte
	Matched        *int64
	Canceled       bool
	CursorEvent    uuid.UUID
	CursorEndpoint uuid.UUID
}

const advanceRecovery = `
	UPDATE apipay.recoveries
	SET status = $2, matched = $3, queued = queued + $4, cursor_event = $5, cursor_endpoint = $6,
	    finished_at = CASE WHEN $2 IN ('done', 'canceled') THEN now() END
	WHERE id = $1`

// recover works through the recoveries that were asked for, a batch per transaction: what it queued and how far it came
// are committed together, so it may be killed and resumed anywhere. Each delivery is queued once; how fast an endpoint
// then gets them is the cap's business, and first attempts go before.
func (d *Dispatcher) recover(ctx context.Context) (time.Duration, error) {
	var list []queuedDelivery
	var found bool
	err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		list, found = nil, false
		rows, err := tx.Query(ctx, lockRecovery)
		if err != nil {
			return fmt.Errorf("locking a recovery: %w", err)
		}
		r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[recovery])
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("locking a recovery: %w", err)
		}
		found = true
		list, err = d.advance(ctx, tx, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	now := d.clock()
	for _, q := range list {
		d.work.add(q.EndpointID, q.TenantID, retries, now)
	}
	if found {
		return time.Millisecond, nil
	}
	return 0, nil
}

type queuedDelivery struct {
	EventID    uuid.UUID
	EndpointID uuid.UUID
	TenantID   uuid.UUID
}

func (d *Dispatcher) advance(ctx context.Context, tx postgres.Tx, r recovery) ([]queuedDelivery, error) {
	filter, err := webhook.ParseRecoveryFilter(r.Filter)
	status := "running"
	switch {
	case err != nil:
		// Never taken for a wider one.
		d.log.ErrorContext(ctx, "recovery.refused", "recovery", id.Format(id.Recovery, r.ID), "error", err.Error())
		status = "canceled"
	case r.Canceled:
		status = "canceled"
	}
	var list []queuedDelivery
	if status == "running" {
		if r.Matched == nil {
			if r.Matched, err = countMatches(ctx, tx, filter, r.Livemode); err != nil {
				return nil, err
			}
		}
		if list, err = queueMatches(ctx, tx, filter, r); err != nil {
			return nil, err
		}
		if len(list) < recoverBatch {
			status = "done"
		}
		for _, q := range list {
			if string(q.EventID[:])+string(q.EndpointID[:]) > string(r.CursorEvent[:])+string(r.CursorEndpoint[:]) {
				r.CursorEvent, r.CursorEndpoint = q.EventID, q.EndpointID
			}
		}
	}
	if _, err := tx.Exec(ctx, advanceRecovery, r.ID, status, r.Matched, len(list), r.CursorEvent, r.CursorEndpoint); err != nil {
		return nil, fmt.Errorf("advancing a recovery: %w", err)
	}
	if status != "running" {
		d.log.InfoContext(ctx, "recovery.finished", "recovery", id.Format(id.Recovery, r.ID), "status", status)
	}
	return list, nil
}

const countMatchesQuery = `
	SELECT count(*) FROM apipay.outbound_webhook_deliveries d JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id WHERE `

func countMatches(ctx context.Context, tx postgres.Tx, filter webhook.RecoveryFilter, livemode *bool) (*int64, error) {
	condition, args, err := filter.Where(livemode, nil)
	if err != nil {
		return nil, err
	}
	var n int64
	if err := tx.QueryRow(ctx, countMatchesQuery+condition, args...).Scan(&n); err != nil {
		return nil, fmt.Errorf("counting a recovery: %w", err)
	}
	return &n, nil
}

// The filter's condition stands in the middle.
const (
	queueMatchesHead = `
	WITH picked AS MATERIALIZED (
	    SELECT d.event_id, d.endpoint_id
	    FROM apipay.outbound_webhook_deliveries d
	    JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id
	    WHERE (d.event_id, d.endpoint_id) > ($1, $2) AND `
	queueMatchesTail = `
	    ORDER BY d.event_id, d.endpoint_id
	    LIMIT $4
	    FOR UPDATE OF d
	)
	UPDATE apipay.outbound_webhook_deliveries d
	SET status = 'PENDING', priority = 1, trigger = 'recovery', next_attempt_at = now(), due_since = now(),
	    failed_at = NULL, failure_reason = NULL, recovery_id = $3, updated_at = now()
	FROM picked p
	WHERE d.event_id = p.event_id AND d.endpoint_id = p.endpoint_id
	RETURNING d.event_id, d.endpoint_id, d.tenant_id`
)

func queueMatches(ctx context.Context, tx postgres.Tx, filter webhook.RecoveryFilter, r recovery) ([]queuedDelivery, error) {
	condition, args, err := filter.Where(r.Livemode, []any{r.CursorEvent, r.CursorEndpoint, r.ID, recoverBatch})
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, queueMatchesHead+condition+queueMatchesTail, args...)
	if err != nil {
		return nil, fmt.Errorf("queuing a recovery: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[queuedDelivery])
	if err != nil {
		return nil, fmt.Errorf("queuing a recovery: %w", err)
	}
	return list, nil
}
