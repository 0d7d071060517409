package payments

import (
	"context"
	"time"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

const (
	reapEvery = 10 * time.Second
	reapBatch = 500
)

// RunReaper removes idempotency keys whose life is over, until ctx ends. A key whose outcome is still open stays. Any
// number of replicas may run it.
func (s *Service) RunReaper(ctx context.Context, beat Heartbeat) error {
	return s.every(ctx, beat, "reaper", reapEvery, s.reap)
}

func (s *Service) reap(ctx context.Context, beat Heartbeat) (more bool, err error) {
	listCtx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	expired, err := idempotency.Expired(listCtx, s.pool, reapBatch)
	if err != nil {
		return false, err
	}
	for _, ref := range expired {
		beat.Tick()
		err := s.inTenant(ctx, ref.Scope, func(ctx context.Context, tx postgres.Tx) error {
			_, err := idempotency.RemoveExpired(ctx, tx, ref.Scope, ref.Key)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	s.metrics.reaped.Add(ctx, int64(len(expired)))
	return len(expired) == reapBatch, nil
}
