package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestIsolation drives two tenants through a pool of two connections, with requests that fail in mid-transaction and
// clients that hang up.
func TestIsolation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, server := b.serve(appPool(t, b.db, 2))
	tenants := []uuid.UUID{b.a, b.b}
	b.inParallel(200, func(i int) (answer, error) {
		tenant := tenants[i%2]
		me := b.as(tenant).at(server).key(fmt.Sprintf("k-%d", i))
		body := fmt.Appendf(nil, `{"amount":1000,"currency":"EUR","description":%q,"merchant_reference":"r-%d"}`, tenant, i%2+i/4)
		ctx := t.Context()
		if i%20 < 2 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
		}
		a, err := me.do(ctx, http.MethodPost, intents, body)
		if err != nil {
			return answer{status: 201}, nil // it hung up
		}
		return a, nil
	})
	for _, tenant := range tenants {
		page := b.as(tenant).at(server).get(intents + "?limit=100").is(200)
		for _, o := range page.body()["data"].([]any) {
			require.Equal(t, tenant.String(), o.(map[string]any)["description"])
		}
		require.NotEmpty(t, ids(page))
	}
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.payment_intents WHERE description <> tenant_id::text`))
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbox_events
		WHERE convert_from(payload, 'UTF8')::jsonb #>> '{data,object,description}' <> tenant_id::text`))
}
