package relaybench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/devstack/rig"
)

const steadyRate = 600

// latency is the time from the insert, by the clock and so a little before the commit, to the mark, which comes a little after
// the broker's acknowledgement.
func latency(ctx context.Context, b *bench) ([]Figure, error) {
	var p50, p99 float64
	p := newPeople(tenants)
	err := b.each(ctx, 1, nil, func(t *table, _ []*rig.Process) error {
		var err error
		p50, p99, err = b.steady(ctx, t, p, b.scaledTime(15*time.Second))
		return err
	})
	return []Figure{
		{What: "commit to acknowledgement at 600/s, p50", Target: "<= 10 ms", Unit: "ms", Meets: atMost(10), Value: p50},
		{What: "commit to acknowledgement at 600/s, p99", Target: "<= 60 ms", Unit: "ms", Meets: atMost(60), Value: p99},
	}, err
}

func (b *bench) steady(ctx context.Context, t *table, p people, d time.Duration) (p50, p99 float64, err error) {
	// A relay that has just started is not what is measured.
	if _, err := t.live(ctx, newPeople(5), 50, time.Second); err != nil {
		return 0, 0, err
	}
	if err := t.drained(ctx, drainLimit); err != nil {
		return 0, 0, err
	}
	if _, err := t.live(ctx, p, steadyRate, d); err != nil {
		return 0, 0, err
	}
	if err := t.drained(ctx, drainLimit); err != nil {
		return 0, 0, err
	}
	return t.percentiles(ctx, p)
}

// firstAfterIdle inserts one event after the relay had nothing for a second, again and again.
func firstAfterIdle(ctx context.Context, b *bench) ([]Figure, error) {
	p := newPeople(b.scaled(60))
	var p50, p99 float64
	err := b.each(ctx, 1, nil, func(t *table, _ []*rig.Process) error {
		rig.Sleep(ctx, 2*time.Second)
		for i := range p.ids {
			const query = `
				INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, created_at)
				VALUES ($1, $2, false, $3, $4, 'ping', '{}', clock_timestamp())`
			if _, err := t.owner.Exec(ctx, query, uuid.Must(uuid.NewV7()), p.ids[i], topic, p.lanes[i]); err != nil {
				return err
			}
			rig.Sleep(ctx, 800*time.Millisecond+time.Duration(i*37%100)*time.Millisecond)
		}
		var err error
		p50, p99, err = t.percentiles(ctx, p)
		return err
	})
	return []Figure{
		{What: "first event after idle, p50", Target: "<= 60 ms", Unit: "ms", Meets: atMost(60), Value: p50},
		{What: "first event after idle, p99", Target: "-", Unit: "ms", Value: p99},
	}, err
}

// retained compares a large table of published rows with an empty one: the claim's time, and the drain's rate.
func retained(ctx context.Context, b *bench) ([]Figure, error) {
	count := b.scaled(10_000_000)
	backlog := b.scaled(backlogEvents)
	old, p := newPeople(tenants), newPeople(tenants)
	measure := func(prepare func(*table) error) (rate, claim99 float64, err error) {
		t, err := b.newTable(ctx)
		if err != nil {
			return 0, 0, err
		}
		defer t.close()
		if err := prepare(t); err != nil {
			return 0, 0, err
		}
		ops, err := freeAddr()
		if err != nil {
			return 0, 0, err
		}
		relay := b.rig.Relay(t.Database, "outbox-relay", "APIPAY_OPS_ADDR="+ops)
		if err := relay.Start(ctx); err != nil {
			return 0, 0, err
		}
		defer relay.Kill()
		if _, _, err := b.steady(ctx, t, newPeople(tenants), b.scaledTime(15*time.Second)); err != nil {
			return 0, 0, err
		}
		if claim99, err = quantile(ctx, ops, "apipay_outbox_claim_duration_seconds", 0.99); err != nil {
			return 0, 0, err
		}
		if err := relay.Stop(15 * time.Second); err != nil {
			return 0, 0, err
		}
		if err := t.fill(ctx, p, backlog, payloadBytes, false); err != nil {
			return 0, 0, err
		}
		if err := relay.Start(ctx); err != nil {
			return 0, 0, err
		}
		if err := t.drained(ctx, drainLimit); err != nil {
			return 0, 0, err
		}
		rate, _, _, err = t.rates(ctx, p)
		return rate, 1000 * claim99, err
	}
	empty, emptyClaim, err := measure(func(*table) error { return nil })
	if err != nil {
		return nil, err
	}
	full, claim, err := measure(func(t *table) error {
		return errors.Join(t.fill(ctx, old, count, payloadBytes, true), t.analyze(ctx))
	})
	name := strconv.Itoa(count) + " published rows retained"
	return []Figure{
		{What: name + ": claim at 600/s, p99 (upper bound of its bucket)", Target: "<= 2 ms", Unit: "ms", Meets: atMost(2), Value: claim},
		{What: "the same with an empty table", Target: "-", Unit: "ms", Value: emptyClaim},
		{What: name + ": drain, to that with an empty table", Target: ">= 0.9", Meets: atLeast(0.9), Value: full / empty},
	}, err
}

