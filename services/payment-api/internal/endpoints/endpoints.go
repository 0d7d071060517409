// Package endpoints is the merchants' side of webhooks: where they want events sent, with which secret they are signed,
// and what became of the deliveries. It writes webhook_endpoints and webhook_endpoint_secrets; sending is the
// dispatcher's, which is asked by the rows that retry and recover write.
package endpoints

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// txTimeout bounds one transaction, its wait for a connection included.
const txTimeout = 10 * time.Second

// Deps is what the package works with.
type Deps struct {
	Pool    *pgxpool.Pool
	Policy  webhook.Policy
	Keyset  *webhook.Keyset
	Cursors *httpapi.Cursors
	// Answers seals what is stored of an answer that shows a secret.
	Answers *Sealer
	// KeyTTL is how long the answer to an Idempotency-Key can be replayed.
	KeyTTL time.Duration
}

// Endpoints has the operations of /v1/webhook-endpoints.
type Endpoints struct {
	Deps
}

// New makes the handlers.
func New(deps Deps) *Endpoints { return &Endpoints{deps} }

// Needs are the privileges that the package's statements take.
func Needs() []postgres.Need {
	return append(idempotency.Needs(), []postgres.Need{
		{
			Table: "webhook_endpoints", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
			Columns: []string{
				"url", "enabled_events", "description", "status", "disabled_reason", "enabled_at",
				"deleted_at", "version", "updated_at",
			},
		},
		{
			Table: "webhook_endpoint_secrets", Columns: []string{"expires_at"},
			Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Delete},
		},
		{Table: "webhook_endpoint_states", Verbs: []postgres.Verb{postgres.Select}},
		{
			Table: "outbound_webhook_deliveries", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock},
			Columns: []string{
				"status", "priority", "trigger", "next_attempt_at", "due_since", "failed_at",
				"failure_reason", "recovery_id", "updated_at",
			},
		},
		{Table: "outbound_webhook_attempts", Verbs: []postgres.Verb{postgres.Select}},
		{Table: "recoveries", Verbs: []postgres.Verb{postgres.Insert}},
		{Table: "outbox_events", Verbs: []postgres.Verb{postgres.Insert}},
		{Table: "audit_log", Verbs: []postgres.Verb{postgres.Insert}},
	}...)
}

// pathID reads an id of the path; one that does not parse is as unknown as one that does not exist.
func pathID(c echo.Context, name string, prefix id.Prefix) (uuid.UUID, error) {
	parsed, err := id.Parse(prefix, c.Param(name))
	if err != nil {
		return uuid.Nil, notFound(prefix)
	}
	return parsed, nil
}

func notFound(prefix id.Prefix) error {
	if prefix == id.Delivery {
		return httpapi.New(httpapi.CodeNotFound, "There is no such delivery.")
	}
	return httpapi.New(httpapi.CodeNotFound, "There is no such webhook endpoint.")
}
