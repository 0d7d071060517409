package dispatch

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics of a dispatcher. No label carries an id, a URL or a tenant.
type metrics struct {
	records      metric.Int64Counter
	deliveries   metric.Int64Counter
	quarantined  metric.Int64Counter
	attempts     metric.Int64Counter
	connections  metric.Int64Counter
	lostLeases   metric.Int64Counter
	lag          metric.Float64Histogram
	latency      metric.Float64Histogram
	claimTime    metric.Float64Histogram
	recordTime   metric.Float64Histogram
	materialTime metric.Float64Histogram
	claimSize    metric.Int64Histogram
	oldest       atomic.Int64 // of the last whole walk
	walking      atomic.Int64 // of the walk so far
	staleSecrets atomic.Int64
	consumerLag  atomic.Int64
}

func newMetrics(d *Dispatcher) (*metrics, error) {
	meter := otel.Meter("apipay.io/hub/services/webhook-dispatcher")
	m := &metrics{}
	m.consumerLag.Store(unknownLag)
	var firstErr error
	counter := func(name, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(description))
		if err != nil && firstErr == nil {
			firstErr = err
		}
		return c
	}
	seconds := func(name, description string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120))
		if err != nil && firstErr == nil {
			firstErr = err
		}
		return h
	}
	m.records = counter("apipay.webhook.records", "Records read from the topic.")
	m.deliveries = counter("apipay.webhook.deliveries", "Deliveries made from events.")
	m.quarantined = counter("apipay.webhook.quarantined", "Records that can never be processed, by reason.")
	m.attempts = counter("apipay.webhook.attempts", "Attempts by outcome and error class.")
	m.connections = counter("apipay.webhook.connections", "Attempts by whether their connection was new or reused.")
	m.lostLeases = counter("apipay.webhook.leases.lost", "Leases that ended without a result.")
	m.lag = seconds("apipay.webhook.lag", "From when a delivery was due to its attempt, for attempts that were made.")
	m.latency = seconds("apipay.webhook.attempt.duration", "Time of an attempt.")
	m.claimTime = seconds("apipay.webhook.claim.duration", "Time of a claim.")
	m.recordTime = seconds("apipay.webhook.record.duration", "Time of recording a batch.")
	m.materialTime = seconds("apipay.webhook.materialize.duration", "Time of materializing a batch.")
	size, err := meter.Int64Histogram("apipay.webhook.claim.size", metric.WithDescription("Deliveries per claim."),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 5, 10, 20, 50, 100, 200, 500))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	m.claimSize = size
	_, err = meter.Int64ObservableGauge("apipay.webhook.in_hand", metric.WithDescription("Deliveries claimed and not yet recorded."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(d.work.inHand(slots)))
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	_, err = meter.Float64ObservableGauge("apipay.webhook.oldest_due", metric.WithUnit("s"),
		metric.WithDescription("How long the delivery that waits longest has been due, held ones included."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(time.Duration(m.oldest.Load()).Seconds())
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	_, err = meter.Int64ObservableGauge("apipay.webhook.consumer.lag",
		metric.WithDescription("Records of the topic that the consumer group has not taken, over all partitions; -1 while it is not known."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.consumerLag.Load())
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	_, err = meter.Int64ObservableGauge("apipay.webhook.secrets.stale",
		metric.WithDescription("Signing secrets that another key than the primary one sealed, at the last count."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.staleSecrets.Load())
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	if firstErr != nil {
		return nil, fmt.Errorf("making metrics: %w", firstErr)
	}
	return m, nil
}

func (m *metrics) materialized(ctx context.Context, records, deliveries int, took time.Duration) {
	m.records.Add(ctx, int64(records))
	m.deliveries.Add(ctx, int64(deliveries))
	m.materialTime.Record(ctx, took.Seconds())
}

func (m *metrics) quarantinedOne(ctx context.Context, reason string) {
	m.quarantined.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (m *metrics) claimed(ctx context.Context, n int, took time.Duration) {
	m.claimSize.Record(ctx, int64(n))
	m.claimTime.Record(ctx, took.Seconds())
}

func (m *metrics) attempted(ctx context.Context, a attempt, outcome string) {
	m.attempts.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome), attribute.String("error_class", string(a.result.Class))))
	if a.result.RemoteIP != "" {
		m.connections.Add(ctx, 1, metric.WithAttributes(attribute.Bool("reused", a.result.Reused)))
	}
	m.latency.Record(ctx, a.result.Phases.Total.Seconds())
	m.lag.Record(ctx, max(0, a.startedAt.Sub(a.DueAt)).Seconds())
}

func (m *metrics) recorded(ctx context.Context, took time.Duration) {
	m.recordTime.Record(ctx, took.Seconds())
}

func (m *metrics) lost(ctx context.Context, n int) { m.lostLeases.Add(ctx, int64(n)) }

// overdue notes how long the earliest row of an endpoint has been due.
func (m *metrics) overdue(wait time.Duration) {
	if late := int64(-wait); late > m.walking.Load() {
		m.walking.Store(late)
	}
}

// walked ends a walk over all endpoints: what it found is shown until the next one ends, however often it is read.
func (m *metrics) walked() { m.oldest.Store(m.walking.Swap(0)) }
