package endpoints

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// DeleteWebhookEndpoint implements api.Server: it is soft: what waits for the endpoint is failed by the dispatcher, so that nothing vanishes.
func (e *Endpoints) DeleteWebhookEndpoint(c echo.Context) error {
	const query = `
		UPDATE apipay.webhook_endpoints SET deleted_at = now(), updated_at = now()
		WHERE id = $1 AND deleted_at IS NULL
		RETURNING ` + endpointColumns
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	return e.write(c, nil, http.StatusNoContent, func(ctx context.Context, tx postgres.Tx) (any, error) {
		rows, err := tx.Query(ctx, query, endpointID)
		if err != nil {
			return nil, fmt.Errorf("deleting the webhook endpoint: %w", err)
		}
		row, err := one(rows)
		if err != nil {
			return nil, err
		}
		return nil, audit(c, tx, "webhook_endpoint.delete", id.Format(id.Endpoint, row.ID), map[string]any{"url": row.URL})
	})
}
