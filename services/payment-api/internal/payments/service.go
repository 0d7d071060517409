package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// Config are the limits of the money path.
type Config struct {
	// GatewayTimeout is the deadline of one call to the gateway.
	GatewayTimeout time.Duration
	// VisibilityDelay is how long after the lease's end a gateway's "not found" proves nothing.
	VisibilityDelay time.Duration
	// Lease is how long a request owns its Idempotency-Key and its attempt.
	Lease time.Duration
	// KeyTTL is how long an answer can be replayed.
	KeyTTL time.Duration
	// AmountMin is the least amount per currency; 1 where a currency is not named.
	AmountMin AmountMin
}

// DefaultConfig has the documented limits.
func DefaultConfig() Config {
	return Config{
		GatewayTimeout:  10 * time.Second,
		VisibilityDelay: 60 * time.Second,
		Lease:           90 * time.Second,
		KeyTTL:          7 * 24 * time.Hour,
	}
}

// Validate says in one line what cannot work.
func (c Config) Validate() error {
	switch {
	case c.GatewayTimeout <= 0:
		return errors.New("APIPAY_GATEWAY_TIMEOUT must be positive")
	case c.Lease <= c.GatewayTimeout:
		return errors.New("APIPAY_IDEMPOTENCY_LEASE must be longer than APIPAY_GATEWAY_TIMEOUT")
	case c.VisibilityDelay < 0:
		return errors.New("APIPAY_GATEWAY_VISIBILITY_DELAY must not be negative")
	case c.KeyTTL <= 0:
		return errors.New("APIPAY_IDEMPOTENCY_TTL must be positive")
	}
	return nil
}

// AmountMin is the least amount of each currency, in minor units.
type AmountMin map[string]int64

// UnmarshalText reads USD=50,EUR=50; an empty text is an empty map.
func (m *AmountMin) UnmarshalText(text []byte) error {
	*m = AmountMin{}
	if len(text) == 0 {
		return nil
	}
	for pair := range strings.SplitSeq(string(text), ",") {
		code, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		canonical, ok := canonicalCurrency(code)
		amount, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil || amount < 1 || amount > maxAmount {
			return fmt.Errorf("%q is not CURRENCY=AMOUNT in minor units, such as USD=50", pair)
		}
		if _, twice := (*m)[canonical]; twice {
			return fmt.Errorf("%s is named twice", canonical)
		}
		(*m)[canonical] = amount
	}
	return nil
}

// Deps are what a [Service] works with.
type Deps struct {
	// Pool is of the role apipay_app.
	Pool *pgxpool.Pool
	// Gateways are the connectors of test mode (false) and live mode (true). Without one, confirm and refund of that
	// mode answer 503 gateway_unavailable.
	Gateways map[bool]gateway.Gateway
	// Cursors make the cursors of the lists; every replica needs the same key.
	Cursors *httpapi.Cursors
	// ErrorsBaseURL is the base of the problems' type, as httpapi.Options has it; "" is its default.
	ErrorsBaseURL string
	Log           *slog.Logger
	Config        Config
}

// Service is the money path. Make one with [New].
type Service struct {
	pool          *pgxpool.Pool
	gateways      map[bool]gateway.Gateway
	cursors       *httpapi.Cursors
	errorsBaseURL string
	log           *slog.Logger
	config        Config
	metrics       metrics
	pending       *pending
	// patience is how long a request waits for T2 while the database is away.
	patience time.Duration
}

// New makes the service; [Service.RunReconciler] and [Service.RunReaper] must run beside its routes, and [Service.Drain]
// after them.
func New(d Deps) *Service {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.ErrorsBaseURL == "" {
		d.ErrorsBaseURL = httpapi.DefaultErrorsBaseURL
	}
	return &Service{
		pool: d.Pool, gateways: d.Gateways, cursors: d.Cursors, errorsBaseURL: d.ErrorsBaseURL, log: d.Log, config: d.Config,
		metrics: newMetrics(), pending: newPending(), patience: settlePatience,
	}
}

// gatewayOf is the connector of a mode, or nil.
func (s *Service) gatewayOf(livemode bool) gateway.Gateway { return s.gateways[livemode] }

