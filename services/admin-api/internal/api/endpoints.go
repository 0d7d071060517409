package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

const (
	statusEnabled  = "enabled"
	statusDisabled = "disabled"
	// disabledBySupport is the disabled_reason of an endpoint that staff switched off.
	disabledBySupport = "support"

	maxDescription = 500
	everyEvent     = "*"
)

type endpointRow struct {
	ID             uuid.UUID
	TenantID       uuid.UUID
	Livemode       bool
	URL            string
	EnabledEvents  []string
	Description    *string
	Status         string
	DisabledReason *string
	DeletedAt      *time.Time
	Version        int64
	CreatedAt      time.Time

	FailingSince    *time.Time
	FailedAttempts  *int
	LastFailureAt   *time.Time
	LastSuccessAt   *time.Time
	BreakerOpenedAt *time.Time
	NextProbeAt     *time.Time
	Succeeded24h    int64
	Failed24h       int64
}

type endpointView struct {
	ID             string         `json:"id"`
	Object         string         `json:"object"`
	TenantID       string         `json:"tenant_id"`
	Livemode       bool           `json:"livemode"`
	URL            string         `json:"url"`
	EnabledEvents  []string       `json:"enabled_events"`
	Description    *string        `json:"description"`
	Status         string         `json:"status"`
	DisabledReason *string        `json:"disabled_reason"`
	Version        int64          `json:"version"`
	CreatedAt      time.Time      `json:"created_at"`
	DeletedAt      *time.Time     `json:"deleted_at"`
	Health         endpointHealth `json:"health"`
}

// endpointHealth is what the dispatcher saw; all null before the first attempt.
type endpointHealth struct {
	FailingSince    *time.Time `json:"failing_since"`
	FailedAttempts  *int       `json:"failed_attempts"`
	LastFailureAt   *time.Time `json:"last_failure_at"`
	LastSuccessAt   *time.Time `json:"last_success_at"`
	BreakerOpenedAt *time.Time `json:"breaker_opened_at"`
	NextProbeAt     *time.Time `json:"next_probe_at"`
	// Attempts of the last 24 hours, from the hourly roll-ups.
	Succeeded24h int64 `json:"succeeded_24h"`
	Failed24h    int64 `json:"failed_24h"`
}

func (r endpointRow) view() endpointView {
	return endpointView{
		ID: id.Format(id.Endpoint, r.ID), Object: "webhook_endpoint", TenantID: id.Format(id.Tenant, r.TenantID),
		Livemode: r.Livemode, URL: r.URL, EnabledEvents: r.EnabledEvents, Description: r.Description, Status: r.Status,
		DisabledReason: r.DisabledReason, Version: r.Version, CreatedAt: utc(r.CreatedAt), DeletedAt: utcOrNull(r.DeletedAt),
		Health: endpointHealth{
			FailingSince: utcOrNull(r.FailingSince), FailedAttempts: r.FailedAttempts, LastFailureAt: utcOrNull(r.LastFailureAt),
			LastSuccessAt: utcOrNull(r.LastSuccessAt), BreakerOpenedAt: utcOrNull(r.BreakerOpenedAt), NextProbeAt: utcOrNull(r.NextProbeAt),
			Succeeded24h: r.Succeeded24h, Failed24h: r.Failed24h,
		},
	}
}

