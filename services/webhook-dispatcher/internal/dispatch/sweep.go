package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"apipay.io/hub/pkg/postgres"
)

const (
	sweepInterval = 250 * time.Millisecond
	sweepBatch    = 1000
	// expiryEvery is how often an endpoint's overdue rows are walked; longer ones are walked less often.
	expiryEvery       = 5 * time.Second
	retentionInterval = time.Hour
)

// ailments are endpoints whose waiting rows the discovery found in need of an end.
type ailments struct {
	mu   sync.Mutex
	list map[uuid.UUID]ailment
	// rested holds when an endpoint's overdue rows may be walked again.
	rested map[uuid.UUID]time.Time
}

// ailment: ended is an endpoint that is disabled or deleted; else rows of it have waited long.
type ailment struct{ ended bool }

func (a *ailments) put(endpointID uuid.UUID, found ailment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !found.ended && a.rested[endpointID].After(time.Now()) {
		return
	}
	if a.list == nil {
		a.list, a.rested = map[uuid.UUID]ailment{}, map[uuid.UUID]time.Time{}
	}
	a.list[endpointID] = found
}

func (a *ailments) take() map[uuid.UUID]ailment {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	if len(list) > 0 {
		a.list = map[uuid.UUID]ailment{}
	}
	return list
}

func (a *ailments) rest(endpointID uuid.UUID, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for known, until := range a.rested {
		if until.Before(now) {
			delete(a.rested, known)
		}
	}
	a.rested[endpointID] = now.Add(d)
}

// A forced resend falls back to what it was. The endpoint is read in the same statement, so that one which was switched on
// again keeps its rows. SKIP LOCKED leaves alone what somebody is changing.
const failWaiting = `
	UPDATE apipay.outbound_webhook_deliveries d
	SET status = CASE WHEN d.delivered_at IS NULL THEN 'FAILED' ELSE 'DELIVERED' END,
	    failed_at = CASE WHEN d.delivered_at IS NULL THEN now() END,
	    failure_reason = CASE WHEN d.delivered_at IS NULL THEN p.reason END,
	    next_attempt_at = NULL, updated_at = now()
	FROM (
	    SELECT x.event_id, x.endpoint_id,
	           CASE WHEN e.deleted_at IS NOT NULL THEN 'endpoint_deleted' WHEN e.status = 'disabled' THEN 'endpoint_disabled' ELSE 'expired' END AS reason
	    FROM apipay.outbound_webhook_deliveries x
	    JOIN apipay.webhook_endpoints e ON e.id = x.endpoint_id
	    WHERE x.status IN ('PENDING', 'RETRYING') AND x.lease_until IS NULL AND x.endpoint_id = $1 AND x.priority = $2
	      AND (e.deleted_at IS NOT NULL OR e.status = 'disabled' OR x.due_since < now() - interval '7 days')
	    ORDER BY x.next_attempt_at
	    LIMIT $3
	    FOR UPDATE OF x SKIP LOCKED
	) p
	WHERE d.event_id = p.event_id AND d.endpoint_id = p.endpoint_id`

// sweep ends what will not be sent: rows of endpoints that were disabled or deleted, and rows that have waited for seven
// days, a thousand at a time.
func (d *Dispatcher) sweep(ctx context.Context) (time.Duration, error) {
	for endpointID, found := range d.ailing.take() {
		started := time.Now()
		for _, priority := range []int{firstAttempts, retries} {
			if err := d.failAll(ctx, endpointID, priority); err != nil {
				d.ailing.put(endpointID, found)
				return 0, err
			}
		}
		if !found.ended {
			// At most a fiftieth of the time goes into walking what is not to be ended yet.
			d.ailing.rest(endpointID, max(expiryEvery, 50*time.Since(started)))
		}
	}
	return 0, nil
}

func (d *Dispatcher) failAll(ctx context.Context, endpointID uuid.UUID, priority int) error {
	for {
		var n int64
		err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
			if _, err := tx.Exec(ctx, planSettings); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, failWaiting, endpointID, priority, sweepBatch)
			n = tag.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("failing deliveries that wait: %w", err)
		}
		if n > 0 {
			d.log.InfoContext(ctx, "deliveries.ended", "count", n)
		}
		if n < sweepBatch {
			return nil
		}
	}
}

// In this order, since each waits for the one before.
var retained = []string{"outbound_webhook_attempts", "outbound_webhook_deliveries", "webhook_events"}

const dropPartitions = `SELECT apipay.drop_partitions($1, now() - $2::interval)`

const deleteOldHealth = `DELETE FROM apipay.webhook_endpoint_health WHERE hour < now() - $1::interval`

// dropOld drops weeks that are past retention. The function counts, under its lock, that nothing in them is due.
func (d *Dispatcher) dropOld(ctx context.Context) (time.Duration, error) {
	for _, table := range retained {
		_, err := d.pool.Exec(ctx, dropPartitions, table, d.config.Retention)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "55P03" {
			// Somebody is using it right now.
			return time.Minute, nil
		}
		if err != nil {
			return 0, fmt.Errorf("dropping old weeks: %w", err)
		}
	}
	if _, err := d.pool.Exec(ctx, deleteExpiredSecrets, expiredSecretsKept); err != nil {
		return 0, fmt.Errorf("deleting expired secrets: %w", err)
	}
	if _, err := d.pool.Exec(ctx, deleteOldHealth, d.config.Retention); err != nil {
		return 0, fmt.Errorf("deleting old roll-ups: %w", err)
	}
	return 0, nil
}
