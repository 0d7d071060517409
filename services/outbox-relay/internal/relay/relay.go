// Package relay carries committed outbox events to Kafka: lanes -> claim -> produce -> mark, all in one turn's
// transaction. Any number of replicas share the lanes without knowing of each other.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
)

// Role is the database role that the relay runs as.
const Role = "apipay_worker"

// Needs is what the relay does in the database.
var Needs = []postgres.Need{{
	Table:   "outbox_events",
	Verbs:   []postgres.Verb{postgres.Select, postgres.Lock, postgres.Update},
	Columns: []string{"published_at", "kafka_partition", "kafka_offset", "parked_at", "parked_reason", "replay_requested_at", "last_replay_at"},
}}

const (
	workers = 2
	// Connections is the size of the relay's pool: the workers, the measurements, retention, the readiness probe.
	Connections = workers + 3
	// loopSilence is above the longest turn.
	loopSilence = time.Minute
	// drainLimit is how long a turn in flight may go on after SIGTERM: a little more than its produce deadline.
	drainLimit = produceDeadline + 2*time.Second
)

// Relay is one replica.
type Relay struct {
	pool         *pgxpool.Pool
	topics       *topics
	producer     producer
	health       *ops.Health
	log          *slog.Logger
	metrics      *metrics
	tracer       trace.Tracer
	batch        int
	retention    time.Duration
	createTopics bool
	statements   statements
	workers      int
	drainLimit   time.Duration
	watchEvery   time.Duration

	board       *board
	gate        *gate
	floors      floors
	pace        pace
	lines       line
	blockedLine line
	lastFailure atomic.Value // string
}

// New makes a replica. It takes nothing over from pool, which stays the caller's.
func New(config Config, pool *pgxpool.Pool, health *ops.Health, log *slog.Logger) (*Relay, error) {
	topics, err := newTopics(config.Config)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		pool:         pool,
		topics:       topics,
		producer:     topics.client(),
		health:       health,
		log:          log,
		tracer:       otel.Tracer("apipay.io/hub/services/outbox-relay"),
		batch:        config.Batch,
		retention:    config.Retention,
		createTopics: config.CreateTopics,
		statements:   statements{lock: lockLanes, claim: claimLanes, writers: listWriters},
		workers:      workers,
		drainLimit:   drainLimit,
		board:        newBoard(),
		gate:         newGate("not asked yet"),
		floors:       floors{slow: slowScan},
		watchEvery:   watchInterval,
		lines:        line{log: log, interval: time.Second},
		blockedLine:  line{log: log, interval: 5 * time.Second},
	}
	r.lastFailure.Store("")
	if r.metrics, err = newMetrics(); err != nil {
		return nil, err
	}
	return r, nil
}

