package payments_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
)

// Row level security adds conditions on tenant and mode to every statement. What looks for an id must find it by the primary
// key all the same, also before the table was ever analyzed: a plan that reads the tenant's other rows is kept by the prepared
// statement while the table grows.
func TestPlansFindIDsByPrimaryKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, table := range []string{"payment_intents", "payment_attempts", "refunds"} {
		b.exec(`ALTER TABLE apipay.` + table + ` SET (autovacuum_enabled = false)`)
	}
	b.exec(`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, latest_attempt)
		SELECT gen_random_uuid(), $1, false, 1000, 'EUR', 'succeeded', 'pm_card_visa', gen_random_uuid() FROM generate_series(1, 900)`, b.a)
	b.exec(`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency,
			payment_method, gateway, prior_status, lease_until, finished_at)
		SELECT latest_attempt, tenant_id, livemode, id, 'charge', 1, 'succeeded', amount, currency, payment_method, 'sandbox',
			'requires_confirmation', now(), now() FROM apipay.payment_intents`)
	b.exec(`INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status)
		SELECT gen_random_uuid(), tenant_id, livemode, id, 1, currency, 'succeeded' FROM apipay.payment_intents`)
	for table, key := range map[string]string{"payment_intents": "id", "payment_attempts": "id", "refunds": "id"} {
		err := postgres.InTenant(t.Context(), b.pool, postgres.Scope{TenantID: b.a}, func(tx postgres.Tx) error {
			for _, statement := range []string{
				`SET LOCAL plan_cache_mode = force_generic_plan`,
				`PREPARE q(uuid) AS SELECT * FROM apipay.` + table + ` WHERE ` + key + ` = $1 FOR UPDATE`,
			} {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					return err
				}
			}
			rows, err := tx.Query(t.Context(), `EXPLAIN EXECUTE q('01920000-0000-7000-8000-000000000001')`, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return err
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.Contains(t, strings.Join(plan, "\n"), table+"_pkey")
			_, _ = tx.Exec(t.Context(), `DEALLOCATE q`)
			return err
		})
		require.NoError(t, err, table)
	}
}
