package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

// topicTail reads what is added to a topic from the moment it was made.
type topicTail struct {
	client *kafka.Client
	topic  string
	next   map[int]int64 // by partition
}

// record is one event as the topic holds it.
type record struct {
	eventID   string
	partition int
	offset    int64
	value     []byte
}

func tailTopic(ctx context.Context, broker, topic string) (*topicTail, error) {
	t := &topicTail{client: &kafka.Client{Addr: kafka.TCP(broker)}, topic: topic, next: map[int]int64{}}
	metadata, err := t.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	var requests []kafka.OffsetRequest
	for _, found := range metadata.Topics {
		if found.Error != nil {
			return nil, found.Error
		}
		for _, partition := range found.Partitions {
			requests = append(requests, kafka.LastOffsetOf(partition.ID))
		}
	}
	offsets, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return nil, err
	}
	for _, partition := range offsets.Topics[topic] {
		if partition.Error != nil {
			return nil, partition.Error
		}
		t.next[partition.Partition] = partition.LastOffset
	}
	return t, nil
}

// find returns the event of that type about the object.
func (t *topicTail) find(ctx context.Context, eventType, objectID string) (record, error) {
	for {
		for partition := range t.next {
			found, ok, err := t.read(ctx, partition, eventType, objectID)
			if err != nil || ok {
				return found, err
			}
		}
		if ctx.Err() != nil {
			return record{}, fmt.Errorf("waiting for %s of %s on %s: %w", eventType, objectID, t.topic, ctx.Err())
		}
	}
}

func (t *topicTail) read(ctx context.Context, partition int, eventType, objectID string) (record, bool, error) {
	response, err := t.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: t.topic, Partition: partition, Offset: t.next[partition], MinBytes: 1, MaxBytes: 4 << 20, MaxWait: 20 * time.Millisecond,
	})
	if err != nil {
		return record{}, false, err
	}
	if response.Error != nil {
		return record{}, false, response.Error
	}
	for {
		r, err := response.Records.ReadRecord()
		if err != nil {
			return record{}, false, nil //nolint:nilerr // io.EOF, or a batch cut at MaxBytes: the rest comes with the next fetch
		}
		t.next[partition] = r.Offset + 1
		value, err := io.ReadAll(r.Value)
		if err != nil {
			return record{}, false, err
		}
		var envelope struct {
			ID, Type string
			Data     struct{ Object struct{ ID string } }
		}
		if err := json.Unmarshal(value, &envelope); err != nil {
			return record{}, false, fmt.Errorf("partition %d offset %d is no event: %w", partition, r.Offset, err)
		}
		if envelope.Type == eventType && envelope.Data.Object.ID == objectID {
			return record{eventID: envelope.ID, partition: partition, offset: r.Offset, value: value}, true, nil
		}
	}
}
