package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
)

const maxTenantName = 200

type tenantRow struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
}

type tenantView struct {
	ID        string    `json:"id"`
	Object    string    `json:"object"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func (r tenantRow) view() tenantView {
	return tenantView{ID: id.Format(id.Tenant, r.ID), Object: "tenant", Name: r.Name, CreatedAt: utc(r.CreatedAt)}
}

func (a *API) createTenant(c *call) error {
	const insert = `INSERT INTO apipay.tenants (id, name) VALUES ($1, $2) RETURNING id, name, created_at`
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body createTenantBody
	if _, err := httpapi.Bind(c, &body); err != nil {
		return err
	}
	if err := checkName("/name", body.Name, maxTenantName); err != nil {
		return err
	}
	if c.who.IsConfined() {
		return httpapi.New(httpapi.CodeForbidden, "A token that is confined to some tenants makes no new ones.")
	}
	var made tenantRow
	err := a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		rows, err := tx.Query(ctx, insert, id.NewAt(tx.Now, 0), body.Name)
		if err != nil {
			return fmt.Errorf("inserting the tenant: %w", err)
		}
		if made, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[tenantRow]); err != nil {
			return fmt.Errorf("inserting the tenant: %w", err)
		}
		entry := c.audit(made.ID, false, id.Format(id.Tenant, made.ID))
		entry.Changes = map[string]any{"name": made.Name}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusCreated, made.view())
}

func (a *API) listTenants(c *call) error {
	// The nil tenant stands for the platform in the audit log and is nobody's.
	const query = `
		SELECT id, name, created_at FROM apipay.tenants
		WHERE id <> $1 AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3))
		ORDER BY created_at DESC, id DESC
		LIMIT $4`
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	scope := c.scopeOf("tenants")
	after, paging := q.Cursor(a.cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	var rows []tenantRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[tenantRow](ctx, tx, query, outbox.Platform, afterTime(after, paging), after.ID, limit+1)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, tenantRow.view, func(last tenantRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

// checkText refuses free text that says nothing, or too much. As in the merchants' API it may hold every character but
// U+0000, which no body may.
func checkText(pointer, text string, most int) error {
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > most {
		return httpapi.Invalid(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("A text of 1 to %d characters is due.", most))
	}
	return nil
}

// checkName refuses, beyond that, what does not fit on one line.
func checkName(pointer, text string, most int) error {
	if err := checkText(pointer, text, most); err != nil {
		return err
	}
	for _, r := range text {
		if !httpapi.IsLineText(r) {
			return httpapi.Invalid(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("The character %U is not allowed.", r))
		}
	}
	return nil
}

// collect reads the rows of one query.
func collect[R any](ctx context.Context, tx postgres.Tx, query string, args ...any) ([]R, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("querying: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[R])
	if err != nil {
		return nil, fmt.Errorf("querying: %w", err)
	}
	return list, nil
}

// one reads the only row of a query, or fails with pgx.ErrNoRows.
func one[R any](ctx context.Context, tx postgres.Tx, query string, args ...any) (R, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		var none R
		return none, fmt.Errorf("querying: %w", err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[R])
	if err != nil {
		return row, fmt.Errorf("querying: %w", err)
	}
	return row, nil
}

// afterTime is NULL on the first page.
func afterTime(after httpapi.Position, paging bool) *time.Time {
	if !paging {
		return nil
	}
	return &after.Time
}

// answerPage answers rows that were read with LIMIT limit+1.
func answerPage[R, V any](c *call, rows []R, limit int, view func(R) V, cursor func(last R) string) error {
	page := httpapi.Page(rows, limit, cursor)
	views := make([]V, len(page.Data))
	for i, row := range page.Data {
		views[i] = view(row)
	}
	return httpapi.JSON(c, http.StatusOK, httpapi.List[V]{
		Object: page.Object, Data: views, HasMore: page.HasMore, NextCursor: page.NextCursor,
	})
}
