package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// Why an event has no deliveries.
const (
	noneUnpublished  = "not_published"
	noneParked       = "parked"
	noneDiscarded    = "discarded"
	noneNotReceived  = "published_not_received"
	noneQuarantined  = "quarantined"
	noneNotWebhook   = "not_a_webhook_event"
	noneSubscribed   = "no_endpoint_matched"
	maxEventEndpoint = 100
)

// eventRow is what outbox and dispatcher know of one event; each may have dropped it already.
type eventRow struct {
	TenantID         uuid.UUID
	Livemode         bool
	Type             string
	Topic            string
	CreatedAt        time.Time
	InOutbox         bool
	PublishedAt      *time.Time
	KafkaPartition   *int
	KafkaOffset      *int64
	ParkedAt         *time.Time
	ParkedReason     *string
	DiscardedAt      *time.Time
	ReceivedAt       *time.Time
	EndpointsMatched *int
	QuarantineReason *string
}

type eventView struct {
	ID               string          `json:"id"`
	Object           string          `json:"object"`
	TenantID         string          `json:"tenant_id"`
	Livemode         bool            `json:"livemode"`
	Type             string          `json:"type"`
	Topic            string          `json:"topic"`
	CreatedAt        time.Time       `json:"created_at"`
	PublishedAt      *time.Time      `json:"published_at"`
	KafkaPartition   *int            `json:"kafka_partition"`
	KafkaOffset      *int64          `json:"kafka_offset"`
	ParkedAt         *time.Time      `json:"parked_at"`
	ParkedReason     *string         `json:"parked_reason"`
	DiscardedAt      *time.Time      `json:"discarded_at"`
	ReceivedAt       *time.Time      `json:"received_at"`
	EndpointsMatched *int            `json:"endpoints_matched"`
	Deliveries       []deliveryView  `json:"deliveries"`
	NoDeliveryReason *string         `json:"no_delivery_reason"`
	QuarantineReason *string         `json:"quarantine_reason"`
	Endpoints        []eventEndpoint `json:"endpoints"`
}

// eventEndpoint tells of one endpoint of the tenant and mode whether the event went there, and if not, why.
type eventEndpoint struct {
	ID      string  `json:"id"`
	URL     string  `json:"url"`
	Status  string  `json:"status"`
	Matched bool    `json:"matched"`
	Reason  *string `json:"reason"`
}

func (a *API) readEvent(c *call) error {
	eventID, err := c.pathID("event", id.Event)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var view eventView
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) error {
		row, err := findEvent(ctx, tx, eventID)
		if err != nil {
			return err
		}
		rows, err := collect[deliveryRow](ctx, tx, completeDeliveries(
			`SELECT * FROM apipay.outbound_webhook_deliveries WHERE event_id = $1`), eventID)
		if err != nil {
			return err
		}
		deliveries, err := withAttempts(ctx, tx, rows, attemptsListed, excerptListed)
		if err != nil {
			return err
		}
		view = row.view(eventID, deliveries)
		view.Endpoints, err = eventEndpoints(ctx, tx, row, rows)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, view)
}

// findEvent asks the dispatcher's table and the outbox; each keeps events for a time of its own.
func findEvent(ctx context.Context, tx postgres.Tx, eventID uuid.UUID) (eventRow, error) {
	const query = `
		SELECT coalesce(w.tenant_id, o.tenant_id) AS tenant_id, coalesce(w.livemode, o.livemode) AS livemode,
		       coalesce(w.type, o.type) AS type, coalesce(o.topic, w.kafka_topic) AS topic,
		       coalesce(o.created_at, w.event_created_at) AS created_at, o.id IS NOT NULL AS in_outbox, o.published_at,
		       coalesce(w.kafka_partition, o.kafka_partition) AS kafka_partition, coalesce(w.kafka_offset, o.kafka_offset) AS kafka_offset,
		       o.parked_at, o.parked_reason, o.discarded_at, w.received_at, w.endpoints_matched,
		       (SELECT q.reason FROM apipay.quarantined_records q
		        WHERE q.kafka_topic = o.topic AND q.kafka_partition = o.kafka_partition AND q.kafka_offset = o.kafka_offset) AS quarantine_reason
		FROM (SELECT * FROM apipay.webhook_events WHERE event_id = $1) w
		FULL JOIN (SELECT * FROM apipay.outbox_events WHERE id = $1) o ON o.id = w.event_id`
	row, err := one[eventRow](ctx, tx, query, eventID)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, notFound()
	}
	return row, err
}

