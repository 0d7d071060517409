package payments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// create makes an intent and, if asked, confirms it at once.
func (s *Service) create(ctx context.Context, request idempotency.Request, body createBody) (answer, error) {
	run := newRun(request)
	intentID := id.New()
	first := func() (answer, error) {
		if body.Confirm {
			return s.createAndConfirm(ctx, run, intentID, body)
		}
		return s.createOnly(ctx, run, intentID, body)
	}
	return s.underKey(ctx, run, first, func(record idempotency.Record) (answer, error) {
		if !body.Confirm {
			return answer{}, errMoved // such a key is born finished
		}
		if record.RecoveryPoint == idempotency.Created {
			return s.confirmCreated(ctx, run, *record.PaymentIntentID, body.PaymentMethod)
		}
		return s.resumeAttempt(ctx, run, record)
	})
}

func (b createBody) intent(intentID uuid.UUID, tx postgres.Tx, livemode bool) intent {
	p := intent{
		ID:                intentID,
		Livemode:          livemode,
		Amount:            b.Amount.Value,
		Currency:          b.Currency,
		Status:            RequiresPaymentMethod,
		Description:       b.Description,
		Metadata:          b.Metadata.Values,
		MerchantReference: b.MerchantReference,
		PaymentMethod:     b.PaymentMethod,
		Version:           1,
		CreatedAt:         tx.Now,
	}
	if b.PaymentMethod != nil {
		p.Status = RequiresConfirmation
	}
	return p
}

// createOnly is one transaction: key, intent, event and stored answer.
func (s *Service) createOnly(ctx context.Context, run *run, intentID uuid.UUID, body createBody) (answer, error) {
	var response idempotency.Response
	err := s.inTenant(ctx, run.Scope, func(ctx context.Context, tx postgres.Tx) (err error) {
		p := body.intent(intentID, tx, run.Scope.Livemode)
		response, err = respond(http.StatusCreated, p.object(), intentPath(p.ID))
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		idempotency.QueueFinished(batch, run.Request, idempotency.Progress{PaymentIntentID: p.ID}, response, s.config.KeyTTL)
		queueIntentInsert(batch, run.Scope, p)
		t := run.told()
		t.intentCreated(p)
		if _, err := outbox.Queue(ctx, batch, tx.Now, t.list...); err != nil {
			return err
		}
		if err := claimAndSend(ctx, tx, batch); err != nil {
			return err
		}
		failpoint(beforeCommit)
		return nil
	})
	failpoint(afterCommit)
	return answer{Response: response}, err
}

// createAndConfirm makes the intent and its first attempt in one transaction, then goes on as a confirm does.
func (s *Service) createAndConfirm(ctx context.Context, run *run, intentID uuid.UUID, body createBody) (answer, error) {
	gw := s.gatewayOf(run.Scope.Livemode)
	var a attempt
	point, progress := idempotency.Created, idempotency.Progress{PaymentIntentID: intentID}
	if gw != nil {
		point, progress.AttemptID = idempotency.Attempted, run.attemptID
	}
	first := &pgx.Batch{}
	idempotency.QueueClaim(first, run.Request, point, progress, run.owner, s.config.Lease, s.config.KeyTTL)
	err := s.inTenantWith(ctx, run.Scope, first, func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error {
		err := idempotency.ReadClaim(results)
		if closing := results.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
		p := body.intent(intentID, tx, run.Scope.Livemode)
		t := run.told()
		t.intentCreated(p)
		batch := &pgx.Batch{}
		if gw == nil {
			// Nobody can be asked to charge: the intent stays, and the key waits at it for a later try.
			queueIntentInsert(batch, run.Scope, p)
			idempotency.QueueYield(batch, run.Scope, run.Key, idempotency.Created)
		} else {
			a = run.charge(tx, &p, *p.PaymentMethod, gw.Name())
			queueIntentInsert(batch, run.Scope, p)
			queueAttemptInsert(batch, run.Scope, a, s.config.Lease)
			t.attempt(a)
		}
		return commitWith(ctx, tx, batch, t)
	})
	if err != nil {
		return answer{}, err
	}
	if gw == nil {
		return answer{}, withIntentID(noGateway(), intentID)
	}
	failpoint(afterT1)
	return s.callAndSettle(ctx, run, gw, a, nil)
}

// claimAndSend runs a batch whose first statement claims the key.
func claimAndSend(ctx context.Context, tx postgres.Tx, batch *pgx.Batch) error {
	results := tx.SendBatch(ctx, batch)
	if err := idempotency.ReadClaim(results); err != nil {
		_ = results.Close() // what follows a refused claim is rolled back with it
		return err
	}
	if err := results.Close(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func queueIntentInsert(batch *pgx.Batch, scope postgres.Scope, p intent) {
	const query = `
		INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, description, metadata,
			merchant_reference, payment_method, latest_attempt, charge_attempts, version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
	batch.Queue(query, p.ID, scope.TenantID, scope.Livemode, p.Amount, p.Currency, string(p.Status), p.Description, p.Metadata,
		p.MerchantReference, p.PaymentMethod, p.LatestAttempt, p.ChargeAttempts, p.Version)
}

const insertAttempt = `
		INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, refund_id, number, charge_attempt_id,
			status, amount, currency, payment_method, gateway, prior_status, prior_payment_method, idempotency_key,
			request_id, lease_until, next_check_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'started', $9, $10, $11, $12, $13, $14, $15, $16, now() + $17, now() + $17)`

func queueAttemptInsert(batch *pgx.Batch, scope postgres.Scope, a attempt, lease time.Duration) {
	batch.Queue(insertAttempt, attemptArgs(scope, a, lease)...)
}

func attemptArgs(scope postgres.Scope, a attempt, lease time.Duration) []any {
	return []any{
		a.ID, scope.TenantID, scope.Livemode, a.PaymentIntentID, a.Kind, a.RefundID, a.Number, a.ChargeAttemptID,
		a.Amount, a.Currency, a.PaymentMethod, a.Gateway, a.PriorStatus, a.PriorPaymentMethod, a.IdempotencyKey,
		a.RequestID, lease,
	}
}
