package app

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/apidoc"
	"apipay.io/hub/services/payment-api/internal/auth"
	"apipay.io/hub/services/payment-api/internal/endpoints"
	"apipay.io/hub/services/payment-api/internal/events"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/gateway/sandbox"
	"apipay.io/hub/services/payment-api/internal/payments"
)

const (
	versionPrefix = "/v1"
	// loopSilence is how long a background loop may go without a tick; one turn waits for gateways.
	loopSilence = 2 * time.Minute
)

// API is the service without its process: the handler, and the loops that run beside it.
type API struct {
	echo  *echo.Echo
	money *payments.Service
	loops []func(context.Context) error
}

// operations are those of the OpenAPI document, each in the package that it belongs to.
type operations struct {
	*payments.Service
	*endpoints.Endpoints
	*events.Events
}

// New wires the service over a pool of the role apipay_app.
func New(cfg Config, pool *pgxpool.Pool, health *ops.Health, logger *slog.Logger) (*API, error) {
	policy, err := webhook.ParsePolicy(cfg.AllowCIDRs)
	if err != nil {
		return nil, err
	}
	keyset, err := webhook.ParseKeyset(cfg.SecretsKeyset)
	if err != nil {
		return nil, err
	}
	answers, err := endpoints.NewSealer(cfg.SecretsKeyset)
	if err != nil {
		return nil, err
	}
	key, err := cursorKey(cfg.SecretsKeyset)
	if err != nil {
		return nil, err
	}
	cursors, err := httpapi.NewCursors(key)
	if err != nil {
		return nil, err
	}
	money := payments.New(payments.Deps{
		Pool: pool, Gateways: gateways(cfg, pool), Cursors: cursors, Log: logger, Config: cfg.money(),
	})
	e := httpapi.NewEcho(httpapi.Options{Logger: logger, Map: mapError(money)})
	// The audit log keeps who connected; X-Forwarded-For is whatever a client writes into it.
	e.IPExtractor = echo.ExtractIPDirect()
	keys := auth.New(pool)
	e.Use(guarded(keys.Middleware(newLimiter(cfg))))
	if err := apidoc.Routes(e); err != nil {
		return nil, err
	}
	api.Register(e, operations{
		Service: money,
		Endpoints: endpoints.New(endpoints.Deps{
			Pool: pool, Policy: policy, Keyset: keyset, Cursors: cursors, Answers: answers, KeyTTL: cfg.IdempotencyTTL,
		}),
		Events: events.New(pool, cursors),
	}, auth.Require)
	return &API{echo: e, money: money, loops: []func(context.Context) error{
		keys.RunLastUsed,
		loop(money.RunReconciler, health.Loop("reconciler", loopSilence)),
		loop(money.RunReaper, health.Loop("reaper", loopSilence)),
	}}, nil
}

func loop(run func(context.Context, payments.Heartbeat) error, beat payments.Heartbeat) func(context.Context) error {
	return func(ctx context.Context) error { return run(ctx, beat) }
}

// gateways are the connectors by livemode: the sandbox serves test mode everywhere, and live mode where Config.Validate let it.
func gateways(cfg Config, pool *pgxpool.Pool) map[bool]gateway.Gateway {
	test := sandbox.New(pool)
	all := map[bool]gateway.Gateway{false: test}
	if cfg.GatewayLive == sandbox.Name {
		all[true] = test
	}
	return all
}

// Handler serves the API.
func (a *API) Handler() http.Handler { return a.echo }

// Routes are what the handler serves.
func (a *API) Routes() []*echo.Route { return a.echo.Routes() }

// Drain waits, after the last request, for what the gateways have answered and the database has not taken yet.
func (a *API) Drain(ctx context.Context) { a.money.Drain(ctx) }

// Loops are the actors that run beside the handler.
func (a *API) Loops() []func(context.Context) error { return a.loops }

// Needs are the privileges that the service's statements take.
func Needs() []postgres.Need {
	var all []postgres.Need
	for _, needs := range [][]postgres.Need{auth.Needs(), endpoints.Needs(), events.Needs(), payments.Needs(), sandbox.Needs()} {
		all = append(all, needs...)
	}
	return all
}

// guarded applies the authentication to every route below /v1. It is no middleware of the group, because echo then answers
// 404 in place of 405 there; and what is no route at all is 404 for everybody.
func guarded(authenticate echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		guardedNext := authenticate(next)
		return func(c echo.Context) error {
			if strings.HasPrefix(c.Path(), versionPrefix+"/") {
				return guardedNext(c)
			}
			return next(c)
		}
	}
}

func newLimiter(cfg Config) *httpapi.RateLimiter {
	burst := cfg.RateLimitBurst
	if burst == 0 {
		burst = int(math.Ceil(2 * cfg.RateLimitRPS))
	}
	return httpapi.NewRateLimiter(cfg.RateLimitRPS, burst)
}

// mapError turns the errors that any package can meet into problems.
func mapError(money *payments.Service) func(error) *httpapi.Problem {
	return func(err error) *httpapi.Problem {
		if problem := money.MapError(err); problem != nil {
			return problem
		}
		if postgres.IsUnavailable(err) {
			return httpapi.New(httpapi.CodeServiceUnavailable, "The service cannot reach its database at the moment.")
		}
		return nil
	}
}