// The counters belong to one enabling: those of before it was last switched on are shown as the dispatcher takes them,
// as nothing. The last success is no counter and stays.
func selectEndpointFrom(e string) string {
	return `
	SELECT e.id, e.tenant_id, e.livemode, e.url, e.enabled_events, e.description, e.status, e.disabled_reason, e.deleted_at,
	       e.version, e.created_at, s.failing_since, CASE WHEN k.endpoint_id IS NOT NULL THEN coalesce(s.failed_attempts, 0) END AS failed_attempts,
	       s.last_failure_at, k.last_success_at,
	       s.breaker_opened_at, s.next_probe_at, h.succeeded_24h, h.failed_24h
	FROM ` + e + ` e
	LEFT JOIN apipay.webhook_endpoint_states k ON k.endpoint_id = e.id
	LEFT JOIN apipay.webhook_endpoint_states s ON s.endpoint_id = e.id AND s.counted_from = e.enabled_at
	CROSS JOIN LATERAL (
	    SELECT coalesce(sum(succeeded), 0)::bigint AS succeeded_24h, coalesce(sum(failed), 0)::bigint AS failed_24h
	    FROM apipay.webhook_endpoint_health
	    WHERE endpoint_id = e.id AND hour > now() - interval '24 hours') h`
}

var selectEndpoint = selectEndpointFrom("apipay.webhook_endpoints")

