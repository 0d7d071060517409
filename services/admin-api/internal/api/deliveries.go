package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
)

type deliveryRow struct {
	EventID       uuid.UUID
	EndpointID    uuid.UUID
	ID            uuid.UUID
	TenantID      uuid.UUID
	Livemode      bool
	EventType     string
	Status        string
	AttemptCount  int
	NextAttemptAt *time.Time
	Held          *string
	DeliveredAt   *time.Time
	FailedAt      *time.Time
	FailureReason *string
	CreatedAt     time.Time
	EndpointURL   string
}

type deliveryView struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	TenantID      string        `json:"tenant_id"`
	Livemode      bool          `json:"livemode"`
	EndpointID    string        `json:"endpoint_id"`
	EndpointURL   string        `json:"endpoint_url"`
	EventID       string        `json:"event_id"`
	EventType     string        `json:"event_type"`
	Status        string        `json:"status"`
	AttemptCount  int           `json:"attempt_count"`
	NextAttemptAt *time.Time    `json:"next_attempt_at"`
	Held          *string       `json:"held"`
	DeliveredAt   *time.Time    `json:"delivered_at"`
	FailedAt      *time.Time    `json:"failed_at"`
	FailureReason *string       `json:"failure_reason"`
	CreatedAt     time.Time     `json:"created_at"`
	Attempts      []attemptView `json:"attempts"`
}

func (r deliveryRow) view(attempts []attemptView) deliveryView {
	return deliveryView{
		ID: id.Format(id.Delivery, r.ID), Object: "webhook_delivery", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		EndpointID: id.Format(id.Endpoint, r.EndpointID), EndpointURL: r.EndpointURL,
		EventID: id.Format(id.Event, r.EventID), EventType: r.EventType, Status: r.Status, AttemptCount: r.AttemptCount,
		NextAttemptAt: utcOrNull(r.NextAttemptAt), Held: r.Held, DeliveredAt: utcOrNull(r.DeliveredAt),
		FailedAt: utcOrNull(r.FailedAt), FailureReason: r.FailureReason, CreatedAt: utc(r.CreatedAt), Attempts: attempts,
	}
}

const deliveryOrder = ` ORDER BY d.event_id DESC, d.endpoint_id DESC `

// completeDeliveries adds to some rows of deliveries, named d, what other tables know of them. A due delivery of an
// endpoint whose breaker is open is held: it waits for the probe, whatever next_attempt_at says. A breaker
// from before the endpoint was last switched on holds nothing.
func completeDeliveries(d string) string {
	return `
		SELECT d.event_id, d.endpoint_id, d.id, d.tenant_id, d.livemode, d.event_type, d.status, d.attempt_count,
		       d.next_attempt_at, d.delivered_at, d.failed_at, d.failure_reason, d.created_at, e.url AS endpoint_url,
		       CASE WHEN s.breaker_opened_at IS NOT NULL AND d.lease_until IS NULL AND d.next_attempt_at <= now()
		            THEN 'endpoint_unreachable' END AS held
		FROM (` + d + `) d
		JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id
		LEFT JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = e.id AND s.counted_from = e.enabled_at` + deliveryOrder
}

var deliveryStatuses = []string{
	string(webhook.StatusPending), string(webhook.StatusRetrying), string(webhook.StatusDelivered), string(webhook.StatusFailed),
}

type deliveryFilter struct {
	where
	// endpoint or else tenants say whose deliveries; both nil is everybody's.
	endpoint *uuid.UUID
	tenants  []uuid.UUID
	status   string
	limit    int
}

