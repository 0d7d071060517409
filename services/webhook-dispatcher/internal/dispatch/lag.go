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
	lagInterval = 10 * time.Second
	// stallsAfter is how long records may wait without the group's position moving: longer than a broker's restart and
	// the leases after it.
	stallsAfter = time.Minute
	unknownLag  = -1
)

// lagging is what the watch over the consumer group remembers.
type lagging struct {
	// busy: a batch is in hand. While the database is away that takes long, and a new reader would not help.
	busy     atomic.Bool
	position int64
	moved    time.Time
}

// stalled says that records wait and that nobody has taken one for too long.
func (l *lagging) stalled(lag, position int64, now time.Time) bool {
	if position != l.position || lag == 0 || l.moved.IsZero() || l.busy.Load() {
		l.position, l.moved = position, now
		return false
	}
	return now.Sub(l.moved) >= stallsAfter
}

// watchLag measures how far the group is behind, by the broker's word, which stays true when the reader sleeps. Where
// records wait and nothing moves, the reader is made anew.
func (d *Dispatcher) watchLag(ctx context.Context) (time.Duration, error) {
	lag, position, err := d.lag(ctx)
	if err != nil {
		d.metrics.consumerLag.Store(unknownLag)
		return 0, err
	}
	d.metrics.consumerLag.Store(lag)
	now := d.clock()
	if !d.lagging.stalled(lag, position, now) {
		return 0, nil
	}
	d.lagging.moved = now
	select {
	case d.rejoin <- struct{}{}:
	default:
	}
	return 0, fmt.Errorf("the consumer stands still while %d records wait: reading begins anew", lag)
}

// lag answers how many records the group has not taken, and the sum of its positions.
func (d *Dispatcher) lag(ctx context.Context) (lag, position int64, err error) {
	transport, err := d.config.Transport("webhook-dispatcher", 0)
	if err != nil {
		return 0, 0, err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	client := kafka.Client{Addr: d.config.Addr(), Transport: transport}
	const topic = events.TopicOutboundWebhooks
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, 0, fmt.Errorf("measuring the lag: %w", err)
	}
	var partitions []int
	var ends []kafka.OffsetRequest
	for _, t := range metadata.Topics {
		if t.Error != nil {
			return 0, 0, fmt.Errorf("measuring the lag: %w", t.Error)
		}
		for _, p := range t.Partitions {
			partitions = append(partitions, p.ID)
			ends = append(ends, kafka.FirstOffsetOf(p.ID), kafka.LastOffsetOf(p.ID))
		}
	}
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ends}})
	if err != nil {
		return 0, 0, fmt.Errorf("measuring the lag: %w", err)
	}
	taken, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: d.group, Topics: map[string][]int{topic: partitions}})
	if err == nil {
		err = taken.Error
	}
	// A group that never had a member has no positions.
	if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
		return 0, 0, fmt.Errorf("measuring the lag: %w", err)
	}
	committed := map[int]int64{}
	for _, p := range taken.Topics[topic] {
		committed[p.Partition] = p.CommittedOffset
	}
	for _, p := range offsets.Topics[topic] {
		if p.Error != nil {
			return 0, 0, fmt.Errorf("measuring the lag: %w", p.Error)
		}
		// Retention of the topic may have passed a position, and one that was never written is -1.
		at := max(committed[p.Partition], p.FirstOffset)
		lag += max(0, p.LastOffset-at)
		position += at
	}
	return lag, position, nil
}
