package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/proto/events"
)

// floors are lower bounds on seq, used only while somebody holds an old snapshot: what is published meanwhile
// stays in the index of pending events, and without a bound each look would visit all of it again.
//
// A bound must lie below every event that may still appear. The order of commits is not the order of seq, so
// "below the newest published" would lose what commits late. The rule here: note the highest seq seen, THEN
// list the transactions that hold a writer's lock on the outbox. An event with a lower seq was numbered under
// such a lock; so once all of them have ended, it is either visible or will never be. What is pending by then
// caps the bound of its lane. The picture is renewed at each measurement, by a scan without bounds, which
// also finds what was replayed or put back by hand below a bound.
type floors struct {
	// slow is how long a scan without bounds may take before bounds are used.
	slow time.Duration
	// next is what survey waits for. Only survey uses it.
	next candidate

	mu         sync.Mutex
	generation int   // of resets
	seen       int64 // the highest seq this replica has met
	safe       int64 // 0: no bounds are in use
	lanes      map[lane]int64
}

// candidate is a seq that becomes a bound once the writers that were listed after it was noted have ended.
type candidate struct {
	generation int
	seq        int64
	writers    map[string]bool
}

func (f *floors) saw(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = max(f.seen, seq)
}

// of is the bound of a lane: events with a higher seq only. 0 is none.
func (f *floors) of(l lane) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound(l)
}

func (f *floors) bound(l lane) int64 {
	if capped, ok := f.lanes[l]; ok {
		return capped
	}
	return f.safe
}

// all answers every lane with its bound, or ok false while there are none.
func (f *floors) all() (topics []string, numbers []int16, bounds []int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.safe == 0 {
		return nil, nil, nil, false
	}
	for _, topic := range events.Topics() {
		for number := range int16(outbox.Lanes) {
			topics, numbers = append(topics, topic), append(numbers, number)
			bounds = append(bounds, f.bound(lane{topic, number}))
		}
	}
	return topics, numbers, bounds, true
}

// lower makes room for an event that became pending below the bound of its lane.
func (f *floors) lower(l lane, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bound(l) >= seq {
		f.lanes[l] = seq - 1
	}
}

// reset forgets all bounds: after a failover, numbers may be given out a second time.
func (f *floors) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
	f.seen, f.safe, f.lanes = 0, 0, nil
}

// note answers the next candidate, whose writers are to be listed after this.
func (f *floors) note() candidate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return candidate{generation: f.generation, seq: f.seen}
}

// adopt takes over bounds at one stroke: safe, capped by the heads that a scan without bounds saw after the
// candidate's writers had ended. safe may be the one in use, for new caps.
func (f *floors) adopt(generation int, safe int64, heads []head) {
	lanes := map[lane]int64{}
	for _, h := range heads {
		if h.Seq <= safe {
			lanes[lane{h.Topic, h.Lane}] = h.Seq - 1
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation == generation {
		f.safe, f.lanes = safe, lanes
	}
}

// inUse is the present bound without its caps, and the generation it belongs to.
func (f *floors) inUse() (generation int, safe int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generation, f.safe
}

// listWriters are the transactions that hold a lock on the outbox under which rows can be inserted or
// changed; prepared ones have an identity here too. An INSERT takes it before it draws a seq and keeps it
// until the transaction's rows are visible or gone.
const listWriters = `
	SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
	WHERE locktype = 'relation' AND granted AND relation = 'apipay.outbox_events'::regclass
	  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
	  AND mode NOT IN ('AccessShareLock', 'RowShareLock')`

func (r *Relay) outboxWriters(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(quiet(ctx), statementTimeout)
	defer cancel()
	rows, err := r.pool.Query(ctx, r.statements.writers)
	if err != nil {
		return nil, fmt.Errorf("listing the outbox's writers: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("listing the outbox's writers: %w", err)
	}
	writers := make(map[string]bool, len(list))
	for _, writer := range list {
		writers[writer] = true
	}
	return writers, nil
}

// survey scans without bounds, and renews the bounds while that is slow.
func (r *Relay) survey(ctx context.Context) ([]head, error) {
	f := &r.floors
	heads, slow, err := r.timedScan(ctx)
	if err != nil {
		return nil, err
	}
	if slow {
		// Dead entries that nobody's snapshot needs are marked by the first scan that passes them. If it was they, or a
		// machine that was busy for a moment, the second one is fast.
		if heads, slow, err = r.timedScan(ctx); err != nil {
			return nil, err
		}
	}
	if !slow {
		f.reset()
		return heads, nil
	}
	for _, h := range heads {
		f.saw(h.Seq)
	}
	writers, err := r.outboxWriters(ctx)
	if err != nil {
		return nil, err
	}
	generation, safe := f.inUse()
	if f.next.generation != generation || f.next.writers == nil {
		f.next = candidate{}
	} else if !f.next.isAwaiting(writers) {
		safe, f.next = f.next.seq, candidate{}
	}
	// Younger than the list of writers: what they committed is in it.
	if heads, err = r.scanAll(ctx); err != nil {
		return nil, err
	}
	f.adopt(generation, safe, heads)
	if f.next.writers == nil {
		next := f.note()
		if next.writers, err = r.outboxWriters(ctx); err != nil {
			return nil, err
		}
		f.next = next
	}
	return heads, nil
}

// timedScan scans without bounds and says whether that took long. Many heads take their time without any dead entries among
// them.
func (r *Relay) timedScan(ctx context.Context) (heads []head, slow bool, err error) {
	startedAt := time.Now()
	heads, err = r.scanAll(ctx)
	return heads, time.Since(startedAt) >= r.floors.slow+time.Duration(len(heads))*timePerHead, err
}

// isAwaiting says whether one of the candidate's writers is still at work.
func (c candidate) isAwaiting(now map[string]bool) bool {
	for writer := range c.writers {
		if now[writer] {
			return true
		}
	}
	return false
}

// timePerHead is what one lane with pending events costs a scan, generously.
const timePerHead = 100 * time.Microsecond

// probeHeads looks at each lane above its bound.
const probeHeads = `
	SELECT l.topic, l.lane, h.seq, extract(epoch FROM clock_timestamp() - h.created_at)::float8 AS age
	FROM unnest($1::text[], $2::int2[], $3::int8[]) AS l (topic, lane, bound)
	CROSS JOIN LATERAL (
	    SELECT seq, created_at FROM apipay.outbox_events
	    WHERE topic = l.topic AND lane = l.lane AND published_at IS NULL AND parked_at IS NULL AND seq > l.bound
	    ORDER BY seq LIMIT 1) h`
