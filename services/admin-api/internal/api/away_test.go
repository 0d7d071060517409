package api

import (
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// silence is a way to Postgres on which nothing moves any more once it is paused, as when the server's process stands
// still: connections stay, and new ones are accepted.
type silence struct {
	target string
	paused chan struct{}
	ended  chan struct{}
	wg     sync.WaitGroup
}

func throughSilence(t *testing.T, dsn string) (*silence, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	s := &silence{target: u.Host, paused: make(chan struct{}), ended: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.target)
			if err != nil {
				_ = client.Close()
				continue
			}
			s.wg.Go(func() { s.forward(client, server) })
			s.wg.Go(func() { s.forward(server, client) })
			s.wg.Go(func() { <-s.ended; _ = client.Close(); _ = server.Close() })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		close(s.ended)
		s.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return s, u.String()
}

func (s *silence) forward(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-s.paused:
			<-s.ended
			return
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

// A database that stands still is told as 503 within one deadline, however many statements a request takes; what could
// not be read is never an answer; and a refusal waits for its audit entry only shortly.
func TestDatabaseStandsStill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughSilence(t, b.db.Admin)
	pool := b.db.Pool(t, dsn)
	b.url = b.serve(t, pool, "")
	b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/outbox", nil)
	close(way.paused)
	endpoint := id.Format(id.Endpoint, b.endpoint(t, b.a))
	for name, ask := range map[string]struct {
		token, method, path string
		body                any
		status              int
		code                string
		within              time.Duration
	}{
		"outbox":   {viewerToken, http.MethodGet, "/admin/v1/outbox", nil, 503, "service_unavailable", requestTimeout},
		"event":    {viewerToken, http.MethodGet, "/admin/v1/events/" + id.Format(id.Event, id.New()), nil, 503, "service_unavailable", requestTimeout},
		"dry run":  {supportToken, http.MethodPost, recoveriesPath, map[string]any{"dry_run": true, "filter": map[string]any{"endpoint": endpoint}}, 503, "service_unavailable", requestTimeout},
		"write":    {adminToken, http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"}, 503, "service_unavailable", requestTimeout},
		"refusal":  {viewerToken, http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"}, 403, "forbidden", refusalTimeout},
		"no token": {"", http.MethodGet, "/admin/v1/outbox", nil, 401, "authentication_failed", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			b.problem(t, ask.token, ask.status, ask.code, ask.method, ask.path, ask.body)
			require.Less(t, time.Since(start), ask.within+2*time.Second)
		})
	}
	t.Cleanup(func() { require.Contains(t, b.log.String(), "audit.lost") })
}
