package payments_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// cutter is a proxy in front of Postgres that cuts the connection when the n-th COMMIT from now passes: before it
// reaches the server, or after it took effect and before its answer.
type cutter struct {
	t        *testing.T
	listener net.Listener
	target   string
	after    bool
	commits  atomic.Int64
	leaves   atomic.Bool

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

// newCutter answers the proxy and the DSN that leads through it.
func newCutter(t *testing.T, dsn string, after bool) (*cutter, string) {
	t.Helper()
	uri, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{t: t, listener: listener, target: uri.Host, after: after}
	t.Cleanup(func() { _ = listener.Close() })
	go c.accept()
	uri.Host = listener.Addr().String()
	query := uri.Query()
	query.Set("sslmode", "disable")
	uri.RawQuery = query.Encode()
	return c, uri.String()
}

// arm cuts at the n-th commit from now, after the last one that was asked for did happen.
func (c *cutter) arm(n int64) {
	c.t.Helper()
	require.LessOrEqual(c.t, c.commits.Load(), int64(0), "no commit was cut")
	c.commits.Store(n)
}

// armAndLeave cuts at the n-th commit from now, and the database is away from then on.
func (c *cutter) armAndLeave(n int64) {
	c.leaves.Store(true)
	c.arm(n)
}

// setDown ends every connection and lets no new one in, until it is set back.
func (c *cutter) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// admit remembers a connection, or ends it while the database is away.
func (c *cutter) admit(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		_ = conn.Close()
		return false
	}
	c.conns = append(c.conns, conn)
	return true
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		if !c.admit(client) {
			continue
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		cut := make(chan struct{})
		go c.upstream(client, server, cut)
		go c.downstream(client, server, cut)
	}
}

// isCommit finds the execution of a COMMIT in what a client sends: as a query of its own, or as a prepared statement, which
// pgx names for its text.
func isCommit(sent []byte) bool {
	digest := sha256.Sum256([]byte("commit"))
	bound := "\x00stmtcache_" + hex.EncodeToString(digest[:24]) + "\x00"
	return bytes.Contains(sent, []byte("Q\x00\x00\x00\x0bcommit\x00")) || bytes.Contains(sent, []byte(bound))
}

func (c *cutter) upstream(client, server net.Conn, cut chan struct{}) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if isCommit(buffer[:n]) && c.commits.Add(-1) == 0 {
			if !c.after {
				c.leave()
				return
			}
			close(cut)
		}
		if _, werr := server.Write(buffer[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (c *cutter) leave() {
	if c.leaves.Swap(false) {
		c.setDown(true)
	}
}

func (c *cutter) downstream(client, server net.Conn, cut chan struct{}) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		select {
		case <-cut:
			// The server has answered the commit: it took effect, and nobody is told.
			c.leave()
			return
		default:
		}
		if _, werr := client.Write(buffer[:n]); werr != nil || err != nil {
			return
		}
	}
}

func TestLostCommit(t *testing.T) {
	t.Parallel()
	const create = `{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa"`

	for name, after := range map[string]bool{"BeforeItTookEffect": false, "AfterItTookEffect": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			cut, dsn := newCutter(t, b.db.App, after)
			pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 4})
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			// The sandbox keeps a connection of its own, so that the commits counted are those of the money path.
			_, server := b.serve(pool, withSandboxOn(b.pool))
			me := b.me().at(server)

			cut.arm(1)
			pi := me.keyed("create", intents, create+"}").is(201).id()
			require.Equal(t, pi, me.keyed("create", intents, create+"}").is(201).id())
			require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
			require.Equal(t, []string{"payment_intent.created"}, b.told(pi))

			for nth := int64(1); nth <= 2; nth++ { // T1, T2
				pi := me.created("pm_card_visa")
				cut.arm(nth)
				require.Equal(t, "succeeded", me.post(confirmPath(pi), "").is(200).str("status"))
				require.Equal(t, 1, b.charges(pi))
				require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))

				cut.arm(nth)
				r := me.post(refundPath(pi), "").is(201)
				require.Equal(t, "succeeded", r.str("status"))
				require.Equal(t, []string{"refund.created", "refund.succeeded"}, b.told(r.id()))

				cut.arm(nth)
				both := me.post(intents, create+`,"confirm":true}`).is(201).id()
				require.Equal(t, 1, b.charges(both))
				require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(both))
			}

			canceled := me.created("pm_card_visa")
			cut.arm(1)
			require.Equal(t, "canceled", me.post(cancelPath(canceled), "").is(200).str("status"))
			require.Equal(t, []string{"payment_intent.created", "payment_intent.canceled"}, b.told(canceled))
			cut.arm(0)
			require.Zero(t, b.count(`SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`))
			b.contract()
		})
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cut, dsn := newCutter(t, b.db.App, true)
	pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var gw *holding
	service, server := b.serve(pool, withSandboxOn(b.pool), withGateway(func(inner gateway.Gateway) gateway.Gateway {
		gw = newHolding(inner)
		return gw
	}))
	b.reconciling(service)
	me := b.me().at(server)
	pi := me.created("pm_card_visa")
	done := make(chan answer, 1)
	go func() {
		a, _ := me.key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
		done <- a
	}()
	<-gw.arrived
	cut.setDown(true)
	// The gateway has charged; its answer comes while nothing can be written.
	close(gw.letGo)
	me.get(intents+"/"+pi).is(503, "service_unavailable")
	a := me.keyed("other", intents, `{"amount":1000,"currency":"EUR"}`).is(503, "service_unavailable")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	cut.setDown(false)
	require.Equal(t, "succeeded", (<-done).is(200).str("status"))
	me.keyed("other", intents, `{"amount":1000,"currency":"EUR"}`).is(201)
	require.Equal(t, 1, b.charges(pi))
	// The loops go on by themselves, too.
	left := me.post(intents, `{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa"}`).is(201).id()
	_, lost := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return mute{inner} }))
	b.me().at(lost).post(confirmPath(left), "").is(202)
	me.becomes(left, "succeeded")
}
