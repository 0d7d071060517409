package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
)

// B74: the lag is the broker's word, and consumption goes on after the reader was made anew.
func TestLag_IsMeasuredAndMended(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, err := broker.Start(broker.Config{})
	require.NoError(t, err)
	defer running.Close()
	newDispatcher, produce := b.onBrokers(running.Addrs())
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := newDispatcher()
	lagIs := func(want int64) {
		b.eventually(func() bool { lag, _, err := d.lag(t.Context()); return err == nil && lag == want }, "lag", want)
	}
	first, second, third := b.record(b.tenant, succeeded, nil), b.record(b.tenant, succeeded, nil), b.record(b.tenant, succeeded, nil)
	firstID, thirdID := idOf(t, first), idOf(t, third)
	produce(first, second)
	lagIs(2)
	_, err = d.watchLag(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, d.metrics.consumerLag.Load())
	// Nobody reads: after a minute the reader would be made anew.
	now := time.Now()
	d.clock = func() time.Time { return now.Add(stallsAfter) }
	_, err = d.watchLag(t.Context())
	require.ErrorContains(t, err, "2 records wait")
	d.clock = time.Now

	// The request to join again is already there when the consumer starts, so it does both: begin to read, and begin anew.
	b.run(d)
	b.waitFor(firstID, endpointID, "DELIVERED", 1)
	lagIs(0)
	d.rejoin <- struct{}{}
	produce(third)
	b.waitFor(thirdID, endpointID, "DELIVERED", 1)
	lagIs(0)
	require.Len(t, rx.got(), 3)
}

func TestLag_Stalled(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }
	var l lagging
	require.False(t, l.stalled(5, 100, at(0)))
	require.False(t, l.stalled(5, 100, at(59)))
	require.False(t, l.stalled(7, 101, at(70)), "it moves")
	require.False(t, l.stalled(7, 101, at(129)))
	require.True(t, l.stalled(7, 101, at(130)))
	l.busy.Store(true)
	require.False(t, l.stalled(7, 101, at(200)), "the database is away")
	l.busy.Store(false)
	require.False(t, l.stalled(0, 101, at(500)), "nothing waits")
	require.False(t, l.stalled(1, 101, at(501)))
	require.True(t, l.stalled(1, 101, at(561)))
}

// A broker that is away leaves the lag unknown, not 0.
func TestLag_UnknownWithoutBroker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	_, err := d.watchLag(t.Context())
	require.Error(t, err)
	require.EqualValues(t, -1, d.metrics.consumerLag.Load())
}
