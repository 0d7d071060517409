package api

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
)

// A commit whose answer was lost is told by what became of it.
func TestReadBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := &API{pool: b.db.Pool(t, b.db.Admin)}
	lost := errors.Join(postgres.ErrCommitUnknown, context.DeadlineExceeded)
	for name, end := range map[string]error{"committed": nil, "aborted": errors.New("rolled back")} {
		var transaction string
		err := postgres.InSupport(t.Context(), a.pool, postgres.AllTenants, func(tx postgres.Tx) error {
			if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text`).Scan(&transaction); err != nil {
				return err
			}
			return end
		})
		require.ErrorIs(t, err, end)
		got := a.readBack(t.Context(), transaction, lost)
		if end == nil {
			require.NoError(t, got, name)
			continue
		}
		require.ErrorIs(t, got, postgres.ErrCommitUnknown, name)
	}
}
