package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// endpointRow is an endpoint as its events show it.
type endpointRow struct {
	ID             uuid.UUID
	TenantID       uuid.UUID
	Livemode       bool
	URL            string
	EnabledEvents  []string
	Description    *string
	Status         string
	DisabledReason *string
	Version        int64
	CreatedAt      time.Time
}

type endpointObject struct {
	ID             string   `json:"id"`
	Object         string   `json:"object"`
	URL            string   `json:"url"`
	EnabledEvents  []string `json:"enabled_events"`
	Description    *string  `json:"description"`
	Status         string   `json:"status"`
	DisabledReason *string  `json:"disabled_reason"`
	Livemode       bool     `json:"livemode"`
	Created        int64    `json:"created"`
	Version        int64    `json:"version"`
}

// The guard makes it told once, by whichever dispatcher comes first; 0 rows are an endpoint that was disabled or deleted
// meanwhile.
const announceQuery = `
	UPDATE apipay.webhook_endpoints
	SET version = version + 1, updated_at = now(),
	    status = CASE WHEN $2::text IS NULL THEN status ELSE 'disabled' END,
	    disabled_reason = CASE WHEN $2::text IS NULL THEN disabled_reason ELSE $2 END
	WHERE id = $1 AND deleted_at IS NULL AND (status = 'enabled' OR $3)
	RETURNING id, tenant_id, livemode, url, enabled_events, description, status, disabled_reason, version, created_at`

// announce changes the endpoint and writes the event about it, in the transaction that records the attempt.
func announce(ctx context.Context, tx postgres.Tx, endpointID uuid.UUID, t tell) error {
	rows, err := tx.Query(ctx, announceQuery, endpointID, optional(t.reason), t.eventType == events.TypeWebhookEndpointRecovered)
	if err != nil {
		return fmt.Errorf("announcing %s: %w", t.eventType, err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[endpointRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("announcing %s: %w", t.eventType, err)
	}
	_, err = outbox.Insert(ctx, tx, outbox.Event{
		TenantID: e.TenantID, Livemode: e.Livemode, Topic: outbox.TopicWebhooks, Type: t.eventType,
		Object: endpointObject{
			ID: id.Format(id.Endpoint, e.ID), Object: events.ObjectWebhookEndpoint, URL: e.URL, EnabledEvents: e.EnabledEvents,
			Description: e.Description, Status: e.Status, DisabledReason: e.DisabledReason, Livemode: e.Livemode,
			Created: e.CreatedAt.Unix(), Version: e.Version,
		},
	})
	if err != nil || t.reason == "" {
		return err
	}
	return outbox.Audit(ctx, tx, outbox.AuditEntry{
		TenantID: e.TenantID, Livemode: e.Livemode, Actor: "webhook-dispatcher", Role: "system",
		Action: events.TypeWebhookEndpointDisabled, Target: id.Format(id.Endpoint, e.ID),
		Changes: map[string]any{"status": e.Status, "disabled_reason": t.reason},
	})
}
