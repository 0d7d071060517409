package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
)

const maxQuarantineReason = 100

type quarantinedRow struct {
	ID                uuid.UUID
	TenantID          *uuid.UUID
	KafkaTopic        string
	KafkaPartition    int
	KafkaOffset       int64
	Bytes             *int
	Reason            string
	Detail            *string
	CreatedAt         time.Time
	ReplayRequestedAt *time.Time
	LastReplayAt      *time.Time
	ReplayedAt        *time.Time
}

// quarantinedView shows where a record is and why it is here; its bytes stay in the database.
type quarantinedView struct {
	ID                string     `json:"id"`
	Object            string     `json:"object"`
	TenantID          *string    `json:"tenant_id"`
	Topic             string     `json:"topic"`
	Partition         int        `json:"partition"`
	Offset            int64      `json:"offset"`
	Bytes             *int       `json:"bytes"`
	Reason            string     `json:"reason"`
	Detail            *string    `json:"detail"`
	CreatedAt         time.Time  `json:"created_at"`
	ReplayRequestedAt *time.Time `json:"replay_requested_at"`
	// LastReplayAt is when it was last tried again. Without replayed_at it was refused, for the reason shown.
	LastReplayAt *time.Time `json:"last_replay_at"`
	ReplayedAt   *time.Time `json:"replayed_at"`
}

func (r quarantinedRow) view() quarantinedView {
	return quarantinedView{
		ID: id.Format(id.Quarantined, r.ID), Object: "quarantined_record", TenantID: formatOrNull(id.Tenant, r.TenantID),
		Topic: r.KafkaTopic, Partition: r.KafkaPartition, Offset: r.KafkaOffset, Bytes: r.Bytes, Reason: r.Reason,
		Detail: r.Detail, CreatedAt: utc(r.CreatedAt), ReplayRequestedAt: utcOrNull(r.ReplayRequestedAt),
		LastReplayAt: utcOrNull(r.LastReplayAt), ReplayedAt: utcOrNull(r.ReplayedAt),
	}
}

const quarantinedColumns = `
	id, tenant_id, kafka_topic, kafka_partition, kafka_offset, octet_length(value) AS bytes, reason, detail, created_at,
	replay_requested_at, last_replay_at, replayed_at`

func (a *API) listQuarantine(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	w.ofTenants("tenant_id", c.tenantsAsked(q))
	if reason, ok := q.String("reason", maxQuarantineReason); ok {
		w.add("reason = ?", reason)
	}
	scope := c.scopeOf("quarantine")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(created_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	query := `SELECT ` + quarantinedColumns + ` FROM apipay.quarantined_records` + w.sql() +
		` ORDER BY created_at DESC, id DESC LIMIT ` + w.bind(limit+1)
	var rows []quarantinedRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[quarantinedRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, quarantinedRow.view, func(last quarantinedRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

// replayQuarantined asks the dispatcher to try the record again. While that is asked for, another click is refused: it
// would tell somebody that they had caused what another has.
func (a *API) replayQuarantined(c *call) error {
	const lock = `SELECT ` + quarantinedColumns + ` FROM apipay.quarantined_records WHERE id = $1 FOR UPDATE`
	const update = `
		UPDATE apipay.quarantined_records SET replay_requested_at = now() WHERE id = $1 RETURNING ` + quarantinedColumns
	record, err := c.pathID("record", id.Quarantined)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	if _, err := httpapi.Bind(c, &struct{}{}, httpapi.AllowEmpty()); err != nil {
		return err
	}
	var row quarantinedRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if row, err = one[quarantinedRow](ctx, tx, lock, record); err != nil {
			return err
		}
		if row.ReplayedAt != nil {
			return httpapi.New(httpapi.CodeInvalidState, "The record was replayed already.").With("state", "replayed")
		}
		if row.ReplayRequestedAt != nil {
			return replayAsked()
		}
		if row, err = one[quarantinedRow](ctx, tx, update, record); err != nil {
			return fmt.Errorf("asking for the replay: %w", err)
		}
		tenant := outbox.Platform
		if row.TenantID != nil {
			tenant = *row.TenantID
		}
		entry := c.audit(tenant, false, id.Format(id.Quarantined, record))
		entry.Changes = map[string]any{
			"topic": row.KafkaTopic, "partition": row.KafkaPartition, "offset": row.KafkaOffset, "reason": row.Reason,
		}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusAccepted, row.view())
}

func replayAsked() *httpapi.Problem {
	return httpapi.New(httpapi.CodeInvalidState, "Its replay is asked for already.").With("state", "replay_requested")
}
