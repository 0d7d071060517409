package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// turnsAtOnce run side by side, for different endpoints: while one waits for the database another can gather.
	turnsAtOnce = 2
	// turnPace is from one turn to the next at least, and what the last one took, up to longestPace: so results and asks gather,
	// the more the slower the database is. Where nothing is in flight there is nothing to wait for.
	turnPace    = 4 * time.Millisecond
	longestPace = 50 * time.Millisecond
	// resultLinger is how long a result waits for a claim to go with, while nothing is due and its slot is not wanted.
	resultLinger = 20 * time.Millisecond
	claimTimeout = 10 * time.Second
	// lastTurn is what a turn that runs at SIGTERM has left: broken off, its claim may be committed all the same.
	lastTurn = 2 * time.Second
)

// claimLoop takes turns while ctx runs: each records what succeeded and claims what is due, in one round trip to the database,
// and starts the sending of what it got. So an endpoint's slots are filled again by the transaction that frees them, and a
// delivery whose result is not yet committed holds its slot and counts against its endpoint's cap: what a kill can double is
// no more than the cap. Everything else that a result may be goes to record.
func (d *Dispatcher) claimLoop(ctx, sendCtx context.Context) error {
	loop := d.health.Loop("claim", time.Minute)
	told := newTeller(d.log, "claim")
	// From then on results are recorded without claims.
	defer func() { go d.forward() }()
	var pending []attempt
	defer func() { d.handOver(pending) }()
	turns := make(chan ended, turnsAtOnce)
	running := 0
	defer func() {
		for ; running > 0; running-- {
			<-turns
		}
	}()
	var next time.Time
	for {
		loop.Tick()
		var asks []*ask
		var end *ended
		var err error
		if pending, asks, end, err = d.await(ctx, loop.Tick, turns, running, pending, next); err != nil {
			return err
		}
		if end == nil {
			batch := pending
			pending = nil
			running++
			started := time.Now()
			next = started.Add(turnPace)
			go func() {
				err := d.turn(ctx, sendCtx, batch, asks)
				turns <- ended{started, time.Since(started), err}
			}()
			continue
		}
		running--
		next = end.started.Add(min(max(turnPace, end.took), longestPace))
		if told.tell(ctx, end.err) {
			loop.Degraded(end.err.Error())
			if !pause(ctx, 250*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		loop.Degraded("")
	}
}

// ended is a turn that is over.
type ended struct {
	started time.Time
	took    time.Duration
	err     error
}

// forward passes on the results of what is still in flight when the claims have ended.
func (d *Dispatcher) forward() {
	for a := range d.results {
		d.others <- a
	}
	close(d.others)
}

// handOver leaves results to record, which has the patience and the rules. Their slots are taken until it is done.
func (d *Dispatcher) handOver(list []attempt) {
	for _, a := range list {
		d.work.retake(a.claimed)
		d.others <- a
	}
}

// idleTick is how often an idle loop says that it lives, far within the minute after which it counts as dead.
const idleTick = 2 * time.Second

// await gathers until there is a turn to take: something to claim, or results that waited long enough for it. It answers what
// it gathered also with an error, and with a turn that ended meanwhile. While there is nothing to do, it says by tick that it waits and does not hang.
func (d *Dispatcher) await(ctx context.Context, tick func(), turns <-chan ended, running int, pending []attempt, next time.Time) ([]attempt, []*ask, *ended, error) {
	first := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	keep := func(a attempt) {
		if !a.result.Succeeded() {
			d.others <- a
			return
		}
		if len(pending) == 0 {
			first = time.Now()
		}
		// Free for the claim that goes with it.
		d.work.release(a.claimed)
		pending = append(pending, a)
	}
	for {
		for more := true; more && len(pending) < recordBatch; {
			select {
			case a := <-d.results:
				keep(a)
			default:
				more = false
			}
		}
		wait := time.Until(next)
		switch {
		case running == turnsAtOnce:
			wait = idleTick
		case wait <= 0 && d.hasGathered(len(pending), wait) || running == 0 && d.inFlight.Load() == 0 || len(pending) >= recordBatch:
			var asks []*ask
			if asks, wait = d.ask(); len(asks) > 0 {
				return pending, asks, nil, nil
			}
			if len(pending) > 0 {
				waited := time.Since(first)
				if waited >= resultLinger || len(pending) >= recordBatch {
					return pending, nil, nil, nil
				}
				wait = min(wait, resultLinger-waited)
			}
		}
		if wait <= 0 {
			wait += 2 * turnPace
		}
		tick()
		timer.Reset(min(max(wait, 100*time.Microsecond), idleTick))
		select {
		case <-ctx.Done():
			return pending, nil, nil, ctx.Err()
		case a := <-d.results:
			keep(a)
		case end := <-turns:
			return pending, nil, &end, nil
		case <-d.work.wake:
		case <-timer.C:
		}
	}
}

// hasGathered says that a turn is worth its while: an endpoint whose results come one by one would have a turn for each of them,
// and no two at once. Where most of what is in flight does not end, the wait for it does, a little past the pace.
func (d *Dispatcher) hasGathered(pending int, wait time.Duration) bool {
	return pending == 0 || int64(pending) >= d.inFlight.Load() || -wait >= 2*turnPace
}

// ask answers what to claim now, and if there is nothing, how long there will be nothing that is known.
func (d *Dispatcher) ask() ([]*ask, time.Duration) {
	if d.client.Paused() != "" || d.recordFails.Load() {
		return nil, 100 * time.Millisecond
	}
	return d.work.pick(d.clock())
}

func (d *Dispatcher) turn(ctx, sendCtx context.Context, pending []attempt, asks []*ask) error {
	// Not broken off by the end of ctx.
	turnCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTurn, cancel) })()
	started := time.Now()
	list, verdicts, left, err := d.exchange(turnCtx, pending, asks)
	took := time.Since(started)
	if err != nil {
		list, left = nil, pending
	}
	d.handOver(left)
	if len(asks) > 0 {
		d.metrics.claimed(ctx, len(list), took)
	}
	if len(pending) > len(left) {
		d.metrics.recorded(ctx, took)
	}
	now := d.clock()
	for _, a := range asks {
		v := verdicts[a.endpointID]
		if err != nil {
			v = verdict{busy: true}
		}
		d.work.settle(a, v, now)
	}
	for _, c := range list {
		d.inFlight.Add(1)
		d.sending.Go(func() { d.send(sendCtx, c) })
	}
	return err
}

