package post

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type frozenListener struct {
	net.Listener
	frozen *atomic.Bool
}

func (l *frozenListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &frozenConn{conn, l.frozen}, err
}

type frozenConn struct {
	net.Conn
	frozen *atomic.Bool
}

func (c *frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for c.frozen.Load() {
		<-time.After(5 * time.Millisecond)
	}
	return n, err
}

// newProxy is an egress proxy that stands still while frozen, and counts its tunnels.
func newProxy(t *testing.T) (server *httptest.Server, u *url.URL, tunnels *atomic.Int64, frozen *atomic.Bool) {
	t.Helper()
	tunnels, frozen = &atomic.Int64{}, &atomic.Bool{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		to, err := net.DialTimeout("tcp", r.Host, 10*time.Second)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, buffered); to.Close() }()
		go func() { _, _ = io.Copy(conn, to); conn.Close() }()
	}))
	server.Listener = &frozenListener{server.Listener, frozen}
	server.Start()
	t.Cleanup(func() { frozen.Store(false); server.CloseClientConnections(); server.Close() })
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	return server, u, tunnels, frozen
}

// D3: the configured proxy carries everything, to the address judged here; away, it is our fault.
func TestPost_Proxy(t *testing.T) {
	t.Parallel()
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	proxy, u, tunnels, _ := newProxy(t)
	c := newClient(t, func(c *Config) { c.Proxy = u })
	require.True(t, c.try(t, rx.URL).Succeeded())
	require.EqualValues(t, 1, tunnels.Load())
	require.Equal(t, ClassConnect, c.try(t, "http://127.0.0.1:1/").Class)
	require.Equal(t, ClassBlocked, c.try(t, "http://10.0.0.1/").Class)
	require.EqualValues(t, 2, tunnels.Load(), "a blocked address is not asked for")
	proxy.Close()
	require.True(t, c.try(t, rx.URL).Ours)
	require.NotEmpty(t, c.Paused())
	c.Probe(t.Context())
	require.NotEmpty(t, c.Paused())
	listener, err := net.Listen("tcp", u.Host)
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	c.Probe(t.Context())
	require.Empty(t, c.Paused())
}

// D3: a proxy that takes connections and does nothing with them is away too; a receiver that does nothing is not its doing.
func TestPost_FrozenProxy(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	_, u, _, frozen := newProxy(t)
	c := newClient(t, func(c *Config) { c.Proxy, c.Timeout = u, 2*time.Second })
	c.Probe(t.Context())
	result := c.try(t, "http://"+silent.Addr().String()+"/")
	require.Equal(t, ClassTimeout, result.Class)
	require.False(t, result.Ours, "the proxy does its part")
	require.True(t, c.try(t, rx.URL).Succeeded())

	frozen.Store(true)
	c.Probe(t.Context())
	require.Equal(t, "the proxy is away", c.Paused(), "found out without an attempt")
	require.True(t, c.try(t, "http://"+silent.Addr().String()+"/").Ours)
	c.Probe(t.Context())
	require.NotEmpty(t, c.Paused())

	frozen.Store(false)
	c.Probe(t.Context())
	require.Empty(t, c.Paused())
	require.True(t, c.try(t, rx.URL).Succeeded())

	// One that stops answering probes and goes on working pauses sending for a while, not for ever.
	frozen.Store(true)
	c.Probe(t.Context())
	require.NotEmpty(t, c.Paused())
	c.proxyLeft.Add(-int64(silentProxy))
	c.Probe(t.Context())
	require.Empty(t, c.Paused())
}

// A proxy that never answered a probe, for it answers to CONNECT only, is not away for that.
func TestPost_ProxyThatAnswersNoProbe(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	c := newClient(t, func(c *Config) {
		c.Proxy, c.Timeout = &url.URL{Scheme: "http", Host: listener.Addr().String()}, time.Second
	})
	c.Probe(t.Context())
	require.Empty(t, c.Paused())
}
