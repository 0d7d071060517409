package api

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/services/admin-api/internal/staff"
)

// expand fills a route's parameters with ids that nobody has.
func expand(path string) string {
	for name, prefix := range map[string]id.Prefix{
		":tenant": id.Tenant, ":key": id.APIKey, ":endpoint": id.Endpoint, ":delivery": id.Delivery, ":event": id.Event,
		":recovery": id.Recovery, ":intent": id.PaymentIntent, ":refund": id.Refund, ":attempt": id.PaymentAttempt, ":record": id.Quarantined,
	} {
		path = strings.ReplaceAll(path, name, id.Format(prefix, id.New()))
	}
	return path
}

// bodies are valid, so that only the role and the object decide.
func bodyOf(r route) any {
	switch r.action {
	case "tenant.create":
		return map[string]any{"name": "x"}
	case "api_key.create":
		return map[string]any{"livemode": false}
	case "webhook_endpoint.update":
		return map[string]any{"status": "disabled"}
	case "recovery.create":
		return map[string]any{"filter": map[string]any{}}
	case "outbox_event.discard":
		return map[string]any{"reason": "x"}
	case "payment_attempt.resolve":
		return map[string]any{"outcome": "declined", "reason": "x"}
	}
	return nil
}

func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tokens := map[staff.Role]string{staff.Viewer: viewerToken, staff.Support: supportToken, staff.Admin: adminToken}
	// Written out, so that a route cannot change who may use it by a change of the table alone.
	least := map[string]staff.Role{
		"tenant.create": staff.Admin, "api_key.create": staff.Admin, "api_key.revoke": staff.Admin, "api_key.roll": staff.Admin,
		"webhook_endpoint.update": staff.Admin, "outbox_event.discard": staff.Admin, "payment_attempt.resolve": staff.Admin,
		"webhook_delivery.retry": staff.Support, "recovery.create": staff.Support, "recovery.cancel": staff.Support,
		"outbox_event.replay": staff.Support, "quarantined_record.replay": staff.Support,
	}
	seen := 0
	for _, r := range routes {
		path := expand(r.path)
		need := staff.Viewer
		if r.method != http.MethodGet {
			var known bool
			need, known = least[r.action]
			require.True(t, known, "%s %s writes and is in no list", r.method, r.path)
			seen++
		}
		require.Equal(t, need, r.role, "%s %s", r.method, r.path)
		for role, token := range tokens {
			got := b.do(t, token, r.method, path, bodyOf(r))
			if role.May(need) {
				require.NotContains(t, []int{401, 403, 405, 500, 503}, got.status, "%s %s as %s: %s", r.method, r.path, role, got.raw)
				continue
			}
			got.requireProblem(t, http.StatusForbidden, "forbidden")
			audit := b.lastAudit(t)
			require.Equal(t, r.action, audit.Action)
			require.JSONEq(t, `{"refused":"forbidden"}`, audit.Changes)
		}
		b.problem(t, "", http.StatusUnauthorized, "authentication_failed", r.method, path, bodyOf(r))
		merchant := apikey.New(true)
		b.problem(t, merchant.Reveal(), http.StatusUnauthorized, "authentication_failed", r.method, path, bodyOf(r))
	}
	require.Len(t, least, seen)
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, header := range map[string][]string{
		"none":         nil,
		"empty":        {""},
		"scheme alone": {"Bearer"},
		"no token":     {"Bearer "},
		"basic":        {"Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+adminToken))},
		"no scheme":    {adminToken},
		"two tokens":   {"Bearer " + viewerToken + " " + adminToken},
		"two headers":  {"Bearer " + adminToken, "Bearer " + adminToken},
		"its hash":     {"Bearer " + sum(adminToken)},
		"other case":   {"Bearer " + strings.ToUpper(adminToken)},
		"long":         {"Bearer " + strings.Repeat("x", 20_000)},
		"dots":         {"Bearer a.b.c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/admin/v1/tenants", http.NoBody)
			require.NoError(t, err)
			req.Header["Authorization"] = header
			response, err := client.Do(req)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, http.StatusUnauthorized, response.StatusCode)
			require.True(t, strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer "))
		})
	}
	lower, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/admin/v1/tenants", http.NoBody)
	require.NoError(t, err)
	lower.Header.Set("Authorization", "bearer "+viewerToken)
	response, err := client.Do(lower)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, "the scheme has no case")
	require.NotContains(t, b.log.String(), adminToken)
	require.NotContains(t, b.log.String(), viewerToken)

	b.problem(t, adminToken, http.StatusNotFound, "not_found", http.MethodGet, "/admin/v1/nothing", nil)
	b.problem(t, adminToken, http.StatusMethodNotAllowed, "method_not_allowed", http.MethodPut, "/admin/v1/tenants", nil)
}

