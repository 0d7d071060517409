package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// Two transactions that lock two rows in opposite order: Postgres ends one with 40P01, which is retried.
func TestInTenantRetriesDeadlocks(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner, app := db.Pool(t, db.Owner), db.Pool(t, db.App)
	a, b := seed(t.Context(), t, owner, false), seed(t.Context(), t, owner, false)
	_, err := owner.Exec(t.Context(), `INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events) VALUES ($1, $2, false, 'https://b/', '{*}')`, b.event, a.id)
	require.NoError(t, err)
	var runs atomic.Int32
	var both sync.WaitGroup
	both.Add(2)
	lock := func(first, second any) error {
		var once sync.Once
		return postgres.InTenant(t.Context(), app, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
			runs.Add(1)
			const query = `UPDATE apipay.webhook_endpoints SET version = version + 1 WHERE id = $1`
			if _, err := tx.Exec(t.Context(), query, first); err != nil {
				return err
			}
			once.Do(func() {
				both.Done()
				both.Wait()
			})
			_, err := tx.Exec(t.Context(), query, second)
			return err
		})
	}
	other := make(chan error, 1)
	go func() { other <- lock(b.event, a.endpoint) }()
	require.NoError(t, lock(a.endpoint, b.event))
	require.NoError(t, <-other)
	require.EqualValues(t, 3, runs.Load(), "one of the two ran twice")
	var version int
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT version FROM apipay.webhook_endpoints WHERE id = $1`, a.endpoint).Scan(&version))
	require.Equal(t, 2, version)
}

func TestInTenantRollsBackWhatFailed(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	a := seed(t.Context(), t, owner, false)
	pool, err := postgres.Open(db.App, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	errOwn := errors.New("own")
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		err := postgres.InTenant(ctx, pool, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE apipay.webhook_endpoints SET url = 'https://changed/'`)
			require.NoError(t, err)
			cancel() // a client that hangs up in the middle
			return errOwn
		})
		require.ErrorIs(t, err, errOwn)
	}
	var url string
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT url FROM apipay.webhook_endpoints WHERE id = $1`, a.endpoint).Scan(&url))
	require.Equal(t, "https://example.com/", url)
	// The only connection came back clean each time.
	require.NoError(t, pool.Ping(t.Context()))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

// A proxy that lets everything pass until the client sends COMMIT, forwards that, and cuts the answer off.
func TestLostCommitAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	a := seed(t.Context(), t, owner, false)
	uri, err := url.Parse(db.App)
	require.NoError(t, err)
	target := uri.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go cutAfterCommit(client, target)
		}
	}()
	uri.Host = listener.Addr().String()
	pool, err := postgres.Open(uri.String(), postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	err = postgres.InTenant(t.Context(), pool, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE apipay.webhook_endpoints SET url = 'https://changed/'`)
		return err
	})
	require.ErrorIs(t, err, postgres.ErrCommitUnknown)
	require.True(t, postgres.IsUnavailable(err))
	require.Eventually(t, func() bool {
		var url string
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT url FROM apipay.webhook_endpoints WHERE id = $1`, a.endpoint).Scan(&url))
		return url == "https://changed/"
	}, 5*time.Second, 10*time.Millisecond, "it did commit")
}

func cutAfterCommit(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		isCommit := n >= 6 && contains(buffer[:n], "commit")
		if isCommit {
			_ = client.(*net.TCPConn).CloseRead()
			_ = client.Close() // the answer has nowhere to go
		}
		if _, err := server.Write(buffer[:n]); err != nil || isCommit {
			// Let the server act on it before the connection ends.
			_, _ = io.Copy(io.Discard, io.LimitReader(server, 1))
			return
		}
	}
}

func contains(haystack []byte, needle string) bool {
	for i := 0; i+len(needle) <= len(haystack); i++ {
		if string(haystack[i:i+len(needle)]) == needle {
			return true
		}
	}
	return false
}

func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	pool := db.Pool(t, db.App)
	_, err := pool.Exec(t.Context(), `SELECT 1/0`)
	require.False(t, postgres.IsUnavailable(err))
	gone, err := postgres.Open("postgres://x@127.0.0.1:1/x", postgres.Options{})
	require.NoError(t, err)
	defer gone.Close()
	err = postgres.InTenant(t.Context(), gone, postgres.Scope{TenantID: id.New()}, func(postgres.Tx) error { return nil })
	require.True(t, postgres.IsUnavailable(err), "%v", err)
}

// A batch that reads is scoped to its tenant and mode, and the connection forgets both with it.
func TestReadInTenant(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	a, b := seed(t.Context(), t, owner, false), seed(t.Context(), t, owner, false)
	pool, err := postgres.Open(db.App, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	read := func(of tenant, query string) (url, setting string, err error) {
		batch := &pgx.Batch{}
		batch.Queue(query)
		batch.Queue(`SELECT current_setting('app.tenant_id')`)
		err = postgres.ReadInTenant(t.Context(), pool, postgres.Scope{TenantID: of.id}, batch, func(results pgx.BatchResults) error {
			if err := results.QueryRow().Scan(&url); err != nil {
				return err
			}
			return results.QueryRow().Scan(&setting)
		})
		return url, setting, err
	}
	for range 3 {
		for _, of := range []tenant{a, b} {
			count, setting, err := read(of, `SELECT count(*)::text || max(tenant_id::text) FROM apipay.webhook_endpoints`)
			require.NoError(t, err)
			require.Equal(t, "1"+of.id.String(), count)
			require.Equal(t, of.id.String(), setting)
			_, _, err = read(of, `SELECT 1/0`)
			require.ErrorContains(t, err, "division by zero")
			var after string
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(current_setting('app.tenant_id', true), '')`).Scan(&after))
			require.Empty(t, after)
		}
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "also after an error")
}

