package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/id"
)

func keysPath(tenant string) string { return "/admin/v1/tenants/" + tenant + "/api-keys" }

func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)

	made := b.ok(t, adminToken, http.StatusCreated, http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "Ünicode & Söhne"})
	require.Equal(t, "Ünicode & Söhne", made["name"])
	_, err := id.Parse(id.Tenant, made["id"].(string))
	require.NoError(t, err)
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$`, made["created_at"])

	audit := b.lastAudit(t)
	require.Equal(t, "tenant.create", audit.Action)
	require.Equal(t, "ada", audit.Actor)
	require.Equal(t, "admin", audit.Role)
	require.Equal(t, made["id"], audit.Target)
	require.Equal(t, "127.0.0.1", audit.IP)

	list := items(t, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, "/admin/v1/tenants", nil))
	require.Len(t, list, 3, "the platform's reserved tenant is not shown")
	require.Equal(t, made["id"], list[0]["id"], "newest first")

	confined := items(t, b.ok(t, confinedToken, http.StatusOK, http.MethodGet, "/admin/v1/tenants", nil))
	require.Len(t, confined, 1)
	require.Equal(t, tenantText(b.a), confined[0]["id"])

	for _, name := range []string{"", "   ", strings.Repeat("x", 201), "a\nb"} {
		b.problem(t, adminToken, http.StatusUnprocessableEntity, "parameter_invalid", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": name})
	}
	b.problem(t, adminToken, http.StatusBadRequest, "invalid_request", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "a\x00b"})
	b.problem(t, adminToken, http.StatusBadRequest, "parameter_missing", http.MethodPost, "/admin/v1/tenants", map[string]any{})
	b.problem(t, adminToken, http.StatusBadRequest, "parameter_unknown", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x", "Name": "y"})
	b.problem(t, confinedAdminToken, http.StatusForbidden, "forbidden", http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := keysPath(tenantText(b.a))

	made := b.ok(t, adminToken, http.StatusCreated, http.MethodPost, path, map[string]any{"livemode": true, "scopes": []string{"refunds:read", "payment_intents:read"}})
	secret := made["secret"].(string)
	livemode, hash, err := apikey.Parse(secret)
	require.NoError(t, err)
	require.True(t, livemode)
	require.Equal(t, []any{"payment_intents:read", "refunds:read"}, made["scopes"])
	require.Equal(t, secret[len(secret)-4:], made["last4"])
	var stored []byte
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT hash FROM apipay.api_keys`).Scan(&stored))
	require.Equal(t, hash[:], stored)

	all := b.ok(t, adminToken, http.StatusCreated, http.MethodPost, path, map[string]any{"livemode": false, "expires_at": "2999-01-02T03:04:05.000006Z"})
	require.Len(t, all["scopes"], len(apikey.Scopes()))
	require.Equal(t, "2999-01-02T03:04:05.000006Z", all["expires_at"])

	keyPath := path + "/" + made["id"].(string)
	for _, read := range []string{path, keyPath} {
		got := b.do(t, viewerToken, http.MethodGet, read, nil)
		require.Equal(t, http.StatusOK, got.status)
		require.NotContains(t, got.raw, "secret")
		require.NotContains(t, got.raw, "hash")
		require.NotContains(t, got.raw, secret)
	}

	require.Equal(t, http.StatusNoContent, b.do(t, adminToken, http.MethodDelete, keyPath, nil).status)
	audited := len(b.audits(t))
	require.Equal(t, http.StatusNoContent, b.do(t, adminToken, http.MethodDelete, keyPath, nil).status)
	require.Len(t, b.audits(t), audited, "a repetition changes nothing")
	require.NotNil(t, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, keyPath, nil)["revoked_at"])
	b.problem(t, adminToken, http.StatusConflict, "invalid_state", http.MethodPost, keyPath+"/roll", nil)

	// Another tenant's key under this tenant's path, and the other way round.
	other := keysPath(tenantText(b.b))
	b.problem(t, adminToken, http.StatusNotFound, "not_found", http.MethodDelete, other+"/"+all["id"].(string), nil)
	b.problem(t, confinedAdminToken, http.StatusNotFound, "not_found", http.MethodPost, other, map[string]any{"livemode": false})
	b.problem(t, adminToken, http.StatusNotFound, "not_found", http.MethodPost, keysPath("tnt_00000000000000000000000000"), map[string]any{"livemode": false})
	require.NotContains(t, b.log.String(), secret)
	for _, entry := range b.audits(t) {
		require.NotContains(t, entry.Changes, secret)
	}
}

