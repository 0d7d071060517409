package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Scope is the tenant and mode that a transaction is confined to by row level security.
type Scope struct {
	TenantID uuid.UUID
	Livemode bool
}

// Tx is a transaction with the database's own time of its start. Events, leases and due times use Now and
// never the process's clock.
type Tx struct {
	pgx.Tx
	// Now is the database's now(): the start of this transaction.
	Now time.Time
}

// ErrCommitUnknown says that COMMIT was sent and its answer lost: the transaction may or may not have
// happened. Read back before you answer.
var ErrCommitUnknown = errors.New("the outcome of the commit is unknown")

const (
	maxTries        = 5
	rollbackTimeout = 5 * time.Second
)

// InTenant runs fn in a transaction of the role apipay_app that sees one tenant and mode. It is retried, a
// few times, when Postgres asks for that (serialization failure, deadlock), so fn must have no effect
// outside the transaction. It fails with what fn returned, or with [ErrCommitUnknown].
func InTenant(ctx context.Context, pool *pgxpool.Pool, scope Scope, fn func(tx Tx) error) error {
	return retry(ctx, func() error {
		return inTx(ctx, pool, func(raw pgx.Tx) (time.Time, error) {
			var now time.Time
			var tenant, mode, idle string
			err := raw.QueryRow(ctx, scopeTenant+limitIdle, scope.TenantID.String(), strconv.FormatBool(scope.Livemode)).
				Scan(&tenant, &mode, &now, &idle)
			return now, err
		}, fn)
	})
}

const scopeTenant = `SELECT set_config('app.tenant_id', $1, true), set_config('app.livemode', $2, true), now()`

// limitIdle lets the database end a transaction whose process stands still in its midst, so that it does not keep its locks
// from those who go on. Nothing of ours waits for anything but the database inside a transaction.
const limitIdle = `, set_config('idle_in_transaction_session_timeout', '5s', true)`

// ReadInTenant sends a batch that only reads, scoped as by [InTenant], in one round trip: what a client pipelines up to one
// Sync is one transaction, the settings of which end with it, behind a pooler in transaction mode, too. read reads the results
// in the order of the batch; it may be called more than once.
func ReadInTenant(ctx context.Context, pool *pgxpool.Pool, scope Scope, batch *pgx.Batch, read func(pgx.BatchResults) error) error {
	return retry(ctx, func() error {
		scoped := &pgx.Batch{}
		scoped.Queue(scopeTenant, scope.TenantID.String(), strconv.FormatBool(scope.Livemode))
		for _, q := range batch.QueuedQueries {
			scoped.Queue(q.SQL, q.Arguments...)
		}
		results := pool.SendBatch(ctx, scoped)
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return fmt.Errorf("scoping the transaction: %w", redact(err))
		}
		if err := read(results); err != nil {
			_ = results.Close() // the connection is released either way
			return err
		}
		return results.Close()
	})
}

// AllTenants is the scope of staff who are not confined to some tenants.
const AllTenants = "*"

// InSupport runs fn in a transaction of the role apipay_admin that sees the tenants of the staff token:
// [AllTenants] or a comma-separated list of UUIDs. Retries and errors as [InTenant].
func InSupport(ctx context.Context, pool *pgxpool.Pool, adminScope string, fn func(tx Tx) error) error {
	const query = `SELECT set_config('app.admin_scope', $1, true), now()`
	return retry(ctx, func() error {
		return inTx(ctx, pool, func(raw pgx.Tx) (time.Time, error) {
			var now time.Time
			var set string
			err := raw.QueryRow(ctx, query, adminScope).Scan(&set, &now)
			return now, err
		}, fn)
	})
}

// InWorker runs fn in a transaction of the role apipay_worker, which sees every tenant. Retries and errors
// as [InTenant].
func InWorker(ctx context.Context, pool *pgxpool.Pool, fn func(tx Tx) error) error {
	return retry(ctx, func() error {
		return inTx(ctx, pool, func(raw pgx.Tx) (time.Time, error) {
			var now time.Time
			err := raw.QueryRow(ctx, `SELECT now()`).Scan(&now)
			return now, err
		}, fn)
	})
}

func inTx(ctx context.Context, pool *pgxpool.Pool, setUp func(pgx.Tx) (time.Time, error), fn func(Tx) error) (err error) {
	raw, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", redact(err))
	}
	done := false
	defer func() {
		if done {
			return
		}
		// The caller's context may be over already; the connection must come back clean all the same.
		rollbackCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = raw.Rollback(rollbackCtx) // a connection that cannot roll back is closed by the pool
	}()
	now, err := setUp(raw)
	if err != nil {
		return fmt.Errorf("scoping the transaction: %w", err)
	}
	if err := fn(Tx{Tx: raw, Now: now}); err != nil {
		return err
	}
	// Once COMMIT is sent its answer is worth waiting for: a caller that hangs up must not turn it into an
	// unknown outcome.
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	done = true
	if err := raw.Commit(commitCtx); err != nil {
		return commitError(err)
	}
	return nil
}

// commitError tells a commit that surely failed from one whose answer was lost.
func commitError(err error) error {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("committing: %w", err)
	}
	var pgErr *pgconn.PgError
	// Class 57 (operator intervention) can end the session before or after the commit took effect.
	if errors.As(err, &pgErr) && pgErr.Code[:2] != "57" {
		return fmt.Errorf("committing: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

func retry(ctx context.Context, once func() error) error {
	for try := 1; ; try++ {
		err := once()
		if err == nil || !isRetryable(err) || try == maxTries {
			return err
		}
		// Full jitter keeps those who collided from colliding again.
		delay := time.Duration(rand.Int64N(int64(10*time.Millisecond) << try)) //nolint:gosec // not a secret
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

func isRetryable(err error) bool {
	if errors.Is(err, ErrCommitUnknown) {
		return false
	}
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// IsUnavailable says whether err means that the database could not be reached or used for now: it is
// nobody's input, and trying later is right.
func IsUnavailable(err error) bool {
	if errors.Is(err, ErrCommitUnknown) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code[:2] {
		// 28 and 3D: the password or the database changed under a running service.
		case "08", "28", "3D", "53", "57", "58":
			return true
		}
		return pgErr.Code == "25006" || pgErr.Code == "25P03" // a demoted primary; idle for too long in a transaction
	}
	var connectErr *pgconn.ConnectError
	return errors.As(err, &connectErr) || pgconn.SafeToRetry(err) || errors.Is(err, pgx.ErrTxClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, context.DeadlineExceeded) || isNetwork(err)
}
