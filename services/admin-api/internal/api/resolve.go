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

const maxReason = 500

type paymentAttemptRow struct {
	ID               uuid.UUID
	TenantID         uuid.UUID
	Livemode         bool
	PaymentIntentID  uuid.UUID
	RefundID         *uuid.UUID
	Kind             string
	Number           int
	Status           string
	Amount           int64
	Currency         string
	Gateway          string
	GatewayReference *string
	DeclineCode      *string
	FailureMessage   *string
	LeaseUntil       time.Time
	NextCheckAt      *time.Time
	CheckCount       int
	Resolution       *string
	ResolutionReason *string
	ResolvedBy       *string
	ResolvedAt       *time.Time
	CreatedAt        time.Time
	FinishedAt       *time.Time
}

type paymentAttemptView struct {
	ID               string     `json:"id"`
	Object           string     `json:"object"`
	TenantID         string     `json:"tenant_id"`
	Livemode         bool       `json:"livemode"`
	PaymentIntent    string     `json:"payment_intent"`
	Refund           *string    `json:"refund"`
	Kind             string     `json:"kind"`
	Number           int        `json:"number"`
	Status           string     `json:"status"`
	Amount           int64      `json:"amount"`
	Currency         string     `json:"currency"`
	Gateway          string     `json:"gateway"`
	GatewayReference *string    `json:"gateway_reference"`
	DeclineCode      *string    `json:"decline_code"`
	FailureMessage   *string    `json:"failure_message"`
	LeaseUntil       time.Time  `json:"lease_until"`
	NextCheckAt      *time.Time `json:"next_check_at"`
	CheckCount       int        `json:"check_count"`
	// ResolvableAt is from when the outcome may be set by hand; null once it is known.
	ResolvableAt     *time.Time `json:"resolvable_at"`
	Resolution       *string    `json:"resolution"`
	ResolutionReason *string    `json:"resolution_reason"`
	ResolvedBy       *string    `json:"resolved_by"`
	ResolvedAt       *time.Time `json:"resolved_at"`
	CreatedAt        time.Time  `json:"created_at"`
	FinishedAt       *time.Time `json:"finished_at"`
}

func (a *API) attemptView(r paymentAttemptRow) paymentAttemptView {
	v := paymentAttemptView{
		ID: id.Format(id.PaymentAttempt, r.ID), Object: "payment_attempt", TenantID: id.Format(id.Tenant, r.TenantID),
		Livemode: r.Livemode, PaymentIntent: id.Format(id.PaymentIntent, r.PaymentIntentID), Refund: formatOrNull(id.Refund, r.RefundID),
		Kind: r.Kind, Number: r.Number, Status: r.Status, Amount: r.Amount, Currency: r.Currency, Gateway: r.Gateway,
		GatewayReference: r.GatewayReference, DeclineCode: r.DeclineCode, FailureMessage: r.FailureMessage,
		LeaseUntil: utc(r.LeaseUntil), NextCheckAt: utcOrNull(r.NextCheckAt), CheckCount: r.CheckCount,
		Resolution: r.Resolution, ResolutionReason: r.ResolutionReason, ResolvedBy: r.ResolvedBy,
		ResolvedAt: utcOrNull(r.ResolvedAt), CreatedAt: utc(r.CreatedAt), FinishedAt: utcOrNull(r.FinishedAt),
	}
	if r.isOpen() {
		at := utc(r.LeaseUntil.Add(a.visibilityDelay))
		v.ResolvableAt = &at
	}
	return v
}

func (a *API) attemptViews(rows []paymentAttemptRow) []paymentAttemptView {
	views := make([]paymentAttemptView, len(rows))
	for i, row := range rows {
		views[i] = a.attemptView(row)
	}
	return views
}

const (
	attemptStarted = "started"
	attemptUnknown = "unknown"
)

func (r paymentAttemptRow) isOpen() bool {
	return r.Status == attemptStarted || r.Status == attemptUnknown
}

const paymentAttemptColumns = `
	id, tenant_id, livemode, payment_intent_id, refund_id, kind, number, status, amount, currency, gateway,
	gateway_reference, decline_code, failure_message, lease_until, next_check_at, check_count, resolution,
	resolution_reason, resolved_by, resolved_at, created_at, finished_at`

