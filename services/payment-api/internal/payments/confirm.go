package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// run is one execution of a request under its key: who holds the key, and the attempt it will make if it comes to that.
// Both are chosen before the first transaction, so that one which is run again recognizes its own work.
type run struct {
	idempotency.Request
	owner     uuid.UUID
	attemptID uuid.UUID
	// began is before T1, by the monotonic clock: the lease that T1 writes ends later than began + lease.
	began time.Time
	// called says that the gateway was asked, so that its answer decides and no longer T1's fate.
	called bool
}

func newRun(request idempotency.Request) *run {
	return &run{Request: request, owner: id.New(), attemptID: id.New(), began: time.Now()}
}

func (r *run) told() *told {
	return &told{scope: r.Scope, request: outbox.Request{ID: r.RequestID, IdempotencyKey: r.Key}}
}

// charge moves the intent into processing and is the attempt that goes with it.
func (r *run) charge(tx postgres.Tx, p *intent, paymentMethod, gatewayName string) attempt {
	priorStatus, priorMethod := p.Status, p.PaymentMethod
	p.ChargeAttempts++
	a := attempt{
		ID:                 r.attemptID,
		PaymentIntentID:    p.ID,
		Kind:               kindCharge,
		Number:             p.ChargeAttempts,
		Status:             AttemptStarted,
		Amount:             p.Amount,
		Currency:           p.Currency,
		PaymentMethod:      paymentMethod,
		Gateway:            gatewayName,
		PriorStatus:        &priorStatus,
		PriorPaymentMethod: priorMethod,
		IdempotencyKey:     &r.Key,
		RequestID:          &r.RequestID,
		Version:            1,
		CreatedAt:          tx.Now,
	}
	p.Status, p.PaymentMethod, p.LatestAttempt = Processing, &a.PaymentMethod, &a.ID
	return a
}

// confirm charges an intent. Nothing of T1 stays when it is refused because of a state that will change, and what is
// refused because of a final state is stored.
func (s *Service) confirm(ctx context.Context, request idempotency.Request, intentID uuid.UUID, given *string) (answer, error) {
	run := newRun(request)
	first := func() (answer, error) {
		return s.chargeIntent(ctx, run, intentID, given, func(batch *pgx.Batch) {
			progress := idempotency.Progress{PaymentIntentID: intentID, AttemptID: run.attemptID}
			idempotency.QueueClaim(batch, run.Request, idempotency.Attempted, progress, run.owner, s.config.Lease, s.config.KeyTTL)
		}, idempotency.ReadClaim, func(*pgx.Batch) {})
	}
	return s.underKey(ctx, run, first, func(record idempotency.Record) (answer, error) {
		return s.resumeAttempt(ctx, run, record)
	})
}

// confirmCreated goes on with a create whose key waits at the intent: it confirms it with a new attempt.
func (s *Service) confirmCreated(ctx context.Context, run *run, intentID uuid.UUID, given *string) (answer, error) {
	run.attemptID = id.New()
	hold := func(batch *pgx.Batch) { idempotency.QueueLock(batch, run.Scope, run.Key) }
	held := func(results pgx.BatchResults) error {
		record, found, err := idempotency.ReadLock(results)
		if err != nil {
			return err
		}
		// After an unknown commit this may be our own work, and a key whose life was over may be another request's: what the key
		// stands for is read again then.
		if !found || record.RecoveryPoint != idempotency.Created || !record.IsOf(run.Request) || *record.PaymentIntentID != intentID {
			return errMoved
		}
		return nil
	}
	retake := func(batch *pgx.Batch) {
		idempotency.QueueRetake(batch, run.Scope, run.Key, run.attemptID, run.owner, s.config.Lease)
	}
	return s.chargeIntent(ctx, run, intentID, given, hold, held, retake)
}

