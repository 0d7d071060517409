package apipay

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// EventType names what happened. Expect values that are not listed here.
type EventType string

// The types of events.
const (
	EventPaymentIntentCreated       EventType = "payment_intent.created"
	EventPaymentIntentProcessing    EventType = "payment_intent.processing"
	EventPaymentIntentSucceeded     EventType = "payment_intent.succeeded"
	EventPaymentIntentPaymentFailed EventType = "payment_intent.payment_failed"
	EventPaymentIntentCanceled      EventType = "payment_intent.canceled"
	EventRefundCreated              EventType = "refund.created"
	EventRefundSucceeded            EventType = "refund.succeeded"
	EventRefundFailed               EventType = "refund.failed"
	EventWebhookEndpointFailing     EventType = "webhook_endpoint.failing"
	EventWebhookEndpointDisabled    EventType = "webhook_endpoint.disabled"
	EventWebhookEndpointRecovered   EventType = "webhook_endpoint.recovered"
	EventPing                       EventType = "ping"
)

// Event is a fact that merchants are told. Its ID is the same in every delivery: handle each ID once.
type Event struct {
	ID         string        `json:"id" apipay:"required"`
	Type       EventType     `json:"type"`
	Created    int64         `json:"created"` // Unix seconds
	Livemode   bool          `json:"livemode"`
	APIVersion string        `json:"api_version"`
	Request    *EventRequest `json:"request"`
	Data       EventData     `json:"data"`
	Extra      Extra         `json:"-"`
}

// EventRequest is the call that caused an event.
type EventRequest struct {
	ID             *string `json:"id"`
	IdempotencyKey *string `json:"idempotency_key"`
	Extra          Extra   `json:"-"`
}

// EventData holds the object as it was then.
type EventData struct {
	Object json.RawMessage `json:"object"`
	Extra  Extra           `json:"-"`
}

// PaymentIntent reads the object of a payment_intent event.
func (e *Event) PaymentIntent() (*PaymentIntent, error) { return objectOf[PaymentIntent](e) }

// Refund reads the object of a refund event.
func (e *Event) Refund() (*Refund, error) { return objectOf[Refund](e) }

// WebhookEndpoint reads the object of a webhook_endpoint or ping event.
func (e *Event) WebhookEndpoint() (*WebhookEndpoint, error) { return objectOf[WebhookEndpoint](e) }

func objectOf[T any](e *Event) (*T, error) {
	var object T
	if len(e.Data.Object) == 0 || json.Unmarshal(e.Data.Object, &object) != nil {
		return nil, invalidEvent("the event's object is not of this kind")
	}
	return &object, nil
}

// UnmarshalJSON reads an event, unknown members included.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event
	return decodeObject(data, (*plain)(e), &e.Extra)
}

// MarshalJSON writes the event as it came.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	return encodeObject(plain(e), e.Extra)
}

// UnmarshalJSON reads the request, unknown members included.
func (e *EventRequest) UnmarshalJSON(data []byte) error {
	type plain EventRequest
	return decodeObject(data, (*plain)(e), &e.Extra)
}

// MarshalJSON writes the request as it came.
func (e EventRequest) MarshalJSON() ([]byte, error) {
	type plain EventRequest
	return encodeObject(plain(e), e.Extra)
}

// UnmarshalJSON reads the data, unknown members included.
func (e *EventData) UnmarshalJSON(data []byte) error {
	type plain EventData
	return decodeObject(data, (*plain)(e), &e.Extra)
}

// MarshalJSON writes the data as it came.
func (e EventData) MarshalJSON() ([]byte, error) {
	type plain EventData
	return encodeObject(plain(e), e.Extra)
}

// Events are the calls about events. They are kept for 30 days.
type Events struct{ core *core }

// EventListParams are the filters of List and All.
type EventListParams struct {
	Paging
	Type EventType
}

func (p *EventListParams) values() url.Values {
	if p == nil {
		return nil
	}
	q := queryValues(p.Paging.values())
	q.text("type", string(p.Type))
	return url.Values(q)
}

// Get reads an event.
func (s *Events) Get(ctx context.Context, id string, options ...RequestOption) (*Event, error) {
	var event Event
	if err := s.core.do(ctx, call{method: http.MethodGet, path: []string{"events", id}, into: &event}, options); err != nil {
		return nil, err
	}
	return &event, nil
}

// List reads one page.
func (s *Events) List(ctx context.Context, params *EventListParams, options ...RequestOption) (*List[Event], error) {
	return page[Event](ctx, s.core, []string{"events"}, params.values(), options)
}

// All walks over every page.
func (s *Events) All(ctx context.Context, params *EventListParams, options ...RequestOption) iter.Seq2[*Event, error] {
	return all[Event](ctx, s.core, []string{"events"}, params.values(), options)
}
