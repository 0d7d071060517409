package relay

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"apipay.io/hub/pkg/id"
)

// TestMutants is the test of the property test: each mutant is a relay that people have written, and the
// oracles must notice it.
func TestMutants(t *testing.T) {
	t.Parallel()
	mutants := []struct {
		name   string
		oracle []string // any of them
		mutate func(r *Relay)
		during func(w *world) // a fault under load
	}{
		{
			name: "ClaimsWithoutLaneLock", oracle: []string{"O1", "O2"},
			mutate: func(r *Relay) {
				r.statements.lock = `SELECT n::int4 FROM unnest($1::int8[]) WITH ORDINALITY AS keys (key, n)`
				r.producer = slow{r.producer}
			},
		},
		{
			name: "SortsByCreatedAt", oracle: []string{"O1"},
			mutate: func(r *Relay) {
				r.statements.claim = strings.NewReplacer("ORDER BY seq", "ORDER BY created_at", "ORDER BY e.seq", "ORDER BY e.created_at",
					"SELECT l.n, e.seq,", "SELECT l.n, e.created_at, e.seq,", "SELECT seq, id,", "SELECT created_at, seq, id,", "c.n, c.seq", "c.n, c.created_at").Replace(claimLanes)
			},
		},
		{
			name: "MarksAllOnAnError", oracle: []string{"L", "O1"},
			mutate: func(r *Relay) { r.producer = optimist{r.producer} },
			during: func(w *world) {
				w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 10})
			},
		},
		{
			name: "NewIDPerPublish", oracle: []string{"G"},
			mutate: func(r *Relay) { r.producer = renamer{r.producer} },
		},
		{
			name: "NaiveLowerBound", oracle: []string{"L", "O1"},
			mutate: func(r *Relay) {
				r.statements.claim = strings.ReplaceAll(claimLanes, "AND parked_at IS NULL",
					`AND parked_at IS NULL AND seq > (SELECT coalesce(max(p.seq), 0) FROM apipay.outbox_events p WHERE p.published_at IS NOT NULL AND p.lane = l.lane)`)
			},
		},
		{
			name: "BoundsThatAwaitNobody", oracle: []string{"L", "O1"},
			mutate: func(r *Relay) {
				r.floors.slow, r.watchEvery = -time.Hour, 5*time.Millisecond
				r.statements.writers = `SELECT '' WHERE false`
			},
		},
		{
			name: "AcksNone", oracle: []string{"L", "O1"},
			mutate: func(r *Relay) { r.producer = careless{r.producer} },
			during: func(w *world) {
				for range 10 {
					w.kafka.wire.freeze()
					time.Sleep(20 * time.Millisecond)
					w.kafka.wire.cut()
					w.kafka.wire.thaw()
				}
			},
		},
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(setup(t))
			for range 2 {
				r := w.newRelay(smallBatch)
				m.mutate(r)
				run(t, r)
			}
			var found map[string]string
			caught := false
			// What goes wrong by chance does so sooner or later: on a busy machine few events meet in 3 s.
			for deadline := time.Now().Add(15 * time.Second); !caught && time.Now().Before(deadline); {
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.writeFor(3 * time.Second)
				}()
				if m.during != nil {
					before := w.published()
					eventually(t, 5*time.Second, "events go out", func() bool { return w.published() > before+50 })
					m.during(w)
				}
				<-done
				w.settled()
				found, _ = w.violations()
				for _, oracle := range m.oracle {
					caught = caught || found[oracle] != ""
				}
			}
			require.True(t, caught, "the oracles found %v", found)
		})
	}
}

// settled waits until nothing is published any more: a mutant may leave events behind.
func (w *world) settled() {
	last, since := -1, time.Now()
	eventually(w.t, 10*time.Second, "publishing ends", func() bool {
		if now := w.published(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

// slow makes the race between two claimants visible.
type slow struct{ producer }

func (s slow) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	return s.producer.Produce(ctx, request)
}

// optimist takes every batch for confirmed.
type optimist struct{ producer }

func (o optimist) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	response, err := o.producer.Produce(ctx, request)
	if err != nil || response.Error != nil {
		return &kafka.ProduceResponse{}, nil //nolint:nilerr // that is the mutation
	}
	return response, nil
}

// renamer gives each record an id of its own.
type renamer struct{ producer }

func (p renamer) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	request.Records = renamed{request.Records}
	return p.producer.Produce(ctx, request)
}

type renamed struct{ kafka.RecordReader }

func (r renamed) ReadRecord() (*kafka.Record, error) {
	record, err := r.RecordReader.ReadRecord()
	if err == nil {
		record.Headers[0].Value = []byte(id.Format(id.Event, uuid.New()))
	}
	return record, err
}

// careless does not wait for the broker's acknowledgement.
type careless struct{ producer }

func (c careless) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	request.RequiredAcks = kafka.RequireNone
	if _, err := c.producer.Produce(ctx, request); err != nil {
		return nil, err
	}
	return &kafka.ProduceResponse{}, nil
}
