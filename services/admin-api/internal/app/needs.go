package app

import "apipay.io/hub/pkg/postgres"

// needs are what this service does in the database; the start is refused where its role could not.
var needs = []postgres.Need{
	{Table: "tenants", Verbs: []postgres.Verb{postgres.Select, postgres.Insert}},
	{
		Table: "api_keys", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
		Columns: []string{"expires_at", "revoked_at", "rolled_to"},
	},
	{Table: "payment_intents", Verbs: []postgres.Verb{postgres.Select}},
	{Table: "refunds", Verbs: []postgres.Verb{postgres.Select}},
	{
		Table: "payment_attempts", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock},
		Columns: []string{"resolution", "resolution_reason", "resolved_by", "resolved_at", "next_check_at"},
	},
	{
		Table: "outbox_events", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
		Columns: []string{"replay_requested_at", "discarded_at", "discarded_by", "discard_reason"},
	},
	{Table: "audit_log", Verbs: []postgres.Verb{postgres.Select, postgres.Insert}},
	{
		Table: "webhook_endpoints", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock},
		Columns: []string{"url", "enabled_events", "description", "status", "disabled_reason", "enabled_at", "updated_at"},
	},
	{Table: "webhook_endpoint_states", Verbs: []postgres.Verb{postgres.Select}},
	{Table: "webhook_endpoint_health", Verbs: []postgres.Verb{postgres.Select}},
	{Table: "webhook_events", Verbs: []postgres.Verb{postgres.Select}},
	{
		Table: "outbound_webhook_deliveries", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock},
		Columns: []string{"status", "priority", "trigger", "next_attempt_at", "due_since", "failed_at", "failure_reason", "recovery_id", "updated_at"},
	},
	{Table: "outbound_webhook_attempts", Verbs: []postgres.Verb{postgres.Select}},
	{
		Table: "quarantined_records", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock},
		Columns: []string{"replay_requested_at"},
	},
	{
		Table: "recoveries", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock},
		Columns: []string{"cancel_requested_at"},
	},
}
