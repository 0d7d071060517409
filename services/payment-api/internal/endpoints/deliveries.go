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
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// ListDeliveries implements api.Server: it lists what was sent to one endpoint, by the time of the events, newest first,
// also after it was deleted.
func (e *Endpoints) ListDeliveries(c echo.Context) error {
	// One delivery per event and endpoint, so the event's id is a key of this list.
	const query = selectDelivery + `
		WHERE d.endpoint_id = $1 AND ($2::uuid IS NULL OR d.event_id < $2) AND ($3::text IS NULL OR d.status = $3)
		ORDER BY d.event_id DESC
		LIMIT $4`
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	principal := auth.FromContext(c)
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	status, hasStatus := q.Enum("status", string(webhook.StatusPending), string(webhook.StatusRetrying),
		string(webhook.StatusDelivered), string(webhook.StatusFailed))
	scope := cursorScope(principal, "deliveries", endpointID.String(), status)
	position, _ := q.Cursor(e.Cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	var list []api.Delivery
	var lastEvent uuid.UUID
	err = e.reading(c, func(ctx context.Context, tx postgres.Tx) error {
		if err := requireKnown(ctx, tx, endpointID); err != nil {
			return err
		}
		var wanted *string
		if hasStatus {
			wanted = &status
		}
		rows, err := tx.Query(ctx, query, endpointID, afterID(position), wanted, limit+1)
		if err != nil {
			return fmt.Errorf("listing deliveries: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[deliveryRow])
		if err != nil {
			return fmt.Errorf("listing deliveries: %w", err)
		}
		if len(found) > limit {
			lastEvent = found[limit-1].EventID
		}
		list, err = withAttempts(ctx, tx, found)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, httpapi.Page(list, limit, func(api.Delivery) string {
		return e.Cursors.Encode(scope, httpapi.Position{ID: lastEvent})
	}))
}
