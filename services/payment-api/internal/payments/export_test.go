package payments

import "context"

// ReapOnce is one turn of the reaper.
func (s *Service) ReapOnce(ctx context.Context, beat Heartbeat) error {
	_, err := s.reap(ctx, beat)
	return err
}
