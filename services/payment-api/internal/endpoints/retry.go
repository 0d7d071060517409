package endpoints

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
)

// RetryDelivery implements api.Server: it makes a delivery due now; sending it is the dispatcher's.
func (e *Endpoints) RetryDelivery(c echo.Context) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	endpointID, err := pathID(c, "id", id.Endpoint)
	if err != nil {
		return err
	}
	deliveryID, err := pathID(c, "delivery", id.Delivery)
	if err != nil {
		return err
	}
	raw, err := httpapi.Bind(c, &struct{}{}, httpapi.AllowEmpty())
	if err != nil {
		return err
	}
	return e.write(c, raw, http.StatusAccepted, func(ctx context.Context, tx postgres.Tx) (any, error) {
		if err := requireKnown(ctx, tx, endpointID); err != nil {
			return nil, err
		}
		retried, err := webhook.RequestRetry(ctx, tx, webhook.DeliveryRef{ID: deliveryID, EndpointID: endpointID}, false)
		if err != nil {
			return nil, retryProblem(err)
		}
		changes := map[string]any{"prior_status": string(retried.PriorStatus)}
		if err := audit(c, tx, "webhook_delivery.retry", id.Format(id.Delivery, deliveryID), changes); err != nil {
			return nil, err
		}
		return findDelivery(ctx, tx, endpointID, deliveryID)
	})
}

func retryProblem(err error) error {
	for refusal, code := range map[error]httpapi.Code{
		webhook.ErrDeliveryPending:   httpapi.CodeDeliveryPending,
		webhook.ErrDeliveryInFlight:  httpapi.CodeDeliveryInFlight,
		webhook.ErrDeliveryDelivered: httpapi.CodeDeliveryDelivered,
		webhook.ErrEndpointDisabled:  httpapi.CodeEndpointDisabled,
		webhook.ErrEndpointDeleted:   httpapi.CodeEndpointDeleted,
	} {
		if errors.Is(err, refusal) {
			return httpapi.New(code, "The delivery cannot be sent again: "+refusal.Error()+".")
		}
	}
	if errors.Is(err, webhook.ErrDeliveryNotFound) {
		return notFound(id.Delivery)
	}
	return err
}
