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
	// ended is set once COMMIT was sent.
	ended *bool
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
	return InTenantWith(ctx, pool, scope, &pgx.Batch{}, func(tx Tx, _ pgx.BatchResults) error { return fn(tx) })
}

// InTenantWith is [InTenant] whose first statements are known before it begins: they travel with its BEGIN, in one round
// trip. fn reads their results in the order of the batch and closes them before it uses tx; it may leave them alone only if
// the batch is empty.
func InTenantWith(ctx context.Context, pool *pgxpool.Pool, scope Scope, first *pgx.Batch, fn func(tx Tx, results pgx.BatchResults) error) error {
	return retry(ctx, func() error {
		return inTx(ctx, pool, begin{scopeTenant + limitIdle, []any{scope.TenantID.String(), strconv.FormatBool(scope.Livemode)}}, first, fn)
	})
}

const scopeTenant = `SELECT now(), set_config('app.tenant_id', $1, true), set_config('app.livemode', $2, true)`

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
	const query = `SELECT now(), set_config('app.admin_scope', $1, true)`
	return retry(ctx, func() error {
		return inTx(ctx, pool, begin{query, []any{adminScope}}, &pgx.Batch{}, func(tx Tx, _ pgx.BatchResults) error { return fn(tx) })
	})
}

// InWorker runs fn in a transaction of the role apipay_worker, which sees every tenant. Retries and errors
// as [InTenant].
func InWorker(ctx context.Context, pool *pgxpool.Pool, fn func(tx Tx) error) error {
	return retry(ctx, func() error {
		return inTx(ctx, pool, begin{`SELECT now()`, nil}, &pgx.Batch{}, func(tx Tx, _ pgx.BatchResults) error { return fn(tx) })
	})
}

// begin is the statement that sets a transaction up. Its first column is now().
type begin struct {
	query     string
	arguments []any
}

// inTx sends BEGIN, what sets the transaction up and its first statements in one round trip: Postgres skips what follows a
// statement that failed, so that nothing runs outside the transaction or its scope.
func inTx(ctx context.Context, pool *pgxpool.Pool, setUp begin, first *pgx.Batch, fn func(Tx, pgx.BatchResults) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", redact(err))
	}
	defer conn.Release() // closes one that does not come back clean
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(setUp.query, setUp.arguments...)
	for _, q := range first.QueuedQueries {
		batch.Queue(q.SQL, q.Arguments...)
	}
	results := conn.SendBatch(ctx, batch)
	raw, ended := results.Tx(), false
	defer func() {
		_ = results.Close()
		if ended {
			return
		}
		// The caller's context may be over already; the connection must come back clean all the same.
		rollbackCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = raw.Rollback(rollbackCtx) // a connection that cannot roll back is closed
	}()
	now, err := readSetUp(results)
	if err == nil && len(first.QueuedQueries) == 0 {
		err = results.Close()
	}
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", redact(err))
	}
	if err := fn(Tx{Tx: raw, Now: now, ended: &ended}, results); err != nil || ended {
		return err
	}
	if err := results.Close(); err != nil {
		return fmt.Errorf("opening the transaction: %w", err)
	}
	// Once COMMIT is sent its answer is worth waiting for: a caller that hangs up must not turn it into an
	// unknown outcome.
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	ended = true
	if err := raw.Commit(commitCtx); err != nil {
		return commitError(err)
	}
	return nil
}

func readSetUp(results pgx.BatchResults) (now time.Time, err error) {
	if _, err := results.Exec(); err != nil { // BEGIN
		return now, err
	}
	rows, err := results.Query()
	if err != nil {
		return now, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (time.Time, error) {
		// Beside it are the settings, which nobody needs.
		targets := make([]any, len(row.FieldDescriptions()))
		targets[0] = &now
		err := row.Scan(targets...)
		return now, err
	})
}

// CommitWith runs a last batch and commits, in one round trip; nothing may follow it in the function that got the transaction.
// The commit depends on nothing but that no statement fails: what needs a look at a result first is none for the batch.
// It fails with [ErrCommitUnknown] when it is not known whether the commit took effect.
func (tx Tx) CommitWith(ctx context.Context, batch *pgx.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	last := &pgx.Batch{}
	for _, q := range batch.QueuedQueries {
		last.Queue(q.SQL, q.Arguments...)
	}
	last.Queue("commit")
	results := tx.SendBatch(ctx, last)
	defer results.Close()
	for range batch.QueuedQueries {
		if _, err := results.Exec(); err != nil {
			if isNotCommitted(err) {
				return fmt.Errorf("writing: %w", err)
			}
			*tx.ended = true
			return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
		}
	}
	*tx.ended = true
	tag, err := results.Exec()
	switch {
	case err != nil:
		return commitError(err)
	case tag.String() == "ROLLBACK":
		return fmt.Errorf("committing: %w", pgx.ErrTxCommitRollback)
	}
	return nil
}

// isNotCommitted says that a statement before COMMIT failed for sure: Postgres has refused it, and skipped what followed, or
// nothing was sent. An end of the connection is told by an error, too, and a pooler's word about it proves nothing.
func isNotCommitted(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.SeverityUnlocalized == "ERROR" && pgErr.Code[:2] != "08"
	}
	var unsent pgx.ErrPreprocessingBatch
	return errors.As(err, &unsent) || pgconn.SafeToRetry(err)
}

// commitError tells a commit that surely failed from one whose answer was lost.
func commitError(err error) error {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("committing: %w", err)
	}
	var pgErr *pgconn.PgError
	// Class 57 (operator intervention) can end the session before or after the commit took effect, and class 08 is what a
	// pooler says when it has lost the server.
	if errors.As(err, &pgErr) && pgErr.Code[:2] != "57" && pgErr.Code[:2] != "08" {
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
