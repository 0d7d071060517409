package payments

import (
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// IntentStatus is the state of a payment intent.
type IntentStatus string

// The states of a payment intent.
const (
	RequiresPaymentMethod IntentStatus = "requires_payment_method"
	RequiresConfirmation  IntentStatus = "requires_confirmation"
	Processing            IntentStatus = "processing"
	Succeeded             IntentStatus = "succeeded"
	Canceled              IntentStatus = "canceled"
)

// isTerminal says that the state never changes again, so that a refusal because of it can be stored.
func (s IntentStatus) isTerminal() bool { return s == Succeeded || s == Canceled }

// RefundStatus is the state of a refund.
type RefundStatus string

// The states of a refund.
const (
	RefundPending   RefundStatus = "pending"
	RefundSucceeded RefundStatus = "succeeded"
	RefundFailed    RefundStatus = "failed"
)

// AttemptStatus is the state of an attempt; started and unknown are open.
type AttemptStatus string

// The states of an attempt.
const (
	AttemptStarted     AttemptStatus = "started"
	AttemptSucceeded   AttemptStatus = "succeeded"
	AttemptDeclined    AttemptStatus = "declined"
	AttemptNotExecuted AttemptStatus = "not_executed"
	AttemptUnknown     AttemptStatus = "unknown"
)

// isOpen says that the gateway's truth about the attempt is not known yet.
func (s AttemptStatus) isOpen() bool { return s == AttemptStarted || s == AttemptUnknown }

// The kinds of attempts.
const (
	kindCharge = "charge"
	kindRefund = "refund"
)

// reasonNotExecuted is the code of last_payment_error, and a refund's failure_reason, when the gateway never did it.
const reasonNotExecuted = "not_executed"

// paymentError is why the last attempt to charge did not succeed.
type paymentError = api.PaymentError

// intent is a row of apipay.payment_intents.
type intent struct {
	ID                  uuid.UUID
	Livemode            bool
	Amount              int64
	AmountRefunded      int64
	AmountRefundPending int64
	Currency            string
	Status              IntentStatus
	Description         *string
	Metadata            map[string]string
	MerchantReference   *string
	PaymentMethod       *string
	LastPaymentError    *paymentError
	LatestAttempt       *uuid.UUID
	ChargeAttempts      int
	DeclinedAttempts    int
	Version             int64
	CreatedAt           time.Time
}

const intentColumns = `id, livemode, amount, amount_refunded, amount_refund_pending, currency, status, description, metadata,
	merchant_reference, payment_method, last_payment_error, latest_attempt, charge_attempts, declined_attempts, version,
	created_at`

// remaining is what can still be refunded.
func (p intent) remaining() int64 { return p.Amount - p.AmountRefunded - p.AmountRefundPending }

// object is the intent as the API and its events show it.
func (p intent) object() api.PaymentIntent {
	o := api.PaymentIntent{
		ID:     id.Format(id.PaymentIntent, p.ID),
		Object: api.PaymentIntentObjectPaymentIntent,
		Amount: p.Amount,
		// Refunds on their way count, so that amount - amount_refunded is what can still be refunded.
		AmountRefunded:    p.AmountRefunded + p.AmountRefundPending,
		Currency:          p.Currency,
		Status:            api.PaymentIntentStatus(p.Status),
		Livemode:          p.Livemode,
		Created:           p.CreatedAt.Unix(),
		Description:       p.Description,
		Metadata:          p.Metadata,
		MerchantReference: p.MerchantReference,
		PaymentMethod:     p.PaymentMethod,
		LastPaymentError:  p.LastPaymentError,
		Version:           p.Version,
	}
	if p.LatestAttempt != nil {
		text := id.Format(id.PaymentAttempt, *p.LatestAttempt)
		o.LatestAttempt = &text
	}
	return o
}

// refund is a row of apipay.refunds.
type refund struct {
	ID              uuid.UUID
	Livemode        bool
	PaymentIntentID uuid.UUID
	Amount          int64
	Currency        string
	Status          RefundStatus
	FailureReason   *string
	Reason          *string
	Metadata        map[string]string
	Announced       bool
	Version         int64
	CreatedAt       time.Time
}

const refundColumns = `id, livemode, payment_intent_id, amount, currency, status, failure_reason, reason, metadata, announced,
	version, created_at`

// object is the refund as the API and its events show it.
func (r refund) object() api.Refund {
	return api.Refund{
		ID:            id.Format(id.Refund, r.ID),
		Object:        api.RefundObjectRefund,
		PaymentIntent: id.Format(id.PaymentIntent, r.PaymentIntentID),
		Amount:        r.Amount,
		Currency:      r.Currency,
		Status:        api.RefundStatus(r.Status),
		FailureReason: r.FailureReason,
		Reason:        r.Reason,
		Metadata:      r.Metadata,
		Livemode:      r.Livemode,
		Created:       r.CreatedAt.Unix(),
		Version:       r.Version,
	}
}

// attempt is a row of apipay.payment_attempts, with what the reconciler judges by the database's clock.
type attempt struct {
	ID                 uuid.UUID
	PaymentIntentID    uuid.UUID
	Kind               string
	RefundID           *uuid.UUID
	ChargeAttemptID    *uuid.UUID
	Number             int
	Status             AttemptStatus
	Amount             int64
	Currency           string
	PaymentMethod      string
	Gateway            string
	GatewayReference   *string
	DeclineCode        *string
	FailureMessage     *string
	PriorStatus        *IntentStatus
	PriorPaymentMethod *string
	IdempotencyKey     *string
	RequestID          *string
	Announced          bool
	CheckCount         int
	Resolution         *string
	Version            int64
	CreatedAt          time.Time
}

const attemptColumns = `id, payment_intent_id, kind, refund_id, charge_attempt_id, number, status, amount, currency,
	payment_method, gateway, gateway_reference, decline_code, failure_message, prior_status, prior_payment_method,
	idempotency_key, request_id, announced, check_count, resolution, version, created_at`

// call is the attempt as the gateway gets it.
func (a attempt) call(scope postgres.Scope, chargeReference *string) gateway.Attempt {
	c := gateway.Attempt{
		ID: a.ID, Scope: scope, Amount: a.Amount, Currency: a.Currency, PaymentMethod: a.PaymentMethod,
	}
	if a.ChargeAttemptID != nil {
		c.ChargeID = *a.ChargeAttemptID
	}
	if chargeReference != nil {
		c.ChargeReference = *chargeReference
	}
	return c
}

// attemptObject is an attempt as the events of apipay.payment-events.v1 show it.
type attemptObject struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	PaymentIntent string        `json:"payment_intent"`
	Refund        *string       `json:"refund"`
	Kind          string        `json:"kind"`
	Number        int           `json:"number"`
	Status        AttemptStatus `json:"status"`
	Amount        int64         `json:"amount"`
	Currency      string        `json:"currency"`
	PaymentMethod *string       `json:"payment_method"`
	DeclineCode   *string       `json:"decline_code"`
	FailureReason *string       `json:"failure_reason"`
	Livemode      bool          `json:"livemode"`
	Created       int64         `json:"created"`
	Version       int64         `json:"version"`
}

func (a attempt) object(livemode bool) attemptObject {
	o := attemptObject{
		ID:            id.Format(id.PaymentAttempt, a.ID),
		Object:        "payment_attempt",
		PaymentIntent: id.Format(id.PaymentIntent, a.PaymentIntentID),
		Kind:          a.Kind,
		Number:        a.Number,
		Status:        a.Status,
		Amount:        a.Amount,
		Currency:      a.Currency,
		PaymentMethod: &a.PaymentMethod,
		DeclineCode:   a.DeclineCode,
		Livemode:      livemode,
		Created:       a.CreatedAt.Unix(),
		Version:       a.Version,
	}
	if a.Status == AttemptNotExecuted || a.Status == AttemptUnknown {
		o.FailureReason = a.FailureMessage
	}
	if a.RefundID != nil {
		o.Object = "refund_attempt"
		text := id.Format(id.Refund, *a.RefundID)
		o.Refund = &text
	}
	return o
}
