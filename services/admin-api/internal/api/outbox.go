package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
)

// maxParkedCounted bounds the count of parked events; beyond it is told that there are at least so many.
const maxParkedCounted = 10_000

var topics = []string{outbox.TopicWebhooks, outbox.TopicPayments, outbox.TopicAudit}

// topicLag tells of one topic. What could not be found out in time is null: unknown, and not 0.
type topicLag struct {
	Object                  string     `json:"object"`
	Topic                   string     `json:"topic"`
	OldestPendingAt         *time.Time `json:"oldest_pending_at"`
	OldestPendingAgeSeconds *float64   `json:"oldest_pending_age_seconds"`
	Parked                  *int64     `json:"parked"`
	ParkedAtLeast           *int64     `json:"parked_at_least"`
}

func (a *API) readOutbox(c *call) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	lags := make([]topicLag, len(topics))
	for i, topic := range topics {
		lags[i] = topicLag{Object: "outbox_topic", Topic: topic}
	}
	oldest := a.readWithin(c, countTimeout, func(ctx context.Context, tx postgres.Tx) error {
		return findOldest(ctx, tx, lags)
	})
	if err := unlessTimeout(oldest); err != nil {
		return err
	}
	parked := a.readWithin(c, countTimeout, func(ctx context.Context, tx postgres.Tx) error {
		return countParked(ctx, tx, lags)
	})
	if err := unlessTimeout(parked); err != nil {
		return err
	}
	// What the database gave up is unknown. A database that said nothing at all is away, and nulls would be no answer.
	if oldest != nil && parked != nil && (!isTimeout(oldest) || !isTimeout(parked)) {
		return fmt.Errorf("reading the outbox: %w", errors.Join(oldest, parked))
	}
	return httpapi.JSON(c, http.StatusOK, httpapi.NewList(lags, ""))
}

// unlessTimeout takes a time-out for "unknown".
func unlessTimeout(err error) error {
	if isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// findOldest reads the first pending event of each lane, whose index has it at its front: the cost follows the lanes,
// not the backlog.
func findOldest(ctx context.Context, tx postgres.Tx, lags []topicLag) error {
	const query = `
		SELECT t.topic, min(o.created_at) AS oldest, coalesce(extract(epoch FROM now() - min(o.created_at)), 0)::float8 AS age
		FROM unnest($1::text[]) AS t (topic)
		CROSS JOIN generate_series(0, $2 - 1) AS l (lane)
		LEFT JOIN LATERAL (
		    SELECT created_at FROM apipay.outbox_events
		    WHERE topic = t.topic AND lane = l.lane::smallint AND published_at IS NULL AND parked_at IS NULL
		    ORDER BY seq LIMIT 1) o ON true
		GROUP BY t.topic`
	rows, err := collect[struct {
		Topic  string
		Oldest *time.Time
		Age    float64
	}](ctx, tx, query, topics, outbox.Lanes)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for i := range lags {
			if lags[i].Topic == row.Topic {
				age := max(row.Age, 0)
				lags[i].OldestPendingAt, lags[i].OldestPendingAgeSeconds = utcOrNull(row.Oldest), &age
			}
		}
	}
	return nil
}

func countParked(ctx context.Context, tx postgres.Tx, lags []topicLag) error {
	const query = `
		SELECT t.topic, (SELECT count(*) FROM (
		    SELECT FROM apipay.outbox_events o
		    WHERE o.topic = t.topic AND o.parked_at IS NOT NULL AND o.discarded_at IS NULL LIMIT $2) p) AS parked
		FROM unnest($1::text[]) AS t (topic)`
	rows, err := collect[struct {
		Topic  string
		Parked int64
	}](ctx, tx, query, topics, maxParkedCounted+1)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for i := range lags {
			switch {
			case lags[i].Topic != row.Topic:
			case row.Parked > maxParkedCounted:
				least := int64(maxParkedCounted)
				lags[i].ParkedAtLeast = &least
			default:
				lags[i].Parked = &row.Parked
			}
		}
	}
	return nil
}

type parkedRow struct {
	ID                uuid.UUID
	TenantID          uuid.UUID
	Livemode          bool
	Topic             string
	Type              string
	Bytes             int
	CreatedAt         time.Time
	PublishedAt       *time.Time
	ParkedAt          *time.Time
	ParkedReason      *string
	ReplayRequestedAt *time.Time
	LastReplayAt      *time.Time
	DiscardedAt       *time.Time
	DiscardedBy       *string
	DiscardReason     *string
}

type parkedView struct {
	ID                string     `json:"id"`
	Object            string     `json:"object"`
	TenantID          string     `json:"tenant_id"`
	Livemode          bool       `json:"livemode"`
	Topic             string     `json:"topic"`
	Type              string     `json:"type"`
	Bytes             int        `json:"bytes"`
	CreatedAt         time.Time  `json:"created_at"`
	ParkedAt          *time.Time `json:"parked_at"`
	ParkedReason      *string    `json:"parked_reason"`
	ReplayRequestedAt *time.Time `json:"replay_requested_at"`
	// LastReplayAt is when it was last tried again; it was then parked again, at parked_at.
	LastReplayAt  *time.Time `json:"last_replay_at"`
	DiscardedAt   *time.Time `json:"discarded_at"`
	DiscardedBy   *string    `json:"discarded_by"`
	DiscardReason *string    `json:"discard_reason"`
}

