package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"apipay.io/hub/proto/events"
)

const (
	watchInterval = 2 * time.Second
	watchTimeout  = 3 * time.Second
	// absentAfter is how long Kafka may be away before this consumer frees its partitions for those that may reach it.
	absentAfter = 15 * time.Second
	// idleAfter is how long records may wait without one being processed before /readyz says so, and anewAfter before the
	// partitions are freed and reading begins anew: a reader that sleeps may wake by that.
	idleAfter = 30 * time.Second
	anewAfter = time.Minute
	// beyondAfter is how long a position may lie behind the end of its partition: a new leader may take a moment to know the end.
	beyondAfter = 10 * time.Second
	unknownLag  = -1
)

var errKafkaAway = errors.New("reading stops while Kafka is away")

// note keeps what hinders the work, or that nothing does.
func (c *consumer) note(where *atomic.Pointer[string], err error) {
	if err == nil {
		where.Store(nil)
		return
	}
	text := err.Error()
	where.Store(&text)
}

// watch asks the broker how far the partitions go, since a reader without records looks the same whether there are none, it
// sleeps, or the broker is away. It tells /readyz and the metric of the lag what it sees, and ends the session where a new one
// may help.
func (c *consumer) watch(ctx context.Context) error {
	told := newTeller(c.d.log, "read")
	defer c.d.metrics.consumerLag.Store(unknownLag)
	seen, waiting := time.Now(), time.Now()
	for {
		turnCtx, cancel := context.WithTimeout(ctx, watchTimeout)
		waits, lag, err := c.lookAhead(turnCtx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note(&c.brokerError, err)
		c.d.metrics.consumerLag.Store(lag)
		now := time.Now()
		if err == nil {
			seen = now
		}
		if err == nil && waits == 0 || c.consumedAt.Load() > int64(waiting.Sub(c.started)) {
			waiting = now
		}
		hindrance := c.hindrance(waits, now.Sub(waiting))
		if told.tell(ctx, hindrance) {
			c.loop.Degraded(hindrance.Error())
		} else {
			c.loop.Degraded("")
		}
		if err := c.over(now.Sub(seen), now.Sub(waiting), err); err != nil {
			return err
		}
		if !pause(ctx, watchInterval) {
			return ctx.Err()
		}
	}
}

// over says why the session is to end, if it is. While a batch is in hand it is the database that records wait for.
func (c *consumer) over(unseen, waited time.Duration, err error) error {
	switch {
	case unseen > absentAfter:
		return fmt.Errorf("%w: %w", errKafkaAway, err)
	case unseen == 0 && waited > anewAfter && !c.busy.Load():
		return fmt.Errorf("%w: records wait and none was processed for %s", errReadAnew, waited.Round(time.Second))
	}
	return nil
}

func (c *consumer) hindrance(waits int64, waited time.Duration) error {
	for _, reason := range []*atomic.Pointer[string]{&c.brokerError, &c.leaseError, &c.openError, &c.commitError} {
		if text := reason.Load(); text != nil {
			return errors.New(*text)
		}
	}
	for _, cl := range c.held() {
		if f := cl.failure.Load(); f != nil && time.Since(f.at) < failureLasts {
			return fmt.Errorf("reading partition %d: %w", cl.partition, f.err)
		}
	}
	if waited > idleAfter {
		return fmt.Errorf("%d records wait and none was processed for %s", waits, waited.Round(time.Second))
	}
	return nil
}

// lookAhead answers how many records wait in the partitions held, and in all, by the broker's word.
func (c *consumer) lookAhead(ctx context.Context) (waits, lag int64, err error) {
	const topic = events.TopicOutboundWebhooks
	var ids []int
	var bounds []kafka.OffsetRequest
	for p := range int(c.partitions.Load()) {
		ids = append(ids, p)
		bounds = append(bounds, kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
	}
	listed, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: bounds}})
	if err != nil {
		return 0, unknownLag, fmt.Errorf("asking Kafka: %w", err)
	}
	committed, err := c.committed(ctx, ids)
	if err != nil {
		return 0, unknownLag, err
	}
	held := map[int]*claim{}
	for _, cl := range c.held() {
		held[cl.partition] = cl
	}
	for _, p := range listed.Topics[topic] {
		if p.Error != nil {
			return 0, unknownLag, fmt.Errorf("asking Kafka about partition %d: %w", p.Partition, p.Error)
		}
		cl := held[p.Partition]
		if cl == nil {
			// Retention of the topic may have passed a position, and one that was never written is -1.
			lag += max(0, p.LastOffset-max(committed[p.Partition], p.FirstOffset))
			continue
		}
		n := max(0, p.LastOffset-cl.next.Load())
		waits, lag = waits+n, lag+n
		c.reopenBeyond(cl, p.LastOffset)
	}
	// The transport answers this from what it learns every few seconds anyway.
	metadata, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, unknownLag, fmt.Errorf("asking Kafka: %w", err)
	}
	for _, t := range metadata.Topics {
		if t.Name == topic && t.Error == nil && len(t.Partitions) > 0 {
			c.partitions.Store(int32(len(t.Partitions))) //nolint:gosec // a number of partitions
		}
	}
	return waits, lag, nil
}

// reopenBeyond begins a partition anew that ends before the position: the topic was made anew, or the broker lost records. A
// reader would wait there until as many have come again, and miss them.
func (c *consumer) reopenBeyond(cl *claim, last int64) {
	switch {
	case cl.next.Load() <= last:
		cl.beyond = time.Time{}
	case cl.beyond.IsZero():
		cl.beyond = time.Now()
	case time.Since(cl.beyond) > beyondAfter:
		c.drop([]int{cl.partition})
	}
}
