// Package outbox writes business events into apipay.outbox_events, in the caller's transaction: the event
// commits with the state that it tells of, or not at all. It owns the envelope, the record's key and lane,
// and the audit log, whose every entry is an event too.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel/propagation"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// The topics, by who reads them.
const (
	TopicWebhooks = events.TopicOutboundWebhooks // what merchants are told
	TopicPayments = events.TopicPaymentEvents    // facts for ledger, risk and analytics
	TopicAudit    = events.TopicAudit            // who did what
)

const (
	// MaxBytes is the largest envelope.
	MaxBytes = events.MaxSize
	// Lanes is the number of lanes of each topic. The partition count divides it, so that a lane lies
	// inside one partition.
	Lanes = 64
)

// ErrTooLarge says that an envelope would exceed [MaxBytes].
var ErrTooLarge = errors.New("the event is larger than 256 KiB")

// Request tells which call caused an event; both members may be empty.
type Request struct {
	ID             string
	IdempotencyKey string
}

// Event is one fact about one object. Object is marshaled as data.object, as the API shows it.
type Event struct {
	TenantID uuid.UUID
	Livemode bool
	Topic    string
	Type     string
	Object   any
	Request  Request
}

type envelope struct {
	ID         string           `json:"id"`
	Type       string           `json:"type"`
	Created    int64            `json:"created"`
	Livemode   bool             `json:"livemode"`
	APIVersion string           `json:"api_version"`
	Request    *envelopeRequest `json:"request"`
	Data       envelopeData     `json:"data"`
}

type envelopeRequest struct {
	ID             *string `json:"id"`
	IdempotencyKey *string `json:"idempotency_key"`
}

type envelopeData struct {
	Object jsontext.Value `json:"object"`
}

// Insert writes a list of events, in their order, and returns their ids. Call it AFTER the statement that locked the
// object's row: seq, which is the order within an object, is assigned here. It fails with [ErrTooLarge].
func Insert(ctx context.Context, tx postgres.Tx, list ...Event) ([]uuid.UUID, error) {
	batch := &pgx.Batch{}
	ids, err := queue(ctx, batch, tx.Now, 0, list)
	if err != nil {
		return nil, err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("inserting outbox events: %w", err)
	}
	return ids, nil
}

// Queue adds the insert of Insert, one statement for the whole list, to a batch of the caller's, so that it shares its
// round trip. now is the transaction's [postgres.Tx.Now].
func Queue(ctx context.Context, batch *pgx.Batch, now time.Time, list ...Event) ([]uuid.UUID, error) {
	// Ids of one transaction sort as they were queued: after every argument, and so after every event, of the batch.
	var order int
	for _, queued := range batch.QueuedQueries {
		order += len(queued.Arguments)
	}
	return queue(ctx, batch, now, uint16(order), list)
}

const (
	eventColumns = "id, tenant_id, livemode, topic, lane, type, payload, traceparent"
	columnsCount = 8
)

// queue inserts the list by one VALUES clause: its rows, and with them the values of seq, come in the order written.
func queue(ctx context.Context, batch *pgx.Batch, now time.Time, order uint16, list []Event) ([]uuid.UUID, error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, 0, len(list))
	args := make([]any, 0, columnsCount*len(list))
	traceparent := traceparentOf(ctx)
	for _, event := range list {
		eventID := id.NewAt(now, order)
		order++
		payload, err := encode(eventID, now, event)
		if err != nil {
			return nil, err
		}
		args = append(args, eventID, event.TenantID, event.Livemode, event.Topic, Lane(event.TenantID), event.Type, payload, traceparent)
		ids = append(ids, eventID)
	}
	batch.Queue(insertEvents(len(list)), args...)
	return ids, nil
}

// insertEvents is the statement for n events.
func insertEvents(n int) string {
	var query strings.Builder
	query.WriteString("INSERT INTO apipay.outbox_events (" + eventColumns + ") VALUES ")
	for i := range n {
		if i > 0 {
			query.WriteString(", ")
		}
		for column := range columnsCount {
			query.WriteString([]string{"(", ", "}[min(column, 1)] + "$" + strconv.Itoa(i*columnsCount+column+1))
		}
		query.WriteByte(')')
	}
	return query.String()
}

func encode(eventID uuid.UUID, now time.Time, event Event) ([]byte, error) {
	object, err := json.Marshal(event.Object, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encoding the object of %s: %w", event.Type, err)
	}
	payload, err := json.Marshal(envelope{
		ID:         id.Format(id.Event, eventID),
		Type:       event.Type,
		Created:    now.Unix(),
		Livemode:   event.Livemode,
		APIVersion: events.APIVersion,
		Request: &envelopeRequest{
			ID:             optional(event.Request.ID),
			IdempotencyKey: optional(event.Request.IdempotencyKey),
		},
		Data: envelopeData{Object: object},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the envelope of %s: %w", event.Type, err)
	}
	if len(payload) > MaxBytes {
		return nil, fmt.Errorf("%s: %w", event.Type, ErrTooLarge)
	}
	return payload, nil
}

// Key is the record key of a tenant: its UUID as canonical lower-case text.
func Key(tenantID uuid.UUID) []byte { return []byte(tenantID.String()) }

var lanes = func() []int {
	all := make([]int, Lanes)
	for i := range all {
		all[i] = i
	}
	return all
}()

// Lane is (murmur2(key) & 0x7fffffff) % 64, the hash of the Java client's partitioner: with a partition
// count that divides 64, lane % partitions is the record's partition.
func Lane(tenantID uuid.UUID) int16 {
	return int16(kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: Key(tenantID)}, lanes...)) //nolint:gosec // below 64
}

func traceparentOf(ctx context.Context) *string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return optional(carrier["traceparent"])
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
