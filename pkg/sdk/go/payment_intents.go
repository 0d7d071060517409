package apipay

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// PaymentIntentStatus is the state of a payment intent. Expect values that are not listed here.
type PaymentIntentStatus string

// The states of a payment intent.
const (
	PaymentIntentRequiresPaymentMethod PaymentIntentStatus = "requires_payment_method"
	PaymentIntentRequiresConfirmation  PaymentIntentStatus = "requires_confirmation"
	PaymentIntentProcessing            PaymentIntentStatus = "processing"
	PaymentIntentSucceeded             PaymentIntentStatus = "succeeded"
	PaymentIntentCanceled              PaymentIntentStatus = "canceled"
)

// PaymentIntent is one payment. Amounts are integers in the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY.
type PaymentIntent struct {
	ID                string              `json:"id" apipay:"required"`
	Object            string              `json:"object"`
	Amount            int64               `json:"amount"`
	AmountRefunded    int64               `json:"amount_refunded"`
	Currency          string              `json:"currency"`
	Status            PaymentIntentStatus `json:"status"`
	Livemode          bool                `json:"livemode"`
	Created           int64               `json:"created"` // Unix seconds
	Description       *string             `json:"description"`
	Metadata          map[string]string   `json:"metadata"`
	MerchantReference *string             `json:"merchant_reference"`
	PaymentMethod     *string             `json:"payment_method"`
	LastPaymentError  *PaymentError       `json:"last_payment_error"`
	LatestAttempt     *string             `json:"latest_attempt"`
	// Version rises by one with each event about the intent: of two events, the one with the higher version is later.
	Version int64 `json:"version"`
	Extra   Extra `json:"-"`
}

// PaymentError says why the last attempt failed.
type PaymentError struct {
	Code        string  `json:"code"`
	DeclineCode *string `json:"decline_code"`
	Message     *string `json:"message"`
	Extra       Extra   `json:"-"`
}

// UnmarshalJSON reads a payment intent, unknown members included.
func (p *PaymentIntent) UnmarshalJSON(data []byte) error {
	type plain PaymentIntent
	return decodeObject(data, (*plain)(p), &p.Extra)
}

// MarshalJSON writes the payment intent as it came.
func (p PaymentIntent) MarshalJSON() ([]byte, error) {
	type plain PaymentIntent
	return encodeObject(plain(p), p.Extra)
}

// UnmarshalJSON reads a payment error, unknown members included.
func (p *PaymentError) UnmarshalJSON(data []byte) error {
	type plain PaymentError
	return decodeObject(data, (*plain)(p), &p.Extra)
}

// MarshalJSON writes the payment error as it came.
func (p PaymentError) MarshalJSON() ([]byte, error) {
	type plain PaymentError
	return encodeObject(plain(p), p.Extra)
}

// PaymentIntents are the calls about payment intents.
type PaymentIntents struct{ core *core }

// PaymentIntentCreateParams are the parameters of Create; Amount and Currency are required.
type PaymentIntentCreateParams struct {
	Amount            int64             `json:"amount"`
	Currency          string            `json:"currency"`
	PaymentMethod     string            `json:"payment_method,omitempty"`
	Confirm           bool              `json:"confirm,omitempty"`
	Description       string            `json:"description,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	MerchantReference string            `json:"merchant_reference,omitempty"`
}

// PaymentIntentConfirmParams are the parameters of Confirm; without any, the intent's own payment method is charged.
type PaymentIntentConfirmParams struct {
	PaymentMethod string `json:"payment_method,omitempty"`
}

// RefundParams are the parameters of Refund.
type RefundParams struct {
	// Amount is nil for all that is left.
	Amount   *int64            `json:"amount,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// PaymentIntentListParams are the filters of List and All.
type PaymentIntentListParams struct {
	Paging
	Status            PaymentIntentStatus
	Currency          string
	MerchantReference string
	// CreatedGTE and CreatedLT are Unix seconds: from, and before. 0 is no filter.
	CreatedGTE, CreatedLT int64
}

func (p *PaymentIntentListParams) values() url.Values {
	if p == nil {
		return nil
	}
	q := queryValues(p.Paging.values())
	q.text("status", string(p.Status))
	q.text("currency", p.Currency)
	q.text("merchant_reference", p.MerchantReference)
	q.integer("created[gte]", p.CreatedGTE)
	q.integer("created[lt]", p.CreatedLT)
	return url.Values(q)
}

// Create makes a payment intent, and confirms it at once if Confirm is set. It is never sent twice; see Error.
func (s *PaymentIntents) Create(ctx context.Context, params *PaymentIntentCreateParams, options ...RequestOption) (*PaymentIntent, error) {
	if params == nil {
		return nil, refusal("a payment intent has an amount and a currency")
	}
	return s.post(ctx, []string{"payment-intents"}, params, options)
}

// Confirm charges the payment method. The answer's status is processing while the outcome is unknown. Never sent twice.
func (s *PaymentIntents) Confirm(ctx context.Context, id string, params *PaymentIntentConfirmParams, options ...RequestOption) (*PaymentIntent, error) {
	var body any
	if params != nil && params.PaymentMethod != "" {
		body = params
	}
	return s.post(ctx, []string{"payment-intents", id, "confirm"}, body, options)
}

// Cancel cancels an intent that has not succeeded. Never sent twice.
func (s *PaymentIntents) Cancel(ctx context.Context, id string, options ...RequestOption) (*PaymentIntent, error) {
	return s.post(ctx, []string{"payment-intents", id, "cancel"}, nil, options)
}

// Refund gives back params.Amount, or with nil params all that is left. Never sent twice.
func (s *PaymentIntents) Refund(ctx context.Context, id string, params *RefundParams, options ...RequestOption) (*Refund, error) {
	if params == nil {
		params = &RefundParams{}
	}
	var refund Refund
	in := call{method: http.MethodPost, path: []string{"payment-intents", id, "refunds"}, body: params, into: &refund}
	if err := s.core.do(ctx, in, options); err != nil {
		return nil, err
	}
	return &refund, nil
}

// Get reads a payment intent.
func (s *PaymentIntents) Get(ctx context.Context, id string, options ...RequestOption) (*PaymentIntent, error) {
	var intent PaymentIntent
	if err := s.core.do(ctx, call{method: http.MethodGet, path: []string{"payment-intents", id}, into: &intent}, options); err != nil {
		return nil, err
	}
	return &intent, nil
}

// List reads one page.
func (s *PaymentIntents) List(ctx context.Context, params *PaymentIntentListParams, options ...RequestOption) (*List[PaymentIntent], error) {
	return page[PaymentIntent](ctx, s.core, []string{"payment-intents"}, params.values(), options)
}

// All walks over every page, from params.Cursor on. An error ends it.
func (s *PaymentIntents) All(ctx context.Context, params *PaymentIntentListParams, options ...RequestOption) iter.Seq2[*PaymentIntent, error] {
	return all[PaymentIntent](ctx, s.core, []string{"payment-intents"}, params.values(), options)
}

func (s *PaymentIntents) post(ctx context.Context, path []string, body any, options []RequestOption) (*PaymentIntent, error) {
	var intent PaymentIntent
	if err := s.core.do(ctx, call{method: http.MethodPost, path: path, body: body, into: &intent}, options); err != nil {
		return nil, err
	}
	return &intent, nil
}
