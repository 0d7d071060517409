package endpoints

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// PingWebhookEndpoint implements api.Server: it emits an event that goes to this endpoint alone, and answers the event: 202, because it is sent later.
func (e *Endpoints) PingWebhookEndpoint(c echo.Context) error {
	// Each outbound event about an object raises its version.
	const query = `
		UPDATE apipay.webhook_endpoints SET version = version + 1, updated_at = now()
		WHERE id = $1 AND deleted_at IS NULL
		RETURNING ` + endpointColumns
	const readBack = `SELECT payload FROM apipay.outbox_events WHERE id = $1`
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	raw, err := httpapi.Bind(c, &struct{}{}, httpapi.AllowEmpty())
	if err != nil {
		return err
	}
	return e.write(c, raw, http.StatusAccepted, func(ctx context.Context, tx postgres.Tx) (any, error) {
		rows, err := tx.Query(ctx, query, endpointID)
		if err != nil {
			return nil, fmt.Errorf("raising the endpoint's version: %w", err)
		}
		row, err := one(rows)
		if err != nil {
			return nil, err
		}
		if row.Status == statusDisabled {
			return nil, httpapi.New(httpapi.CodeEndpointDisabled, "The webhook endpoint is disabled.")
		}
		scope := auth.FromContext(c).Scope
		ids, err := outbox.Insert(ctx, tx, outbox.Event{
			TenantID: scope.TenantID, Livemode: scope.Livemode,
			Topic: outbox.TopicWebhooks, Type: events.TypePing, Object: row.object(),
			Request: requestOf(c),
		})
		if err != nil {
			return nil, err
		}
		if err := audit(c, tx, "webhook_endpoint.ping", id.Format(id.Endpoint, row.ID), nil); err != nil {
			return nil, err
		}
		var payload []byte
		if err := tx.QueryRow(ctx, readBack, ids[0]).Scan(&payload); err != nil {
			return nil, fmt.Errorf("reading the event: %w", err)
		}
		return jsontext.Value(payload), nil
	})
}

// requestOf is the call that an event was caused by.
func requestOf(c echo.Context) outbox.Request {
	key, _, _ := httpapi.ParseIdempotencyKey(c.Request().Header)
	return outbox.Request{ID: httpapi.RequestID(c.Request().Context()), IdempotencyKey: key}
}
