package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// weeks are the outbox's weekly partitions.
func (b *bundle) weeks() (names []string) {
	b.t.Helper()
	const query = `
		SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'apipay.outbox_events'::regclass AND c.relname ~ '_w[0-9]{8}$'`
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), query).Scan(&names))
	return names
}

func TestRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.weeks()
	// A week long past with one published event, and one whose event is still pending.
	_, err := b.owner.Exec(t.Context(), `
		DO $$
		DECLARE week_start timestamptz; part text;
		BEGIN
		    FOREACH week_start IN ARRAY ARRAY['2020-01-06 00:00Z'::timestamptz, '2020-01-13 00:00Z'::timestamptz] LOOP
		        part := 'outbox_events_w' || to_char(week_start AT TIME ZONE 'UTC', 'YYYYMMDD');
		        EXECUTE format('CREATE TABLE apipay.%I PARTITION OF apipay.outbox_events FOR VALUES FROM (%L) TO (%L)',
		            part, apipay.uuid7_floor(week_start), apipay.uuid7_floor(week_start + interval '7 days'));
		        INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, published_at, parked_at, parked_reason)
		        VALUES (apipay.uuid7_floor(week_start + interval '1 day'), gen_random_uuid(), false, 'apipay.audit.v1', 1, 'ping', '{}',
		            CASE WHEN part = 'outbox_events_w20200106' THEN now() END, CASE WHEN part <> 'outbox_events_w20200106' THEN now() END,
		            CASE WHEN part <> 'outbox_events_w20200106' THEN 'refused' END);
		    END LOOP;
		END $$`)
	require.NoError(t, err)
	// A week that is missing, and a reader in the way for a while.
	_, err = b.owner.Exec(t.Context(), "DROP TABLE apipay."+before[len(before)-1])
	require.NoError(t, err)
	reader, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), "LOCK TABLE apipay.outbox_events IN ACCESS SHARE MODE")
	require.NoError(t, err)
	b.start()
	eventually(t, 5*time.Second, "retention meets the reader and gives up", func() bool {
		var waiting bool
		require.NoError(t, b.super.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting))
		return waiting
	})
	require.NoError(t, reader.Rollback(t.Context()))
	want := append([]string{"outbox_events_w20200113"}, before...)
	eventually(t, 10*time.Second, "the old week is gone, the parked one kept, the missing one made", func() bool {
		got := b.weeks()
		return len(got) == len(want) && got[0] == want[0]
	})
	require.Equal(t, want, b.weeks())
}

// A week that nobody made, say since no relay ran for weeks: its events lie in the default partition, and go out in order
// also while they are moved into the week that is made then.
func TestMissingWeek(t *testing.T) {
	t.Parallel()
	w := newWorld(setup(t))
	weeks := w.weeks()
	_, err := w.owner.Exec(t.Context(), `
		DO $$ BEGIN EXECUTE 'DROP TABLE apipay.outbox_events_w' || to_char(date_trunc('week', now() AT TIME ZONE 'UTC'), 'YYYYMMDD'); END $$`)
	require.NoError(t, err)
	w.writeFor(time.Second)
	astray := func() (count int) {
		const query = `SELECT count(*) FROM apipay.outbox_events WHERE tableoid = 'apipay.outbox_events_default'::regclass`
		require.NoError(t, w.owner.QueryRow(t.Context(), query).Scan(&count))
		return count
	}
	require.Positive(t, astray())
	for range 2 {
		w.start(smallBatch)
	}
	w.writeFor(2 * time.Second)
	eventually(t, 10*time.Second, "the week is made", func() bool { return len(w.weeks()) == len(weeks) })
	w.drained(10 * time.Second)
	require.Equal(t, weeks, w.weeks())
	require.Zero(t, astray())
	found, duplicates := w.violations()
	require.Empty(t, found)
	require.Zero(t, duplicates)
}
