package payments

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/auth"
)

// GetPaymentIntent implements api.Server.
func (s *Service) GetPaymentIntent(c echo.Context) error {
	intentID, err := pathID(c, id.PaymentIntent)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var p intent
	err = s.read(detach(c), auth.FromContext(c).Scope, selectIntent, []any{intentID}, func(results pgx.BatchResults) (err error) {
		p, err = scanIntent(results.Query())
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, p.object())
}

// GetRefund implements api.Server.
func (s *Service) GetRefund(c echo.Context) error {
	refundID, err := pathID(c, id.Refund)
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var r refund
	err = s.read(detach(c), auth.FromContext(c).Scope, selectRefund, []any{refundID}, func(results pgx.BatchResults) (err error) {
		r, err = scanRefund(results.Query())
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, r.object())
}

// intentFilter is what a list of intents is confined to.
type intentFilter struct {
	status, currency, merchantReference *string
	createdGTE, createdLT               *time.Time
}

func readIntentFilter(q *httpapi.Query) intentFilter {
	var f intentFilter
	if status, ok := q.Enum("status", string(RequiresPaymentMethod), string(RequiresConfirmation), string(Processing),
		string(Succeeded), string(Canceled)); ok {
		f.status = &status
	}
	if code, ok := httpapi.Param(q, "currency", "an ISO 4217 code", func(text string) (string, error) {
		code, ok := canonicalCurrency(text)
		if !ok {
			return "", strconv.ErrSyntax
		}
		return code, nil
	}); ok {
		f.currency = &code
	}
	if reference, ok := q.String("merchant_reference", maxMerchantReference); ok {
		f.merchantReference = &reference
	}
	if at, ok := q.Unix("created[gte]"); ok {
		f.createdGTE = &at
	}
	if at, ok := q.Unix("created[lt]"); ok {
		f.createdLT = &at
	}
	return f
}

// cursorScope is what a cursor of this list belongs to.
func (f intentFilter) cursorScope(scope postgres.Scope) string {
	parts := append(scopeParts(scope), "payment_intents")
	for _, text := range []*string{f.status, f.currency, f.merchantReference} {
		// An absent filter differs from every value: a value is never empty.
		if text == nil {
			parts = append(parts, "")
			continue
		}
		parts = append(parts, *text)
	}
	for _, at := range []*time.Time{f.createdGTE, f.createdLT} {
		if at == nil {
			parts = append(parts, "")
			continue
		}
		parts = append(parts, strconv.FormatInt(at.Unix(), 10))
	}
	return httpapi.CursorScope(parts...)
}

func scopeParts(scope postgres.Scope) []string {
	return []string{scope.TenantID.String(), strconv.FormatBool(scope.Livemode)}
}

// ListPaymentIntents implements api.Server.
func (s *Service) ListPaymentIntents(c echo.Context) error {
	scope := auth.FromContext(c).Scope
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	filter := readIntentFilter(q)
	cursorScope := filter.cursorScope(scope)
	after, paged := q.Cursor(s.cursors, cursorScope)
	if err := q.Err(); err != nil {
		return err
	}
	rows, err := s.listIntents(detach(c), scope, filter, position(after, paged), limit+1)
	if err != nil {
		return err
	}
	page := httpapi.Page(rows, limit, func(last intent) string {
		return s.cursors.Encode(cursorScope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
	return httpapi.JSON(c, http.StatusOK, convert(page, intent.object))
}

// position is where a page begins: after the cursor, or before everything.
func position(after httpapi.Position, paged bool) httpapi.Position {
	if paged {
		return after
	}
	return httpapi.Position{Time: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
}

func (s *Service) listIntents(ctx context.Context, scope postgres.Scope, f intentFilter, after httpapi.Position, limit int) ([]intent, error) {
	// The row comparison and the order match the index payment_intents_by_created.
	const query = `
		SELECT ` + intentColumns + `
		FROM apipay.payment_intents
		WHERE tenant_id = $1 AND livemode = $2 AND (created_at, id) < ($3, $4)
		  AND ($5::text IS NULL OR status = $5)
		  AND ($6::text IS NULL OR currency = $6)
		  AND ($7::text IS NULL OR merchant_reference = $7)
		  AND ($8::timestamptz IS NULL OR created_at >= $8)
		  AND ($9::timestamptz IS NULL OR created_at < $9)
		ORDER BY created_at DESC, id DESC
		LIMIT $10`
	var list []intent
	args := []any{
		scope.TenantID, scope.Livemode, after.Time, after.ID, f.status, f.currency, f.merchantReference, f.createdGTE, f.createdLT, limit,
	}
	err := s.read(ctx, scope, query, args, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[intent])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing payment intents: %w", err)
	}
	return list, nil
}

// ListRefunds implements api.Server.
func (s *Service) ListRefunds(c echo.Context) error {
	scope := auth.FromContext(c).Scope
	intentID, err := pathID(c, id.PaymentIntent)
	if err != nil {
		return err
	}
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	cursorScope := httpapi.CursorScope(append(scopeParts(scope), "refunds", intentID.String())...)
	after, paged := q.Cursor(s.cursors, cursorScope)
	if err := q.Err(); err != nil {
		return err
	}
	rows, err := s.listRefunds(detach(c), scope, intentID, position(after, paged), limit+1)
	if err != nil {
		return err
	}
	page := httpapi.Page(rows, limit, func(last refund) string {
		return s.cursors.Encode(cursorScope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
	return httpapi.JSON(c, http.StatusOK, convert(page, refund.object))
}

func (s *Service) listRefunds(ctx context.Context, scope postgres.Scope, intentID uuid.UUID, after httpapi.Position, limit int) ([]refund, error) {
	const query = `
		SELECT ` + refundColumns + `
		FROM apipay.refunds
		WHERE tenant_id = $1 AND livemode = $2 AND payment_intent_id = $3 AND (created_at, id) < ($4, $5)
		ORDER BY created_at DESC, id DESC
		LIMIT $6`
	var list []refund
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(selectIntent, intentID)
	batch.Queue(query, scope.TenantID, scope.Livemode, intentID, after.Time, after.ID, limit)
	err := postgres.ReadInTenant(ctx, s.pool, scope, batch, func(results pgx.BatchResults) error {
		if _, err := scanIntent(results.Query()); err != nil {
			return err
		}
		rows, err := results.Query()
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[refund])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing refunds: %w", err)
	}
	return list, nil
}

// convert makes a page of rows one of objects.
func convert[Row, Object any](page httpapi.List[Row], object func(Row) Object) httpapi.List[Object] {
	data := make([]Object, len(page.Data))
	for i, row := range page.Data {
		data[i] = object(row)
	}
	return httpapi.List[Object]{Object: page.Object, Data: data, HasMore: page.HasMore, NextCursor: page.NextCursor}
}
