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
	"apipay.io/hub/proto/events"
)

// The states of an endpoint.
const (
	statusEnabled  = "enabled"
	statusDisabled = "disabled"

	// disabledByMerchant is the reason of an endpoint that its merchant switched off.
	disabledByMerchant = "requested"
)

// endpointRow is a row of webhook_endpoints, in the columns of endpointColumns.
type endpointRow struct {
	ID             uuid.UUID
	URL            string
	EnabledEvents  []string
	Description    *string
	Status         string
	DisabledReason *string
	Livemode       bool
	Version        int64
	CreatedAt      time.Time
}

const endpointColumns = `id, url, enabled_events, description, status, disabled_reason, livemode, version, created_at`

// Object is a webhook endpoint as the API and events show it.
type Object struct {
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
	// Secret is there only in the answers that create it.
	Secret string `json:"secret,omitzero"`
}

func (r endpointRow) object() Object {
	return Object{
		ID: id.Format(id.Endpoint, r.ID), Object: events.ObjectWebhookEndpoint, URL: r.URL, EnabledEvents: r.EnabledEvents,
		Description: r.Description, Status: r.Status, DisabledReason: r.DisabledReason, Livemode: r.Livemode,
		Created: r.CreatedAt.Unix(), Version: r.Version,
	}
}

// find reads an endpoint that is not deleted; lock also keeps others from changing it.
func find(ctx context.Context, tx postgres.Tx, endpointID uuid.UUID, lock bool) (endpointRow, error) {
	const query = `SELECT ` + endpointColumns + ` FROM apipay.webhook_endpoints WHERE id = $1 AND deleted_at IS NULL`
	const locked = query + ` FOR UPDATE`
	statement := query
	if lock {
		statement = locked
	}
	rows, err := tx.Query(ctx, statement, endpointID)
	if err != nil {
		return endpointRow{}, fmt.Errorf("reading the webhook endpoint: %w", err)
	}
	return one(rows)
}

// one collects the row of a statement that answers an endpoint or nothing.
func one(rows pgx.Rows) (endpointRow, error) {
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[endpointRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return endpointRow{}, notFound(id.Endpoint)
	}
	if err != nil {
		return endpointRow{}, fmt.Errorf("reading the webhook endpoint: %w", err)
	}
	return row, nil
}
