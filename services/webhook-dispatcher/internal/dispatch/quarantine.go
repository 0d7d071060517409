package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

const (
	replayInterval = 2 * time.Second
	replayBatch    = 20
	maxDetailBytes = 1000
)

const insertQuarantined = `
	INSERT INTO apipay.quarantined_records (id, tenant_id, kafka_topic, kafka_partition, kafka_offset, key, value, headers, reason, detail)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
	ON CONFLICT (kafka_topic, kafka_partition, kafka_offset) DO NOTHING`

// quarantine keeps records that can never be processed, with where they were and why.
func (d *Dispatcher) quarantine(ctx context.Context, tx postgres.Tx, refusals []refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	for _, r := range refusals {
		batch.Queue(insertQuarantined, id.NewAt(tx.Now, 0), r.tenantID, r.record.Topic, r.record.Partition, r.record.Offset,
			r.record.Key, r.record.Value, encodeHeaders(r.record.Headers), r.reason, fitText(r.detail))
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("quarantining records: %w", err)
	}
	for _, r := range refusals {
		d.metrics.quarantinedOne(ctx, r.reason)
		d.log.WarnContext(ctx, "record.quarantined", "topic", r.record.Topic, "partition", r.record.Partition,
			"offset", r.record.Offset, "reason", r.reason, "detail", r.detail)
	}
	return nil
}

type keptHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func encodeHeaders(headers []kafka.Header) []byte {
	kept := make([]keptHeader, 0, len(headers))
	for _, h := range headers {
		kept = append(kept, keptHeader{fitText(h.Key), fitText(string(h.Value))})
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return []byte("[]") // two strings always marshal
	}
	return text
}

// fitText makes any bytes fit for a text column, cut to a bounded length.
func fitText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxDetailBytes {
		text = strings.ToValidUTF8(text[:maxDetailBytes], "")
	}
	return text
}

// SKIP LOCKED: several dispatchers replay side by side.
const claimReplays = `
	SELECT id, kafka_topic, kafka_partition, kafka_offset, key, value, headers
	FROM apipay.quarantined_records
	WHERE replay_requested_at IS NOT NULL AND replayed_at IS NULL
	ORDER BY replay_requested_at
	LIMIT $1
	FOR UPDATE SKIP LOCKED`

const finishReplay = `UPDATE apipay.quarantined_records SET replayed_at = now(), last_replay_at = now() WHERE id = $1`

// A record that is refused again waits for the next request, under its new reason; that it was tried, and when, stays.
const refuseReplay = `
	UPDATE apipay.quarantined_records
	SET replay_requested_at = NULL, last_replay_at = now(), reason = $2, detail = $3
	WHERE id = $1`

type quarantined struct {
	ID             uuid.UUID
	KafkaTopic     string
	KafkaPartition int
	KafkaOffset    int64
	Key            []byte
	Value          []byte
	Headers        []byte
}

// replay processes quarantined records that were asked for again: a newer build may know their type, their tenant may be
// there by now.
func (d *Dispatcher) replay(ctx context.Context) (time.Duration, error) {
	var made []madeDelivery
	err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		made = nil
		rows, err := tx.Query(ctx, claimReplays, replayBatch)
		if err != nil {
			return fmt.Errorf("claiming replays: %w", err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByName[quarantined])
		if err != nil {
			return fmt.Errorf("claiming replays: %w", err)
		}
		for _, q := range list {
			found, err := d.replayOne(ctx, tx, q)
			if err != nil {
				return err
			}
			made = append(made, found...)
		}
		return nil
	})
	for _, m := range made {
		if err == nil && !m.Failed {
			d.work.add(m.EndpointID, m.TenantID, firstAttempts, time.Time{})
		}
	}
	return 0, err
}

func (d *Dispatcher) replayOne(ctx context.Context, tx postgres.Tx, q quarantined) ([]madeDelivery, error) {
	arrivals, refusals := sortOut([]kafka.Message{q.record()})
	if len(refusals) == 0 {
		var err error
		if arrivals, refusals, err = d.admit(ctx, arrivals); err != nil {
			return nil, err
		}
	}
	if len(refusals) > 0 {
		return nil, d.refuseReplay(ctx, tx, q, refusals[0].reason, refusals[0].detail)
	}
	// A savepoint, so that a record which the database refuses leaves the others their turn.
	nested, err := tx.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("beginning a replay: %w", err)
	}
	made, err := insertEvents(ctx, nested, arrivals)
	if refused := recordError(err); err != nil {
		if rollbackErr := nested.Rollback(ctx); rollbackErr != nil {
			return nil, fmt.Errorf("undoing a replay: %w", rollbackErr)
		}
		if refused == err { //nolint:errorlint // the same error, not one like it
			return nil, err
		}
		return nil, d.refuseReplay(ctx, tx, q, reasonUnprocessable, refused.Error())
	}
	if err := nested.Commit(ctx); err != nil {
		return nil, fmt.Errorf("ending a replay: %w", err)
	}
	if _, err := tx.Exec(ctx, finishReplay, q.ID); err != nil {
		return nil, fmt.Errorf("finishing a replay: %w", err)
	}
	return made, nil
}

func (d *Dispatcher) refuseReplay(ctx context.Context, tx postgres.Tx, q quarantined, reason, detail string) error {
	if _, err := tx.Exec(ctx, refuseReplay, q.ID, reason, fitText(detail)); err != nil {
		return fmt.Errorf("refusing a replay: %w", err)
	}
	d.log.WarnContext(ctx, "record.replay_refused", "topic", q.KafkaTopic, "partition", q.KafkaPartition,
		"offset", q.KafkaOffset, "reason", reason, "detail", detail)
	return nil
}

func (q quarantined) record() kafka.Message {
	record := kafka.Message{Topic: q.KafkaTopic, Partition: q.KafkaPartition, Offset: q.KafkaOffset, Key: q.Key, Value: q.Value}
	var kept []keptHeader
	if json.Unmarshal(q.Headers, &kept) == nil {
		for _, h := range kept {
			record.Headers = append(record.Headers, kafka.Header{Key: h.Key, Value: []byte(h.Value)})
		}
	}
	return record
}
