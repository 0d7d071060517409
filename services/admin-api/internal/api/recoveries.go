package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/proto/events"
)

type recoveryRow struct {
	ID                uuid.UUID
	TenantID          *uuid.UUID
	Livemode          *bool
	Filter            []byte
	Status            string
	Matched           *int64
	Queued            int64
	RequestedBy       string
	CancelRequestedAt *time.Time
	CreatedAt         time.Time
	FinishedAt        *time.Time
}

type recoveryView struct {
	// ID is null for a dry run, which leaves nothing behind.
	ID       *string        `json:"id"`
	Object   string         `json:"object"`
	DryRun   bool           `json:"dry_run"`
	TenantID *string        `json:"tenant_id"`
	Livemode *bool          `json:"livemode"`
	Filter   jsontext.Value `json:"filter"`
	Status   *string        `json:"status"`
	// Matched is how many deliveries the filter selects; null is unknown.
	Matched           *int64     `json:"matched"`
	Queued            int64      `json:"queued"`
	RequestedBy       string     `json:"requested_by"`
	CancelRequestedAt *time.Time `json:"cancel_requested_at"`
	CreatedAt         *time.Time `json:"created_at"`
	FinishedAt        *time.Time `json:"finished_at"`
}

func (r recoveryRow) view() recoveryView {
	return recoveryView{
		ID: formatOrNull(id.Recovery, &r.ID), Object: "recovery", TenantID: formatOrNull(id.Tenant, r.TenantID), Livemode: r.Livemode,
		Filter: r.Filter, Status: &r.Status, Matched: r.Matched, Queued: r.Queued, RequestedBy: r.RequestedBy,
		CancelRequestedAt: utcOrNull(r.CancelRequestedAt), CreatedAt: utcOrNull(&r.CreatedAt), FinishedAt: utcOrNull(r.FinishedAt),
	}
}

const recoveryColumns = `
	id, tenant_id, livemode, filter, status, matched, queued, requested_by, cancel_requested_at, created_at, finished_at`

type recoveryRequest struct {
	Filter struct {
		Tenant        httpapi.Optional[string]    `json:"tenant"`
		Endpoint      httpapi.Optional[string]    `json:"endpoint"`
		EventType     httpapi.Optional[string]    `json:"event_type"`
		Status        httpapi.Optional[string]    `json:"status"`
		FailureReason httpapi.Optional[string]    `json:"failure_reason"`
		From          httpapi.Optional[time.Time] `json:"from"`
		To            httpapi.Optional[time.Time] `json:"to"`
	} `json:"filter" api:"required"`
	DryRun bool `json:"dry_run"`
}

// target is what a filter comes to for the one who asks: never wider than what they may see.
type target struct {
	filter   webhook.RecoveryFilter
	tenant   *uuid.UUID
	endpoint *uuid.UUID
	livemode *bool
}

// createRecovery writes down what is to be sent again, or, as a dry run, counts it. The dispatcher does the sending.
func (a *API) createRecovery(c *call) error {
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var in recoveryRequest
	if _, err := httpapi.Bind(c, &in); err != nil {
		return err
	}
	to, err := in.target(c)
	if err != nil {
		return err
	}
	if in.DryRun {
		return a.countRecovery(c, to)
	}
	var row recoveryRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if err := to.complete(ctx, tx); err != nil {
			return err
		}
		if row, err = insertRecovery(ctx, tx, to, c.who.Name); err != nil {
			return err
		}
		tenant := outbox.Platform
		if to.tenant != nil {
			tenant = *to.tenant
		}
		entry := c.audit(tenant, false, id.Format(id.Recovery, row.ID))
		entry.Changes = map[string]any{"filter": to.filter}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusCreated, row.view())
}

