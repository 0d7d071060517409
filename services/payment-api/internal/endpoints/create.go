package endpoints

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// CreateWebhookEndpoint implements api.Server.
func (e *Endpoints) CreateWebhookEndpoint(c echo.Context) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var in api.WebhookEndpointCreate
	raw, err := httpapi.Bind(c, &in)
	if err != nil {
		return err
	}
	fields := e.checkURL(in.URL)
	fields = append(fields, checkEvents(in.EnabledEvents)...)
	fields = append(fields, checkDescription(in.Description.Ptr())...)
	if err := refuse(fields); err != nil {
		return err
	}
	return e.write(c, raw, http.StatusCreated, func(ctx context.Context, tx postgres.Tx) (any, error) {
		principal := auth.FromContext(c)
		row, err := insert(ctx, tx, principal.Scope, in)
		if err != nil {
			return nil, err
		}
		secret, err := e.insertSecret(ctx, tx, principal.Scope, row.ID)
		if err != nil {
			return nil, err
		}
		object := row.object()
		changes := map[string]any{"url": object.URL, "enabled_events": object.EnabledEvents, "description": object.Description}
		if err := audit(c, tx, "webhook_endpoint.create", object.ID, changes); err != nil {
			return nil, err
		}
		return row.showing(secret), nil
	})
}

func insert(ctx context.Context, tx postgres.Tx, scope postgres.Scope, in api.WebhookEndpointCreate) (endpointRow, error) {
	// Without the lock, two creations at once would both see the last free place.
	const lock = `SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoints/' || $1 || '/' || $2, 0))`
	const count = `SELECT count(*) FROM apipay.webhook_endpoints WHERE deleted_at IS NULL`
	const query = `
		INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, description)
		VALUES ($1, $2, $3, $4, $5, $6)
		RETURNING ` + endpointColumns
	if _, err := tx.Exec(ctx, lock, scope.TenantID.String(), fmt.Sprint(scope.Livemode)); err != nil {
		return endpointRow{}, fmt.Errorf("locking the tenant's endpoints: %w", err)
	}
	var have int
	if err := tx.QueryRow(ctx, count).Scan(&have); err != nil {
		return endpointRow{}, fmt.Errorf("counting the tenant's endpoints: %w", err)
	}
	if have >= maxPerMode {
		return endpointRow{}, httpapi.Invalid(httpapi.CodeParameterInvalid, "",
			fmt.Sprintf("There are %d webhook endpoints already; delete one first.", maxPerMode))
	}
	rows, err := tx.Query(ctx, query, id.NewAt(tx.Now, 0), scope.TenantID, scope.Livemode, in.URL, in.EnabledEvents, in.Description.Ptr())
	if err != nil {
		return endpointRow{}, fmt.Errorf("inserting the webhook endpoint: %w", err)
	}
	return one(rows)
}

// insertSecret makes the endpoint's active secret.
func (e *Endpoints) insertSecret(ctx context.Context, tx postgres.Tx, scope postgres.Scope, endpointID uuid.UUID) (webhook.Secret, error) {
	const query = `
		INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id)
		VALUES ($1, $2, $3, $4, $5, $6)`
	secret := webhook.NewSecret()
	ref := webhook.SecretRef{TenantID: scope.TenantID, Livemode: scope.Livemode, EndpointID: endpointID, ID: id.NewAt(tx.Now, 0)}
	ciphertext, keyID, err := e.Keyset.Seal(secret, ref)
	if err != nil {
		return webhook.Secret{}, err
	}
	if _, err := tx.Exec(ctx, query, ref.ID, ref.TenantID, ref.Livemode, ref.EndpointID, ciphertext, int64(keyID)); err != nil {
		return webhook.Secret{}, fmt.Errorf("inserting the signing secret: %w", err)
	}
	return secret, nil
}
