package post

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"

// A switch of protocols is a refusal like any other, at once, and the connection is of no more use.
func TestPost_SwitchOfProtocols(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"complete": switching, "without headers": "HTTP/1.1 101 Switching Protocols\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			target, _ := raw(t, func(c net.Conn) {
				defer close(ended)
				if write(c, answer) {
					_, _ = io.Copy(io.Discard, c)
				}
			})
			started := time.Now()
			result := newClient(t, func(c *Config) { c.Timeout = 10 * time.Second }).try(t, target)
			require.Equal(t, ClassStatus, result.Class)
			require.Equal(t, 101, result.StatusCode)
			<-ended
			require.Less(t, time.Since(started), 5*time.Second)
		})
	}
}

func TestPost_SwitchOfProtocolsOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := newDNS(t)
	server.set("hook.example.", "127.0.0.1")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hook.example", time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	defer listener.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && write(conn, switching) {
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	c := newClient(t, func(c *Config) { c.DNS, c.Roots, c.Timeout = server.addr, ca.pool, 10*time.Second })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	started := time.Now()
	require.Equal(t, 101, c.try(t, "https://hook.example:"+port).StatusCode)
	<-ended
	require.Less(t, time.Since(started), 5*time.Second)
}

// The final status line decides also where interim answers come before it, or the rest never ends.
func TestPost_InterimAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(net.Conn)
		class  Class
		status int
	}{
		"101 headers drip": {func(c net.Conn) { write(c, "HTTP/1.1 101 Up\r\n"); drip(c, "X-A: b\r\n") }, ClassStatus, 101},
		"103 and the end":  {func(c net.Conn) { write(c, "HTTP/1.1 103 Early Hints\r\n\r\n") }, ClassStatus, 103},
		"199 and silence":  {func(c net.Conn) { write(c, "HTTP/1.1 199 X\r\n\r\n"); _, _ = c.Read(make([]byte, 1)) }, ClassTimeout, 0},
		"103, then 200 headers drip": {func(c net.Conn) {
			write(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n")
			drip(c, "X-A: b\r\n")
		}, "", 200},
		"100 twice, then 500 malformed": {func(c net.Conn) {
			write(c, "HTTP/1.1 100\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nbad\r\n\r\n")
		}, ClassStatus, 500},
		"103 headers drip": {func(c net.Conn) { write(c, "HTTP/1.1 103 Early Hints\r\n"); drip(c, "X-A: HTTP/1.1 200 \r\n") }, ClassTimeout, 0},
		"200 trailers drip": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
			drip(c, "X-A: b\r\n")
		}, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, _ := raw(t, test.answer)
			result := newClient(t, nil).try(t, target)
			require.Equal(t, test.class, result.Class)
			require.Equal(t, test.status, result.StatusCode)
			require.Less(t, result.Phases.Total, 1500*time.Millisecond)
		})
	}
}

// The attempt ends though net/http does not, and the endpoint's next one is free of it.
func TestPost_LeavesWhatHangsToItself(t *testing.T) {
	t.Parallel()
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	c := newClient(t, nil)
	request := Request{EndpointID: uuid.New(), URL: rx.URL, Header: http.Header{}, Now: time.Now()}
	hang, entered := make(chan struct{}), make(chan struct{})
	defer close(hang)
	// The one place where net/http calls something of ours without looking at the context.
	c.transport(request.EndpointID).Proxy = func(*http.Request) (*url.URL, error) {
		close(entered)
		<-hang
		return nil, io.EOF
	}
	started := time.Now()
	result := c.Post(t.Context(), request)
	<-entered
	require.Less(t, time.Since(started), 2*time.Second)
	require.Equal(t, ClassTimeout, result.Class)
	require.False(t, result.Ours)
	require.True(t, c.Post(t.Context(), request).Succeeded())
}