// chargeIntent is T1, the call and T2. hold and held take the key, which is locked before the intent; retake goes with
// the writes of T1.
func (s *Service) chargeIntent(ctx context.Context, run *run, intentID uuid.UUID, given *string,
	hold func(*pgx.Batch), held func(pgx.BatchResults) error, retake func(*pgx.Batch),
) (answer, error) {
	gw := s.gatewayOf(run.Scope.Livemode)
	var a attempt
	var refusal *idempotency.Response
	first := &pgx.Batch{}
	hold(first)
	first.Queue(lockIntent, intentID)
	err := s.inTenantWith(ctx, run.Scope, first, func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error {
		refusal = nil
		p, err := readHeld(results, held)
		if err != nil {
			return err
		}
		method := given
		if method == nil {
			method = p.PaymentMethod
		}
		if problem := refuseConfirm(p, method); problem != nil {
			if !p.Status.isTerminal() {
				return problem
			}
			response, err := s.refuse(ctx, tx, run, problem)
			refusal = &response
			return err
		}
		if gw == nil {
			return withIntent(noGateway(), p)
		}
		a = run.charge(tx, &p, *method, gw.Name())
		t := run.told()
		t.attempt(a)
		batch := &pgx.Batch{}
		retake(batch)
		queueCharge(batch, run.Scope, p, a, s.config.Lease)
		return commitWith(ctx, tx, batch, t)
	})
	switch {
	case err != nil:
		return answer{}, err
	case refusal != nil:
		return answer{Response: *refusal}, nil
	}
	failpoint(afterT1)
	return s.callAndSettle(ctx, run, gw, a, nil)
}

const lockIntent = `SELECT ` + intentColumns + ` FROM apipay.payment_intents WHERE id = $1 FOR UPDATE`

// readHeld reads the results of a batch that takes the key and then locks the intent.
func readHeld(results pgx.BatchResults, held func(pgx.BatchResults) error) (intent, error) {
	defer results.Close()
	if err := held(results); err != nil {
		return intent{}, err
	}
	p, err := scanIntent(results.Query())
	if err != nil {
		return intent{}, err
	}
	if err := results.Close(); err != nil {
		return intent{}, fmt.Errorf("locking the payment intent: %w", err)
	}
	return p, nil
}

// scanIntent reads the one intent of a query; none is the problem not_found.
func scanIntent(rows pgx.Rows, err error) (intent, error) {
	if err != nil {
		return intent{}, fmt.Errorf("reading the payment intent: %w", err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[intent])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return intent{}, notFound(id.PaymentIntent)
	case err != nil:
		return intent{}, fmt.Errorf("reading the payment intent: %w", err)
	}
	return p, nil
}

func refuseConfirm(p intent, method *string) *httpapi.Problem {
	switch p.Status {
	case Processing, Succeeded, Canceled:
		return stateProblem(p, "The payment intent is "+string(p.Status)+" and cannot be confirmed.")
	case RequiresPaymentMethod, RequiresConfirmation:
	}
	if method == nil {
		return stateProblem(p, "The payment intent requires a payment_method before it can be confirmed.")
	}
	return nil
}

// refuse stores a problem that will be the answer for good, and commits.
func (s *Service) refuse(ctx context.Context, tx postgres.Tx, run *run, problem *httpapi.Problem) (idempotency.Response, error) {
	response, err := s.respondProblem(problem, run.RequestID, run.Path)
	if err != nil {
		return response, err
	}
	batch := &pgx.Batch{}
	idempotency.QueueFinish(batch, run.Scope, run.Key, response, s.config.KeyTTL)
	return response, commitWith(ctx, tx, batch, nil)
}

// commitWith adds the events to the batch, runs it and commits.
func commitWith(ctx context.Context, tx postgres.Tx, batch *pgx.Batch, t *told) error {
	if t != nil {
		if _, err := outbox.Queue(ctx, batch, tx.Now, t.list...); err != nil {
			return err
		}
	}
	return tx.CommitWith(ctx, batch)
}

// queueCharge writes the attempt and moves the intent into processing, in one statement.
func queueCharge(batch *pgx.Batch, scope postgres.Scope, p intent, a attempt, lease time.Duration) {
	const query = `
		WITH moved AS (
			UPDATE apipay.payment_intents
			SET status = $18, payment_method = $11, latest_attempt = $1, charge_attempts = $7, updated_at = now()
			WHERE id = $4)` + insertAttempt
	batch.Queue(query, append(attemptArgs(scope, a, lease), string(p.Status))...)
}

func queueIntentUpdate(batch *pgx.Batch, p intent) {
	const query = `
		UPDATE apipay.payment_intents
		SET status = $2, amount_refunded = $3, amount_refund_pending = $4, payment_method = $5, last_payment_error = $6,
		    latest_attempt = $7, declined_attempts = $8, version = $9, updated_at = now()
		WHERE id = $1`
	batch.Queue(query, p.ID, string(p.Status), p.AmountRefunded, p.AmountRefundPending, p.PaymentMethod, p.LastPaymentError,
		p.LatestAttempt, p.DeclinedAttempts, p.Version)
}

func noGateway() *httpapi.Problem {
	return gatewayUnavailable("No payment gateway is configured for this mode.")
}
