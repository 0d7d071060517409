package payments

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// cancel ends an intent that nothing was charged for: one transaction.
func (s *Service) cancel(ctx context.Context, request idempotency.Request, intentID uuid.UUID) (answer, error) {
	run := newRun(request)
	var response idempotency.Response
	first := func() (answer, error) {
		batch := &pgx.Batch{}
		progress := idempotency.Progress{PaymentIntentID: intentID}
		idempotency.QueueClaim(batch, run.Request, idempotency.Claimed, progress, run.owner, s.config.Lease, s.config.KeyTTL)
		batch.Queue(lockIntent, intentID)
		err := s.inTenantWith(ctx, run.Scope, batch, func(ctx context.Context, tx postgres.Tx, results pgx.BatchResults) error {
			p, err := readHeld(results, idempotency.ReadClaim)
			if err != nil {
				return err
			}
			response, err = s.cancelIn(ctx, tx, run, p)
			return err
		})
		failpoint(afterCommit)
		return answer{Response: response}, err
	}
	return s.underKey(ctx, run, first, func(idempotency.Record) (answer, error) {
		return answer{}, errMoved // such a key is committed finished
	})
}

func (s *Service) cancelIn(ctx context.Context, tx postgres.Tx, run *run, p intent) (idempotency.Response, error) {
	switch p.Status {
	case Succeeded, Canceled:
		return s.refuse(ctx, tx, run, stateProblem(p, "The payment intent is "+string(p.Status)+" and cannot be canceled."))
	case Processing:
		return idempotency.Response{}, stateProblem(p, "The payment intent is processing; it can be canceled only if the payment fails.")
	case RequiresPaymentMethod, RequiresConfirmation:
	}
	p.Status = Canceled
	t := run.told()
	t.intent(events.TypePaymentIntentCanceled, &p)
	response, err := respond(http.StatusOK, p.object(), "")
	if err != nil {
		return idempotency.Response{}, err
	}
	batch := &pgx.Batch{}
	queueIntentUpdate(batch, p)
	idempotency.QueueFinish(batch, run.Scope, run.Key, response, s.config.KeyTTL)
	failpoint(beforeCommit)
	return response, commitWith(ctx, tx, batch, t)
}