// Needs are the privileges that the package's statements take, those of the idempotency keys included.
func Needs() []postgres.Need {
	return append(idempotency.Needs(),
		postgres.Need{
			Table: "payment_intents",
			Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
			Columns: []string{
				"status", "amount_refunded", "amount_refund_pending", "payment_method", "last_payment_error", "latest_attempt",
				"charge_attempts", "declined_attempts", "version", "updated_at",
			},
		},
		postgres.Need{
			Table:   "refunds",
			Verbs:   []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
			Columns: []string{"status", "failure_reason", "announced", "version", "updated_at"},
		},
		postgres.Need{
			Table: "payment_attempts",
			Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
			Columns: []string{
				"status", "gateway_reference", "decline_code", "failure_message", "announced", "next_check_at", "check_count",
				"checker", "checker_until", "version", "finished_at",
			},
		},
		postgres.Need{Table: "outbox_events", Verbs: []postgres.Verb{postgres.Insert}},
	)
}

const (
	// txTimeout bounds one transaction, its wait for a connection included.
	txTimeout = 10 * time.Second
	// readBackTimeout bounds how long an unknown commit is read back.
	readBackTimeout = 5 * time.Second
	// settlePatience bounds how long a request waits for T2 to be written: the client hears of it before its own time is up.
	settlePatience = 8 * time.Second
)

// inTenant runs fn in a transaction of the tenant. A commit whose answer was lost is read back by running fn again:
// every fn recognizes its own work, by the key's owner or by the guard on the attempt. When that cannot be done either, it
// fails with postgres.ErrCommitUnknown.
//
// fn works with the context that it is given, which ends with the transaction's time.
func (s *Service) inTenant(ctx context.Context, scope postgres.Scope, fn txFunc) error {
	return s.inTenantWith(ctx, scope, &pgx.Batch{}, func(ctx context.Context, tx postgres.Tx, _ pgx.BatchResults) error { return fn(ctx, tx) })
}

// inTenantWith is inTenant whose first statements travel with its BEGIN.
func (s *Service) inTenantWith(ctx context.Context, scope postgres.Scope, first *pgx.Batch, fn txFuncWith) error {
	err := s.once(ctx, scope, first, fn)
	if !errors.Is(err, postgres.ErrCommitUnknown) {
		return err
	}
	unknown := err
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
	defer cancel()
	for delay := 50 * time.Millisecond; postgres.IsUnavailable(err); delay = min(2*delay, time.Second) {
		select {
		case <-ctx.Done():
			return unknown
		case <-time.After(delay):
		}
		err = s.once(ctx, scope, first, fn)
	}
	return err
}

type (
	txFunc     func(ctx context.Context, tx postgres.Tx) error
	txFuncWith func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error
)

func (s *Service) once(ctx context.Context, scope postgres.Scope, first *pgx.Batch, fn txFuncWith) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	return postgres.InTenantWith(ctx, s.pool, scope, first, func(tx postgres.Tx, results pgx.BatchResults) error {
		return fn(ctx, tx, results)
	})
}

// read runs one query of the tenant, in one round trip.
func (s *Service) read(ctx context.Context, scope postgres.Scope, query string, args []any, read func(pgx.BatchResults) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(query, args...)
	return postgres.ReadInTenant(ctx, s.pool, scope, batch, read)
}

// MapError turns the errors of this package into problems; nil for what it does not know.
func (s *Service) MapError(err error) *httpapi.Problem {
	if problem, ok := constraintProblem(err); ok {
		return problem
	}
	switch {
	case errors.Is(err, postgres.ErrCommitUnknown):
		return httpapi.New(httpapi.CodeServiceUnavailable,
			"The database went away while the request was written. The same request with the same key will tell what became of it.")
	case errors.Is(err, outbox.ErrTooLarge):
		return httpapi.New(httpapi.CodeParameterInvalid, "The object would be too large to be told in an event.")
	case postgres.IsUnavailable(err):
		return httpapi.New(httpapi.CodeServiceUnavailable, "The database cannot be reached at the moment.")
	}
	return nil
}

// constraintProblem is what a violated constraint of this package's tables means.
func constraintProblem(err error) (*httpapi.Problem, bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return nil, false
	}
	switch pgErr.ConstraintName {
	case "payment_intents_merchant_reference_key":
		return httpapi.Invalid(httpapi.CodeMerchantReferenceInUse, "/merchant_reference",
			"Another payment intent has this merchant_reference."), true
	case "payment_intents_refunds_within_amount":
		return refundExceeds(), true
	}
	return nil, false
}
