package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// maxDeclines is the declined attempt that also cancels the intent.
const maxDeclines = 10

// settlement is what T2 made of an attempt.
type settlement struct {
	attempt attempt
	intent  intent
	// refund is the zero value for a charge.
	refund refund
	// mine is false if the attempt had been settled before: then attempt, intent and refund are as they stand.
	mine bool
	// stored is the answer that the key keeps, nil if it keeps none.
	stored *idempotency.Response
}

// errSettled says that the attempt's guard found it settled by somebody else.
var errSettled = errors.New("the attempt is settled already")

// settle is T2: one commit for the attempt's result, the intent's (and refund's) state, the events and the stored
// answer. Its guard is the attempt's open status; an unknown outcome only replaces started. If somebody else was
// faster, the settlement says how things stand. Locks: key, intent, refund, attempt.
func (s *Service) settle(ctx context.Context, scope postgres.Scope, a attempt, v verdict, checker *uuid.UUID) (settlement, error) {
	var settled settlement
	err := s.inTenantWith(ctx, scope, lockForSettling(scope, a, v, checker), func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error {
		locked, record, err := readForSettling(results, a)
		if err != nil {
			return err
		}
		settled, err = s.settleIn(ctx, tx, scope, a, locked, record)
		return err
	})
	if errors.Is(err, errSettled) {
		return s.standing(ctx, scope, a)
	}
	failpoint(afterCommit)
	return settled, err
}

func (s *Service) settleIn(ctx context.Context, tx postgres.Tx, scope postgres.Scope, a attempt, locked settlement, record *idempotency.Record) (settlement, error) {
	t := &told{scope: scope, request: outbox.Request{ID: text(a.RequestID), IdempotencyKey: text(a.IdempotencyKey)}}
	t.attempt(locked.attempt)
	batch := &pgx.Batch{}
	if a.Kind == kindRefund {
		settleRefund(t, &locked)
		queueRefundUpdate(batch, locked.refund)
	} else {
		settleCharge(t, &locked)
	}
	queueIntentUpdate(batch, locked.intent)
	// A key that stands for another attempt by now, or was released, is none of ours.
	if record != nil && record.RecoveryPoint == idempotency.Attempted && record.AttemptID != nil && *record.AttemptID == a.ID {
		if err := s.settleKey(batch, scope, *record, &locked); err != nil {
			return settlement{}, err
		}
	}
	failpoint(beforeCommit)
	if err := commitWith(ctx, tx, batch, t); err != nil {
		return settlement{}, err
	}
	locked.mine = true
	return locked, nil
}

// lockForSettling takes the locks in their order and writes the attempt under its guard.
func lockForSettling(scope postgres.Scope, a attempt, v verdict, checker *uuid.UUID) *pgx.Batch {
	// The first check of an unknown outcome comes early; the reconciler's later ones double their distance.
	const update = `
		UPDATE apipay.payment_attempts
		SET status = $2, gateway_reference = coalesce($3, gateway_reference), decline_code = $4, failure_message = $5,
		    announced = announced OR $2 = 'unknown', version = version + 1,
		    finished_at = CASE WHEN $2 = 'unknown' THEN NULL ELSE now() END,
		    next_check_at = CASE WHEN $2 = 'unknown' THEN now() + $6 END,
		    checker = NULL, checker_until = NULL
		WHERE id = $1 AND (status = 'started' OR status = 'unknown' AND $2 <> 'unknown')
		  AND ($7::uuid IS NULL OR checker = $7)
		RETURNING ` + attemptColumns
	batch := &pgx.Batch{}
	if a.IdempotencyKey != nil {
		idempotency.QueueLock(batch, scope, *a.IdempotencyKey)
	}
	batch.Queue(lockIntent, a.PaymentIntentID)
	if a.Kind == kindRefund {
		batch.Queue(lockRefund, *a.RefundID)
	}
	batch.Queue(update, a.ID, string(v.status), optional(v.reference), optional(v.declineCode), optional(v.message),
		checkDelay(0), checker)
	return batch
}

// readForSettling reads the results of lockForSettling; record is nil where the key is gone.
func readForSettling(results pgx.BatchResults, a attempt) (locked settlement, record *idempotency.Record, err error) {
	defer results.Close()
	if a.IdempotencyKey != nil {
		r, found, err := idempotency.ReadLock(results)
		if err != nil {
			return settlement{}, nil, err
		}
		if found {
			record = &r
		}
	}
	if locked.intent, err = scanIntent(results.Query()); err != nil {
		return settlement{}, nil, err
	}
	if a.Kind == kindRefund {
		if locked.refund, err = scanRefund(results.Query()); err != nil {
			return settlement{}, nil, err
		}
	}
	locked.attempt, err = scanAttempt(results.Query())
	if errors.Is(err, pgx.ErrNoRows) {
		return settlement{}, nil, errSettled
	}
	if err != nil {
		return settlement{}, nil, err
	}
	return locked, record, results.Close()
}

