// Package oversight measures what lies still and waits for people, over all tenants: outcomes that stay unknown,
// quarantined records, endpoints that nobody reaches. No other service may look at all of these.
package oversight

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
)

const (
	interval = 15 * time.Second
	timeout  = 5 * time.Second
)

// picture is what was found at the last look.
type picture struct {
	// An attempt whose process died counts like an unknown one once its lease is over. -1 s is none.
	OldestUnknown     float64
	Unknown           int64
	Quarantined       int64
	DisabledFailing   int64
	DisabledGone      int64
	DisabledRequested int64
	DisabledSupport   int64
	Failing           int64
	Unreachable       int64
}

// Watch looks every 15 seconds and exports what it saw; any number of replicas may do so at once.
type Watch struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	Loop   *ops.Loop

	mu     sync.Mutex
	last   picture
	seenAt time.Time
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	registration, err := w.register()
	if err != nil {
		return err
	}
	defer func() { _ = registration.Unregister() }() // nothing is left to observe
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		w.Loop.Tick()
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "oversight.looking", "error", err.Error())
			w.Loop.Degraded("what waits for people cannot be counted")
		} else {
			w.Loop.Degraded("")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Every count is bounded: beyond ten thousand it does not matter how many there are.
const lookQuery = `
	SELECT coalesce(extract(epoch FROM now() - (
	           SELECT min(created_at) FROM apipay.payment_attempts
	           WHERE status IN ('started', 'unknown') AND (status = 'unknown' OR lease_until < now()))), -1)::float8 AS oldest_unknown,
	       (SELECT count(*) FROM (SELECT FROM apipay.payment_attempts
	           WHERE status IN ('started', 'unknown') AND (status = 'unknown' OR lease_until < now()) LIMIT 10000) x) AS unknown,
	       (SELECT count(*) FROM (SELECT FROM apipay.quarantined_records WHERE replayed_at IS NULL LIMIT 10000) x) AS quarantined,
	       d.failing AS disabled_failing, d.gone AS disabled_gone, d.requested AS disabled_requested, d.support AS disabled_support,
	       (SELECT count(*) FROM apipay.webhook_endpoint_states WHERE failing_since IS NOT NULL) AS failing,
	       (SELECT count(*) FROM apipay.webhook_endpoint_states WHERE breaker_opened_at IS NOT NULL) AS unreachable
	FROM (SELECT count(*) FILTER (WHERE disabled_reason = 'failing') AS failing,
	             count(*) FILTER (WHERE disabled_reason = 'gone') AS gone,
	             count(*) FILTER (WHERE disabled_reason = 'requested') AS requested,
	             count(*) FILTER (WHERE disabled_reason = 'support') AS support
	      FROM apipay.webhook_endpoints WHERE status = 'disabled' AND deleted_at IS NULL) d`

func (w *Watch) look(ctx context.Context) error {
	const settings = `SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', $1, true)`
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var seen picture
	err := postgres.InSupport(ctx, w.Pool, postgres.AllTenants, func(tx postgres.Tx) error {
		if _, err := tx.Exec(ctx, settings, strconv.FormatInt(timeout.Milliseconds(), 10)); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lookQuery)
		if err != nil {
			return err
		}
		seen, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[picture])
		return err
	})
	if err != nil {
		return fmt.Errorf("counting what waits for people: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.seenAt = seen, time.Now()
	return nil
}

func (w *Watch) register() (metric.Registration, error) {
	meter := otel.Meter("apipay.io/hub/services/admin-api/oversight")
	var errs []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	oldest, err := meter.Float64ObservableGauge("apipay.payment.unknown.oldest", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest payment attempt whose outcome is not known."))
	errs = append(errs, err)
	unknown := gauge("apipay.payment.unknown", "{attempt}", "Payment attempts whose outcome is not known, up to 10000.")
	quarantined := gauge("apipay.webhook.quarantine", "{record}", "Quarantined records that were not replayed, up to 10000.")
	disabled := gauge("apipay.webhook.endpoints.disabled", "{endpoint}", "Endpoints that are switched off, by reason.")
	failing := gauge("apipay.webhook.endpoints.failing", "{endpoint}", "Endpoints whose last attempt failed.")
	unreachable := gauge("apipay.webhook.endpoints.unreachable", "{endpoint}", "Endpoints whose breaker is open.")
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("making metrics: %w", err)
		}
	}
	reason := func(r string) metric.ObserveOption { return metric.WithAttributes(attribute.String("reason", r)) }
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.seenAt.IsZero() {
			return nil
		}
		p := w.last
		age := 0.0
		if p.OldestUnknown >= 0 {
			// It grows between two looks: also while the database is away.
			age = p.OldestUnknown + time.Since(w.seenAt).Seconds()
		}
		o.ObserveFloat64(oldest, age)
		o.ObserveInt64(unknown, p.Unknown)
		o.ObserveInt64(quarantined, p.Quarantined)
		o.ObserveInt64(disabled, p.DisabledFailing, reason("failing"))
		o.ObserveInt64(disabled, p.DisabledGone, reason("gone"))
		o.ObserveInt64(disabled, p.DisabledRequested, reason("requested"))
		o.ObserveInt64(disabled, p.DisabledSupport, reason("support"))
		o.ObserveInt64(failing, p.Failing)
		o.ObserveInt64(unreachable, p.Unreachable)
		return nil
	}, oldest, unknown, quarantined, disabled, failing, unreachable)
}
