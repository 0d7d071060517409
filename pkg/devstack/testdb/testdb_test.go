package testdb_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("EachDatabaseIsItsOwn", func(t *testing.T) {
		t.Parallel()
		one, other := testdb.New(t), testdb.New(t)
		require.NotEqual(t, one.Name, other.Name)
		_, err := one.Pool(t, one.Super).Exec(t.Context(), "CREATE TABLE mine (id bigint)")
		require.NoError(t, err)
		_, err = other.Pool(t, other.Super).Exec(t.Context(), "SELECT * FROM mine")
		require.ErrorContains(t, err, "does not exist")
	})

	t.Run("EachRoleLogsInAsItself", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		for role, dsn := range map[string]string{
			"apipay_owner": db.Owner, "apipay_app": db.App, "apipay_worker": db.Worker, "apipay_admin": db.Admin,
		} {
			var got string
			var super bool
			row := db.Pool(t, dsn).QueryRow(t.Context(), "SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user")
			require.NoError(t, row.Scan(&got, &super))
			require.Equal(t, role, got)
			require.False(t, super)
		}
	})

	t.Run("HasTheSchema", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		var exists bool
		row := db.Pool(t, db.Owner).QueryRow(t.Context(), "SELECT to_regclass('apipay.outbox_events') IS NOT NULL")
		require.NoError(t, row.Scan(&exists))
		require.True(t, exists)
	})

	t.Run("PublicHasNoPrivilegeOnTheDatabase", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		var temp bool
		row := db.Pool(t, db.App).QueryRow(t.Context(), "SELECT has_database_privilege(current_database(), 'TEMP')")
		require.NoError(t, row.Scan(&temp))
		require.False(t, temp)
	})
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	var exists bool
	row := db.Pool(t, db.Super).QueryRow(t.Context(), "SELECT to_regnamespace('apipay') IS NOT NULL")
	require.NoError(t, row.Scan(&exists))
	require.False(t, exists)
	require.NoError(t, db.Pool(t, db.Owner).Ping(t.Context()))
}

func TestCleanupDropsTheDatabase(t *testing.T) {
	t.Parallel()
	keeper := testdb.New(t)
	var name string
	t.Run("user", func(t *testing.T) {
		db := testdb.New(t)
		name = db.Name
		// A session left open must not keep the database.
		conn, err := pgx.Connect(t.Context(), db.App)
		require.NoError(t, err)
		require.NoError(t, conn.Ping(t.Context()))
	})
	var left int
	row := keeper.Pool(t, keeper.Super).QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name)
	require.NoError(t, row.Scan(&left))
	require.Zero(t, left)
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, testdb.Brokers(t))
	require.Equal(t, testdb.Brokers(t), testdb.Brokers(t))
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		testdb.New(b)
	}
}
