package dispatch

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// switcher is a receiver that answers with a switch of protocols and keeps the connection open.
func switcher(t *testing.T) (target string, posts *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	posts = &atomic.Int64{}
	serve := func(conn net.Conn) {
		defer conn.Close()
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		if _, err = io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		posts.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String(), posts
}

// A switch of protocols is a failed attempt, at once, and holds nothing.
func TestSend_SwitchOfProtocols(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target, posts := switcher(t)
	endpointID, _ := b.endpoint(target)
	d := b.dispatcher()
	stop := b.run(d)
	eventID := b.publish(d, succeeded)
	b.waitFor(eventID, endpointID, "RETRYING", 1)
	a := b.attempts(eventID)[0]
	require.Equal(t, "status", *a.ErrorClass)
	require.Equal(t, 101, *a.StatusCode)
	require.Less(t, *a.LatencyMs, 5000)
	require.EqualValues(t, 1, posts.Load())
	b.eventually(func() bool { return d.work.inHand(slots) == 0 }, "the slot is free")
	started := time.Now()
	stop()
	require.Less(t, time.Since(started), 5*time.Second)
}

// What does not end by itself after SIGTERM is given back without a count, and another dispatcher sends it.
func TestRun_GivesBackWhatHangs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Timeout, b.config.Lease = 4*time.Minute, 5*time.Minute
	rx := newReceiver(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done()
		}
	})
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	require.Equal(t, finishTimeout, d.finishTimeout)
	d.finishTimeout = 100 * time.Millisecond
	stop := b.run(d)
	eventID := b.publish(d, succeeded)
	b.eventually(func() bool { return len(rx.got()) == 1 }, "in flight")
	b.run(b.dispatcher())
	started := time.Now()
	stop()
	require.Less(t, time.Since(started), 10*time.Second)
	b.waitFor(eventID, endpointID, "DELIVERED", 1)
	require.Len(t, b.attempts(eventID), 1)
	require.Equal(t, 1, b.attempts(eventID)[0].Number)
}

// Names that fail are their endpoints' own: counted, and in nobody else's way.
func TestSend_NamesThatFail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.DNS = failingDNS(t)
	d := b.dispatcher()
	b.run(d)
	for _, host := range []string{"a.one.test", "b.two.test", "c.three.test", "d.four.test", "e.five.test"} {
		b.endpoint("http://" + host + "/")
	}
	rx := newReceiver(t, nil)
	_, port, err := net.SplitHostPort(rx.Listener.Addr().String())
	require.NoError(t, err)
	eventID := b.publish(d, succeeded)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE event_id = $1 AND error_class = 'dns'`, eventID) == 5
	}, "each failed and is counted")
	endpointID, _ := b.endpoint("http://loop.test:" + port)
	b.waitFor(b.publish(d, succeeded), endpointID, "DELIVERED", 1)
	require.Empty(t, d.client.Degraded())
}

// failingDNS is a resolver that knows loop.test, and fails for all else but the root.
func failingDNS(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answerDNS(query[:n]), from)
		}
	}()
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

func answerDNS(query []byte) []byte {
	const header, loop = 12, "\x04loop\x04test\x00"
	name := query[header:]
	end := 0
	for name[end] != 0 {
		end += 1 + int(name[end])
	}
	name = name[:end+1]
	question := query[header : header+len(name)+4]
	answer := append([]byte{query[0], query[1], 0x81, 0x82, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	switch {
	case string(name) == loop:
		answer[3] = 0x80
		if question[len(name)+1] == 1 {
			answer[7] = 1
			answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
		}
	case len(name) == 1:
		answer[3] = 0x80
	}
	return answer
}
