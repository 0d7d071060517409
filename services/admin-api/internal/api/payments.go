package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// maxReference is the longest merchant_reference that is looked for.
const maxReference = 255

type intentRow struct {
	ID                uuid.UUID
	TenantID          uuid.UUID
	Livemode          bool
	Amount            int64
	AmountRefunded    int64
	Currency          string
	Status            string
	Description       *string
	Metadata          []byte
	MerchantReference *string
	PaymentMethod     *string
	LastPaymentError  []byte
	LatestAttempt     *uuid.UUID
	Version           int64
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

type intentView struct {
	ID                string                `json:"id"`
	Object            string                `json:"object"`
	TenantID          string                `json:"tenant_id"`
	Livemode          bool                  `json:"livemode"`
	Amount            int64                 `json:"amount"`
	AmountRefunded    int64                 `json:"amount_refunded"`
	Currency          string                `json:"currency"`
	Status            string                `json:"status"`
	Description       *string               `json:"description"`
	Metadata          jsontext.Value        `json:"metadata"`
	MerchantReference *string               `json:"merchant_reference"`
	PaymentMethod     *string               `json:"payment_method"`
	LastPaymentError  jsontext.Value        `json:"last_payment_error"`
	LatestAttempt     *string               `json:"latest_attempt"`
	Version           int64                 `json:"version"`
	CreatedAt         time.Time             `json:"created_at"`
	UpdatedAt         time.Time             `json:"updated_at"`
	Attempts          *[]paymentAttemptView `json:"attempts,omitzero"`
	Refunds           *[]refundView         `json:"refunds,omitzero"`
}

func (r intentRow) view() intentView {
	return intentView{
		ID: id.Format(id.PaymentIntent, r.ID), Object: "payment_intent", TenantID: id.Format(id.Tenant, r.TenantID),
		Livemode: r.Livemode, Amount: r.Amount, AmountRefunded: r.AmountRefunded, Currency: r.Currency, Status: r.Status,
		Description: r.Description, Metadata: r.Metadata, MerchantReference: r.MerchantReference, PaymentMethod: r.PaymentMethod,
		LastPaymentError: jsonOrNull(r.LastPaymentError), LatestAttempt: formatOrNull(id.PaymentAttempt, r.LatestAttempt),
		Version: r.Version, CreatedAt: utc(r.CreatedAt), UpdatedAt: utc(r.UpdatedAt),
	}
}

func jsonOrNull(raw []byte) jsontext.Value {
	if raw == nil {
		return jsontext.Value("null")
	}
	return raw
}

const selectIntent = `
	SELECT id, tenant_id, livemode, amount, amount_refunded, currency, status, description, metadata, merchant_reference,
	       payment_method, last_payment_error, latest_attempt, version, created_at, updated_at
	FROM apipay.payment_intents`

// listIntents is ordered by the database's time. Ids carry a time too, but that of the process that made them, so their
// order is not the order in which the rows came to be.
func (a *API) listIntents(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	if reference, ok := q.String("reference", maxReference); ok {
		w.add("merchant_reference = ?", reference)
	}
	tenants := c.tenantsAsked(q)
	scope := c.scopeOf("payment_intents")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(created_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	newest := " ORDER BY created_at DESC, id DESC LIMIT " + w.bind(limit+1)
	query := selectIntent + w.sql() + newest
	if tenants != nil {
		// The merchants' own index has each tenant and mode in this order.
		all := w.bind(tenants)
		w.add("tenant_id = t.asked AND livemode = m.asked")
		query = "SELECT p.* FROM unnest(" + all + "::uuid[]) AS t (asked) CROSS JOIN (VALUES (true), (false)) AS m (asked)" +
			" CROSS JOIN LATERAL (" + selectIntent + w.sql() + newest + ") p" + newest
	}
	var rows []intentRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[intentRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, intentRow.view, func(last intentRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

func (a *API) readIntent(c *call) error {
	intentID, err := c.pathID("intent", id.PaymentIntent)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var view intentView
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) error {
		row, err := one[intentRow](ctx, tx, selectIntent+` WHERE id = $1`, intentID)
		if err != nil {
			return err
		}
		view = row.view()
		attempts, err := collect[paymentAttemptRow](ctx, tx,
			selectPaymentAttempt+` WHERE payment_intent_id = $1 ORDER BY created_at, id`, intentID)
		if err != nil {
			return err
		}
		refunds, err := collect[refundRow](ctx, tx,
			selectRefund+` WHERE tenant_id = $1 AND livemode = $2 AND payment_intent_id = $3 ORDER BY created_at, id`,
			row.TenantID, row.Livemode, intentID)
		attemptViews, refundViews := a.attemptViews(attempts), make([]refundView, len(refunds))
		for i, refund := range refunds {
			refundViews[i] = refund.view()
		}
		view.Attempts, view.Refunds = &attemptViews, &refundViews
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, view)
}

type refundRow struct {
	ID              uuid.UUID
	TenantID        uuid.UUID
	Livemode        bool
	PaymentIntentID uuid.UUID
	Amount          int64
	Currency        string
	Status          string
	FailureReason   *string
	Reason          *string
	Metadata        []byte
	Version         int64
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

type refundView struct {
	ID            string         `json:"id"`
	Object        string         `json:"object"`
	TenantID      string         `json:"tenant_id"`
	Livemode      bool           `json:"livemode"`
	PaymentIntent string         `json:"payment_intent"`
	Amount        int64          `json:"amount"`
	Currency      string         `json:"currency"`
	Status        string         `json:"status"`
	FailureReason *string        `json:"failure_reason"`
	Reason        *string        `json:"reason"`
	Metadata      jsontext.Value `json:"metadata"`
	Version       int64          `json:"version"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`
}

func (r refundRow) view() refundView {
	return refundView{
		ID: id.Format(id.Refund, r.ID), Object: "refund", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		PaymentIntent: id.Format(id.PaymentIntent, r.PaymentIntentID), Amount: r.Amount, Currency: r.Currency, Status: r.Status,
		FailureReason: r.FailureReason, Reason: r.Reason, Metadata: r.Metadata, Version: r.Version,
		CreatedAt: utc(r.CreatedAt), UpdatedAt: utc(r.UpdatedAt),
	}
}

const selectRefund = `
	SELECT id, tenant_id, livemode, payment_intent_id, amount, currency, status, failure_reason, reason, metadata, version,
	       created_at, updated_at
	FROM apipay.refunds`

func (a *API) readRefund(c *call) error {
	refundID, err := c.pathID("refund", id.Refund)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var row refundRow
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		row, err = one[refundRow](ctx, tx, selectRefund+` WHERE id = $1`, refundID)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, row.view())
}
