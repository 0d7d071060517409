package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	apipay "apipay.io/hub/pkg/sdk/go"
	"apipay.io/hub/pkg/sdk/go/apipaytest"
	"apipay.io/hub/pkg/sdk/go/internal/retry"
)

// arguments are those of every method; each uses its own.
type arguments struct {
	ID                string            `json:"id"`
	Amount            *int64            `json:"amount"`
	Currency          string            `json:"currency"`
	PaymentMethod     string            `json:"payment_method"`
	Confirm           bool              `json:"confirm"`
	Description       *string           `json:"description"`
	Metadata          map[string]string `json:"metadata"`
	MerchantReference string            `json:"merchant_reference"`
	Reason            string            `json:"reason"`
	Limit             int               `json:"limit"`
	Cursor            string            `json:"cursor"`
	Status            *string           `json:"status"`
	CreatedGTE        int64             `json:"created_gte"`
	CreatedLT         int64             `json:"created_lt"`
	Take              int               `json:"take"`
	PaymentIntent     string            `json:"payment_intent"`
	URL               *string           `json:"url"`
	EnabledEvents     []string          `json:"enabled_events"`
	OverlapSeconds    *int64            `json:"overlap_seconds"`
	Delivery          string            `json:"delivery"`
	Since             int64             `json:"since"`
	Type              string            `json:"type"`
	Payload           []byte            `json:"payload_base64"`
	Header            *string           `json:"header"`
	Secrets           []string          `json:"secrets"`
	ToleranceSeconds  *int64            `json:"tolerance_seconds"`
	Timestamp         int64             `json:"timestamp"`
	N                 int               `json:"n"`
	Count             int               `json:"count"`
}

func (a arguments) paging() apipay.Paging { return apipay.Paging{Limit: a.Limit, Cursor: a.Cursor} }

func (a arguments) intents() *apipay.PaymentIntentListParams {
	return &apipay.PaymentIntentListParams{
		Paging: a.paging(), Status: apipay.PaymentIntentStatus(deref(a.Status)), Currency: a.Currency,
		MerchantReference: a.MerchantReference, CreatedGTE: a.CreatedGTE, CreatedLT: a.CreatedLT,
	}
}

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// call makes one call. ids are those that an iteration saw before it failed.
func (s *session) call(ctx context.Context, method string, raw json.RawMessage, options []apipay.RequestOption) (value any, ids []string, err error) {
	var a arguments
	if len(raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&a); err != nil {
			return nil, nil, fmt.Errorf("reading the arguments of %s: %w", method, err)
		}
	}
	c := s.client
	switch method {
	case "payment_intents.create":
		value, err = c.PaymentIntents.Create(ctx, &apipay.PaymentIntentCreateParams{
			Amount: deref(a.Amount), Currency: a.Currency, PaymentMethod: a.PaymentMethod, Confirm: a.Confirm,
			Description: deref(a.Description), Metadata: a.Metadata, MerchantReference: a.MerchantReference,
		}, options...)
	case "payment_intents.confirm":
		value, err = c.PaymentIntents.Confirm(ctx, a.ID, &apipay.PaymentIntentConfirmParams{PaymentMethod: a.PaymentMethod}, options...)
	case "payment_intents.cancel":
		value, err = c.PaymentIntents.Cancel(ctx, a.ID, options...)
	case "payment_intents.refund":
		value, err = c.PaymentIntents.Refund(ctx, a.ID, &apipay.RefundParams{Amount: a.Amount, Reason: a.Reason, Metadata: a.Metadata}, options...)
	case "payment_intents.get":
		value, err = c.PaymentIntents.Get(ctx, a.ID, options...)
	case "payment_intents.list":
		value, err = c.PaymentIntents.List(ctx, a.intents(), options...)
	case "payment_intents.all":
		return collect(c.PaymentIntents.All(ctx, a.intents(), options...), a.Take, func(p *apipay.PaymentIntent) string { return p.ID })
	case "refunds.get":
		value, err = c.Refunds.Get(ctx, a.ID, options...)
	case "refunds.list":
		value, err = c.Refunds.List(ctx, a.PaymentIntent, a.paging(), options...)
	case "refunds.all":
		return collect(c.Refunds.All(ctx, a.PaymentIntent, a.paging(), options...), a.Take, func(r *apipay.Refund) string { return r.ID })
	case "events.get":
		value, err = c.Events.Get(ctx, a.ID, options...)
	case "events.list":
		value, err = c.Events.List(ctx, &apipay.EventListParams{Paging: a.paging(), Type: apipay.EventType(a.Type)}, options...)
	case "events.all":
		return collect(c.Events.All(ctx, &apipay.EventListParams{Paging: a.paging(), Type: apipay.EventType(a.Type)}, options...), a.Take, func(e *apipay.Event) string { return e.ID })
	case "client.print":
		return nil, nil, nil
	case "backoff.sample":
		return s.samples(a), nil, nil
	case "webhooks.sign":
		return map[string]string{"header": apipaytest.Sign(a.Payload, time.Unix(a.Timestamp, 0), a.Secrets...)}, nil, nil
	case "webhooks.verify", "webhooks.construct_event":
		value, err = s.webhook(method, a)
	default:
		return s.endpoints(ctx, method, a, options)
	}
	return value, nil, err
}

