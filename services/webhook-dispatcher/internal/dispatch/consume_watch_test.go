package dispatch

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

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
