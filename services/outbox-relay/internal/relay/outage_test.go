package relay

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/proto/events"
)

// openTransactions are the relay's sessions that are in a transaction and idle.
func (b *bundle) openTransactions() (count int) {
	b.t.Helper()
	const query = `
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'outbox-relay'
		AND state LIKE 'idle in transaction%' AND state_change < now() - interval '200 milliseconds'`
	require.NoError(b.t, b.super.QueryRow(b.t.Context(), query).Scan(&count))
	return count
}

func TestOutage(t *testing.T) {
	t.Parallel()

	t.Run("BrokerAwayAtStart", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.kafka.down()
		eventID := b.insertOne(topic, uuid.New(), []byte("{}"))
		r := b.start()
		eventually(t, 5*time.Second, "the relay says that no broker answers", func() bool { return r.metrics.isBlocked() })
		require.Zero(t, b.openTransactions())
		b.kafka.comeBack()
		eventually(t, 2*time.Second, "it resumes", func() bool { return b.isPublished(eventID) })
	})

	t.Run("BrokerAwayForSeconds", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := b.start()
		first := b.insertOne(topic, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "it works", func() bool { return b.isPublished(first) })
		b.kafka.down()
		var waiting []uuid.UUID
		away := time.Now()
		for range time.Tick(20 * time.Millisecond) {
			waiting = append(waiting, b.insertOne(topic, uuid.New(), []byte("{}")))
			if time.Since(away) > 12*time.Second { // longer than a produce's deadline
				break
			}
		}
		require.Zero(t, b.openTransactions(), "no transaction is open while it waits")
		require.True(t, r.metrics.isBlocked())
		require.Zero(t, b.parkedCount())
		b.kafka.comeBack()
		eventually(t, 2*time.Second, "the first goes out", func() bool { return b.isPublished(waiting[0]) })
		b.drained(3 * time.Second)
		require.Zero(t, b.parkedCount())
		require.Len(t, readAll(t, b.kafka.addrs, topic), 1+len(waiting))
	})

	t.Run("TopicMissingThenCreated", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.NoError(t, b.kafka.DeleteTopic(topic))
		b.start()
		waiting := b.insertOne(topic, uuid.New(), []byte("{}"))
		other := b.insertOne(outbox.TopicAudit, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "another topic is not held up", func() bool { return b.isPublished(other) })
		require.False(t, b.isPublished(waiting))
		require.NoError(t, b.kafka.CreateTopic(topic, 16, nil))
		eventually(t, 2*time.Second, "it resumes", func() bool { return b.isPublished(waiting) })
		require.Zero(t, b.parkedCount())
	})

	t.Run("TopicDeletedWhileRunning", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := b.start()
		first := b.insertOne(topic, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "it works", func() bool { return b.isPublished(first) })
		require.NoError(t, b.kafka.DeleteTopic(topic))
		waiting := b.insertOne(topic, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "the relay says that the topic is missing", func() bool { return r.metrics.isBlocked() })
		require.False(t, b.isPublished(waiting))
		require.NoError(t, b.kafka.CreateTopic(topic, 16, nil))
		eventually(t, 2*time.Second, "it resumes", func() bool { return b.isPublished(waiting) })
	})

	t.Run("CreatesTopicsWhenTold", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, name := range events.Topics() {
			require.NoError(t, b.kafka.DeleteTopic(name))
		}
		waiting := b.insertOne(topic, uuid.New(), []byte("{}"))
		b.start(func(c *Config) { c.CreateTopics = true })
		eventually(t, 5*time.Second, "it goes out", func() bool { return b.isPublished(waiting) })
		require.Len(t, b.kafka.PartitionInfos(topic), 16)
	})

	t.Run("PartitionsThatDoNotDivideTheLanes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.NoError(t, b.kafka.DeleteTopic(topic))
		require.NoError(t, b.kafka.CreateTopic(topic, 12, nil))
		err := b.newRelay().Run(t.Context())
		require.ErrorContains(t, err, topic+" has 12")
	})

	t.Run("LeaderMoves", func(t *testing.T) {
		t.Parallel()
		b := setup(t, kfake.NumBrokers(3))
		b.start()
		for round := range 10 {
			b.kafka.ShufflePartitionLeaders()
			var sent []uuid.UUID
			for range 30 {
				sent = append(sent, b.insertOne(topic, uuid.New(), []byte{byte(round)}))
			}
			eventually(t, 5*time.Second, "all go out", func() bool { return b.isPublished(sent[len(sent)-1]) && b.pending() == 0 })
		}
		require.Len(t, readAll(t, b.kafka.addrs, topic), 300)
	})

	t.Run("PostgresSessionsEnded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.start()
		for range 5 {
			b.endSessions()
			eventID := b.insertOne(topic, uuid.New(), []byte("{}"))
			eventually(t, 5*time.Second, "it goes on", func() bool { return b.isPublished(eventID) })
		}
	})

	t.Run("FrozenBrokerKeepsOneTransactionPerWorkerAndNotForLong", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.start()
		first := b.insertOne(topic, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "it works", func() bool { return b.isPublished(first) })
		b.kafka.wire.freeze()
		b.fill(tenantIDs(100), 1000, 100)
		eventually(t, 5*time.Second, "turns are in flight", func() bool { return b.openTransactions() > 0 })
		require.LessOrEqual(t, b.openTransactions(), workers)
		eventually(t, produceDeadline+time.Second, "they are given up", func() bool { return b.openTransactions() == 0 })
		b.kafka.wire.thaw()
		thawed := time.Now()
		eventually(t, 2*time.Second, "it resumes", func() bool { return b.published() > 1 })
		t.Logf("resumed after %s", time.Since(thawed))
		b.drained(5 * time.Second)
	})
}

