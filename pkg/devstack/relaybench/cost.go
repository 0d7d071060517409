package relaybench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/devstack/rig"
)

// insertCost is what the events cost the transaction that settles a charge (T2): its commits per second with their insert
// against the same without. Both go in turns of a few hundred commits, so that what else the machine does meets both, and by
// a server that syncs each commit to disk, as one that keeps payments does.
func insertCost(ctx context.Context, b *bench) ([]Figure, error) {
	r, err := rig.New(ctx, rig.Options{Bin: b.Bin, Durable: true, NoBroker: true, Progress: b.Progress})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	durable := &bench{Config: b.Config, rig: r}
	t, err := durable.newTable(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	tenant, err := newSettling(ctx, t)
	if err != nil {
		return nil, err
	}
	defer tenant.app.Close()
	const warmUp, turns = 400, 20
	for _, events := range []bool{false, true} {
		if _, err := durable.settle(ctx, t, tenant, events, warmUp); err != nil {
			return nil, err
		}
	}
	var total [2]settled
	// What is written first after a checkpoint costs a full page: it is taken before, and none comes during the turns.
	if _, err := t.super.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	for range turns {
		for i, events := range []bool{false, true} {
			one, err := durable.settle(ctx, t, tenant, events, b.scaled(settlements))
			if err != nil {
				return nil, err
			}
			total[i] = total[i].plus(one)
		}
	}
	without, with := total[0], total[1]
	return []Figure{
		{What: "cost of the outbox insert to T2's commits/s", Target: "<= 15 %", Unit: "%", Meets: atMost(15), Value: 100 * (1 - with.rate()/without.rate())},
		{What: "the same by CPU time of Postgres and of T2's caller", Target: "<= 15 %", Unit: "%", Meets: atMost(15), Value: 100 * (1 - without.cpuEach()/with.cpuEach())},
		{What: "T2 without it", Target: "-", Unit: "commits/s", Value: without.rate()},
		{What: "T2 without it: CPU", Target: "-", Unit: "us", Value: without.cpuEach()},
		{What: "T2 without it: WAL", Target: "-", Unit: "bytes", Value: without.walEach()},
		{What: "T2 with it: CPU", Target: "-", Unit: "us", Value: with.cpuEach()},
		{What: "T2 with it: WAL", Target: "-", Unit: "bytes", Value: with.walEach()},
	}, nil
}

const (
	settlements = 500
	settlers    = 8
)

// settled is what some commits of T2 took.
type settled struct {
	commits   int
	took, cpu time.Duration
	wal       int64
}

func (s settled) plus(o settled) settled {
	return settled{s.commits + o.commits, s.took + o.took, s.cpu + o.cpu, s.wal + o.wal}
}

func (s settled) rate() float64    { return float64(s.commits) / s.took.Seconds() }
func (s settled) cpuEach() float64 { return s.cpu.Seconds() * 1e6 / float64(s.commits) }
func (s settled) walEach() float64 { return float64(s.wal) / float64(s.commits) }

// settling is the tenant whose charges are settled.
type settling struct {
	id   uuid.UUID
	lane int16
	app  *pgxpool.Pool
}

func newSettling(ctx context.Context, t *table) (*settling, error) {
	p := newPeople(1)
	if _, err := t.owner.Exec(ctx, `INSERT INTO apipay.tenants (id, name) VALUES ($1, 'bench')`, p.ids[0]); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(t.App)
	if err != nil {
		return nil, err
	}
	config.MaxConns = settlers
	app, err := pgxpool.NewWithConfig(ctx, config)
	return &settling{id: p.ids[0], lane: p.lanes[0], app: app}, err
}

// The statements of T2 as payment-api sends them (services/payment-api/internal/payments/settle.go): two batches between
// BEGIN, the scope and COMMIT. The events ride on the second.
const (
	sqlScope = `SELECT set_config('app.tenant_id', $1, true), set_config('app.livemode', $2, true), now(), set_config('idle_in_transaction_session_timeout', '5s', true)`
	sqlKey   = `
		SELECT key, fingerprint, method, path, first_request_id, recovery_point, payment_intent_id, refund_id, attempt_id,
		       owner, locked_until, response_status, response_headers, response_body, expires_at
		FROM apipay.idempotency_keys WHERE tenant_id = $1 AND livemode = $2 AND key = $3 FOR UPDATE`
	sqlIntent = `
		SELECT id, livemode, amount, amount_refunded, amount_refund_pending, currency, status, description, metadata,
		       merchant_reference, payment_method, last_payment_error, latest_attempt, charge_attempts, declined_attempts, version, created_at
		FROM apipay.payment_intents WHERE id = $1 FOR UPDATE`
	sqlAttempt = `
		UPDATE apipay.payment_attempts
		SET status = $2, gateway_reference = coalesce($3, gateway_reference), decline_code = $4, failure_message = $5,
		    announced = announced OR $2 = 'unknown', version = version + 1,
		    finished_at = CASE WHEN $2 = 'unknown' THEN NULL ELSE now() END,
		    next_check_at = CASE WHEN $2 = 'unknown' THEN now() + interval '5 s' END, checker = NULL, checker_until = NULL
		WHERE id = $1 AND (status = 'started' OR status = 'unknown' AND $2 <> 'unknown')
		RETURNING id, payment_intent_id, kind, refund_id, charge_attempt_id, number, status, amount, currency,
		          payment_method, gateway, gateway_reference, decline_code, failure_message, prior_status, prior_payment_method,
		          idempotency_key, request_id, announced, check_count, resolution, version, created_at`
	sqlSucceeded = `
		UPDATE apipay.payment_intents
		SET status = $2, amount_refunded = $3, amount_refund_pending = $4, payment_method = $5, last_payment_error = $6,
		    latest_attempt = $7, declined_attempts = $8, version = $9, updated_at = now()
		WHERE id = $1`
	sqlFinish = `
		UPDATE apipay.idempotency_keys
		SET recovery_point = 'finished', owner = NULL, locked_until = NULL,
		    response_status = $4, response_headers = $5, response_body = $6, expires_at = now() + interval '7 days'
		WHERE tenant_id = $1 AND livemode = $2 AND key = $3`
	sqlTwoEvents = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, traceparent)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16)`
)

// settle runs T2 on charges that it makes before.
func (b *bench) settle(ctx context.Context, t *table, s *settling, events bool, count int) (settled, error) {
	charges := make([]uuid.UUID, count)
	for i := range charges {
		charges[i] = uuid.Must(uuid.NewV7())
	}
	for _, statement := range []string{
		`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, charge_attempts, latest_attempt)
		 SELECT c, $1, false, 1000, 'EUR', 'processing', 'pm_card_visa', 1, c FROM unnest($2::uuid[]) c`,
		`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency, payment_method, gateway,
		 prior_status, idempotency_key, request_id, lease_until, next_check_at)
		 SELECT c, $1, false, c, 'charge', 1, 'started', 1000, 'EUR', 'pm_card_visa', 'sandbox', 'requires_confirmation', c::text, 'req_1', now(), now()
		 FROM unnest($2::uuid[]) c`,
		`INSERT INTO apipay.idempotency_keys (tenant_id, livemode, key, fingerprint, method, path, first_request_id, recovery_point, payment_intent_id,
		 attempt_id, owner, locked_until, expires_at)
		 SELECT $1, false, c::text, decode(repeat('00', 32), 'hex'), 'POST', '/v1/payment-intents', 'req_1', 'attempted', c, c, c, now(),
		        now() + interval '7 days'
		 FROM unnest($2::uuid[]) c`,
	} {
		if _, err := t.owner.Exec(ctx, statement, s.id, charges); err != nil {
			return settled{}, err
		}
	}
	var next atomic.Int64
	errs := make([]error, settlers)
	before, err := b.settledSoFar(ctx, t)
	if err != nil {
		return settled{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	for n := range settlers {
		wg.Go(func() {
			for errs[n] == nil {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				errs[n] = s.settleOne(ctx, charges[i], events)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	after, err := b.settledSoFar(ctx, t)
	return settled{commits: count, took: took, cpu: after.cpu - before.cpu, wal: after.wal - before.wal}, errors.Join(append(errs, err)...)
}

// settledSoFar is the CPU time of Postgres and of this process, and the end of the WAL.
func (b *bench) settledSoFar(ctx context.Context, t *table) (settled, error) {
	var s settled
	if err := t.super.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&s.wal); err != nil {
		return s, err
	}
	postgres, err := b.rig.Postgres.TreeCPU()
	s.cpu = postgres + ownCPU()
	return s, err
}

func (s *settling) settleOne(ctx context.Context, charge uuid.UUID, events bool) error {
	return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
		var tenant, mode, idle string
		var now time.Time
		if err := tx.QueryRow(ctx, sqlScope, s.id.String(), "false").Scan(&tenant, &mode, &now, &idle); err != nil {
			return err
		}
		locks := &pgx.Batch{}
		locks.Queue(sqlKey, s.id, false, charge.String())
		locks.Queue(sqlIntent, charge)
		locks.Queue(sqlAttempt, charge, "succeeded", "ch_1", nil, nil)
		if err := tx.SendBatch(ctx, locks).Close(); err != nil {
			return err
		}
		results := &pgx.Batch{}
		results.Queue(sqlSucceeded, charge, "succeeded", 0, 0, "pm_card_visa", nil, charge, 0, 2)
		results.Queue(sqlFinish, s.id, false, charge.String(), 200, []byte(`{"Content-Type":"application/json"}`), intentBody)
		if events {
			results.Queue(sqlTwoEvents,
				uuid.Must(uuid.NewV7()), s.id, false, "apipay.payment-events.v1", s.lane, "payment_attempt.succeeded", attemptEvent, nil,
				uuid.Must(uuid.NewV7()), s.id, false, topic, s.lane, "payment_intent.succeeded", intentEvent, nil)
		}
		if err := tx.SendBatch(ctx, results).Close(); err != nil {
			return fmt.Errorf("T2: %w", err)
		}
		return nil
	})
}

// Bodies of the size that they have.
var (
	intentBody = []byte(`{"id":"pi_01hf7yat00e3x9k2m4n6p8q0rs","object":"payment_intent","amount":1000,"amount_refunded":0,"currency":"EUR",` +
		`"status":"succeeded","livemode":false,"created":1700000000,"description":null,"metadata":{"order":"6735"},"merchant_reference":null,` +
		`"payment_method":"pm_card_visa","last_payment_error":null,"latest_attempt":"pat_01hf7yat00e3x9k2m4n6p8q0rs","version":2}`)
	intentEvent  = envelope("payment_intent.succeeded", string(intentBody))
	attemptEvent = envelope("payment_attempt.succeeded", `{"id":"pat_01hf7yat00e3x9k2m4n6p8q0rs","object":"payment_attempt","payment_intent":"pi_01hf7yat00e3x9k2m4n6p8q0rs",`+
		`"kind":"charge","number":1,"status":"succeeded","amount":1000,"currency":"EUR","gateway":"sandbox","gateway_reference":"ch_1","version":2}`)
)

func envelope(kind, object string) []byte {
	return []byte(`{"id":"evt_01hf7yat00e3x9k2m4n6p8q0rs","type":"` + kind + `","created":1700000000,"livemode":false,"api_version":"2026-01-01",` +
		`"request":{"id":"req_01hf7yat00e3x9k2m4n6p8q0rs","idempotency_key":"01890a5d-ac96-774b-bcce-b302099a8057"},"data":{"object":` + object + `}}`)
}
