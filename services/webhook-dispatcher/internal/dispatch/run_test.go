package dispatch

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
)

func TestNeeds_AreGranted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	require.NoError(t, postgres.Check(t.Context(), d.pool, "apipay_worker", Needs))
	_, err := d.dropOld(t.Context())
	require.NoError(t, err)
}

// The trace of the request that caused the event goes on in the attempt.
func TestSend_CarriesTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	record := b.record(b.tenant, succeeded, nil)
	record.Headers = append(record.Headers, kafka.Header{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")})
	require.NoError(t, d.materialize(t.Context(), asBatch(record)))
	b.waitFor(idOf(t, record), endpointID, "DELIVERED", 1)
	require.True(t, strings.HasPrefix(rx.got()[0].header.Get("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-"))
}

// D3, E11: a proxy that is away costs merchants nothing; when it is back, sending goes on by itself.
func TestSend_ProxyAwayIsOurs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	listener.Close()
	b.config.ProxyURL = "http://" + address
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	b.eventually(func() bool { return d.client.Paused() != "" }, "sending pauses")
	b.eventually(func() bool { return b.delivery(eventID, endpointID).LeaseUntil == nil }, "given back")
	require.Equal(t, "PENDING", b.delivery(eventID, endpointID).Status)
	require.Empty(t, b.attempts(eventID))
	require.Empty(t, rx.got())

	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(tunnel))
	proxy.Listener.Close()
	proxy.Listener = listener
	proxy.Start()
	defer proxy.Close()
	require.Equal(t, 1, b.waitFor(eventID, endpointID, "DELIVERED", 1).AttemptCount)
	require.Equal(t, 1, b.attempts(eventID)[0].Number)
}

func tunnel(w http.ResponseWriter, r *http.Request) {
	to, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		to.Close()
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(to, buffered); to.Close() }()
	go func() { _, _ = io.Copy(conn, to); conn.Close() }()
}

// A process without anything to send is alive: /livez would else have it restarted each minute.
func TestAwait_TicksWhileIdle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	ctx, stop := context.WithCancel(t.Context())
	ticks, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		_, _, _, err := d.await(ctx, func() { ticks <- struct{}{} }, nil, 0, nil, time.Time{})
		ended <- err
	}()
	for range 3 {
		select {
		case <-ticks:
		case <-time.After(10 * time.Second):
			t.Fatal("silent for 10 s: a sixth of what counts as dead")
		}
	}
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// E6: an idle process asks little.
func TestRun_IdleIsQuiet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	b.run(d)
	b.eventually(func() bool { return d.pool.Stat().AcquireCount() > 10 }, "it turns")
	before, started := d.pool.Stat().AcquireCount(), time.Now()
	b.eventually(func() bool { return time.Since(started) > 2*time.Second }, "two seconds")
	perSecond := float64(d.pool.Stat().AcquireCount()-before) / time.Since(started).Seconds()
	// Four walks and one look for lost leases of two statements each, one look for a recovery and half a one for replays
	// of four each.
	require.Less(t, perSecond, 8.0)
}
