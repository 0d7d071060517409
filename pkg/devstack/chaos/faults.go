package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/devstack/rig"
)

// fault is something that is done to the processes under load. It answers how often it was done, each of which may cost
// duplicates.
type fault struct {
	name string
	do   func(ctx context.Context, c *campaign) (times int, err error)
}

// faults in the order of the acceptance cases.
var faults = []fault{
	// Nothing is done, so nothing may come twice.
	{"none", func(ctx context.Context, _ *campaign) (int, error) {
		rig.Sleep(ctx, 3*time.Second)
		return 0, ctx.Err()
	}},
	{"relay-killed", func(ctx context.Context, c *campaign) (int, error) {
		c.recorded = new(int)
		for range c.Rounds {
			if !rig.Sleep(ctx, time.Duration(100+c.random.IntN(700))*time.Millisecond) {
				return 0, ctx.Err()
			}
			victim := c.relays[c.random.IntN(len(c.relays))]
			// Stopped first, so that what it has in flight can be counted.
			victim.Signal(syscall.SIGSTOP)
			err := c.recordInFlight(ctx)
			victim.Kill()
			if err := errors.Join(err, ctx.Err()); err != nil {
				return 0, err
			}
			if err := victim.Start(ctx); err != nil {
				return 0, err
			}
		}
		return c.Rounds, nil
	}},
	{"died-after-claim", dieAt("relay_after_claim")},
	{"died-after-produce", dieAt("relay_after_produce")},
	{"died-after-mark", dieAt("relay_after_mark")},
	{"died-with-commit-sent", dieAt("relay_commit_sent")},
	{"relay-stopped", func(ctx context.Context, c *campaign) (int, error) {
		stops := []time.Duration{time.Second, 10 * time.Second}
		if !c.Short {
			stops = append(stops, 60*time.Second)
		}
		for _, stop := range stops {
			victim := c.relays[c.random.IntN(len(c.relays))]
			victim.Signal(syscall.SIGSTOP)
			rig.Sleep(ctx, stop)
			victim.Signal(syscall.SIGCONT)
		}
		return len(stops), nil
	}},
	{"sessions-terminated", func(ctx context.Context, c *campaign) (int, error) {
		const times = 20
		for range times {
			const query = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'outbox-relay'`
			if _, err := c.world.super.Exec(ctx, query); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, time.Duration(50+c.random.IntN(200))*time.Millisecond)
		}
		return times * len(c.relays), nil
	}},
	{"broker-killed", func(ctx context.Context, c *campaign) (int, error) {
		times := 3
		for range times {
			c.rig.Broker.Kill()
			rig.Sleep(ctx, time.Duration(500+c.random.IntN(1500))*time.Millisecond)
			if err := c.rig.Broker.Start(ctx); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, time.Second)
		}
		return times * len(c.relays), nil
	}},
	{"broker-away", brokerAway},
	{"broker-frozen", func(ctx context.Context, c *campaign) (int, error) {
		frozen := 15 * time.Second
		if c.Short {
			frozen = 11 * time.Second // longer than the produce deadline
		}
		c.rig.Broker.Signal(syscall.SIGSTOP)
		rig.Sleep(ctx, frozen)
		c.rig.Broker.Signal(syscall.SIGCONT)
		// The requests arrive after they were given up; and they were sent again meanwhile.
		return 2 * len(c.relays), nil
	}},
	{"answers-lost", func(ctx context.Context, c *campaign) (int, error) {
		const times = 10
		for range times {
			if err := c.rig.Proxy.LoseAnswers(20 + c.random.IntN(80)); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, 200*time.Millisecond)
			if err := c.rig.Proxy.Heal(); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, 100*time.Millisecond)
		}
		return 2 * times * len(c.relays), nil
	}},
	{"requests-cut", func(ctx context.Context, c *campaign) (int, error) {
		const times = 10
		for range times {
			if err := c.rig.Proxy.CutRequests(200 + c.random.IntN(5000)); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, 200*time.Millisecond)
			if err := c.rig.Proxy.Heal(); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, 100*time.Millisecond)
		}
		return 2 * times * len(c.relays), nil
	}},
	{"topic-missing", topicMissing},
	{"oversized-record", oversized},
	{"postgres-restarted", func(ctx context.Context, c *campaign) (int, error) {
		const times = 2
		for n := range times {
			end := syscall.SIGINT // fast
			if n%2 == 1 {
				end = syscall.SIGQUIT // at once: it recovers from its log
			}
			c.rig.Postgres.Signal(end)
			<-c.rig.Postgres.Exited()
			rig.Sleep(ctx, time.Second)
			if err := c.rig.Postgres.Start(ctx); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, time.Second)
		}
		return times * len(c.relays), nil
	}},
	{"replicas-scaled", func(ctx context.Context, c *campaign) (int, error) {
		was := len(c.relays)
		for _, n := range []int{1, 4, 2, was} {
			if err := c.scale(ctx, n); err != nil {
				return 0, err
			}
			rig.Sleep(ctx, 2*time.Second)
		}
		return 0, nil // each drains what it has begun
	}},
	{"snapshot-held", func(ctx context.Context, c *campaign) (int, error) {
		held := 5 * time.Minute
		if c.Short {
			held = 10 * time.Second
		}
		err := pgx.BeginTxFunc(ctx, c.world.super, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
				return err
			}
			rig.Sleep(ctx, held)
			return nil
		})
		return 0, err
	}},
}

// recordInFlight adds what relays have in flight now, at most: the pending events of the lanes that are locked, as many as a
// claim takes. The low six bits of a lock's key are its lane.
func (c *campaign) recordInFlight(ctx context.Context) error {
	const query = `
		WITH held AS (
		    SELECT DISTINCT (objid::bigint & 63)::int2 AS lane FROM pg_locks
		    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
		SELECT coalesce(sum(least(pending, $1)), 0)::int
		FROM (SELECT count(*) AS pending FROM apipay.outbox_events JOIN held USING (lane)
		      WHERE published_at IS NULL AND parked_at IS NULL GROUP BY topic, lane) l`
	var rows int
	if err := c.world.super.QueryRow(ctx, query, batch).Scan(&rows); err != nil {
		return fmt.Errorf("counting what is in flight: %w", err)
	}
	*c.recorded += rows
	return nil
}

// brokerAway keeps the broker away for long: nothing is parked, and the first event goes out within 2 s of its return.
func brokerAway(ctx context.Context, c *campaign) (int, error) {
	away := 10 * time.Minute
	if c.Short {
		away = 30 * time.Second
	}
	c.rig.Broker.Kill()
	rig.Sleep(ctx, away)
	counts := func() (published, parked int, err error) {
		const query = `SELECT count(*) FILTER (WHERE published_at IS NOT NULL), count(*) FILTER (WHERE parked_at IS NOT NULL) FROM apipay.outbox_events`
		err = c.world.super.QueryRow(ctx, query).Scan(&published, &parked)
		return published, parked, err
	}
	before, parked, err := counts()
	if err != nil {
		return 0, err
	}
	if parked > 0 {
		return 0, fmt.Errorf("%d events were parked while the broker was away", parked)
	}
	if err := c.rig.Broker.Start(ctx); err != nil {
		return 0, err
	}
	_, err = await(ctx, 2*time.Second, "the first event after the broker's return", func() (bool, error) {
		now, _, err := counts()
		return now > before, err
	})
	return 2 * len(c.relays), err
}

// dieAt runs one more replica, built with fail points, until it has died at the point.
func dieAt(point string) func(context.Context, *campaign) (int, error) {
	return func(ctx context.Context, c *campaign) (int, error) {
		times := 10
		if c.Short {
			times = 3
		}
		for range times {
			victim := c.rig.Relay(c.db, failpointProgram, append(c.environment(), fmt.Sprintf("APIPAY_FAILPOINTS=%s=%d", point, 1+c.random.IntN(20)))...)
			if err := victim.Start(ctx); err != nil {
				return 0, err
			}
			select {
			case <-victim.Exited():
			case <-ctx.Done():
				victim.Kill()
				return 0, ctx.Err()
			case <-time.After(20 * time.Second):
				victim.Kill()
				return 0, fmt.Errorf("a relay did not die at %s", point)
			}
		}
		return times, nil
	}
}

// topicMissing deletes a topic that nothing was written to yet, has events for it wait, and makes it again.
func topicMissing(ctx context.Context, c *campaign) (int, error) {
	away := 3 * time.Minute
	if c.Short {
		away = 4 * time.Second
	}
	client := kafka.Client{Addr: kafka.TCP(c.rig.Direct), Transport: c.reader.client.Transport}
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{spareTopic}})
	if err := errors.Join(err, deleted.Errors[spareTopic]); err != nil {
		return 0, err
	}
	for _, tenant := range c.world.tenants[:5] {
		err := c.world.inTenant(ctx, tenant, func(tx pgx.Tx) error {
			return c.world.next(ctx, tx, spareTopic, tenant, c.newObject(ctx), noSession, 0, 0)
		})
		if err != nil {
			return 0, err
		}
	}
	rig.Sleep(ctx, away)
	const query = `SELECT count(*) FROM apipay.outbox_events WHERE topic = $1 AND published_at IS NULL AND parked_at IS NULL`
	var waiting int
	if err := c.world.super.QueryRow(ctx, query, spareTopic).Scan(&waiting); err != nil {
		return 0, err
	}
	if waiting != 5 {
		return 0, fmt.Errorf("%d of 5 events wait for the missing topic", waiting)
	}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: spareTopic, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err := errors.Join(err, made.Errors[spareTopic]); err != nil {
		return 0, err
	}
	return 0, nil
}

// oversized puts one event that the broker refuses among 500 of one tenant, sees it parked alone, raises the limit and has
// it replayed.
func oversized(ctx context.Context, c *campaign) (int, error) {
	const count, tooLarge = 500, 1_500_000
	tenant := c.world.tenants[0]
	object, huge := c.newObject(ctx), c.newObject(ctx)
	err := c.world.inTenant(ctx, tenant, func(tx pgx.Tx) error {
		for n := range count {
			about, filler := object, 0
			if n == count/2 {
				about, filler = huge, tooLarge
			}
			if err := c.world.next(ctx, tx, topic, tenant, about, noSession, 0, filler); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var parked int
	_, err = await(ctx, 20*time.Second, "the oversized event is parked", func() (bool, error) {
		err := c.world.super.QueryRow(ctx, `SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL`).Scan(&parked)
		return parked > 0, err
	})
	if err != nil {
		return 0, err
	}
	if _, err := await(ctx, 20*time.Second, "its neighbors went out", c.isRecovered(ctx)); err != nil {
		return 0, err
	}
	if err := c.world.super.QueryRow(ctx, `SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL`).Scan(&parked); err != nil {
		return 0, err
	}
	if parked != 1 {
		return 0, fmt.Errorf("%d events are parked, not 1", parked)
	}
	client := kafka.Client{Addr: kafka.TCP(c.rig.Direct), Transport: c.reader.client.Transport}
	_, err = client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "max.message.bytes", Value: "4000000", ConfigOperation: kafka.ConfigOperationSet}},
		}},
	})
	if err != nil {
		return 0, err
	}
	if _, err := c.world.super.Exec(ctx, `UPDATE apipay.outbox_events SET replay_requested_at = now() WHERE parked_at IS NOT NULL`); err != nil {
		return 0, err
	}
	_, err = await(ctx, 20*time.Second, "the replay went out", func() (bool, error) {
		err := c.world.super.QueryRow(ctx, `SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL`).Scan(&parked)
		return parked == 0, err
	})
	return 0, err
}

// Names are those of all faults.
func Names() []string {
	var names []string
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

func choose(names []string) ([]fault, error) {
	if len(names) == 0 {
		return faults, nil
	}
	var chosen []fault
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no fault %q; there are %v", name, Names())
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}
