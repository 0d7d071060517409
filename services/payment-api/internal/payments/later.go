package payments

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

const (
	// maxPending bounds what waits for the database in memory, a few kilobytes each; beyond it the reconciler finds out, once
	// the lease is over.
	maxPending = 10_000
	// retriesAtOnce spares a database that has just come back, and the requests that wait for it, too.
	retriesAtOnce = 4
	// retryTimeout bounds one more try. It is short, so that a connection which leads nowhere any more is soon given up.
	retryTimeout = 5 * time.Second
	maxRetryWait = time.Second
)

// pending is work that must be written and waits for the database: it goes on when its request has been answered, until
// it is done or the process ends. Whoever loses it by a crash leaves it to the reconciler.
type pending struct {
	room  *semaphore.Weighted
	slots *semaphore.Weighted
	// ended ends when the process no longer waits.
	ended context.Context
	end   context.CancelFunc
}

func newPending() *pending {
	p := &pending{room: semaphore.NewWeighted(maxPending), slots: semaphore.NewWeighted(retriesAtOnce)}
	p.ended, p.end = context.WithCancel(context.Background())
	return p
}

// start runs write beside the caller, again and again while the database is away. It is false when there is no room, or
// the process ends: then nothing was started.
func (p *pending) start(ctx context.Context, write func(ctx context.Context, try int) error) bool {
	if p.ended.Err() != nil || !p.room.TryAcquire(1) {
		return false
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer p.room.Release(1)
		if isTransient(write(ctx, 1)) {
			p.repeat(ctx, write)
		}
	}()
	return true
}

func (p *pending) repeat(ctx context.Context, write func(ctx context.Context, try int) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ended, cancel)()
	for try, delay := 2, 50*time.Millisecond; ; try, delay = try+1, min(2*delay, maxRetryWait) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		if p.slots.Acquire(ctx, 1) != nil {
			return
		}
		tryCtx, cancel := context.WithTimeout(ctx, retryTimeout)
		err := write(tryCtx, try)
		cancel()
		p.slots.Release(1)
		if !isTransient(err) {
			return
		}
	}
}

// drain waits until nothing is pending or ctx ends; then what is left is given up, and nothing is started any more.
func (p *pending) drain(ctx context.Context) {
	if p.ended.Err() != nil {
		return
	}
	_ = p.room.Acquire(ctx, maxPending) // refused or not, this is the end
	p.end()
}

// Drain waits until all that the gateways have answered is written, or ctx ends. Call it after the last request.
func (s *Service) Drain(ctx context.Context) { s.pending.drain(ctx) }

// settlePatiently is T2 of a request: the gateway has acted, and its truth must not wait for the lease's end because the
// database is away just now. It fails when the request has waited long enough; the work goes on all the same.
func (s *Service) settlePatiently(ctx context.Context, scope postgres.Scope, a attempt, v verdict) (settlement, error) {
	type outcome struct {
		settlement
		err error
	}
	began := time.Now()
	tried := make(chan outcome, 1)
	started := s.pending.start(ctx, func(ctx context.Context, try int) error {
		settled, err := s.settle(ctx, scope, a, v, nil)
		if isTransient(err) {
			return err
		}
		tried <- outcome{settled, err}
		s.logLate(ctx, "attempt.settled_late", a, try, began, err)
		return nil
	})
	if !started {
		return s.settle(ctx, scope, a, v, nil)
	}
	patience := time.NewTimer(s.patience)
	defer patience.Stop()
	select {
	case o := <-tried:
		return o.settlement, o.err
	case <-patience.C:
		return settlement{}, errStillAway
	}
}

// errStillAway says that what must be written waits for the database.
var errStillAway = errors.New("the database did not take what the gateway answered; it is tried again")

func (s *Service) logLate(ctx context.Context, event string, a attempt, tries int, began time.Time, err error) {
	if tries == 1 {
		return
	}
	fields := []any{"attempt", id.Format(id.PaymentAttempt, a.ID), "kind", a.Kind, "tries", tries, "seconds", time.Since(began).Seconds()}
	if err != nil {
		s.log.ErrorContext(ctx, event, append(fields, "error", err.Error())...)
		return
	}
	s.log.WarnContext(ctx, event, fields...)
}

// abandon is for a run that has ended without its call to the gateway, while nobody knows whether T1 took effect: its
// COMMIT was not answered, and the database is away. Once it is back, an attempt that is there was not executed, and its
// key and intent are free again, as the client was told.
func (s *Service) abandon(ctx context.Context, run *run) {
	began := time.Now()
	s.pending.start(ctx, func(ctx context.Context, try int) error {
		a, found, err := s.fate(ctx, run)
		if err == nil && found {
			_, err = s.settle(ctx, run.Scope, a, verdict{status: AttemptNotExecuted, message: "The call to the gateway was not made."}, nil)
		}
		if isTransient(err) {
			return err
		}
		if found || err != nil {
			a.ID = run.attemptID
			s.logLate(ctx, "attempt.abandoned", a, max(try, 2), began, err)
		}
		return nil
	})
}

// fate finds out whether T1 of a run took effect. Its transaction may still be in the air, in a database that stood
// still: the claim waits for one that has claimed the key, and the lock for one that has taken it over.
func (s *Service) fate(ctx context.Context, run *run) (a attempt, found bool, err error) {
	batch := &pgx.Batch{}
	idempotency.QueueClaim(batch, run.Request, idempotency.Claimed, idempotency.Progress{}, run.owner, s.config.Lease, s.config.KeyTTL)
	idempotency.QueueLock(batch, run.Scope, run.Key)
	batch.Queue(selectAttempt, run.attemptID)
	err = s.inTenantWith(ctx, run.Scope, batch, func(_ context.Context, _ postgres.Tx, results pgx.BatchResults) error {
		defer results.Close()
		err := idempotency.ReadClaim(results)
		if err == nil {
			return errNotClaimed // takes this very claim back
		}
		if !errors.Is(err, idempotency.ErrExists) {
			return err
		}
		if _, _, err := idempotency.ReadLock(results); err != nil {
			return err
		}
		a, err = scanAttempt(results.Query())
		if errors.Is(err, pgx.ErrNoRows) {
			return errNotClaimed
		}
		return err
	})
	if errors.Is(err, errNotClaimed) {
		return attempt{}, false, nil
	}
	return a, err == nil, err
}

var errNotClaimed = errors.New("the first transaction did not take effect")
