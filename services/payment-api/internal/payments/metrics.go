package payments

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scopeName = "apipay.io/hub/services/payment-api/internal/payments"

type metrics struct {
	calls  metric.Float64Histogram
	checks metric.Int64Counter
	reaped metric.Int64Counter
}

func newMetrics() metrics {
	meter := otel.Meter(scopeName)
	// The instruments of a meter are valid even where it could not make them.
	calls, _ := meter.Float64Histogram("apipay.gateway.call.duration", metric.WithUnit("s"),
		metric.WithDescription("Calls to the gateway, by kind of attempt and outcome."),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	checks, _ := meter.Int64Counter("apipay.reconciler.checks",
		metric.WithDescription("Attempts that the reconciler asked the gateway for, by kind and outcome."))
	reaped, _ := meter.Int64Counter("apipay.idempotency.reaped",
		metric.WithDescription("Idempotency keys that were removed when their life was over."))
	return metrics{calls: calls, checks: checks, reaped: reaped}
}

func (m metrics) called(ctx context.Context, kind string, outcome AttemptStatus, since time.Time) {
	m.calls.Record(ctx, time.Since(since).Seconds(), metric.WithAttributes(
		attribute.String("kind", kind), attribute.String("outcome", string(outcome))))
}

func (m metrics) checked(ctx context.Context, kind string, outcome AttemptStatus) {
	m.checks.Add(ctx, 1, metric.WithAttributes(
		attribute.String("kind", kind), attribute.String("outcome", string(outcome))))
}
