package dispatch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/proto/events"
)

// onKafka gives the bundle's dispatchers a broker, and a consumer group of the test's own.
func (b *testBundle) onKafka() (newDispatcher func() *Dispatcher, produce func(...kafka.Message)) {
	b.t.Helper()
	return b.onBrokers(testdb.Brokers(b.t))
}

func (b *testBundle) onBrokers(brokers []string) (newDispatcher func() *Dispatcher, produce func(...kafka.Message)) {
	b.t.Helper()
	b.config.Brokers = brokers
	ownGroup := "webhook-dispatcher-" + id.New().String()
	transport := &kafka.Transport{}
	writer := &kafka.Writer{Addr: kafka.TCP(b.config.Brokers...), Transport: transport, Topic: events.TopicOutboundWebhooks,
		Balancer: kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
	b.t.Cleanup(func() {
		require.NoError(b.t, writer.Close())
		transport.CloseIdleConnections()
	})
	newDispatcher = func() *Dispatcher {
		d := b.dispatcher()
		d.group = ownGroup
		return d
	}
	produce = func(records ...kafka.Message) {
		b.t.Helper()
		for i := range records {
			records[i].Topic, records[i].Offset = "", 0
		}
		require.NoError(b.t, writer.WriteMessages(context.Background(), records...))
	}
	return newDispatcher, produce
}

func (b *testBundle) delivered() int {
	b.t.Helper()
	return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'DELIVERED'`)
}

// W1 to W9 over a broker; a poison record before the good one, on the same partition (B73).
func TestConsume_PoisonStopsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onKafka()
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := newDispatcher()
	b.run(d)
	key := []byte(b.tenant.String())
	good := b.record(b.tenant, succeeded, nil)
	eventID := idOf(t, good)
	produce(kafka.Message{Key: key, Value: []byte("not JSON")}, kafka.Message{Key: key, Value: []byte{}}, good)
	b.waitFor(eventID, endpointID, "DELIVERED", 1)
	require.Equal(t, good.Value, rx.got()[0].body)
	require.Equal(t, 2, b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE tenant_id = $1 AND reason = 'not_json'`, b.tenant))
}

// A2, A5, B74: replicas come and go under load; one row and one POST per event.
func TestConsume_Rebalances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onKafka()
	rx := newReceiver(t, nil)
	const rounds, owners = 4, 12
	perTenant := soakCount(t, "REBALANCE_DELIVERIES", 5000)/rounds/owners + 1
	var tenants []kafka.Message
	for range owners {
		tenant := b.newTenant()
		b.endpointOf(tenant, rx.URL)
		tenants = append(tenants, kafka.Message{Key: []byte(tenant.String())})
	}
	total := 0
	burst := func() {
		for range perTenant {
			var batch []kafka.Message
			for _, t := range tenants {
				record := b.record(b.tenant, succeeded, nil)
				record.Key = t.Key
				batch = append(batch, record)
			}
			produce(batch...)
			total += len(batch)
		}
	}
	stopOne := b.run(newDispatcher())
	burst()
	stopTwo := b.run(newDispatcher())
	b.run(newDispatcher())
	burst()
	stopOne()
	burst()
	stopTwo()
	burst()
	require.Equal(t, rounds*perTenant*len(tenants), total)
	for started := time.Now(); len(rx.got()) < total && time.Since(started) < time.Duration(total)*10*time.Millisecond; {
		<-time.After(100 * time.Millisecond)
	}
	b.eventually(func() bool { return b.delivered() == total }, "all delivered")
	require.Len(t, rx.got(), total)
	require.Equal(t, total, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries`))
}

// E3, B73: a database outage is no poison; the same batch is tried until it is back.
func TestConsume_DatabaseOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onKafka()
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	b.run(newDispatcher())
	first := b.record(b.tenant, succeeded, nil)
	firstID := idOf(t, first)
	produce(first)
	b.waitFor(firstID, endpointID, "DELIVERED", 1)

	super := b.db.Pool(t, b.db.Super)
	away := func(yes bool) {
		_, err := super.Exec(t.Context(), fmt.Sprintf(`ALTER ROLE apipay_worker IN DATABASE %s SET default_transaction_read_only = %t`, b.db.Name, yes))
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'apipay_worker'`)
		require.NoError(t, err)
	}
	away(true)
	second := b.record(b.tenant, succeeded, nil)
	secondID := idOf(t, second)
	produce(second)
	require.Never(t, func() bool {
		return b.count(`SELECT count(*) FROM apipay.webhook_events WHERE event_id = $1`, secondID) > 0
	}, time.Second, 50*time.Millisecond)
	away(false)
	b.waitFor(secondID, endpointID, "DELIVERED", 1)
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE tenant_id = $1`, b.tenant))
}

// E3, B74: the broker goes away and comes back; consumption goes on from where it was, by itself. Before it was there at
// all the dispatcher waited for it.
func TestConsume_BrokerRestarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	config := broker.Config{Port: int(netip.MustParseAddrPort(address).Port()), DataDir: t.TempDir()}
	newDispatcher, produce := b.onBrokers([]string{address})
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	b.run(newDispatcher())
	for range 3 {
		running, err := broker.Start(config)
		require.NoError(t, err)
		record := b.record(b.tenant, succeeded, nil)
		eventID := idOf(t, record)
		produce(record)
		b.waitFor(eventID, endpointID, "DELIVERED", 1)
		running.Close()
	}
	require.Len(t, rx.got(), 3)
}
