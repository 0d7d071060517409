package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
)

func TestRelay(t *testing.T) {
	t.Parallel()

	t.Run("PublishesEverythingOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		tenants := tenantIDs(20)
		b.fill(tenants, 3000, 500)
		b.start()
		b.drained(10 * time.Second)
		got := readAll(t, b.kafka.addrs, topic)
		require.Len(t, got, 3000)
		for _, record := range got {
			require.Equal(t, "application/json", record.headers["content-type"])
			_, err := id.Parse(id.Event, record.headers["event-id"])
			require.NoError(t, err)
			require.NotContains(t, record.headers, "traceparent")
		}
		const query = `SELECT count(*) FROM apipay.outbox_events WHERE kafka_partition = lane % 16 AND kafka_offset >= 0 AND published_at >= created_at`
		var marked int
		require.NoError(t, b.owner.QueryRow(t.Context(), query).Scan(&marked))
		require.Equal(t, 3000, marked)
		require.Equal(t, string(outbox.Key(tenants[0])), tenants[0].String())
	})
}
