package app_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// proxy is a way to Postgres that can be closed, and that can lose an answer.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	away  bool
	lose  []byte // after a message with this text, its answer and the connection are lost, once
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// throughProxy answers a DSN that leads through it.
func throughProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	p := &proxy{target: u.Host, conns: map[net.Conn]bool{}}
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut(true)
		p.wg.Wait()
	})
	u.Host = p.listener.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { p.requests(client, server) })
		p.wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close(); _ = server.Close() })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return !p.away
}

func (p *proxy) requests(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		lost := len(p.lose) > 0 && bytes.Contains(buffer[:n], p.lose)
		if lost {
			p.lose = nil
		}
		p.mu.Unlock()
		if lost {
			_ = client.Close() // nobody will read the answer
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if lost {
			// The server gets the time to act on it before its connection goes, too.
			_ = server.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, server)
			return
		}
	}
}

// cut ends all connections, and with away refuses new ones.
func (p *proxy) cut(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.conns)
}

func (p *proxy) loseAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = []byte(text)
}

// The answer to COMMIT is lost: the transaction's outcome is asked for, and told.
func TestEndpoints_LostCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughProxy(t, b.db.App)
	m := merchant{b.replica(t, "APIPAY_DATABASE_URL="+dsn), b.key(t, b.tenant(t), false)}
	path := m.endpoint(t).header.Get("Location")
	deadline := time.Now().Add(15 * time.Second)
	for told := 0; told < 3; {
		require.True(t, time.Now().Before(deadline), "told %d times what became of the change", told)
		want := uuid.NewString()
		m.call(t, http.MethodGet, path, nil) // the key is known now, so that the next commit is the change's
		way.loseAnswerTo("commit")
		a := m.call(t, http.MethodPatch, path, body{"description": want})
		if a.status == http.StatusServiceUnavailable {
			// It was the commit of the key's look-up or of last_used_at, or the pool's other connection was lost as well.
			require.Equal(t, "service_unavailable", a.code())
			continue
		}
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, want, a.json["description"])
		require.Equal(t, want, m.call(t, http.MethodGet, path, nil).json["description"])
		told++
	}
}

// Postgres away and back: 503 with Retry-After meanwhile, unready, and all well again by itself.
func TestRun_HealsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughProxy(t, b.db.App)
	p := start(t, b, "APIPAY_DATABASE_URL="+dsn)
	m := merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
	path := m.endpoint(t).header.Get("Location")

	way.cut(true)
	require.Eventually(t, func() bool { return p.ready() == http.StatusServiceUnavailable }, 5*time.Second, 20*time.Millisecond)
	for range 3 {
		a := m.call(t, http.MethodGet, path, nil)
		if a.status == http.StatusOK {
			continue
		}
		refused(t, a, http.StatusServiceUnavailable, "service_unavailable")
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.NotContains(t, string(a.body), "127.0.0.1")
	}
	way.cut(false)
	require.Eventually(t, func() bool {
		return p.ready() == http.StatusOK && m.call(t, http.MethodGet, path, nil).status == http.StatusOK
	}, 15*time.Second, 50*time.Millisecond)
	response, err := client.Get("http://" + p.ops + "/livez")
	require.NoError(t, err)
	_ = response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, p.end())
}

// A start without Postgres waits for it for a while and can be called off.
func TestRun_WaitsForPostgres(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughProxy(t, b.db.App)
	way.cut(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !bytes.Contains([]byte(b.logs.String()), []byte("database.waiting")) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		way.cut(false)
	}()
	defer cancel()
	p := startWith(t, b, b.logs, "APIPAY_DATABASE_URL="+dsn)
	require.Contains(t, b.logs.String(), "database.waiting")
	require.NotContains(t, b.logs.String(), "apipay-test", "no password in the log")
	require.NoError(t, p.end())
}
