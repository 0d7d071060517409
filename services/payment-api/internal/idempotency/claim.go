package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"apipay.io/hub/pkg/postgres"
)

// Progress is what a claim already knows about the work.
type Progress struct {
	PaymentIntentID uuid.UUID
	RefundID        uuid.UUID
	AttemptID       uuid.UUID
}

// QueueClaim adds the insert of a record to the batch: held by owner for the lease, at the point given. The caller
// reads its result with [ReadClaim], before any other result of the batch.
func QueueClaim(batch *pgx.Batch, r Request, point Point, p Progress, owner uuid.UUID, lease, ttl time.Duration) {
	const query = `
		INSERT INTO apipay.idempotency_keys (tenant_id, livemode, key, fingerprint, method, path, first_request_id,
			recovery_point, payment_intent_id, refund_id, attempt_id, owner, locked_until, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now() + $13, now() + $14)
		ON CONFLICT (tenant_id, livemode, key) DO NOTHING`
	batch.Queue(query, r.Scope.TenantID, r.Scope.Livemode, r.Key, r.Fingerprint[:], r.Method, r.Path, r.RequestID,
		string(point), optional(p.PaymentIntentID), optional(p.RefundID), optional(p.AttemptID), owner, lease, ttl)
}

// QueueFinished adds the insert of a record that is born with its answer: for work that needs one transaction.
func QueueFinished(batch *pgx.Batch, r Request, p Progress, response Response, ttl time.Duration) {
	const query = `
		INSERT INTO apipay.idempotency_keys (tenant_id, livemode, key, fingerprint, method, path, first_request_id,
			recovery_point, payment_intent_id, response_status, response_headers, response_body, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 'finished', $8, $9, $10, $11, now() + $12)
		ON CONFLICT (tenant_id, livemode, key) DO NOTHING`
	batch.Queue(query, r.Scope.TenantID, r.Scope.Livemode, r.Key, r.Fingerprint[:], r.Method, r.Path, r.RequestID,
		optional(p.PaymentIntentID), response.Status, response.Header, response.Body, ttl)
}

// ReadClaim reads the result of [QueueClaim] or [QueueFinished]. It fails with [ErrExists].
func ReadClaim(results pgx.BatchResults) error {
	tag, err := results.Exec()
	if err != nil {
		return fmt.Errorf("claiming the idempotency key: %w", err)
	}
	return taken(tag)
}

func taken(tag pgconn.CommandTag) error {
	if tag.RowsAffected() == 0 {
		return ErrExists
	}
	return nil
}

const selectRecord = `
	SELECT key, fingerprint, method, path, first_request_id, recovery_point, payment_intent_id, refund_id, attempt_id,
	       owner, locked_until, response_status, response_headers, response_body, expires_at
	FROM apipay.idempotency_keys WHERE tenant_id = $1 AND livemode = $2 AND key = $3`

// Read is the record of a key without a lock, so that a replay never waits. A record whose life is over is removed,
// unless its outcome is still open. found is false if there is none (any more): the key is free.
func Read(ctx context.Context, tx postgres.Tx, scope postgres.Scope, key string) (r Record, found bool, err error) {
	r, found, err = collect(tx.Query(ctx, selectRecord, scope.TenantID, scope.Livemode, key))
	if err != nil || !found || r.ExpiresAt.After(tx.Now) {
		return r, found, err
	}
	removed, err := RemoveExpired(ctx, tx, scope, key)
	return r, !removed, err
}

// Lock is the record of a key, locked. It comes before the locks of the intent, the refund and the attempt.
func Lock(ctx context.Context, tx postgres.Tx, scope postgres.Scope, key string) (r Record, found bool, err error) {
	return collect(tx.Query(ctx, selectRecord+" FOR UPDATE", scope.TenantID, scope.Livemode, key))
}

// QueueLock adds the query of [Lock] to a batch; [ReadLock] reads its result.
func QueueLock(batch *pgx.Batch, scope postgres.Scope, key string) {
	batch.Queue(selectRecord+" FOR UPDATE", scope.TenantID, scope.Livemode, key)
}

// ReadLock reads the result of [QueueLock].
func ReadLock(results pgx.BatchResults) (r Record, found bool, err error) {
	return collect(results.Query())
}

func collect(rows pgx.Rows, err error) (Record, bool, error) {
	if err != nil {
		return Record{}, false, fmt.Errorf("reading the idempotency key: %w", err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Record])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Record{}, false, nil
	case err != nil:
		return Record{}, false, fmt.Errorf("reading the idempotency key: %w", err)
	}
	return r, true, nil
}

func optional(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
