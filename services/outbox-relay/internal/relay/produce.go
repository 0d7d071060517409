package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"apipay.io/hub/pkg/id"
)

// producer is the part of kafka.Client that a turn needs: one atomic batch to one partition.
type producer interface {
	Produce(ctx context.Context, request *kafka.ProduceRequest) (*kafka.ProduceResponse, error)
}

// errStale says that the claim is too old to be produced.
var errStale = errors.New("the claim is older than 5 s: this process was paused")

// result is what the broker said to one lane's batch: confirmed and parked together are a prefix of it.
type result struct {
	batch     *batch
	confirmed []confirmation
	parked    []parking
	// err ended the lane's part of the turn; nil when all of the batch is confirmed or parked.
	err error
}

type confirmation struct {
	id        uuid.UUID
	partition int32
	offset    int64
}

type parking struct {
	event  *event
	reason string
}

// publish produces every batch of a turn, each lane by itself: a failure ends its own lane's part only.
func (r *Relay) publish(ctx context.Context, claimedAt time.Time, batches []*batch) []result {
	ctx, cancel := context.WithTimeout(ctx, produceDeadline)
	defer cancel()
	results := make([]result, len(batches))
	if len(batches) == 1 {
		results[0] = r.publishLane(ctx, claimedAt, batches[0])
		return results
	}
	var wg sync.WaitGroup
	for i, b := range batches {
		wg.Go(func() { results[i] = r.publishLane(ctx, claimedAt, b) })
	}
	wg.Wait()
	return results
}

func (r *Relay) publishLane(ctx context.Context, claimedAt time.Time, b *batch) result {
	res := result{batch: b}
	partitions := r.topics.partitions(b.state.topic)
	if partitions == 0 {
		res.err = fmt.Errorf("the partitions of topic %s are not known: %w", b.state.topic, kafka.UnknownTopicOrPartition)
		return res
	}
	partition := int32(b.state.number) % partitions
	ctx, span := r.tracer.Start(ctx, "outbox.publish", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithLinks(linksOf(b.events)...),
		trace.WithAttributes(
			attribute.String("messaging.system", "kafka"),
			attribute.String("messaging.destination.name", b.state.topic),
			attribute.Int("messaging.destination.partition.id", int(partition)),
			attribute.Int("messaging.batch.message_count", len(b.events)),
			attribute.Int("apipay.outbox.lane", int(b.state.number))))
	defer span.End()
	res.err = r.send(ctx, claimedAt, &res, partition, b.events)
	if res.err != nil {
		span.SetStatus(codes.Error, res.err.Error())
	}
	return res
}

// send produces events as one batch. What the broker refuses for the records themselves is halved until the
// one at fault stands alone and is parked; the first other failure ends it.
func (r *Relay) send(ctx context.Context, claimedAt time.Time, res *result, partition int32, events []event) error {
	if time.Since(claimedAt) > maxClaimAge && len(res.confirmed)+len(res.parked) == 0 {
		return errStale
	}
	started := time.Now()
	base, err := r.sendBatch(ctx, res.batch.state.topic, partition, events)
	r.metrics.produced(ctx, res.batch.state.topic, time.Since(started), len(events), err)
	if err == nil {
		for i := range events {
			res.confirmed = append(res.confirmed, confirmation{events[i].id, partition, base + int64(i)})
		}
		return nil
	}
	if classify(err) != faultRecord {
		return err
	}
	if len(events) == 1 {
		res.parked = append(res.parked, parking{&events[0], reasonOf(err)})
		return nil
	}
	half := len(events) / 2
	if err := r.send(ctx, claimedAt, res, partition, events[:half]); err != nil {
		return err
	}
	return r.send(ctx, claimedAt, res, partition, events[half:])
}

// sendBatch answers the offset of the first record.
func (r *Relay) sendBatch(ctx context.Context, topic string, partition int32, events []event) (int64, error) {
	response, err := r.producer.Produce(ctx, &kafka.ProduceRequest{
		Topic:        topic,
		Partition:    int(partition),
		RequiredAcks: kafka.RequireAll,
		Records:      &recordReader{events: events},
	})
	if err != nil {
		return 0, fmt.Errorf("producing to %s: %w", topic, err)
	}
	if response.Error != nil {
		return 0, fmt.Errorf("producing to %s: %w", topic, response.Error)
	}
	return response.BaseOffset, nil
}

var contentType = []byte("application/json")

// recordReader shows events as Kafka records, one at a time, without an allocation per record: the client
// encodes each before it asks for the next. It must not outlive its events' turn unread, so events are never
// reused: a produce that timed out may still be reading them.
type recordReader struct {
	events  []event
	next    int
	record  kafka.Record
	key     field
	value   field
	keyText [36]byte
	headers [4]kafka.Header
}

func (r *recordReader) ReadRecord() (*kafka.Record, error) {
	if r.next == len(r.events) {
		return nil, io.EOF
	}
	e := &r.events[r.next]
	r.next++
	encodeUUID(&r.keyText, e.tenantID)
	r.key.Reset(r.keyText[:])
	r.value.Reset(e.payload)
	r.headers[0] = kafka.Header{Key: "event-id", Value: []byte(id.Format(id.Event, e.id))}
	r.headers[1] = kafka.Header{Key: "event-type", Value: []byte(e.kind)}
	r.headers[2] = kafka.Header{Key: "content-type", Value: contentType}
	headers := r.headers[:3]
	if e.traceparent != "" {
		r.headers[3] = kafka.Header{Key: "traceparent", Value: []byte(e.traceparent)}
		headers = r.headers[:4]
	}
	r.record = kafka.Record{Key: &r.key, Value: &r.value, Headers: headers}
	return &r.record, nil
}

type field struct{ bytes.Reader }

func (*field) Close() error { return nil }

// encodeUUID writes the canonical lower-case text, the same as outbox.Key.
func encodeUUID(to *[36]byte, u uuid.UUID) {
	const digits = "0123456789abcdef"
	at := 0
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			to[at] = '-'
			at++
		}
		to[at], to[at+1] = digits[b>>4], digits[b&0x0f]
		at += 2
	}
}

const (
	maxReason = 500
	// maxLinks is below the SDK's own limit of 128 links per span.
	maxLinks = 64
)

func reasonOf(err error) string {
	text := err.Error()
	return text[:min(len(text), maxReason)]
}

// linksOf ties a batch's span to the requests that its events came from.
func linksOf(events []event) []trace.Link {
	var links []trace.Link
	last := ""
	for i := range events {
		if text := events[i].traceparent; text != "" && text != last {
			last = text
			parent := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
			links = append(links, trace.Link{SpanContext: trace.SpanContextFromContext(parent)})
			if len(links) == maxLinks {
				break
			}
		}
	}
	return links
}
