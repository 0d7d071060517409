package relaybench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// insertCost is what the events cost the transaction that settles a charge (T2): its commits per second with their insert
// against the same without, in turn.
func insertCost(ctx context.Context, b *bench) ([]Figure, error) {
	t, err := b.newTable(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	const slices = 6
	var with, without float64
	for range slices {
		for _, events := range []bool{false, true} {
			rate, err := t.settle(ctx, events, b.scaledTime(2*time.Second))
			if err != nil {
				return nil, err
			}
			if events {
				with += rate / slices
			} else {
				without += rate / slices
			}
		}
	}
	return []Figure{
		{What: "cost of the outbox insert to T2's commits/s", Target: "<= 15 %", Unit: "%", Meets: atMost(15), Value: 100 * (1 - with/without)},
		{What: "T2 without it", Target: "-", Unit: "commits/s", Value: without},
	}, nil
}

const (
	sqlScope     = `SELECT set_config('app.tenant_id', $1, true), set_config('app.livemode', 'false', true)`
	sqlLock      = `SELECT version FROM apipay.payment_intents WHERE id = $1 FOR UPDATE`
	sqlAttempt   = `UPDATE apipay.payment_attempts SET status = 'succeeded', gateway_reference = 'ch_1', version = version + 1, finished_at = now(), next_check_at = NULL WHERE id = $1 AND status IN ('started', 'unknown')`
	sqlIntent    = `UPDATE apipay.payment_intents SET status = 'succeeded', version = version + 1, updated_at = now() WHERE id = $1`
	sqlKey       = `UPDATE apipay.idempotency_keys SET recovery_point = 'finished', response_status = 200, response_headers = '{}', response_body = $3, owner = NULL, locked_until = NULL WHERE tenant_id = $1 AND livemode = false AND key = $2`
	sqlTwoEvents = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES
		($1, $3, false, 'apipay.payment-events.v1', $4, 'payment_attempt.succeeded', $5), ($2, $3, false, 'apipay.outbound-webhooks.v1', $4, 'payment_intent.succeeded', $5)`
)

// settle runs T2 for a time on charges that are made before.
func (t *table) settle(ctx context.Context, events bool, d time.Duration) (rate float64, err error) {
	const sessions, most = 4, 4_000
	p := newPeople(1)
	tenant := p.ids[0]
	charges := make([]uuid.UUID, most)
	for i := range charges {
		charges[i] = uuid.Must(uuid.NewV7())
	}
	if _, err := t.owner.Exec(ctx, `INSERT INTO apipay.tenants (id, name) VALUES ($1, 'bench')`, tenant); err != nil {
		return 0, err
	}
	for _, statement := range []string{
		`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, charge_attempts, latest_attempt)
		 SELECT c, $1, false, 1000, 'EUR', 'processing', 'pm_card_visa', 1, c FROM unnest($2::uuid[]) c`,
		`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency, payment_method, gateway,
		 prior_status, idempotency_key, lease_until, next_check_at)
		 SELECT c, $1, false, c, 'charge', 1, 'started', 1000, 'EUR', 'pm_card_visa', 'sandbox', 'requires_confirmation', c::text, now(), now() FROM unnest($2::uuid[]) c`,
		`INSERT INTO apipay.idempotency_keys (tenant_id, livemode, key, fingerprint, method, path, first_request_id, recovery_point, owner, locked_until, expires_at)
		 SELECT $1, false, c::text, decode(repeat('00', 32), 'hex'), 'POST', '/', 'req_1', 'attempted', c, now(), now() + interval '7 days' FROM unnest($2::uuid[]) c`,
	} {
		if _, err := t.owner.Exec(ctx, statement, tenant, charges); err != nil {
			return 0, err
		}
	}
	app, err := pgxpool.New(ctx, t.App)
	if err != nil {
		return 0, err
	}
	defer app.Close()
	payload := make([]byte, 600)
	var next, done atomic.Int64
	errs := make(chan error, sessions)
	began := time.Now()
	for range sessions {
		go func() {
			var err error
			for err == nil && time.Since(began) < d {
				n := int(next.Add(1)) - 1
				if n >= most {
					break // the rate is by the time that they took
				}
				err = settleOne(ctx, app, tenant, p.lanes[0], charges[n], payload, events)
				done.Add(1)
			}
			errs <- err
		}()
	}
	for range sessions {
		err = errors.Join(err, <-errs)
	}
	return float64(done.Load()) / time.Since(began).Seconds(), err
}

func settleOne(ctx context.Context, app *pgxpool.Pool, tenant uuid.UUID, lane int16, charge uuid.UUID, payload []byte, events bool) error {
	return pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlScope, tenant.String()); err != nil {
			return err
		}
		var version int64
		if err := tx.QueryRow(ctx, sqlLock, charge).Scan(&version); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlAttempt, charge); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlIntent, charge); err != nil {
			return err
		}
		if events {
			if _, err := tx.Exec(ctx, sqlTwoEvents, uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), tenant, lane, payload); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sqlKey, tenant, charge.String(), payload)
		return err
	})
}
