package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// lockID is the advisory lock that serializes migrators of one database.
	lockID = 7_340_115_021
	// turnPatience is how long another migrator, with a slow migration perhaps, is waited for.
	turnPatience = 10 * time.Minute
	turnInterval = 500 * time.Millisecond
	// lockPatience is how long a migration is tried that does not get its locks, each try being short.
	lockPatience = 20 * time.Second
	lockInterval = time.Second
)

// locked runs fn while an open transaction holds the lock. It is the transaction's and not the session's, so that it works
// behind a pooler in transaction mode too, which keeps a server connection for an open transaction and closes it when the
// client is gone: a killed migrator's lock is free at once. Between its statements that transaction has no snapshot, so CREATE
// INDEX CONCURRENTLY does not wait for it; and the tries of those who wait are short ones, so that it does not wait for them.
func locked(ctx context.Context, db *sql.DB, fn func() error) error {
	ctx, stop := context.WithTimeout(ctx, turnPatience)
	defer stop()
	for {
		tx, err := takeLock(ctx, db)
		if err != nil {
			return fmt.Errorf("taking the migrators' lock: %w", err)
		}
		if tx != nil {
			defer func() { _ = tx.Rollback() }() // it holds nothing but the lock
			return fn()
		}
		if err := pause(ctx, turnInterval); err != nil {
			return fmt.Errorf("another migrator has worked for %s: %w", turnPatience, err)
		}
	}
}

// takeLock answers nil when somebody else has the lock.
func takeLock(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	// The context of a transaction ends it, so it is not that of the wait.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	// A server that ends idle transactions is asked not to end this one.
	const sql = `
		SELECT pg_try_advisory_xact_lock($1), (SELECT count(set_config(name, '0', true)) FROM pg_settings
		    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout'))`
	var taken bool
	var settings int
	err = tx.QueryRowContext(ctx, sql, int64(lockID)).Scan(&taken, &settings)
	if err == nil && taken {
		return tx, nil
	}
	return nil, errors.Join(err, tx.Rollback())
}

// patiently repeats what gave up for a lock, or was chosen to end a deadlock.
func patiently(ctx context.Context, fn func() error) error {
	begun := time.Now()
	for {
		err := fn()
		var refusal *pgconn.PgError
		if !errors.As(err, &refusal) || refusal.Code != "55P03" && refusal.Code != "40P01" {
			return err
		}
		if time.Since(begun) > lockPatience {
			return fmt.Errorf("other sessions hold a lock that is needed, nothing was changed by this step; run it again: %w", err)
		}
		if err := pause(ctx, lockInterval); err != nil {
			return err
		}
	}
}

// dropUnfinished removes what a CREATE INDEX CONCURRENTLY left whose migrator was ended: an index that is kept up to date and
// never used. Its migration counts as not applied and makes it anew. Under the migrators' lock nobody else makes one.
func dropUnfinished(ctx context.Context, db *sql.DB) error {
	// The server goes on for a client that is gone.
	const building = `
		SELECT count(*) FROM pg_stat_progress_create_index p JOIN pg_class c ON c.oid = p.relid
		WHERE p.datname = current_database() AND c.relnamespace = 'apipay'::regnamespace`
	for {
		var n int
		if err := db.QueryRowContext(ctx, building).Scan(&n); err != nil {
			return fmt.Errorf("looking for indexes in the making: %w", err)
		}
		if n == 0 {
			break
		}
		if err := pause(ctx, turnInterval); err != nil {
			return err
		}
	}
	// An index of a partitioned table is invalid until every partition has its own; that is no leftover.
	const unfinished = `
		SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', i.indexrelid::regclass)
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE NOT i.indisvalid AND c.relkind = 'i' AND c.relnamespace = 'apipay'::regnamespace`
	rows, err := db.QueryContext(ctx, unfinished)
	if err != nil {
		return fmt.Errorf("looking for unfinished indexes: %w", err)
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			return fmt.Errorf("looking for unfinished indexes: %w", err)
		}
		statements = append(statements, statement)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return fmt.Errorf("looking for unfinished indexes: %w", err)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("dropping an unfinished index: %w", err)
		}
	}
	return nil
}

// pause waits a little more or less than interval: several who wait shall not all come at once.
func pause(ctx context.Context, interval time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(interval/2 + rand.N(interval)): // #nosec G404 -- not a secret
		return nil
	}
}
