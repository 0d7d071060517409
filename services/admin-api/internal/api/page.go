package api

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
)

// where collects the conditions of a list; values are always bound, never part of the text.
type where struct {
	conditions []string
	args       []any
}

// bind adds a value and returns its placeholder.
func (w *where) bind(value any) string {
	w.args = append(w.args, value)
	return placeholder(len(w.args))
}

func (w *where) add(condition string, values ...any) {
	for _, value := range values {
		condition = strings.Replace(condition, "?", w.bind(value), 1)
	}
	w.conditions = append(w.conditions, condition)
}

// sql is the WHERE clause, or nothing.
func (w *where) sql() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

func placeholder(n int) string {
	const digits = "0123456789"
	if n < 10 {
		return "$" + digits[n:n+1]
	}
	return "$" + digits[n/10:n/10+1] + digits[n%10:n%10+1]
}

// idParam declares a query parameter that is an id of one kind.
func idParam(q *httpapi.Query, name string, prefix id.Prefix) (uuid.UUID, bool) {
	return httpapi.Param(q, name, "a "+string(prefix)+"_ id", func(text string) (uuid.UUID, error) {
		return id.Parse(prefix, text)
	})
}

// tenantParam declares tenant.
func tenantParam(q *httpapi.Query) (uuid.UUID, bool) { return idParam(q, "tenant", id.Tenant) }

// ofTenants narrows to some tenants; nil is everybody's. Of one alone an index by tenant has the list's order.
func (w *where) ofTenants(column string, tenants []uuid.UUID) {
	if len(tenants) == 1 {
		w.add(column+" = ?", tenants[0])
	} else if tenants != nil {
		w.add(column+" = ANY (?::uuid[])", tenants)
	}
}

// tenantsAsked declares tenant and answers whose rows a list has to look at, nil for everybody's. Row level security says
// the same; said here too it finds the tenants' index.
func (c *call) tenantsAsked(q *httpapi.Query) []uuid.UUID {
	if tenant, ok := tenantParam(q); ok {
		return []uuid.UUID{tenant}
	}
	if c.who.IsConfined() {
		return c.who.Tenants
	}
	return nil
}

// span declares from and to, either of which may be left out; one that ends before it begins is unusable.
func span(q *httpapi.Query) (from, to *time.Time) {
	if t, ok := q.RFC3339("from"); ok {
		from = &t
	}
	if t, ok := q.RFC3339("to"); ok {
		to = &t
	}
	if from != nil && to != nil && from.After(*to) {
		q.Fail("from", `The query parameter "from" must not be later than "to".`)
	}
	return from, to
}

// scopeOf binds a cursor to the list, to what its reader may see and to the filters; not to the page's size.
func (c *call) scopeOf(list string) string {
	values := c.Request().URL.Query()
	values.Del("cursor")
	values.Del("limit")
	return httpapi.CursorScope("admin", list, c.who.Scope(), values.Encode())
}

// utc is a time as the answers show it: RFC 3339 with Z and microseconds.
func utc(t time.Time) time.Time { return t.UTC() }

func utcOrNull(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func formatOrNull(prefix id.Prefix, u *uuid.UUID) *string {
	if u == nil {
		return nil
	}
	text := id.Format(prefix, *u)
	return &text
}

// firstIDOf is the smallest UUIDv7 of t's millisecond, and firstIDFrom the smallest that carries no time before t.
// Times that no id can carry become the nearest one that it can.
func firstIDOf(t time.Time) (u uuid.UUID) {
	const most = 1<<48 - 1
	ms := min(max(t.UnixMilli(), 0), most)
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i)) //nolint:gosec // one byte of 48 bits
	}
	return u
}

func firstIDFrom(t time.Time) uuid.UUID {
	return firstIDOf(t.Add(time.Millisecond - 1))
}
