package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
)

// E8: the hot statements walk the partial indexes, whatever the statistics say, also over partitions without any; and
// nothing sorts or scans what was delivered.
func TestPlans_WalkThePartialIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	for name, test := range map[string]struct {
		query string
		args  []any
		index string
	}{
		"claim":    {claimQuery, []any{[]uuid.UUID{uuid.New()}, []int16{0}, []int32{4}, 4, time.Minute, time.Minute, int64(1)}, "_priority_endpoint_id_next_"},
		"discover": {discoverQuery, []any{int16(0), uuid.New(), 10}, "_priority_endpoint_id_next_"},
		"sweep":    {failWaiting, []any{uuid.New(), int16(0), 1000}, "_priority_endpoint_id_next_"},
	} {
		t.Run(name, func(t *testing.T) {
			var plan []string
			require.NoError(t, postgres.InWorker(t.Context(), d.pool, func(tx postgres.Tx) error {
				if _, err := tx.Exec(t.Context(), lockEndpoints, []uuid.UUID{}, []int64{}); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "EXPLAIN "+test.query, test.args...)
				if err != nil {
					return err
				}
				plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			}))
			text := strings.Join(plan, "\n")
			require.Contains(t, text, test.index)
			for _, line := range plan {
				require.NotContains(t, line, "Seq Scan on outbound_webhook")
				require.NotContains(t, line, "Bitmap")
				require.NotContains(t, line, "Hash Join")
			}
		})
	}
}
