package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// What cannot be is refused for everybody, the owner included: by the types, and after the insert by a trigger that answers
// as a CHECK constraint does.
func TestImpossibleStatesAreRefused(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	scope := postgres.Scope{TenantID: id.New()}
	require.NoError(t, postgres.InTenant(t.Context(), db.Pool(t, db.App), scope, func(tx postgres.Tx) error {
		_, err := outbox.Insert(t.Context(), tx, outbox.Event{TenantID: scope.TenantID, Topic: outbox.TopicWebhooks, Type: events.TypePing, Object: map[string]int{}})
		return err
	}))
	// try sets the row's columns in steps, and takes all of it back.
	try := func(sets ...string) error {
		tx, err := owner.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(t.Context())
		for _, set := range sets {
			tag, err := tx.Exec(t.Context(), "UPDATE apipay.outbox_events SET "+set)
			if err != nil {
				return err
			}
			require.EqualValues(t, 1, tag.RowsAffected())
		}
		return nil
	}
	const parked = "parked_at = now(), parked_reason = 'too large'"
	const discarded = "discarded_at = now(), discarded_by = 'ann', discard_reason = 'no'"
	for _, sets := range [][]string{
		{"published_at = now(), kafka_partition = 1, kafka_offset = 2"}, {parked}, {parked, discarded},
		{parked, "replay_requested_at = now()"}, {parked, "replay_requested_at = now()", "parked_at = NULL, parked_reason = NULL, replay_requested_at = NULL"},
	} {
		require.NoError(t, try(sets...), "%s", sets)
	}
	for _, sets := range [][]string{
		{"published_at = now()", parked}, {parked, "published_at = now()"}, {"parked_at = now()"}, {"parked_reason = 'x'"}, {parked, "parked_reason = NULL"},
		{discarded}, {parked, "discarded_at = now()"}, {parked, discarded, "discarded_by = NULL"}, {parked, discarded, "discard_reason = NULL"},
		{"replay_requested_at = now()"}, {parked, "replay_requested_at = now()", "parked_at = NULL, parked_reason = NULL"},
		{"lane = 64"}, {"lane = -1"}, {"topic = 'apipay.other.v1'"}, {"payload = ''"},
	} {
		var pgErr *pgconn.PgError
		require.ErrorAs(t, try(sets...), &pgErr, "%s", sets)
		require.Equal(t, "23514", pgErr.Code, "%s: %s", sets, pgErr.Message)
	}
}

// Nobody can write a row that is born in another state than pending.
func TestRowsAreBornPending(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	for _, dsn := range []string{db.App, db.Worker, db.Admin} {
		pool := db.Pool(t, dsn)
		for _, column := range []string{"published_at", "parked_at", "discarded_at", "kafka_offset"} {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, `+column+`)
					VALUES ($1, $2, false, $3, 0, 'ping', '{}', NULL)`, id.New(), id.New(), outbox.TopicWebhooks)
				return err
			})
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, column)
			require.Equal(t, "42501", pgErr.Code, "%s: %s", column, pgErr.Message)
		}
	}
}
