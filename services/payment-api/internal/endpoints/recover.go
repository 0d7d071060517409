package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// RecoverDeliveries implements api.Server: it asks for everything that failed since a time to be sent again.
func (e *Endpoints) RecoverDeliveries(c echo.Context) error {
	const query = `
		INSERT INTO apipay.recoveries (id, tenant_id, livemode, filter, requested_by)
		VALUES ($1, $2, $3, $4, $5)`
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	var in api.Recover
	raw, err := httpapi.Bind(c, &in)
	if err != nil {
		return err
	}
	if !in.Since.In(0, maxUnix) {
		return refuse([]httpapi.FieldError{invalid("/since", "since is a time in Unix seconds.")})
	}
	return e.write(c, raw, http.StatusAccepted, func(ctx context.Context, tx postgres.Tx) (any, error) {
		row, err := find(ctx, tx, endpointID, false)
		if err != nil {
			return nil, err
		}
		if row.Status == statusDisabled {
			return nil, httpapi.New(httpapi.CodeEndpointDisabled, "The webhook endpoint is disabled: enable it first.")
		}
		if in.Since.Value > tx.Now.Unix() {
			return nil, refuse([]httpapi.FieldError{invalid("/since", "since lies in the future.")})
		}
		principal := auth.FromContext(c)
		since := time.Unix(in.Since.Value, 0).UTC()
		filter, err := json.Marshal(webhook.RecoveryFilter{
			Tenant: id.Format(id.Tenant, principal.Scope.TenantID), Endpoint: id.Format(id.Endpoint, endpointID),
			Status: webhook.StatusFailed, From: &since,
		})
		if err != nil {
			return nil, fmt.Errorf("encoding the filter: %w", err)
		}
		recoveryID := id.NewAt(tx.Now, 0)
		if _, err := tx.Exec(ctx, query, recoveryID, principal.Scope.TenantID, principal.Scope.Livemode, filter, principal.Actor()); err != nil {
			return nil, fmt.Errorf("inserting the recovery: %w", err)
		}
		changes := map[string]any{"since": in.Since.Value, "recovery": id.Format(id.Recovery, recoveryID)}
		if err := audit(c, tx, "webhook_endpoint.recover", id.Format(id.Endpoint, endpointID), changes); err != nil {
			return nil, err
		}
		return api.Recovery{
			ID: id.Format(id.Recovery, recoveryID), Object: api.RecoveryObjectRecovery, EndpointID: id.Format(id.Endpoint, endpointID),
			Since: in.Since.Value, Status: api.RecoveryStatusPending, Livemode: principal.Scope.Livemode, Created: tx.Now.Unix(),
		}, nil
	})
}
