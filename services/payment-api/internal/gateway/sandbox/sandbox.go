// Package sandbox is the gateway of test mode. It moves no money: the payment method chooses what happens. Its
// ledger, apipay.sandbox_charges, is written in transactions of its own, as a remote gateway's would be, so
// that charges can be counted after a crash of the caller.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// Name is the connector's name in APIPAY_GATEWAY_LIVE and on attempts.
const Name = "sandbox"

// slowAnswer is how long pm_card_slow takes.
const slowAnswer = 6 * time.Second

// method is what a magic payment method does.
type method struct {
	// charge is what the ledger says of a charge, from the moment it arrives.
	charge gateway.Outcome
	// declineCode goes with a declined charge.
	declineCode string
	// notSent: the call never leaves, so the ledger does not know of it.
	notSent bool
	// silent: the ledger decides, and no answer comes before the caller's deadline.
	silent bool
	// delay: the ledger decides, and the answer takes this long.
	delay time.Duration
	// refundFails: its refunds answer pending, and the first look-up says declined.
	refundFails bool
}

// methods are all magic payment methods; none of them opens a circuit.
var methods = map[string]method{
	"pm_card_visa":                  {charge: gateway.Succeeded},
	"pm_card_declined":              {charge: gateway.Declined, declineCode: "generic_decline"},
	"pm_card_insufficient_funds":    {charge: gateway.Declined, declineCode: "insufficient_funds"},
	"pm_card_slow":                  {charge: gateway.Succeeded, delay: slowAnswer},
	"pm_card_timeout_then_succeeds": {charge: gateway.Succeeded, silent: true},
	"pm_card_timeout_then_fails":    {charge: gateway.Declined, declineCode: "generic_decline", silent: true},
	"pm_card_never_resolves":        {charge: gateway.Pending},
	"pm_gateway_unavailable":        {notSent: true},
	"pm_refund_pending_then_fails":  {charge: gateway.Succeeded, refundFails: true},
}

// Gateway is the connector. Make one with [New].
type Gateway struct{ pool *pgxpool.Pool }

// New makes the connector on a pool of the role apipay_app.
func New(pool *pgxpool.Pool) *Gateway { return &Gateway{pool: pool} }

// Needs are the privileges that the ledger takes.
func Needs() []postgres.Need {
	return []postgres.Need{{
		Table:   "sandbox_charges",
		Verbs:   []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
		Columns: []string{"status", "settles_to", "decline_code", "updated_at"},
	}}
}

// Name implements [gateway.Gateway].
func (g *Gateway) Name() string { return Name }

// Recognizes implements [gateway.Recognizer].
func (g *Gateway) Recognizes(paymentMethod string) bool {
	_, ok := methods[paymentMethod]
	return ok
}

// Charge implements [gateway.Gateway].
func (g *Gateway) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	m, ok := methods[a.PaymentMethod]
	if !ok {
		m = method{charge: gateway.Declined, declineCode: "invalid_payment_method"}
	}
	if m.notSent {
		return gateway.Result{}, fmt.Errorf("sandbox: %s: %w", a.PaymentMethod, gateway.ErrNotExecuted)
	}
	var row entry
	batch := record(a, m.charge, m.declineCode, nil)
	err := postgres.InTenantWith(ctx, g.pool, a.Scope, batch, func(tx postgres.Tx, results pgx.BatchResults) (err error) {
		if row, err = readRecord(results); err != nil {
			return err
		}
		return tx.CommitWith(ctx, &pgx.Batch{})
	})
	if err != nil {
		return gateway.Result{}, fmt.Errorf("writing the sandbox ledger: %w", err)
	}
	return row.answerAfter(ctx, m)
}

// answerAfter holds the answer back as the payment method wants it. The ledger has decided before: a caller
// that dies meanwhile finds its charge there.
func (e entry) answerAfter(ctx context.Context, m method) (gateway.Result, error) {
	switch {
	case e.Status == string(outcomeClosed):
	case m.silent:
		<-ctx.Done()
		return gateway.Result{}, fmt.Errorf("sandbox: no answer: %w", ctx.Err())
	case m.delay > 0:
		timer := time.NewTimer(m.delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return gateway.Result{}, fmt.Errorf("sandbox: no answer yet: %w", ctx.Err())
		case <-timer.C:
		}
	}
	return e.result(), nil
}

// Refund implements [gateway.Gateway]. As a real gateway would, it keeps its own account of the charge and
// refuses to give back more than that.
func (g *Gateway) Refund(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	const rest = `
		SELECT c.amount - coalesce((SELECT sum(r.amount) FROM apipay.sandbox_charges r
		                            WHERE r.charge_id = c.attempt_id AND r.attempt_id <> $2
		                              AND r.status IN ('succeeded', 'pending')), 0)::bigint
		FROM (SELECT attempt_id, amount FROM apipay.sandbox_charges
		      WHERE attempt_id = $1 AND kind = 'charge' AND status IN ('succeeded', 'pending')) c`
	var row entry
	err := postgres.InTenant(ctx, g.pool, a.Scope, func(tx postgres.Tx) error {
		// The charge is locked by a statement of its own: only the next one sees what the holder of the lock
		// before us has committed.
		const lock = `SELECT 1 FROM apipay.sandbox_charges WHERE attempt_id = $1 FOR UPDATE`
		if _, err := tx.Exec(ctx, lock, a.ChargeID); err != nil {
			return err
		}
		outcome, code := gateway.Succeeded, ""
		var settlesTo *string
		var remaining int64
		switch err := tx.QueryRow(ctx, rest, a.ChargeID, a.ID).Scan(&remaining); {
		case errors.Is(err, pgx.ErrNoRows):
			outcome, code = gateway.Declined, "charge_not_found"
		case err != nil:
			return err
		case remaining < a.Amount:
			outcome, code = gateway.Declined, "refund_exceeds_charge"
		case methods[a.PaymentMethod].refundFails:
			declined := string(gateway.Declined)
			outcome, settlesTo = gateway.Pending, &declined
		}
		var err error
		row, err = readRecord(tx.SendBatch(ctx, record(a, outcome, code, settlesTo)))
		return err
	})
	if err != nil {
		return gateway.Result{}, fmt.Errorf("writing the sandbox ledger: %w", err)
	}
	return row.result(), nil
}

