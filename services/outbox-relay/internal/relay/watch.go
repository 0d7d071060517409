package relay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/proto/events"
)

const (
	watchInterval = 5 * time.Second
	// replayInterval is how soon a replay that support asked for begins.
	replayInterval = time.Second
)

// metrics are the relay's instruments and the last picture of the outbox.
type metrics struct {
	publishedTotal metric.Int64Counter
	parkedTotal    metric.Int64Counter
	failedTotal    metric.Int64Counter
	batchSize      metric.Int64Histogram
	produceTime    metric.Float64Histogram
	claimTime      metric.Float64Histogram
	markTime       metric.Float64Histogram
	registration   metric.Registration

	mu           sync.Mutex
	seenAt       time.Time
	ages         map[string]time.Duration // of the oldest pending event, by topic, at seenAt
	parked       int64
	defaultBytes map[string]int64 // by table
	blocked      bool
	attributes   map[string]metric.MeasurementOption
}

func newMetrics() (*metrics, error) {
	meter := otel.Meter("apipay.io/hub/services/outbox-relay")
	m := &metrics{ages: map[string]time.Duration{}, attributes: map[string]metric.MeasurementOption{}}
	for _, topic := range events.Topics() {
		m.attributes[topic] = metric.WithAttributeSet(attribute.NewSet(attribute.String("topic", topic)))
	}
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10)
	var errs [12]error
	m.publishedTotal, errs[0] = meter.Int64Counter("apipay.outbox.published", metric.WithDescription("Events that the broker confirmed and that were marked."))
	m.parkedTotal, errs[1] = meter.Int64Counter("apipay.outbox.parking", metric.WithDescription("Events that the broker refused for themselves."))
	m.failedTotal, errs[2] = meter.Int64Counter("apipay.outbox.produce.failures", metric.WithDescription("Batches that the broker did not take, by whose fault it was."))
	m.batchSize, errs[3] = meter.Int64Histogram("apipay.outbox.batch.size", metric.WithUnit("{event}"), metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000))
	m.produceTime, errs[4] = meter.Float64Histogram("apipay.outbox.produce.duration", metric.WithUnit("s"), seconds)
	m.claimTime, errs[5] = meter.Float64Histogram("apipay.outbox.claim.duration", metric.WithUnit("s"), seconds)
	m.markTime, errs[6] = meter.Float64Histogram("apipay.outbox.mark.duration", metric.WithUnit("s"), seconds)
	oldest, err := meter.Float64ObservableGauge("apipay.outbox.oldest_pending", metric.WithUnit("s"), metric.WithDescription("Age of the oldest pending event."))
	errs[7] = err
	parked, err := meter.Int64ObservableGauge("apipay.outbox.parked", metric.WithUnit("{event}"), metric.WithDescription("Events that are parked now, up to 10000."))
	errs[8] = err
	defaultBytes, err := meter.Int64ObservableGauge("apipay.partition.default", metric.WithUnit("By"), metric.WithDescription("Size of a table's partition for ids that no week covers; above 0 is an alert."))
	errs[9] = err
	blocked, err := meter.Int64ObservableGauge("apipay.outbox.blocked", metric.WithDescription("1 while a broker, a topic or a lane cannot be written."))
	errs[10] = err
	m.registration, errs[11] = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, topic := range events.Topics() {
			o.ObserveFloat64(oldest, m.ageOf(topic).Seconds(), m.attributes[topic])
		}
		o.ObserveInt64(parked, m.parked)
		for table, bytes := range m.defaultBytes {
			o.ObserveInt64(defaultBytes, bytes, metric.WithAttributes(attribute.String("table", table)))
		}
		o.ObserveInt64(blocked, btoi(m.blocked))
		return nil
	}, oldest, parked, defaultBytes, blocked)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("making metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) close() { _ = m.registration.Unregister() } // nothing is left to observe

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) topic(name string) metric.MeasurementOption { return m.attributes[name] }

func (m *metrics) produced(ctx context.Context, topic string, took time.Duration, size int, err error) {
	m.produceTime.Record(ctx, took.Seconds(), m.topic(topic))
	m.batchSize.Record(ctx, int64(size), m.topic(topic))
	if err != nil {
		m.failedTotal.Add(ctx, 1, m.topic(topic), metric.WithAttributes(attribute.String("fault", string(classify(err)))))
	}
}

