package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

const (
	reconcileEvery = time.Second
	// reconcileBatch and reconcileWorkers bound what one replica asks the gateways at a time.
	reconcileBatch   = 100
	reconcileWorkers = 8

	firstCheck = 2 * time.Second
	maxCheck   = time.Minute
)

// checkDelay is the wait before the check after n of them: within 5 s first, then doubling to a minute.
func checkDelay(n int) time.Duration {
	if n > 10 {
		return maxCheck
	}
	return min(firstCheck<<n, maxCheck)
}

// Heartbeat is what a loop tells about itself; *ops.Loop is one.
type Heartbeat interface {
	Tick()
	Degraded(reason string)
}

// RunReconciler finds out what became of attempts whose request died or got no answer, until ctx ends: it asks the
// gateway and then writes T2. Any number of replicas may run it.
func (s *Service) RunReconciler(ctx context.Context, beat Heartbeat) error {
	return s.every(ctx, beat, "reconciler", reconcileEvery, s.reconcile)
}

// every runs a turn of a loop again and again: at once when the turn says that there is more, else after the interval.
func (s *Service) every(ctx context.Context, beat Heartbeat, name string, interval time.Duration,
	turn func(context.Context, Heartbeat) (more bool, err error),
) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		beat.Tick()
		more, err := turn(ctx, beat)
		wait := interval
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.log.ErrorContext(ctx, name+".turn", "error", err.Error())
			beat.Degraded(err.Error())
			wait = max(interval, time.Second)
		default:
			beat.Degraded("")
			if more {
				wait = 0
			}
		}
		timer.Reset(wait)
	}
}

type dueAttempt struct {
	scope postgres.Scope
	id    uuid.UUID
}

// reconcile checks every attempt that is due, each in transactions of its own tenant.
func (s *Service) reconcile(ctx context.Context, beat Heartbeat) (more bool, err error) {
	due, err := s.dueAttempts(ctx)
	if err != nil {
		return false, err
	}
	workers := errgroup.Group{}
	workers.SetLimit(reconcileWorkers)
	for _, d := range due {
		beat.Tick()
		workers.Go(func() error {
			s.checkOrLog(ctx, d.scope, d.id)
			return nil
		})
	}
	_ = workers.Wait()
	beat.Tick()
	return len(due) == reconcileBatch, nil
}

// checkOrLog checks one attempt: one that cannot be checked must not keep the others from it.
func (s *Service) checkOrLog(ctx context.Context, scope postgres.Scope, attemptID uuid.UUID) {
	if ctx.Err() != nil {
		return // the process stops
	}
	if err := s.check(ctx, scope, attemptID); err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "attempt.check", "attempt", id.Format(id.PaymentAttempt, attemptID), "error", err.Error())
	}
}

func (s *Service) dueAttempts(ctx context.Context) ([]dueAttempt, error) {
	const query = `SELECT tenant_id, livemode, id FROM apipay.due_payment_attempts($1)`
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, reconcileBatch)
	if err != nil {
		return nil, fmt.Errorf("listing due attempts: %w", err)
	}
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d dueAttempt, err error) {
		err = row.Scan(&d.scope.TenantID, &d.scope.Livemode, &d.id)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing due attempts: %w", err)
	}
	return due, nil
}

// leased is an attempt that this process may ask the gateway about.
type leased struct {
	attempt
	// Visible says that the gateway's "not found" means something by now.
	Visible bool
	// ChargeReference is the gateway's name of the charge, for a refund.
	ChargeReference *string
}

// check finds out what became of one attempt, if it is due and nobody else is at it.
func (s *Service) check(ctx context.Context, scope postgres.Scope, attemptID uuid.UUID) error {
	checker := id.New()
	l, ok, err := s.lease(ctx, scope, attemptID, checker)
	if err != nil || !ok {
		return err
	}
	v, err := s.truth(ctx, scope, l)
	if ctx.Err() != nil {
		// The process stops: what the gateway would have said is asked by another one.
		return s.giveBack(context.WithoutCancel(ctx), scope, l, checker, 0)
	}
	if err != nil {
		s.log.WarnContext(ctx, "gateway.lookup", "gateway", l.Gateway, "kind", l.Kind, "error", err.Error())
	}
	s.metrics.checked(ctx, l.Kind, v.status)
	if v.status == AttemptUnknown && l.Status == AttemptUnknown {
		return s.giveBack(ctx, scope, l, checker, checkDelay(l.CheckCount+1))
	}
	settled, err := s.settle(ctx, scope, l.attempt, v, &checker)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "attempt.checked", "attempt", id.Format(id.PaymentAttempt, attemptID), "kind", l.Kind,
		"outcome", string(settled.attempt.Status), "checks", l.CheckCount+1, "by_hand", l.Resolution != nil)
	return nil
}