// Run publishes until ctx ends, then lets the turn in flight finish. It fails only when the topics cannot be
// used at all; whatever may pass is waited for.
func (r *Relay) Run(ctx context.Context) error {
	defer r.topics.close()
	defer r.metrics.close()
	// A turn in flight outlives ctx, so that what the broker took is marked and not sent twice.
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		if sleep(hard, r.drainLimit) {
			kill()
		}
	})
	defer stop()
	for n := range r.workers {
		group.Go(func() error { return r.work(ctx, hard, n) })
	}
	group.Go(func() error { return r.watchKafka(ctx) })
	group.Go(func() error { return r.watchOutbox(ctx) })
	group.Go(func() error { return r.retain(ctx) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// work is one worker: a turn after the other. While no broker answers it begins none.
func (r *Relay) work(ctx, hard context.Context, n int) error {
	loop := r.health.Loop(fmt.Sprintf("publisher-%d", n), loopSilence)
	delay := minRetryDelay
	for ctx.Err() == nil {
		loop.Tick()
		if opened := r.gate.wait(); opened != nil {
			select {
			case <-ctx.Done():
			case <-opened:
			case <-time.After(time.Second):
			}
			continue
		}
		err := r.step(ctx, hard)
		if err == nil {
			delay = minRetryDelay
			continue
		}
		if ctx.Err() != nil {
			break
		}
		r.floors.reset()
		r.lines.warn(ctx, "outbox.turn", "error", err.Error())
		loop.Degraded(err.Error())
		if sleep(ctx, delay) {
			delay = min(2*delay, maxRetryDelay)
		}
		loop.Degraded("")
	}
	return ctx.Err()
}

// step is one turn, or one look for work.
func (r *Relay) step(ctx, hard context.Context) error {
	if r.pace.isOverdue(time.Now()) {
		if err := r.discover(ctx, false); err != nil {
			return err
		}
	}
	lanes, trial := r.board.take(time.Now())
	if len(lanes) == 0 {
		return r.discover(ctx, true)
	}
	return r.turn(hard, lanes, trial)
}

// turn is one transaction over some lanes.
func (r *Relay) turn(ctx context.Context, lanes []*laneState, trial bool) error {
	outcomes := make([]outcome, len(lanes))
	for i, state := range lanes {
		outcomes[i] = outcome{state: state, more: true}
	}
	// Whatever happens, the lanes go back to the board.
	defer func() { r.board.give(time.Now(), trial, outcomes) }()

	ctx = quiet(ctx)
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquiring a connection: %w", err)
	}
	defer conn.Release()
	claimedAt := time.Now()
	held, err := r.lock(ctx, conn, lanes)
	if err != nil {
		return err
	}
	byState := make(map[*laneState]*outcome, len(lanes))
	for i := range outcomes {
		outcomes[i].busy, outcomes[i].more = true, false
		byState[outcomes[i].state] = &outcomes[i]
	}
	if len(held) == 0 {
		rollback(ctx, conn)
		return nil
	}
	claimed, err := r.claim(ctx, conn, held)
	if err != nil {
		return err
	}
	batches := claimed[:0]
	for _, b := range claimed {
		*byState[b.state] = outcome{state: b.state, more: b.full}
		if len(b.events) > 0 {
			batches = append(batches, b)
		}
	}
	if len(batches) == 0 {
		rollback(ctx, conn)
		return nil
	}
	r.metrics.claimed(ctx, time.Since(claimedAt))
	failpoint(afterClaim)
	results := r.publish(ctx, claimedAt, batches)
	failpoint(afterProduce)
	return r.settle(ctx, conn, results, byState)
}

// settle marks what was confirmed, and commits or rolls back.
func (r *Relay) settle(ctx context.Context, conn *pgxpool.Conn, results []result, byState map[*laneState]*outcome) error {
	anything := false
	for i := range results {
		res := &results[i]
		o := byState[res.batch.state]
		o.published = len(res.confirmed) > 0
		anything = anything || o.published || len(res.parked) > 0
		if res.err != nil && ctx.Err() == nil {
			r.refused(ctx, res, o)
		}
	}
	if !anything {
		rollback(ctx, conn)
		return nil
	}
	startedAt := time.Now()
	marked, parked, err := mark(ctx, conn, results)
	r.metrics.marked(ctx, time.Since(startedAt))
	if err != nil {
		return err
	}
	r.pace.found(time.Now())
	r.told(ctx, results, marked, parked)
	return nil
}

// refused decides what a lane's failed produce means for the lane and for the others.
func (r *Relay) refused(ctx context.Context, res *result, o *outcome) {
	if errors.Is(res.err, errStale) {
		o.more = true
		r.lines.warn(ctx, "outbox.stale", "error", res.err.Error())
		return
	}
	o.failed = true
	r.lastFailure.Store(reasonOf(res.err))
	kind := classify(res.err)
	switch kind {
	case faultCluster:
		r.gate.close(res.err.Error())
	case faultLeader:
		r.topics.forget()
	case faultLane, faultRecord:
	}
	r.gate.poke()
	r.lines.warn(ctx, "outbox.refused", "topic", o.state.topic, "lane", o.state.number, "fault", string(kind),
		"error", res.err.Error(), "confirmed", len(res.confirmed), "kept", len(res.batch.events)-len(res.confirmed)-len(res.parked))
}

// told writes the turn's lines and counters.
func (r *Relay) told(ctx context.Context, results []result, marked, parked int) {
	debug := r.log.Enabled(ctx, slog.LevelDebug)
	for i := range results {
		res := &results[i]
		r.metrics.published(ctx, res.batch.state.topic, len(res.confirmed), len(res.parked))
		for _, p := range res.parked {
			r.log.ErrorContext(ctx, "event.parked", "event_id", eventText(p.event.id), "type", p.event.kind,
				"topic", res.batch.state.topic, "bytes", len(p.event.payload), "reason", p.reason)
		}
		if debug && len(res.confirmed) > 0 {
			r.log.DebugContext(ctx, "batch.published", "topic", res.batch.state.topic, "lane", res.batch.state.number,
				"partition", res.confirmed[0].partition, "offset", res.confirmed[0].offset, "events", len(res.confirmed),
				"bytes", res.batch.bytes, "turn_marked", marked, "turn_parked", parked)
		}
	}
}

// inBatch runs a batch on a connection of its own.
func (r *Relay) inBatch(ctx context.Context, batch *pgx.Batch) error {
	return r.pool.AcquireFunc(quiet(ctx), func(conn *pgxpool.Conn) error {
		return conn.SendBatch(quiet(ctx), batch).Close()
	})
}

// quiet keeps the statements of a loop that runs many times a second out of traces: spans are made by hand
// for batches that were published.
func quiet(ctx context.Context) context.Context { return trace.ContextWithSpanContext(ctx, unsampled) }

var unsampled = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true,
})

