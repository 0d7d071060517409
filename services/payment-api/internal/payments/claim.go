package payments

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// maxClaims bounds how often a request tries when the record of its key comes and goes under it.
const maxClaims = 20

// underKey runs a command under its idempotency key. first claims the key and works; it fails with
// idempotency.ErrExists when the key is taken. Then the record decides: it is replayed, refused, or, when its holder is
// gone, taken over by resume.
func (s *Service) underKey(ctx context.Context, request idempotency.Request, owner uuid.UUID,
	first func() (answer, error), resume func(idempotency.Record) (answer, error),
) (answer, error) {
	for range maxClaims {
		a, err := first()
		if !errors.Is(err, idempotency.ErrExists) {
			return a, err
		}
		var record idempotency.Record
		var found bool
		err = s.inTenant(ctx, request.Scope, func(ctx context.Context, tx postgres.Tx) error {
			var err error
			record, found, err = idempotency.Read(ctx, tx, request.Scope, request.Key)
			if err != nil || !found {
				return err
			}
			return nameIntent(record.Check(request, owner, tx.Now), record)
		})
		switch {
		case err != nil:
			return answer{}, err
		case !found:
			continue
		case record.RecoveryPoint == idempotency.Finished:
			return answer{Response: record.Response(), replayed: true}, nil
		}
		a, err = resume(record)
		if !errors.Is(err, errMoved) {
			return a, err
		}
	}
	return answer{}, httpapi.New(httpapi.CodeIdempotencyInProgress, "A request with this Idempotency-Key is still running.")
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
