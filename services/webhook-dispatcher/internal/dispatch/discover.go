package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	discoverInterval = 250 * time.Millisecond
	discoverPage     = 500
	// overdue is from when on waiting rows are looked at for having waited too long.
	overdue = time.Hour
)

// One walk over the index of what is due: from endpoint to endpoint, looking at the earliest row of each. Its cost is that
// of the endpoints with waiting rows, however many rows wait, and however many were delivered.
const discoverQuery = `
	WITH RECURSIVE walk AS (
	    (SELECT d.priority, d.endpoint_id, d.tenant_id, d.next_attempt_at
	     FROM apipay.outbound_webhook_deliveries d
	     WHERE d.status IN ('PENDING', 'RETRYING') AND d.lease_until IS NULL AND (d.priority, d.endpoint_id) > ($1::smallint, $2::uuid)
	     ORDER BY d.priority, d.endpoint_id, d.next_attempt_at
	     LIMIT 1)
	    UNION ALL
	    SELECT n.priority, n.endpoint_id, n.tenant_id, n.next_attempt_at
	    FROM walk w
	    CROSS JOIN LATERAL (
	        SELECT d.priority, d.endpoint_id, d.tenant_id, d.next_attempt_at
	        FROM apipay.outbound_webhook_deliveries d
	        WHERE d.status IN ('PENDING', 'RETRYING') AND d.lease_until IS NULL AND (d.priority, d.endpoint_id) > (w.priority, w.endpoint_id)
	        ORDER BY d.priority, d.endpoint_id, d.next_attempt_at
	        LIMIT 1
	    ) n
	)
	SELECT w.priority::integer AS priority, w.endpoint_id, w.tenant_id,
	       (extract(epoch FROM w.next_attempt_at - now()) * 1000)::bigint AS wait_ms,
	       e.status = 'disabled' AS disabled, e.deleted_at IS NOT NULL AS deleted
	FROM (SELECT * FROM walk LIMIT $3) w
	JOIN apipay.webhook_endpoints e ON e.id = w.endpoint_id`

type discovered struct {
	Priority   int
	EndpointID uuid.UUID
	TenantID   uuid.UUID
	WaitMs     int64
	Disabled   bool
	Deleted    bool
}

// cursor is where the walk goes on.
type cursor struct {
	priority   int
	endpointID uuid.UUID
}

// discover finds work that this process was not told of: what other dispatchers materialized, retries by hand, recoveries,
// what a killed process left. It goes on, page after page, and begins again at the end.
func (d *Dispatcher) discover(ctx context.Context) (time.Duration, error) {
	rows, done, err := d.planned(ctx, discoverQuery, d.walk.priority, d.walk.endpointID, discoverPage)
	if err != nil {
		return 0, fmt.Errorf("discovering work: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[discovered])
	if closeErr := done(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, fmt.Errorf("discovering work: %w", err)
	}
	now := d.clock()
	for _, f := range list {
		wait := time.Duration(f.WaitMs) * time.Millisecond
		switch {
		case f.Deleted, f.Disabled:
			d.ailing.put(f.EndpointID, ailment{ended: true})
			continue
		case wait < -overdue:
			d.ailing.put(f.EndpointID, ailment{})
		}
		d.metrics.overdue(wait)
		d.work.add(f.EndpointID, f.TenantID, f.Priority, now.Add(max(0, wait)))
	}
	if len(list) == discoverPage {
		// The order within the page is the walk's; the join keeps it, but nothing promises so.
		for _, f := range list {
			if f.Priority > d.walk.priority || f.Priority == d.walk.priority && isAfter(f.EndpointID, d.walk.endpointID) {
				d.walk = cursor{f.Priority, f.EndpointID}
			}
		}
		return discoverInterval / 10, nil
	}
	d.walk = cursor{}
	d.metrics.walked()
	return 0, nil
}

func isAfter(a, b uuid.UUID) bool { return string(a[:]) > string(b[:]) }

// planned runs one statement under planSettings, both in one round trip and one implicit transaction. The rows must be
// read before done is called.
func (d *Dispatcher) planned(ctx context.Context, query string, args ...any) (pgx.Rows, func() error, error) {
	batch := &pgx.Batch{}
	batch.Queue(planSettings)
	batch.Queue(query, args...)
	results := d.pool.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // the first error is the one to tell
		return nil, nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // as above
		return nil, nil, err
	}
	return rows, results.Close, nil
}