func (s *session) endpoints(ctx context.Context, method string, a arguments, options []apipay.RequestOption) (value any, ids []string, err error) {
	service := s.client.WebhookEndpoints
	deliveries := &apipay.DeliveryListParams{Paging: a.paging(), Status: deref(a.Status)}
	switch method {
	case "webhook_endpoints.create":
		value, err = service.Create(ctx, &apipay.WebhookEndpointCreateParams{
			URL: deref(a.URL), EnabledEvents: a.EnabledEvents, Description: deref(a.Description),
		}, options...)
	case "webhook_endpoints.get":
		value, err = service.Get(ctx, a.ID, options...)
	case "webhook_endpoints.list":
		value, err = service.List(ctx, a.paging(), options...)
	case "webhook_endpoints.all":
		return collect(service.All(ctx, a.paging(), options...), a.Take, func(w *apipay.WebhookEndpoint) string { return w.ID })
	case "webhook_endpoints.update":
		params := &apipay.WebhookEndpointUpdateParams{URL: a.URL, EnabledEvents: a.EnabledEvents, Description: a.Description}
		if a.Status != nil {
			status := apipay.WebhookEndpointStatus(*a.Status)
			params.Status = &status
		}
		value, err = service.Update(ctx, a.ID, params, options...)
	case "webhook_endpoints.delete":
		err = service.Delete(ctx, a.ID, options...)
	case "webhook_endpoints.rotate_secret":
		value, err = service.RotateSecret(ctx, a.ID, &apipay.RotateSecretParams{OverlapSeconds: a.OverlapSeconds}, options...)
	case "webhook_endpoints.ping":
		value, err = service.Ping(ctx, a.ID, options...)
	case "webhook_endpoints.deliveries":
		value, err = service.Deliveries(ctx, a.ID, deliveries, options...)
	case "webhook_endpoints.all_deliveries":
		return collect(service.AllDeliveries(ctx, a.ID, deliveries, options...), a.Take, func(w *apipay.WebhookDelivery) string { return w.ID })
	case "webhook_endpoints.retry_delivery":
		value, err = service.RetryDelivery(ctx, a.ID, a.Delivery, options...)
	case "webhook_endpoints.recover":
		value, err = service.Recover(ctx, a.ID, a.Since, options...)
	default:
		err = fmt.Errorf("unknown method %s", method)
	}
	return value, nil, err
}

func collect[T any](all iter.Seq2[*T, error], take int, id func(*T) string) (any, []string, error) {
	ids := []string{}
	for item, err := range all {
		if err != nil {
			return nil, ids, err
		}
		if ids = append(ids, id(item)); len(ids) == take {
			break
		}
	}
	return map[string]any{"ids": ids}, nil, nil
}

func (s *session) webhook(method string, a arguments) (any, error) {
	v := apipay.NewWebhookVerifier(a.Secrets...)
	v.Clock = s.now
	if a.ToleranceSeconds != nil {
		v.Tolerance = time.Duration(*a.ToleranceSeconds) * time.Second
	}
	if method == "webhooks.verify" {
		return map[string]bool{"verified": true}, v.Verify(a.Payload, deref(a.Header))
	}
	return v.ConstructEvent(a.Payload, deref(a.Header))
}

func (s *session) samples(a arguments) []float64 {
	random := retry.Random
	if s.random != nil {
		random = s.random
	}
	waits := make([]float64, a.Count)
	for i := range waits {
		waits[i] = ms(retry.Backoff(a.N, random()))
	}
	return waits
}