// Lookup implements [gateway.Gateway]. What is pending and can settle does so at the first look.
func (g *Gateway) Lookup(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	var result gateway.Result
	err := postgres.InTenant(ctx, g.pool, a.Scope, func(tx postgres.Tx) error {
		row, found, err := settle(ctx, tx, a.ID)
		switch {
		case err != nil:
			return err
		case !found:
			result = gateway.Result{Outcome: gateway.NotFound}
		default:
			result = row.result()
		}
		return nil
	})
	if err != nil {
		return gateway.Result{}, fmt.Errorf("reading the sandbox ledger: %w", err)
	}
	return result, nil
}

// Close implements [gateway.Gateway] with a row that takes the id's place.
func (g *Gateway) Close(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	var row entry
	err := postgres.InTenant(ctx, g.pool, a.Scope, func(tx postgres.Tx) error {
		if _, err := readRecord(tx.SendBatch(ctx, record(a, outcomeClosed, "", nil))); err != nil {
			return err
		}
		var err error
		row, _, err = settle(ctx, tx, a.ID)
		return err
	})
	switch {
	case err != nil:
		return gateway.Result{}, fmt.Errorf("writing the sandbox ledger: %w", err)
	case row.Status == string(gateway.Pending):
		return gateway.Result{}, fmt.Errorf("sandbox: %s is pending: %w", a.PaymentMethod, gateway.ErrCannotClose)
	}
	return row.result(), nil
}

// outcomeClosed is the ledger's word for an id that is refused for ever.
const outcomeClosed gateway.Outcome = "closed"

// entry is a row of the ledger.
type entry struct {
	AttemptID   uuid.UUID
	Kind        string
	Status      string
	SettlesTo   *string
	DeclineCode *string
}

func (e entry) result() gateway.Result {
	r := gateway.Result{Outcome: gateway.Outcome(e.Status), Reference: "sbx_" + id.Format(id.PaymentAttempt, e.AttemptID)}
	if r.Outcome == outcomeClosed {
		return gateway.Result{Outcome: gateway.Refused, Message: "The gateway refuses this attempt."}
	}
	if e.DeclineCode != nil {
		r.DeclineCode = *e.DeclineCode
	}
	if r.Outcome == gateway.Declined {
		r.Message = "The card was declined."
		if e.Kind == "refund" {
			r.Message = "The refund was declined."
		}
	}
	return r
}

// record writes the ledger's row of an attempt, unless there is one, and reads the row that counts.
func record(a gateway.Attempt, status gateway.Outcome, declineCode string, settlesTo *string) *pgx.Batch {
	const insert = `
		INSERT INTO apipay.sandbox_charges (attempt_id, tenant_id, livemode, kind, status, settles_to, amount, currency,
			payment_method, charge_id, decline_code)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (attempt_id) DO NOTHING`
	kind, chargeID := "charge", (*uuid.UUID)(nil)
	if a.IsRefund() {
		kind, chargeID = "refund", &a.ChargeID
	}
	var code *string
	if declineCode != "" {
		code = &declineCode
	}
	batch := &pgx.Batch{}
	batch.Queue(insert, a.ID, a.Scope.TenantID, a.Scope.Livemode, kind, string(status), settlesTo, a.Amount, a.Currency,
		a.PaymentMethod, chargeID, code)
	// After a conflict the row that is there is visible to this second statement.
	batch.Queue(selectEntry, a.ID)
	return batch
}

func readRecord(results pgx.BatchResults) (entry, error) {
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return entry{}, err
	}
	row, err := scanEntry(results.Query())
	if err != nil {
		return entry{}, err
	}
	return row, results.Close()
}

const selectEntry = `
	SELECT attempt_id, kind, status, settles_to, decline_code FROM apipay.sandbox_charges WHERE attempt_id = $1`

// settle reads the row of an attempt and lets it settle if it is one that does.
func settle(ctx context.Context, tx postgres.Tx, attemptID uuid.UUID) (row entry, found bool, err error) {
	const update = `
		UPDATE apipay.sandbox_charges
		SET status = settles_to, settles_to = NULL, updated_at = now(),
		    decline_code = CASE settles_to WHEN 'declined' THEN 'expired_or_canceled_card' END
		WHERE attempt_id = $1 AND status = 'pending' AND settles_to IS NOT NULL`
	if _, err := tx.Exec(ctx, update, attemptID); err != nil {
		return entry{}, false, err
	}
	row, err = scanEntry(tx.Query(ctx, selectEntry, attemptID))
	if errors.Is(err, pgx.ErrNoRows) {
		return entry{}, false, nil
	}
	return row, err == nil, err
}

func scanEntry(rows pgx.Rows, err error) (entry, error) {
	if err != nil {
		return entry{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[entry])
}
