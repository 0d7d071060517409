// Package migrations holds the schema of ApiPay Hub and applies it.
//
// [BootstrapSQL] makes the roles and the schema and is run once per database by a superuser; everything
// else runs as the role apipay_owner. Any number of processes may call [Up] at once: one of them works, the
// others wait and find it done.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// BootstrapSQL is bootstrap.sql: roles (without passwords) and schema. It may be run again.
//
//go:embed bootstrap.sql
var BootstrapSQL string

// FS holds the goose migrations under sql/.
//
//go:embed sql/*.sql
var FS embed.FS

// ErrNotBootstrapped says that the roles or the schema are missing, or that the DSN's role is not the owner.
var ErrNotBootstrapped = errors.New("the database is not ready for migrations: run migrations/bootstrap.sql once as a superuser, then migrate as apipay_owner")

const (
	ownerRole    = "apipay_owner"
	versionTable = "apipay.goose_db_version"
)

// Status is one migration and whether the database has it.
type Status struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero while pending
}

// Up applies what is missing and makes the weekly partitions. ownerDSN connects as apipay_owner; a pooler in transaction
// mode may stand between, with room for two connections. A migration that does not get its locks gives up at once, so that
// traffic does not queue behind it, and is tried again for [lockPatience]; then Up fails, and may be called again.
func Up(ctx context.Context, ownerDSN string) error {
	return withProvider(ctx, ownerDSN, func(db *sql.DB, p *goose.Provider) error {
		return locked(ctx, db, func() error {
			if err := dropUnfinished(ctx, db); err != nil {
				return err
			}
			if err := patiently(ctx, func() error { _, err := p.Up(ctx); return err }); err != nil {
				return fmt.Errorf("migrating up: %w", err)
			}
			return ensurePartitions(ctx, db)
		})
	})
}

// Down takes back the newest migration. It destroys the data of what it drops.
func Down(ctx context.Context, ownerDSN string) error {
	return withProvider(ctx, ownerDSN, func(db *sql.DB, p *goose.Provider) error {
		return locked(ctx, db, func() error {
			if _, err := p.Down(ctx); err != nil {
				return fmt.Errorf("migrating down: %w", err)
			}
			return nil
		})
	})
}

// List answers every migration in order.
func List(ctx context.Context, ownerDSN string) ([]Status, error) {
	var list []Status
	err := withProvider(ctx, ownerDSN, func(_ *sql.DB, p *goose.Provider) error {
		found, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("reading the migration status: %w", err)
		}
		for _, s := range found {
			list = append(list, Status{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
		}
		return nil
	})
	return list, err
}

func withProvider(ctx context.Context, ownerDSN string, fn func(*sql.DB, *goose.Provider) error) error {
	config, err := pgx.ParseConfig(ownerDSN)
	if err != nil {
		// pgx's own error may carry the DSN.
		return errors.New("the owner's DSN does not parse: it must be a libpq URI or keyword string")
	}
	config.RuntimeParams["application_name"] = "migrate"
	// Nothing is prepared: behind a pooler in transaction mode the next statement may go to another server connection.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	defer db.Close()
	if err := checkBootstrapped(ctx, db); err != nil {
		return err
	}
	files, err := fs.Sub(FS, "sql")
	if err != nil {
		return fmt.Errorf("opening the embedded migrations: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("opening the version table: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("reading the embedded migrations: %w", err)
	}
	return fn(db, provider)
}

func checkBootstrapped(ctx context.Context, db *sql.DB) error {
	const query = `
		SELECT current_user = $1
		   AND EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'apipay' AND pg_get_userbyid(nspowner) = $1)
		   AND (SELECT count(*) = 3 FROM pg_catalog.pg_roles WHERE rolname IN ('apipay_app', 'apipay_worker', 'apipay_admin'))`
	var ready bool
	if err := db.QueryRowContext(ctx, query, ownerRole).Scan(&ready); err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	if !ready {
		return ErrNotBootstrapped
	}
	return nil
}

// ensurePartitions waits out other sessions' locks: the function itself gives up after 200 ms, so that it
// never queues in front of traffic.
func ensurePartitions(ctx context.Context, db *sql.DB) error {
	const attempts = 50
	for i := 1; ; i++ {
		_, err := db.ExecContext(ctx, `SELECT apipay.ensure_partitions()`)
		var pgErr *pgconn.PgError
		if err == nil || !errors.As(err, &pgErr) || pgErr.Code != "55P03" || i == attempts {
			if err != nil {
				return fmt.Errorf("making partitions: %w", err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