func (r parkedRow) view() parkedView {
	return parkedView{
		ID: id.Format(id.Event, r.ID), Object: "outbox_event", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		Topic: r.Topic, Type: r.Type, Bytes: r.Bytes, CreatedAt: utc(r.CreatedAt), ParkedAt: utcOrNull(r.ParkedAt),
		ParkedReason: r.ParkedReason, ReplayRequestedAt: utcOrNull(r.ReplayRequestedAt), LastReplayAt: utcOrNull(r.LastReplayAt), DiscardedAt: utcOrNull(r.DiscardedAt),
		DiscardedBy: r.DiscardedBy, DiscardReason: r.DiscardReason,
	}
}

const parkedColumns = `
	id, tenant_id, livemode, topic, type, octet_length(payload) AS bytes, created_at, published_at, parked_at, parked_reason,
	replay_requested_at, last_replay_at, discarded_at, discarded_by, discard_reason`

func (a *API) listParked(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	w.add("parked_at IS NOT NULL AND discarded_at IS NULL")
	w.ofTenants("tenant_id", c.tenantsAsked(q))
	if topic, ok := q.Enum("topic", topics...); ok {
		w.add("topic = ?", topic)
	}
	scope := c.scopeOf("parked")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(parked_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	query := `SELECT ` + parkedColumns + ` FROM apipay.outbox_events` + w.sql() +
		` ORDER BY parked_at DESC, id DESC LIMIT ` + w.bind(limit+1)
	var rows []parkedRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[parkedRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, parkedRow.view, func(last parkedRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: *last.ParkedAt, ID: last.ID})
	})
}

// replayParked asks the relay to try again; while that is asked for, another click is refused.
func (a *API) replayParked(c *call) error {
	const update = `
		UPDATE apipay.outbox_events SET replay_requested_at = now()
		WHERE id = $1 AND parked_at IS NOT NULL AND discarded_at IS NULL
		RETURNING ` + parkedColumns
	if _, err := httpapi.Bind(c, &struct{}{}, httpapi.AllowEmpty()); err != nil {
		return err
	}
	return a.changeParked(c, func(ctx context.Context, tx postgres.Tx, row parkedRow) (parkedRow, map[string]any, error) {
		if row.ReplayRequestedAt != nil {
			return row, nil, replayAsked()
		}
		changed, err := one[parkedRow](ctx, tx, update, row.ID)
		return changed, map[string]any{"topic": row.Topic, "type": row.Type, "parked_reason": row.ParkedReason}, err
	})
}

// discardParked gives an event up: it will not be published, and no longer keeps its week from being dropped.
func (a *API) discardParked(c *call) error {
	const update = `
		UPDATE apipay.outbox_events
		SET discarded_at = now(), discarded_by = $2, discard_reason = $3, replay_requested_at = NULL
		WHERE id = $1 AND parked_at IS NOT NULL AND discarded_at IS NULL
		RETURNING ` + parkedColumns
	var body discardBody
	if _, err := httpapi.Bind(c, &body); err != nil {
		return err
	}
	if err := checkText("/reason", body.Reason, maxReason); err != nil {
		return err
	}
	return a.changeParked(c, func(ctx context.Context, tx postgres.Tx, row parkedRow) (parkedRow, map[string]any, error) {
		changed, err := one[parkedRow](ctx, tx, update, row.ID, c.who.Name, body.Reason)
		return changed, map[string]any{
			"topic": row.Topic, "type": row.Type, "parked_reason": row.ParkedReason, "reason": body.Reason,
		}, err
	})
}

// changeParked locks a parked event, changes it and tells the audit log.
func (a *API) changeParked(c *call, change func(context.Context, postgres.Tx, parkedRow) (parkedRow, map[string]any, error)) error {
	const lock = `SELECT ` + parkedColumns + ` FROM apipay.outbox_events WHERE id = $1 FOR UPDATE`
	event, err := c.pathID("event", id.Event)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var row parkedRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if row, err = one[parkedRow](ctx, tx, lock, event); err != nil {
			return err
		}
		if err := row.mustBeParked(); err != nil {
			return err
		}
		changed, changes, err := change(ctx, tx, row)
		if err != nil {
			return fmt.Errorf("changing the parked event: %w", err)
		}
		row = changed
		entry := c.audit(row.TenantID, row.Livemode, id.Format(id.Event, row.ID))
		entry.Changes = changes
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if row.DiscardedAt != nil {
		status = http.StatusOK
	}
	return httpapi.JSON(c, status, row.view())
}

func (r parkedRow) mustBeParked() error {
	state := ""
	switch {
	case r.DiscardedAt != nil:
		state = "discarded"
	case r.ParkedAt != nil:
		return nil
	case r.PublishedAt != nil:
		state = "published"
	default:
		state = "pending"
	}
	return httpapi.New(httpapi.CodeInvalidState, "The event is "+state+", not parked.").With("state", state)
}