// What one attempt hangs on is not closed under another that got the connection since.
func TestSniffedConn_SeversItsOwnerOnly(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	conn := &sniffedConn{Conn: ours, raw: ours}
	first, second := newTimings(), newTimings()
	conn.reset(first)
	conn.reset(second)
	conn.sever(first)
	go func() { _, _ = theirs.Write([]byte("x")) }()
	_, err := conn.Read(make([]byte, 1))
	require.NoError(t, err)
	conn.sever(second)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

// A receiver that does not take the end of its TLS connection cannot make anybody wait for it.
func TestSniffedConn_CloseDoesNotWait(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	var group sync.WaitGroup
	server := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hook.example", time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true})
	group.Go(func() { _ = server.Handshake() })
	client := tls.Client(ours, &tls.Config{ServerName: "hook.example", RootCAs: ca.pool, MinVersion: tls.VersionTLS12})
	require.NoError(t, client.Handshake())
	group.Wait()
	started := time.Now()
	_ = (&sniffedConn{Conn: client, raw: ours}).Close()
	require.Less(t, time.Since(started), 2*time.Second)
}

// On HTTP/2 an answer that does not end costs its own attempt only: the others of the connection go on.
func TestPost_HTTP2BodyThatHangs(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := newDNS(t)
	server.set("hook.example.", "127.0.0.1")
	var connections atomic.Int64
	rx := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/silent":
			<-r.Context().Done()
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}
	}))
	rx.EnableHTTP2 = true
	rx.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	rx.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hook.example", time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12}
	rx.StartTLS()
	defer rx.Close()
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	c := newClient(t, func(c *Config) { c.DNS, c.Roots = server.addr, ca.pool })
	endpointID := uuid.New()
	send := func(path string) Result {
		return c.Post(t.Context(), Request{EndpointID: endpointID, URL: "https://hook.example:" + u.Port() + path, Header: http.Header{}, Body: []byte("{}"), Now: time.Now()})
	}
	require.True(t, send("/").Succeeded())
	var group sync.WaitGroup
	for path, class := range map[string]Class{"/hangs": "", "/silent": ClassTimeout, "/endless": ""} {
		group.Go(func() {
			result := send(path)
			if result.Class != class || result.Phases.Total > 2*time.Second {
				t.Errorf("%s: %q after %s", path, result.Class, result.Phases.Total)
			}
		})
	}
	group.Wait()
	require.True(t, send("/").Succeeded())
	require.EqualValues(t, 1, connections.Load())
}

// What a proxy says to CONNECT beside the status makes nobody wait, and a refusal of one receiver pauses nothing.
func TestPost_ProxyAnswers(t *testing.T) {
	t.Parallel()
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	var answer atomic.Pointer[string]
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer proxy.Close()
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			go serveTunnel(conn, answer.Load())
		}
	}()
	c := newClient(t, func(c *Config) {
		c.Proxy, c.Timeout = &url.URL{Scheme: "http", Host: proxy.Addr().String()}, 2*time.Second
	})
	try := func(text string) Result {
		answer.Store(&text)
		return c.try(t, rx.URL)
	}
	require.True(t, try("HTTP/1.1 403 Forbidden\r\n\r\n").Ours, "a proxy that opened no tunnel yet refuses us")
	c.Probe(t.Context())
	for _, text := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"} {
		result := try(text)
		require.True(t, result.Succeeded(), "%q: %s", text, result.Class)
		require.Less(t, result.Phases.Total, time.Second)
	}
	for text, class := range map[string]Class{
		"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 500\r\n\r\n": ClassConnect,
		"HTTP/1.1 403 Forbidden\r\n\r\n":                          ClassConnect,
		"":                                                        ClassConnectTimeout,
		"HTTP/1.1 200":                                            ClassConnectTimeout,
	} {
		result := try(text)
		require.Equal(t, class, result.Class, text)
		require.False(t, result.Ours, text)
		if class == ClassConnect {
			require.Less(t, result.Phases.Total, time.Second, text)
		}
		require.Less(t, result.Phases.Total, 3*time.Second)
		require.Empty(t, c.Paused())
	}
}

// serveTunnel answers a CONNECT with the text, and with what its target says after a 200 that is complete.
func serveTunnel(conn net.Conn, answer *string) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil || !write(conn, *answer) {
		return
	}
	if len(*answer) < len("HTTP/1.1 200 OK") || (*answer)[9] != '2' {
		_, _ = io.Copy(io.Discard, reader)
		return
	}
	to, err := net.Dial("tcp", request.Host)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, reader) }()
	_, _ = io.Copy(conn, to)
}
