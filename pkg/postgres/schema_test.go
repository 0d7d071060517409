package postgres_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// tenantTables are the tables that a tenant's rows live in: the parents of partitions, not the partitions.
func tenantTables(t *testing.T, owner *pgxpool.Pool) []string {
	t.Helper()
	const query = `
		SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'apipay' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		  AND (c.relname = 'tenants' OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
		ORDER BY c.relname`
	rows, err := owner.Query(t.Context(), query)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 15)
	return tables
}

func readable(t *testing.T, pool *pgxpool.Pool, table string) bool {
	t.Helper()
	var ok bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT has_table_privilege($1, 'SELECT')`, "apipay."+table).Scan(&ok))
	return ok
}

func TestSchema(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	app, worker, admin := db.Pool(t, db.App), db.Pool(t, db.Worker), db.Pool(t, db.Admin)
	a := seed(t.Context(), t, owner, false)
	b := seed(t.Context(), t, owner, false)
	live := seed(t.Context(), t, owner, true)
	tables := tenantTables(t, owner)

	t.Run("EveryTableIsEnabledAndForced", func(t *testing.T) {
		t.Parallel()
		const query = `
			SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'apipay' AND c.relkind IN ('r', 'p') AND c.relname NOT IN ('schema_info', 'goose_db_version')
			  AND NOT (c.relrowsecurity AND c.relforcerowsecurity)`
		rows, err := owner.Query(t.Context(), query)
		require.NoError(t, err)
		bare, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, bare)
	})

	t.Run("SeedReachesEveryTable", func(t *testing.T) {
		t.Parallel()
		for _, table := range tables {
			require.Positive(t, count(t, owner, table, a.id), table)
		}
	})

	t.Run("WithoutSettingNoRows", func(t *testing.T) {
		t.Parallel()
		for _, pool := range []*pgxpool.Pool{app, admin} {
			for _, table := range tables {
				if !readable(t, pool, table) {
					continue
				}
				var n int
				require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM apipay.`+table).Scan(&n), table)
				require.Zero(t, n, table)
			}
		}
	})

	t.Run("SettingEndsWithTheTransaction", func(t *testing.T) {
		t.Parallel()
		// One connection: after a tenant's transaction the setting is '' and not NULL on it.
		dsn := db.App
		pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 1})
		require.NoError(t, err)
		defer pool.Close()
		err = postgres.InTenant(t.Context(), pool, postgres.Scope{TenantID: a.id}, func(tx postgres.Tx) error {
			var n int
			return tx.QueryRow(t.Context(), `SELECT count(*) FROM apipay.payment_intents`).Scan(&n)
		})
		require.NoError(t, err)
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM apipay.payment_intents`).Scan(&n))
		require.Zero(t, n)
	})

	t.Run("TenantSeesItsOwnRowsOfItsMode", func(t *testing.T) {
		t.Parallel()
		for _, table := range tables {
			if !readable(t, app, table) {
				continue
			}
			for _, other := range []postgres.Scope{{TenantID: b.id}, {TenantID: live.id, Livemode: true}} {
				inTenant(t, app, other, func(tx postgres.Tx) {
					var own, foreign int
					const query = `SELECT count(*) FILTER (WHERE %[1]s = $1), count(*) FILTER (WHERE %[1]s <> $1) FROM apipay.%[2]s`
					require.NoError(t, tx.QueryRow(t.Context(), fmt.Sprintf(query, tenantColumn(table), table), other.TenantID).Scan(&own, &foreign), table)
					require.Positive(t, own, table)
					require.Zero(t, foreign, table)
				})
			}
			if table == "tenants" {
				continue // has no mode
			}
			inTenant(t, app, postgres.Scope{TenantID: live.id, Livemode: false}, func(tx postgres.Tx) {
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM apipay.`+table).Scan(&n), table)
				require.Zero(t, n, "%s shows live rows in test mode", table)
			})
		}
	})

	t.Run("StaffSeeTheirTenantsOnly", func(t *testing.T) {
		t.Parallel()
		for _, table := range tables {
			if !readable(t, admin, table) {
				continue
			}
			for scope, want := range map[string]int{
				a.id.String(): 1, a.id.String() + "," + b.id.String(): 2, postgres.AllTenants: 3, id.New().String(): 0, "x'; RESET ROLE; --": 0, "": 0,
			} {
				err := postgres.InSupport(t.Context(), admin, scope, func(tx postgres.Tx) error {
					var n int
					query := fmt.Sprintf(`SELECT count(DISTINCT %[1]s) FROM apipay.%[2]s WHERE %[1]s <> '00000000-0000-0000-0000-000000000000'`, tenantColumn(table), table)
					if err := tx.QueryRow(t.Context(), query).Scan(&n); err != nil {
						return err
					}
					require.Equal(t, want, n, "%s with scope %q", table, scope)
					return nil
				})
				require.NoError(t, err, table)
			}
		}
	})

	t.Run("WorkerSeesAllPendingRows", func(t *testing.T) {
		t.Parallel()
		var n int
		require.NoError(t, worker.QueryRow(t.Context(),
			`SELECT count(DISTINCT tenant_id) FROM (SELECT tenant_id FROM apipay.outbox_events WHERE published_at IS NULL FOR UPDATE) e`).Scan(&n))
		require.Equal(t, 3, n)
	})

	t.Run("TenantReferencesNothingOfAnother", func(t *testing.T) {
		t.Parallel()
		scopeB := postgres.Scope{TenantID: b.id}
		for name, sql := range map[string]struct {
			query string
			args  []any
			code  string
		}{
			"refund of a foreign intent": {`INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status) VALUES ($1, $2, false, $3, 1, 'EUR', 'pending')`,
				[]any{id.New(), b.id, a.intent}, "23503"},
			"attempt on a foreign intent": {`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency, payment_method, gateway, prior_status, lease_until, finished_at)
				VALUES ($1, $2, false, $3, 'charge', 1, 'declined', 1, 'EUR', 'pm', 'sandbox', 'requires_confirmation', now(), now())`, []any{id.New(), b.id, a.intent}, "23503"},
			"secret for a foreign endpoint": {`INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id, expires_at) VALUES ($1, $2, false, $3, 'x', 1, now())`,
				[]any{id.New(), b.id, a.endpoint}, "23503"},
			"own row of the other mode":   {`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events) VALUES ($1, $2, true, 'https://x/', '{*}')`, []any{id.New(), b.id}, "42501"},
			"row for a foreign tenant":    {`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events) VALUES ($1, $2, false, 'https://x/', '{*}')`, []any{id.New(), a.id}, "42501"},
			"event for a foreign tenant":  {`INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES ($1, $2, false, 'apipay.audit.v1', 0, 'x', 'x')`, []any{id.New(), a.id}, "42501"},
			"audit for a foreign tenant":  {`INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target) VALUES ($1, $2, false, 'x', 'x', 'x', 'x')`, []any{id.New(), a.id}, "42501"},
			"audit log is not readable":   {`SELECT count(*) FROM apipay.audit_log`, nil, "42501"},
			"partitions are not readable": {`SELECT count(*) FROM apipay.outbox_events_default`, nil, "42501"},
			"relay's columns":             {`UPDATE apipay.outbox_events SET published_at = now()`, nil, "42501"},
			"amount is fixed":             {`UPDATE apipay.payment_intents SET amount = 1`, nil, "42501"},
			"no deletes of money":         {`DELETE FROM apipay.payment_intents`, nil, "42501"},
			"ledger amounts are fixed":    {`UPDATE apipay.sandbox_charges SET amount = 0`, nil, "42501"},
			"no role switch":              {`SET LOCAL ROLE apipay_worker`, nil, "42501"},
			"no tables":                   {`CREATE TABLE apipay.mine (x int)`, nil, "42501"},
			"no tables in public":         {`CREATE TABLE public.mine (x int)`, nil, "42501"},
			"partitions are the worker's": {`SELECT apipay.drop_partitions('outbox_events', now())`, nil, "42501"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				err := postgres.InTenant(t.Context(), app, scopeB, func(tx postgres.Tx) error {
					_, err := tx.Exec(t.Context(), sql.query, sql.args...)
					return err
				})
				requireCode(t, err, sql.code)
			})
		}
		// Updates and deletes of foreign rows find nothing.
		inTenant(t, app, scopeB, func(tx postgres.Tx) {
			for _, sql := range []string{
				`UPDATE apipay.payment_intents SET version = version + 1 WHERE id = $1`,
				`UPDATE apipay.webhook_endpoints SET url = 'https://evil/' WHERE id = $1`,
				`DELETE FROM apipay.idempotency_keys WHERE tenant_id = $1`,
			} {
				target := a.intent
				switch {
				case strings.Contains(sql, "webhook_endpoints"):
					target = a.endpoint
				case strings.Contains(sql, "idempotency_keys"):
					target = a.id
				}
				tag, err := tx.Exec(t.Context(), sql, target)
				require.NoError(t, err, sql)
				require.Zero(t, tag.RowsAffected(), sql)
			}
		})
	})

	t.Run("KeyLookUp", func(t *testing.T) {
		t.Parallel()
		const query = `SELECT tenant_id, livemode, id FROM apipay.find_api_key(sha256($1::uuid::text::bytea))`
		var tenantID, keyID uuid.UUID
		var livemode bool
		require.NoError(t, app.QueryRow(t.Context(), query, live.apiKey).Scan(&tenantID, &livemode, &keyID))
		require.Equal(t, live.id, tenantID)
		require.True(t, livemode)
		require.Equal(t, live.apiKey, keyID)
		for _, pool := range []*pgxpool.Pool{worker, admin} {
			requireCode(t, pool.QueryRow(t.Context(), query, a.apiKey).Scan(&tenantID, &livemode, &keyID), "42501")
		}
	})

	t.Run("Functions", func(t *testing.T) {
		t.Parallel()
		const query = `
			SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
			WHERE n.nspname = 'apipay'
			  AND (has_function_privilege('public', p.oid, 'EXECUTE')
			       OR p.prosecdef AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false))`
		rows, err := owner.Query(t.Context(), query)
		require.NoError(t, err)
		loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, loose)
	})

	t.Run("Roles", func(t *testing.T) {
		t.Parallel()
		const query = `SELECT count(*) FROM pg_roles WHERE rolname IN ('apipay_owner', 'apipay_app', 'apipay_worker', 'apipay_admin') AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole`
		var n int
		require.NoError(t, owner.QueryRow(t.Context(), query).Scan(&n))
		require.Equal(t, 4, n)
	})

	t.Run("OwnerSeesEverything", func(t *testing.T) {
		t.Parallel()
		// What pg_dump --enable-row-security runs as.
		for _, table := range tables {
			require.Positive(t, count(t, owner, table, b.id), table)
		}
	})
}