func (a *API) listDeliveries(c *call) error {
	q := httpapi.NewQuery(c.Request())
	f := deliveryFilter{limit: q.Limit()}
	f.tenants = c.tenantsAsked(q)
	if endpoint, ok := idParam(q, "endpoint", id.Endpoint); ok {
		f.endpoint = &endpoint
	}
	if event, ok := idParam(q, "event", id.Event); ok {
		f.add("d.event_id = ?", event)
	}
	f.status, _ = q.Enum("status", deliveryStatuses...)
	// By the event's time, which the ids carry: only so a span of time is a range of the index and of the weeks.
	from, to := span(q)
	if from != nil {
		f.add("d.event_id >= ?", firstIDOf(*from))
	}
	if to != nil {
		f.add("d.event_id < ?", firstIDFrom(*to))
	}
	scope := c.scopeOf("deliveries")
	after, paging := q.Cursor(a.cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	var rows []deliveryRow
	var views []deliveryView
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if paging {
			if err := f.after(ctx, tx, after.ID); err != nil {
				return err
			}
		}
		if f.status != string(webhook.StatusPending) {
			// The indexes have the list's order. Who guesses that few match sorts them all instead: here that is never better.
			const query = `SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`
			if _, err := tx.Exec(ctx, query); err != nil {
				return err
			}
		}
		if rows, err = collect[deliveryRow](ctx, tx, f.query(), f.args...); err != nil {
			return err
		}
		views, err = withAttempts(ctx, tx, rows[:min(len(rows), f.limit)], attemptsListed, excerptListed)
		return err
	})
	if err != nil {
		return err
	}
	page := httpapi.NewList(views, "")
	if len(rows) > f.limit {
		last := rows[f.limit-1]
		page = httpapi.NewList(views, a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID}))
	}
	return httpapi.JSON(c, http.StatusOK, page)
}

// after continues behind a delivery, whose own id leads to its place in the list's order.
func (f *deliveryFilter) after(ctx context.Context, tx postgres.Tx, delivery uuid.UUID) error {
	const query = `
		SELECT event_id, endpoint_id FROM apipay.outbound_webhook_deliveries
		WHERE event_id BETWEEN $1 AND $2 AND id = $3`
	low, high := id.SameMillisecond(delivery)
	var event, endpoint uuid.UUID
	err := tx.QueryRow(ctx, query, low, high, delivery).Scan(&event, &endpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		// Its week was dropped meanwhile, and with it everything older.
		f.add("d.event_id < ?", low)
		return nil
	}
	if err != nil {
		return err
	}
	f.add("(d.event_id, d.endpoint_id) < (?, ?)", event, endpoint)
	return nil
}

// query walks the index that fits. What failed or retries has indexes of its own. What was not sent yet is few among many: two
// small partial indexes hold it, one for what waits and one for what is in flight, and each is asked for its newest.
func (f *deliveryFilter) query() string {
	limit := " LIMIT " + f.bind(f.limit+1)
	whose := f.whose()
	branch := func(status string) string {
		conditions := f.conditions
		if status != "" {
			conditions = append(slices.Clone(f.conditions), status)
		}
		text := `SELECT d.* FROM apipay.outbound_webhook_deliveries d`
		if len(conditions) > 0 {
			text += ` WHERE ` + strings.Join(conditions, " AND ")
		}
		text += deliveryOrder + limit
		if whose != "" {
			text = `SELECT d.* FROM ` + whose + ` CROSS JOIN LATERAL (` + text + `) d` + deliveryOrder + limit
		}
		return text
	}
	switch webhook.DeliveryStatus(f.status) {
	case webhook.StatusFailed:
		return completeDeliveries(branch("d.status = 'FAILED'"))
	case webhook.StatusDelivered:
		return completeDeliveries(branch("d.status = 'DELIVERED'"))
	case webhook.StatusPending:
		return completeDeliveries(`SELECT d.* FROM ((` + branch("d.status = 'PENDING' AND d.lease_until IS NULL") + `) UNION ALL (` +
			branch("d.status = 'PENDING' AND d.lease_until IS NOT NULL") + `)) d` + deliveryOrder + limit)
	case webhook.StatusRetrying:
		return completeDeliveries(branch("d.status = 'RETRYING'"))
	}
	return completeDeliveries(branch(""))
}

