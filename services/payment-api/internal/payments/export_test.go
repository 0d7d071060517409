package payments

import (
	"context"
	"time"
)

// SetPatience changes how long a request waits for T2 while the database is away.
func (s *Service) SetPatience(d time.Duration) { s.patience = d }

// ReapOnce is one turn of the reaper.
func (s *Service) ReapOnce(ctx context.Context, beat Heartbeat) error {
	_, err := s.reap(ctx, beat)
	return err
}

// ReconcileOnce is one turn of the reconciler.
func (s *Service) ReconcileOnce(ctx context.Context) error {
	_, err := s.reconcile(ctx, still{})
	return err
}

type still struct{}

func (still) Tick()           {}
func (still) Degraded(string) {}
