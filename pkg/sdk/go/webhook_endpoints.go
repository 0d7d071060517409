package apipay

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// WebhookEndpointStatus is the state of an endpoint. Expect values that are not listed here.
type WebhookEndpointStatus string

// The states of an endpoint.
const (
	WebhookEndpointEnabled  WebhookEndpointStatus = "enabled"
	WebhookEndpointDisabled WebhookEndpointStatus = "disabled"
)

// WebhookEndpoint is an address that events are delivered to.
type WebhookEndpoint struct {
	ID             string                `json:"id" apipay:"required"`
	Object         string                `json:"object"`
	URL            string                `json:"url"`
	EnabledEvents  []string              `json:"enabled_events"`
	Description    *string               `json:"description"`
	Status         WebhookEndpointStatus `json:"status"`
	DisabledReason *string               `json:"disabled_reason"`
	Livemode       bool                  `json:"livemode"`
	Created        int64                 `json:"created"`
	Version        int64                 `json:"version"`
	// Secret is there only in the answers of Create and RotateSecret. It prints and marshals as [redacted].
	Secret Secret `json:"secret,omitzero"`
	Extra  Extra  `json:"-"`
}

// WebhookDelivery is one event on its way to one endpoint.
type WebhookDelivery struct {
	ID            string            `json:"id" apipay:"required"`
	Object        string            `json:"object"`
	EndpointID    string            `json:"endpoint_id"`
	EndpointURL   string            `json:"endpoint_url"`
	EventID       string            `json:"event_id"`
	EventType     EventType         `json:"event_type"`
	Status        string            `json:"status"` // PENDING, RETRYING, DELIVERED, FAILED
	AttemptCount  int64             `json:"attempt_count"`
	NextAttemptAt *int64            `json:"next_attempt_at"`
	Held          *string           `json:"held"`
	DeliveredAt   *int64            `json:"delivered_at"`
	FailedAt      *int64            `json:"failed_at"`
	FailureReason *string           `json:"failure_reason"`
	CreatedAt     int64             `json:"created_at"`
	Attempts      []DeliveryAttempt `json:"attempts"`
	Extra         Extra             `json:"-"`
}

// DeliveryAttempt is one POST of a delivery.
type DeliveryAttempt struct {
	Number          int64   `json:"number"`
	Trigger         string  `json:"trigger"` // scheduled, manual, recovery
	Outcome         string  `json:"outcome"` // succeeded, failed, superseded, lost
	StartedAt       int64   `json:"started_at"`
	LatencyMS       *int64  `json:"latency_ms"`
	StatusCode      *int    `json:"status_code"`
	ErrorClass      *string `json:"error_class"`
	ResponseExcerpt *string `json:"response_excerpt"`
	Extra           Extra   `json:"-"`
}

// Recovery is a request to send again what failed.
type Recovery struct {
	ID         string `json:"id" apipay:"required"`
	Object     string `json:"object"`
	EndpointID string `json:"endpoint_id"`
	Since      int64  `json:"since"`
	Status     string `json:"status"`
	Livemode   bool   `json:"livemode"`
	Created    int64  `json:"created"`
	Extra      Extra  `json:"-"`
}

// UnmarshalJSON reads an endpoint, unknown members included.
func (w *WebhookEndpoint) UnmarshalJSON(data []byte) error {
	type plain WebhookEndpoint
	return decodeObject(data, (*plain)(w), &w.Extra)
}

// MarshalJSON writes the endpoint as it came, but for the secret, which is redacted.
func (w WebhookEndpoint) MarshalJSON() ([]byte, error) {
	type plain WebhookEndpoint
	return encodeObject(plain(w), w.Extra)
}

// UnmarshalJSON reads a delivery, unknown members included.
func (w *WebhookDelivery) UnmarshalJSON(data []byte) error {
	type plain WebhookDelivery
	return decodeObject(data, (*plain)(w), &w.Extra)
}

// MarshalJSON writes the delivery as it came.
func (w WebhookDelivery) MarshalJSON() ([]byte, error) {
	type plain WebhookDelivery
	return encodeObject(plain(w), w.Extra)
}

// UnmarshalJSON reads an attempt, unknown members included.
func (d *DeliveryAttempt) UnmarshalJSON(data []byte) error {
	type plain DeliveryAttempt
	return decodeObject(data, (*plain)(d), &d.Extra)
}

// MarshalJSON writes the attempt as it came.
func (d DeliveryAttempt) MarshalJSON() ([]byte, error) {
	type plain DeliveryAttempt
	return encodeObject(plain(d), d.Extra)
}

// UnmarshalJSON reads a recovery, unknown members included.
func (r *Recovery) UnmarshalJSON(data []byte) error {
	type plain Recovery
	return decodeObject(data, (*plain)(r), &r.Extra)
}

// MarshalJSON writes the recovery as it came.
func (r Recovery) MarshalJSON() ([]byte, error) {
	type plain Recovery
	return encodeObject(plain(r), r.Extra)
}

// WebhookEndpoints are the calls about webhook endpoints and their deliveries.
type WebhookEndpoints struct{ core *core }

// WebhookEndpointCreateParams are the parameters of Create; URL and EnabledEvents are required.
type WebhookEndpointCreateParams struct {
	URL string `json:"url"`
	// EnabledEvents are types of events, or "*".
	EnabledEvents []string `json:"enabled_events"`
	Description   string   `json:"description,omitempty"`
}