// pace says when to look for work: soon after there was some, less and less often while there is none.
type pace struct {
	mu       sync.Mutex // held by the worker that looks
	lastScan atomic.Int64
	lastWork atomic.Int64
	scanTime atomic.Int64
}

const (
	// minPoll lets a few events gather where they come one by one: a look and a turn for each would be 30 statements an event.
	minPoll = 8 * time.Millisecond
	// maxPoll keeps the first event after an idle time under 60 ms at the median, and an idle relay at a
	// dozen looks a second.
	maxPoll = 90 * time.Millisecond
	// pollShare: after t without work, the next look is t/pollShare away.
	pollShare = 8
	// scanInterval is how often a busy replica looks for lanes that it does not know of: less often when a look is slow, since
	// in a backlog each one passes by what was published since the last, but once in maxScanInterval at least.
	scanInterval    = 250 * time.Millisecond
	maxScanInterval = time.Second
	// scanShare: a busy replica looks for at most 1/scanShare of the time.
	scanShare = 20
	// slowScan is when dead entries in the index begin to cost more than looking at each lane by itself.
	slowScan = 10 * time.Millisecond
)

func (p *pace) found(now time.Time) { p.lastWork.Store(now.UnixNano()) }

func (p *pace) isOverdue(now time.Time) bool {
	interval := min(max(scanInterval, scanShare*time.Duration(p.scanTime.Load())), maxScanInterval)
	return now.UnixNano()-p.lastScan.Load() > int64(interval)
}

func (p *pace) untilNext(now time.Time) time.Duration {
	idle := time.Duration(now.UnixNano() - p.lastWork.Load())
	// Looking may take at most half of the time, however slow it is.
	rest := max(minPoll, min(idle/pollShare, maxPoll), time.Duration(p.scanTime.Load()))
	return time.Unix(0, p.lastScan.Load()).Add(rest).Sub(now)
}

// discover scans for lanes with pending events when that is due. One worker looks; the others wait for what
// it finds.
func (r *Relay) discover(ctx context.Context, wait bool) error {
	if !r.pace.mu.TryLock() {
		if wait {
			select {
			case <-ctx.Done():
			case <-r.board.more:
			case <-time.After(maxPoll):
			}
		}
		return nil
	}
	defer r.pace.mu.Unlock()
	if wait {
		timer := time.NewTimer(r.pace.untilNext(time.Now()))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.board.more:
			return nil
		case <-timer.C:
		}
	}
	startedAt := time.Now()
	found, err := r.scan(ctx)
	now := time.Now()
	r.pace.scanTime.Store(int64(now.Sub(startedAt)))
	r.pace.lastScan.Store(now.UnixNano())
	if err != nil {
		return err
	}
	if r.board.add(now, found) > 0 {
		r.pace.found(now)
	}
	return nil
}
