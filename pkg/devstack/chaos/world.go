// Package chaos is the property test of the outbox and the relay over real processes: writers change objects and write what
// they did beside the events, faults are done to the processes, and oracles hold the topics against the truth.
package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/devstack/rig"
)

// The topics that are written: the second one only while it is missing.
const (
	topic      = "apipay.outbound-webhooks.v1"
	spareTopic = "apipay.payment-events.v1"
)

const (
	tenants   = 30
	objects   = 3 // per tenant: few, so that writers meet at their row locks
	writers   = 6
	lanes     = 64
	noSession = -1 // of events that may come late
)

// world is the database with its writers.
type world struct {
	app     *pgxpool.Pool
	super   *pgxpool.Pool
	tenants []uuid.UUID
	objects map[uuid.UUID][]uuid.UUID
	seed    uint64
	pause   time.Duration // of each writer between two transactions

	committed atomic.Int64
	failed    atomic.Int64 // transactions whose outcome the writer does not know
}

func newWorld(ctx context.Context, db rig.Database, seed uint64, pause time.Duration) (*world, error) {
	w := &world{objects: map[uuid.UUID][]uuid.UUID{}, seed: seed, pause: pause}
	var err error
	if w.app, err = pgxpool.New(ctx, db.App); err != nil {
		return nil, err
	}
	if w.super, err = pgxpool.New(ctx, db.Super); err != nil {
		return nil, err
	}
	const tables = `
		CREATE TABLE public.objects (id uuid PRIMARY KEY, version int NOT NULL);
		CREATE TABLE public.truth (event_id uuid PRIMARY KEY, topic text, tenant_id uuid, object_id uuid, version int, session int, step int);
		GRANT USAGE ON SCHEMA public TO apipay_app;
		GRANT ALL ON public.objects, public.truth TO apipay_app`
	if _, err := w.super.Exec(ctx, tables); err != nil {
		return nil, err
	}
	for range tenants {
		tenant := uuid.New()
		w.tenants = append(w.tenants, tenant)
		for range objects {
			object := uuid.New()
			w.objects[tenant] = append(w.objects[tenant], object)
			if _, err := w.super.Exec(ctx, `INSERT INTO public.objects VALUES ($1, 0)`, object); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

func (w *world) close() {
	w.app.Close()
	w.super.Close()
}

// write runs the writers, each of them a sequential session, until ctx ends.
func (w *world) write(ctx context.Context) {
	var wg sync.WaitGroup
	for session := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(w.seed, uint64(session))) //nolint:gosec // to be repeated by its seed
			zipf := rand.NewZipf(random, 1.3, 1, tenants-1)
			for step := 0; ctx.Err() == nil; step++ {
				w.change(random, w.tenants[zipf.Uint64()], session, step)
				rig.Sleep(ctx, w.pause)
			}
		})
	}
	wg.Wait()
}

var errChangedMind = errors.New("the writer rolls back")

// change is one business transaction: one or two new versions of an object, each with its event. One in ten rolls back, one
// in twenty sleeps before its commit. It is not ended with the writers, so that what is committed is known.
func (w *world) change(random *rand.Rand, tenant uuid.UUID, session, step int) {
	object := w.objects[tenant][random.IntN(objects)]
	luck, count, nap := random.Float64(), 1+random.IntN(2), 0.05*random.Float64()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := w.inTenant(ctx, tenant, func(tx pgx.Tx) error {
		for range count {
			if err := w.next(ctx, tx, topic, tenant, object, session, step, 0); err != nil {
				return err
			}
		}
		switch {
		case luck < 0.10:
			return errChangedMind
		case luck < 0.15:
			_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, nap)
			return err
		}
		return nil
	})
	switch {
	case err == nil:
		w.committed.Add(int64(count))
	case !errors.Is(err, errChangedMind):
		w.failed.Add(1)
		time.Sleep(50 * time.Millisecond) // the database may be away
	}
}

func (w *world) inTenant(ctx context.Context, tenant uuid.UUID, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, w.app, func(tx pgx.Tx) error {
		const scope = `SELECT set_config('app.tenant_id', $1, true), set_config('app.livemode', 'false', true)`
		if _, err := tx.Exec(ctx, scope, tenant.String()); err != nil {
			return err
		}
		return do(tx)
	})
}

// envelope is the part of an event that the oracles read.
type envelope struct {
	ID      uuid.UUID `json:"id"`
	Object  uuid.UUID `json:"object"`
	Version int       `json:"version"`
	Filler  string    `json:"filler,omitempty"`
}

// next is the object's next version, its event and the truth, filler bytes larger than it need be.
func (w *world) next(ctx context.Context, tx pgx.Tx, topic string, tenant, object uuid.UUID, session, step, filler int) error {
	e := envelope{ID: uuid.Must(uuid.NewV7()), Object: object, Filler: strings.Repeat("z", filler)}
	const update = `UPDATE public.objects SET version = version + 1 WHERE id = $1 RETURNING version`
	if err := tx.QueryRow(ctx, update, object).Scan(&e.Version); err != nil {
		return err
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// After the row lock: seq, the order within an object, is given out here.
	const insert = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES ($1, $2, false, $3, $4, 'ping', $5)`
	if _, err := tx.Exec(ctx, insert, e.ID, tenant, topic, lane(tenant), payload); err != nil {
		return fmt.Errorf("inserting an event: %w", err)
	}
	const truth = `INSERT INTO public.truth VALUES ($1, $2, $3, $4, $5, $6, $7)`
	_, err = tx.Exec(ctx, truth, e.ID, topic, tenant, object, e.Version, session, step)
	return err
}

// allLanes are what the balancer chooses from.
var allLanes = func() []int {
	all := make([]int, lanes)
	for i := range all {
		all[i] = i
	}
	return all
}()

// lane is where a tenant's events go: the partition of 64 that a Java client picks.
func lane(tenant uuid.UUID) int {
	return kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: []byte(tenant.String())}, allLanes...)
}

// oldestPending is how long the oldest event has waited that is neither published nor parked.
func (w *world) oldestPending(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const query = `
		SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM apipay.outbox_events
		WHERE published_at IS NULL AND parked_at IS NULL`
	var seconds float64
	err := w.super.QueryRow(ctx, query).Scan(&seconds)
	return time.Duration(seconds * float64(time.Second)), err
}

// await polls until the condition holds.
func await(ctx context.Context, limit time.Duration, what string, is func() (bool, error)) (time.Duration, error) {
	started := time.Now()
	for {
		ok, err := is()
		switch {
		case ok:
			return time.Since(started), nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case time.Since(started) > limit:
			return 0, errors.Join(fmt.Errorf("not within %s: %s", limit, what), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
