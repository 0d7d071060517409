package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/webhook-dispatcher/internal/post"
)

const userAgent = "ApiPay-Webhooks/1"

var tracer = otel.Tracer("apipay.io/hub/services/webhook-dispatcher")

// attempt is a claimed delivery with what became of it.
type attempt struct {
	*claimed
	result    post.Result
	id        uuid.UUID
	startedAt time.Time
	// lost: the lease ended without a result.
	lost bool
}

// send makes the attempt and passes its result on to be recorded. It never fails: what went wrong is the result.
func (d *Dispatcher) send(ctx context.Context, c *claimed) {
	a := attempt{claimed: c, id: beside(c.EventID), startedAt: d.timeFor(c)}
	ctx, span := startSpan(ctx, c)
	defer span.End()
	secrets, err := d.open(c.endpoint)
	switch {
	case d.clock().Sub(c.at) > d.config.Lease-d.config.Timeout-leaseMargin/2:
		// The process stood still: by the time of an answer the lease would be over, and somebody else sending.
		a.result.Ours = true
	case err != nil:
		a.result.Ours = true
		d.log.ErrorContext(ctx, "delivery.signing", "endpoint", id.Format(id.Endpoint, c.EndpointID), "error", err.Error())
	default:
		a.startedAt = d.timeFor(c)
		a.result = d.client.Post(ctx, post.Request{
			EndpointID: c.EndpointID,
			URL:        c.endpoint.URL,
			Header:     headers(ctx, c, a.startedAt, secrets),
			Body:       c.Body,
			Now:        a.startedAt,
		})
	}
	d.tell(ctx, span, a)
	if a.result.Ours {
		d.work.rest(c.EndpointID, d.clock().Add(hold))
	}
	d.inFlight.Add(-1)
	d.results <- a
}

func headers(ctx context.Context, c *claimed, t time.Time, secrets []webhook.Secret) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {userAgent},
	}
	webhook.Sign(id.Format(id.Event, c.EventID), t, c.Body, secrets...).Set(h)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}

func startSpan(ctx context.Context, c *claimed) (context.Context, trace.Span) {
	if c.Traceparent != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": *c.Traceparent})
	}
	return tracer.Start(ctx, "delivery.attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("event.type", c.EventType),
		attribute.String("delivery.id", id.Format(id.Delivery, c.ID)),
		attribute.Int("attempt.number", c.Number),
	))
}

// tell writes the wide line of the attempt: a success at debug, since there are thousands a second.
func (d *Dispatcher) tell(ctx context.Context, span trace.Span, a attempt) {
	level, outcome := slog.LevelDebug, "succeeded"
	switch {
	case a.result.Ours:
		outcome = "given_back"
	case !a.result.Succeeded():
		level, outcome = slog.LevelInfo, "failed"
		span.SetStatus(codes.Error, string(a.result.Class))
	}
	d.metrics.attempted(ctx, a, outcome)
	if !d.log.Enabled(ctx, level) {
		return
	}
	d.log.LogAttrs(ctx, level, "delivery.attempt",
		slog.String("delivery", id.Format(id.Delivery, a.ID)),
		slog.String("event", id.Format(id.Event, a.EventID)),
		slog.String("event_type", a.EventType),
		slog.String("endpoint", id.Format(id.Endpoint, a.EndpointID)),
		slog.String("tenant", id.Format(id.Tenant, a.TenantID)),
		slog.Bool("livemode", a.Livemode),
		slog.Int("number", a.Number),
		slog.String("trigger", a.Trigger),
		slog.String("outcome", outcome),
		slog.String("error_class", string(a.result.Class)),
		slog.Int("status_code", a.result.StatusCode),
		slog.Int64("latency_ms", a.result.Phases.Total.Milliseconds()),
		slog.Bool("connection_reused", a.result.Reused),
	)
}

// beside is a UUIDv7 of the event's millisecond.
func beside(eventID uuid.UUID) uuid.UUID { return id.NewAt(id.Time(eventID), 0) }

// secretCache keeps opened secrets by their row's id. Which secrets sign is read at each claim; what is kept here is only
// the decryption, and a row that was sealed anew is opened anew.
type secretCache struct {
	mu     sync.Mutex
	opened map[uuid.UUID]openedSecret
}

type openedSecret struct {
	ciphertext string
	secret     webhook.Secret
}

const cachedSecrets = 20_000

// open answers the endpoint's signing secrets, the active one first.
func (d *Dispatcher) open(g *gate) ([]webhook.Secret, error) {
	if len(g.SecretIDs) == 0 {
		return nil, fmt.Errorf("the endpoint has no signing secret")
	}
	secrets := make([]webhook.Secret, len(g.SecretIDs))
	d.secrets.mu.Lock()
	defer d.secrets.mu.Unlock()
	for i, secretID := range g.SecretIDs {
		if kept, ok := d.secrets.opened[secretID]; ok && kept.ciphertext == string(g.Secrets[i]) {
			secrets[i] = kept.secret
			continue
		}
		ref := webhook.SecretRef{TenantID: g.TenantID, Livemode: g.Livemode, EndpointID: g.ID, ID: secretID}
		secret, err := d.keys.current.Load().Open(g.Secrets[i], ref)
		if err != nil {
			return nil, err
		}
		if d.secrets.opened == nil || len(d.secrets.opened) >= cachedSecrets {
			d.secrets.opened = map[uuid.UUID]openedSecret{}
		}
		d.secrets.opened[secretID] = openedSecret{string(g.Secrets[i]), secret}
		secrets[i] = secret
	}
	return secrets, nil
}
