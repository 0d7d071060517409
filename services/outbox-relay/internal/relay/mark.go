package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lastMarkTimeout is for a turn that the process's end cut short.
const lastMarkTimeout = 2 * time.Second

// clock_timestamp: now() would be the start of the turn, before the broker had anything.
const markPublished = `
	UPDATE apipay.outbox_events e
	SET published_at = clock_timestamp(), kafka_partition = d.kafka_partition, kafka_offset = d.kafka_offset
	FROM unnest($1::uuid[], $2::int4[], $3::int8[]) AS d (id, kafka_partition, kafka_offset)
	WHERE e.id = d.id AND e.published_at IS NULL`

// errCommitUnknown says that COMMIT was sent and its answer lost. If it did not take effect, the events are
// published again: the same ids, the same bytes.
var errCommitUnknown = errors.New("the outcome of the commit is unknown")

// mark writes down what the broker confirmed, and nothing else, in the transaction that claimed it, and
// commits. It answers how many rows it marked and how many it parked.
func mark(ctx context.Context, conn *pgxpool.Conn, results []result) (marked, parked int, err error) {
	// The broker has the events: the caller's end must not make duplicates of them.
	limit := statementTimeout
	if ctx.Err() != nil {
		limit = lastMarkTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var ids [][16]byte
	var partitions []int32
	var offsets []int64
	for _, res := range results {
		for _, c := range res.confirmed {
			ids, partitions, offsets = append(ids, c.id), append(partitions, c.partition), append(offsets, c.offset)
		}
	}
	batch := &pgx.Batch{}
	if len(ids) > 0 {
		batch.Queue(markPublished, ids, partitions, offsets).Exec(func(tag pgconn.CommandTag) error {
			marked = int(tag.RowsAffected())
			return nil
		})
	}
	queueParked(batch, results, &parked)
	if isArmed(afterMark) {
		_ = conn.SendBatch(ctx, batch).Close() // whatever came of it, this process dies
		failpoint(afterMark)
	}
	committed := false
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		// Postgres answers ROLLBACK to the COMMIT of a transaction that has failed.
		if tag.String() != "COMMIT" {
			return fmt.Errorf("committing: the server answered %s", tag)
		}
		committed = true
		return nil
	})
	answers := conn.SendBatch(ctx, batch)
	failpoint(commitSent)
	switch err := answers.Close(); {
	case err == nil:
	case committed:
	case isServerError(err):
		return 0, 0, fmt.Errorf("marking events: %w", err)
	default:
		return 0, 0, fmt.Errorf("marking events: %w: %w", errCommitUnknown, err)
	}
	if marked != len(ids) {
		return marked, parked, fmt.Errorf("marking events: %d of %d rows: %w", marked, len(ids), errMarkedByOther)
	}
	return marked, parked, nil
}

// errMarkedByOther can only come from a hand at the table: the rows are locked from claim to commit.
var errMarkedByOther = errors.New("the others were changed by somebody else")

func isServerError(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr)
}

// rollback ends a turn without a trace. The pool closes a connection on which it fails.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}
