package relay

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/outbox"
)

// lane is the unit of claim, lock, back-off and order: 1/64 of a topic's tenants.
type lane struct {
	topic  string
	number int16
}

// lockKey is the advisory lock of a lane: FNV-1a (64 bits) of "apipay.outbox/" and the topic, with the low
// six bits replaced by the lane's number. It must never change: during a rolling deploy, replicas of two
// releases keep each other off a lane by it.
func (l lane) lockKey() int64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte("apipay.outbox/" + l.topic)) // a hash does not fail
	const laneBits = outbox.Lanes - 1
	return int64(sum.Sum64()&^uint64(laneBits) | uint64(l.number)&laneBits) //nolint:gosec // the bit pattern counts
}

// laneState is what this replica knows of a lane. It is guarded by the board's mutex.
type laneState struct {
	lane
	queued, inFlight bool
	// notBefore holds the lane back: after a failure, or while another replica has it.
	notBefore time.Time
	// failing lanes are tried with one event at a time, and apart from healthy ones.
	failing bool
	delay   time.Duration
	// deep: the last claim was full.
	deep bool
}

// board is the replica's list of lanes that have work. It holds no truth: a lane that is missing is found by
// the next scan, one that is there in vain costs an empty claim.
type board struct {
	mu      sync.Mutex
	lanes   map[lane]*laneState
	queue   []*laneState
	blocked map[string]string // topics that cannot be written, with the reason
	trial   bool              // a worker is trying failing lanes
	more    chan struct{}     // wakes idle workers
}

func newBoard() *board {
	return &board{lanes: map[lane]*laneState{}, blocked: map[string]string{}, more: make(chan struct{}, 1)}
}

// add queues lanes in which a scan saw pending events, and answers how many of them are ready to be taken.
func (b *board) add(now time.Time, found []head) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	ready := 0
	for _, h := range found {
		l := lane{h.Topic, h.Lane}
		state := b.lanes[l]
		if state == nil {
			state = &laneState{lane: l}
			b.lanes[l] = state
		}
		if state.queued || state.inFlight {
			continue
		}
		state.queued = true
		b.queue = append(b.queue, state)
		if b.isReady(state, now) {
			ready++
		}
	}
	if ready > 0 {
		b.wake()
	}
	return ready
}

func (b *board) isReady(state *laneState, now time.Time) bool {
	return b.blocked[state.topic] == "" && !now.Before(state.notBefore) && (!state.failing || !b.trial)
}

const (
	// maxLanes share a turn: at a low rate over many lanes, the transaction is the cost.
	maxLanes = 16
	// maxDeepLanes share a turn in a backlog: enough to keep several produces in flight, few enough that a
	// crash re-sends little and another replica finds lanes that are free.
	maxDeepLanes = 4
)

// take hands out the lanes of one turn: healthy ones, or else failing ones that are due. Failing lanes are
// taken by one worker at a time, so that a broker that does not answer cannot hold every worker.
func (b *board) take(now time.Time) (taken []*laneState, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wantFailing := range []bool{false, true} {
		kept, deep := b.queue[:0], 0
		for _, state := range b.queue {
			if len(taken) == maxLanes || deep == maxDeepLanes || state.failing != wantFailing || !b.isReady(state, now) {
				kept = append(kept, state)
				continue
			}
			state.queued, state.inFlight = false, true
			taken = append(taken, state)
			if state.deep {
				deep++
			}
		}
		clear(b.queue[len(kept):])
		b.queue = kept
		if len(taken) > 0 {
			b.trial = b.trial || wantFailing
			return taken, wantFailing
		}
	}
	return nil, false
}

// outcome is how a turn ended for one lane.
type outcome struct {
	state *laneState
	// busy: another replica holds the lane.
	busy bool
	// more: the claim was full, so there is probably more.
	more bool
	// published says that the broker confirmed something.
	published bool
	// failed: the broker would not take the lane's events for now.
	failed bool
}

const (
	busyDelay     = 25 * time.Millisecond
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Second
)