// heldSnapshot measures while somebody holds a snapshot from before 180,000 events, which is 5 minutes at 600/s, and after.
func heldSnapshot(ctx context.Context, b *bench) ([]Figure, error) {
	held, after := newPeople(tenants), newPeople(tenants)
	var p50, p99, again float64
	err := b.each(ctx, 1, nil, func(t *table, _ []*rig.Process) error {
		reader, err := t.owner.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return err
		}
		defer reader.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it is rolled back below
		if _, err := reader.Exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		for range 18 {
			if err := t.fill(ctx, newPeople(tenants), b.scaled(10_000), liveBytes, false); err != nil {
				return err
			}
			if err := t.drained(ctx, drainLimit); err != nil {
				return err
			}
		}
		rig.Sleep(ctx, 8*time.Second) // its lower bounds are renewed every 5 s
		if p50, p99, err = b.steady(ctx, t, held, b.scaledTime(20*time.Second)); err != nil {
			return err
		}
		if err := reader.Rollback(ctx); err != nil {
			return err
		}
		rig.Sleep(ctx, 10*time.Second)
		_, again, err = b.steady(ctx, t, after, b.scaledTime(15*time.Second))
		return err
	})
	return []Figure{
		{What: "180,000 events under a held snapshot, then 600/s: p50", Target: "-", Unit: "ms", Value: p50},
		{What: "180,000 events under a held snapshot, then 600/s: p99", Target: "<= 250 ms", Unit: "ms", Meets: atMost(250), Value: p99},
		{What: "from 10 s after its release: p99", Target: "<= 60 ms within 30 s", Unit: "ms", Meets: atMost(60), Value: again},
	}, err
}

// idle is what a replica costs with nothing to do.
func idle(ctx context.Context, b *bench) ([]Figure, error) {
	const span = 10 * time.Second
	var statements, core float64
	err := b.each(ctx, 1, func(t *table) error {
		var name string
		if err := t.super.QueryRow(ctx, "SELECT current_database()").Scan(&name); err != nil {
			return err
		}
		_, err := t.super.Exec(ctx, "ALTER DATABASE "+name+" SET log_statement = 'all'")
		return err
	}, func(_ *table, relays []*rig.Process) error {
		rig.Sleep(ctx, 5*time.Second) // until it looks at its slowest
		count := func() (int, time.Duration, error) {
			log, err := os.ReadFile(b.rig.Postgres.LogPath)
			used, _, cpuErr := relays[0].CPU()
			return strings.Count(string(log), "apipay_worker@") - strings.Count(string(log), "DETAIL:"), used, errors.Join(err, cpuErr)
		}
		before, cpuBefore, err := count()
		if err != nil {
			return err
		}
		rig.Sleep(ctx, span)
		after, cpuAfter, err := count()
		statements = float64(after-before) / span.Seconds()
		core = 100 * (cpuAfter - cpuBefore).Seconds() / span.Seconds()
		return err
	})
	return []Figure{
		{What: "idle: statements", Target: "<= 80/s", Unit: "/s", Meets: atMost(80), Value: statements},
		{What: "idle: the relay's share of a core", Target: "<= 4 %", Unit: "%", Meets: atMost(4), Value: core},
	}, err
}

