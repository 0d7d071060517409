package api

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

const maxAuditText = 255

type auditLogRow struct {
	ID        uuid.UUID
	TenantID  uuid.UUID
	Livemode  bool
	Actor     string
	Role      string
	Action    string
	Target    string
	RequestID *string
	IP        *string
	Changes   []byte
	CreatedAt time.Time
}

type auditLogView struct {
	ID        string         `json:"id"`
	Object    string         `json:"object"`
	TenantID  string         `json:"tenant_id"`
	Livemode  bool           `json:"livemode"`
	Actor     string         `json:"actor"`
	Role      string         `json:"role"`
	Action    string         `json:"action"`
	Target    string         `json:"target"`
	RequestID *string        `json:"request_id"`
	IP        *string        `json:"ip"`
	Changes   jsontext.Value `json:"changes"`
	CreatedAt time.Time      `json:"created_at"`
}

func (r auditLogRow) view() auditLogView {
	return auditLogView{
		ID: id.Format(id.Audit, r.ID), Object: "audit_entry", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		Actor: r.Actor, Role: r.Role, Action: r.Action, Target: r.Target, RequestID: r.RequestID, IP: r.IP, Changes: r.Changes,
		CreatedAt: utc(r.CreatedAt),
	}
}

// listAudit is ordered by the database's time; every filter has an index.
func (a *API) listAudit(c *call) error {
	var w where
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	w.ofTenants("tenant_id", c.tenantsAsked(q))
	for _, column := range []string{"target", "actor", "action"} {
		if text, ok := q.String(column, maxAuditText); ok {
			w.add(column+" = ?", text)
		}
	}
	from, to := span(q)
	if from != nil {
		w.add("created_at >= ?", *from)
	}
	if to != nil {
		w.add("created_at < ?", *to)
	}
	scope := c.scopeOf("audit_log")
	if after, ok := q.Cursor(a.cursors, scope); ok {
		w.add("(created_at, id) < (?, ?)", after.Time, after.ID)
	}
	if err := q.Err(); err != nil {
		return err
	}
	query := `SELECT id, tenant_id, livemode, actor, role, action, target, request_id, ip, changes, created_at
		FROM apipay.audit_log` + w.sql() + ` ORDER BY created_at DESC, id DESC LIMIT ` + w.bind(limit+1)
	var rows []auditLogRow
	err := a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		rows, err = collect[auditLogRow](ctx, tx, query, w.args...)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, auditLogRow.view, func(last auditLogRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}
