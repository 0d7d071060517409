package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

const (
	defaultOverlap = 24 * 60 * 60
	maxOverlap     = 7 * 24 * 60 * 60
)

// RotateWebhookSecret implements api.Server: it makes a new active secret. The one before it signs beside it for the overlap; those before that one end at once,
// so that never more than two sign.
func (e *Endpoints) RotateWebhookSecret(c echo.Context) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	var in api.RotateSecret
	raw, err := httpapi.Bind(c, &in, httpapi.AllowEmpty())
	if err != nil {
		return err
	}
	overlap := in.OverlapSeconds.Or(httpapi.Integer{Value: defaultOverlap})
	if !overlap.In(0, maxOverlap) {
		return refuse([]httpapi.FieldError{invalid("/overlap_seconds", fmt.Sprintf("The overlap is 0 to %d seconds.", maxOverlap))})
	}
	return e.write(c, raw, http.StatusOK, func(ctx context.Context, tx postgres.Tx) (any, error) {
		// The endpoint's row is the lock of its secrets.
		row, err := find(ctx, tx, endpointID, true)
		if err != nil {
			return nil, err
		}
		if err := retireSecrets(ctx, tx, endpointID, time.Duration(overlap.Value)*time.Second); err != nil {
			return nil, err
		}
		secret, err := e.insertSecret(ctx, tx, auth.FromContext(c).Scope, endpointID)
		if err != nil {
			return nil, err
		}
		if err := audit(c, tx, "webhook_endpoint.rotate_secret", id.Format(id.Endpoint, endpointID), map[string]any{"overlap_seconds": overlap.Value}); err != nil {
			return nil, err
		}
		return row.showing(secret), nil
	})
}

// retireSecrets deletes what no longer signs: the ones of earlier rotations, and with no overlap the active one too.
func retireSecrets(ctx context.Context, tx postgres.Tx, endpointID uuid.UUID, overlap time.Duration) error {
	const revoke = `DELETE FROM apipay.webhook_endpoint_secrets WHERE endpoint_id = $1 AND (expires_at IS NOT NULL OR $2)`
	const expire = `UPDATE apipay.webhook_endpoint_secrets SET expires_at = $2 WHERE endpoint_id = $1 AND expires_at IS NULL`
	if _, err := tx.Exec(ctx, revoke, endpointID, overlap == 0); err != nil {
		return fmt.Errorf("revoking signing secrets: %w", err)
	}
	if _, err := tx.Exec(ctx, expire, endpointID, tx.Now.Add(overlap)); err != nil {
		return fmt.Errorf("expiring the signing secret: %w", err)
	}
	return nil
}
