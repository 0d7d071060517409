package relay

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"apipay.io/hub/proto/events"
)

// fakeKafka is an in-process broker whose faults the test commands.
type fakeKafka struct {
	*kfake.Cluster
	t     testing.TB
	addrs []string
	wire  *wire
	opts  []kfake.Opt
}

// startKafka starts a broker with the three topics. Its data outlives a restart.
func startKafka(t testing.TB, opts ...kfake.Opt) *fakeKafka {
	t.Helper()
	k := &fakeKafka{t: t, wire: &wire{conns: map[net.Conn]struct{}{}}}
	k.opts = append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.SeedTopics(16, events.Topics()...),
		kfake.DataDir(t.TempDir()),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			listener, err := net.Listen(network, net.JoinHostPort("127.0.0.1", port))
			return &wireListener{listener, k.wire}, err
		}),
	}, opts...)
	k.up()
	k.addrs = k.ListenAddrs()
	t.Cleanup(func() {
		k.wire.thaw()
		k.down()
	})
	return k
}

func (k *fakeKafka) up() {
	k.t.Helper()
	cluster, err := kfake.NewCluster(k.opts...)
	require.NoError(k.t, err)
	k.Cluster = cluster
}

func (k *fakeKafka) down() {
	if k.Cluster != nil {
		k.Close()
		k.Cluster = nil
	}
}

// comeBack starts the broker again at its old address.
func (k *fakeKafka) comeBack() {
	k.t.Helper()
	address, err := net.ResolveTCPAddr("tcp", k.addrs[0])
	require.NoError(k.t, err)
	k.opts = append(k.opts, kfake.Ports(address.Port))
	k.up()
}

// wire is the network between relay and broker: it can be frozen, as a stopped broker is, and cut.
type wire struct {
	mu     sync.Mutex
	frozen chan struct{} // nil: flowing
	conns  map[net.Conn]struct{}
}

// freeze holds back what either side sends from now on. It arrives after thaw.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen == nil {
		w.frozen = make(chan struct{})
	}
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		close(w.frozen)
		w.frozen = nil
	}
}

// cut breaks every connection there is.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close() // it may be closed already
	}
}

func (w *wire) wait() {
	w.mu.Lock()
	frozen := w.frozen
	w.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

type wireListener struct {
	net.Listener
	wire *wire
}

func (l *wireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.wire.conns[conn] = struct{}{}
	return &wireConn{conn, l.wire}, nil
}

type wireConn struct {
	net.Conn
	wire *wire
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.wait()
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.wire.wait()
	return c.Conn.Write(p)
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c.Conn)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}
