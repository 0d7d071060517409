package dispatch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// soakCount is a test's size: short here, what the environment says by `make soak`.
func soakCount(t *testing.T, name string, short int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func soakSeconds(t *testing.T, name string, short int) time.Duration {
	t.Helper()
	return time.Duration(soakCount(t, name, short)) * time.Second
}

// hostile are receivers that mean harm, each a URL.
func hostile(t *testing.T) (urls []string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	done := make(chan struct{})
	var serving sync.WaitGroup
	t.Cleanup(func() { close(done); serving.Wait() })
	listen := func(scheme string, readsRequest bool, answer func(net.Conn)) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { listener.Close() })
		urls = append(urls, scheme+"://"+listener.Addr().String()+"/")
		serving.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				connections.Add(1)
				serving.Go(func() {
					defer conn.Close()
					if readsRequest {
						request, err := http.ReadRequest(bufio.NewReader(conn))
						if err != nil {
							return
						}
						if _, err = io.Copy(io.Discard, request.Body); err != nil {
							return
						}
					}
					answer(conn)
				})
			}
		})
	}
	say := func(conn net.Conn, text string) bool { _, err := io.WriteString(conn, text); return err == nil }
	// every writes until the other side has had enough.
	every := func(conn net.Conn, wait time.Duration, text string) {
		for say(conn, text) {
			select {
			case <-done:
				return
			case <-time.After(wait):
			}
		}
	}
	stall := func(conn net.Conn) {
		stop := make(chan struct{})
		serving.Go(func() {
			select {
			case <-done:
				conn.Close()
			case <-stop:
			}
		})
		_, _ = io.Copy(io.Discard, conn) // until the other side gives up
		close(stop)
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 10<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	block := strings.Repeat("x", 1<<16)

	listen("http", true, func(c net.Conn) { // drips
		if say(c, "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n") {
			every(c, 200*time.Millisecond, "x")
		}
	})
	listen("http", true, func(c net.Conn) { // drips its headers
		if say(c, "HTTP/1.1 500 No\r\n") {
			every(c, 200*time.Millisecond, "X-A: b\r\n")
		}
	})
	listen("http", true, func(c net.Conn) { // never ends
		if say(c, "HTTP/1.1 200 OK\r\n\r\n") {
			every(c, time.Millisecond, block)
		}
	})
	listen("http", true, func(c net.Conn) { // a bomb
		say(c, "HTTP/1.1 500 No\r\nContent-Encoding: gzip\r\nContent-Length: "+strconv.Itoa(bomb.Len())+"\r\n\r\n"+bomb.String())
	})
	listen("http", true, func(c net.Conn) { // a megabyte of headers
		if say(c, "HTTP/1.1 200 OK\r\n") {
			for range 16 {
				if !say(c, "X-Filler: "+block+"\r\n") {
					return
				}
			}
		}
	})
	listen("http", true, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }) // resets
	listen("https", false, stall)                                                // does not shake hands
	listen("http", false, stall)                                                 // is silent
	return urls, connections
}

// B5, B53, B54: memory stays flat while every slot is held by a receiver that means harm.
func TestSoak_HostileReceivers(t *testing.T) {
	t.Parallel()
	duration := soakSeconds(t, "SOAK_SECONDS", 9)
	b := setup(t)
	urls, connections := hostile(t)
	const tenants, endpointsEach = 4, 32
	owners := make([]uuid.UUID, tenants)
	for i := range owners {
		owners[i] = b.newTenant()
		for n := range endpointsEach {
			b.endpointOf(owners[i], urls[n%len(urls)])
		}
	}
	feeder := b.dispatcher()
	cmd := b.process()
	defer kill(t, cmd)
	var samples []int
	most := 0
	started := time.Now()
	for time.Since(started) < duration {
		var batch []kafka.Message
		for _, tenant := range owners {
			batch = append(batch, b.record(tenant, succeeded, nil), b.record(tenant, succeeded, nil))
		}
		require.NoError(t, feeder.materialize(t.Context(), batch))
		// Breakers and the schedule would end the harm.
		b.exec(`UPDATE apipay.webhook_endpoint_states SET breaker_opened_at = NULL, next_probe_at = NULL, consecutive_unreachable = 0
			WHERE endpoint_id IN (SELECT endpoint_id FROM apipay.webhook_endpoint_states WHERE consecutive_unreachable > 0 FOR UPDATE SKIP LOCKED)`)
		b.exec(`UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = now() WHERE (event_id, endpoint_id) IN
			(SELECT event_id, endpoint_id FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING' AND lease_until IS NULL FOR UPDATE SKIP LOCKED)`)
		most = max(most, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE lease_until > now()`))
		samples = append(samples, residentKiB(t, cmd.Process.Pid))
		<-time.After(500 * time.Millisecond)
	}
	third := len(samples) / 3
	warm, last := samples[third:2*third], samples[2*third:]
	t.Logf("%s at up to %d in flight, %d connections, %d attempts recorded; RSS after a third %d MiB, most in the second third %d MiB, in the last %d MiB",
		duration, most, connections.Load(), b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts`), warm[0]/1024, slices.Max(warm)/1024, slices.Max(last)/1024)
	require.Greater(t, most, 100, "in flight at once")
	require.LessOrEqual(t, slices.Max(last)-slices.Max(warm), 20*1024, "KiB more in the last third than in the one before: %v", samples)
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE latency_ms > 10500 OR octet_length(response_excerpt) > 16384`))
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmRSS:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib
}
