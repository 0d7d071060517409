package post

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = webhookPolicy("127.0.0.0/8", "::1/128")

func webhookPolicy(cidrs ...string) webhook.Policy {
	policy, err := webhook.ParsePolicy(strings.Join(cidrs, ","))
	if err != nil {
		panic(err)
	}
	return policy
}

func newClient(t *testing.T, change func(*Config)) *Client {
	t.Helper()
	config := Config{Policy: loopback, Timeout: time.Second}
	if change != nil {
		change(&config)
	}
	c := New(config)
	t.Cleanup(c.Close)
	return c
}

func (c *Client) try(t *testing.T, target string) Result {
	t.Helper()
	return c.Post(t.Context(), Request{EndpointID: uuid.New(), URL: target, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"n":1}`), Now: time.Now()})
}

// raw is a receiver that reads a request and then answers as it likes, on a bare socket.
func raw(t *testing.T, answer func(conn net.Conn)) (target string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	connections = &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					_, err = io.Copy(io.Discard, request.Body)
				}
				if err == nil {
					answer(conn)
				}
			}()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return "http://" + listener.Addr().String() + "/hook", connections
}

func write(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

func drip(conn net.Conn, text string) {
	for write(conn, text) {
		time.Sleep(50 * time.Millisecond) // the receiver's pace
	}
}

// B5, B53, B54, B56: the status line decides, the limit holds, the excerpt is bounded; whatever else comes.
func TestPost_HostileAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(net.Conn)
		class  Class
		status int
	}{
		"200 drips for ever": {func(c net.Conn) { write(c, "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"); drip(c, "x") }, "", 200},
		"200 endless": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\n\r\n")
			for write(c, strings.Repeat("x", 1<<16)) {
			}
		}, "", 200},
		"200 endless chunked": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for write(c, "1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n") {
			}
		}, "", 200},
		"200 short, then reset": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
			_ = c.(*net.TCPConn).SetLinger(0)
		}, "", 200},
		"200 huge headers": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\n")
			for write(c, "X-Filler: "+strings.Repeat("x", 1<<14)+"\r\n") {
			}
		}, "", 200},
		"200 headers drip":     {func(c net.Conn) { write(c, "HTTP/1.1 200 OK\r\n"); drip(c, "X-A: b\r\n") }, "", 200},
		"500 headers drip":     {func(c net.Conn) { write(c, "HTTP/1.1 500 No\r\n"); drip(c, "X-A: b\r\n") }, ClassStatus, 500},
		"204":                  {func(c net.Conn) { write(c, "HTTP/1.1 204 No Content\r\n\r\n") }, "", 204},
		"299 without a reason": {func(c net.Conn) { write(c, "HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n") }, "", 299},
		"103 first": {func(c net.Conn) {
			write(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, "", 200},
		"101":                {func(c net.Conn) { write(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n") }, ClassStatus, 101},
		"304":                {func(c net.Conn) { write(c, "HTTP/1.1 304 Not Modified\r\n\r\n") }, ClassStatus, 304},
		"silence":            {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, ClassTimeout, 0},
		"100 for ever":       {func(c net.Conn) { drip(c, "HTTP/1.1 100 Continue\r\n\r\n") }, ClassTimeout, 0},
		"half a status line": {func(c net.Conn) { write(c, "HTTP/1.1 20"); _, _ = c.Read(make([]byte, 1)) }, ClassTimeout, 0},
		"closes":             {func(net.Conn) {}, ClassReset, 0},
		"resets":             {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }, ClassReset, 0},
		"not HTTP":           {func(c net.Conn) { write(c, "220 smtp.example ESMTP\r\n") }, ClassProtocol, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, connections := raw(t, test.answer)
			started := time.Now()
			result := newClient(t, nil).try(t, target)
			require.Less(t, time.Since(started), 1500*time.Millisecond)
			require.Equal(t, test.class, result.Class)
			require.Equal(t, test.status, result.StatusCode)
			require.LessOrEqual(t, len(result.Excerpt), ExcerptBytes)
			require.False(t, result.Ours)
			require.EqualValues(t, 1, connections.Load(), "one POST")
		})
	}
}

// B55: the answer is data; no text of it can hurt, and nothing is unpacked.
func TestPost_ExcerptIsText(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"NUL":           "a\x00b",
		"invalid UTF-8": strings.Repeat("\xff", 3*ExcerptBytes),
		"cut rune":      strings.Repeat("é", ExcerptBytes),
	} {
		rx := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer rx.Close()
		result := newClient(t, nil).try(t, rx.URL)
		require.True(t, result.Succeeded(), name)
		require.NotContains(t, result.Excerpt, "\x00")
		require.Equal(t, strings.ToValidUTF8(result.Excerpt, ""), result.Excerpt, name)
		require.LessOrEqual(t, len(result.Excerpt), ExcerptBytes)
	}
	rx := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 10<<20))
		_ = z.Close()
	}))
	defer rx.Close()
	require.True(t, newClient(t, func(c *Config) { c.Timeout = 10 * time.Second }).try(t, rx.URL).Succeeded())
}

// D1, D2, B50, B51: an address that is not admitted is not connected to, however it is spelled.
func TestPost_BlockedAddresses(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var connected atomic.Bool
	go func() {
		if conn, err := listener.Accept(); err == nil {
			connected.Store(true)
			conn.Close()
		}
	}()
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	c := newClient(t, func(c *Config) { c.Policy = webhook.Policy{} })
	for _, host := range []string{"127.0.0.1", "localhost", "localhost.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::]", "[::1]",
		"[::ffff:127.0.0.1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "100.64.0.1",
		"169.254.169.254", "192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "10.0.0.1", "[fd00::1]", "[fe80::5efe:7f00:1]"} {
		result := c.try(t, fmt.Sprintf("https://%s:%d/", host, port))
		require.Contains(t, []Class{ClassBlocked}, result.Class, host)
		require.Empty(t, result.Excerpt)
	}
	require.False(t, connected.Load())
}

// A name is judged by what it resolves to, all of it, at each connection.
func TestPost_NamesThatLeadInside(t *testing.T) {
	t.Parallel()
	server := newDNS(t)
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	c := newClient(t, func(c *Config) { c.DNS, c.Policy = server.addr, webhookPolicy("127.0.0.1/32") })
	server.set("good.example.", "127.0.0.1")
	server.set("mixed.example.", "127.0.0.1", "127.0.0.2")
	server.set("inside.example.", "10.0.0.1")
	server.set("six.example.", "::ffff:10.0.0.1")
	require.True(t, c.try(t, "http://good.example:"+u.Port()).Succeeded())
	for _, name := range []string{"mixed", "inside", "six"} {
		require.Equal(t, ClassBlocked, c.try(t, "http://"+name+".example:"+u.Port()).Class, name)
	}
	server.set("good.example.", "127.0.0.3")
	require.Equal(t, ClassBlocked, c.try(t, "http://good.example:"+u.Port()).Class, "rebound")
	require.Equal(t, ClassDNS, c.try(t, "http://missing.example/").Class)
	require.False(t, c.try(t, "http://missing.example/").Ours)
}

// DNS that is ours: the resolver away, or several unrelated names at once; until a probe succeeds.
func TestPost_ResolverAway(t *testing.T) {
	t.Parallel()
	server := newDNS(t)
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	c := newClient(t, func(c *Config) { c.DNS, c.Timeout = server.addr, 10*time.Second })
	server.set("good.example.", "127.0.0.1")
	server.failing.Store(true)
	one := c.try(t, "http://a.one.example/")
	require.Equal(t, ClassDNS, one.Class)
	require.False(t, one.Ours, "one name that fails is the name's fault")
	require.False(t, c.try(t, "http://b.one.example/").Ours)
	c.try(t, "http://x.two/")
	require.True(t, c.try(t, "http://y.three/").Ours)
	require.NotEmpty(t, c.Degraded())
	require.True(t, c.try(t, "http://good.example:"+u.Port()).Ours)
	require.True(t, c.try(t, rx.URL).Succeeded(), "an address needs no resolver")
	c.Probe(t.Context())
	require.NotEmpty(t, c.Degraded())
	server.failing.Store(false)
	c.Probe(t.Context())
	require.Empty(t, c.Degraded())
	require.True(t, c.try(t, "http://good.example:"+u.Port()).Succeeded())

	server.close()
	require.True(t, c.try(t, "http://fresh.example/").Ours)
}

// B60: the class names the fault, and verification is never switched off.
func TestPost_TLSClasses(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := newDNS(t)
	server.set("hook.example.", "127.0.0.1")
	for name, test := range map[string]struct {
		certificate tls.Certificate
		maxVersion  uint16
		class       Class
	}{
		"good":       {ca.issue(t, "hook.example", time.Now().Add(time.Hour)), 0, ""},
		"expired":    {ca.issue(t, "hook.example", time.Now().Add(-time.Hour)), 0, ClassTLSExpired},
		"wrong name": {ca.issue(t, "other.example", time.Now().Add(time.Hour)), 0, ClassTLSName},
		"untrusted":  {newAuthority(t).issue(t, "hook.example", time.Now().Add(time.Hour)), 0, ClassTLSUntrusted},
		"TLS 1.1":    {ca.issue(t, "hook.example", time.Now().Add(time.Hour)), tls.VersionTLS11, ClassTLS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rx := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			rx.Config.ErrorLog = silent
			rx.TLS = &tls.Config{Certificates: []tls.Certificate{test.certificate}, MaxVersion: test.maxVersion, MinVersion: tls.VersionTLS10} // #nosec G402 -- the point of the test
			rx.StartTLS()
			defer rx.Close()
			u, err := url.Parse(rx.URL)
			require.NoError(t, err)
			c := newClient(t, func(c *Config) { c.DNS, c.Roots = server.addr, ca.pool })
			require.Equal(t, test.class, c.try(t, "https://hook.example:"+u.Port()).Class)
		})
	}
}

func TestPost_ConnectClasses(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target := "http://" + listener.Addr().String()
	listener.Close()
	require.Equal(t, ClassRefused, newClient(t, nil).try(t, target).Class)

	stalling, _ := raw(t, func(net.Conn) {})
	c := newClient(t, func(c *Config) { c.Timeout = 300 * time.Millisecond })
	require.Equal(t, ClassTLS, c.try(t, strings.Replace(stalling, "http:", "https:", 1)).Class)
	require.Equal(t, ClassBlocked, newClient(t, func(c *Config) { c.Policy = webhook.Policy{} }).try(t, "http://example.com/").Class)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, c.Post(ctx, Request{EndpointID: uuid.New(), URL: stalling, Header: http.Header{}}).Ours)
}

// B6: connections are kept.
func TestPost_ReusesConnections(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	rx := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	rx.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	rx.Start()
	defer rx.Close()
	c := newClient(t, nil)
	endpointID := uuid.New()
	for i := range 100 {
		result := c.Post(t.Context(), Request{EndpointID: endpointID, URL: rx.URL, Header: http.Header{}, Body: []byte("{}"), Now: time.Now()})
		require.True(t, result.Succeeded())
		require.Equal(t, i > 0, result.Reused)
	}
	require.EqualValues(t, 1, opened.Load())
	// B59: at the maximum age a new one is made, and the address looked up and judged again.
	c.endpoints[endpointID].born = time.Now().Add(-maxConnectionAge - time.Second)
	require.False(t, c.Post(t.Context(), Request{EndpointID: endpointID, URL: rx.URL, Header: http.Header{}, Now: time.Now()}).Reused)
}

// B58: HTTP/2 carries the whole body each time, also after GOAWAY.
func TestPost_HTTP2(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := newDNS(t)
	server.set("hook.example.", "127.0.0.1")
	body := strings.Repeat("x", 100_000)
	var got atomic.Int64
	rx := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err == nil && string(data) == body && r.ProtoMajor == 2 {
			got.Add(1)
		}
		if got.Load()%10 == 0 {
			w.Header().Set("Connection", "close") // a graceful GOAWAY
		}
	}))
	rx.EnableHTTP2 = true
	rx.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hook.example", time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12}
	rx.StartTLS()
	defer rx.Close()
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	c := newClient(t, func(c *Config) { c.DNS, c.Roots, c.Timeout = server.addr, ca.pool, 5*time.Second })
	endpointID := uuid.New()
	for range 50 {
		result := c.Post(t.Context(), Request{EndpointID: endpointID, URL: "https://hook.example:" + u.Port(), Header: http.Header{}, Body: []byte(body), Now: time.Now()})
		require.True(t, result.Succeeded(), result.Class)
	}
	require.EqualValues(t, 50, got.Load())
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"120": 2 * time.Minute, " 7 ": 7 * time.Second, "999999": 999999 * time.Second, "0": 0, "-1": 0, "1000000000000": 0, "1e3": 0, "soon": 0, "": 0, "1.5": 0,
		now.Add(time.Hour).Format(http.TimeFormat): time.Hour, now.Add(-time.Hour).Format(http.TimeFormat): 0,
		now.AddDate(50, 0, 0).Format(http.TimeFormat): 0,
	} {
		for code, counts := range map[int]bool{429: true, 503: true, 500: false, 200: false} {
			expected := want
			if !counts {
				expected = 0
			}
			require.Equal(t, expected, retryAfter(&http.Response{StatusCode: code, Header: http.Header{"Retry-After": {header}}}, now), "%d %q", code, header)
		}
	}
}
