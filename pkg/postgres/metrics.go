package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// measure exports how busy a pool is, by the names of OpenTelemetry's conventions where they have one. otelpgx has its own
// names, with times in nanoseconds, and the address of the server as a label.
func measure(pool *pgxpool.Pool, name string) error {
	meter := otel.Meter("apipay.io/hub/pkg/postgres")
	of := attribute.String("db.client.connection.pool.name", name)
	both := metric.WithAttributeSet(attribute.NewSet(of))
	used := metric.WithAttributeSet(attribute.NewSet(of, attribute.String("db.client.connection.state", "used")))
	idle := metric.WithAttributeSet(attribute.NewSet(of, attribute.String("db.client.connection.state", "idle")))
	var errs [5]error
	count, err := meter.Int64ObservableUpDownCounter("db.client.connection.count", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections to Postgres, by pool and state."))
	errs[0] = err
	most, err := meter.Int64ObservableUpDownCounter("db.client.connection.max", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections that the pool may have."))
	errs[1] = err
	waits, err := meter.Int64ObservableCounter("apipay.db.pool.waits",
		metric.WithDescription("Times that somebody had to wait for a connection."))
	errs[2] = err
	waited, err := meter.Float64ObservableCounter("apipay.db.pool.wait", metric.WithUnit("s"),
		metric.WithDescription("How long they waited, in total."))
	errs[3] = err
	gaveUp, err := meter.Int64ObservableCounter("db.client.connection.timeouts", metric.WithUnit("{timeout}"),
		metric.WithDescription("Times that somebody gave up waiting for a connection."))
	errs[4] = err
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("making metrics: %w", err)
		}
	}
	// Never unregistered: a process has its pools for as long as it lives.
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := pool.Stat()
		o.ObserveInt64(count, int64(s.AcquiredConns()), used)
		o.ObserveInt64(count, int64(s.IdleConns()), idle)
		o.ObserveInt64(most, int64(s.MaxConns()), both)
		o.ObserveInt64(waits, s.EmptyAcquireCount(), both)
		o.ObserveFloat64(waited, s.EmptyAcquireWaitTime().Seconds(), both)
		o.ObserveInt64(gaveUp, s.CanceledAcquireCount(), both)
		return nil
	}, count, most, waits, waited, gaveUp)
	if err != nil {
		return fmt.Errorf("making metrics: %w", err)
	}
	return nil
}
