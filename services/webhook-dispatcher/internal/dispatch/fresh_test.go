package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/webhook"
)

// A7: a change of an endpoint that is committed before an event is published counts for that event: 1,000 of 1,000.
func TestFresh_ChangesCountAtOnce(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 25 // of five changes each
	b := setup(t)
	before, after := newReceiver(t, nil), newReceiver(t, nil)
	d := b.dispatcher()
	b.run(d)
	endpoints, secrets := make([]uuid.UUID, workers), make([]webhook.Secret, workers)
	tenants := make([]uuid.UUID, workers)
	for i := range workers {
		tenants[i] = b.newTenant()
	}
	honored := 0
	// Each change is made for all workers' endpoints, then one event is published to each.
	publish := func() (eventIDs []uuid.UUID) {
		var batch []kafka.Message
		for _, tenant := range tenants {
			record := b.record(tenant, succeeded, nil)
			batch, eventIDs = append(batch, record), append(eventIDs, idOf(t, record))
		}
		require.NoError(t, d.materialize(t.Context(), batch))
		return eventIDs
	}
	delivered := func(to *receiver, base int) {
		eventIDs := publish()
		for i, eventID := range eventIDs {
			b.waitFor(eventID, endpoints[i], "DELIVERED", 1)
		}
		got := to.got()[base:]
		require.Len(t, got, workers)
		for _, request := range got {
			verified := 0
			for _, secret := range secrets {
				if verifyStandard(request, secret) == nil {
					verified++
				}
			}
			require.Equal(t, 1, verified)
			honored++
		}
	}
	for range rounds {
		// Created in this second, as the event.
		for i := range workers {
			if endpoints[i] != uuid.Nil {
				b.exec(`UPDATE apipay.webhook_endpoints SET deleted_at = now() WHERE id = $1`, endpoints[i])
			}
			endpoints[i], secrets[i] = b.endpointOf(tenants[i], before.URL)
			b.exec(`UPDATE apipay.webhook_endpoints SET created_at = now() WHERE id = $1`, endpoints[i])
		}
		delivered(before, len(before.got()))

		for i := range workers {
			b.exec(`UPDATE apipay.webhook_endpoint_secrets SET expires_at = now() WHERE endpoint_id = $1`, endpoints[i])
			secrets[i] = b.addSecret(tenants[i], endpoints[i], nil)
		}
		delivered(before, len(before.got()))

		for i := range workers {
			b.exec(`UPDATE apipay.webhook_endpoints SET url = $2 WHERE id = $1`, endpoints[i], after.URL)
		}
		delivered(after, len(after.got()))

		for i := range workers {
			b.exec(`UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'by hand' WHERE id = $1`, endpoints[i])
		}
		quiet := len(before.got()) + len(after.got())
		for i, eventID := range publish() {
			r := b.waitFor(eventID, endpoints[i], "FAILED", 0)
			require.Equal(t, failedDisabled, *r.FailureReason)
			honored++
		}
		require.Equal(t, quiet, len(before.got())+len(after.got()))

		for i := range workers {
			b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now() WHERE id = $1`, endpoints[i])
		}
		delivered(after, len(after.got()))
	}
	require.Equal(t, 1000, honored)
}
