package relay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const parkRefused = `
	UPDATE apipay.outbox_events e
	SET parked_at = clock_timestamp(), parked_reason = d.reason
	FROM unnest($1::uuid[], $2::text[]) AS d (id, reason)
	WHERE e.id = d.id AND e.published_at IS NULL`

// queueParked adds the parking of what the broker refused for itself to the turn's last batch.
func queueParked(batch *pgx.Batch, results []result, parked *int) {
	var ids [][16]byte
	var reasons []string
	for _, res := range results {
		for _, p := range res.parked {
			ids, reasons = append(ids, p.event.id), append(reasons, p.reason)
		}
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(parkRefused, ids, reasons).Exec(func(tag pgconn.CommandTag) error {
		*parked = int(tag.RowsAffected())
		return nil
	})
}

// unparkRequested makes pending again what support asked to replay. It keeps its seq, so it goes out before
// what its lane has pending: late, with its old version, as the consumers expect.
const unparkRequested = `
	UPDATE apipay.outbox_events
	SET parked_at = NULL, parked_reason = NULL, replay_requested_at = NULL, last_replay_at = now()
	WHERE parked_at IS NOT NULL AND replay_requested_at IS NOT NULL AND discarded_at IS NULL
	RETURNING topic, lane, seq, 0::float8 AS age`

// unpark acts on the replays that admin-api asked for and answers how many there were.
func (r *Relay) unpark(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var replayed []head
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(planFor)
	batch.Queue(unparkRequested).Query(func(rows pgx.Rows) (err error) {
		replayed, err = pgx.CollectRows(rows, pgx.RowToStructByName[head])
		return err
	})
	batch.Queue("COMMIT")
	if err := r.inBatch(ctx, batch); err != nil {
		return 0, fmt.Errorf("replaying parked events: %w", err)
	}
	for _, h := range replayed {
		r.floors.lower(lane{h.Topic, h.Lane}, h.Seq)
	}
	return len(replayed), nil
}
