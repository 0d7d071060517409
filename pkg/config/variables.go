package config

//go:generate go run ./envtable ../../README.md

// Variable is one setting of the published list.
type Variable struct {
	Name string
	// Services that read it.
	Services []string
	// Default as text; empty for none.
	Default string
	// Secret may also come from the file that Name_FILE names, and is never shown.
	Secret bool
	// Doc is one line: meaning, unit, trade-off.
	Doc string
}

const (
	paymentAPI = "payment-api"
	adminAPI   = "admin-api"
	relay      = "outbox-relay"
	dispatcher = "webhook-dispatcher"
)

var (
	all    = []string{paymentAPI, adminAPI, relay, dispatcher}
	kafkas = []string{relay, dispatcher}
)

// Variables is the one list for all services. Every service accepts every name on it, so that one
// environment can serve them all; each reads only its own.
var Variables = []Variable{
	{"APIPAY_DATABASE_URL", all, "", true, "libpq URI of the service's own role (apipay_app, apipay_admin or apipay_worker); required"},
	{"APIPAY_HTTP_ADDR", []string{paymentAPI, adminAPI}, "127.0.0.1:8080 / :8081", false, "host:port of the API"},
	{"APIPAY_OPS_ADDR", all, "127.0.0.1:8082 / :8083 / :8084 / :8085", false, "host:port of /livez, /readyz and /metrics"},
	{"APIPAY_LOG_LEVEL", all, "info", false, "debug, info, warn or error"},
	{"APIPAY_DEV", []string{paymentAPI, adminAPI}, "false", false, "true permits what only a development stack may do, such as the sandbox as live gateway"},

	{"APIPAY_KAFKA_BROKERS", kafkas, "", false, "comma-separated host:port; required"},
	{"APIPAY_KAFKA_TLS", kafkas, "false", false, "true connects with TLS, verified by the system's roots"},
	{"APIPAY_KAFKA_SASL_MECHANISM", kafkas, "", false, "PLAIN (Event Hubs), SCRAM-SHA-256 or SCRAM-SHA-512; empty for none"},
	{"APIPAY_KAFKA_SASL_USERNAME", kafkas, "", false, "user of SASL ($ConnectionString for Event Hubs)"},
	{"APIPAY_KAFKA_SASL_PASSWORD", kafkas, "", true, "password of SASL"},
	{"APIPAY_KAFKA_CREATE_TOPICS", []string{relay}, "false", false, "true creates missing topics with 16 partitions, for development"},

	{"APIPAY_OUTBOX_BATCH", []string{relay}, "500", false, "events per claim of a lane, 1..10000"},
	{"APIPAY_RETENTION_OUTBOX", []string{relay}, "840h", false, "published events are kept this long (35 days), at least 30 days"},

	{"APIPAY_WEBHOOK_RETRY_SCHEDULE", []string{dispatcher}, "1m,5m,30m,2h,12h", false, "waits after each failed attempt, comma-separated Go durations; one attempt more than entries"},
	{"APIPAY_WEBHOOK_TIMEOUT", []string{dispatcher}, "10s", false, "one limit over DNS, connect, TLS, headers and body of an attempt"},
	{"APIPAY_WEBHOOK_LEASE", []string{dispatcher}, "60s", false, "how long a dispatcher owns a delivery it claimed; at least the timeout plus 20 s"},
	{"APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY", []string{dispatcher}, "4", false, "POSTs in flight per endpoint over all replicas"},
	{"APIPAY_WEBHOOK_ALLOW_CIDRS", []string{paymentAPI, adminAPI, dispatcher}, "", false, "comma-separated CIDRs of internal receivers that may be called; where set, http:// URLs are accepted"},
	{"APIPAY_WEBHOOK_PROXY_URL", []string{dispatcher}, "", true, "HTTP proxy for all webhooks (CONNECT)"},
	{"APIPAY_WEBHOOK_DNS", []string{dispatcher}, "", false, "host:port of the resolver; empty for the system's"},
	{"APIPAY_RETENTION_DELIVERIES", []string{dispatcher}, "2160h", false, "deliveries, attempts and their events are kept this long (90 days)"},
	{"APIPAY_SECRETS_KEYSET", []string{paymentAPI, dispatcher}, "", true, "Tink AEAD key set (JSON) that encrypts signing secrets at rest; required"},

	{"APIPAY_GATEWAY_LIVE", []string{paymentAPI}, "", false, "connector of live mode; unset, live confirm and refund answer 503"},
	{"APIPAY_GATEWAY_TIMEOUT", []string{paymentAPI}, "10s", false, "deadline of one gateway call"},
	{"APIPAY_GATEWAY_VISIBILITY_DELAY", []string{paymentAPI, adminAPI}, "60s", false, "a gateway's \"not found\" proves nothing before this long after the lease's end"},
	{"APIPAY_IDEMPOTENCY_LEASE", []string{paymentAPI}, "90s", false, "how long a request owns its Idempotency-Key; above the gateway timeout"},
	{"APIPAY_IDEMPOTENCY_TTL", []string{paymentAPI}, "168h", false, "how long an answer can be replayed (7 days)"},
	{"APIPAY_AMOUNT_MIN", []string{paymentAPI}, "", false, "least amount per currency in minor units, such as USD=50,EUR=50; 1 where not named"},
	{"APIPAY_RATE_LIMIT_RPS", []string{paymentAPI}, "0", false, "requests per second per tenant and mode, per replica; 0 is off"},
	{"APIPAY_RATE_LIMIT_BURST", []string{paymentAPI}, "0", false, "burst of the rate limit; 0 means twice the rate"},

	{"APIPAY_OIDC_ISSUER", []string{adminAPI}, "", false, "issuer URL of staff access tokens"},
	{"APIPAY_OIDC_AUDIENCE", []string{adminAPI}, "", false, "audience that a staff access token must have"},
	{"APIPAY_OIDC_ROLE_CLAIM", []string{adminAPI}, "role", false, "claim that carries viewer, support or admin"},
	{"APIPAY_OIDC_CLIENT_ID", []string{adminAPI}, "", false, "client id with which browsers sign in to the console; empty: by static token only"},
	{"APIPAY_OIDC_CLIENT_SECRET", []string{adminAPI}, "", true, "that client's secret, for issuers that ask for one beside PKCE"},
	{"APIPAY_OIDC_REDIRECT_URL", []string{adminAPI}, "", false, "the console's https:// address and /sign-in/callback; required with the client id"},
	{"APIPAY_ADMIN_TOKENS_FILE", []string{adminAPI}, "", false, "JSON array of {name, sha256, role, tenants?}: static staff tokens"},
	{"APIPAY_RETENTION_AUDIT", []string{adminAPI}, "9600h", false, "audit entries are kept this long (400 days)"},
}
