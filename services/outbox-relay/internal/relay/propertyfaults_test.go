package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// propertyFaults are done to two replicas under load; each answers how many faults it made.
var propertyFaults = []struct {
	name string
	do   func(w *world, replicas []*replica) int
}{
	{"RelayKilledInMidTurn", func(w *world, _ []*replica) int {
		const kills = 5
		for range kills {
			r := w.newRelay(smallBatch)
			r.drainLimit = 0
			killed := make(chan struct{})
			victim := &crashing{producer: r.producer, at: 3, crash: killed}
			r.producer = victim
			p := run(w.t, r)
			select {
			case <-killed:
			case <-time.After(3 * time.Second): // the others had everything
			}
			p.kill()
		}
		return kills
	}},
	{"SessionsEndedInMidPublish", func(w *world, _ []*replica) int {
		const rounds = 10
		for range rounds {
			w.endSessions()
		}
		return rounds * 2 * workers
	}},
	{"BrokerRestarted", func(w *world, _ []*replica) int {
		w.kafka.down()
		w.kafka.comeBack()
		return 2 * workers
	}},
	{"BrokerFrozen", func(w *world, _ []*replica) int {
		w.kafka.wire.freeze()
		// Longer than the produce deadline: the requests arrive after they were given up.
		time.Sleep(produceDeadline + 500*time.Millisecond)
		w.kafka.wire.thaw()
		return 4 * workers
	}},
	{"ConnectionsCut", func(w *world, _ []*replica) int {
		const cuts = 10
		for range cuts {
			w.kafka.wire.cut()
			time.Sleep(20 * time.Millisecond)
		}
		return cuts * 2 * workers
	}},
	{"UnknownTopicAnswered", func(w *world, _ []*replica) int {
		fault := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownTopicOrPartition, Count: 50})
		defer fault.Remove()
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(w.t, fault.Wait(ctx, 20))
		return 0
	}},
	{"NotEnoughReplicas", func(w *world, _ []*replica) int {
		fault := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		defer fault.Remove()
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(w.t, fault.Wait(ctx, 30))
		return 0
	}},
	{"TimedOutThenAppended", func(w *world, _ []*replica) int {
		const count = 20
		fault := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: count})
		defer fault.Remove()
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(w.t, fault.Wait(ctx, count))
		return count
	}},
	{"PostgresSessionsAndBrokerTogether", func(w *world, _ []*replica) int {
		const rounds = 5
		for range rounds {
			w.kafka.wire.cut()
			w.endSessions()
			time.Sleep(50 * time.Millisecond)
		}
		return rounds * 4 * workers
	}},
}

// endSessions terminates the database sessions of every relay, some of them in mid-publish.
func (b *bundle) endSessions() {
	b.t.Helper()
	const query = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'outbox-relay'`
	_, err := b.super.Exec(context.Background(), query)
	require.NoError(b.t, err)
}

// crashing dies after the broker has confirmed the at-th batch: the relay never learns of it.
type crashing struct {
	producer
	at    int64
	count atomic.Int64
	crash chan struct{}
}

func (c *crashing) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	response, err := c.producer.Produce(ctx, request)
	switch n := c.count.Add(1); {
	case n == c.at:
		close(c.crash)
		fallthrough
	case n > c.at:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return response, err
}
