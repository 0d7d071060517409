package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// E10: what cannot be found out in time is unknown, and never 0; a list that takes too long says so.
func TestUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.owner.BeginTx(t.Context(), pgx.TxOptions{})
	require.NoError(t, err)
	// The subtests run in parallel, after this function.
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	_, err = tx.Exec(t.Context(), `LOCK TABLE apipay.outbox_events, apipay.outbound_webhook_deliveries IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	t.Run("lag", func(t *testing.T) {
		t.Parallel()
		for _, topic := range items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/outbox", nil)) {
			for _, member := range []string{"oldest_pending_at", "oldest_pending_age_seconds", "parked", "parked_at_least"} {
				value, present := topic[member]
				require.True(t, present)
				require.Nil(t, value, member)
			}
		}
	})
	t.Run("dry run", func(t *testing.T) {
		t.Parallel()
		got := b.ok(t, supportToken, 200, http.MethodPost, recoveriesPath, map[string]any{"dry_run": true, "filter": map[string]any{}})
		value, present := got["matched"]
		require.True(t, present)
		require.Nil(t, value)
	})
	t.Run("list", func(t *testing.T) {
		t.Parallel()
		got := b.problem(t, viewerToken, 503, "service_unavailable", http.MethodGet, deliveriesPath, nil)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	})
}

// No answer but the one that makes it carries a secret, and none carries what others keep to themselves.
func TestAnswersCarryNoSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	b.exec(t, `INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id)
		VALUES ($1, $2, false, $3, 'sealed-signing-secret', 1)`, id.New(), b.a, endpoint)
	delivery := b.delivery(t, b.a, endpoint, failed)
	made := b.ok(t, adminToken, 201, http.MethodPost, keysPath(tenantText(b.a)), map[string]any{"livemode": true})
	intent, _ := b.payment(t, b.a, "1", "")
	record := b.quarantined(t, b.a)
	stuck := b.outboxEvent(t, b.a, parked)
	recovery := b.ok(t, supportToken, 201, http.MethodPost, recoveriesPath, map[string]any{"filter": map[string]any{}})["id"].(string)
	var keyHash string
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT encode(hash, 'hex') FROM apipay.api_keys`).Scan(&keyHash))

	ids := map[string]string{
		":tenant": tenantText(b.a), ":key": made["id"].(string), ":endpoint": id.Format(id.Endpoint, endpoint), ":delivery": delivery,
		":event": id.Format(id.Event, stuck), ":recovery": recovery, ":intent": id.Format(id.PaymentIntent, intent),
		":refund": id.Format(id.Refund, id.New()), ":record": id.Format(id.Quarantined, record),
	}
	for _, r := range routes {
		if r.method != http.MethodGet {
			continue
		}
		path := r.path
		for name, value := range ids {
			path = strings.ReplaceAll(path, name, value)
		}
		got := b.do(t, adminToken, r.method, path, nil)
		if !strings.Contains(path, "/refunds/") {
			require.Equal(t, 200, got.status, "%s: %s", path, got.raw)
		}
		for _, secret := range []string{
			made["secret"].(string), keyHash, "sealed-signing-secret", "whsec_", "apk_", "secret-payload", "merchants-own-key",
			"apipay-test", adminToken, sum(adminToken),
		} {
			require.NotContains(t, got.raw, secret, path)
		}
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		// A HEAD tells the same and no more.
		head := b.do(t, adminToken, http.MethodHead, path, nil)
		require.Equal(t, got.status, head.status, path)
		require.Empty(t, head.raw)
	}
	require.NotContains(t, b.log.String(), made["secret"].(string))
}

// A database that is away is a 503 that tells nothing about it.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.db.Pool(t, strings.Replace(b.db.Admin, b.db.Name, b.db.Name+"_gone", 1))
	b.url = b.serve(t, pool, "")
	got := b.problem(t, viewerToken, 503, "service_unavailable", http.MethodGet, "/admin/v1/tenants", nil)
	require.NotContains(t, got.raw, b.db.Name)
	require.NotContains(t, got.raw, "apipay_admin")
	b.problem(t, adminToken, 503, "service_unavailable", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"})
}
