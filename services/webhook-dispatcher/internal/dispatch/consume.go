package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

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
)

// consume reads the topic in the consumer group, batch by batch, until ctx ends. It starts without Kafka and waits for it.
func (d *Dispatcher) consume(ctx context.Context) error {
	loop := d.health.Loop("consume", time.Minute)
	told := newTeller(d.log, "consume")
	dialer, err := d.config.Dialer("webhook-dispatcher")
	if err != nil {
		return err
	}
	// Without the topic the library would join, find no partition and join again, as fast as it can.
	for {
		loop.Tick()
		err := d.findTopic(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !told.tell(ctx, err) {
			loop.Degraded("")
			break
		}
		loop.Degraded(err.Error())
		if !pause(ctx, 2*time.Second) {
			return ctx.Err()
		}
	}
	for {
		if err := d.readTopic(ctx, dialer, loop); err != nil {
			return err
		}
	}
}

// readTopic reads as one member of the group, until ctx ends or the reader is to be made anew.
func (d *Dispatcher) readTopic(ctx context.Context, dialer *kafka.Dialer, loop *ops.Loop) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: d.config.Brokers,
		GroupID: d.group,
		Topic:   events.TopicOutboundWebhooks,
		Dialer:  dialer,
		// The position is written in the background: it lags behind what is committed to the database and never runs
		// ahead of it, and what is read twice is found to be there.
		CommitInterval:         100 * time.Millisecond,
		StartOffset:            kafka.FirstOffset,
		MinBytes:               1,
		MaxBytes:               4 << 20,
		MaxWait:                2 * time.Second,
		QueueCapacity:          batchRecords,
		ReadBackoffMin:         50 * time.Millisecond,
		ReadBackoffMax:         time.Second,
		HeartbeatInterval:      500 * time.Millisecond,
		SessionTimeout:         10 * time.Second,
		RebalanceTimeout:       10 * time.Second,
		JoinGroupBackoff:       time.Second,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: 5 * time.Second,
		MaxAttempts:            3,
		ReadLagInterval:        -1,
	})
	records := make(chan kafka.Message, batchRecords)
	fetchCtx, stop := context.WithCancel(ctx)
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		d.fetch(fetchCtx, reader, records, loop)
	}()
	defer func() {
		stop()
		<-fetched
		// Writes the last position and leaves the group, so that the others get its partitions at once.
		if err := reader.Close(); err != nil {
			d.log.WarnContext(ctx, "consumer.closing", "error", err.Error())
		}
	}()
	for {
		batch, err := gather(ctx, records, loop.Tick, d.rejoin)
		if err != nil || batch == nil {
			return err
		}
		d.lagging.busy.Store(true)
		err = d.materializeUntilDone(ctx, batch, loop.Tick)
		d.lagging.busy.Store(false)
		if err != nil {
			return err
		}
		commitCtx, cancel := context.WithTimeout(ctx, metadataTimeout)
		err = reader.CommitMessages(commitCtx, batch...)
		cancel()
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "consumer.committing", "error", err.Error())
		}
	}
}

// findTopic fails until the broker knows the topic.
func (d *Dispatcher) findTopic(ctx context.Context) error {
	transport, err := d.config.Transport("webhook-dispatcher", 0)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	client := kafka.Client{Addr: d.config.Addr(), Transport: transport}
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{events.TopicOutboundWebhooks}})
	if err != nil {
		return fmt.Errorf("waiting for Kafka: %w", err)
	}
	for _, topic := range answer.Topics {
		if topic.Error != nil {
			return fmt.Errorf("waiting for the topic %s: %w", topic.Name, topic.Error)
		}
	}
	return nil
}

// fetch passes records on. Errors are the broker's absence, which the reader mends by itself.
func (d *Dispatcher) fetch(ctx context.Context, reader *kafka.Reader, records chan<- kafka.Message, loop *ops.Loop) {
	told := newTeller(d.log, "fetch")
	for {
		record, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if told.tell(ctx, err) {
			loop.Degraded(err.Error())
			if !pause(ctx, 200*time.Millisecond) {
				return
			}
			continue
		}
		loop.Degraded("")
		select {
		case records <- record:
		case <-ctx.Done():
			return
		}
	}
}

// gather waits for a record and takes those that come with it. It answers none when the reader is to be made anew.
func gather(ctx context.Context, records <-chan kafka.Message, tick func(), rejoin <-chan struct{}) ([]kafka.Message, error) {
	idle := time.NewTicker(5 * time.Second)
	defer idle.Stop()
	var batch []kafka.Message
	for batch == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-idle.C:
			tick()
		case <-rejoin:
			return nil, nil
		case record := <-records:
			batch = append(batch, record)
		}
	}
	tick()
	size := len(batch[0].Value)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for len(batch) < batchRecords && size < batchBytes {
		select {
		case record := <-records:
			batch = append(batch, record)
			size += len(record.Value)
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