// Tokens of OpenID Connect: a genuine one works, one without a role is forbidden, and an issuer that is away is a 503
// for what only it can judge.
func TestAuthentication_OIDC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server, err := mockoidc.Run()
	require.NoError(t, err)
	sign := func(role string) string {
		token, err := server.Keypair.SignJWT(jwt.MapClaims{
			"iss": server.Issuer(), "aud": "apipay-admin", "sub": "00u1", "role": role, "tenants": []string{tenantText(b.a)},
			"exp": time.Now().Add(time.Hour).Unix(),
		})
		require.NoError(t, err)
		return token
	}
	pool := b.db.Pool(t, b.db.Admin)
	b.url = b.serve(t, pool, server.Issuer())
	b.ok(t, sign("admin"), 201, http.MethodPost, keysPath(tenantText(b.a)), map[string]any{"livemode": false})
	require.Equal(t, "oidc:00u1", b.lastAudit(t).Actor)
	b.problem(t, sign("admin"), 404, "not_found", http.MethodPost, keysPath(tenantText(b.b)), map[string]any{"livemode": false})
	b.problem(t, sign("nobody"), 403, "forbidden", http.MethodGet, "/admin/v1/tenants", nil)
	b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/tenants", nil)
	issuer := server.Issuer()
	require.NoError(t, server.Shutdown())
	b.url = b.serve(t, pool, issuer)
	b.problem(t, sign("admin"), 503, "service_unavailable", http.MethodGet, "/admin/v1/tenants", nil)
	b.problem(t, "unknown", 401, "authentication_failed", http.MethodGet, "/admin/v1/tenants", nil)
	b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/tenants", nil)
}

// B77, B78, B21, B33: whatever a query carries is a precise 400, or a filter that matches literally.
func TestQueries_Hostile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	b.delivery(t, b.a, endpoint, failed)
	b.payment(t, b.a, "a_b", "")
	lists := map[string][]string{
		"tenants": nil,
		"tenants/" + tenantText(b.a) + "/api-keys": nil,
		"webhook-endpoints":                        {"tenant", "status"},
		"webhook-deliveries":                       {"tenant", "endpoint", "event", "status", "from", "to"},
		"recoveries":                               {"tenant", "status"},
		"payment-intents":                          {"tenant"},
		"payment-attempts":                         {"tenant", "status"},
		"outbox/parked":                            {"tenant", "topic"},
		"quarantine":                               {"tenant"},
		"audit-log":                                {"tenant", "from", "to"},
	}
	numbers := []string{"-1", "0", "101", "2147483647", "2147483648", "1e12", "9223372036854775808", "abc", "1.5", "1000000", "+1", " 1", "01", "0x1", ""}
	texts := []string{
		"x'; RESET ROLE; --", strings.Repeat("x", 10_240), "%", "_", `\`, "'", "{" + b.a.String() + "}", strings.ToUpper(b.a.String()),
		b.a.String(), "", "tnt_", "null", "*", "tnt_00000000000000000000000000,tnt_00000000000000000000000001", "a\x00b", "\xff",
	}
	for list, params := range lists {
		path := "/admin/v1/" + list
		for _, number := range numbers {
			b.problem(t, viewerToken, http.StatusBadRequest, "invalid_request", http.MethodGet, path+"?limit="+url.QueryEscape(number), nil)
		}
		for _, query := range []string{"limit=1&limit=2", "offset=0", "page=1", "Limit=1", "search=%25", "limit=%zz", "a;b=1", "%00=1"} {
			b.problem(t, viewerToken, http.StatusBadRequest, "invalid_request", http.MethodGet, path+"?"+query, nil)
		}
		for _, cursor := range []string{"x", "", strings.Repeat("A", 55), strings.Repeat("A", 10_240), "AQ'--"} {
			b.problem(t, viewerToken, http.StatusBadRequest, "cursor_invalid", http.MethodGet, path+"?cursor="+url.QueryEscape(cursor), nil)
		}
		for _, param := range params {
			for _, text := range texts {
				b.problem(t, viewerToken, http.StatusBadRequest, "invalid_request", http.MethodGet, path+"?"+param+"="+url.QueryEscape(text), nil)
			}
		}
	}
	// A span that ends before it begins is unusable; an empty one is empty.
	for _, list := range []string{"webhook-deliveries", "audit-log"} {
		got := b.problem(t, viewerToken, http.StatusBadRequest, "invalid_request", http.MethodGet,
			"/admin/v1/"+list+"?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", nil)
		require.Contains(t, got.raw, `"parameter":"from"`)
		require.Empty(t, items(t, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, "/admin/v1/"+list+"?from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", nil)))
	}
	// Free text matches literally.
	for _, text := range []string{"%", "_", "a%b", "a_", "100%", `\`, "'", "a' OR '1'='1", "A_B"} {
		got := b.ok(t, viewerToken, http.StatusOK, http.MethodGet, "/admin/v1/payment-intents?reference="+url.QueryEscape(text), nil)
		require.Empty(t, items(t, got), text)
		got = b.ok(t, viewerToken, http.StatusOK, http.MethodGet, "/admin/v1/audit-log?actor="+url.QueryEscape(text), nil)
		require.Empty(t, items(t, got), text)
	}
	require.Len(t, items(t, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, "/admin/v1/payment-intents?reference=a_b", nil)), 1)
	for _, text := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		b.problem(t, viewerToken, http.StatusBadRequest, "invalid_request", http.MethodGet, "/admin/v1/payment-intents?reference="+url.QueryEscape(text), nil)
	}
	// Ids in paths: whatever does not parse is no object.
	for _, text := range texts {
		if text == "" {
			continue
		}
		for _, path := range []string{"tenants/%s/api-keys", "webhook-deliveries/%s", "events/%s", "payment-intents/%s", "refunds/%s", "recoveries/%s"} {
			got := b.do(t, viewerToken, http.MethodGet, "/admin/v1/"+strings.Replace(path, "%s", url.PathEscape(text), 1), nil)
			require.Equal(t, http.StatusNotFound, got.status, "%q: %s", text, got.raw)
		}
	}
}
