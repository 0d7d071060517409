package relay

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/kafka"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/proto/events"
)

// onSharedBroker is a test's database and the broker that all tests share: Apache Kafka in `make test-kafka`.
func onSharedBroker(t testing.TB) *bundle {
	t.Helper()
	db := testdb.New(t)
	return &bundle{t: t, db: db, owner: db.Pool(t, db.Owner), super: db.Pool(t, db.Super), kafka: &fakeKafka{addrs: testdb.Brokers(t)}}
}

// apache answers Apache Kafka's programs, which are fetched for `make test-kafka` only.
func apache(t *testing.T) kafka.Installation {
	t.Helper()
	if os.Getenv("TEST_KAFKA_APACHE") == "" {
		t.Skip("run by make test-kafka")
	}
	found, err := kafka.Find(t.Context(), os.Stderr)
	require.NoError(t, err)
	return found
}

// TestSharedBroker is the property test in a process of the broker's own, whichever broker it is.
func TestSharedBroker(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 4} {
		t.Run(fmt.Sprintf("%dReplicas", replicas), func(t *testing.T) {
			t.Parallel()
			w := newWorld(onSharedBroker(t))
			w.shared = true
			for range replicas {
				w.start(smallBatch)
			}
			w.writeFor(2 * time.Second)
			w.drained(10 * time.Second)
			found, duplicates := w.violations()
			require.Empty(t, found)
			require.Zero(t, duplicates, "nothing failed, so nothing may come twice")
		})
	}
}

// TestJavaPartitions: the partition that the relay writes a tenant to is the one that Kafka's Java client picks.
func TestJavaPartitions(t *testing.T) {
	t.Parallel()
	java := apache(t)
	tenants := tenantIDs(1000)
	keys := make([]string, len(tenants))
	for i, tenant := range tenants {
		keys[i] = string(outbox.Key(tenant))
	}
	for _, partitions := range []int{1, 2, 16, 64} {
		chosen, err := java.Partitions(t.Context(), keys, partitions)
		require.NoError(t, err)
		require.Len(t, chosen, len(tenants))
		for i, tenant := range tenants {
			require.Equal(t, chosen[i], int(outbox.Lane(tenant))%partitions, "%s of %d partitions", tenant, partitions)
		}
	}
}

// TestNotEnoughReplicas: two nodes, two replicas, both must have it, and one is gone. With a single replica
// Apache Kafka 4 takes min.insync.replicas for no more than the replicas that there are, and refuses nothing.
func TestNotEnoughReplicas(t *testing.T) {
	t.Parallel()
	java := apache(t)
	dir, controller := t.TempDir(), freePort(t)
	settings := map[string]string{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
	nodes := make([]*kafka.Node, 2)
	start := func(n int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		config := kafka.Config{
			Dir: filepath.Join(dir, fmt.Sprint(n)), Node: n, Port: freePort(t), ControllerPort: controller, Settings: settings, Heap: "256m",
		}
		if nodes[n-1] != nil {
			config = nodes[n-1].Config
		}
		node, err := java.Start(ctx, config)
		require.NoError(t, err)
		nodes[n-1] = node
		t.Cleanup(node.Kill)
	}
	start(1)
	start(2)
	transport := &kafkago.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := kafkago.Client{Addr: kafkago.TCP(nodes[0].Addr()), Transport: transport}
	request := kafkago.CreateTopicsRequest{}
	for _, name := range events.Topics() {
		request.Topics = append(request.Topics, kafkago.TopicConfig{
			Topic: name, NumPartitions: 16, ReplicationFactor: 2,
			ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "min.insync.replicas", ConfigValue: "2"}},
		})
	}
	eventually(t, 30*time.Second, "both nodes take topics", func() bool {
		response, err := client.CreateTopics(t.Context(), &request)
		return err == nil && response.Errors[topic] == nil
	})

	db := testdb.New(t)
	w := newWorld(&bundle{t: t, db: db, owner: db.Pool(t, db.Owner), super: db.Pool(t, db.Super), kafka: &fakeKafka{addrs: []string{nodes[0].Addr()}}})
	r := w.start(smallBatch)
	w.start(smallBatch)
	first := w.insertOne(outbox.TopicAudit, uuid.New(), []byte("{}"))
	eventually(t, 30*time.Second, "it works", func() bool { return w.isPublished(first) })

	nodes[1].Kill()
	w.writeFor(2 * time.Second)
	eventually(t, 30*time.Second, "it says so", func() bool { return r.metrics.isBlocked() })
	require.Positive(t, w.pending())
	require.Zero(t, w.parkedCount())
	start(2)
	w.drained(60 * time.Second)
	require.Zero(t, w.parkedCount())
	found, duplicates := w.violations()
	require.Empty(t, found)
	t.Logf("%d duplicates of produces that timed out", duplicates)
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
