package apipay

import (
	"context"
	"iter"
	"net/http"
)

// RefundStatus is the state of a refund. Expect values that are not listed here.
type RefundStatus string

// The states of a refund.
const (
	RefundPending   RefundStatus = "pending"
	RefundSucceeded RefundStatus = "succeeded"
	RefundFailed    RefundStatus = "failed"
)

// Refund is money given back. Amount is in the currency's minor unit.
type Refund struct {
	ID            string            `json:"id" apipay:"required"`
	Object        string            `json:"object"`
	PaymentIntent string            `json:"payment_intent"`
	Amount        int64             `json:"amount"`
	Currency      string            `json:"currency"`
	Status        RefundStatus      `json:"status"`
	FailureReason *string           `json:"failure_reason"`
	Reason        *string           `json:"reason"`
	Metadata      map[string]string `json:"metadata"`
	Livemode      bool              `json:"livemode"`
	Created       int64             `json:"created"`
	Version       int64             `json:"version"`
	Extra         Extra             `json:"-"`
}

// UnmarshalJSON reads a refund, unknown members included.
func (r *Refund) UnmarshalJSON(data []byte) error {
	type plain Refund
	return decodeObject(data, (*plain)(r), &r.Extra)
}

// MarshalJSON writes the refund as it came.
func (r Refund) MarshalJSON() ([]byte, error) {
	type plain Refund
	return encodeObject(plain(r), r.Extra)
}

// Refunds are the calls about refunds; PaymentIntents.Refund makes one.
type Refunds struct{ core *core }

// Get reads a refund.
func (s *Refunds) Get(ctx context.Context, id string, options ...RequestOption) (*Refund, error) {
	var refund Refund
	if err := s.core.do(ctx, call{method: http.MethodGet, path: []string{"refunds", id}, into: &refund}, options); err != nil {
		return nil, err
	}
	return &refund, nil
}

// List reads one page of a payment intent's refunds.
func (s *Refunds) List(ctx context.Context, paymentIntent string, paging Paging, options ...RequestOption) (*List[Refund], error) {
	return page[Refund](ctx, s.core, []string{"payment-intents", paymentIntent, "refunds"}, paging.values(), options)
}

// All walks over every refund of a payment intent.
func (s *Refunds) All(ctx context.Context, paymentIntent string, paging Paging, options ...RequestOption) iter.Seq2[*Refund, error] {
	return all[Refund](ctx, s.core, []string{"payment-intents", paymentIntent, "refunds"}, paging.values(), options)
}
