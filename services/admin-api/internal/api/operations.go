package api

import (
	"time"

	"apipay.io/hub/pkg/httpapi"
)

// The bodies of requests whose handlers take them as they are.
type (
	createTenantBody struct {
		Name string `json:"name" api:"required"`
	}
	createKeyBody struct {
		Livemode  bool                        `json:"livemode" api:"required"`
		Scopes    httpapi.Optional[[]string]  `json:"scopes"`
		ExpiresAt httpapi.Optional[time.Time] `json:"expires_at"`
	}
	rollKeyBody struct {
		OverlapSeconds httpapi.Optional[httpapi.Integer] `json:"overlap_seconds"`
		ExpiresAt      httpapi.Optional[time.Time]       `json:"expires_at"`
	}
	retryBody struct {
		Force httpapi.Optional[bool] `json:"force" api:"nonnull"`
	}
	discardBody struct {
		Reason string `json:"reason" api:"required"`
	}
	resolveBody struct {
		Outcome string `json:"outcome" api:"required"`
		Reason  string `json:"reason" api:"required"`
	}
)

// operations say what the document tells of each route.
var operations = map[string]operation{
	"GET /admin/v1/tenants": {
		id: "listTenants", tag: "Tenants", summary: "List tenants", query: paged(),
		answers: map[int]any{200: httpapi.List[tenantView]{}},
	},
	"POST /admin/v1/tenants": {
		id: "createTenant", tag: "Tenants", summary: "Create a tenant", body: createTenantBody{},
		answers: map[int]any{201: tenantView{}},
	},
	"GET /admin/v1/tenants/:tenant/api-keys": {
		id: "listApiKeys", tag: "API keys", summary: "List a tenant's API keys", query: paged(),
		answers: map[int]any{200: httpapi.List[keyView]{}},
	},
	"POST /admin/v1/tenants/:tenant/api-keys": {
		id: "createApiKey", tag: "API keys", summary: "Create an API key",
		description: "The key itself is in this answer, as secret, and nowhere else. Without scopes it has all.",
		body:        createKeyBody{}, answers: map[int]any{201: keyView{}},
	},
	"GET /admin/v1/tenants/:tenant/api-keys/:key": {
		id: "readApiKey", tag: "API keys", summary: "Read an API key", answers: map[int]any{200: keyView{}},
	},
	"DELETE /admin/v1/tenants/:tenant/api-keys/:key": {
		id: "revokeApiKey", tag: "API keys", summary: "Revoke an API key", description: "It may be repeated.",
		answers: map[int]any{204: nil},
	},
	"POST /admin/v1/tenants/:tenant/api-keys/:key/roll": {
		id: "rollApiKey", tag: "API keys", summary: "Make the next key",
		description: "The old one works on for overlap_seconds (86400; 0 to 604800), never longer than it would have. " +
			"The next one ends when the old one would have, unless expires_at names another end, or with null none.",
		body: rollKeyBody{}, optional: true, conflicts: true, answers: map[int]any{201: keyView{}},
	},
	"GET /admin/v1/webhook-endpoints": {
		id: "listWebhookEndpoints", tag: "Webhook endpoints", summary: "List endpoints with their health",
		description: "Deleted ones can only be read by their id.",
		query:       paged(idOf("tenant", "tnt"), choice("status", statusEnabled, statusDisabled)),
		answers:     map[int]any{200: httpapi.List[endpointView]{}},
	},
	"GET /admin/v1/webhook-endpoints/:endpoint": {
		id: "readWebhookEndpoint", tag: "Webhook endpoints", summary: "Read an endpoint", answers: map[int]any{200: endpointView{}},
	},
	"GET /admin/v1/webhook-endpoints/:endpoint/health": {
		id: "readWebhookEndpointHealth", tag: "Webhook endpoints", summary: "Read an endpoint's health by the hour",
		description: "From the hourly roll-ups: hours without attempts are left out, latencies are estimates from their buckets.",
		query:       []parameter{moment("from", "The first hour; 7 days before to."), moment("to", "The end; now. At most 31 days after from.")},
		answers:     map[int]any{200: endpointHealthView{}},
	},
	"PATCH /admin/v1/webhook-endpoints/:endpoint": {
		id: "changeWebhookEndpoint", tag: "Webhook endpoints", summary: "Change an endpoint", body: endpointChange{}, conflicts: true,
		answers: map[int]any{200: endpointView{}},
	},
	"GET /admin/v1/webhook-deliveries": {
		id: "listWebhookDeliveries", tag: "Webhook deliveries", summary: "List deliveries",
		description: "Each with its 20 newest attempts and 1,024 characters of each answer.",
		query: paged(idOf("tenant", "tnt"), idOf("endpoint", "we"), idOf("event", "evt"), choice("status", deliveryStatuses...),
			moment("from", "The event's time, inclusive."), moment("to", "The event's time, exclusive.")),
		answers: map[int]any{200: httpapi.List[deliveryView]{}},
	},
	"GET /admin/v1/webhook-deliveries/:delivery": {
		id: "readWebhookDelivery", tag: "Webhook deliveries", summary: "Read a delivery with all its attempts",
		answers: map[int]any{200: deliveryView{}},
	},
	"POST /admin/v1/webhook-deliveries/:delivery/retry": {
		id: "retryWebhookDelivery", tag: "Webhook deliveries", summary: "Send a delivery again",
		description: "One that was delivered needs force. Asked often at once, it is sent once; the others get 409.",
		body:        retryBody{}, optional: true, conflicts: true, answers: map[int]any{202: deliveryView{}},
	},
	"GET /admin/v1/events/:event": {
		id: "readEvent", tag: "Webhook deliveries", summary: "Read where an event is",
		description: "Its deliveries, or why there are none; and for each endpoint of the tenant whether it went there.",
		answers:     map[int]any{200: eventView{}},
	},
	"GET /admin/v1/recoveries": {
		id: "listRecoveries", tag: "Recoveries", summary: "List recoveries",
		query:   paged(idOf("tenant", "tnt"), choice("status", "pending", "running", "done", "canceled")),
		answers: map[int]any{200: httpapi.List[recoveryView]{}},
	},
	"POST /admin/v1/recoveries": {
		id: "createRecovery", tag: "Recoveries", summary: "Send many deliveries again",
		description: "In the background, without a cap. With dry_run they are only counted; matched is null where that took too long. " +
			"Endpoints that are disabled or deleted are left out. from and to bound when a delivery failed.",
		body: recoveryRequest{}, answers: map[int]any{200: recoveryView{}, 201: recoveryView{}},
	},
	"GET /admin/v1/recoveries/:recovery": {
		id: "readRecovery", tag: "Recoveries", summary: "Read a recovery's progress", answers: map[int]any{200: recoveryView{}},
	},
	"DELETE /admin/v1/recoveries/:recovery": {
		id: "cancelRecovery", tag: "Recoveries", summary: "Stop a recovery", description: "What it has queued by then is sent.",
		conflicts: true, answers: map[int]any{204: nil},
	},
	"GET /admin/v1/payment-intents": {
		id: "listPaymentIntents", tag: "Payments", summary: "List payment intents",
		query:   paged(textOf("reference", "The merchant's reference, exactly.", maxReference), idOf("tenant", "tnt")),
		answers: map[int]any{200: httpapi.List[intentView]{}},
	},
	"GET /admin/v1/payment-intents/:intent": {
		id: "readPaymentIntent", tag: "Payments", summary: "Read a payment intent with its attempts and refunds",
		answers: map[int]any{200: intentView{}},
	},
	"GET /admin/v1/refunds/:refund": {
		id: "readRefund", tag: "Payments", summary: "Read a refund", answers: map[int]any{200: refundView{}},
	},
	"GET /admin/v1/payment-attempts": {
		id: "listPaymentAttempts", tag: "Payments", summary: "List attempts, such as those whose outcome is unknown",
		query:   paged(choice("status", attemptStarted, "succeeded", "declined", "not_executed", attemptUnknown), idOf("tenant", "tnt")),
		answers: map[int]any{200: httpapi.List[paymentAttemptView]{}},
	},
	"POST /admin/v1/payment-attempts/:attempt/resolve": {
		id: "resolvePaymentAttempt", tag: "Payments", summary: "Set an unknown outcome by hand",
		description: "outcome is succeeded, declined or not_executed. Not before resolvable_at; the reconciler acts on it.",
		body:        resolveBody{}, conflicts: true, answers: map[int]any{202: paymentAttemptView{}},
	},
	"GET /admin/v1/outbox": {
		id: "readOutbox", tag: "Outbox and quarantine", summary: "Read the outbox's lag per topic",
		answers: map[int]any{200: httpapi.List[topicLag]{}},
	},
	"GET /admin/v1/outbox/parked": {
		id: "listParkedEvents", tag: "Outbox and quarantine", summary: "List parked events",
		query: paged(idOf("tenant", "tnt"), choice("topic", topics...)), answers: map[int]any{200: httpapi.List[parkedView]{}},
	},
	"POST /admin/v1/outbox/parked/:event/replay": {
		id: "replayParkedEvent", tag: "Outbox and quarantine", summary: "Ask the relay to try a parked event again",
		body: struct{}{}, optional: true, conflicts: true, answers: map[int]any{202: parkedView{}},
	},
	"POST /admin/v1/outbox/parked/:event/discard": {
		id: "discardParkedEvent", tag: "Outbox and quarantine", summary: "Give a parked event up",
		body: discardBody{}, conflicts: true, answers: map[int]any{200: parkedView{}},
	},
	"GET /admin/v1/quarantine": {
		id: "listQuarantine", tag: "Outbox and quarantine", summary: "List quarantined records",
		query:   paged(idOf("tenant", "tnt"), textOf("reason", "", maxQuarantineReason)),
		answers: map[int]any{200: httpapi.List[quarantinedView]{}},
	},
	"POST /admin/v1/quarantine/:record/replay": {
		id: "replayQuarantinedRecord", tag: "Outbox and quarantine", summary: "Ask the dispatcher to try a record again",
		body: struct{}{}, optional: true, conflicts: true, answers: map[int]any{202: quarantinedView{}},
	},
	"GET /admin/v1/audit-log": {
		id: "listAuditLog", tag: "Audit log", summary: "List what was changed, by whom and from where",
		query: paged(idOf("tenant", "tnt"), textOf("target", "", maxAuditText), textOf("actor", "", maxAuditText),
			textOf("action", "", maxAuditText), moment("from", ""), moment("to", "")),
		answers: map[int]any{200: httpapi.List[auditLogView]{}},
	},
}