// give returns lanes after a turn.
func (b *board) give(now time.Time, trial bool, outcomes []outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial {
		b.trial = false
	}
	for _, o := range outcomes {
		state := o.state
		state.inFlight, state.deep = false, o.more
		switch {
		case o.failed:
			state.failing = true
			state.delay = min(max(2*state.delay, minRetryDelay), maxRetryDelay)
			state.notBefore = now.Add(state.delay)
		case o.busy:
			state.notBefore = now.Add(busyDelay)
			continue // the next scan tells whether anything is left
		case o.published && state.failing:
			b.retryNow(state.topic)
			state.failing, state.delay = false, 0
		default:
			state.failing, state.delay = false, 0
		}
		if o.more || o.failed {
			state.queued = true
			b.queue = append(b.queue, state)
		}
	}
	if len(b.queue) > 0 {
		b.wake()
	}
}

// retryNow lets the failing lanes of a topic, or of every topic, be tried at once: something got through.
func (b *board) retryNow(topic string) {
	for _, state := range b.lanes {
		if state.failing && (topic == "" || state.topic == topic) {
			state.notBefore, state.delay = time.Time{}, 0
		}
	}
}

func (b *board) retryAllNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryNow("")
	b.wake()
}

// block says which topics cannot be written at all, and why. It answers whether one was released.
func (b *board) block(topics map[string]string) (released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for topic := range b.blocked {
		released = released || topics[topic] == ""
	}
	b.blocked = topics
	b.wake()
	return released
}

// failingLanes counts the lanes that are held back by failures.
func (b *board) failingLanes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := 0
	for _, state := range b.lanes {
		if state.failing {
			count++
		}
	}
	return count
}

func (b *board) wake() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// head is the first pending event of a lane.
type head struct {
	Topic string  `db:"topic"`
	Lane  int16   `db:"lane"`
	Seq   int64   `db:"seq"`
	Age   float64 `db:"age"` // seconds
}

// planFor makes the planner take the partial index whatever it believes of the table's size: plans are kept
// for the life of a connection, and one that was made while the table was empty would scan it when it is full.
// Local to the transaction, so that it is safe behind PgBouncer.
const planFor = `
	SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)`

// scanHeads is a loose index scan over outbox_events_pending: one descent per lane that has pending events,
// however many it has. An empty outbox costs one descent.
const scanHeads = `
	WITH RECURSIVE heads AS (
	    (SELECT topic, lane, seq, created_at FROM apipay.outbox_events
	     WHERE published_at IS NULL AND parked_at IS NULL
	     ORDER BY topic, lane, seq LIMIT 1)
	    UNION ALL
	    SELECT n.topic, n.lane, n.seq, n.created_at
	    FROM heads h CROSS JOIN LATERAL (
	        SELECT topic, lane, seq, created_at FROM apipay.outbox_events
	        WHERE published_at IS NULL AND parked_at IS NULL AND (topic, lane) > (h.topic, h.lane)
	        ORDER BY topic, lane, seq LIMIT 1) n)
	SELECT topic, lane, seq, extract(epoch FROM clock_timestamp() - created_at)::float8 AS age FROM heads`

// scan finds the lanes that have pending events above their bounds.
func (r *Relay) scan(ctx context.Context) ([]head, error) {
	if topics, numbers, bounds, ok := r.floors.all(); ok {
		return r.heads(ctx, probeHeads, topics, numbers, bounds)
	}
	return r.scanAll(ctx)
}

// scanAll finds all lanes that have pending events.
func (r *Relay) scanAll(ctx context.Context) ([]head, error) { return r.heads(ctx, scanHeads) }

func (r *Relay) heads(ctx context.Context, query string, args ...any) ([]head, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var found []head
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
	batch.Queue(planFor)
	batch.Queue(query, args...).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[head])
		return err
	})
	batch.Queue("COMMIT")
	if err := r.inBatch(ctx, batch); err != nil {
		return nil, fmt.Errorf("scanning for pending events: %w", err)
	}
	return found, nil
}
