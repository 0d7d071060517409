package payments

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// answerSettled is the answer to the request that holds the key.
func (s *Service) answerSettled(ctx context.Context, run *run, a attempt, settled settlement) (answer, error) {
	if settled.stored != nil {
		return answer{Response: *settled.stored}, nil
	}
	if !settled.mine {
		return s.answerStanding(ctx, run, a)
	}
	response, err := s.respondSettled(settled, run.RequestID, run.Path)
	return answer{Response: response}, err
}

const (
	selectAttempt = `SELECT ` + attemptColumns + ` FROM apipay.payment_attempts WHERE id = $1`
	selectIntent  = `SELECT ` + intentColumns + ` FROM apipay.payment_intents WHERE id = $1`
)

// standing reads how things stand with an attempt, in one snapshot per statement, the attempt first: what is read
// after it is at least as new.
func (s *Service) standing(ctx context.Context, scope postgres.Scope, a attempt) (settlement, error) {
	var now settlement
	err := s.inTenant(ctx, scope, func(ctx context.Context, tx postgres.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(selectAttempt, a.ID)
		batch.Queue(selectIntent, a.PaymentIntentID)
		if a.Kind == kindRefund {
			batch.Queue(selectRefund, *a.RefundID)
		}
		results := tx.SendBatch(ctx, batch)
		defer results.Close()
		var err error
		if now.attempt, err = scanAttempt(results.Query()); err != nil {
			return err
		}
		if now.intent, err = scanIntent(results.Query()); err != nil {
			return err
		}
		if a.Kind == kindRefund {
			if now.refund, err = scanRefund(results.Query()); err != nil {
				return err
			}
		}
		return results.Close()
	})
	return now, err
}

// answerStanding answers a request whose attempt somebody else settles or has settled: the stored answer if there is
// one, else what the attempt says now.
func (s *Service) answerStanding(ctx context.Context, run *run, a attempt) (answer, error) {
	// The attempt before the key: an attempt that is open here may be settled when the key is read, never the reverse.
	now, err := s.standing(ctx, run.Scope, a)
	if err != nil {
		return answer{}, err
	}
	var record idempotency.Record
	var found bool
	err = s.inTenant(ctx, run.Scope, func(ctx context.Context, tx postgres.Tx) error {
		var err error
		record, found, err = idempotency.Read(ctx, tx, run.Scope, run.Key)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	// A key that was released may stand for another request by now.
	if found && record.RecoveryPoint == idempotency.Finished && record.IsOf(run.Request) {
		return answer{Response: record.Response(), replayed: a.ID != run.attemptID}, nil
	}
	response, err := s.respondSettled(now, run.RequestID, run.Path)
	return answer{Response: response}, err
}

// resumeAttempt answers a request whose key is at an attempt that nobody holds any more, or that this very run made in
// a transaction whose commit was not answered.
func (s *Service) resumeAttempt(ctx context.Context, run *run, record idempotency.Record) (answer, error) {
	if record.AttemptID == nil {
		return answer{}, errMoved
	}
	var a attempt
	err := s.inTenant(ctx, run.Scope, func(ctx context.Context, tx postgres.Tx) error {
		var err error
		a, err = scanAttempt(tx.Query(ctx, selectAttempt, *record.AttemptID))
		return err
	})
	if err != nil {
		return answer{}, err
	}
	if record.Owner != nil && *record.Owner == run.owner {
		return s.resumeOwn(ctx, run, a)
	}
	// The outcome may be known by now; a look-up that is not due is not made.
	s.checkOrLog(ctx, run.Scope, a.ID)
	return s.answerStanding(ctx, run, a)
}

// resumeOwn goes on after T1 of this very run.
func (s *Service) resumeOwn(ctx context.Context, run *run, a attempt) (answer, error) {
	gw := s.gatewayOf(run.Scope.Livemode)
	if gw == nil || gw.Name() != a.Gateway {
		return answer{}, withIntentID(noGateway(), a.PaymentIntentID)
	}
	reference, err := s.chargeReference(ctx, run.Scope, a)
	if err != nil {
		return answer{}, err
	}
	return s.callAndSettle(ctx, run, gw, a, reference)
}

// chargeReference is the gateway's own name of the charge that a refund is about; nil for a charge.
func (s *Service) chargeReference(ctx context.Context, scope postgres.Scope, a attempt) (reference *string, err error) {
	if a.ChargeAttemptID == nil {
		return nil, nil
	}
	err = s.inTenant(ctx, scope, func(ctx context.Context, tx postgres.Tx) error {
		const query = `SELECT gateway_reference FROM apipay.payment_attempts WHERE id = $1`
		return tx.QueryRow(ctx, query, *a.ChargeAttemptID).Scan(&reference)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the charge of a refund: %w", err)
	}
	return reference, nil
}
