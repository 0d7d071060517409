package outbox

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// Platform is the reserved tenant of audit entries that concern no single tenant.
var Platform = uuid.Nil

// AuditEntry says who did what, to what, from where.
type AuditEntry struct {
	TenantID uuid.UUID
	Livemode bool
	// Actor is who: the name of a staff token or subject, an API key's id, or a service's name.
	Actor string
	// Role is as what: viewer, support, admin, merchant or system.
	Role string
	// Action is the verb, `noun.verb`: webhook_delivery.retry.
	Action string
	// Target is the id of what it was done to, as TypeID text.
	Target    string
	RequestID string
	IP        string
	// Changes are the members that changed, without secrets; nil for none.
	Changes map[string]any
}

type auditObject struct {
	Object    string         `json:"object"`
	Actor     string         `json:"actor"`
	Role      string         `json:"role"`
	Action    string         `json:"action"`
	Target    string         `json:"target"`
	TenantID  string         `json:"tenant_id"`
	RequestID *string        `json:"request_id"`
	IP        *string        `json:"ip"`
	Changes   map[string]any `json:"changes"`
	Created   int64          `json:"created"`
}

// Audit writes the entry into apipay.audit_log and as an event onto [TopicAudit], in the
// caller's transaction.
func Audit(ctx context.Context, tx postgres.Tx, entry AuditEntry) error {
	const query = `
		INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target, request_id, ip, changes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	if entry.Changes == nil {
		entry.Changes = map[string]any{}
	}
	changes, err := json.Marshal(entry.Changes, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encoding the audit entry: %w", err)
	}
	auditID := id.NewAt(tx.Now, 0)
	batch := &pgx.Batch{}
	batch.Queue(query, auditID, entry.TenantID, entry.Livemode, entry.Actor, entry.Role, entry.Action, entry.Target,
		optional(entry.RequestID), optional(entry.IP), changes)
	_, err = Queue(ctx, batch, tx.Now, Event{
		TenantID: entry.TenantID,
		Livemode: entry.Livemode,
		Topic:    TopicAudit,
		Type:     events.TypeAuditRecorded,
		Object: auditObject{
			Object:    "audit_entry",
			Actor:     entry.Actor,
			Role:      entry.Role,
			Action:    entry.Action,
			Target:    entry.Target,
			TenantID:  id.Format(id.Tenant, entry.TenantID),
			RequestID: optional(entry.RequestID),
			IP:        optional(entry.IP),
			Changes:   entry.Changes,
			Created:   tx.Now.Unix(),
		},
		Request: Request{ID: entry.RequestID},
	})
	if err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("inserting the audit entry: %w", err)
	}
	return nil
}