// lease takes an open attempt for one check: unknown, or started by a request that is gone. Two replicas never ask at
// the same time.
func (s *Service) lease(ctx context.Context, scope postgres.Scope, attemptID, checker uuid.UUID) (l leased, ok bool, err error) {
	const query = `
		UPDATE apipay.payment_attempts SET checker = $2, checker_until = now() + $3
		WHERE id = (
		    SELECT id FROM apipay.payment_attempts
		    WHERE id = $1 AND next_check_at <= now() AND (checker_until IS NULL OR checker_until <= now())
		      AND (status = 'unknown' OR status = 'started' AND lease_until <= now())
		    FOR UPDATE SKIP LOCKED)
		RETURNING ` + attemptColumns + `, lease_until + $4 <= now() AS visible,
		          (SELECT c.gateway_reference FROM apipay.payment_attempts c
		           WHERE c.id = payment_attempts.charge_attempt_id) AS charge_reference`
	// Two calls to the gateway and a transaction.
	length := 2*s.config.GatewayTimeout + txTimeout
	err = s.inTenant(ctx, scope, func(ctx context.Context, tx postgres.Tx) error {
		rows, err := tx.Query(ctx, query, attemptID, checker, length, s.config.VisibilityDelay)
		if err != nil {
			return err
		}
		l, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[leased])
		if errors.Is(err, pgx.ErrNoRows) {
			ok = false
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil {
		return leased{}, false, fmt.Errorf("leasing an attempt: %w", err)
	}
	return l, ok, nil
}

// truth asks the gateway. "Not found" is believed only when the gateway had time to see the call and has then closed
// the id. A resolution by hand decides where the gateway does not.
func (s *Service) truth(ctx context.Context, scope postgres.Scope, l leased) (verdict, error) {
	gw := s.gatewayOf(scope.Livemode)
	if gw == nil || gw.Name() != l.Gateway {
		return resolved(l), fmt.Errorf("the connector %q is not configured", l.Gateway)
	}
	call := l.call(scope, l.ChargeReference)
	result, err := s.ask(ctx, call, gw.Lookup)
	if err != nil {
		return resolved(l), err
	}
	v := read(result, nil)
	if v.status != AttemptUnknown {
		return v, nil
	}
	mayClose := result.Outcome == gateway.NotFound && l.Visible
	if !mayClose && text(l.Resolution) != reasonNotExecuted {
		return resolved(l), nil
	}
	// Also before a resolution as not executed: a call that is still on its way must not charge after it.
	result, err = s.ask(ctx, call, gw.Close)
	if err != nil {
		return resolved(l), err
	}
	if v := read(result, nil); v.status != AttemptUnknown {
		return v, nil
	}
	return resolved(l), nil
}

func (s *Service) ask(ctx context.Context, call gateway.Attempt, how func(context.Context, gateway.Attempt) (gateway.Result, error)) (result gateway.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.GatewayTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the connector panicked: %v", v)
		}
	}()
	return how(ctx, call)
}

// resolved is what support has found out by hand, or unknown.
func resolved(l leased) verdict {
	if l.Resolution == nil {
		return verdict{status: AttemptUnknown, message: "The gateway has not answered yet."}
	}
	return verdict{status: AttemptStatus(*l.Resolution), message: "Resolved by support."}
}

// giveBack ends the lease of an attempt that stays unknown and says when it is due again; after 0 at once.
func (s *Service) giveBack(ctx context.Context, scope postgres.Scope, l leased, checker uuid.UUID, after time.Duration) error {
	// A resolution that came meanwhile made the attempt due at once, and keeps it so.
	const query = `
		UPDATE apipay.payment_attempts
		SET checker = NULL, checker_until = NULL, check_count = check_count + $3,
		    next_check_at = CASE WHEN resolution IS NULL THEN now() + $4 ELSE next_check_at END
		WHERE id = $1 AND checker = $2 AND status IN ('started', 'unknown')`
	counted := 1
	if after == 0 {
		counted = 0
	}
	err := s.inTenant(ctx, scope, func(ctx context.Context, tx postgres.Tx) error {
		_, err := tx.Exec(ctx, query, l.ID, checker, counted, after)
		return err
	})
	if err != nil {
		return fmt.Errorf("giving an attempt back: %w", err)
	}
	return nil
}