// failover kills one of two replicas under load and takes the time until everything is out that was pending then.
func failover(ctx context.Context, b *bench) ([]Figure, error) {
	kills := b.scaled(40)
	p := newPeople(tenants)
	var next, all []float64
	err := b.each(ctx, 2, nil, func(t *table, relays []*rig.Process) error {
		done := make(chan error, 1)
		loaded, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_, err := t.live(loaded, p, steadyRate, time.Hour)
			done <- err
		}()
		rig.Sleep(ctx, 2*time.Second)
		for n := range kills {
			victim := relays[n%2]
			victim.Kill()
			var at time.Time
			if err := t.super.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
				return err
			}
			rig.Sleep(ctx, 1500*time.Millisecond)
			const query = `
				SELECT extract(epoch FROM min(published_at) - $1), coalesce(extract(epoch FROM max(published_at) FILTER (WHERE created_at <= $1) - $1), 0)
				FROM apipay.outbox_events WHERE published_at > $1`
			var first, last float64
			if err := t.super.QueryRow(ctx, query, at).Scan(&first, &last); err != nil {
				return err
			}
			next, all = append(next, first), append(all, last)
			if err := victim.Start(ctx); err != nil {
				return err
			}
			rig.Sleep(ctx, 500*time.Millisecond)
		}
		stop()
		<-done
		return t.drained(ctx, drainLimit)
	})
	if err != nil {
		return nil, err
	}
	return []Figure{
		{What: fmt.Sprintf("kill -9 to the next publish by another replica, p99 of %d", kills), Target: "<= 1 s", Unit: "s", Meets: atMost(1), Value: p99of(next)},
		{What: "kill -9 until all is out that was pending then, p99", Target: "<= 1 s", Unit: "s", Meets: atMost(1), Value: p99of(all)},
	}, nil
}

// outage kills the broker while 50 events/s come in, and starts it again.
func outage(ctx context.Context, b *bench) ([]Figure, error) {
	d := b.scaledTime(10 * time.Minute)
	p := newPeople(tenants)
	var first, grown float64
	var parked int
	err := b.each(ctx, 1, nil, func(t *table, relays []*rig.Process) error {
		if _, _, err := b.steady(ctx, t, newPeople(tenants), 3*time.Second); err != nil {
			return err
		}
		b.rig.Broker.Kill()
		if _, err := t.live(ctx, p, 50, d/4); err != nil {
			return err
		}
		_, early, err := relays[0].CPU()
		if err != nil {
			return err
		}
		if _, err := t.live(ctx, p, 50, d-d/4); err != nil {
			return err
		}
		_, late, err := relays[0].CPU()
		if err != nil {
			return err
		}
		grown = float64(late-early) / (1 << 20)
		if err := b.rig.Broker.Start(ctx); err != nil {
			return err
		}
		var back time.Time
		if err := t.super.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&back); err != nil {
			return err
		}
		if err := t.drained(ctx, drainLimit); err != nil {
			return err
		}
		const query = `
			SELECT extract(epoch FROM min(published_at) - $1), (SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL)
			FROM apipay.outbox_events WHERE tenant_id = ANY ($2)`
		return t.super.QueryRow(ctx, query, back, p.ids).Scan(&first, &parked)
	})
	return []Figure{
		{What: fmt.Sprintf("broker back after %s at 50/s: first publish", d), Target: "<= 2 s", Unit: "s", Meets: atMost(2), Value: math.Max(first, 0)},
		{What: "parked by the outage", Target: "0", Unit: "events", Meets: atMost(0), Value: float64(parked)},
		{What: "memory grown from its first quarter to its end", Target: "flat (<= 8 MiB)", Unit: "MiB", Meets: atMost(8), Value: grown},
	}, err
}

func p99of(values []float64) float64 {
	slices.Sort(values)
	return values[min(len(values)-1, len(values)*99/100)]
}

// quantile reads a histogram of the relay's metrics: the upper bound of the bucket that the quantile lies in.
func quantile(ctx context.Context, ops, name string, q float64) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	counts := map[float64]float64{}
	total := 0.0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name+"_bucket{")
		if !ok {
			continue
		}
		_, rest, _ = strings.Cut(rest, `le="`)
		bound, rest, _ := strings.Cut(rest, `"`)
		_, value, _ := strings.Cut(rest, "} ")
		le, err := strconv.ParseFloat(bound, 64)
		count, countErr := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err := errors.Join(err, countErr); err != nil {
			return 0, err
		}
		counts[le] += count
		total = max(total, counts[le])
	}
	if total == 0 {
		return 0, fmt.Errorf("no metric %s", name)
	}
	answer := math.Inf(1)
	for le, count := range counts {
		if count >= q*total {
			answer = min(answer, le)
		}
	}
	return answer, nil
}

func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
