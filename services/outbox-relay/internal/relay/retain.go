package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	retainInterval = time.Hour
	// A lock that does not come within 200 ms is given up by the functions, so that they never queue in
	// front of traffic; they are called again a little later.
	lockNotAvailable = "55P03"
	retainTries      = 50
	retainDelay      = 500 * time.Millisecond
	retainTimeout    = time.Minute
)

// retain makes the weeks ahead and drops those past retention, at start and every hour.
func (r *Relay) retain(ctx context.Context) error {
	loop := r.health.Loop("retention", 2*retainInterval)
	for {
		loop.Tick()
		wait := retainInterval
		if err := r.turnWeeks(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "outbox.retention", "error", err.Error())
			wait = time.Minute
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (r *Relay) turnWeeks(ctx context.Context) error {
	made, err := r.partitions(ctx, `SELECT apipay.ensure_partitions()`)
	if err != nil {
		return fmt.Errorf("making partitions: %w", err)
	}
	dropped, err := r.partitions(ctx, `SELECT apipay.drop_partitions('outbox_events', now() - make_interval(secs => $1))`, r.retention.Seconds())
	if err != nil {
		return fmt.Errorf("dropping partitions: %w", err)
	}
	if len(made)+len(dropped) > 0 {
		r.log.InfoContext(ctx, "outbox.partitions", "made", made, "dropped", dropped)
	}
	return nil
}

// partitions calls a function that answers the names of partitions, again and again while a lock stands in
// its way.
func (r *Relay) partitions(ctx context.Context, query string, args ...any) (names []string, err error) {
	for try := 1; ; try++ {
		names, err = r.partitionsOnce(ctx, query, args...)
		var pgErr *pgconn.PgError
		if err == nil || !errors.As(err, &pgErr) || pgErr.Code != lockNotAvailable || try == retainTries {
			return names, err
		}
		if !sleep(ctx, retainDelay) {
			return nil, ctx.Err()
		}
	}
}

func (r *Relay) partitionsOnce(ctx context.Context, query string, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, retainTimeout)
	defer cancel()
	rows, err := r.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
