package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func TestRecoveryFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := id.Format(id.Tenant, b.scope.TenantID)
	const failed = `status = 'FAILED', next_attempt_at = NULL, failed_at = '2026-03-01T00:00:00Z', failure_reason = 'attempts_exhausted'`
	b.delivery(t, failed)
	b.delivery(t, failed)
	b.delivery(t, `status = 'RETRYING'`)
	b.delivery(t, `status = 'RETRYING', lease_token = gen_random_uuid(), lease_until = now()`)
	b.delivery(t, `status = 'DELIVERED', next_attempt_at = NULL, delivered_at = now()`)
	b.delivery(t, `status = 'PENDING'`)
	at := func(text string) *time.Time {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			panic(err)
		}
		return &t
	}
	live := true
	for name, test := range map[string]struct {
		filter   RecoveryFilter
		livemode *bool
		want     int
	}{
		"failed by default": {RecoveryFilter{}, nil, 2},
		"of the tenant":     {RecoveryFilter{Tenant: tenant, Endpoint: id.Format(id.Endpoint, b.endpoint)}, nil, 2},
		"of another":        {RecoveryFilter{Tenant: id.Format(id.Tenant, id.New())}, nil, 0},
		"of the other mode": {RecoveryFilter{}, &live, 0},
		"waiting":           {RecoveryFilter{Status: StatusRetrying}, nil, 1},
		"by type":           {RecoveryFilter{EventType: "ping", FailureReason: "attempts_exhausted"}, nil, 2},
		"literally":         {RecoveryFilter{FailureReason: "attempts%"}, nil, 0},
		"from is inclusive": {RecoveryFilter{From: at("2026-03-01T00:00:00Z")}, nil, 2},
		"to is exclusive":   {RecoveryFilter{To: at("2026-03-01T00:00:00Z")}, nil, 0},
	} {
		condition, args, err := test.filter.Where(test.livemode, []any{"kept"})
		require.NoError(t, err, name)
		var count int
		require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT count(*) FROM apipay.outbound_webhook_deliveries d
			JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id WHERE $1::text = 'kept' AND `+condition, args...).Scan(&count), name)
		require.Equal(t, test.want, count, name)
	}
}

// A stored filter that cannot be read is an error, and never a wider one.
func TestParseRecoveryFilter(t *testing.T) {
	t.Parallel()
	good, err := ParseRecoveryFilter([]byte(`{"tenant":"` + id.Format(id.Tenant, id.New()) + `","status":"RETRYING","from":"2026-01-01T00:00:00Z"}`))
	require.NoError(t, err)
	require.Equal(t, StatusRetrying, good.Status)
	for _, raw := range []string{
		``, `[]`, `{"tenant":"*"}`, `{"tenants":"x"}`, `{"endpoint":"we_x"}`, `{"status":"DELIVERED"}`, `{"status":"PENDING"}`,
		`{"status":"x"}`, `{"from":"soon"}`, `{"tenant":"x","tenant":"y"}`,
	} {
		_, err := ParseRecoveryFilter([]byte(raw))
		require.ErrorIs(t, err, ErrFilterInvalid, raw)
	}
}
