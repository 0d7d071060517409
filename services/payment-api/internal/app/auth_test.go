package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
)

const endpointsPath = "/v1/webhook-endpoints"

func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := b.tenant(t)
	good := b.key(t, tenant, false)

	t.Run("RefusesWhatIsNoCredential", func(t *testing.T) {
		t.Parallel()
		none := merchant{url: b.url}
		for name, headers := range map[string][]string{
			"missing":       nil,
			"empty":         {"Authorization", ""},
			"basic":         {"Authorization", "Basic " + good},
			"no scheme":     {"Authorization", good},
			"twice":         {"Authorization", "Bearer " + good, "Authorization", "Bearer " + good},
			"injection":     {"Authorization", "Bearer x'; RESET ROLE; --"},
			"uuid":          {"Authorization", "Bearer " + strings.ToUpper(tenant.String())},
			"braces":        {"Authorization", "Bearer {" + tenant.String() + "}"},
			"10 kB":         {"Authorization", "Bearer " + strings.Repeat("a", 10_000)},
			"other mode":    {"Authorization", "Bearer " + strings.Replace(good, "apk_test_", "apk_live_", 1)},
			"cut":           {"Authorization", "Bearer " + good[:len(good)-1]},
			"unknown key":   {"Authorization", "Bearer " + apikey.New(false).Reveal()},
			"not ASCII":     {"Authorization", "Bearer apk_test_é"},
			"comma, second": {"Authorization", "Bearer " + good + ", Bearer " + good},
		} {
			a := none.call(t, http.MethodGet, endpointsPath, nil, headers...)
			refused(t, a, http.StatusUnauthorized, "authentication_failed")
			require.True(t, strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer"), name)
			require.NotContains(t, string(a.body), "SQLSTATE", name)
		}
		require.NotContains(t, b.logs.String(), good, "keys stay out of the logs")
	})

	t.Run("SchemeInAnyCase", func(t *testing.T) {
		t.Parallel()
		a := merchant{url: b.url}.call(t, http.MethodGet, endpointsPath, nil, "Authorization", "bearer "+good)
		require.Equal(t, http.StatusOK, a.status)
	})

	t.Run("AuthenticatesBeforeItParses", func(t *testing.T) {
		t.Parallel()
		a := merchant{url: b.url}.call(t, http.MethodPost, endpointsPath, "{broken")
		refused(t, a, http.StatusUnauthorized, "authentication_failed")
	})

	t.Run("RowOfTheOtherModeIsRefused", func(t *testing.T) {
		t.Parallel()
		// A row whose mode is not what the key's text says can only come from a fault or a forgery.
		key := apikey.New(true)
		hash := key.Hash()
		b.exec(t, `INSERT INTO apipay.api_keys (id, tenant_id, livemode, hash, last4, scopes)
			VALUES (gen_random_uuid(), $1, false, $2, 'abcd', '{webhook_endpoints:read}')`, tenant, hash[:])
		a := merchant{b.url, key.Reveal()}.call(t, http.MethodGet, endpointsPath, nil)
		refused(t, a, http.StatusUnauthorized, "authentication_failed")
	})

	t.Run("ScopesAreExact", func(t *testing.T) {
		t.Parallel()
		reader := merchant{b.url, b.key(t, tenant, false, apikey.WebhookEndpointsRead)}
		require.Equal(t, http.StatusOK, reader.call(t, http.MethodGet, endpointsPath, nil).status)
		a := reader.call(t, http.MethodPost, endpointsPath, "{}")
		refused(t, a, http.StatusForbidden, "insufficient_scope")
		require.Contains(t, a.header.Get("WWW-Authenticate"), "webhook_endpoints:write")
		refused(t, reader.call(t, http.MethodGet, "/v1/events", nil), http.StatusForbidden, "insufficient_scope")
		refused(t, merchant{b.url, b.key(t, tenant, false, apikey.WebhookEndpointsWrite)}.
			call(t, http.MethodGet, endpointsPath, nil), http.StatusForbidden, "insufficient_scope")
		none := b.key(t, tenant, false)
		b.exec(t, `UPDATE apipay.api_keys SET scopes = '{}' WHERE hash = $1`, hashOf(t, none))
		refused(t, merchant{b.url, none}.call(t, http.MethodGet, "/v1/events/x", nil), http.StatusForbidden, "insufficient_scope")
	})

	t.Run("NotesItsUseOnceAMinute", func(t *testing.T) {
		t.Parallel()
		m := merchant{b.url, b.key(t, tenant, false)}
		used := func() *time.Time {
			return query[*time.Time](t, b, `SELECT last_used_at FROM apipay.api_keys WHERE hash = $1`, hashOf(t, m.key))
		}
		require.Nil(t, used())
		m.call(t, http.MethodGet, endpointsPath, nil)
		require.Eventually(t, func() bool { return used() != nil }, 5*time.Second, 10*time.Millisecond)
		first := *used()
		require.Never(t, func() bool {
			m.call(t, http.MethodGet, endpointsPath, nil)
			return !used().Equal(first)
		}, 1200*time.Millisecond, 50*time.Millisecond)
		b.exec(t, `UPDATE apipay.api_keys SET last_used_at = now() - interval '61 seconds' WHERE hash = $1`, hashOf(t, m.key))
		require.Eventually(t, func() bool {
			m.call(t, http.MethodGet, endpointsPath, nil)
			return used().After(first)
		}, 5*time.Second, 50*time.Millisecond)
	})
}

func TestAuthentication_RevokedKeyFailsWithinASecondOnEveryReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replicas := []string{b.url, b.replica(t)}
	key := b.key(t, b.tenant(t), false)
	for _, url := range replicas {
		require.Equal(t, http.StatusOK, merchant{url, key}.call(t, http.MethodGet, endpointsPath, nil).status)
	}
	b.exec(t, `UPDATE apipay.api_keys SET revoked_at = now() WHERE hash = $1`, hashOf(t, key))
	revoked := time.Now()
	for _, url := range replicas {
		m := merchant{url, key}
		for m.call(t, http.MethodGet, endpointsPath, nil).status == http.StatusOK {
			require.Less(t, time.Since(revoked), time.Second)
		}
		refused(t, m.call(t, http.MethodGet, endpointsPath, nil), http.StatusUnauthorized, "authentication_failed")
	}
}

// A17: both keys work during the overlap of a roll, the old one ends when it expires, and a key that was used with the old
// one replays with the new one.
func TestAuthentication_KeyRoll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := b.tenant(t)
	before, after := merchant{b.url, b.key(t, tenant, false)}, merchant{b.url, b.key(t, tenant, false)}
	b.exec(t, `UPDATE apipay.api_keys SET expires_at = now() + interval '1 hour' WHERE hash = $1`, hashOf(t, before.key))
	body := map[string]any{"url": "https://merchant.example/hook", "enabled_events": []string{"*"}}
	first := before.call(t, http.MethodPost, endpointsPath, body, "Idempotency-Key", "roll-1")
	require.Equal(t, http.StatusCreated, first.status)
	again := after.call(t, http.MethodPost, endpointsPath, body, "Idempotency-Key", "roll-1")
	require.Equal(t, http.StatusCreated, again.status)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))

	b.exec(t, `UPDATE apipay.api_keys SET expires_at = now() + interval '50 milliseconds' WHERE hash = $1`, hashOf(t, before.key))
	require.Eventually(t, func() bool {
		return before.call(t, http.MethodGet, endpointsPath, nil).status == http.StatusUnauthorized
	}, time.Second, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, after.call(t, http.MethodGet, endpointsPath, nil).status)
}
