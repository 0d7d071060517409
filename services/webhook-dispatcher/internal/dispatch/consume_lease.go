package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
)

// consumerNeeds are the privileges that the leases ask for.
var consumerNeeds = []postgres.Need{
	{Table: "webhook_consumers", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Delete}, Columns: []string{"lease_until"}},
	{Table: "webhook_consumer_partitions", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Delete}, Columns: []string{"consumer_id"}},
}

const (
	// consumerLease is how long partitions wait for a consumer that died or stands still.
	consumerLease = 4 * time.Second
	// leaseGuard is what a consumer gives its lease less than the database does.
	leaseGuard    = time.Second
	leaseInterval = time.Second
	// unsettledInterval is between turns while partitions change hands.
	unsettledInterval = 200 * time.Millisecond
	leaseTimeout      = 2 * time.Second
	// handOver bounds how long a partition that is given up waits for its records in hand.
	handOver = time.Second
)

// The first renewal does not see its own row, so this consumer counts itself.
const renewLease = `
	WITH renewed AS (
	    INSERT INTO apipay.webhook_consumers (id, lease_until) VALUES ($1, now() + $2::interval)
	    ON CONFLICT (id) DO UPDATE SET lease_until = EXCLUDED.lease_until
	)
	SELECT c.id, coalesce(array_agg(p.kafka_partition ORDER BY p.kafka_partition) FILTER (WHERE p.kafka_partition IS NOT NULL), '{}') AS partitions
	FROM apipay.webhook_consumers c
	LEFT JOIN apipay.webhook_consumer_partitions p ON p.consumer_id = c.id
	WHERE c.lease_until > now() OR c.id = $1
	GROUP BY c.id`

type holder struct {
	ID         uuid.UUID
	Partitions []int
}

// A holder that lives keeps what it has: of two consumers that want one partition the second finds the first one's name.
const takePartitions = `
	INSERT INTO apipay.webhook_consumer_partitions AS p (kafka_partition, consumer_id)
	SELECT want, $1 FROM unnest($2::integer[]) want ORDER BY want
	ON CONFLICT (kafka_partition) DO UPDATE SET consumer_id = EXCLUDED.consumer_id
	WHERE NOT EXISTS (SELECT FROM apipay.webhook_consumers c WHERE c.id = p.consumer_id AND c.lease_until > now())
	RETURNING kafka_partition`

const freePartitions = `DELETE FROM apipay.webhook_consumer_partitions WHERE consumer_id = $1 AND kafka_partition = ANY($2)`

const leaveConsumers = `DELETE FROM apipay.webhook_consumers WHERE id = $1`

// Rows of killed consumers; not too soon, since one that stands still comes back under its own name.
const forgetConsumers = `DELETE FROM apipay.webhook_consumers WHERE lease_until < now() - interval '10 minutes'`

// share is how many of the partitions the consumer of a rank has when n live. All shares together are all partitions, and
// since ids rise with time a newcomer changes few of the others'.
func share(partitions, n, rank int) int {
	mine := partitions / n
	if rank < partitions%n {
		mine++
	}
	return mine
}

// keepLease renews the lease and takes and gives up partitions until ctx ends.
func (c *consumer) keepLease(ctx context.Context) error {
	told := newTeller(c.d.log, "partitions")
	if _, err := c.d.pool.Exec(ctx, forgetConsumers); err != nil && ctx.Err() == nil {
		told.tell(ctx, fmt.Errorf("forgetting consumers: %w", err))
	}
	for {
		turnCtx, cancel := context.WithTimeout(ctx, leaseTimeout)
		settled, err := c.leaseTurn(turnCtx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told.tell(ctx, err)
		c.note(&c.leaseError, err)
		if !c.leased() {
			c.dropAll()
		}
		next := leaseInterval
		if err != nil || !settled {
			next = unsettledInterval
		}
		if !pause(ctx, next) {
			return ctx.Err()
		}
	}
}

// leaseTurn reports whether every partition is where it belongs.
func (c *consumer) leaseTurn(ctx context.Context) (settled bool, err error) {
	asked := time.Now()
	rows, err := c.d.pool.Query(ctx, renewLease, c.id, consumerLease)
	if err != nil {
		return false, fmt.Errorf("renewing the lease on partitions: %w", err)
	}
	holders, err := pgx.CollectRows(rows, pgx.RowToStructByName[holder])
	if err != nil {
		return false, fmt.Errorf("renewing the lease on partitions: %w", err)
	}
	c.leasedUntil.Store(asked.Add(consumerLease - leaseGuard).Sub(c.started).Nanoseconds())

	total := int(c.partitions.Load())
	mine, free, rank := c.divide(holders, total)
	quota := share(total, max(len(holders), 1), rank)
	c.dropExcept(mine)
	if len(mine) > quota {
		if err := c.giveUp(ctx, mine[quota:]); err != nil {
			return false, err
		}
		mine = mine[:quota]
	}
	if want := min(quota-len(mine), len(free)); want > 0 {
		taken, err := c.take(ctx, free[:want])
		if err != nil {
			return false, err
		}
		mine = append(mine, taken...)
	}
	c.hold(mine)
	return len(mine) == quota, nil
}

// divide tells what this consumer holds, what nobody does, and its place among those that live.
func (c *consumer) divide(holders []holder, total int) (mine, free []int, rank int) {
	taken := make([]bool, total)
	ids := []string{c.id.String()}
	for _, h := range holders {
		if h.ID == c.id {
			mine = h.Partitions
		} else {
			ids = append(ids, h.ID.String())
		}
		for _, p := range h.Partitions {
			if p < total {
				taken[p] = true
			}
		}
	}
	for p, is := range taken {
		if !is {
			free = append(free, p)
		}
	}
	slices.Sort(ids)
	rank = slices.Index(ids, c.id.String())
	if len(free) > 0 {
		// Each begins elsewhere, so that those who look at the same moment want different ones.
		start := rank * len(free) / len(ids)
		free = slices.Concat(free[start:], free[:start])
	}
	return mine, free, rank
}

func (c *consumer) take(ctx context.Context, partitions []int) ([]int, error) {
	rows, err := c.d.pool.Query(ctx, takePartitions, c.id, partitions)
	if err != nil {
		return nil, fmt.Errorf("taking partitions: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("taking partitions: %w", err)
	}
	return taken, nil
}

// giveUp stops reading, writes how far it came, and frees the partitions for the others.
func (c *consumer) giveUp(ctx context.Context, partitions []int) error {
	gone := c.drop(partitions)
	c.settle(ctx, gone)
	if _, err := c.d.pool.Exec(ctx, freePartitions, c.id, partitions); err != nil {
		return fmt.Errorf("giving up partitions: %w", err)
	}
	return nil
}

// settle waits until no record of these claims is being processed, and writes their positions.
func (c *consumer) settle(ctx context.Context, gone []*claim) {
	select {
	case c.turnstile <- struct{}{}:
		<-c.turnstile
	case <-time.After(handOver):
	case <-ctx.Done():
	}
	if c.leased() {
		commitCtx, cancel := context.WithTimeout(ctx, handOver)
		defer cancel()
		if err := c.commit(commitCtx, gone); err != nil {
			c.d.log.WarnContext(ctx, "consumer.committing", "error", err.Error())
		}
	}
}

// leave hands everything over at once. What cannot be said is found out by the others when the lease ends.
func (c *consumer) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	c.settle(ctx, c.dropAll())
	if _, err := c.d.pool.Exec(ctx, leaveConsumers, c.id); err != nil {
		c.d.log.WarnContext(ctx, "consumer.leaving", "error", err.Error())
	}
}