// TestDrain: what is in flight at SIGTERM is finished, not sent twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(tenantIDs(50), 20_000, 200)
	r := b.newRelay()
	r.producer = slow{r.producer}
	p := run(t, r)
	eventually(t, 5*time.Second, "it is under way", func() bool { return b.published() > 0 })
	p.stop()
	require.Positive(t, b.pending(), "it stopped in the middle")
	got := readAll(t, b.kafka.addrs, topic)
	require.Len(t, got, b.published(), "everything that was sent is marked")
}

// TestStaleClaim: a process that was stopped after its claim does not produce it.
func TestStaleClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insertOne(topic, uuid.New(), []byte("{}"))
	r := b.newRelay()
	state := &laneState{lane: lane{topic, 0}}
	res := r.publishLane(t.Context(), time.Now().Add(-maxClaimAge-time.Millisecond), &batch{state: state, events: make([]event, 1)})
	require.ErrorContains(t, res.err, "are not known", "no partition is known yet")
	found, err := r.topics.look(t.Context())
	require.NoError(t, err)
	_, err = r.see(t.Context(), found)
	require.NoError(t, err)
	res = r.publishLane(t.Context(), time.Now().Add(-maxClaimAge-time.Millisecond), &batch{state: state, events: make([]event, 1)})
	require.ErrorIs(t, res.err, errStale)
	require.Empty(t, readAll(t, b.kafka.addrs, topic))
	r.topics.close()
}

// TestSASL: a broker that demands a login gets one; a wrong password is waited out and parks nothing.
func TestSASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			b := setup(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "relay", "right"))
			login := func(password string) func(*Config) {
				return func(c *Config) {
					c.Mechanism, c.Username, c.Password = mechanism, "relay", password
				}
			}
			eventID := b.insertOne(topic, uuid.New(), []byte("{}"))
			wrong := b.start(login("wrong"))
			eventually(t, 5*time.Second, "it says so", func() bool { return wrong.metrics.isBlocked() })
			require.False(t, b.isPublished(eventID))
			require.Zero(t, b.parkedCount())
			wrong.stop()
			b.start(login("right"))
			eventually(t, 5*time.Second, "it goes out", func() bool { return b.isPublished(eventID) })
		})
	}
}

// TestFirstAfterIdle: by polling alone, the median wait of an event that comes out of nowhere is at most 60 ms.
func TestFirstAfterIdle(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, maxPoll, 90*time.Millisecond)
	p := &pace{}
	now := time.Now()
	p.found(now.Add(-time.Hour))
	p.lastScan.Store(now.UnixNano())
	require.InDelta(t, maxPoll, p.untilNext(now), float64(time.Millisecond))
	p.found(now)
	require.LessOrEqual(t, p.untilNext(now), minPoll)
}

func TestUnreachableAddress(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	b := setup(t)
	b.kafka.addrs = []string{address}
	p := b.start()
	eventually(t, 5*time.Second, "it says so", func() bool { return p.metrics.isBlocked() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	go p.stop()
	select {
	case <-p.done:
	case <-ctx.Done():
		t.Fatal("it does not stop")
	}
}

// TestPartitionsRaised: a count that grows under a running relay is said loudly and followed.
func TestPartitionsRaised(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.newRelay()
	said := &sayings{}
	r.log = slog.New(slog.NewTextHandler(said, nil))
	run(t, r)
	first := b.insertOne(topic, uuid.New(), []byte("{}"))
	eventually(t, 5*time.Second, "it works", func() bool { return b.isPublished(first) })
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(b.kafka.addrs...), Transport: transport}
	response, err := client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 32}}})
	require.NoError(t, err)
	require.NoError(t, response.Errors[topic])
	r.gate.poke()
	eventually(t, 5*time.Second, "it says so", func() bool { return said.contain("topic.partitions_changed") })
	tenant := uuid.New()
	for outbox.Lane(tenant)%32 < 16 {
		tenant = uuid.New()
	}
	second := b.insertOne(topic, tenant, []byte("{}"))
	eventually(t, 5*time.Second, "it uses them", func() bool { return b.isPublished(second) })
	var partition int
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT kafka_partition FROM apipay.outbox_events WHERE id = $1`, second).Scan(&partition))
	require.Equal(t, int(outbox.Lane(tenant)%32), partition)
}

// TestPartitionsRaisedWhileAway: a count that grew while no relay ran shows by where the last events went.
func TestPartitionsRaisedWhileAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.start()
	b.fill(tenantIDs(100), 300, 100)
	b.drained(5 * time.Second)
	before.stop()
	start := func() *sayings {
		r := b.newRelay()
		said := &sayings{}
		r.log = slog.New(slog.NewTextHandler(said, nil))
		run(t, r)
		later := b.insertOne(outbox.TopicAudit, uuid.New(), []byte("{}"))
		eventually(t, 5*time.Second, "it works", func() bool { return b.isPublished(later) })
		return said
	}
	require.False(t, start().contain("topic.partitions_changed"), "nothing has changed")
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(b.kafka.addrs...), Transport: transport}
	response, err := client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 32}}})
	require.NoError(t, err)
	require.NoError(t, response.Errors[topic])
	said := start()
	eventually(t, 5*time.Second, "it says so", func() bool { return said.contain("topic.partitions_changed") })
}

// sayings are log lines.
type sayings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sayings) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sayings) contain(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}
