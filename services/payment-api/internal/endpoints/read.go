package endpoints

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// GetWebhookEndpoint implements api.Server.
func (e *Endpoints) GetWebhookEndpoint(c echo.Context) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	var row endpointRow
	err = e.reading(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		row, err = find(ctx, tx, endpointID, false)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, row.object())
}

// ListWebhookEndpoints implements api.Server.
func (e *Endpoints) ListWebhookEndpoints(c echo.Context) error {
	const query = `
		SELECT ` + endpointColumns + ` FROM apipay.webhook_endpoints
		WHERE deleted_at IS NULL AND ($1::timestamptz IS NULL OR (created_at, id) < ($1, $2))
		ORDER BY created_at DESC, id DESC
		LIMIT $3`
	principal := auth.FromContext(c)
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	scope := cursorScope(principal, "webhook_endpoints")
	position, _ := q.Cursor(e.Cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	var list []endpointRow
	err := e.reading(c, func(ctx context.Context, tx postgres.Tx) error {
		var after any
		if !position.Time.IsZero() {
			after = position.Time
		}
		rows, err := tx.Query(ctx, query, after, position.ID, limit+1)
		if err != nil {
			return fmt.Errorf("listing webhook endpoints: %w", err)
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[endpointRow])
		return err
	})
	if err != nil {
		return err
	}
	objects := make([]api.WebhookEndpoint, len(list))
	for i, row := range list {
		objects[i] = row.object()
	}
	return httpapi.JSON(c, http.StatusOK, httpapi.Page(objects, limit, func(api.WebhookEndpoint) string {
		last := list[limit-1]
		return e.Cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	}))
}

// reading runs fn in a transaction of the caller's tenant and mode.
func (e *Endpoints) reading(c echo.Context, fn func(ctx context.Context, tx postgres.Tx) error) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), txTimeout)
	defer cancel()
	return postgres.InTenant(ctx, e.Pool, auth.FromContext(c).Scope, func(tx postgres.Tx) error { return fn(ctx, tx) })
}

// cursorScope binds a cursor to the tenant, the mode, the list and its filters.
func cursorScope(p auth.Principal, list string, filters ...string) string {
	parts := append([]string{p.Scope.TenantID.String(), fmt.Sprint(p.Scope.Livemode), list}, filters...)
	return httpapi.CursorScope(parts...)
}

// afterID is the position's id as a parameter, NULL on the first page.
func afterID(p httpapi.Position) uuid.NullUUID {
	return uuid.NullUUID{UUID: p.ID, Valid: p.ID != uuid.Nil}
}
