package postgres_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/postgres"
)

var relayNeeds = []postgres.Need{{
	Table:   "outbox_events",
	Verbs:   []postgres.Verb{postgres.Select, postgres.Lock, postgres.Update},
	Columns: []string{"published_at", "parked_at"},
}}

func TestCheck(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	check := func(t *testing.T, dsn, role string, needs ...postgres.Need) error {
		t.Helper()
		return postgres.Check(t.Context(), db.Pool(t, dsn), role, needs)
	}

	t.Run("PassesOnAnEmptyTable", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, check(t, db.Worker, "apipay_worker", relayNeeds...))
		require.NoError(t, check(t, db.App, "apipay_app", postgres.Need{Table: "payment_intents",
			Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Lock, postgres.Update}, Columns: []string{"status"}}))
	})
	t.Run("RefusesSuperuser", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, check(t, db.Super, "apipay_worker", relayNeeds...), "is a superuser")
	})
	t.Run("RefusesOtherRoles", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, check(t, db.App, "apipay_worker", relayNeeds...), "this service runs as apipay_worker")
		require.ErrorContains(t, check(t, db.Owner, "apipay_worker", relayNeeds...), "this service runs as apipay_worker")
	})
	t.Run("NamesWhatIsMissing", func(t *testing.T) {
		t.Parallel()
		err := check(t, db.App, "apipay_app",
			postgres.Need{Table: "outbox_events", Verbs: []postgres.Verb{postgres.Lock}},
			postgres.Need{Table: "payment_intents", Verbs: []postgres.Verb{postgres.Update}, Columns: []string{"status", "amount"}},
			postgres.Need{Table: "payment_intents", Verbs: []postgres.Verb{postgres.Delete}},
			postgres.Need{Table: "no_such_table", Verbs: []postgres.Verb{postgres.Select}})
		require.ErrorContains(t, err, "no privilege for LOCK on apipay.outbox_events")
		require.ErrorContains(t, err, "no privilege for UPDATE on apipay.payment_intents")
		require.ErrorContains(t, err, "no privilege for DELETE on apipay.payment_intents")
		require.ErrorContains(t, err, "table apipay.no_such_table is missing")
		require.NotContains(t, err.Error(), "\n")
	})
}

// Each of these changes the database, so each has its own.
func TestCheckAgainstChangedDatabase(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		err    string
	}{
		"select-only policy": {`DROP POLICY platform_access ON apipay.outbox_events;
			CREATE POLICY platform_access ON apipay.outbox_events FOR SELECT TO apipay_worker USING (true)`, "no permissive policy of this release covers LOCK"},
		"no policy":                 {`DROP POLICY platform_access ON apipay.outbox_events`, "no permissive policy of this release covers SELECT"},
		"policy that shows nothing": {`ALTER POLICY platform_access ON apipay.outbox_events USING (tenant_id IS NULL)`, "no permissive policy of this release covers SELECT"},
		"restrictive policy":        {`CREATE POLICY zz ON apipay.outbox_events AS RESTRICTIVE TO apipay_worker USING (false)`, "the restrictive policy zz on apipay.outbox_events"},
		"not forced":                {`ALTER TABLE apipay.outbox_events NO FORCE ROW LEVEL SECURITY`, "row level security is not enabled and forced"},
		"select-only grant":         {`REVOKE UPDATE ON apipay.outbox_events FROM apipay_worker`, "no privilege for LOCK"},
		"one column missing":        {`REVOKE UPDATE (published_at) ON apipay.outbox_events FROM apipay_worker`, "no privilege for UPDATE"},
		"older schema":              {`UPDATE apipay.schema_info SET version = 0`, "run `migrate up`"},
		"schema of tomorrow":        {`UPDATE apipay.schema_info SET min_code = 1000`, "deploy a newer release"},
		"newer but welcoming":       {`UPDATE apipay.schema_info SET version = 1000`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			_, err := db.Pool(t, db.Owner).Exec(t.Context(), test.change)
			require.NoError(t, err)
			err = postgres.Check(t.Context(), db.Pool(t, db.Worker), "apipay_worker", relayNeeds)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
		})
	}
}

func TestCheckRefusesAnOwner(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	_, err := db.Pool(t, db.Super).Exec(t.Context(), `ALTER TABLE apipay.outbox_events OWNER TO apipay_worker`)
	require.NoError(t, err)
	require.ErrorContains(t, postgres.Check(t.Context(), db.Pool(t, db.Worker), "apipay_worker", relayNeeds), "the role owns apipay.outbox_events")
}

func TestCheckRefusesBypassRLS(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	super := db.Pool(t, db.Super)
	// A role of this test's own: roles belong to the whole cluster.
	role := "bypass_" + db.Name
	_, err := super.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN BYPASSRLS PASSWORD 'x'; GRANT CONNECT ON DATABASE `+db.Name+` TO `+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := super.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	dsn, err := url.Parse(db.Worker)
	require.NoError(t, err)
	dsn.User = url.UserPassword(role, "x")
	var pool *pgxpool.Pool
	pool, err = postgres.Open(dsn.String(), postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	require.ErrorContains(t, postgres.Check(t.Context(), pool, "apipay_worker", relayNeeds), "has BYPASSRLS")
}

func TestOpenNeverShowsTheDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://app:p@ss/%zz@127.0.0.1/x", "p@ss", "postgres://a:p@ss@[::1/x", "host=x password=p@ss port=zz"} {
		_, err := postgres.Open(dsn, postgres.Options{})
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "p@ss")
	}
	// Wrong password: refused at once, without the password.
	db := testdb.New(t)
	uri, err := url.Parse(db.App)
	require.NoError(t, err)
	uri.User = url.UserPassword("apipay_app", "s3cr3t-marker")
	pool, err := postgres.Open(uri.String(), postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	var log strings.Builder
	begin := time.Now()
	err = postgres.Wait(t.Context(), pool, slog.New(slog.NewTextHandler(&log, nil)))
	require.ErrorContains(t, err, "28P01")
	require.Less(t, time.Since(begin), 5*time.Second)
	// Nobody there: waits, says so, and gives up with the context.
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	pool, err = postgres.Open("postgres://app:s3cr3t-marker@127.0.0.1:1/x", postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	err = postgres.Wait(ctx, pool, slog.New(slog.NewTextHandler(&log, nil)))
	require.ErrorContains(t, err, "connecting to the database")
	require.Contains(t, log.String(), "database.waiting")
	require.NotContains(t, log.String()+err.Error(), "s3cr3t-marker")
}
