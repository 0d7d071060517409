// Package api is admin-api's HTTP surface: who may do what, and what each route does in the database.
package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/admin-api/internal/staff"
)

// Options of [New].
type Options struct {
	Pool    *pgxpool.Pool
	Staff   *staff.Directory
	Cursors *httpapi.Cursors
	// Policy judges the URLs of endpoints.
	Policy webhook.Policy
	// VisibilityDelay has to pass after a lease's end before an outcome can be set by hand.
	VisibilityDelay time.Duration
	Logger          *slog.Logger
}

// API serves the routes. It keeps no state of its own.
type API struct {
	pool            *pgxpool.Pool
	staff           *staff.Directory
	cursors         *httpapi.Cursors
	policy          webhook.Policy
	visibilityDelay time.Duration
	logger          *slog.Logger
}

// route is one operation and the least role that may do it. Everything above viewer writes.
type route struct {
	method string
	path   string
	role   staff.Role
	// action is the noun.verb of the audit log; empty for a read.
	action string
	serve  func(*API, *call) error
}

var routes = []route{
	{http.MethodGet, "/admin/v1/tenants", staff.Viewer, "", (*API).listTenants},
	{http.MethodPost, "/admin/v1/tenants", staff.Admin, "tenant.create", (*API).createTenant},

	{http.MethodGet, "/admin/v1/tenants/:tenant/api-keys", staff.Viewer, "", (*API).listKeys},
	{http.MethodPost, "/admin/v1/tenants/:tenant/api-keys", staff.Admin, "api_key.create", (*API).createKey},
	{http.MethodGet, "/admin/v1/tenants/:tenant/api-keys/:key", staff.Viewer, "", (*API).readKey},
	{http.MethodDelete, "/admin/v1/tenants/:tenant/api-keys/:key", staff.Admin, "api_key.revoke", (*API).revokeKey},
	{http.MethodPost, "/admin/v1/tenants/:tenant/api-keys/:key/roll", staff.Admin, "api_key.roll", (*API).rollKey},

	{http.MethodGet, "/admin/v1/webhook-endpoints", staff.Viewer, "", (*API).listEndpoints},
	{http.MethodGet, "/admin/v1/webhook-endpoints/:endpoint", staff.Viewer, "", (*API).readEndpoint},
	{http.MethodGet, "/admin/v1/webhook-endpoints/:endpoint/health", staff.Viewer, "", (*API).readEndpointHealth},
	{http.MethodPatch, "/admin/v1/webhook-endpoints/:endpoint", staff.Admin, "webhook_endpoint.update", (*API).changeEndpoint},

	{http.MethodGet, "/admin/v1/webhook-deliveries", staff.Viewer, "", (*API).listDeliveries},
	{http.MethodGet, "/admin/v1/webhook-deliveries/:delivery", staff.Viewer, "", (*API).readDelivery},
	{http.MethodPost, "/admin/v1/webhook-deliveries/:delivery/retry", staff.Support, "webhook_delivery.retry", (*API).retryDelivery},
	{http.MethodGet, "/admin/v1/events/:event", staff.Viewer, "", (*API).readEvent},

	{http.MethodGet, "/admin/v1/recoveries", staff.Viewer, "", (*API).listRecoveries},
	{http.MethodPost, "/admin/v1/recoveries", staff.Support, "recovery.create", (*API).createRecovery},
	{http.MethodGet, "/admin/v1/recoveries/:recovery", staff.Viewer, "", (*API).readRecovery},
	{http.MethodDelete, "/admin/v1/recoveries/:recovery", staff.Support, "recovery.cancel", (*API).cancelRecovery},

	{http.MethodGet, "/admin/v1/payment-intents", staff.Viewer, "", (*API).listIntents},
	{http.MethodGet, "/admin/v1/payment-intents/:intent", staff.Viewer, "", (*API).readIntent},
	{http.MethodGet, "/admin/v1/refunds/:refund", staff.Viewer, "", (*API).readRefund},
	{http.MethodGet, "/admin/v1/payment-attempts", staff.Viewer, "", (*API).listPaymentAttempts},
	{http.MethodPost, "/admin/v1/payment-attempts/:attempt/resolve", staff.Admin, "payment_attempt.resolve", (*API).resolveAttempt},

	{http.MethodGet, "/admin/v1/outbox", staff.Viewer, "", (*API).readOutbox},
	{http.MethodGet, "/admin/v1/outbox/parked", staff.Viewer, "", (*API).listParked},
	{http.MethodPost, "/admin/v1/outbox/parked/:event/replay", staff.Support, "outbox_event.replay", (*API).replayParked},
	{http.MethodPost, "/admin/v1/outbox/parked/:event/discard", staff.Admin, "outbox_event.discard", (*API).discardParked},

	{http.MethodGet, "/admin/v1/quarantine", staff.Viewer, "", (*API).listQuarantine},
	{http.MethodPost, "/admin/v1/quarantine/:record/replay", staff.Support, "quarantined_record.replay", (*API).replayQuarantined},

	{http.MethodGet, "/admin/v1/audit-log", staff.Viewer, "", (*API).listAudit},
}

// New makes the handler of every route.
func New(o Options) http.Handler {
	a := &API{
		pool: o.Pool, staff: o.Staff, cursors: o.Cursors, policy: o.Policy,
		visibilityDelay: o.VisibilityDelay, logger: o.Logger,
	}
	e := httpapi.NewEcho(httpapi.Options{Logger: o.Logger, Map: problemOf})
	// The peer of the connection, and no header that it wrote, goes into the audit log.
	e.IPExtractor = echo.ExtractIPDirect()
	for _, r := range routes {
		e.Add(r.method, r.path, a.guard(r))
	}
	return e
}
