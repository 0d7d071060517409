package postgres_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/migrations"
	"apipay.io/hub/pkg/devstack/testdb"
)

// bootstrap prepares an empty database and returns the owner's DSN.
func bootstrap(t *testing.T, db *testdb.DB) string {
	t.Helper()
	_, err := db.Pool(t, db.Super).Exec(t.Context(), migrations.BootstrapSQL)
	require.NoError(t, err)
	return db.Owner
}

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("EightAtOnce", func(t *testing.T) {
		t.Parallel()
		dsn := bootstrap(t, testdb.Empty(t))
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() { errs[i] = migrations.Up(t.Context(), dsn) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		list, err := migrations.List(t.Context(), dsn)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		for _, m := range list {
			require.False(t, m.AppliedAt.IsZero(), m.Name)
		}
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		var twice, locks int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) - count(DISTINCT version_id) FROM apipay.goose_db_version`).Scan(&twice))
		require.Zero(t, twice)
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE l.locktype = 'advisory' AND d.datname = current_database()`).Scan(&locks))
		require.Zero(t, locks)
	})

	t.Run("HolderKilled", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		dsn := bootstrap(t, db)
		super := db.Pool(t, db.Super)
		// A migrator whose backend is ended again and again still gets there when it is run again.
		stop := make(chan struct{})
		var killer sync.WaitGroup
		killer.Go(func() {
			for i := 0; i < 3; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				_, _ = super.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'migrate'`)
			}
		})
		require.Eventually(t, func() bool { return migrations.Up(t.Context(), dsn) == nil }, 15*time.Second, 10*time.Millisecond)
		close(stop)
		killer.Wait()
		require.NoError(t, migrations.Up(t.Context(), dsn))
	})

	t.Run("DownAndUpAgain", func(t *testing.T) {
		t.Parallel()
		dsn := bootstrap(t, testdb.Empty(t))
		require.NoError(t, migrations.Up(t.Context(), dsn))
		list, err := migrations.List(t.Context(), dsn)
		require.NoError(t, err)
		for range list {
			require.NoError(t, migrations.Down(t.Context(), dsn))
		}
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		var left int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'apipay' AND c.relkind IN ('r', 'p', 'v') AND c.relname <> 'goose_db_version'`).Scan(&left))
		require.Zero(t, left)
		require.NoError(t, migrations.Up(t.Context(), dsn))
	})

	t.Run("NotBootstrapped", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		require.ErrorIs(t, migrations.Up(t.Context(), db.Super), migrations.ErrNotBootstrapped)
		_, err := db.Pool(t, db.Super).Exec(t.Context(), `GRANT CONNECT ON DATABASE `+db.Name+` TO apipay_owner`)
		require.NoError(t, err)
		require.ErrorIs(t, migrations.Up(t.Context(), db.Owner), migrations.ErrNotBootstrapped)
		bootstrap(t, db)
		require.ErrorIs(t, migrations.Up(t.Context(), db.App), migrations.ErrNotBootstrapped)
	})

	t.Run("BootstrapTwice", func(t *testing.T) {
		t.Parallel()
		db := testdb.Empty(t)
		bootstrap(t, db)
		require.NoError(t, migrations.Up(t.Context(), db.Owner))
		bootstrap(t, db)
		require.NoError(t, migrations.Up(t.Context(), db.Owner))
	})

	t.Run("HidesTheDSN", func(t *testing.T) {
		t.Parallel()
		err := migrations.Up(t.Context(), "postgres://owner:p@ss/%zz@127.0.0.1/x")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "p@ss")
		uri, err := url.Parse(testdb.Empty(t).Owner)
		require.NoError(t, err)
		uri.User = url.UserPassword("apipay_owner", "s3cr3t-marker")
		err = migrations.Up(t.Context(), uri.String())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cr3t-marker")
	})
}
