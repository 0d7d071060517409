package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// world is the property test: writers that change objects and write what they did beside the events, and the
// oracles that hold the topic against it.
type world struct {
	*bundle
	app     *pgxpool.Pool
	tenants []uuid.UUID
	objects map[uuid.UUID][]uuid.UUID
	broken  sync.Once
	times   atomic.Int32 // that write was called
	// shared: other tests write to the broker too, so records of other tenants are theirs.
	shared bool
}

const (
	worldTenants = 30
	worldObjects = 3 // per tenant: few, so that writers meet at their row locks
)

func newWorld(b *bundle) *world {
	b.t.Helper()
	w := &world{bundle: b, app: b.db.Pool(b.t, b.db.App), tenants: tenantIDs(worldTenants), objects: map[uuid.UUID][]uuid.UUID{}}
	_, err := b.super.Exec(b.t.Context(), `
		CREATE TABLE public.objects (id uuid PRIMARY KEY, version int NOT NULL);
		CREATE TABLE public.truth (event_id uuid PRIMARY KEY, tenant_id uuid, object_id uuid, version int, session int, step int);
		GRANT USAGE ON SCHEMA public TO apipay_app, apipay_owner;
		GRANT ALL ON public.objects, public.truth TO apipay_app, apipay_owner`)
	require.NoError(b.t, err)
	for _, tenant := range w.tenants {
		w.objects[tenant] = tenantIDs(worldObjects)
		_, err := b.super.Exec(b.t.Context(), `INSERT INTO public.objects SELECT o, 0 FROM unnest($1::uuid[]) o`, w.objects[tenant])
		require.NoError(b.t, err)
	}
	return w
}

// write runs writers, each of them a sequential session, for as long as ctx lasts, and returns when they have
// ended.
func (w *world) write(ctx context.Context, writers int) {
	var wg sync.WaitGroup
	first := int(w.times.Add(1)) * 1_000_000 // the sessions go on where they ended the last time, and further
	for session := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(session), 1))
			zipf := rand.NewZipf(random, 1.3, 1, worldTenants-1)
			for step := first; ctx.Err() == nil; step++ {
				w.change(random, w.tenants[zipf.Uint64()], session, step)
			}
		})
	}
	wg.Wait()
}

var errChangedMind = errors.New("the writer rolls back")

// change is one business transaction: one or two new versions of an object, each with its event. One in ten
// rolls back, one in twenty sleeps before its commit.
func (w *world) change(random *rand.Rand, tenant uuid.UUID, session, step int) {
	object := w.objects[tenant][random.IntN(worldObjects)]
	luck, count := random.Float64(), 1+random.IntN(2)
	ctx := context.Background()
	err := postgres.InTenant(ctx, w.app, postgres.Scope{TenantID: tenant}, func(tx postgres.Tx) error {
		for range count {
			var version int
			const update = `UPDATE public.objects SET version = version + 1 WHERE id = $1 RETURNING version`
			if err := tx.QueryRow(ctx, update, object).Scan(&version); err != nil {
				return err
			}
			ids, err := outbox.Insert(ctx, tx, outbox.Event{
				TenantID: tenant, Topic: topic, Type: events.TypePing,
				Object: map[string]any{"object": object.String(), "version": version},
			})
			if err != nil {
				return err
			}
			const insert = `INSERT INTO public.truth VALUES ($1, $2, $3, $4, $5, $6)`
			if _, err := tx.Exec(ctx, insert, ids[0], tenant, object, version, session, step); err != nil {
				return err
			}
		}
		switch {
		case luck < 0.10:
			return errChangedMind
		case luck < 0.15:
			_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 0.05*random.Float64())
			return err
		}
		return nil
	})
	if err != nil && !errors.Is(err, errChangedMind) {
		w.broken.Do(func() { w.t.Errorf("a writer: %v", err) })
	}
}

type fact struct {
	EventID  uuid.UUID
	TenantID uuid.UUID
	ObjectID uuid.UUID
	Version  int
	Session  int
	Step     int
}

