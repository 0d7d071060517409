package post

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// keepAlive is a receiver that answers on kept-alive connections and closes each a while after its last answer. It counts
// the requests by their X-Attempt.
type keepAlive struct {
	mu       sync.Mutex
	requests map[string]int
	url      string
}

func newKeepAlive(t *testing.T, closeAfter func() time.Duration) *keepAlive {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	k := &keepAlive{requests: map[string]int{}, url: "http://" + listener.Addr().String() + "/"}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { k.serve(conn, closeAfter) })
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return k
}

func (k *keepAlive) serve(conn net.Conn, closeAfter func() time.Duration) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		k.mu.Lock()
		k.requests[request.Header.Get("X-Attempt")]++
		k.mu.Unlock()
		if !write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") {
			return
		}
		if err := conn.SetReadDeadline(time.Now().Add(closeAfter())); err != nil {
			return
		}
	}
}

func (k *keepAlive) post(t *testing.T, c *Client, endpointID uuid.UUID, n int) (Result, int) {
	t.Helper()
	name := strconv.Itoa(n)
	result := c.Post(t.Context(), Request{EndpointID: endpointID, URL: k.url, Header: http.Header{"X-Attempt": {name}}, Body: []byte(`{}`), Now: time.Now()})
	k.mu.Lock()
	defer k.mu.Unlock()
	return result, k.requests[name]
}

// B57: a receiver that closes idle connections after five seconds, and events every five seconds: each is one POST that
// succeeds.
func TestPost_IdleConnectionsEndBeforeTheReceivers(t *testing.T) {
	t.Parallel()
	k := newKeepAlive(t, func() time.Duration { return 5 * time.Second })
	c := newClient(t, nil)
	endpointID := uuid.New()
	for n := range 4 {
		started := time.Now()
		result, requests := k.post(t, c, endpointID, n)
		require.True(t, result.Succeeded(), result.Class)
		require.Equal(t, 1, requests)
		if n < 3 {
			<-time.After(time.Until(started.Add(5 * time.Second)))
		}
	}
}

// B57: receivers that close idle connections sooner than we do, and events at just that interval. Each is one POST, which
// succeeds; what such a receiver is seen to do once, it is spared from then on.
func TestPost_ReceiversThatKeepConnectionsShortly(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 3900 * time.Millisecond} {
		t.Run(idle.String(), func(t *testing.T) {
			t.Parallel()
			k := newKeepAlive(t, func() time.Duration { return idle })
			c := newClient(t, nil)
			endpointID := uuid.New()
			for n := range 4 {
				started := time.Now()
				result, requests := k.post(t, c, endpointID, n)
				require.True(t, result.Succeeded(), result.Class)
				require.Equal(t, 1, requests)
				if n < 3 {
					// The first time it is seen to close, then it would be met closing.
					<-time.After(time.Until(started.Add(idle + time.Duration(1-min(n, 1))*50*time.Millisecond)))
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			require.InDelta(t, idle/2, c.endpoints[endpointID].idle, float64(idle)/4)
		})
	}
}

// B57: a request into a connection that the receiver had left goes at once on a new one, as the same attempt: its FIN shows that
// it took nothing of it. Where it may have, the attempt failed.
func TestPost_UnreadRequestsGoAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(conn *net.TCPConn, request func())
		unread  bool
	}{
		"left before the request":       {func(conn *net.TCPConn, request func()) { conn.Close(); request() }, true},
		"took the request and left":     {func(conn *net.TCPConn, request func()) { request(); readSome(conn); conn.Close() }, false},
		"left the request in its queue": {func(conn *net.TCPConn, request func()) { request(); waitReadable(conn); conn.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			ours, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer ours.Close()
			theirs, err := listener.Accept()
			require.NoError(t, err)
			defer theirs.Close()
			owner := newTimings()
			conn := &sniffedConn{Conn: ours, raw: ours}
			conn.reset(owner)
			test.prepare(theirs.(*net.TCPConn), func() {
				_, err := conn.Write([]byte("POST / HTTP/1.1\r\n\r\n"))
				require.NoError(t, err)
			})
			_, err = conn.Read(make([]byte, 1))
			require.Error(t, err)
			require.Equal(t, test.unread, conn.wasUnread(owner), err)
		})
	}
}

func readSome(conn net.Conn) { _, _ = conn.Read(make([]byte, 100)) }

// waitReadable returns once bytes wait in the connection's queue, and leaves them there. It looks itself: the runtime tells of
// bytes once, when they come, which may have been before.
func waitReadable(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err == nil
	})
}

// B57: connections that close at just the moment of the next request. An attempt is one POST at most, and one that
// failed says so; what was dead before anything was written costs nothing.
func TestPost_ConnectionsClosedInTheMoment(t *testing.T) {
	t.Parallel()
	idle := 2 * time.Millisecond
	k := newKeepAlive(t, func() time.Duration { return idle })
	c := newClient(t, nil)
	endpointID := uuid.New()
	failed, reused := 0, 0
	const attempts = 1500
	for n := range attempts {
		result, requests := k.post(t, c, endpointID, n)
		require.LessOrEqual(t, requests, 1, "attempt %d", n)
		if result.Succeeded() {
			require.Equal(t, 1, requests)
		} else {
			require.Equal(t, ClassReset, result.Class)
			failed++
		}
		if result.Reused {
			reused++
		}
		<-time.After(idle - time.Millisecond + time.Duration(rand.Int64N(int64(2*time.Millisecond))))
	}
	require.Positive(t, reused)
	require.Less(t, failed, attempts/2)
	t.Logf("%d of %d attempts failed, %d used a connection again", failed, attempts, reused)
}

// B59: the receiver moved. Its old address goes on answering, and is left within the maximum age all the same; the new one
// is judged.
func TestPost_ReceiverMoved(t *testing.T) {
	t.Parallel()
	server := newDNS(t)
	rx := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	require.NoError(t, rx.Listener.Close())
	rx.Listener = listener
	rx.Start()
	defer rx.Close()
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	c := newClient(t, func(c *Config) { c.DNS, c.Policy = server.addr, webhookPolicy("127.0.0.1/32", "127.0.0.2/32") })
	endpointID := uuid.New()
	post := func() Result {
		return c.Post(t.Context(), Request{EndpointID: endpointID, URL: "http://moving.example:" + u.Port(), Header: http.Header{}, Now: time.Now()})
	}
	age := func(by time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endpoints[endpointID].born = c.endpoints[endpointID].born.Add(-by)
	}
	server.set("moving.example.", "127.0.0.1")
	require.Equal(t, "127.0.0.1", post().RemoteIP)
	server.set("moving.example.", "127.0.0.2")
	age(maxConnectionAge - 5*time.Second)
	require.Equal(t, "127.0.0.1", post().RemoteIP, "a kept connection")
	age(6 * time.Second)
	require.Equal(t, "127.0.0.2", post().RemoteIP)
	server.set("moving.example.", "127.0.0.3")
	age(maxConnectionAge + time.Second)
	require.Equal(t, ClassBlocked, post().Class)
}
