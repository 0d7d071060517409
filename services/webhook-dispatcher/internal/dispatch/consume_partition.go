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
	// readerQueue is what one partition's reader holds ahead, in records.
	readerQueue = 32
	// fetchWait is how long the broker may hold a fetch without records; stopping takes as long at most.
	fetchWait = time.Second
	// positionInterval is how far the positions at Kafka may lag behind what is in the database. They never run ahead of it,
	// and what is read twice is found to be there.
	positionInterval = 250 * time.Millisecond
	// allPositionsInterval writes those that did not move, too: Kafka forgets positions of a group without members that are
	// not written for a week.
	allPositionsInterval = time.Minute
	positionTimeout      = 3 * time.Second
	openTimeout          = 10 * time.Second
)

// claim is one partition while this consumer holds it.
type claim struct {
	partition int
	cancel    context.CancelFunc
	// gone: given up, or lost. Its records are left to others.
	gone atomic.Bool
	// next is the offset after the last record that is in the database.
	next atomic.Int64
	// committed is guarded by consumer.committing.
	committed int64
	failure   atomic.Pointer[readFailure]
	// beyond is since when the position lies behind the end of the partition; the watch alone uses it.
	beyond time.Time
}

// hold says which partitions are to be read.
func (c *consumer) hold(partitions []int) {
	c.mu.Lock()
	c.mine = map[int]bool{}
	for _, p := range partitions {
		c.mine[p] = true
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// keepOpen begins to read what is held and not yet read. It has a loop of its own, so that a slow broker costs no lease.
func (c *consumer) keepOpen(ctx context.Context) error {
	told := newTeller(c.d.log, "open")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		openCtx, cancel := context.WithTimeout(ctx, openTimeout)
		err := c.open(openCtx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note(&c.openError, err)
		if told.tell(ctx, err) && !pause(ctx, unsettledInterval) {
			return ctx.Err()
		}
	}
}

// readFailure is what a reader last told. It tells nothing when it is well again and there are no records: a failure that is not
// repeated is over.
type readFailure struct {
	err error
	at  time.Time
}

const failureLasts = 5 * time.Second

// open starts to read at the positions in the consumer group.
func (c *consumer) open(ctx context.Context) error {
	var missing []int
	c.mu.Lock()
	for p := range c.mine {
		if c.claims[p] == nil {
			missing = append(missing, p)
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	positions, err := c.positions(ctx, missing)
	if err != nil {
		return err
	}
	for p, at := range positions {
		c.start(p, at)
	}
	return nil
}

// positions are where to begin. A position outside of what the broker has is of a topic that was made anew, or whose records
// are past retention: then the first record is next, and what was processed before is found to be.
func (c *consumer) positions(ctx context.Context, partitions []int) (map[int]int64, error) {
	const topic = events.TopicOutboundWebhooks
	committed, err := c.committed(ctx, partitions)
	if err != nil {
		return nil, err
	}
	var bounds []kafka.OffsetRequest
	for _, p := range partitions {
		bounds = append(bounds, kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
	}
	listed, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: bounds}})
	if err != nil {
		return nil, fmt.Errorf("reading the bounds of partitions: %w", err)
	}
	positions := map[int]int64{}
	for _, p := range listed.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("reading the bounds of partition %d: %w", p.Partition, p.Error)
		}
		at, known := committed[p.Partition]
		switch {
		case !known || at < 0:
			at = p.FirstOffset
		case at < p.FirstOffset || at > p.LastOffset:
			c.d.log.WarnContext(ctx, "consumer.position_out_of_range", "partition", p.Partition, "position", at,
				"first", p.FirstOffset, "last", p.LastOffset)
			at = p.FirstOffset
		}
		positions[p.Partition] = at
	}
	return positions, nil
}

// committed are the positions in the consumer group. One that was never written is missing, or below 0.
func (c *consumer) committed(ctx context.Context, partitions []int) (map[int]int64, error) {
	const topic = events.TopicOutboundWebhooks
	fetched, err := c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.d.group, Topics: map[string][]int{topic: partitions}})
	if err == nil {
		err = fetched.Error
	}
	committed := map[int]int64{}
	if errors.Is(err, kafka.GroupIdNotFound) {
		// A group that nobody wrote a position for does not exist for some brokers.
		return committed, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading positions: %w", err)
	}
	for _, p := range fetched.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("reading the position in partition %d: %w", p.Partition, p.Error)
		}
		committed[p.Partition] = p.CommittedOffset
	}
	return committed, nil
}