func (m *metrics) claimed(ctx context.Context, took time.Duration) {
	m.claimTime.Record(ctx, took.Seconds())
}

func (m *metrics) marked(ctx context.Context, took time.Duration) {
	m.markTime.Record(ctx, took.Seconds())
}

func (m *metrics) published(ctx context.Context, topic string, published, parked int) {
	m.publishedTotal.Add(ctx, int64(published), m.topic(topic))
	if parked > 0 {
		m.parkedTotal.Add(ctx, int64(parked), m.topic(topic))
	}
}

func (m *metrics) setBlocked(reasons []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocked = len(reasons) > 0
}

func (m *metrics) isBlocked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blocked
}

// ageOf grows between two looks at the outbox: also while the database is away.
func (m *metrics) ageOf(topic string) time.Duration {
	if age := m.ages[topic]; age > 0 {
		return age + time.Since(m.seenAt)
	}
	return 0
}

// oldest is the age of the topic's oldest pending event in seconds.
func (m *metrics) oldest(topic string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ageOf(topic).Seconds()
}

func (m *metrics) oldestOfAll() float64 {
	oldest := 0.0
	for _, topic := range events.Topics() {
		oldest = max(oldest, m.oldest(topic))
	}
	return oldest
}

// countParked never counts without a bound.
const countParked = `
	SELECT (SELECT count(*) FROM (SELECT FROM apipay.outbox_events WHERE parked_at IS NOT NULL AND discarded_at IS NULL LIMIT 10000) p),
	       pg_relation_size('apipay.outbox_events_default'), pg_relation_size('apipay.webhook_events_default'),
	       pg_relation_size('apipay.outbound_webhook_deliveries_default'), pg_relation_size('apipay.outbound_webhook_attempts_default')`

// watchOutbox measures the outbox and acts on replays, also while Kafka is away.
func (r *Relay) watchOutbox(ctx context.Context) error {
	loop := r.health.Loop("outbox", loopSilence)
	var measuredAt time.Time
	for {
		loop.Tick()
		err := func() error {
			if time.Since(measuredAt) >= r.watchEvery {
				if err := r.measure(ctx); err != nil {
					return err
				}
				measuredAt = time.Now()
			}
			replayed, err := r.unpark(ctx)
			if replayed > 0 {
				r.log.InfoContext(ctx, "events.replayed", "count", replayed)
			}
			return err
		}()
		if err != nil && ctx.Err() == nil {
			r.floors.reset()
			r.lines.warn(ctx, "outbox.watch", "error", err.Error())
		}
		if !sleep(ctx, min(replayInterval, r.watchEvery)) {
			return ctx.Err()
		}
	}
}

// measure takes the picture that the gauges show. The first pending event of a lane stands for its oldest:
// seq follows created_at but for transactions that were open at once.
func (r *Relay) measure(ctx context.Context) error {
	heads, err := r.survey(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(quiet(ctx), statementTimeout)
	defer cancel()
	var parked, outbox, events, deliveries, attempts int64
	if err := r.pool.QueryRow(ctx, countParked).Scan(&parked, &outbox, &events, &deliveries, &attempts); err != nil {
		return fmt.Errorf("counting parked events: %w", err)
	}
	m := r.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seenAt, m.parked = time.Now(), parked
	m.defaultBytes = map[string]int64{
		"outbox_events": outbox, "webhook_events": events, "outbound_webhook_deliveries": deliveries, "outbound_webhook_attempts": attempts,
	}
	clear(m.ages)
	for _, h := range heads {
		m.ages[h.Topic] = max(m.ages[h.Topic], time.Duration(h.Age*float64(time.Second)))
	}
	return nil
}

func eventText(u uuid.UUID) string { return id.Format(id.Event, u) }

// line is a log line that is written at most once per interval.
type line struct {
	log      *slog.Logger
	interval time.Duration
	mu       sync.Mutex
	last     time.Time
}

func (l *line) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) < l.interval {
		return false
	}
	l.last = time.Now()
	return true
}

func (l *line) warn(ctx context.Context, message string, args ...any) {
	if l.due() {
		l.log.WarnContext(ctx, message, args...)
	}
}
