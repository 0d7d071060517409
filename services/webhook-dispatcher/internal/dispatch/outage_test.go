package dispatch

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"apipay.io/hub/pkg/devstack/broker"
)

// way is the way to a server, which can be shut: connections break, and new ones are refused.
type way struct {
	t        *testing.T
	addr     string
	upstream string
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup
}

func newWay(t *testing.T, upstream string) *way {
	t.Helper()
	g := &way{t: t, addr: "127.0.0.1:0", upstream: upstream, conns: map[net.Conn]struct{}{}}
	g.open()
	t.Cleanup(func() { g.shut(); g.serving.Wait() })
	return g
}

func (g *way) open() {
	listener, err := net.Listen("tcp", g.addr)
	require.NoError(g.t, err)
	g.mu.Lock()
	g.listener, g.addr = listener, listener.Addr().String()
	g.mu.Unlock()
	g.serving.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", g.upstream)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			shut := g.listener == nil
			g.conns[in], g.conns[out] = struct{}{}, struct{}{}
			g.mu.Unlock()
			g.serving.Go(func() { g.pass(in, out) })
			g.serving.Go(func() { g.pass(out, in) })
			if shut {
				in.Close()
				out.Close()
			}
		}
	})
}

func (g *way) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // until one side ends
	to.Close()
	from.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, to)
	delete(g.conns, from)
}

func (g *way) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil {
		g.listener.Close()
	}
	g.listener = nil
	for conn := range g.conns {
		conn.Close()
	}
}

// nameServer answers 127.0.0.1 for every name, or nothing at all.
func nameServer(t *testing.T) (addr string, silent *atomic.Bool) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	silent = &atomic.Bool{}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if silent.Load() || message.Unpack(buffer[:n]) != nil || len(message.Questions) != 1 {
				continue
			}
			message.Response, message.Additionals = true, nil
			if question := message.Questions[0]; question.Type == dnsmessage.TypeA {
				message.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr("127.0.0.1").As4()},
				}}
			}
			if packed, err := message.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from) // a lost answer is asked for again
			}
		}
	}()
	return conn.LocalAddr().String(), silent
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, string(p))
	return len(p), nil
}

// failures counts the lines of each loop that failed.
func (l *lines) failures(t *testing.T) map[string]int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for _, text := range l.list {
		var line struct{ Msg, Loop string }
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		if line.Msg == "loop.failed" {
			counts[line.Loop]++
		}
	}
	return counts
}

// E3: Postgres, the broker and DNS are each away for a while, with events waiting. After their return all is sent within
// 30 s, by the same process, once, and nothing is counted against the merchants. OUTAGE_SECONDS=180 by `make soak`.
func TestSoak_Outages(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"postgres", "broker", "dns"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			outage(t, what)
		})
	}
}

func outage(t *testing.T, what string) {
	away := soakSeconds(t, "OUTAGE_SECONDS", 8)
	b := setup(t)
	rx := newReceiver(t, nil)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(rx.URL, "http://"))
	require.NoError(t, err)
	var silent *atomic.Bool
	b.config.DNS, silent = nameServer(t)
	b.endpoint("http://hook.example:" + port)

	database, err := url.Parse(b.config.DatabaseURL)
	require.NoError(t, err)
	path := newWay(t, database.Host)
	database.Host = path.addr
	b.config.DatabaseURL = database.String()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	config := broker.Config{Port: int(netip.MustParseAddrPort(address).Port()), DataDir: t.TempDir()}
	running, err := broker.Start(config)
	require.NoError(t, err)
	defer func() { running.Close() }()

	newDispatcher, produce := b.onBrokers([]string{address})
	d := newDispatcher()
	var log lines
	d.log = slog.New(slog.NewJSONHandler(&log, nil))
	b.run(d)
	total := 0
	send := func(n int) {
		var batch []kafka.Message
		for range n {
			batch = append(batch, b.record(b.tenant, succeeded, nil))
		}
		produce(batch...)
		total += n
	}
	send(5)
	b.eventually(func() bool { return b.delivered() == total }, "before")

	started := time.Now()
	switch what {
	case "postgres":
		path.shut()
	case "broker":
		send(5)
		running.Close()
	case "dns":
		silent.Store(true)
		d.client.Close() // kept connections would need no name
	}
	for time.Since(started) < away {
		if what != "broker" {
			send(1)
		}
		<-time.After(time.Second)
	}
	during := time.Since(started)
	failures := log.failures(t)
	for loop, n := range failures {
		require.LessOrEqual(t, n, int(during/time.Second)+2, "lines of %s", loop)
	}
	switch what {
	case "postgres":
		require.Positive(t, failures["discover"])
		path.open()
	case "broker":
		running, err = broker.Start(config)
		require.NoError(t, err)
		send(5)
	case "dns":
		require.Positive(t, failures["probe"])
		require.Less(t, b.delivered(), total)
		silent.Store(false)
	}
	back := time.Now()
	for b.delivered() < total {
		require.Less(t, time.Since(back), 30*time.Second, "only %d of %d delivered", b.delivered(), total)
		<-time.After(20 * time.Millisecond)
	}
	t.Logf("%s away for %s, %d events; all delivered %s after its return", what, during.Round(time.Second), total, time.Since(back).Round(time.Millisecond))
	require.Len(t, rx.got(), total, "each once")
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE attempt_count <> 1`), "attempts not inflated")
	require.Equal(t, total, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome = 'succeeded'`))
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome <> 'succeeded'`))
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE tenant_id = $1`, b.tenant))
}
