package relay

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxBatchBytes keeps a lane's batch, with its keys and headers, under the 1 MiB that brokers take by default.
	maxBatchBytes = 900_000
	// recordOverhead is what key, headers and framing add to a payload, at most.
	recordOverhead = 256
	// maxClaimAge is when a claim counts as stale: this process was paused, and its session may be gone.
	maxClaimAge = 5 * time.Second
	// produceDeadline bounds a turn's produce, the resending of halves included.
	produceDeadline = 10 * time.Second
	// idleInTransaction ends the session of a relay that was stopped in mid-turn: its lanes become free.
	idleInTransaction = produceDeadline + 5*time.Second
	// statementTimeout bounds one round trip to the database.
	statementTimeout = 10 * time.Second
)

// event is one claimed row.
type event struct {
	id          uuid.UUID
	tenantID    uuid.UUID
	kind        string
	payload     []byte
	traceparent string
}

// batch is what one lane gave to a turn, in order of seq.
type batch struct {
	state  *laneState
	events []event
	bytes  int
	// full: the claim ended at its limit, so more is probably pending.
	full bool
}

// READ COMMITTED by name: under a default of REPEATABLE READ the claim would use a snapshot from before the
// lane lock, and publish again what the lock's last holder published.
const beginTurn = `BEGIN ISOLATION LEVEL READ COMMITTED`

const setTurn = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`

// lockLanes is a statement of its own, before the claim, so that the claim's snapshot is younger than the
// locks. Tried and not waited for: who holds a lane is at work on it.
const lockLanes = `
	SELECT n::int4 FROM unnest($1::int8[]) WITH ORDINALITY AS keys (key, n)
	WHERE pg_try_advisory_xact_lock(key)`

// claimLanes takes each lane's oldest events. FOR UPDATE so that they cannot change until the commit;
// nobody else locks pending rows under the lane lock, so SKIP LOCKED skips none of them. The cut by size
// comes after the lock because window functions do not go with FOR UPDATE; an event that is too large for
// the cut goes alone.
const claimLanes = `
	SELECT c.n::int4, c.seq, c.id, c.tenant_id, c.type, c.payload, c.traceparent
	FROM (SELECT l.n, e.seq, e.id, e.tenant_id, e.type, e.payload, e.traceparent,
	             octet_length(e.payload) + $6 AS size,
	             sum(octet_length(e.payload) + $6) OVER (PARTITION BY l.n ORDER BY e.seq ROWS UNBOUNDED PRECEDING) AS total
	      FROM unnest($1::text[], $2::int2[], $3::int8[], $4::int4[]) WITH ORDINALITY AS l (topic, lane, bound, most, n)
	      CROSS JOIN LATERAL (
	          SELECT seq, id, tenant_id, type, payload, traceparent FROM apipay.outbox_events
	          WHERE topic = l.topic AND lane = l.lane AND published_at IS NULL AND parked_at IS NULL AND seq > l.bound
	          ORDER BY seq LIMIT l.most
	          FOR UPDATE SKIP LOCKED) e) c
	WHERE c.total <= $5 OR c.total = c.size
	ORDER BY c.n, c.seq`

// statements decide who may take what, and in which order. They are a field of Relay, so that the tests can
// show that they would notice wrong ones.
type statements struct{ lock, claim, writers string }

// lock begins the turn's transaction and answers which of the lanes it holds.
func (r *Relay) lock(ctx context.Context, conn *pgxpool.Conn, lanes []*laneState) (held []*laneState, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	keys := make([]int64, len(lanes))
	for i, state := range lanes {
		keys[i] = state.lockKey()
	}
	batch := &pgx.Batch{}
	batch.Queue(beginTurn)
	batch.Queue(setTurn, strconv.FormatInt(idleInTransaction.Milliseconds(), 10))
	batch.Queue(planFor)
	batch.Queue(r.statements.lock, keys).Query(func(rows pgx.Rows) error {
		indexes, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		for _, i := range indexes {
			held = append(held, lanes[i-1])
		}
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("locking lanes: %w", err)
	}
	return held, nil
}

// claim reads and locks the oldest events of the lanes held: at most a batch per lane, one of failing lanes.
func (r *Relay) claim(ctx context.Context, conn *pgxpool.Conn, held []*laneState) ([]*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	topics, numbers := make([]string, len(held)), make([]int16, len(held))
	bounds, limits := make([]int64, len(held)), make([]int32, len(held))
	batches := make([]*batch, len(held))
	for i, state := range held {
		topics[i], numbers[i], limits[i] = state.topic, state.number, int32(r.batch) //nolint:gosec // at most 10000
		bounds[i] = r.floors.of(state.lane)
		if state.failing {
			limits[i] = 1
		}
		batches[i] = &batch{state: state}
	}
	rows, err := conn.Query(ctx, r.statements.claim, topics, numbers, bounds, limits, maxBatchBytes, recordOverhead)
	if err != nil {
		return nil, fmt.Errorf("claiming events: %w", err)
	}
	var n int32
	var seq, highest int64
	var next event
	var traceparent *string
	// As [16]byte pgx reads a uuid's bytes; as uuid.UUID it would go through its text.
	targets := []any{&n, &seq, (*[16]byte)(&next.id), (*[16]byte)(&next.tenantID), &next.kind, &next.payload, &traceparent}
	for rows.Next() {
		next, traceparent = event{}, nil
		if err := rows.Scan(targets...); err != nil {
			rows.Close()
			return nil, fmt.Errorf("reading claimed events: %w", err)
		}
		if traceparent != nil {
			next.traceparent = *traceparent
		}
		highest = max(highest, seq)
		b := batches[n-1]
		b.events = append(b.events, next)
		b.bytes += len(next.payload) + recordOverhead
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claiming events: %w", err)
	}
	r.floors.saw(highest)
	for i, b := range batches {
		// A claim that the next event might have overfilled counts as full too: an empty claim is cheap.
		b.full = len(b.events) == int(limits[i]) || b.bytes > maxBatchBytes/2
	}
	return batches, nil
}
