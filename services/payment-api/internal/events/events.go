// Package events shows merchants the events of the last 30 days: the very bytes that were, or will be, sent to their
// endpoints. It reads outbox_events, which pkg/outbox writes.
package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// shown is how long an event can be read. The rows are kept longer (APIPAY_RETENTION_OUTBOX), so that no reader meets a
// week that is being dropped.
const shown = 30 * 24 * time.Hour

// txTimeout bounds one transaction, its wait for a connection included.
const txTimeout = 10 * time.Second

// Events has the operations of /v1/events.
type Events struct {
	pool    *pgxpool.Pool
	cursors *httpapi.Cursors
}

// New makes the handlers.
func New(pool *pgxpool.Pool, cursors *httpapi.Cursors) *Events {
	return &Events{pool: pool, cursors: cursors}
}

// Needs are the privileges that the package's statements take.
func Needs() []postgres.Need {
	return []postgres.Need{{Table: "outbox_events", Verbs: []postgres.Verb{postgres.Select}}}
}

// GetEvent implements api.Server.
func (e *Events) GetEvent(c echo.Context) error {
	const query = `SELECT payload FROM apipay.outbox_events WHERE id = $1 AND topic = $2`
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	eventID, err := id.Parse(id.Event, c.Param("id"))
	if err != nil {
		return notFound()
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), txTimeout)
	defer cancel()
	var payload []byte
	err = postgres.InTenant(ctx, e.pool, auth.FromContext(c).Scope, func(tx postgres.Tx) error {
		if id.Time(eventID).Before(tx.Now.Add(-shown)) {
			return pgx.ErrNoRows
		}
		return tx.QueryRow(ctx, query, eventID, outbox.TopicWebhooks).Scan(&payload)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound()
	}
	if err != nil {
		return fmt.Errorf("reading the event: %w", err)
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, payload)
}

func notFound() error {
	return httpapi.New(httpapi.CodeNotFound, "There is no such event, or it is older than 30 days.")
}

type eventRow struct {
	ID      uuid.UUID
	Payload []byte
}

// ListEvents implements api.Server.
func (e *Events) ListEvents(c echo.Context) error {
	// An event's id carries its time, so ranges of time are ranges of ids: all of it is one scan of the index by tenant.
	const query = `
		SELECT id, payload FROM apipay.outbox_events
		WHERE topic = 'apipay.outbound-webhooks.v1' AND id >= $1 AND id < $2 AND ($3::text IS NULL OR type = $3)
		ORDER BY id DESC
		LIMIT $4`
	principal := auth.FromContext(c)
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	eventType, hasType := q.Enum("type", events.Types(events.TopicOutboundWebhooks)...)
	from, hasFrom := q.Unix("created[gte]")
	to, hasTo := q.Unix("created[lt]")
	scope := httpapi.CursorScope(principal.Scope.TenantID.String(), fmt.Sprint(principal.Scope.Livemode), "events", eventType,
		fmt.Sprint(hasFrom, from.Unix()), fmt.Sprint(hasTo, to.Unix()))
	position, hasPosition := q.Cursor(e.cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), txTimeout)
	defer cancel()
	var list []eventRow
	err := postgres.InTenant(ctx, e.pool, principal.Scope, func(tx postgres.Tx) error {
		low := firstID(tx.Now.Add(-shown))
		if hasFrom && from.After(tx.Now.Add(-shown)) {
			low = firstID(from)
		}
		high := uuid.Max
		if hasTo {
			high = firstID(to)
		}
		if hasPosition {
			high = position.ID // the cursor is bound to created[lt], so it lies below it
		}
		var wanted *string
		if hasType {
			wanted = &eventType
		}
		rows, err := tx.Query(ctx, query, low, high, wanted, limit+1)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[eventRow])
		return err
	})
	if err != nil {
		return fmt.Errorf("listing events: %w", err)
	}
	envelopes := make([]api.Event, len(list))
	for i, row := range list {
		envelopes[i] = row.Payload
	}
	return httpapi.JSON(c, http.StatusOK, httpapi.Page(envelopes, limit, func(api.Event) string {
		return e.cursors.Encode(scope, httpapi.Position{ID: list[limit-1].ID})
	}))
}

// firstID is the smallest id of a millisecond.
func firstID(t time.Time) uuid.UUID {
	low, _ := id.SameMillisecond(id.NewAt(t, 0))
	return low
}