func insertRecovery(ctx context.Context, tx postgres.Tx, to target, by string) (recoveryRow, error) {
	const insert = `
		INSERT INTO apipay.recoveries (id, tenant_id, livemode, filter, requested_by)
		VALUES ($1, $2, $3, $4, $5)
		RETURNING ` + recoveryColumns
	filter, err := json.Marshal(to.filter)
	if err != nil {
		return recoveryRow{}, fmt.Errorf("encoding the filter: %w", err)
	}
	row, err := one[recoveryRow](ctx, tx, insert, id.NewAt(tx.Now, 0), to.tenant, to.livemode, filter, by)
	if err != nil {
		return row, fmt.Errorf("inserting the recovery: %w", err)
	}
	return row, nil
}

// target checks each member by itself.
func (in recoveryRequest) target(c *call) (to target, err error) {
	var fields []httpapi.FieldError
	refuse := func(member, detail string) {
		fields = append(fields, httpapi.FieldError{Pointer: "/filter/" + member, Code: httpapi.CodeParameterInvalid, Detail: detail})
	}
	f := in.Filter
	to.tenant = idMember(f.Tenant, id.Tenant, "tenant", refuse)
	to.endpoint = idMember(f.Endpoint, id.Endpoint, "endpoint", refuse)
	to.filter.EventType = f.EventType.Or("")
	if f.EventType.Present() && !slices.Contains(events.Types(events.TopicOutboundWebhooks), to.filter.EventType) {
		refuse("event_type", "There is no such event type.")
	}
	to.filter.Status = webhook.DeliveryStatus(f.Status.Or(string(webhook.StatusFailed)))
	if to.filter.Status != webhook.StatusFailed && to.filter.Status != webhook.StatusRetrying {
		refuse("status", "Only FAILED and RETRYING deliveries are sent again.")
	}
	to.filter.FailureReason = f.FailureReason.Or("")
	if f.FailureReason.Present() && !slices.Contains(webhook.FailureReasons(), to.filter.FailureReason) {
		refuse("failure_reason", "The reasons are "+strings.Join(webhook.FailureReasons(), ", ")+".")
	}
	to.filter.From, to.filter.To = utcOrNull(f.From.Ptr()), utcOrNull(f.To.Ptr())
	for name, at := range map[string]*time.Time{"from": to.filter.From, "to": to.filter.To} {
		if at != nil && (at.Year() < 1 || at.Year() > 9999) {
			refuse(name, "A time of the years 1 to 9999 is due.")
		}
	}
	if to.filter.From != nil && to.filter.To != nil && !to.filter.From.Before(*to.filter.To) {
		refuse("to", "to must be later than from.")
	}
	if to.tenant == nil && to.endpoint == nil && c.who.IsConfined() {
		if len(c.who.Tenants) != 1 {
			refuse("tenant", "Name one of your tenants.")
		} else {
			to.tenant = &c.who.Tenants[0]
		}
	}
	if len(fields) > 0 {
		return to, httpapi.InvalidFields(fields...)
	}
	return to, nil
}

func idMember(member httpapi.Optional[string], prefix id.Prefix, name string, refuse func(member, detail string)) *uuid.UUID {
	if !member.Present() {
		return nil
	}
	u, err := id.Parse(prefix, member.Value)
	if err != nil {
		refuse(name, "A "+string(prefix)+"_ id is due.")
		return nil
	}
	return &u
}

// complete looks up what the filter names: what the asker may not see does not exist. An endpoint narrows to its own
// tenant and mode.
func (to *target) complete(ctx context.Context, tx postgres.Tx) error {
	if to.endpoint != nil {
		const query = `
			SELECT tenant_id, livemode FROM apipay.webhook_endpoints
			WHERE id = $1 AND ($2::uuid IS NULL OR tenant_id = $2)`
		var tenant uuid.UUID
		var livemode bool
		err := tx.QueryRow(ctx, query, *to.endpoint, to.tenant).Scan(&tenant, &livemode)
		if errors.Is(err, pgx.ErrNoRows) {
			return httpapi.New(httpapi.CodeNotFound, "There is no such endpoint.").
				WithErrors(httpapi.FieldError{Pointer: "/filter/endpoint", Code: httpapi.CodeNotFound})
		}
		if err != nil {
			return fmt.Errorf("reading the endpoint: %w", err)
		}
		to.tenant, to.livemode = &tenant, &livemode
		to.filter.Endpoint = id.Format(id.Endpoint, *to.endpoint)
	}
	if to.tenant != nil {
		if err := requireTenant(ctx, tx, *to.tenant); err != nil {
			return err
		}
		to.filter.Tenant = id.Format(id.Tenant, *to.tenant)
	}
	return nil
}

