package relay

import (
	"testing"
	"time"

	"github.com/google/uuid"
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

// Tenants with a large backlog keep both workers busy: events of others go out beside it, not after it.
func TestQuietTenantsDoNotWaitForABacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const large = 40_000
	busy := tenantIDs(16)
	taken := map[int16]bool{}
	for _, tenant := range busy {
		taken[outbox.Lane(tenant)] = true
	}
	b.fill(busy, large, 100)
	b.start()
	eventually(t, 20*time.Second, "the backlog is being sent", func() bool { return b.published() > 1000 })
	var quiet []uuid.UUID
	for len(quiet) < 20 {
		if tenant := uuid.New(); !taken[outbox.Lane(tenant)] {
			quiet = append(quiet, tenant)
		}
	}
	b.fill(quiet, len(quiet), 100)
	const order = `
		SELECT count(*) FILTER (WHERE tenant_id = ANY ($1) AND published_at IS NULL),
		       count(*) FILTER (WHERE published_at > (SELECT max(published_at) FROM apipay.outbox_events WHERE tenant_id = ANY ($1)))
		FROM apipay.outbox_events`
	var waiting, after int
	eventually(t, 20*time.Second, "the quiet tenants' events are out", func() bool {
		require.NoError(t, b.owner.QueryRow(t.Context(), order, quiet).Scan(&waiting, &after))
		return waiting == 0
	})
	b.drained(20 * time.Second)
	require.NoError(t, b.owner.QueryRow(t.Context(), order, quiet).Scan(&waiting, &after))
	require.Greater(t, after, large/10, "the backlog's end was published after them")
}
