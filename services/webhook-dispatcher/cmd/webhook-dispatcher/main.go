// Command webhook-dispatcher turns events of Kafka into signed webhooks.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/webhook-dispatcher/internal/dispatch"
)

const (
	service         = "webhook-dispatcher"
	databaseTimeout = 30 * time.Second
)

func main() { ops.Main(service, run) }

func run(ctx context.Context) error {
	cfg, err := config.Load[dispatch.Config](os.Environ())
	if err != nil {
		return err
	}
	log, err := ops.NewLogger(os.Stdout, service, cfg.LogLevel)
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
	defer listener.Close()
	pool, err := postgres.Open(cfg.DatabaseURL, postgres.Options{ApplicationName: service, MaxConns: dispatch.MaxConns})
	if err != nil {
		return err
	}
	defer pool.Close()
	waitCtx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if err := postgres.Wait(waitCtx, pool, log); err != nil {
		return err
	}
	if err := postgres.Check(waitCtx, pool, "apipay_worker", dispatch.Needs); err != nil {
		return err
	}
	health := ops.NewHealth()
	health.Ready("database", func(ctx context.Context) error {
		if err := pool.Ping(ctx); err != nil {
			return fmt.Errorf("not reachable")
		}
		return nil
	})
	dispatcher, err := dispatch.New(cfg, pool, health, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "service.started", "ops_addr", listener.Addr().String())
	return ops.Serve(ctx, listener, health, telemetry.Registry, dispatcher.Run)
}
