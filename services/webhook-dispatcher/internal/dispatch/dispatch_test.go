package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func TestDispatcher_DeliversSigned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	r := b.waitFor(eventID, endpointID, "DELIVERED", 1)
	require.NotNil(t, r.DeliveredAt)
	got := rx.got()
	require.Len(t, got, 1)
	require.Equal(t, "application/json", got[0].header.Get("Content-Type"))
	require.Equal(t, "ApiPay-Webhooks/1", got[0].header.Get("User-Agent"))
	require.Equal(t, id.Format(id.Event, eventID), got[0].header.Get("Webhook-Id"))
	list := b.attempts(eventID)
	require.Len(t, list, 1)
	require.Equal(t, "succeeded", list[0].Outcome)
	require.Equal(t, 200, *list[0].StatusCode)
	require.Equal(t, "127.0.0.1", *list[0].RemoteIP)
}