// countRecovery says how many there are, or that it is not known: a count that took too long is null and never 0.
func (a *API) countRecovery(c *call, to target) error {
	if err := a.read(c, to.complete); err != nil {
		return err
	}
	condition, args, err := to.filter.Where(to.livemode, nil)
	if err != nil {
		return err
	}
	query := `SELECT count(*) FROM apipay.outbound_webhook_deliveries d
		JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id WHERE ` + condition
	var matched *int64
	err = a.readWithin(c, countTimeout, func(ctx context.Context, tx postgres.Tx) error {
		return tx.QueryRow(ctx, query, args...).Scan(&matched)
	})
	// A count that the database gave up is unknown; a database that does not answer is away.
	if err != nil && !isTimeout(err) {
		return fmt.Errorf("counting deliveries: %w", err)
	}
	filter, err := json.Marshal(to.filter)
	if err != nil {
		return fmt.Errorf("encoding the filter: %w", err)
	}
	return httpapi.JSON(c, http.StatusOK, recoveryView{
		Object: "recovery", DryRun: true, TenantID: formatOrNull(id.Tenant, to.tenant), Livemode: to.livemode,
		Filter: filter, Matched: matched, RequestedBy: c.who.Name,
	})
}

func (a *API) listRecoveries(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	w.ofTenants("tenant_id", c.tenantsAsked(q))
	if status, ok := q.Enum("status", "pending", "running", "done", "canceled"); ok {
		w.add("status = ?", status)
	}
	scope := c.scopeOf("recoveries")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(created_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	query := `SELECT ` + recoveryColumns + ` FROM apipay.recoveries` + w.sql() + ` ORDER BY created_at DESC, id DESC LIMIT ` + w.bind(limit+1)
	var rows []recoveryRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[recoveryRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, recoveryRow.view, func(last recoveryRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

func (a *API) readRecovery(c *call) error {
	recovery, err := c.pathID("recovery", id.Recovery)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var row recoveryRow
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		row, err = one[recoveryRow](ctx, tx, `SELECT `+recoveryColumns+` FROM apipay.recoveries WHERE id = $1`, recovery)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, row.view())
}

// cancelRecovery asks the dispatcher to stop; what it has queued by then is sent.
func (a *API) cancelRecovery(c *call) error {
	const lock = `SELECT ` + recoveryColumns + ` FROM apipay.recoveries WHERE id = $1 FOR UPDATE`
	const update = `UPDATE apipay.recoveries SET cancel_requested_at = now() WHERE id = $1 AND finished_at IS NULL`
	recovery, err := c.pathID("recovery", id.Recovery)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		row, err := one[recoveryRow](ctx, tx, lock, recovery)
		if err != nil {
			return err
		}
		if row.Status == "done" {
			return httpapi.New(httpapi.CodeInvalidState, "The recovery is done.").With("state", row.Status)
		}
		if row.CancelRequestedAt != nil {
			return nil
		}
		if _, err := tx.Exec(ctx, update, recovery); err != nil {
			return fmt.Errorf("canceling the recovery: %w", err)
		}
		tenant := outbox.Platform
		if row.TenantID != nil {
			tenant = *row.TenantID
		}
		return outbox.Audit(ctx, tx, c.audit(tenant, false, id.Format(id.Recovery, recovery)))
	})
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