const selectPaymentAttempt = `SELECT ` + paymentAttemptColumns + ` FROM apipay.payment_attempts`

func (a *API) listPaymentAttempts(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	status, _ := q.Enum("status", attemptStarted, "succeeded", "declined", "not_executed", attemptUnknown)
	if status != "" {
		w.add("status = ?", status)
	}
	w.ofTenants("tenant_id", c.tenantsAsked(q))
	scope := c.scopeOf("payment_attempts")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(created_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	from := "apipay.payment_attempts"
	if status == attemptStarted || status == attemptUnknown {
		// What is open is few: read whole by its partial index and then sorted, whatever the planner thinks of
		// walking the list's own index in search of it.
		w.conditions = append(w.conditions, "status IN ('started', 'unknown')")
		from = "open"
	}
	query := "SELECT " + paymentAttemptColumns + " FROM " + from
	order := " ORDER BY created_at DESC, id DESC LIMIT "
	if from == "open" {
		query = "WITH open AS MATERIALIZED (" + selectPaymentAttempt + w.sql() + ") " + query + order + w.bind(limit+1)
	} else {
		query += w.sql() + order + w.bind(limit+1)
	}
	var rows []paymentAttemptRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[paymentAttemptRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, a.attemptView, func(last paymentAttemptRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

// resolveAttempt writes down what somebody found out at the gateway; payment-api's reconciler acts on it.
func (a *API) resolveAttempt(c *call) error {
	attemptID, err := c.pathID("attempt", id.PaymentAttempt)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body resolveBody
	if _, err := httpapi.Bind(c, &body); err != nil {
		return err
	}
	switch body.Outcome {
	case "succeeded", "declined", "not_executed":
	default:
		return httpapi.Invalid(httpapi.CodeParameterInvalid, "/outcome", "outcome is succeeded, declined or not_executed.")
	}
	if err := checkText("/reason", body.Reason, maxReason); err != nil {
		return err
	}
	var row paymentAttemptRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if row, err = one[paymentAttemptRow](ctx, tx, selectPaymentAttempt+` WHERE id = $1 FOR UPDATE`, attemptID); err != nil {
			return err
		}
		if err := a.mayResolve(row, tx.Now); err != nil {
			return err
		}
		if row, err = resolve(ctx, tx, attemptID, body.Outcome, body.Reason, c.who.Name); err != nil {
			return err
		}
		entry := c.audit(row.TenantID, row.Livemode, id.Format(id.PaymentAttempt, attemptID))
		entry.Changes = map[string]any{
			"resolution": body.Outcome, "reason": body.Reason, "payment_intent": id.Format(id.PaymentIntent, row.PaymentIntentID),
		}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusAccepted, a.attemptView(row))
}

func (a *API) mayResolve(row paymentAttemptRow, now time.Time) error {
	if !row.isOpen() {
		return httpapi.New(httpapi.CodeInvalidState, "The attempt's outcome is known: "+row.Status+".").With("state", row.Status)
	}
	if row.Resolution != nil {
		return httpapi.New(httpapi.CodeInvalidState, "Its outcome was set to "+*row.Resolution+" already.").
			With("state", row.Status).With("resolution", *row.Resolution)
	}
	// Before then a charge that the gateway does not show yet may still appear.
	if from := row.LeaseUntil.Add(a.visibilityDelay); now.Before(from) {
		return httpapi.New(httpapi.CodeInvalidState, "The gateway may still show the outcome; it can be set by hand from "+
			utc(from).Format(time.RFC3339)+" on.").With("state", row.Status).With("resolvable_at", utc(from))
	}
	return nil
}

func resolve(ctx context.Context, tx postgres.Tx, attempt uuid.UUID, outcome, reason, by string) (paymentAttemptRow, error) {
	const update = `
		UPDATE apipay.payment_attempts
		SET resolution = $2, resolution_reason = $3, resolved_by = $4, resolved_at = now(), next_check_at = now()
		WHERE id = $1 AND resolution IS NULL AND status IN ('started', 'unknown')
		RETURNING ` + paymentAttemptColumns
	row, err := one[paymentAttemptRow](ctx, tx, update, attempt, outcome, reason, by)
	if err != nil {
		return row, fmt.Errorf("resolving the attempt: %w", err)
	}
	return row, nil
}
