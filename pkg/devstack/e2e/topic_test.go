package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

// record is one record of a topic, with what the oracles need.
type record struct {
	partition int
	offset    int64
	key       string
	id        string
	eventType string
	object    string
	version   int
	value     []byte
}

// readTopic reads every partition from offset 0 to its end.
func (h *hub) readTopic(t *testing.T, topic string) []record {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(h.Kafka.Brokers...), Timeout: 10 * time.Second, Transport: &kafka.Transport{}}
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	metadata, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{topic}})
	require.NoError(t, err)
	require.Len(t, metadata.Topics, 1)
	require.NoError(t, metadata.Topics[0].Error)
	var all []record
	for _, partition := range metadata.Topics[0].Partitions {
		offsets, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(partition.ID)}}})
		require.NoError(t, err)
		end := offsets.Topics[topic][0].LastOffset
		for next := int64(0); next < end; {
			fetched, err := client.Fetch(t.Context(), &kafka.FetchRequest{Topic: topic, Partition: partition.ID, Offset: next,
				MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second})
			require.NoError(t, err)
			require.NoError(t, fetched.Error)
			for {
				r, err := fetched.Records.ReadRecord()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				if r.Offset < next {
					continue
				}
				all = append(all, parse(t, partition.ID, r))
				next = r.Offset + 1
			}
		}
	}
	return all
}

func parse(t *testing.T, partition int, r *kafka.Record) record {
	t.Helper()
	key, err := kafka.ReadAll(r.Key)
	require.NoError(t, err)
	value, err := kafka.ReadAll(r.Value)
	require.NoError(t, err)
	// Whatever the services emit keeps to its contract in proto/, with no member beyond it.
	_, err = events.ParseStrict(value)
	require.NoError(t, err, "%s", value)
	var envelope struct {
		ID   string `json:"id"`
		Type string `json:"type"`
		Data struct {
			Object struct {
				ID      string `json:"id"`
				Version int    `json:"version"`
			} `json:"object"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(value, &envelope))
	for _, header := range r.Headers {
		switch header.Key {
		case "event-id":
			require.Equal(t, envelope.ID, string(header.Value))
		case "event-type":
			require.Equal(t, envelope.Type, string(header.Value))
		}
	}
	return record{partition: partition, offset: r.Offset, key: string(key), id: envelope.ID, eventType: envelope.Type,
		object: envelope.Data.Object.ID, version: envelope.Data.Object.Version, value: value}
}

// requireOrder holds a topic's records against the guarantees: one partition per key, per object the
// versions 1, 2, 3 ... by first occurrence, and a duplicate has the same bytes. It answers how many records
// were duplicates.
func requireOrder(t *testing.T, records []record) (duplicates int) {
	t.Helper()
	partitionOf := map[string]int{}
	version := map[string]int{}
	seen := map[string]record{}
	for _, r := range records {
		if first, ok := seen[r.id]; ok {
			require.Equal(t, string(first.value), string(r.value), "a duplicate of %s has other bytes", r.id)
			duplicates++
			continue
		}
		seen[r.id] = r
		if partition, ok := partitionOf[r.key]; ok {
			require.Equal(t, partition, r.partition, "key %s lies in two partitions", r.key)
		}
		partitionOf[r.key] = r.partition
		if r.version > 0 {
			require.Equal(t, version[r.object]+1, r.version, "%s of %s", r.eventType, r.object)
			version[r.object] = r.version
		}
	}
	return duplicates
}