// start reads a partition, unless it was lost or given up meanwhile.
func (c *consumer) start(partition int, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mine[partition] {
		return
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:         c.d.config.Brokers,
		Topic:           events.TopicOutboundWebhooks,
		Partition:       partition,
		Dialer:          c.dialer,
		MinBytes:        1,
		MaxBytes:        2 << 20,
		MaxWait:         fetchWait,
		QueueCapacity:   readerQueue,
		ReadBackoffMin:  50 * time.Millisecond,
		ReadBackoffMax:  time.Second,
		MaxAttempts:     3,
		ReadLagInterval: -1,
	})
	// A reader without a group that has not started yet takes any offset.
	_ = reader.SetOffset(at)
	ctx, cancel := context.WithCancel(context.Background())
	cl := &claim{partition: partition, cancel: cancel, committed: -1}
	cl.next.Store(at)
	c.claims[partition] = cl
	c.readers.Go(func() {
		c.fetch(ctx, cl, reader)
		_ = reader.Close() // it only waits for its goroutines
	})
}

// fetch passes records on. Errors are the broker's absence, which the reader mends by itself; the watch tells them, since each
// partition has one.
func (c *consumer) fetch(ctx context.Context, cl *claim, reader *kafka.Reader) {
	for {
		record, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			cl.failure.Store(&readFailure{err, time.Now()})
			if !pause(ctx, 200*time.Millisecond) {
				return
			}
			continue
		}
		cl.failure.Store(nil)
		select {
		case c.records <- arrived{cl, record}:
		case <-ctx.Done():
			return
		}
	}
}

// drop stops the reading of partitions and answers their claims. Records in hand are finished, later ones are left.
func (c *consumer) drop(partitions []int) (gone []*claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range partitions {
		delete(c.mine, p)
		if cl := c.claims[p]; cl != nil {
			cl.gone.Store(true)
			cl.cancel()
			delete(c.claims, p)
			gone = append(gone, cl)
		}
	}
	return gone
}

func (c *consumer) dropAll() []*claim {
	c.hold(nil)
	return c.dropExcept(nil)
}

func (c *consumer) dropExcept(mine []int) []*claim {
	keep := map[int]bool{}
	for _, p := range mine {
		keep[p] = true
	}
	var others []int
	for _, cl := range c.held() {
		if !keep[cl.partition] {
			others = append(others, cl.partition)
		}
	}
	return c.drop(others)
}

func (c *consumer) held() (claims []*claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.claims {
		claims = append(claims, cl)
	}
	return claims
}

// leased reports whether what this consumer holds is surely its own.
func (c *consumer) leased() bool { return int64(time.Since(c.started)) < c.leasedUntil.Load() }

// keepPositions writes the positions in the background.
func (c *consumer) keepPositions(ctx context.Context) error {
	told := newTeller(c.d.log, "commit")
	ticker := time.NewTicker(positionInterval)
	defer ticker.Stop()
	all := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if !c.leased() {
			continue
		}
		if time.Since(all) > allPositionsInterval {
			all = time.Now()
			c.forgetCommitted()
		}
		commitCtx, cancel := context.WithTimeout(ctx, positionTimeout)
		err := c.commit(commitCtx, c.held())
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note(&c.commitError, err)
		if told.tell(ctx, err) && !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

func (c *consumer) forgetCommitted() {
	c.committing.Lock()
	defer c.committing.Unlock()
	for _, cl := range c.held() {
		cl.committed = -1
	}
}

// commit writes the positions that moved. The group has no members: the leases say who may.
func (c *consumer) commit(ctx context.Context, claims []*claim) error {
	c.committing.Lock()
	defer c.committing.Unlock()
	var moved []kafka.OffsetCommit
	for _, cl := range claims {
		if next := cl.next.Load(); next != cl.committed {
			moved = append(moved, kafka.OffsetCommit{Partition: cl.partition, Offset: next})
		}
	}
	if len(moved) == 0 {
		return nil
	}
	answer, err := c.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: c.d.group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{events.TopicOutboundWebhooks: moved},
	})
	if err != nil {
		return fmt.Errorf("writing positions: %w", err)
	}
	refused := map[int]error{}
	for _, p := range answer.Topics[events.TopicOutboundWebhooks] {
		if p.Error != nil {
			refused[p.Partition] = p.Error
		}
	}
	for _, m := range moved {
		for _, cl := range claims {
			if cl.partition == m.Partition && refused[m.Partition] == nil {
				cl.committed = m.Offset
			}
		}
	}
	for p, err := range refused {
		return fmt.Errorf("writing the position in partition %d: %w", p, err)
	}
	return nil
}
