package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
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

var comment = regexp.MustCompile(`(?m)^\s*--.*$`)

func followsRules(file string) error {
	up, _, _ := strings.Cut(file, "-- +goose Down")
	_, up, _ = strings.Cut(up, "-- +goose Up")
	up = strings.TrimSpace(comment.ReplaceAllString(up, ""))
	if strings.Contains(file, "-- +goose NO TRANSACTION") {
		for statement := range strings.SplitSeq(strings.TrimSuffix(up, ";"), ";") {
			if !regexp.MustCompile(`^\s*(CREATE( UNIQUE)? INDEX CONCURRENTLY IF NOT EXISTS|DROP INDEX CONCURRENTLY IF EXISTS) `).MatchString(statement) {
				return fmt.Errorf("outside of a transaction there is only CREATE INDEX CONCURRENTLY IF NOT EXISTS and DROP INDEX CONCURRENTLY IF EXISTS, not %q", statement)
			}
		}
		return nil
	}
	if !strings.HasPrefix(up, "SET LOCAL lock_timeout = '200ms';") {
		return errors.New("it does not begin with SET LOCAL lock_timeout = '200ms'")
	}
	// An index of a table that the file itself makes holds nobody up.
	for _, index := range regexp.MustCompile(`CREATE (?:UNIQUE )?INDEX \w+ ON (?:ONLY )?(apipay\.\w+)`).FindAllStringSubmatch(up, -1) {
		if !strings.Contains(up, "CREATE TABLE "+index[1]+" (") {
			return fmt.Errorf("an index of %s, which is in use, is made CONCURRENTLY", index[1])
		}
	}
	return nil
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

	// What expands a schema in use takes its locks within 200 ms or gives up; what cannot be in a transaction blocks nobody.
	t.Run("FollowsTheRules", func(t *testing.T) {
		t.Parallel()
		const firstRelease = "00007" // the files before it made the schema that the first release began with
		files, err := fs.Glob(migrations.FS, "sql/*.sql")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			if path.Base(name) < firstRelease {
				continue
			}
			content, err := migrations.FS.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, followsRules(string(content)), name)
		}
		for _, file := range []string{
			"-- +goose Up\nSET LOCAL lock_timeout = '200ms';\nALTER TABLE apipay.refunds ADD COLUMN x text;\n",
			"-- +goose NO TRANSACTION\n-- +goose Up\n-- Why.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS x ON apipay.refunds (id);\n",
		} {
			require.NoError(t, followsRules(file))
		}
		for _, file := range []string{
			"-- +goose Up\nALTER TABLE apipay.refunds ADD COLUMN x text;\n",
			"-- +goose Up\nSET LOCAL lock_timeout = '5s';\nALTER TABLE apipay.refunds ADD COLUMN x text;\n",
			"-- +goose Up\nSET LOCAL lock_timeout = '200ms';\nCREATE INDEX x ON apipay.refunds (id);\n",
			"-- +goose NO TRANSACTION\n-- +goose Up\nALTER TABLE apipay.refunds ADD COLUMN x text;\n",
			"-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY x ON apipay.refunds (id);\n",
		} {
			require.Error(t, followsRules(file), file)
		}
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
