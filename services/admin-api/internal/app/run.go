package app

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/admin-api/internal/api"
	"apipay.io/hub/services/admin-api/internal/console"
	"apipay.io/hub/services/admin-api/internal/oversight"
	"apipay.io/hub/services/admin-api/internal/retention"
	"apipay.io/hub/services/admin-api/internal/staff"
)

const (
	service = "admin-api"
	role    = "apipay_admin"

	databaseWait = 30 * time.Second
	drain        = 10 * time.Second
)

// Run starts admin-api and blocks until ctx ends and the requests in flight are answered.
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
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		telemetry.Stop(stopCtx)
	}()
	health := ops.NewHealth()
	members, err := newStaff(cfg, logger, health)
	if err != nil {
		return err
	}
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
	pool, err := openDatabase(ctx, cfg, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	handler, err := newHandler(cfg, pool, members, logger)
	if err != nil {
		return err
	}
	auditLog := &retention.AuditLog{Pool: pool, Keep: cfg.AuditRetention, Logger: logger, Loop: health.Loop("audit retention", time.Minute)}
	watch := &oversight.Watch{Pool: pool, Logger: logger, Loop: health.Loop("oversight", time.Minute)}
	health.Ready("postgres", pool.Ping)
	logger.InfoContext(ctx, "service.started", "http", listener.Addr().String(), "ops", opsListener.Addr().String())
	return ops.Serve(ctx, opsListener, health, telemetry.Registry,
		func(ctx context.Context) error { return httpapi.Serve(ctx, listener, handler, drain) },
		members.Run,
		auditLog.Run,
		watch.Run,
	)
}

func newStaff(cfg Config, logger *slog.Logger, health *ops.Health) (*staff.Directory, error) {
	return staff.New(staff.Options{
		TokensFile: cfg.TokensFile,
		Issuer:     cfg.OIDCIssuer,
		Audience:   cfg.OIDCAudience,
		RoleClaim:  cfg.OIDCRoleClaim,
		SignIn:     staff.SignIn{ClientID: cfg.OIDCClientID, ClientSecret: cfg.OIDCClientSecret, RedirectURL: cfg.OIDCRedirectURL},
		Logger:     logger,
		Loop:       health.Loop("staff tokens", time.Minute),
	})
}

func openDatabase(ctx context.Context, cfg Config, logger *slog.Logger) (*pgxpool.Pool, error) {
	pool, err := postgres.Open(cfg.DatabaseURL, postgres.Options{ApplicationName: service})
	if err != nil {
		return nil, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	if err := postgres.Wait(waitCtx, pool, logger); err != nil {
		pool.Close()
		return nil, err
	}
	if err := postgres.Check(waitCtx, pool, role, needs); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func newHandler(cfg Config, pool *pgxpool.Pool, members *staff.Directory, logger *slog.Logger) (http.Handler, error) {
	policy, err := webhook.ParsePolicy(cfg.AllowCIDRs)
	if err != nil {
		return nil, err
	}
	// Every replica signs in to the database with the same password, so these keys are theirs in common.
	shared := pool.Config().ConnConfig.Password
	// A cursor opens nothing that its reader may not see anyway: row level security decides on each page.
	cursorKey := sha256.Sum256([]byte("admin-api cursors\x00" + shared))
	cursors, err := httpapi.NewCursors(cursorKey[:])
	if err != nil {
		return nil, err
	}
	// Whoever has the password could read and write everything in the database; a session opens no more than that. Without
	// one, the key is this process's own and sessions end with it.
	if shared == "" {
		shared = rand.Text()
	}
	sessionKey, err := hkdf.Key(sha256.New, []byte(shared), nil, "admin-api sessions", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the sessions' key: %w", err)
	}
	programs := api.New(api.Options{
		Pool:            pool,
		Staff:           members,
		Cursors:         cursors,
		Policy:          policy,
		VisibilityDelay: cfg.VisibilityDelay,
		Logger:          logger,
	})
	people, err := console.New(console.Options{API: programs, Staff: members, Key: sessionKey, Dev: cfg.Dev, Logger: logger})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not a mux of net/http, which would redirect paths that it finds unclean.
		if strings.HasPrefix(r.URL.Path, "/admin/") {
			programs.ServeHTTP(w, r)
		} else {
			people.ServeHTTP(w, r)
		}
	}), nil
}
