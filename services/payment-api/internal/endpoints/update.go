package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
)

// updateRequest changes what is present; only description can be null, which removes it.
type updateRequest api.WebhookEndpointUpdate

// UpdateWebhookEndpoint implements api.Server.
func (e *Endpoints) UpdateWebhookEndpoint(c echo.Context) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	var in updateRequest
	raw, err := httpapi.Bind(c, &in)
	if err != nil {
		return err
	}
	var fields []httpapi.FieldError
	if in.URL.Set {
		fields = append(fields, e.checkURL(in.URL.Value)...)
	}
	if in.EnabledEvents.Set {
		fields = append(fields, checkEvents(in.EnabledEvents.Value)...)
	}
	fields = append(fields, checkDescription(in.Description.Ptr())...)
	if in.Status.Set && in.Status.Value != statusEnabled && in.Status.Value != statusDisabled {
		fields = append(fields, invalid("/status", "The status is enabled or disabled."))
	}
	if err := refuse(fields); err != nil {
		return err
	}
	return e.write(c, raw, http.StatusOK, func(ctx context.Context, tx postgres.Tx) (any, error) {
		row, err := find(ctx, tx, endpointID, true)
		if err != nil {
			return nil, err
		}
		changes := in.changes(row)
		if len(changes) == 0 {
			return row.object(), nil
		}
		if row, err = change(ctx, tx, endpointID, in); err != nil {
			return nil, err
		}
		if err := audit(c, tx, "webhook_endpoint.update", id.Format(id.Endpoint, endpointID), changes); err != nil {
			return nil, err
		}
		return row.object(), nil
	})
}

// change switches an endpoint on or off by its row alone: the dispatcher acts on it. enabled_at moves only when it was
// off, since the counters of failure count from there.
func change(ctx context.Context, tx postgres.Tx, endpointID uuid.UUID, in updateRequest) (endpointRow, error) {
	const query = `
		UPDATE apipay.webhook_endpoints SET
		    url = coalesce($2, url),
		    enabled_events = coalesce($3, enabled_events),
		    description = CASE WHEN $4 THEN $5 ELSE description END,
		    status = coalesce($6, status),
		    disabled_reason = CASE coalesce($6, status) WHEN 'disabled' THEN coalesce(disabled_reason, $7) END,
		    enabled_at = CASE WHEN status = 'disabled' AND $6 = 'enabled' THEN now() ELSE enabled_at END,
		    updated_at = now()
		WHERE id = $1 AND deleted_at IS NULL
		RETURNING ` + endpointColumns
	var list []string
	if in.EnabledEvents.Set {
		list = in.EnabledEvents.Value
	}
	rows, err := tx.Query(ctx, query, endpointID, in.URL.Ptr(), list, in.Description.Set, in.Description.Ptr(),
		in.Status.Ptr(), disabledByMerchant)
	if err != nil {
		return endpointRow{}, fmt.Errorf("updating the webhook endpoint: %w", err)
	}
	return one(rows)
}

// changes are the members whose value differs, as the audit log keeps them.
func (in updateRequest) changes(row endpointRow) map[string]any {
	changes := map[string]any{}
	if in.URL.Set && in.URL.Value != row.URL {
		changes["url"] = in.URL.Value
	}
	if in.EnabledEvents.Set && !slices.Equal(in.EnabledEvents.Value, row.EnabledEvents) {
		changes["enabled_events"] = in.EnabledEvents.Value
	}
	if text := in.Description.Ptr(); in.Description.Set && (text == nil) != (row.Description == nil) ||
		text != nil && row.Description != nil && *text != *row.Description {
		changes["description"] = text
	}
	if in.Status.Set && in.Status.Value != row.Status {
		changes["status"] = in.Status.Value
	}
	return changes
}