// whose binds the endpoint or the tenants as rows to join and not as constants. A constant lets the planner guess by how many
// deliveries the tenant has, as if each state were spread evenly over the tenants, and walk the newest of everybody in search of
// what a large tenant may have none of; of a row to join it knows only that it is one of many, and takes the index by tenant.
//
// What was not sent yet has no index by tenant, which every delivery would pay for: there the guess is wanted.
func (f *deliveryFilter) whose() string {
	switch {
	case f.status == string(webhook.StatusPending):
		if f.endpoint != nil {
			f.add("d.endpoint_id = ?", *f.endpoint)
		}
		f.ofTenants("d.tenant_id", f.tenants)
	case f.endpoint != nil:
		// An endpoint that the reader does not see, or of another tenant than asked for, has no row here to look further from.
		from := "(SELECT e.id AS asked FROM apipay.webhook_endpoints e WHERE e.id = " + f.bind(*f.endpoint)
		if f.tenants != nil {
			from += " AND e.tenant_id = ANY (" + f.bind(f.tenants) + "::uuid[])"
		}
		f.conditions = append(f.conditions, "d.endpoint_id = w.asked")
		return from + ") w"
	case f.tenants != nil:
		from := "unnest(" + f.bind(f.tenants) + "::uuid[]) AS w (asked)"
		f.conditions = append(f.conditions, "d.tenant_id = w.asked")
		return from
	}
	return ""
}

func (a *API) readDelivery(c *call) error {
	delivery, err := c.pathID("delivery", id.Delivery)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var view deliveryView
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		view, err = findDelivery(ctx, tx, delivery)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, view)
}

// findDelivery reads one delivery with its attempts. The millisecond of its id prunes to one week.
func findDelivery(ctx context.Context, tx postgres.Tx, delivery uuid.UUID) (deliveryView, error) {
	low, high := id.SameMillisecond(delivery)
	row, err := one[deliveryRow](ctx, tx, completeDeliveries(`
		SELECT * FROM apipay.outbound_webhook_deliveries WHERE event_id BETWEEN $1 AND $2 AND id = $3`), low, high, delivery)
	if err != nil {
		return deliveryView{}, err
	}
	views, err := withAttempts(ctx, tx, []deliveryRow{row}, attemptsShown, excerptShown)
	if err != nil {
		return deliveryView{}, err
	}
	return views[0], nil
}

// retryDelivery asks for the delivery to be sent again; the dispatcher does it.
func (a *API) retryDelivery(c *call) error {
	delivery, err := c.pathID("delivery", id.Delivery)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body retryBody
	if _, err := httpapi.Bind(c, &body, httpapi.AllowEmpty()); err != nil {
		return err
	}
	var view deliveryView
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		retried, err := webhook.RequestRetry(ctx, tx, webhook.DeliveryRef{ID: delivery}, body.Force.Or(false))
		if err != nil {
			return err
		}
		entry := c.audit(retried.TenantID, retried.Livemode, id.Format(id.Delivery, delivery))
		entry.Changes = map[string]any{
			"event": id.Format(id.Event, retried.EventID), "endpoint": id.Format(id.Endpoint, retried.EndpointID),
			"status": string(webhook.StatusPending), "prior_status": string(retried.PriorStatus), "force": body.Force.Or(false),
		}
		if err := outbox.Audit(ctx, tx, entry); err != nil {
			return err
		}
		if err := linkTrace(ctx, tx, retried.EventID); err != nil {
			return err
		}
		view, err = findDelivery(ctx, tx, delivery)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusAccepted, view)
}

// linkTrace ties the request's span to the trace of what the event tells of: the attempt that follows belongs to that one.
func linkTrace(ctx context.Context, tx postgres.Tx, event uuid.UUID) error {
	const query = `SELECT coalesce(traceparent, '') FROM apipay.webhook_events WHERE event_id = $1`
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return nil
	}
	var traceparent string
	if err := tx.QueryRow(ctx, query, event).Scan(&traceparent); err != nil {
		return fmt.Errorf("reading the event's trace: %w", err)
	}
	of := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	span.AddLink(trace.LinkFromContext(of))
	return nil
}