func (r eventRow) view(eventID uuid.UUID, deliveries []deliveryView) eventView {
	v := eventView{
		ID: id.Format(id.Event, eventID), Object: "event", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		Type: r.Type, Topic: r.Topic, CreatedAt: utc(r.CreatedAt), PublishedAt: utcOrNull(r.PublishedAt),
		KafkaPartition: r.KafkaPartition, KafkaOffset: r.KafkaOffset, ParkedAt: utcOrNull(r.ParkedAt), ParkedReason: r.ParkedReason,
		DiscardedAt: utcOrNull(r.DiscardedAt), ReceivedAt: utcOrNull(r.ReceivedAt), EndpointsMatched: r.EndpointsMatched,
		Deliveries: deliveries, QuarantineReason: r.QuarantineReason,
	}
	if reason := r.noDeliveryReason(len(deliveries)); reason != "" {
		v.NoDeliveryReason = &reason
	}
	return v
}

func (r eventRow) noDeliveryReason(deliveries int) string {
	switch {
	case deliveries > 0:
		return ""
	case r.Topic != outbox.TopicWebhooks:
		return noneNotWebhook
	case r.ReceivedAt != nil:
		return noneSubscribed
	case r.DiscardedAt != nil:
		return noneDiscarded
	case r.ParkedAt != nil:
		return noneParked
	case r.PublishedAt == nil:
		return noneUnpublished
	case r.QuarantineReason != nil:
		return noneQuarantined
	}
	return noneNotReceived
}

// eventEndpoints repeats the dispatcher's rule for the endpoints as they are now.
func eventEndpoints(ctx context.Context, tx postgres.Tx, event eventRow, deliveries []deliveryRow) ([]eventEndpoint, error) {
	if event.Topic != outbox.TopicWebhooks {
		return nil, nil
	}
	rows, err := collect[endpointRow](ctx, tx, selectEndpoint+`
		WHERE e.tenant_id = $1 AND e.livemode = $2 ORDER BY e.deleted_at IS NOT NULL, e.created_at DESC, e.id DESC LIMIT $3`,
		event.TenantID, event.Livemode, maxEventEndpoint)
	if err != nil {
		return nil, err
	}
	list := make([]eventEndpoint, len(rows))
	for i, endpoint := range rows {
		list[i] = eventEndpoint{ID: id.Format(id.Endpoint, endpoint.ID), URL: endpoint.URL, Status: endpoint.Status}
		if endpoint.DeletedAt != nil {
			list[i].Status = "deleted"
		}
		list[i].Matched = slices.ContainsFunc(deliveries, func(d deliveryRow) bool { return d.EndpointID == endpoint.ID })
		if reason := event.mismatch(endpoint); !list[i].Matched {
			list[i].Reason = &reason
		}
	}
	return list, nil
}

func (r eventRow) mismatch(endpoint endpointRow) string {
	switch {
	case r.ReceivedAt == nil:
		return "event_not_received"
	case endpoint.CreatedAt.Truncate(time.Second).After(r.CreatedAt.Truncate(time.Second)):
		return "created_after_event"
	case endpoint.DeletedAt != nil:
		return "deleted"
	case r.Type == events.TypePing:
		return "ping_of_another_endpoint"
	case !slices.Contains(endpoint.EnabledEvents, everyEvent) && !slices.Contains(endpoint.EnabledEvents, r.Type):
		return "not_subscribed"
	}
	// Its subscription was changed since, or the event is about the endpoint itself.
	return "not_subscribed_then"
}
