// outbox-relay carries committed events from the outbox to Kafka.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/outbox-relay/internal/relay"
)

const service = "outbox-relay"

// databaseWait is how long the start waits for a database that does not answer.
const databaseWait = 30 * time.Second

func main() { ops.Main(service, run) }

func run(ctx context.Context) error {
	cfg, err := config.Load[relay.Config](os.Environ())
	if err != nil {
		return err
	}
	log, err := ops.NewLogger(os.Stderr, service, cfg.LogLevel)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	telemetry, err := ops.StartTelemetry(ctx, service)
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		telemetry.Stop(stopCtx)
	}()
	listener, err := ops.Listen(ctx, "APIPAY_OPS_ADDR", cfg.OpsAddr)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(cfg.DatabaseURL, postgres.Options{ApplicationName: service, MaxConns: relay.Connections})
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := start(ctx, pool, log); err != nil {
		return err
	}
	health := ops.NewHealth()
	health.Ready("postgres", pool.Ping)
	r, err := relay.New(cfg, pool, health, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "relay.started", "ops_addr", listener.Addr().String(), "batch", cfg.Batch)
	return ops.Serve(ctx, listener, health, telemetry.Registry, r.Run)
}

// start waits for the database and checks that this role may run the relay on this schema.
func start(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	if err := postgres.Wait(ctx, pool, log); err != nil {
		return err
	}
	return postgres.Check(ctx, pool, relay.Role, relay.Needs)
}
