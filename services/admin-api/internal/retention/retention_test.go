package retention

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExpire(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	const day = 24 * time.Hour
	insert := func(age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		_, err := owner.Exec(t.Context(), `INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target, created_at)
			VALUES ($1, $2, false, 'x', 'system', 'x.y', 'z', $3)`, id.NewAt(at, 0), uuid.Nil, at)
		require.NoError(t, err)
	}
	for range batchRows + 1 {
		insert(401 * day)
	}
	insert(399 * day)
	insert(0)
	log := &AuditLog{
		Pool: db.Pool(t, db.Admin), Keep: 400 * day, Logger: slog.New(slog.DiscardHandler),
		Loop: ops.NewHealth().Loop("audit log", time.Minute),
	}
	require.NoError(t, log.expire(t.Context()))
	var left int
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT count(*) FROM apipay.audit_log`).Scan(&left))
	require.Equal(t, 2, left)

	log.Keep = time.Hour
	require.ErrorContains(t, log.expire(t.Context()), "30 days")
	_, err := log.Pool.Exec(t.Context(), `DELETE FROM apipay.audit_log`)
	require.ErrorContains(t, err, "permission denied")
}
