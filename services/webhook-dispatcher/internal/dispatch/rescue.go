package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
)

const (
	rescueInterval = time.Second
	rescueBatch    = 500
	// lostInARow is how many leases in a row may end without a result before that counts as an attempt: a delivery that
	// kills its dispatcher must come to an end too.
	lostInARow = 3
)

const findLost = `
	SELECT EXISTS (SELECT FROM apipay.outbound_webhook_deliveries WHERE lease_until IS NOT NULL AND lease_until < now())`

const lockLost = `
	SELECT event_id, endpoint_id, id, tenant_id, livemode, event_type, trigger, priority::integer AS priority,
	       attempt_count + 1 AS number, delivered_at IS NOT NULL AS was_received, lease_token, lease_until, lost_leases
	FROM apipay.outbound_webhook_deliveries
	WHERE lease_until IS NOT NULL AND lease_until < now()
	LIMIT $1
	FOR UPDATE SKIP LOCKED`

// The number is not counted: it is sent again under the same one.
const freeLost = `
	UPDATE apipay.outbound_webhook_deliveries d
	SET lease_token = NULL, lease_until = NULL, lost_leases = d.lost_leases + 1, updated_at = now()
	FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS r (event_id, endpoint_id, lease_token)
	WHERE d.event_id = r.event_id AND d.endpoint_id = r.endpoint_id AND d.lease_token = r.lease_token`

type lostLease struct {
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
	LeaseUntil  time.Time
	LostLeases  int
}

// rescue frees deliveries whose dispatcher died or stood still.
func (d *Dispatcher) rescue(ctx context.Context) (time.Duration, error) {
	rows, done, err := d.planned(ctx, findLost)
	if err != nil {
		return 0, fmt.Errorf("looking for lost leases: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if closeErr := done(); err == nil {
		err = closeErr
	}
	if err != nil || !found {
		return 0, err
	}
	var list []lostLease
	err = postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		if _, err := tx.Exec(ctx, planSettings); err != nil {
			return fmt.Errorf("setting the planner: %w", err)
		}
		rows, err := tx.Query(ctx, lockLost, rescueBatch)
		if err != nil {
			return err
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByName[lostLease]); err != nil {
			return err
		}
		return d.free(ctx, tx, list)
	})
	if err != nil {
		return 0, fmt.Errorf("rescuing lost leases: %w", err)
	}
	for _, l := range list {
		d.work.add(l.EndpointID, l.TenantID, l.Priority, d.clock())
	}
	if len(list) > 0 {
		d.metrics.lost(ctx, len(list))
		d.log.WarnContext(ctx, "leases.lost", "count", len(list))
	}
	if len(list) == rescueBatch {
		return time.Millisecond, nil
	}
	return 0, nil
}

func (d *Dispatcher) free(ctx context.Context, tx postgres.Tx, list []lostLease) error {
	var eventIDs, endpointIDs, tokens []uuid.UUID
	var counted []attempt
	var following []next
	for _, l := range list {
		if l.LostLeases+1 < lostInARow {
			eventIDs, endpointIDs, tokens = append(eventIDs, l.EventID), append(endpointIDs, l.EndpointID), append(tokens, l.LeaseToken)
			continue
		}
		counted = append(counted, attempt{
			claimed: &claimed{EventID: l.EventID, EndpointID: l.EndpointID, ID: l.ID, TenantID: l.TenantID, Livemode: l.Livemode,
				Trigger: l.Trigger, Number: l.Number, LeaseToken: l.LeaseToken},
			id: beside(l.EventID), startedAt: l.LeaseUntil.Add(-d.config.Lease), lost: true,
		})
		following = append(following, afterFailure(d.config.RetrySchedule, l.Number, 0, l.WasReceived))
	}
	if len(eventIDs) > 0 {
		if _, err := tx.Exec(ctx, freeLost, eventIDs, endpointIDs, tokens); err != nil {
			return err
		}
	}
	if len(counted) == 0 {
		return nil
	}
	_, err := writeAttempts(ctx, tx, counted, following)
	return err
}
