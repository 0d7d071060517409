package payments

import (
	"context"
	"errors"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// maxClaims bounds how often a request tries when the record of its key comes and goes under it.
const maxClaims = 20

// underKey runs a command under its idempotency key. first claims the key and works; it fails with
// idempotency.ErrExists when the key is taken. Then the record decides: it is replayed, refused, or, when its holder is
// gone, taken over by resume.
func (s *Service) underKey(ctx context.Context, run *run, first func() (answer, error), resume func(idempotency.Record) (answer, error)) (answer, error) {
	a, found, err := s.claimOrResume(ctx, run, first, resume)
	// Nothing was asked of the gateway, and it may be that T1 has left an attempt that looks as if there were: its commit
	// was not answered, or was read back and the database went away then.
	if !run.called && (errors.Is(err, postgres.ErrCommitUnknown) || found && isTransient(err)) {
		s.abandon(ctx, run)
	}
	return a, err
}

func (s *Service) claimOrResume(ctx context.Context, run *run, first func() (answer, error), resume func(idempotency.Record) (answer, error)) (
	a answer, found bool, err error,
) {
	for range maxClaims {
		a, err := first()
		if !errors.Is(err, idempotency.ErrExists) {
			return a, found, err
		}
		found = true
		var record idempotency.Record
		var there bool
		err = s.inTenant(ctx, run.Scope, func(ctx context.Context, tx postgres.Tx) error {
			var err error
			record, there, err = idempotency.Read(ctx, tx, run.Scope, run.Key)
			if err != nil || !there {
				return err
			}
			return nameIntent(record.Check(run.Request, run.owner, tx.Now), record)
		})
		switch {
		case err != nil:
			return answer{}, found, err
		case !there:
			continue
		case record.RecoveryPoint == idempotency.Finished:
			return answer{Response: record.Response(), replayed: true}, found, nil
		}
		a, err = resume(record)
		if !errors.Is(err, errMoved) {
			return a, found, err
		}
	}
	return answer{}, found, httpapi.New(httpapi.CodeIdempotencyInProgress, "A request with this Idempotency-Key is still running.")
}

// nameIntent tells a request that has to come back which intent its key stands for.
func nameIntent(err error, record idempotency.Record) error {
	problem, ok := errors.AsType[*httpapi.Problem](err)
	if ok && problem.Code == httpapi.CodeIdempotencyInProgress && record.PaymentIntentID != nil {
		return withIntentID(problem, *record.PaymentIntentID)
	}
	return err
}

// errMoved says that the record of the key is no longer what was read.
var errMoved = errors.New("the idempotency key has moved on")
