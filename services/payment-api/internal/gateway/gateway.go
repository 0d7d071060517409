// Package gateway is what payment-api asks of a payment gateway, and how an answer of one is to be read.
// Connectors are packages of their own; gatewaytest is the conformance suite that each of them passes.
package gateway

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/postgres"
)

// Attempt is one call to the gateway. Its ID is the gateway's idempotency key: however often a gateway sees
// it, at most one charge or refund exists for it.
type Attempt struct {
	ID    uuid.UUID
	Scope postgres.Scope
	// Amount is in minor units of Currency, an upper-case ISO 4217 code.
	Amount        int64
	Currency      string
	PaymentMethod string
	// ChargeID is, for a refund, the attempt that charged; for a charge it is nil.
	ChargeID uuid.UUID
	// ChargeReference is, for a refund, the gateway's own name of that charge.
	ChargeReference string
}

// IsRefund tells the two kinds of attempt apart.
func (a Attempt) IsRefund() bool { return a.ChargeID != uuid.Nil }

// Outcome is what the gateway knows of an attempt.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "succeeded"
	Declined  Outcome = "declined"
	// Pending is every answer after sending that is neither: accepted and not decided, 429 and 5xx included.
	Pending Outcome = "pending"
	// NotFound is an answer of Lookup. It proves nothing: the call may still be on its way.
	NotFound Outcome = "not_found"
	// Refused says that the gateway refuses this id for ever and has done nothing for it.
	Refused Outcome = "refused"
)

// Result is an answer of the gateway.
type Result struct {
	Outcome Outcome
	// Reference is the gateway's own name of the charge or refund; "" if it has none.
	Reference string
	// DeclineCode is the issuer's reason, when declined.
	DeclineCode string
	// Message is for people; never a raw answer of the gateway.
	Message string
}

var (
	// ErrNotExecuted says that the call could not be sent (dial, DNS, TLS, circuit open): nothing happened.
	ErrNotExecuted = errors.New("the call to the gateway was not sent")
	// ErrCannotClose says that the gateway has no means to refuse this id from now on.
	ErrCannotClose = errors.New("the gateway cannot close the attempt")
)

// Gateway is one connector. Every method honors the deadline of its context and sends at most one request: a
// connector never repeats a charge or a refund by itself, whatever its transport does. Any error but
// [ErrNotExecuted] (and, of Close, [ErrCannotClose]) means that the outcome is unknown.
type Gateway interface {
	// Name is stored with each attempt, so that the connector that made it is asked for it.
	Name() string
	// Charge asks for the money. A repeated id answers what became of the first.
	Charge(ctx context.Context, a Attempt) (Result, error)
	// Refund gives money of a charge back. A repeated id answers what became of the first.
	Refund(ctx context.Context, a Attempt) (Result, error)
	// Lookup answers what the gateway knows of the attempt, without changing it.
	Lookup(ctx context.Context, a Attempt) (Result, error)
	// Close answers the charge or refund if it exists; else it makes the gateway refuse the id for ever and
	// answers Refused. It can be repeated. It fails with [ErrCannotClose].
	Close(ctx context.Context, a Attempt) (Result, error)
}

// Recognizer is a gateway that knows its payment methods beforehand, so that a misspelt one is refused when
// the intent is made and not when it is confirmed.
type Recognizer interface {
	Recognizes(paymentMethod string) bool
}
