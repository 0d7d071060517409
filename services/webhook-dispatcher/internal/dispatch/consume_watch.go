package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// idleAfter is how long records may wait without one being processed before /readyz says so.
	idleAfter = 30 * time.Second
	// beyondAfter is how long a position may lie behind the end of its partition: a new leader may take a moment to know the end.
	beyondAfter = 10 * time.Second
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

// watch asks the broker how far the partitions go, and tells /readyz what it sees: a reader without records looks the same
// whether there are none or the broker is away.
func (c *consumer) watch(ctx context.Context) error {
	told := newTeller(c.d.log, "read")
	seen, waiting := time.Now(), time.Now()
	for {
		turnCtx, cancel := context.WithTimeout(ctx, watchTimeout)
		lag, err := c.lookAhead(turnCtx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note(&c.brokerError, err)
		now := time.Now()
		if err == nil {
			seen = now
		}
		if err == nil && lag == 0 || c.consumedAt.Load() > int64(waiting.Sub(c.started)) {
			waiting = now
		}
		hindrance := c.hindrance(lag, now.Sub(waiting))
		if told.tell(ctx, hindrance) {
			c.loop.Degraded(hindrance.Error())
		} else {
			c.loop.Degraded("")
		}
		if now.Sub(seen) > absentAfter {
			return fmt.Errorf("%w: %w", errKafkaAway, err)
		}
		if !pause(ctx, watchInterval) {
			return ctx.Err()
		}
	}
}

func (c *consumer) hindrance(lag int64, waited time.Duration) error {
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
		return fmt.Errorf("%d records wait and none was processed for %s", lag, waited.Round(time.Second))
	}
	return nil
}

// lookAhead answers how many records wait in the partitions held. Without any it asks about one all the same, to see the
// broker.
func (c *consumer) lookAhead(ctx context.Context) (lag int64, err error) {
	claims := c.held()
	ends := []kafka.OffsetRequest{}
	for _, cl := range claims {
		ends = append(ends, kafka.LastOffsetOf(cl.partition))
	}
	if len(ends) == 0 {
		ends = append(ends, kafka.LastOffsetOf(0))
	}
	const topic = events.TopicOutboundWebhooks
	listed, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ends}})
	if err != nil {
		return 0, fmt.Errorf("asking Kafka: %w", err)
	}
	for _, p := range listed.Topics[topic] {
		if p.Error != nil {
			return 0, fmt.Errorf("asking Kafka about partition %d: %w", p.Partition, p.Error)
		}
		i := slices.IndexFunc(claims, func(cl *claim) bool { return cl.partition == p.Partition })
		if i < 0 {
			continue
		}
		lag += max(0, p.LastOffset-claims[i].next.Load())
		c.reopenBeyond(claims[i], p.LastOffset)
	}
	// The transport answers this from what it learns every few seconds anyway.
	metadata, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, fmt.Errorf("asking Kafka: %w", err)
	}
	for _, t := range metadata.Topics {
		if t.Name == topic && t.Error == nil && len(t.Partitions) > 0 {
			c.partitions.Store(int32(len(t.Partitions))) //nolint:gosec // a number of partitions
		}
	}
	return lag, nil
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
