// Package retention lets audit entries go when they are old enough.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/ops"
)

const (
	interval = time.Hour
	// tick keeps liveness apart from how seldom there is work.
	tick         = 10 * time.Second
	retryAfter   = time.Minute
	batchRows    = 1000
	batchTimeout = 10 * time.Second
)

// AuditLog deletes entries that are older than Keep, a batch at a time; any number of replicas may do so at once.
type AuditLog struct {
	Pool   *pgxpool.Pool
	Keep   time.Duration
	Logger *slog.Logger
	Loop   *ops.Loop
}

// Run works hourly until ctx ends.
func (l *AuditLog) Run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	next := time.Now()
	for {
		l.Loop.Tick()
		if !time.Now().Before(next) {
			next = time.Now().Add(interval)
			if err := l.expire(ctx); err != nil && ctx.Err() == nil {
				l.Logger.WarnContext(ctx, "audit_log.expiring", "error", err.Error())
				l.Loop.Degraded("old audit entries cannot be deleted")
				next = time.Now().Add(retryAfter)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// expire deletes until nothing is old.
func (l *AuditLog) expire(ctx context.Context) error {
	for total := int64(0); ; {
		gone, err := l.expireBatch(ctx)
		if err != nil {
			return err
		}
		l.Loop.Tick()
		l.Loop.Degraded("")
		if total += gone; gone < batchRows {
			if total > 0 {
				l.Logger.InfoContext(ctx, "audit_log.expired", "entries", total)
			}
			return nil
		}
	}
}

func (l *AuditLog) expireBatch(ctx context.Context) (gone int64, err error) {
	const query = `SELECT apipay.expire_audit_log(make_interval(secs => $1), $2)`
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if err := l.Pool.QueryRow(ctx, query, l.Keep.Seconds(), batchRows).Scan(&gone); err != nil {
		return 0, fmt.Errorf("deleting old audit entries: %w", err)
	}
	return gone, nil
}