// settleCharge moves the intent by the outcome of its attempt.
func settleCharge(t *told, s *settlement) {
	p, a := &s.intent, s.attempt
	switch a.Status {
	case AttemptSucceeded:
		p.Status, p.LastPaymentError = Succeeded, nil
		t.intent(events.TypePaymentIntentSucceeded, p)
	case AttemptDeclined:
		p.DeclinedAttempts++
		p.Status, p.PaymentMethod = RequiresPaymentMethod, nil
		p.LastPaymentError = &paymentError{Code: string(httpapi.CodeCardDeclined), DeclineCode: a.DeclineCode, Message: a.FailureMessage}
		t.intent(events.TypePaymentIntentPaymentFailed, p)
		if p.DeclinedAttempts >= maxDeclines {
			p.Status = Canceled
			t.intent(events.TypePaymentIntentCanceled, p)
		}
	case AttemptNotExecuted:
		p.Status, p.PaymentMethod = *a.PriorStatus, a.PriorPaymentMethod
		if a.Announced {
			// Merchants were told that it is processing, so they are told that it is no longer.
			p.LastPaymentError = &paymentError{Code: reasonNotExecuted, Message: a.FailureMessage}
			t.intent(events.TypePaymentIntentPaymentFailed, p)
		}
	case AttemptUnknown:
		t.intent(events.TypePaymentIntentProcessing, p)
	case AttemptStarted:
	}
}

// settleRefund moves the refund, and the intent's remainder, by the outcome of the attempt. The first outcome that is
// not not_executed announces the refund.
func settleRefund(t *told, s *settlement) {
	p, r, a := &s.intent, &s.refund, s.attempt
	if !r.Announced && a.Status != AttemptNotExecuted {
		r.Announced = true
		t.refund(events.TypeRefundCreated, r)
	}
	fail := func(reason string) {
		r.Status, r.FailureReason = RefundFailed, &reason
		p.AmountRefundPending -= r.Amount
		if r.Announced {
			t.refund(events.TypeRefundFailed, r)
		}
	}
	switch a.Status {
	case AttemptSucceeded:
		r.Status = RefundSucceeded
		p.AmountRefundPending -= r.Amount
		p.AmountRefunded += r.Amount
		t.refund(events.TypeRefundSucceeded, r)
	case AttemptDeclined:
		reason := "declined"
		if a.DeclineCode != nil {
			reason = *a.DeclineCode
		}
		fail(reason)
	case AttemptNotExecuted:
		fail(reasonNotExecuted)
	case AttemptUnknown, AttemptStarted:
	}
}

// settleKey decides what becomes of the key that waits for the attempt: the answer is stored, or, while the outcome is
// unknown, the lease ends, or, when nothing happened, the key is free again. A create keeps its key at the intent.
func (s *Service) settleKey(batch *pgx.Batch, scope postgres.Scope, record idempotency.Record, settled *settlement) error {
	switch settled.attempt.Status {
	case AttemptUnknown, AttemptStarted:
		idempotency.QueueYield(batch, scope, record.Key, idempotency.Attempted)
	case AttemptNotExecuted:
		if isCreate(record.Path) {
			idempotency.QueueYield(batch, scope, record.Key, idempotency.Created)
		} else {
			idempotency.QueueRelease(batch, scope, record.Key)
		}
	case AttemptSucceeded, AttemptDeclined:
		response, err := s.respondSettled(*settled, record.FirstRequestID, record.Path)
		if err != nil {
			return err
		}
		settled.stored = &response
		idempotency.QueueFinish(batch, scope, record.Key, response, s.config.KeyTTL)
	}
	return nil
}

// respondSettled is the answer to the request that made the attempt. Not executed is no answer but a problem, which is
// never stored.
func (s *Service) respondSettled(settled settlement, requestID, path string) (idempotency.Response, error) {
	p, a := settled.intent, settled.attempt
	if a.Status == AttemptNotExecuted {
		return idempotency.Response{}, withIntentID(notExecuted(), p.ID)
	}
	if a.Kind == kindRefund {
		status := http.StatusCreated
		if a.Status.isOpen() {
			status = http.StatusAccepted
		}
		return respond(status, settled.refund.object(), refundLocation(settled.refund.ID))
	}
	switch {
	case a.Status.isOpen():
		return respond(http.StatusAccepted, p.object(), intentLocation(path, p.ID))
	case a.Status == AttemptDeclined:
		return s.respondProblem(declinedProblem(p, a.DeclineCode, a.FailureMessage), requestID, path)
	}
	return respond(successStatus(path), p.object(), intentLocation(path, p.ID))
}

func scanAttempt(rows pgx.Rows, err error) (attempt, error) {
	if err != nil {
		return attempt{}, fmt.Errorf("reading the attempt: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[attempt])
	if err != nil {
		return attempt{}, fmt.Errorf("reading the attempt: %w", err)
	}
	return a, nil
}

func unsettled(cause error) *httpapi.Problem {
	return httpapi.New(httpapi.CodeInternalError,
		"The gateway was asked and its answer could not be stored yet. The same request with the same key will tell the outcome.").
		WithCause(cause)
}

func isTransient(err error) bool {
	return postgres.IsUnavailable(err) || errors.Is(err, postgres.ErrCommitUnknown)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func text(optional *string) string {
	if optional == nil {
		return ""
	}
	return *optional
}
