package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// messages counts what a client sends at a time: one write, one round trip. With lose set it cuts the connection once a COMMIT
// that is a prepared statement was passed on.
type messages struct {
	writes atomic.Int64
	lose   atomic.Bool
}

func throughMessages(t *testing.T, dsn string) (*messages, string) {
	t.Helper()
	uri, err := url.Parse(dsn)
	require.NoError(t, err)
	target := uri.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	m := &messages{}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go m.requests(client, server)
		}
	}()
	uri.Host = listener.Addr().String()
	return m, uri.String()
}

func (m *messages) requests(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	digest := sha256.Sum256([]byte("commit"))
	commit := []byte("\x00stmtcache_" + hex.EncodeToString(digest[:24]) + "\x00") // as pgx names it
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		m.writes.Add(1)
		lost := bytes.Contains(buffer[:n], commit) && m.lose.Swap(false)
		if lost {
			_ = client.Close() // the answer has nowhere to go
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if lost {
			_ = server.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, server) // it acts on it before its connection ends
			return
		}
	}
}

// A transaction whose first and last statements are known takes two round trips, is scoped, and forgets its scope.
func TestInTenantWith(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	a, b := seed(t.Context(), t, owner, false), seed(t.Context(), t, owner, false)
	wire, dsn := throughMessages(t, db.App)
	pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	change := func(of tenant, to string) (changed int64, err error) {
		first, last := &pgx.Batch{}, &pgx.Batch{}
		first.Queue(`SELECT url FROM apipay.webhook_endpoints FOR UPDATE`)
		last.Queue(`UPDATE apipay.webhook_endpoints SET url = $1, version = version / $2`, to, len(to)/100)
		err = postgres.InTenantWith(t.Context(), pool, postgres.Scope{TenantID: of.id}, first, func(tx postgres.Tx, results pgx.BatchResults) error {
			require.WithinDuration(t, time.Now(), tx.Now, time.Minute)
			tag, err := results.Exec()
			if err != nil {
				return err
			}
			changed = tag.RowsAffected()
			if err := results.Close(); err != nil {
				return err
			}
			return tx.CommitWith(t.Context(), last)
		})
		return changed, err
	}
	fits := "https://fits/" + string(bytes.Repeat([]byte("x"), 100))
	for range 3 {
		for _, of := range []tenant{a, b} {
			_, err := change(of, "https://by-zero/")
			require.ErrorContains(t, err, "division by zero")
			require.NotErrorIs(t, err, postgres.ErrCommitUnknown)
			_, err = change(of, fits) // prepares again what failed
			require.NoError(t, err)
			before := wire.writes.Load()
			changed, err := change(of, fits)
			require.NoError(t, err)
			require.EqualValues(t, 1, changed, "only the tenant's own")
			require.EqualValues(t, 2, wire.writes.Load()-before, "round trips")
			var after string
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(current_setting('app.tenant_id', true), '')`).Scan(&after))
			require.Empty(t, after)
		}
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "also after an error")
	_, err = change(tenant{id: id.New()}, fits)
	require.NoError(t, err)
	var n int
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT count(*) FROM apipay.webhook_endpoints WHERE url = $1 AND tenant_id = ANY ($2)`,
		fits, []string{a.id.String(), b.id.String()}).Scan(&n))
	require.Equal(t, 2, n)
}

func TestCommitWithLostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	a := seed(t.Context(), t, owner, false)
	wire, dsn := throughMessages(t, db.App)
	pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	set := func(to string) error {
		return postgres.InTenant(t.Context(), pool, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue(`UPDATE apipay.webhook_endpoints SET url = $1`, to)
			return tx.CommitWith(t.Context(), batch)
		})
	}
	require.NoError(t, set("https://first/"))
	wire.lose.Store(true)
	err = set("https://changed/")
	require.ErrorIs(t, err, postgres.ErrCommitUnknown)
	require.True(t, postgres.IsUnavailable(err))
	require.Eventually(t, func() bool {
		var url string
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT url FROM apipay.webhook_endpoints WHERE id = $1`, a.endpoint).Scan(&url))
		return url == "https://changed/"
	}, 5*time.Second, 10*time.Millisecond, "it did commit")
	require.NoError(t, set("https://again/"))
}