// Every way in which the services write and read uuids.
func TestUUIDs(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	pool, err := postgres.Open(db.App, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	u := id.New()
	var none *uuid.UUID
	var one, other uuid.UUID
	var many []uuid.UUID
	var pointer, absent *uuid.UUID
	var raw [16]byte
	var asText string
	row := pool.QueryRow(t.Context(), `SELECT $1::uuid, $2::uuid, $3::uuid, $4::uuid[], $1::uuid, $5::uuid, $1::uuid::text`,
		u, &u, none, []uuid.UUID{u, u}, u.String())
	require.NoError(t, row.Scan(&one, &pointer, &absent, &many, &raw, &other, &asText))
	require.Equal(t, []uuid.UUID{u, u, u}, []uuid.UUID{one, *pointer, other})
	require.Equal(t, []uuid.UUID{u, u}, many)
	require.Nil(t, absent)
	require.Equal(t, [16]byte(u), raw)
	require.Equal(t, u.String(), asText)
	require.Error(t, pool.QueryRow(t.Context(), `SELECT NULL::uuid`).Scan(&one))
}

// A process that stands still inside a transaction loses it, and with it the locks.
func TestIdleTransactionEnds(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner, app := db.Pool(t, db.Owner), db.Pool(t, db.App)
	a := seed(t.Context(), t, owner, false)
	const query = `UPDATE apipay.webhook_endpoints SET version = version + 1 WHERE id = $1`
	err := postgres.InTenant(t.Context(), app, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
		_, err := tx.Exec(t.Context(), query, a.endpoint)
		require.NoError(t, err)
		_, err = owner.Exec(t.Context(), query, a.endpoint) // waits until the other's time is over
		require.NoError(t, err)
		return nil
	})
	require.Error(t, err)
	require.True(t, postgres.IsUnavailable(err), "%v", err)
	require.NotErrorIs(t, err, postgres.ErrCommitUnknown)
	var version int
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT version FROM apipay.webhook_endpoints WHERE id = $1`, a.endpoint).Scan(&version))
	require.Equal(t, 1, version)
}
