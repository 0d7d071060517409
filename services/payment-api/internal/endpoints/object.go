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
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/api"
)

// The states of an endpoint.
const (
	statusEnabled  = api.Enabled
	statusDisabled = api.Disabled

	// disabledByMerchant is the reason of an endpoint that its merchant switched off.
	disabledByMerchant = "requested"
)

// endpointRow is a row of webhook_endpoints, in the columns of endpointColumns.
type endpointRow struct {
	ID             uuid.UUID
	URL            string
	EnabledEvents  []string
	Description    *string
	Status         api.EndpointStatus
	DisabledReason *string
	Livemode       bool
	Version        int64
	CreatedAt      time.Time
}

const endpointColumns = `id, url, enabled_events, description, status, disabled_reason, livemode, version, created_at`

// object is the endpoint as the API and events show it.
func (r endpointRow) object() api.WebhookEndpoint {
	return api.WebhookEndpoint{
		ID: id.Format(id.Endpoint, r.ID), Object: api.WebhookEndpointObjectWebhookEndpoint, URL: r.URL, EnabledEvents: r.EnabledEvents,
		Description: r.Description, Status: r.Status, DisabledReason: r.DisabledReason, Livemode: r.Livemode,
		Created: r.CreatedAt.Unix(), Version: r.Version,
	}
}

// showing is the object with the secret that the request made; no other answer has it.
func (r endpointRow) showing(secret webhook.Secret) api.WebhookEndpointWithSecret {
	o := r.object()
	return api.WebhookEndpointWithSecret{
		ID: o.ID, Object: api.WebhookEndpointWithSecretObject(o.Object), URL: o.URL, EnabledEvents: o.EnabledEvents,
		Description: o.Description, Status: o.Status, DisabledReason: o.DisabledReason, Livemode: o.Livemode,
		Created: o.Created, Version: o.Version, Secret: secret.Reveal(),
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

// requireKnown is for what outlives an endpoint, its deliveries: a deleted one is still known.
func requireKnown(ctx context.Context, tx postgres.Tx, endpointID uuid.UUID) error {
	const query = `SELECT EXISTS (SELECT FROM apipay.webhook_endpoints WHERE id = $1)`
	var known bool
	if err := tx.QueryRow(ctx, query, endpointID).Scan(&known); err != nil {
		return fmt.Errorf("reading the webhook endpoint: %w", err)
	}
	if !known {
		return notFound(id.Endpoint)
	}
	return nil
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
