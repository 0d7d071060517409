package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/proto/events"
)

const (
	group        = "webhook-dispatcher"
	batchRecords = 500
	batchBytes   = 8 << 20
	// linger is how long a batch waits for more records. While one batch is committed the next one gathers anyway.
	linger = 3 * time.Millisecond
	// metadataTimeout bounds one look at the topic.
	metadataTimeout = 5 * time.Second
	maxBackoff      = 5 * time.Second
	absentInterval  = time.Second
	// recordsAhead wait for the next batch, beside those that each partition's reader holds.
	recordsAhead = 128
)

// errReadAnew ends one session of the consumer so that the next one begins.
var errReadAnew = errors.New("reading anew")

// consumer is one session of reading the topic: it holds partitions by leases in Postgres (consume_lease.go), reads each one
// by itself (consume_partition.go) and keeps its positions in the consumer group at Kafka, which has no members.
type consumer struct {
	d      *Dispatcher
	id     uuid.UUID
	loop   *ops.Loop
	dialer *kafka.Dialer
	client *kafka.Client

	// partitions of the topic.
	partitions atomic.Int32
	records    chan arrived
	// turnstile is held while records are processed.
	turnstile chan struct{}

	// leasedUntil is in nanoseconds since started.
	started     time.Time
	leasedUntil atomic.Int64

	mu sync.Mutex
	// mine are the partitions held, claims those of them that are being read.
	mine   map[int]bool
	claims map[int]*claim
	// wake says that mine has some without a claim.
	wake chan struct{}
	// committing keeps a later position from being overwritten by an earlier one.
	committing sync.Mutex
	readers    sync.WaitGroup

	// What hinders the work, for /readyz.
	leaseError, brokerError, openError, commitError atomic.Pointer[string]
	// consumedAt is when a batch was last done, in nanoseconds since started.
	consumedAt atomic.Int64
	// busy: a batch is in hand. While the database is away that takes long, and a new reader would not help.
	busy atomic.Bool
}

// arrived is a record and the claim under which it was read.
type arrived struct {
	claim  *claim
	record kafka.Message
}

// consume reads the topic until ctx ends. It starts without Kafka, waits for it, and begins anew after it was away.
func (d *Dispatcher) consume(ctx context.Context) error {
	loop := d.health.Loop("consume", time.Minute)
	told := newTeller(d.log, "consume")
	for {
		loop.Tick()
		partitions, err := d.findTopic(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if told.tell(ctx, err) {
			loop.Degraded(err.Error())
			if !pause(ctx, absentInterval) {
				return ctx.Err()
			}
			continue
		}
		loop.Degraded("")
		err = d.readTopic(ctx, loop, partitions)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told.tell(ctx, err)
	}
}

// readTopic is one session: until ctx ends, Kafka is away for long, or reading is to begin anew.
func (d *Dispatcher) readTopic(ctx context.Context, loop *ops.Loop, partitions int) error {
	dialer, err := d.config.Dialer("webhook-dispatcher")
	if err != nil {
		return err
	}
	transport, err := d.config.Transport("webhook-dispatcher", 0)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	c := &consumer{
		d: d, id: id.New(), loop: loop, dialer: dialer, client: &kafka.Client{Addr: d.config.Addr(), Transport: transport},
		records: make(chan arrived, recordsAhead), turnstile: make(chan struct{}, 1), started: time.Now(),
		claims: map[int]*claim{}, wake: make(chan struct{}, 1),
	}
	c.partitions.Store(int32(partitions)) //nolint:gosec // a number of partitions
	err = ops.Group(ctx, c.process, c.keepLease, c.keepOpen, c.keepPositions, c.watch)
	c.leave(ctx)
	c.readers.Wait()
	return err
}

// process materializes what the partitions' readers bring, batch by batch over all of them.
func (c *consumer) process(ctx context.Context) error {
	for {
		batch, err := c.gather(ctx)
		if err != nil {
			return err
		}
		c.turnstile <- struct{}{}
		err = c.processBatch(ctx, batch)
		<-c.turnstile
		if err != nil {
			return err
		}
	}
}

func (c *consumer) processBatch(ctx context.Context, batch []arrived) error {
	batch = slices.DeleteFunc(batch, func(a arrived) bool { return a.claim.gone.Load() })
	if len(batch) == 0 {
		return nil
	}
	records := make([]kafka.Message, 0, len(batch))
	for _, a := range batch {
		records = append(records, a.record)
	}
	c.busy.Store(true)
	err := c.d.materializeUntilDone(ctx, records, c.loop.Tick)
	c.busy.Store(false)
	if err != nil {
		return err
	}
	for _, a := range batch {
		if next := a.record.Offset + 1; next > a.claim.next.Load() {
			a.claim.next.Store(next)
		}
	}
	c.consumedAt.Store(int64(time.Since(c.started)))
	return nil
}

// findTopic answers how many partitions the topic has. It asks over a connection of its own, since a transport that is in use
// answers from memory.
func (d *Dispatcher) findTopic(ctx context.Context) (int, error) {
	transport, err := d.config.Transport("webhook-dispatcher", 0)
	if err != nil {
		return 0, err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	client := kafka.Client{Addr: d.config.Addr(), Transport: transport}
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{events.TopicOutboundWebhooks}})
	if err != nil {
		return 0, fmt.Errorf("waiting for Kafka: %w", err)
	}
	for _, topic := range answer.Topics {
		if topic.Error != nil {
			return 0, fmt.Errorf("waiting for the topic %s: %w", topic.Name, topic.Error)
		}
		if topic.Name == events.TopicOutboundWebhooks && len(topic.Partitions) > 0 {
			return len(topic.Partitions), nil
		}
	}
	return 0, fmt.Errorf("waiting for the topic %s", events.TopicOutboundWebhooks)
}

// gather waits for a record and takes those that come with it.
func (c *consumer) gather(ctx context.Context) ([]arrived, error) {
	idle := time.NewTicker(5 * time.Second)
	defer idle.Stop()
	var batch []arrived
	for batch == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-idle.C:
			c.loop.Tick()
		case record := <-c.records:
			batch = append(batch, record)
		}
	}
	c.loop.Tick()
	size := len(batch[0].record.Value)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for len(batch) < batchRecords && size < batchBytes {
		select {
		case record := <-c.records:
			batch = append(batch, record)
			size += len(record.record.Value)
		case <-timer.C:
			return batch, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return batch, nil
}

// materializeUntilDone tries one batch until it is in the database: an outage there is no fault of the records.
func (d *Dispatcher) materializeUntilDone(ctx context.Context, batch []kafka.Message, tick func()) error {
	told := newTeller(d.log, "materialize")
	backoff := 50 * time.Millisecond
	for {
		tick()
		turnCtx, cancel := context.WithTimeout(ctx, turnTimeout)
		err := d.materialize(turnCtx, batch)
		cancel()
		if err == nil {
			told.tell(ctx, nil)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errRecord) {
			// One of many is at fault: alone, each shows whether it is the one.
			if err = d.materializeEach(ctx, batch); err == nil {
				return nil
			}
		}
		told.tell(ctx, err)
		if !pause(ctx, backoff) {
			return ctx.Err()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}
