package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
)

const (
	// attemptsShown are the newest attempts of one delivery: retries by hand have no limit.
	attemptsShown = 20
	// excerptShown are the first characters of an answer: a page of deliveries must not weigh megabytes.
	excerptShown = 1024
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

// A due delivery of an endpoint whose breaker is open is held: it waits for the probe, whatever next_attempt_at says. A
// breaker from before the endpoint was last switched on holds nothing.
const selectDelivery = `
	SELECT d.event_id, d.endpoint_id, d.id, d.tenant_id, d.livemode, d.event_type, d.status, d.attempt_count,
	       d.next_attempt_at, d.delivered_at, d.failed_at, d.failure_reason, d.created_at, e.url AS endpoint_url,
	       CASE WHEN s.breaker_opened_at IS NOT NULL AND d.lease_until IS NULL AND d.next_attempt_at <= now()
	            THEN 'endpoint_unreachable' END AS held
	FROM apipay.outbound_webhook_deliveries d
	JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id
	LEFT JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = e.id AND s.counted_from = e.enabled_at`

func (r deliveryRow) object(attempts []api.DeliveryAttempt) api.Delivery {
	return api.Delivery{
		ID: id.Format(id.Delivery, r.ID), Object: api.WebhookDelivery, TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		EndpointID: id.Format(id.Endpoint, r.EndpointID), EndpointURL: r.EndpointURL,
		EventID: id.Format(id.Event, r.EventID), EventType: r.EventType,
		Status: api.DeliveryStatus(r.Status), AttemptCount: r.AttemptCount, NextAttemptAt: unix(r.NextAttemptAt), Held: r.Held,
		DeliveredAt: unix(r.DeliveredAt), FailedAt: unix(r.FailedAt), FailureReason: r.FailureReason,
		CreatedAt: r.CreatedAt.Unix(), Attempts: attempts,
	}
}

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

type attemptRow struct {
	DeliveryID      uuid.UUID
	Number          int
	Trigger         string
	Outcome         string
	StartedAt       time.Time
	LatencyMS       *int
	PhasesMS        []byte
	RemoteIP        *string
	StatusCode      *int
	ErrorClass      *string
	ResponseExcerpt *string
}

// withAttempts completes rows by the newest attempts of each, oldest first.
func withAttempts(ctx context.Context, tx postgres.Tx, list []deliveryRow) ([]api.Delivery, error) {
	const query = `
		SELECT a.* FROM unnest($1::uuid[], $2::uuid[]) AS d (event_id, id)
		CROSS JOIN LATERAL (
		    SELECT delivery_id, number, trigger, outcome, started_at, latency_ms, phases_ms, remote_ip, status_code, error_class,
		           left(response_excerpt, $4) AS response_excerpt
		    FROM apipay.outbound_webhook_attempts
		    WHERE event_id = d.event_id AND delivery_id = d.id
		    ORDER BY started_at DESC, number DESC LIMIT $3) a
		ORDER BY a.delivery_id, a.started_at, a.number`
	eventIDs, ids := make([]uuid.UUID, len(list)), make([]uuid.UUID, len(list))
	for i, row := range list {
		eventIDs[i], ids[i] = row.EventID, row.ID
	}
	rows, err := tx.Query(ctx, query, eventIDs, ids, attemptsShown, excerptShown)
	if err != nil {
		return nil, fmt.Errorf("reading attempts: %w", err)
	}
	attempts, err := pgx.CollectRows(rows, pgx.RowToStructByName[attemptRow])
	if err != nil {
		return nil, fmt.Errorf("reading attempts: %w", err)
	}
	byDelivery := map[uuid.UUID][]api.DeliveryAttempt{}
	for _, a := range attempts {
		byDelivery[a.DeliveryID] = append(byDelivery[a.DeliveryID], api.DeliveryAttempt{
			Number: a.Number, Trigger: api.DeliveryAttemptTrigger(a.Trigger), Outcome: api.DeliveryAttemptOutcome(a.Outcome), StartedAt: a.StartedAt.Unix(), LatencyMS: a.LatencyMS,
			PhasesMS: a.PhasesMS, RemoteIP: a.RemoteIP, StatusCode: a.StatusCode, ErrorClass: a.ErrorClass,
			ResponseExcerpt: a.ResponseExcerpt,
		})
	}
	deliveries := make([]api.Delivery, len(list))
	for i, row := range list {
		deliveries[i] = row.object(byDelivery[row.ID])
	}
	return deliveries, nil
}

// findDelivery reads a delivery of the endpoint. Its id carries the event's millisecond: the range prunes to one week.
func findDelivery(ctx context.Context, tx postgres.Tx, endpointID, deliveryID uuid.UUID) (api.Delivery, error) {
	const query = selectDelivery + ` WHERE d.event_id BETWEEN $1 AND $2 AND d.id = $3 AND d.endpoint_id = $4`
	low, high := id.SameMillisecond(deliveryID)
	rows, err := tx.Query(ctx, query, low, high, deliveryID, endpointID)
	if err != nil {
		return api.Delivery{}, fmt.Errorf("reading the delivery: %w", err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[deliveryRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return api.Delivery{}, notFound(id.Delivery)
	}
	if err != nil {
		return api.Delivery{}, fmt.Errorf("reading the delivery: %w", err)
	}
	list, err := withAttempts(ctx, tx, []deliveryRow{row})
	if err != nil {
		return api.Delivery{}, err
	}
	return list[0], nil
}
