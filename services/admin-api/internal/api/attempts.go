package api

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"apipay.io/hub/pkg/postgres"
)

const (
	// In a list the newest attempts and the beginning of each answer: a page must not weigh megabytes.
	attemptsListed = 20
	excerptListed  = 1024
	// Of one delivery by itself as good as all: retries by hand have no limit.
	attemptsShown = 1000
	excerptShown  = 16384
)

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

type attemptView struct {
	Number          int            `json:"number"`
	Trigger         string         `json:"trigger"`
	Outcome         string         `json:"outcome"`
	StartedAt       time.Time      `json:"started_at"`
	LatencyMS       *int           `json:"latency_ms"`
	PhasesMS        jsontext.Value `json:"phases_ms"`
	RemoteIP        *string        `json:"remote_ip"`
	StatusCode      *int           `json:"status_code"`
	ErrorClass      *string        `json:"error_class"`
	ResponseExcerpt *string        `json:"response_excerpt"`
}

// withAttempts completes deliveries by the newest attempts of each, oldest first.
func withAttempts(ctx context.Context, tx postgres.Tx, list []deliveryRow, most, excerpt int) ([]deliveryView, error) {
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
	attempts, err := collect[attemptRow](ctx, tx, query, eventIDs, ids, most, excerpt)
	if err != nil {
		return nil, fmt.Errorf("reading attempts: %w", err)
	}
	byDelivery := map[uuid.UUID][]attemptView{}
	for _, row := range attempts {
		byDelivery[row.DeliveryID] = append(byDelivery[row.DeliveryID], attemptView{
			Number: row.Number, Trigger: row.Trigger, Outcome: row.Outcome, StartedAt: utc(row.StartedAt),
			LatencyMS: row.LatencyMS, PhasesMS: row.PhasesMS, RemoteIP: row.RemoteIP, StatusCode: row.StatusCode,
			ErrorClass: row.ErrorClass, ResponseExcerpt: row.ResponseExcerpt,
		})
	}
	views := make([]deliveryView, len(list))
	for i, row := range list {
		views[i] = row.view(byDelivery[row.ID])
	}
	return views, nil
}