// exchange records and claims in one implicit transaction. It answers what it claimed, and the results it did not record.
func (d *Dispatcher) exchange(ctx context.Context, pending []attempt, asks []*ask) (list []*claimed, verdicts map[uuid.UUID]verdict, left []attempt, err error) {
	batch := &pgx.Batch{}
	queueLocks(batch, asks)
	if len(pending) > 0 {
		queueSuccesses(batch, pending)
	}
	if len(asks) > 0 {
		d.queueClaim(batch, asks)
	}
	at := d.clock()
	results := d.pool.SendBatch(ctx, batch)
	// The commit is behind the last answer, and its error the one of Close.
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err = results.Exec(); err != nil {
		return nil, nil, nil, fmt.Errorf("locking endpoints: %w", err)
	}
	if len(pending) > 0 {
		if left, err = readSuccesses(results, pending); err != nil {
			return nil, nil, nil, err
		}
	}
	if len(asks) > 0 {
		list, verdicts, err = readClaim(results, asks, at)
	}
	return list, verdicts, left, err
}

// claim is a turn without results.
func (d *Dispatcher) claim(ctx context.Context, asks []*ask) ([]*claimed, map[uuid.UUID]verdict, error) {
	list, verdicts, _, err := d.exchange(ctx, nil, asks)
	return list, verdicts, err
}