func TestSequencesOutlastInt4(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	const query = `SELECT count(*) FILTER (WHERE data_type <> 'bigint'::regtype), count(*) FROM pg_sequences WHERE schemaname = 'apipay' AND sequencename <> 'goose_db_version_id_seq'`
	var narrow, n int
	require.NoError(t, owner.QueryRow(t.Context(), query).Scan(&narrow, &n))
	require.Zero(t, narrow)
	require.Positive(t, n)
	_, err := owner.Exec(t.Context(), `ALTER TABLE apipay.outbox_events ALTER COLUMN seq RESTART WITH 2147483648`)
	require.NoError(t, err)
	seed(t.Context(), t, owner, true)
}

// TestPrivileges holds the whole matrix of privileges against testdata/privileges.txt: whoever widens what
// a role may do shows it in the diff of that file. UPDATE_GOLDEN=1 writes it anew.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	const query = `
		SELECT format('%s %s %s', g.grantee, g.object, string_agg(g.privilege, ' ' ORDER BY g.privilege))
		FROM (
		    SELECT grantee, table_name AS object, lower(privilege_type) AS privilege
		    FROM information_schema.role_table_grants WHERE table_schema = 'apipay' AND grantee <> 'apipay_owner'
		    UNION ALL
		    SELECT c.grantee, c.table_name, lower(c.privilege_type) || '(' || string_agg(c.column_name, ',' ORDER BY c.column_name) || ')'
		    FROM information_schema.role_column_grants c
		    WHERE c.table_schema = 'apipay' AND c.grantee <> 'apipay_owner'
		      AND NOT EXISTS (SELECT FROM information_schema.role_table_grants t
		                      WHERE t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.grantee = c.grantee AND t.privilege_type = c.privilege_type)
		    GROUP BY c.grantee, c.table_name, c.privilege_type
		    UNION ALL
		    SELECT grantee, routine_name || '()', 'execute' FROM information_schema.role_routine_grants
		    WHERE specific_schema = 'apipay' AND grantee <> 'apipay_owner'
		) g GROUP BY g.grantee, g.object ORDER BY g.grantee, g.object`
	rows, err := owner.Query(t.Context(), query)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "PUBLIC ") }))
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/privileges.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner, worker := db.Pool(t, db.Owner), db.Pool(t, db.Worker)

	// What is missing is made, what is there is left alone.
	_, err := owner.Exec(t.Context(), `DROP TABLE apipay.outbox_events_w`+lastPartition(t, owner))
	require.NoError(t, err)
	require.Equal(t, 1, call(t, worker, `SELECT count(*) FROM apipay.ensure_partitions()`))
	require.Equal(t, 0, call(t, worker, `SELECT count(*) FROM apipay.ensure_partitions()`))
	require.Equal(t, 8, call(t, worker, `SELECT count(*) FROM apipay.ensure_partitions(5)`))

	// An old week with a row still needed stays; once that is settled it goes, children before parents.
	s := seed(t.Context(), t, owner, false)
	_, err = owner.Exec(t.Context(), `
		DO $$ DECLARE p text; s timestamptz := '2020-01-06T00:00Z'; BEGIN
		FOREACH p IN ARRAY ARRAY['outbox_events', 'webhook_events', 'outbound_webhook_deliveries', 'outbound_webhook_attempts'] LOOP
		    EXECUTE format('CREATE TABLE apipay.%I PARTITION OF apipay.%I FOR VALUES FROM (%L) TO (%L)', p || '_w20200106', p,
		        apipay.uuid7_floor(s), apipay.uuid7_floor(s + interval '7 days'));
		END LOOP; END $$`)
	require.NoError(t, err)
	old := uuid.MustParse("016f7b9c-7000-7000-8000-000000000001") // 2020-01-06
	_, err = owner.Exec(t.Context(), `UPDATE apipay.outbox_events SET id = $1 WHERE id = $2`, old, s.event)
	require.NoError(t, err)
	_, err = owner.Exec(t.Context(), `UPDATE apipay.outbound_webhook_deliveries SET event_id = $1 WHERE event_id = $2`, old, s.event)
	require.NoError(t, err)
	drop := func(table string) int {
		return call(t, worker, `SELECT count(*) FROM apipay.drop_partitions('`+table+`', now() - interval '30 days')`)
	}
	require.Zero(t, drop("outbox_events"))
	require.Zero(t, drop("outbound_webhook_attempts"), "its deliveries are still due")
	require.Zero(t, drop("outbound_webhook_deliveries"), "attempts first")
	require.Zero(t, drop("webhook_events"), "deliveries first")
	_, err = owner.Exec(t.Context(), `UPDATE apipay.outbox_events SET parked_at = now(), parked_reason = 'too large' WHERE id = $1`, old)
	require.NoError(t, err)
	require.Zero(t, drop("outbox_events"), "parked rows hold their week")
	_, err = owner.Exec(t.Context(), `UPDATE apipay.outbox_events SET discarded_at = now(), discarded_by = 'x', discard_reason = 'x' WHERE id = $1`, old)
	require.NoError(t, err)
	require.Equal(t, 1, drop("outbox_events"))
	_, err = owner.Exec(t.Context(), `UPDATE apipay.outbound_webhook_deliveries SET status = 'FAILED', next_attempt_at = NULL, failed_at = now(), failure_reason = 'x' WHERE event_id = $1`, old)
	require.NoError(t, err)
	require.Equal(t, 1, drop("outbound_webhook_attempts"))
	require.Equal(t, 1, drop("outbound_webhook_deliveries"))
	require.Equal(t, 1, drop("webhook_events"))
	require.Zero(t, drop("outbox_events"), "the current weeks stay")

	// Bad arguments change nothing.
	for _, sql := range []string{
		`SELECT apipay.drop_partitions('payment_intents', now())`,
		`SELECT apipay.drop_partitions('outbox_events', now() + interval '1 day')`,
		`SELECT apipay.ensure_partitions(0)`,
	} {
		_, err := worker.Exec(t.Context(), sql)
		requireCode(t, err, "22023")
	}
}

func lastPartition(t *testing.T, owner *pgxpool.Pool) string {
	t.Helper()
	var suffix string
	require.NoError(t, owner.QueryRow(t.Context(),
		`SELECT max(right(relname, 8)) FROM pg_class WHERE relname ~ '^outbox_events_w[0-9]{8}$'`).Scan(&suffix))
	return suffix
}

func call(t *testing.T, pool *pgxpool.Pool, sql string) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n), sql)
	return n
}

func count(t *testing.T, pool *pgxpool.Pool, table string, tenantID uuid.UUID) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(),
		fmt.Sprintf(`SELECT count(*) FROM apipay.%s WHERE %s = $1`, table, tenantColumn(table)), tenantID).Scan(&n), table)
	return n
}

func tenantColumn(table string) string {
	if table == "tenants" {
		return "id"
	}
	return "tenant_id"
}

func inTenant(t *testing.T, pool *pgxpool.Pool, scope postgres.Scope, fn func(tx postgres.Tx)) {
	t.Helper()
	require.NoError(t, postgres.InTenant(t.Context(), pool, scope, func(tx postgres.Tx) error {
		fn(tx)
		return nil
	}))
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, pgErr.Message)
}
