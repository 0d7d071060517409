package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
)

// insertOne adds one pending event and answers its id.
func (b *bundle) insertOne(topic string, tenant uuid.UUID, payload []byte) uuid.UUID {
	b.t.Helper()
	eventID := id.New()
	const query = `
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, traceparent)
		VALUES ($1, $2, false, $3, $4, 'ping', $5, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')`
	_, err := b.owner.Exec(b.t.Context(), query, eventID, tenant, topic, outbox.Lane(tenant), payload)
	require.NoError(b.t, err)
	return eventID
}

func (b *bundle) isPublished(eventID uuid.UUID) (published bool) {
	b.t.Helper()
	const query = `SELECT published_at IS NOT NULL FROM apipay.outbox_events WHERE id = $1`
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), query, eventID).Scan(&published))
	return published
}

func (b *bundle) parkedCount() (count int) {
	b.t.Helper()
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), `SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL`).Scan(&count))
	return count
}

func TestParking(t *testing.T) {
	t.Parallel()

	t.Run("OneOversizedAmongFiveHundred", func(t *testing.T) {
		t.Parallel()
		b := setup(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "600000"}))
		tenant := uuid.New()
		var want []string
		var big uuid.UUID
		for i := range 500 {
			if i == 250 {
				big = b.insertOne(topic, tenant, make([]byte, 700_000))
				continue
			}
			want = append(want, id.Format(id.Event, b.insertOne(topic, tenant, []byte(fmt.Sprint(i)))))
		}
		r := b.start()
		b.drained(10 * time.Second)
		require.Equal(t, want, idsOf(readAll(t, b.kafka.addrs, topic)), "499 arrive once, in order")
		var reason string
		require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT parked_reason FROM apipay.outbox_events WHERE parked_at IS NOT NULL AND id = $1`, big).Scan(&reason))
		require.Contains(t, reason, "Message Size Too Large")
		require.Equal(t, 1, b.parkedCount())

		// A replay that is refused again leaves its trace.
		const replay = `UPDATE apipay.outbox_events SET replay_requested_at = now() WHERE id = $1`
		_, err := b.owner.Exec(t.Context(), replay, big)
		require.NoError(t, err)
		eventually(t, 5*time.Second, "it is parked again", func() (again bool) {
			const query = `
				SELECT coalesce(parked_at > last_replay_at, false) AND replay_requested_at IS NULL FROM apipay.outbox_events WHERE id = $1`
			require.NoError(t, b.owner.QueryRow(t.Context(), query, big).Scan(&again))
			return again
		})

		// The limit is raised, and support asks again.
		r.stop()
		b.raiseLimit()
		b.start()
		_, err = b.owner.Exec(t.Context(), replay, big)
		require.NoError(t, err)
		eventually(t, 5*time.Second, "the parked event goes out", func() bool { return b.isPublished(big) })
		require.Equal(t, append(want, id.Format(id.Event, big)), idsOf(readAll(t, b.kafka.addrs, topic)))
		require.Zero(t, b.parkedCount())
		var asked *time.Time
		require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT replay_requested_at FROM apipay.outbox_events WHERE id = $1`, big).Scan(&asked))
		require.Nil(t, asked)
	})

	t.Run("InvalidRecordIsFoundByHalving", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		tenant, other := uuid.New(), uuid.New()
		var want []string
		bad := map[uuid.UUID]bool{}
		for i := range 100 {
			eventID := b.insertOne(topic, tenant, []byte(fmt.Sprint(i)))
			if i == 0 || i == 41 || i == 42 || i == 99 {
				bad[eventID] = true
				continue
			}
			want = append(want, id.Format(id.Event, eventID))
		}
		b.insertOne(topic, other, []byte("neighbor"))
		r := b.newRelay()
		r.producer = picky{r.producer, bad}
		run(t, r)
		b.drained(10 * time.Second)
		var got []string
		for _, record := range readAll(t, b.kafka.addrs, topic) {
			if record.key == tenant.String() {
				got = append(got, record.headers["event-id"])
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, len(bad), b.parkedCount())
	})

	t.Run("NothingIsParkedForTheBrokersFaults", func(t *testing.T) {
		t.Parallel()
		for _, code := range []*kerr.Error{
			kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NotLeaderForPartition,
			kerr.LeaderNotAvailable, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError,
			kerr.UnknownServerError, kerr.CorruptMessage, kerr.PolicyViolation, kerr.ThrottlingQuotaExceeded,
		} {
			t.Run(code.Message, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				fault := b.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: -1})
				eventID := b.insertOne(topic, uuid.New(), []byte("{}"))
				b.start()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.NoError(t, fault.Wait(ctx, 3))
				require.False(t, b.isPublished(eventID))
				require.Zero(t, b.parkedCount())
				fault.Remove()
				eventually(t, 2*time.Second, "the event goes out once the fault is over", func() bool { return b.isPublished(eventID) })
			})
		}
	})
}

func (b *bundle) raiseLimit() {
	b.t.Helper()
	b.kafka.down()
	b.kafka.opts = append(b.kafka.opts, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2000000"}))
	b.kafka.comeBack()
}

func idsOf(records []consumed) []string {
	ids := make([]string, 0, len(records))
	for _, record := range records {
		ids = append(ids, record.headers["event-id"])
	}
	return ids
}

// picky refuses batches that hold a bad event, as a broker that validates records does.
type picky struct {
	producer
	bad map[uuid.UUID]bool
}

func (p picky) Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	reader, ok := request.Records.(*recordReader)
	if !ok {
		return nil, errors.New("not a recordReader")
	}
	for i := range reader.events {
		if p.bad[reader.events[i].id] {
			return &kafka.ProduceResponse{Error: fmt.Errorf("%w: refused by validation", kafka.InvalidRecord)}, nil
		}
	}
	return p.producer.Produce(ctx, request)
}

// TestFaultEndsItsOwnLane: one lane's dead partition and one dead topic leave their neighbors alone, and a
// turn that lost one lane still marks the others.
func TestFaultEndsItsOwnLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var stuck atomic.Int64
	dead := uuid.New()
	deadPartition := int32(outbox.Lane(dead)) % 16
	fault := b.kafka.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{deadPartition}, Err: kerr.NotEnoughReplicas, Count: -1,
	}, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: outbox.TopicAudit, Err: kerr.TopicAuthorizationFailed, Count: -1})
	for range 300 {
		tenant := uuid.New()
		if int32(outbox.Lane(tenant))%16 == deadPartition {
			stuck.Add(1)
		}
		b.insertOne(topic, tenant, []byte("{}"))
		b.insertOne(outbox.TopicPayments, tenant, []byte("{}"))
	}
	b.insertOne(outbox.TopicAudit, dead, []byte("{}"))
	b.start()
	eventually(t, 5*time.Second, "all but the dead ones go out", func() bool { return b.pending() == int(stuck.Load())+1 })
	require.Len(t, readAll(t, b.kafka.addrs, outbox.TopicPayments), 300)
	fault.Remove()
	b.drained(2 * time.Second)
	require.Len(t, readAll(t, b.kafka.addrs, topic), 300)
	require.Len(t, readAll(t, b.kafka.addrs, outbox.TopicAudit), 1)
}
