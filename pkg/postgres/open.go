// Package postgres is how the services reach their database: pools whose errors carry no secrets, the
// start-up check of role and schema, and transactions that are scoped to one tenant, retried and honest
// about a commit whose answer was lost.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Options of [Open].
type Options struct {
	// ApplicationName is shown in pg_stat_activity.
	ApplicationName string
	// MaxConns caps the pool; 0 keeps the DSN's pool_max_conns, or pgx's default.
	MaxConns int32
	// MinConns are kept open; 0 keeps the DSN's pool_min_conns.
	MinConns int32
}

// Open makes a pool without connecting. The error says what is wrong with the DSN and never shows it.
func Open(dsn string, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// pgx's own error may repeat parts of the DSN, and with them the password.
		return nil, errors.New("APIPAY_DATABASE_URL does not parse: it must be a libpq URI (postgres://user:password@host:port/database) with special characters percent-encoded")
	}
	if o.ApplicationName != "" {
		config.ConnConfig.RuntimeParams["application_name"] = o.ApplicationName
	}
	if o.MaxConns > 0 {
		config.MaxConns = o.MaxConns
	}
	if o.MinConns > 0 {
		config.MinConns = o.MinConns
	}
	// A server that vanished without a word is noticed within the time a loop may take to heal.
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	config.HealthCheckPeriod = 10 * time.Second
	config.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithDisableConnectionDetailsInAttributes())
	if !namesExecMode(dsn) {
		config.BeforeConnect = (&poolerAware{}).beforeConnect
	}
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerUUID(conn.TypeMap())
		return nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("making the connection pool: %w", redact(err))
	}
	if err := measure(pool, o.ApplicationName); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// Wait returns once the database answers. A refusal that waiting cannot mend (password, database or role
// unknown, no permission to connect) is returned at once; an unreachable server is retried until ctx ends,
// with one log line every few seconds.
func Wait(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	delay := 200 * time.Millisecond
	lastLine := time.Time{}
	for {
		err := pool.Ping(ctx)
		if err == nil {
			return nil
		}
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) {
			switch pgErr.Code {
			case "28000", "28P01", "3D000", "42501":
				return fmt.Errorf("connecting to the database: %s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
			}
		}
		if time.Since(lastLine) > 5*time.Second {
			log.WarnContext(ctx, "database.waiting", "error", redact(err).Error())
			lastLine = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connecting to the database: %w", redact(err))
		case <-time.After(delay):
		}
		delay = min(delay*2, 2*time.Second)
	}
}

// redact drops the connection details that pgx puts into connect errors.
func redact(err error) error {
	var connectErr *pgconn.ConnectError
	if !errors.As(err, &connectErr) {
		return err
	}
	if cause := connectErr.Unwrap(); cause != nil {
		return fmt.Errorf("cannot connect: %w", cause)
	}
	return errors.New("cannot connect")
}
