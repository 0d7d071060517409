// Package app is payment-api as a process: its configuration, its wiring, its start and its end.
package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
)

const (
	service = "payment-api"
	role    = "apipay_app"

	// defaultConns serves what two cores can: a request holds a connection only inside its short transactions, never
	// while it waits for the gateway.
	defaultConns = 16
	databaseWait = 30 * time.Second

	// The end: requests in flight get longer than a gateway call takes. The sum, httpapi.UnreadyFirst among it, stays below
	// the 15 s of SIGTERM.
	drain         = 10500 * time.Millisecond
	stopTelemetry = time.Second
	closePool     = 500 * time.Millisecond
	// settleUntil is when, counted from the signal, no more is tried to write what the gateways have answered while the
	// database was away.
	settleUntil = 13 * time.Second
)

// Run starts payment-api and blocks until ctx ends and the requests in flight are answered.
func Run(ctx context.Context, environ []string, logs io.Writer) error {
	cfg, err := config.Load[Config](environ)
	if err != nil {
		return err
	}
	logger, err := ops.NewLogger(logs, service, cfg.LogLevel)
	if err != nil {
		return err
	}
	slog.SetDefault(logger)
	telemetry, err := ops.StartTelemetry(ctx, service)
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTelemetry)
		defer cancel()
		telemetry.Stop(stopCtx)
	}()
	listener, err := ops.Listen(ctx, "APIPAY_HTTP_ADDR", cfg.HTTPAddr)
	if err != nil {
		return err
	}
	defer listener.Close()
	opsListener, err := ops.Listen(ctx, "APIPAY_OPS_ADDR", cfg.OpsAddr)
	if err != nil {
		return err
	}
	defer opsListener.Close()
	pool, probe, err := openDatabase(ctx, cfg, logger)
	if err != nil {
		return err
	}
	defer closeBounded(pool, probe)
	health := ops.NewHealth()
	health.Ready("postgres", probe.Ping)
	api, err := New(cfg, pool, health, logger)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "service.started", "http", listener.Addr().String(), "ops", opsListener.Addr().String())
	actors := append(api.Loops(), func(ctx context.Context) error { return serve(ctx, listener, api) })
	return ops.Serve(ctx, opsListener, health, telemetry.Registry, actors...)
}

// serve answers requests until ctx ends and those in flight are answered, and then writes what they had to leave.
func serve(ctx context.Context, listener net.Listener, api *API) error {
	limit, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settleUntil, end) })()
	err := httpapi.Serve(ctx, listener, api.Handler(), drain)
	api.Drain(limit)
	return err
}

func openDatabase(ctx context.Context, cfg Config, logger *slog.Logger) (pool, probe *pgxpool.Pool, err error) {
	options := postgres.Options{ApplicationName: service}
	if !strings.Contains(cfg.DatabaseURL, "pool_max_conns") {
		options.MaxConns = defaultConns
	}
	if pool, err = postgres.Open(cfg.DatabaseURL, options); err != nil {
		return nil, nil, err
	}
	// A connection of its own: with all others busy the service is slow, and not unready.
	probe, err = postgres.Open(cfg.DatabaseURL, postgres.Options{ApplicationName: service + " readyz", MaxConns: 1})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	if err = postgres.Wait(waitCtx, pool, logger); err == nil {
		err = postgres.Check(waitCtx, pool, role, Needs())
	}
	if err != nil {
		closeBounded(pool, probe)
		return nil, nil, err
	}
	return pool, probe, nil
}

// closeBounded does not wait for a request that outlived the drain.
func closeBounded(pools ...*pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range pools {
			pool.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closePool):
	}
}