// violations holds the topic against the truth and says what does not fit, by oracle. duplicates counts
// occurrences after the first.
func (w *world) violations() (found map[string]string, duplicates int) {
	w.t.Helper()
	found = map[string]string{}
	say := func(oracle, format string, args ...any) {
		if found[oracle] == "" {
			found[oracle] = fmt.Sprintf(format, args...)
		}
	}
	rows, err := w.owner.Query(w.t.Context(), `SELECT event_id, tenant_id, object_id, version, session, step FROM public.truth`)
	require.NoError(w.t, err)
	facts, err := pgx.CollectRows(rows, pgx.RowToStructByName[fact])
	require.NoError(w.t, err)
	require.NotEmpty(w.t, facts)
	truth := make(map[string]fact, len(facts))
	for _, f := range facts {
		truth[id.Format(id.Event, f.EventID)] = f
	}
	partitions := make([]int, 16)
	for i := range partitions {
		partitions[i] = i
	}
	first := map[string][]byte{}
	versions := map[uuid.UUID]int{}
	type session struct {
		tenant uuid.UUID
		number int
	}
	steps := map[session]int{}
	for _, record := range readAll(w.t, w.kafka.addrs, topic) {
		eventID := record.headers["event-id"]
		f, ok := truth[eventID]
		if !ok && w.shared && !w.isMine(record.key) {
			continue
		}
		if !ok {
			say("G", "%s was never committed", eventID)
			continue
		}
		java := kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: []byte(f.TenantID.String())}, partitions...)
		if record.key != f.TenantID.String() || record.partition != java {
			say("K", "tenant %s has key %s on partition %d, not %d", f.TenantID, record.key, record.partition, java)
		}
		if bytesBefore, again := first[eventID]; again {
			duplicates++
			if !bytes.Equal(bytesBefore, record.value) {
				say("D", "%s came twice with different bytes", eventID)
			}
			continue
		}
		first[eventID] = record.value
		if f.Version != versions[f.ObjectID]+1 {
			say("O1", "object %s: version %d after %d", f.ObjectID, f.Version, versions[f.ObjectID])
		}
		versions[f.ObjectID] = f.Version
		s := session{f.TenantID, f.Session}
		if f.Step < steps[s] {
			say("O2", "tenant %s, session %d: step %d after %d", f.TenantID, f.Session, f.Step, steps[s])
		}
		steps[s] = max(steps[s], f.Step)
	}
	if len(first) != len(truth) {
		say("L", "%d of %d committed events were consumed", len(first), len(truth))
	}
	return found, duplicates
}

func (w *world) isMine(key string) bool {
	return slices.ContainsFunc(w.tenants, func(tenant uuid.UUID) bool { return tenant.String() == key })
}

// smallBatch keeps several batches in flight in a short test.
func smallBatch(c *Config) { c.Batch = 20 }

// TestProperty runs writers against replicas of the relay, with and without a fault, and asks every oracle.
func TestProperty(t *testing.T) {
	t.Parallel()
	const load = 2 * time.Second

	for _, replicas := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%dReplicas", replicas), func(t *testing.T) {
			t.Parallel()
			w := newWorld(setup(t))
			for range replicas {
				w.start(smallBatch)
			}
			w.writeFor(load)
			w.drained(10 * time.Second)
			found, duplicates := w.violations()
			require.Empty(t, found)
			require.Zero(t, duplicates, "nothing failed, so nothing may come twice")
		})
	}

	t.Run("WithBounds", func(t *testing.T) {
		t.Parallel()
		w := newWorld(setup(t))
		var replicas []*Relay
		for range 2 {
			r := w.newRelay(smallBatch)
			r.floors.slow, r.watchEvery = -time.Hour, 20*time.Millisecond
			replicas = append(replicas, r)
			run(t, r)
		}
		w.writeFor(2 * load)
		w.drained(10 * time.Second)
		found, duplicates := w.violations()
		require.Empty(t, found)
		require.Zero(t, duplicates)
		for _, r := range replicas {
			require.Positive(t, r.floors.of(lane{topic, 0}), "bounds were in use")
		}
	})

	for _, fault := range propertyFaults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(setup(t))
			replicas := []*replica{w.start(smallBatch), w.start(smallBatch)}
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.writeFor(load)
			}()
			eventually(t, 5*time.Second, "events go out", func() bool { return w.published() > 50 })
			faults := fault.do(w, replicas)
			<-done
			w.drained(15 * time.Second)
			found, duplicates := w.violations()
			require.Empty(t, found)
			const inFlight = 2 * workers * maxLanes * 20 // replicas, workers, lanes, batch
			require.LessOrEqual(t, duplicates, faults*inFlight)
			w.noLockIsLeft()
		})
	}
}

func (w *world) writeFor(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	w.write(ctx, 8)
}

// published counts marked events.
func (b *bundle) published() (count int) {
	b.t.Helper()
	require.NoError(b.t, b.owner.QueryRow(context.Background(), `SELECT count(*) FROM apipay.outbox_events WHERE published_at IS NOT NULL`).Scan(&count))
	return count
}

// noLockIsLeft: every session that holds a lane is alive and in a turn.
func (b *bundle) noLockIsLeft() {
	b.t.Helper()
	eventually(b.t, 5*time.Second, "no lane is locked", func() bool {
		var held int
		require.NoError(b.t, b.owner.QueryRow(b.t.Context(), `
			SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&held))
		return held == 0
	})
}
