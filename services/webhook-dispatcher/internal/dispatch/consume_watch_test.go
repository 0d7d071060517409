package dispatch

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/ops"
)

// B74, B92: while Kafka is away the process is ready, and says what it cannot do, before it was there as well as after.
func TestConsume_TellsThatKafkaIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	newDispatcher, _ := b.onBrokers([]string{address})
	d := newDispatcher()
	b.run(d)
	readyz := serveHealth(t, d)
	hindered := func(yes bool) {
		t.Helper()
		b.eventually(func() bool {
			text := readyz()
			require.True(t, strings.HasPrefix(text, "ok\n"), text)
			return strings.Contains(text, "degraded: consume: ") == yes
		}, "hindered: %t", yes)
	}
	hindered(true)
	running, err := broker.Start(broker.Config{Port: int(netip.MustParseAddrPort(address).Port())})
	require.NoError(t, err)
	defer func() { running.Close() }()
	hindered(false)
	b.eventually(func() bool { return b.holders() == 1 }, "it reads")
	running.Close()
	hindered(true)
	running, err = broker.Start(broker.Config{Port: int(netip.MustParseAddrPort(address).Port())})
	require.NoError(t, err)
	hindered(false)
}

// Records that wait while none is processed are told after half a minute, however well all else looks.
func TestConsume_TellsThatItStandsStill(t *testing.T) {
	t.Parallel()
	c := &consumer{started: time.Now(), claims: map[int]*claim{}}
	require.NoError(t, c.hindrance(5, idleAfter))
	require.ErrorContains(t, c.hindrance(5, idleAfter+time.Second), "5 records wait")
}

// B74: the lag is the broker's word, over all partitions, and -1 while it is not known.
func TestConsume_MeasuresTheLag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, err := broker.Start(broker.Config{})
	require.NoError(t, err)
	closeBroker := sync.OnceFunc(func() { running.Close() })
	defer closeBroker()
	newDispatcher, produce := b.onBrokers(running.Addrs())
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := newDispatcher()
	first, second, third := b.record(b.tenant, succeeded, nil), b.record(b.tenant, succeeded, nil), b.record(b.newTenant(), succeeded, nil)
	secondID := idOf(t, second)
	produce(first, second, third)
	partitions, err := d.findTopic(t.Context())
	require.NoError(t, err)
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	asks := &consumer{d: d, client: &kafka.Client{Addr: kafka.TCP(running.Addrs()...), Transport: transport}, claims: map[int]*claim{}}
	asks.partitions.Store(int32(partitions))
	waits, lag, err := asks.lookAhead(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, lag, "of a group that never read")
	require.Zero(t, waits, "nothing of it is this consumer's")

	require.EqualValues(t, -1, d.metrics.consumerLag.Load())
	b.run(d)
	b.waitFor(secondID, endpointID, "DELIVERED", 1)
	b.eventually(func() bool { return d.metrics.consumerLag.Load() == 0 }, "all is read")
	b.eventually(func() bool { _, lag, err := asks.lookAhead(t.Context()); return err == nil && lag == 0 }, "the positions are written")
	closeBroker()
	b.eventually(func() bool { return d.metrics.consumerLag.Load() == -1 }, "unknown without the broker")
}

// B74: a reader that sleeps is made anew, and one that waits for the database is not.
func TestConsume_ReadsAnewWhereRecordsWait(t *testing.T) {
	t.Parallel()
	c := &consumer{}
	require.NoError(t, c.over(0, anewAfter, nil))
	require.ErrorIs(t, c.over(0, anewAfter+time.Second, nil), errReadAnew)
	require.NoError(t, c.over(time.Second, anewAfter+time.Second, nil), "whether records wait is not known")
	require.ErrorIs(t, c.over(absentAfter+time.Second, 0, io.EOF), errKafkaAway)
	c.busy.Store(true)
	require.NoError(t, c.over(0, time.Hour, nil), "the database is away")
}

// serveHealth answers what reads /readyz.
func serveHealth(t *testing.T, d *Dispatcher) func() string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ops.ServeOps(ctx, listener, d.health, nil) }()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
	})
	return func() string {
		t.Helper()
		response, err := client.Get("http://" + listener.Addr().String() + "/readyz")
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(text)
	}
}
