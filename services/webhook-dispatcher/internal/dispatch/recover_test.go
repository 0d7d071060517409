package dispatch

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func (b *testBundle) askRecovery(filter string) uuid.UUID {
	b.t.Helper()
	recoveryID := id.New()
	b.exec(`INSERT INTO apipay.recoveries (id, tenant_id, livemode, filter, requested_by) VALUES ($1, $2, false, $3, 'test')`, recoveryID, b.tenant, filter)
	return recoveryID
}

// A8: what an endpoint missed while disabled is sent after a recovery, all of it, and nothing beside it.
func TestRecover_SendsWhatWasMissed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	other, _ := b.endpoint(rx.URL)
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'merchant'`)
	d := b.dispatcher()
	var batch []kafka.Message
	for range 50 {
		batch = append(batch, b.record(b.tenant, succeeded, nil))
	}
	require.NoError(t, d.materialize(t.Context(), batch))
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now()`)
	filter := fmt.Sprintf(`{"tenant":%q,"endpoint":%q}`, id.Format(id.Tenant, b.tenant), id.Format(id.Endpoint, endpointID))
	recoveryID := b.askRecovery(filter)
	b.run(d)
	b.eventually(func() bool { return b.delivered() == 50 }, "all sent")
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE endpoint_id = $1 AND status <> 'FAILED'`, other))
	require.Equal(t, 50, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE trigger = 'recovery' AND number = 1`))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.recoveries WHERE id = $1 AND status = 'done' AND matched = 50 AND queued = 50`, recoveryID))
}

func TestRecover_CanceledOrUnreadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("https://a.example/")
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'merchant'`)
	d := b.dispatcher()
	eventID := b.publish(d, succeeded)
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL`)
	b.askRecovery(`{"tenants":"*"}`)
	b.askRecovery(`{}`)
	b.exec(`UPDATE apipay.recoveries SET cancel_requested_at = now() WHERE filter = '{}'`)
	for range 3 {
		_, err := d.recover(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 2, b.count(`SELECT count(*) FROM apipay.recoveries WHERE status = 'canceled' AND queued = 0`))
	require.Equal(t, "FAILED", b.delivery(eventID, endpointID).Status)
}
