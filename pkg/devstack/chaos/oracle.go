package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
)

// oracles in the order in which they are told.
var oracles = []struct{ name, what string }{
	{"L", "every committed id was consumed"},
	{"G", "nothing was consumed that was not committed"},
	{"K", "one tenant, one partition, the one that a Java client picks"},
	{"O1", "first occurrences per object have versions 1, 2, 3 ..."},
	{"O2", "per tenant, the steps of one sequential session never invert"},
	{"D", "duplicates have the same id and bytes, and are at most what was in flight at a fault"},
}

// record is one record as a reader sees it.
type record struct {
	topic     string
	partition int
	offset    int64
	key       string
	value     []byte
	eventID   string
}

// reader takes every partition from offset 0, as far as it has come.
type reader struct {
	client  *kafka.Client
	offsets map[string]map[int]int64
	records []record
	seen    map[string]bool
	// duplicates counts occurrences after the first.
	duplicates int
}

func newReader(addr string) *reader {
	return &reader{
		client:  &kafka.Client{Addr: kafka.TCP(addr), Transport: &kafka.Transport{}},
		offsets: map[string]map[int]int64{topic: {}, spareTopic: {}}, seen: map[string]bool{},
	}
}

// catchUp reads up to the present end of the topics.
func (r *reader) catchUp(ctx context.Context) error {
	for name, offsets := range r.offsets {
		metadata, err := r.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
		if err != nil {
			return err
		}
		if err := metadata.Topics[0].Error; err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
		for _, partition := range metadata.Topics[0].Partitions {
			for more := true; more; {
				before := offsets[partition.ID]
				end, err := r.fetch(ctx, name, partition.ID)
				if err != nil {
					return fmt.Errorf("reading %s/%d: %w", name, partition.ID, err)
				}
				more = offsets[partition.ID] < end && offsets[partition.ID] > before
				if offsets[partition.ID] < end && !more {
					return fmt.Errorf("reading %s/%d: stuck at %d of %d", name, partition.ID, before, end)
				}
			}
		}
	}
	return nil
}

func (r *reader) fetch(ctx context.Context, topic string, partition int) (end int64, err error) {
	next := r.offsets[topic][partition]
	response, err := r.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: topic, Partition: partition, Offset: next, MinBytes: 0, MaxBytes: 10 << 20, MaxWait: 10 * time.Millisecond,
	})
	if err == nil {
		err = response.Error
	}
	if err != nil {
		return 0, err
	}
	for {
		got, err := response.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			r.offsets[topic][partition] = next
			return response.HighWatermark, nil
		}
		if err != nil {
			return 0, err
		}
		if got.Offset < next { // the batch began before
			continue
		}
		one := record{topic: topic, partition: partition, offset: got.Offset}
		key, err := kafka.ReadAll(got.Key)
		if err != nil {
			return 0, err
		}
		if one.value, err = kafka.ReadAll(got.Value); err != nil {
			return 0, err
		}
		one.key = string(key)
		for _, h := range got.Headers {
			if h.Key == "event-id" {
				one.eventID = string(h.Value)
			}
		}
		if r.seen[one.eventID] {
			r.duplicates++
		}
		r.seen[one.eventID] = true
		r.records = append(r.records, one)
		next = got.Offset + 1
	}
}

// fact is what a writer says it did.
type fact struct {
	EventID  uuid.UUID
	Topic    string
	TenantID uuid.UUID
	ObjectID uuid.UUID
	Version  int
	Session  int
	Step     int
}

// judge holds the topics against the truth. It answers what does not fit, by oracle.
func (w *world) judge(ctx context.Context, records []record) (violations map[string]string, facts int, err error) {
	rows, err := w.super.Query(ctx, `SELECT event_id, topic, tenant_id, object_id, version, session, step FROM public.truth`)
	if err != nil {
		return nil, 0, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[fact])
	if err != nil {
		return nil, 0, err
	}
	truth := make(map[string]fact, len(all))
	for _, f := range all {
		truth[eventText(f.EventID)] = f
	}
	return judge(truth, records), len(all), nil
}

func judge(truth map[string]fact, records []record) map[string]string {
	found := map[string]string{}
	say := func(oracle, format string, args ...any) {
		if found[oracle] == "" {
			found[oracle] = fmt.Sprintf(format, args...)
		}
	}
	type session struct {
		tenant uuid.UUID
		number int
	}
	first, versions, steps := map[string][]byte{}, map[uuid.UUID]int{}, map[session]int{}
	for _, r := range records {
		f, ok := truth[r.eventID]
		if !ok {
			say("G", "%s/%d@%d: %q was never committed", r.topic, r.partition, r.offset, r.eventID)
			continue
		}
		var e envelope
		if err := json.Unmarshal(r.value, &e); err != nil || e.ID != f.EventID || e.Version != f.Version || r.topic != f.Topic {
			say("G", "%s/%d@%d: the record of %s is not the event's", r.topic, r.partition, r.offset, r.eventID)
		}
		if java := lane(f.TenantID) % partitions; r.key != f.TenantID.String() || r.partition != java {
			say("K", "tenant %s has key %s on partition %d, not %d", f.TenantID, r.key, r.partition, java)
		}
		if before, again := first[r.eventID]; again {
			if !bytes.Equal(before, r.value) {
				say("D", "%s came twice with different bytes", r.eventID)
			}
			continue
		}
		first[r.eventID] = r.value
		if f.Version != versions[f.ObjectID]+1 {
			say("O1", "object %s: version %d after %d", f.ObjectID, f.Version, versions[f.ObjectID])
		}
		versions[f.ObjectID] = f.Version
		if f.Session == noSession {
			continue
		}
		s := session{f.TenantID, f.Session}
		if f.Step < steps[s] {
			say("O2", "tenant %s, session %d: step %d after %d", f.TenantID, f.Session, f.Step, steps[s])
		}
		steps[s] = max(steps[s], f.Step)
	}
	if len(first) != len(truth) {
		say("L", "%d of %d committed events were consumed", len(first), len(truth))
	}
	return found
}

// partitions of each topic.
const partitions = 16

// eventText is an id's evt_ form: 128 bits in 26 characters of Crockford's base32.
func eventText(id uuid.UUID) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	rest, low := new(big.Int).SetBytes(id[:]), new(big.Int)
	text := make([]byte, 26)
	for i := range text {
		rest.DivMod(rest, big.NewInt(int64(len(digits))), low)
		text[len(text)-1-i] = digits[low.Int64()]
	}
	return "evt_" + string(text)
}