func TestKeys_RefusesBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := keysPath(tenantText(b.a))
	for name, test := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"no mode":        {`{}`, 400, "parameter_missing"},
		"null mode":      {`{"livemode":null}`, 400, "invalid_request"},
		"mode as text":   {`{"livemode":"true"}`, 400, "invalid_request"},
		"no scope":       {`{"livemode":true,"scopes":[]}`, 422, "parameter_invalid"},
		"unknown scope":  {`{"livemode":true,"scopes":["admin"]}`, 422, "parameter_invalid"},
		"scope twice":    {`{"livemode":true,"scopes":["events:read","events:read"]}`, 422, "parameter_invalid"},
		"scope as text":  {`{"livemode":true,"scopes":"events:read"}`, 400, "invalid_request"},
		"past":           {`{"livemode":true,"expires_at":"2001-01-01T00:00:00Z"}`, 422, "parameter_invalid"},
		"no time":        {`{"livemode":true,"expires_at":"tomorrow"}`, 400, "invalid_request"},
		"two values":     {`{"livemode":true}{}`, 400, "invalid_request"},
		"name twice":     {`{"livemode":true,"livemode":false}`, 400, "invalid_request"},
		"lone surrogate": {`{"livemode":true,"scopes":["\ud800"]}`, 400, "invalid_request"},
		"array":          {`[]`, 400, "invalid_request"},
		"empty":          {``, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			b.problem(t, adminToken, test.status, test.code, http.MethodPost, path, test.body)
		})
	}
	require.Empty(t, items(t, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, path, nil)))
}

func TestRollKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := keysPath(tenantText(b.a))
	create := func(body map[string]any) string {
		return path + "/" + b.ok(t, adminToken, http.StatusCreated, http.MethodPost, path, body)["id"].(string)
	}

	old := create(map[string]any{"livemode": true, "scopes": []string{"events:read"}})
	before := time.Now()
	next := b.ok(t, adminToken, http.StatusCreated, http.MethodPost, old+"/roll", map[string]any{"overlap_seconds": 3600})
	require.Equal(t, true, next["livemode"])
	require.Equal(t, []any{"events:read"}, next["scopes"])
	require.True(t, strings.HasPrefix(next["secret"].(string), "apk_live_"))
	rolled := b.ok(t, viewerToken, http.StatusOK, http.MethodGet, old, nil)
	require.Equal(t, next["id"], rolled["rolled_to"])
	expires, err := time.Parse(time.RFC3339Nano, rolled["expires_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, before.Add(time.Hour), expires, time.Minute)
	require.Equal(t, "api_key.roll", b.lastAudit(t).Action)
	b.problem(t, adminToken, http.StatusConflict, "invalid_state", http.MethodPost, old+"/roll", nil)

	// A key that ends sooner is not made to live longer.
	soon := time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond)
	ending := create(map[string]any{"livemode": false, "expires_at": soon.Format(time.RFC3339Nano)})
	b.ok(t, adminToken, http.StatusCreated, http.MethodPost, ending+"/roll", nil)
	kept, err := time.Parse(time.RFC3339Nano, b.ok(t, viewerToken, http.StatusOK, http.MethodGet, ending, nil)["expires_at"].(string))
	require.NoError(t, err)
	require.True(t, kept.Equal(soon), "%s is not %s", kept, soon)

	// Nor does a roll make a key that ends live on under another name, unless that is asked for.
	end := time.Now().Add(30 * 24 * time.Hour).UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	limited := map[string]any{"livemode": false, "expires_at": end}
	roll := func(body any) any {
		return b.ok(t, adminToken, http.StatusCreated, http.MethodPost, create(limited)+"/roll", body)["expires_at"]
	}
	require.Equal(t, end, roll(nil))
	require.Equal(t, end, roll(map[string]any{"overlap_seconds": 0}))
	later := time.Now().Add(60 * 24 * time.Hour).UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	require.Equal(t, later, roll(map[string]any{"expires_at": later}))
	require.Nil(t, roll(map[string]any{"expires_at": nil}))
	require.Contains(t, b.lastAudit(t).Changes, `"next_expires_at": null`)
	require.Nil(t, next["expires_at"], "the old one had no end either")
	b.problem(t, adminToken, 422, "parameter_invalid", http.MethodPost, create(limited)+"/roll", map[string]any{"expires_at": "2020-01-01T00:00:00Z"})
	b.problem(t, adminToken, 400, "invalid_request", http.MethodPost, create(limited)+"/roll?x=1", nil)
	b.problem(t, adminToken, 400, "invalid_request", http.MethodPost, path+"?x=1", limited)

	atOnce := create(map[string]any{"livemode": false})
	for _, overlap := range []string{"-1", "604801", "99999999999999999999"} {
		b.problem(t, adminToken, 422, "parameter_invalid", http.MethodPost, atOnce+"/roll", `{"overlap_seconds":`+overlap+`}`)
	}
	for _, overlap := range []string{"1.5", `"60"`, "1e3"} {
		b.problem(t, adminToken, 400, "invalid_request", http.MethodPost, atOnce+"/roll", `{"overlap_seconds":`+overlap+`}`)
	}

	// Many at once make one successor.
	var wg sync.WaitGroup
	statuses := make(chan int, 10)
	for range cap(statuses) {
		wg.Go(func() {
			got, err := b.try(t.Context(), adminToken, http.MethodPost, atOnce+"/roll", `{"overlap_seconds":0}`)
			if err != nil {
				got.status = -1
			}
			statuses <- got.status
		})
	}
	wg.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusConflict: 9}, counts, fmt.Sprint(counts))
}