// WebhookEndpointUpdateParams are the parameters of Update; what is nil stays as it is.
type WebhookEndpointUpdateParams struct {
	URL           *string                `json:"url,omitempty"`
	EnabledEvents []string               `json:"enabled_events,omitempty"`
	Description   *string                `json:"description,omitempty"`
	Status        *WebhookEndpointStatus `json:"status,omitempty"`
}

// RotateSecretParams are the parameters of RotateSecret.
type RotateSecretParams struct {
	// OverlapSeconds is how long the old secret signs beside the new one: nil is a day, 0 revokes it now.
	OverlapSeconds *int64 `json:"overlap_seconds,omitempty"`
}

// DeliveryListParams are the filters of Deliveries and AllDeliveries.
type DeliveryListParams struct {
	Paging
	Status string
}

func (p *DeliveryListParams) values() url.Values {
	if p == nil {
		return nil
	}
	q := queryValues(p.Paging.values())
	q.text("status", p.Status)
	return url.Values(q)
}

// Create makes an endpoint. Its Secret is shown only here; keep it.
func (s *WebhookEndpoints) Create(ctx context.Context, params *WebhookEndpointCreateParams, options ...RequestOption) (*WebhookEndpoint, error) {
	if params == nil {
		return nil, refusal("an endpoint has a url and enabled_events")
	}
	return sent[WebhookEndpoint](ctx, s.core, http.MethodPost, []string{"webhook-endpoints"}, params, options)
}

// Get reads an endpoint.
func (s *WebhookEndpoints) Get(ctx context.Context, id string, options ...RequestOption) (*WebhookEndpoint, error) {
	return sent[WebhookEndpoint](ctx, s.core, http.MethodGet, []string{"webhook-endpoints", id}, nil, options)
}

// List reads one page.
func (s *WebhookEndpoints) List(ctx context.Context, paging Paging, options ...RequestOption) (*List[WebhookEndpoint], error) {
	return page[WebhookEndpoint](ctx, s.core, []string{"webhook-endpoints"}, paging.values(), options)
}

// All walks over every endpoint.
func (s *WebhookEndpoints) All(ctx context.Context, paging Paging, options ...RequestOption) iter.Seq2[*WebhookEndpoint, error] {
	return all[WebhookEndpoint](ctx, s.core, []string{"webhook-endpoints"}, paging.values(), options)
}

// Update changes what params has.
func (s *WebhookEndpoints) Update(ctx context.Context, id string, params *WebhookEndpointUpdateParams, options ...RequestOption) (*WebhookEndpoint, error) {
	if params == nil {
		return nil, refusal("there is nothing to change")
	}
	return sent[WebhookEndpoint](ctx, s.core, http.MethodPatch, []string{"webhook-endpoints", id}, params, options)
}

// Delete deletes an endpoint; its deliveries stay listed.
func (s *WebhookEndpoints) Delete(ctx context.Context, id string, options ...RequestOption) error {
	return s.core.do(ctx, call{method: http.MethodDelete, path: []string{"webhook-endpoints", id}}, options)
}

// RotateSecret makes a new secret; it is shown only here. params may be nil.
func (s *WebhookEndpoints) RotateSecret(ctx context.Context, id string, params *RotateSecretParams, options ...RequestOption) (*WebhookEndpoint, error) {
	var body any
	if params != nil && params.OverlapSeconds != nil {
		body = params
	}
	return sent[WebhookEndpoint](ctx, s.core, http.MethodPost, []string{"webhook-endpoints", id, "rotate-secret"}, body, options)
}

// Ping sends a ping event to the endpoint and gives the event.
func (s *WebhookEndpoints) Ping(ctx context.Context, id string, options ...RequestOption) (*Event, error) {
	return sent[Event](ctx, s.core, http.MethodPost, []string{"webhook-endpoints", id, "ping"}, nil, options)
}

// Deliveries reads one page of what was sent to the endpoint.
func (s *WebhookEndpoints) Deliveries(ctx context.Context, id string, params *DeliveryListParams, options ...RequestOption) (*List[WebhookDelivery], error) {
	return page[WebhookDelivery](ctx, s.core, []string{"webhook-endpoints", id, "deliveries"}, params.values(), options)
}

// AllDeliveries walks over everything that was sent to the endpoint.
func (s *WebhookEndpoints) AllDeliveries(ctx context.Context, id string, params *DeliveryListParams, options ...RequestOption) iter.Seq2[*WebhookDelivery, error] {
	return all[WebhookDelivery](ctx, s.core, []string{"webhook-endpoints", id, "deliveries"}, params.values(), options)
}

// RetryDelivery makes a failed delivery due now.
func (s *WebhookEndpoints) RetryDelivery(ctx context.Context, id, delivery string, options ...RequestOption) (*WebhookDelivery, error) {
	return sent[WebhookDelivery](ctx, s.core, http.MethodPost, []string{"webhook-endpoints", id, "deliveries", delivery, "retry"}, nil, options)
}

// Recover sends everything again that failed since a time in Unix seconds.
func (s *WebhookEndpoints) Recover(ctx context.Context, id string, since int64, options ...RequestOption) (*Recovery, error) {
	body := map[string]int64{"since": since}
	return sent[Recovery](ctx, s.core, http.MethodPost, []string{"webhook-endpoints", id, "recover"}, body, options)
}

// sent makes one call and gives its object.
func sent[T any](ctx context.Context, c *core, method string, path []string, body any, options []RequestOption) (*T, error) {
	var object T
	if err := c.do(ctx, call{method: method, path: path, body: body, into: &object}, options); err != nil {
		return nil, err
	}
	return &object, nil
}
