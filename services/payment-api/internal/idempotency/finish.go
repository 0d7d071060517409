package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/postgres"
)

// QueueFinish adds the update that stores the answer. The record's life starts anew: an outcome that came late can
// be read as long as any other.
func QueueFinish(batch *pgx.Batch, scope postgres.Scope, key string, response Response, ttl time.Duration) {
	const query = `
		UPDATE apipay.idempotency_keys
		SET recovery_point = 'finished', owner = NULL, locked_until = NULL,
		    response_status = $4, response_headers = $5, response_body = $6, expires_at = now() + $7
		WHERE tenant_id = $1 AND livemode = $2 AND key = $3`
	batch.Queue(query, scope.TenantID, scope.Livemode, key, response.Status, response.Header, response.Body, ttl)
}

// QueueYield adds the update that ends the lease and leaves the key at the point given: the next request with it, or
// the reconciler, goes on from there.
func QueueYield(batch *pgx.Batch, scope postgres.Scope, key string, point Point) {
	const query = `
		UPDATE apipay.idempotency_keys SET recovery_point = $4, owner = NULL, locked_until = NULL
		WHERE tenant_id = $1 AND livemode = $2 AND key = $3`
	batch.Queue(query, scope.TenantID, scope.Livemode, key, string(point))
}

// QueueRetake adds the update by which owner takes a key at point Created into a new attempt. The record must be
// locked and checked.
func QueueRetake(batch *pgx.Batch, scope postgres.Scope, key string, attemptID, owner uuid.UUID, lease time.Duration) {
	const query = `
		UPDATE apipay.idempotency_keys
		SET recovery_point = 'attempted', attempt_id = $4, owner = $5, locked_until = now() + $6
		WHERE tenant_id = $1 AND livemode = $2 AND key = $3`
	batch.Queue(query, scope.TenantID, scope.Livemode, key, attemptID, owner, lease)
}

// QueueRelease adds the delete that frees the key: nothing has happened under it.
func QueueRelease(batch *pgx.Batch, scope postgres.Scope, key string) {
	const query = `DELETE FROM apipay.idempotency_keys WHERE tenant_id = $1 AND livemode = $2 AND key = $3`
	batch.Queue(query, scope.TenantID, scope.Livemode, key)
}

// RemoveExpired removes a record whose life is over, unless somebody works on it or its outcome is open. It judges
// again under the row's lock, so that it never takes away what a late retry has just renewed.
func RemoveExpired(ctx context.Context, tx postgres.Tx, scope postgres.Scope, key string) (removed bool, err error) {
	const query = `
		DELETE FROM apipay.idempotency_keys k
		WHERE k.tenant_id = $1 AND k.livemode = $2 AND k.key = $3
		  AND k.expires_at <= now() AND (k.locked_until IS NULL OR k.locked_until <= now())
		  AND NOT EXISTS (
		      SELECT FROM apipay.payment_attempts a
		      WHERE a.tenant_id = k.tenant_id AND a.livemode = k.livemode AND a.idempotency_key = k.key
		        AND a.status IN ('started', 'unknown'))`
	tag, err := tx.Exec(ctx, query, scope.TenantID, scope.Livemode, key)
	if err != nil {
		return false, fmt.Errorf("removing an expired idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Expired lists keys whose life is over, over all tenants; each is then removed in its own tenant's transaction.
func Expired(ctx context.Context, pool *pgxpool.Pool, limit int) ([]Ref, error) {
	rows, err := pool.Query(ctx, `SELECT tenant_id, livemode, key FROM apipay.expired_idempotency_keys($1)`, limit)
	if err != nil {
		return nil, fmt.Errorf("listing expired idempotency keys: %w", err)
	}
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref Ref, err error) {
		err = row.Scan(&ref.Scope.TenantID, &ref.Scope.Livemode, &ref.Key)
		return ref, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing expired idempotency keys: %w", err)
	}
	return refs, nil
}

// Ref names a record.
type Ref struct {
	Scope postgres.Scope
	Key   string
}