// listEndpoints leaves deleted ones out; they can still be read by their id.
func (a *API) listEndpoints(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	w.add("e.deleted_at IS NULL")
	tenants := c.tenantsAsked(q)
	if status, ok := q.Enum("status", statusEnabled, statusDisabled); ok {
		w.add("e.status = ?", status)
	}
	scope := c.scopeOf("webhook_endpoints")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(e.created_at, e.id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	// The page is cut before its health is added up, which would otherwise be done for every endpoint there is.
	const order = " ORDER BY e.created_at DESC, e.id DESC"
	newest := order + " LIMIT " + w.bind(limit+1)
	page := "SELECT e.* FROM apipay.webhook_endpoints e" + w.sql() + newest
	if tenants != nil {
		// The merchants' own index has each tenant and mode in this order.
		all := w.bind(tenants)
		w.add("e.tenant_id = t.asked AND e.livemode = m.asked")
		page = "SELECT e.* FROM unnest(" + all + "::uuid[]) AS t (asked) CROSS JOIN (VALUES (true), (false)) AS m (asked)" +
			" CROSS JOIN LATERAL (SELECT e.* FROM apipay.webhook_endpoints e" + w.sql() + newest + ") e" + newest
	}
	query := selectEndpointFrom("("+page+")") + order
	var rows []endpointRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[endpointRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, endpointRow.view, func(last endpointRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

func (a *API) readEndpoint(c *call) error {
	endpoint, err := c.pathID("endpoint", id.Endpoint)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var row endpointRow
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		row, err = one[endpointRow](ctx, tx, selectEndpoint+` WHERE e.id = $1`, endpoint)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, row.view())
}

type endpointChange struct {
	URL           httpapi.Optional[string]   `json:"url" api:"nonnull"`
	EnabledEvents httpapi.Optional[[]string] `json:"enabled_events" api:"nonnull"`
	Description   httpapi.Optional[string]   `json:"description"`
	Status        httpapi.Optional[string]   `json:"status" api:"nonnull"`
}

// changeEndpoint changes the endpoint's row and nothing else: what waits for it is the dispatcher's.
func (a *API) changeEndpoint(c *call) error {
	const lock = `SELECT id FROM apipay.webhook_endpoints WHERE id = $1 FOR UPDATE`
	endpoint, err := c.pathID("endpoint", id.Endpoint)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var in endpointChange
	if _, err := httpapi.Bind(c, &in); err != nil {
		return err
	}
	if fields := a.checkEndpoint(in); len(fields) > 0 {
		return httpapi.InvalidFields(fields...)
	}
	var row endpointRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		var locked uuid.UUID
		if err := tx.QueryRow(ctx, lock, endpoint).Scan(&locked); err != nil {
			return err
		}
		if row, err = one[endpointRow](ctx, tx, selectEndpoint+` WHERE e.id = $1`, endpoint); err != nil {
			return err
		}
		if row.DeletedAt != nil {
			return httpapi.New(httpapi.CodeEndpointDeleted, "The endpoint was deleted.")
		}
		changes := in.apply(&row)
		if len(changes) == 0 {
			return nil
		}
		if err := updateEndpoint(ctx, tx, row); err != nil {
			return err
		}
		entry := c.audit(row.TenantID, row.Livemode, id.Format(id.Endpoint, row.ID))
		entry.Changes = changes
		if err := outbox.Audit(ctx, tx, entry); err != nil {
			return err
		}
		// Read again: switched on, it has no failures any more.
		row, err = one[endpointRow](ctx, tx, selectEndpoint+` WHERE e.id = $1`, endpoint)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, row.view())
}

func updateEndpoint(ctx context.Context, tx postgres.Tx, row endpointRow) error {
	// enabled_at moves only when the endpoint is switched on again: the counters of failure count from there.
	const update = `
		UPDATE apipay.webhook_endpoints SET
		    url = $2, enabled_events = $3, description = $4, status = $5, disabled_reason = $6,
		    enabled_at = CASE WHEN status = 'disabled' AND $5 = 'enabled' THEN now() ELSE enabled_at END,
		    updated_at = now()
		WHERE id = $1`
	_, err := tx.Exec(ctx, update, row.ID, row.URL, row.EnabledEvents, row.Description, row.Status, row.DisabledReason)
	if err != nil {
		return fmt.Errorf("updating the webhook endpoint: %w", err)
	}
	return nil
}

func (a *API) checkEndpoint(in endpointChange) (fields []httpapi.FieldError) {
	refuse := func(pointer, detail string) {
		fields = append(fields, httpapi.FieldError{Pointer: pointer, Code: httpapi.CodeParameterInvalid, Detail: detail})
	}
	if in.URL.Set {
		if err := a.policy.CheckURL(in.URL.Value); err != nil {
			// The policy's errors are written to be shown.
			refuse("/url", "url: "+err.Error()+".")
		}
	}
	if in.EnabledEvents.Set {
		if detail := checkEvents(in.EnabledEvents.Value); detail != "" {
			refuse("/enabled_events", detail)
		}
	}
	if text := in.Description.Ptr(); text != nil && utf8.RuneCountInString(*text) > maxDescription {
		refuse("/description", fmt.Sprintf("The description is longer than %d characters.", maxDescription))
	}
	if in.Status.Set && in.Status.Value != statusEnabled && in.Status.Value != statusDisabled {
		refuse("/status", "status is enabled or disabled.")
	}
	return fields
}

func checkEvents(names []string) string {
	known := events.Types(events.TopicOutboundWebhooks)
	if len(names) == 0 || len(names) > len(known) {
		return `Name some event types, or "*" alone for all.`
	}
	for i, name := range names {
		switch {
		case name == everyEvent && len(names) > 1:
			return `"*" stands for all event types and must be the only one.`
		case name != everyEvent && !slices.Contains(known, name):
			return "There is no such event type."
		case slices.Contains(names[:i], name):
			return "An event type is named twice."
		}
	}
	return ""
}

// apply changes the row and returns the members whose value differs.
func (in endpointChange) apply(row *endpointRow) map[string]any {
	changes := map[string]any{}
	if in.URL.Set && in.URL.Value != row.URL {
		row.URL = in.URL.Value
		changes["url"] = row.URL
	}
	if in.EnabledEvents.Set && !slices.Equal(in.EnabledEvents.Value, row.EnabledEvents) {
		row.EnabledEvents = in.EnabledEvents.Value
		changes["enabled_events"] = row.EnabledEvents
	}
	if in.Description.Set && !equalTexts(in.Description.Ptr(), row.Description) {
		row.Description = in.Description.Ptr()
		changes["description"] = row.Description
	}
	if in.Status.Set && in.Status.Value != row.Status {
		row.Status, row.DisabledReason = in.Status.Value, nil
		if row.Status == statusDisabled {
			reason := disabledBySupport
			row.DisabledReason = &reason
		}
		changes["status"] = row.Status
	}
	return changes
}

func equalTexts(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
