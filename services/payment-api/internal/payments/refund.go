package payments

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// refund gives back all or a part of a succeeded intent: T1, the call, T2, as a confirm.
func (s *Service) refund(ctx context.Context, request idempotency.Request, intentID uuid.UUID, body refundBody) (answer, error) {
	run := newRun(request)
	refundID := id.New()
	first := func() (answer, error) { return s.refundIntent(ctx, run, intentID, refundID, body) }
	return s.underKey(ctx, run, first, func(record idempotency.Record) (answer, error) {
		return s.resumeAttempt(ctx, run, record)
	})
}

func (s *Service) refundIntent(ctx context.Context, run *run, intentID, refundID uuid.UUID, body refundBody) (answer, error) {
	gw := s.gatewayOf(run.Scope.Livemode)
	var a attempt
	var charge chargeOf
	var refusal *idempotency.Response
	first := &pgx.Batch{}
	progress := idempotency.Progress{PaymentIntentID: intentID, RefundID: refundID, AttemptID: run.attemptID}
	idempotency.QueueClaim(first, run.Request, idempotency.Attempted, progress, run.owner, s.config.Lease, s.config.KeyTTL)
	first.Queue(lockIntent, intentID)
	first.Queue(selectCharge, intentID)
	err := s.inTenantWith(ctx, run.Scope, first, func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error {
		refusal = nil
		var p intent
		var err error
		if p, charge, err = readRefundable(results); err != nil {
			return err
		}
		amount := p.remaining()
		if body.Amount != nil {
			amount = body.Amount.Value
		}
		if problem, final := refuseRefund(p, amount); problem != nil {
			if !final {
				return problem
			}
			response, err := s.refuse(ctx, tx, run, problem)
			refusal = &response
			return err
		}
		if !canRefund(gw, charge) {
			return withIntent(noGateway(), p)
		}
		r := refund{
			ID: refundID, Livemode: run.Scope.Livemode, PaymentIntentID: p.ID, Amount: amount, Currency: p.Currency,
			Status: RefundPending, Reason: body.Reason, Metadata: body.Metadata.Values, CreatedAt: tx.Now,
		}
		p.AmountRefundPending += amount
		a = run.refund(tx, r, charge)
		t := run.told()
		t.attempt(a)
		batch := &pgx.Batch{}
		queueRefundInsert(batch, run.Scope, r)
		queueAttemptInsert(batch, run.Scope, a, s.config.Lease)
		queueIntentUpdate(batch, p)
		return commitWith(ctx, tx, batch, t)
	})
	switch {
	case err != nil:
		return answer{}, err
	case refusal != nil:
		return answer{Response: *refusal}, nil
	}
	failpoint(afterT1)
	return s.callAndSettle(ctx, run, gw, a, charge.GatewayReference)
}

// refuseRefund says why the intent cannot give back the amount, and whether that is so for good.
func refuseRefund(p intent, amount int64) (problem *httpapi.Problem, final bool) {
	if p.Status != Succeeded {
		return stateProblem(p, "The payment intent is "+string(p.Status)+"; only a succeeded one can be refunded."), p.Status.isTerminal()
	}
	// The check constraint payment_intents_refunds_within_amount says the same to whoever comes another way.
	if amount < 1 || amount > p.remaining() {
		return withIntent(refundExceeds(), p), true
	}
	return nil, false
}

// canRefund: a charge is given back by the connector that made it.
func canRefund(gw gateway.Gateway, charge chargeOf) bool {
	return gw != nil && gw.Name() == charge.Gateway
}

// chargeOf is the attempt that charged an intent.
type chargeOf struct {
	ID               uuid.UUID
	Gateway          string
	GatewayReference *string
	PaymentMethod    string
}

const selectCharge = `
	SELECT id, gateway, gateway_reference, payment_method
	FROM apipay.payment_attempts WHERE payment_intent_id = $1 AND kind = 'charge' AND status = 'succeeded'`

// readRefundable reads the first results of T1: the key, the intent's lock, its charge.
func readRefundable(results pgx.BatchResults) (intent, chargeOf, error) {
	defer results.Close()
	if err := idempotency.ReadClaim(results); err != nil {
		return intent{}, chargeOf{}, err
	}
	p, err := scanIntent(results.Query())
	if err != nil {
		return intent{}, chargeOf{}, err
	}
	rows, err := results.Query()
	if err != nil {
		return intent{}, chargeOf{}, fmt.Errorf("reading the charge: %w", err)
	}
	charge, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[chargeOf])
	// No charge: the intent's state will refuse.
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return intent{}, chargeOf{}, fmt.Errorf("reading the charge: %w", err)
	}
	return p, charge, results.Close()
}

// refund is the attempt that carries out r.
func (r *run) refund(tx postgres.Tx, made refund, charge chargeOf) attempt {
	return attempt{
		ID:              r.attemptID,
		PaymentIntentID: made.PaymentIntentID,
		Kind:            kindRefund,
		RefundID:        &made.ID,
		ChargeAttemptID: &charge.ID,
		Number:          1,
		Status:          AttemptStarted,
		Amount:          made.Amount,
		Currency:        made.Currency,
		PaymentMethod:   charge.PaymentMethod,
		Gateway:         charge.Gateway,
		IdempotencyKey:  &r.Key,
		RequestID:       &r.RequestID,
		Version:         1,
		CreatedAt:       tx.Now,
	}
}

func queueRefundInsert(batch *pgx.Batch, scope postgres.Scope, r refund) {
	const query = `
		INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status, reason, metadata)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	batch.Queue(query, r.ID, scope.TenantID, scope.Livemode, r.PaymentIntentID, r.Amount, r.Currency, string(r.Status), r.Reason, r.Metadata)
}

func queueRefundUpdate(batch *pgx.Batch, r refund) {
	const query = `
		UPDATE apipay.refunds
		SET status = $2, failure_reason = $3, announced = $4, version = $5, updated_at = now()
		WHERE id = $1`
	batch.Queue(query, r.ID, string(r.Status), r.FailureReason, r.Announced, r.Version)
}

const (
	selectRefund = `SELECT ` + refundColumns + ` FROM apipay.refunds WHERE id = $1`
	lockRefund   = selectRefund + ` FOR UPDATE`
)

// scanRefund reads the one refund of a query; none is the problem not_found.
func scanRefund(rows pgx.Rows, err error) (refund, error) {
	if err != nil {
		return refund{}, fmt.Errorf("reading the refund: %w", err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[refund])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refund{}, notFound(id.Refund)
	case err != nil:
		return refund{}, fmt.Errorf("reading the refund: %w", err)
	}
	return r, nil
}
